"""Huge pages for real: reserved before servers start, seen to be used, and given back whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from pgherd.host import huge_pages, shared_settings
from pgherd.node.local import LocalNode
from reports import RESERVED_PAGES, ReservedPages

NODE = LocalNode()
SMALL, LARGE = 2 * 2**20, 2**30
FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
BAD_USAGE, CANNOT = 2, 3
QUICK = ("--scale", "5", "--duration", "1s", "--warmup", "0s", "--max-blocks", "1", "--time-budget", "5s", "--no-report")


def reserved() -> dict[int, int]:
    return {size: pool.reserved for size, pool in huge_pages.pools(NODE).items()}


def state() -> tuple[dict[int, int], str | None]:
    return reserved(), huge_pages.transparent(NODE)


@pytest.fixture
def host():
    """The host's pages as they are, which they must be again after the test."""
    if os.geteuid() != 0 or not huge_pages.may_reserve(NODE, SMALL):
        pytest.skip("huge pages cannot be reserved here: that needs root and a kernel with pages of 2 MB")
    if shared_settings.LEDGER.exists():
        pytest.skip("another run holds huge pages on this host")
    before = state()
    yield before
    assert state() == before
    assert not shared_settings.LEDGER.exists()


def kinds() -> str:
    """Every kind that this host can give for a small server."""
    pools = huge_pages.pools(NODE)
    result = ["none", "2MB"]
    if LARGE in pools and huge_pages.may_reserve(NODE, LARGE):
        result.append("1GB")
    try:
        huge_pages.check_transparent(NODE, on=True)
    except Exception:
        return ",".join(result)
    return ",".join([*result, "thp"])


def test_every_kind_of_pages_is_what_its_server_gets(pgherd, host):
    ended = pgherd("hugepages", "--page-sizes", kinds(), *QUICK, "--yes", "--json")
    if ended.code == CANNOT and "were requested, but the kernel granted" in ended.message:
        pytest.skip(f"this host's memory is in pieces: {ended.message}")
    assert ended.code in FINE, ended
    trials = pgherd.trials()
    assert {trial["trial"]["point"]["variant"] for trial in trials} == {*kinds().split(","), "none (A/A)"}
    for trial in trials:
        assert trial["error"] is None, trial["error"]
        (verdict,) = [check for check in trial["checks"] if check["name"] == "huge-pages"]
        assert verdict["result"] == "pass", verdict
        observed = trial["phases"][0]["metrics"]["server:db01/pg"]
        size = {"2MB": SMALL, "1GB": LARGE}.get(trial["trial"]["point"]["variant"])
        if size:
            assert observed["pages.size"] == size and observed["pages.reserved"] >= 64 * 2**20
            assert trial["phases"][0]["metrics"]["host"]["memory.hugetlb"] >= observed["pages.reserved"]
        else:
            assert observed["pages.reserved"] == 0
    document = json.loads(ended.out)
    rows = {row["pages"]: row for row in document["tables"]["hugepages"]}
    assert rows["none"]["huge_page_share"]["value"] < 0.1 < 0.9 < rows["2MB"]["huge_page_share"]["value"]
    assert document["schema"] == "pgherd/hugepages/2"
    pgherd.judged_fairly()


@pytest.mark.long  # its grade needs a host without other tests
def test_three_blocks_have_a_grade(pgherd, host):
    pgherd.patience = 300.0
    longer = ("--scale", "5", "--duration", "2s", "--warmup", "500ms", "--no-report")
    ended = pgherd("hugepages", "--page-sizes", "none,2MB", *longer, "--max-blocks", "3", "--time-budget", "100s", "--yes", "--json")
    if ended.code == CANNOT and "were requested, but the kernel granted" in ended.message:
        pytest.skip(f"this host's memory is in pieces: {ended.message}")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    (row,) = [row for row in document["tables"]["comparison"] if row["primary"]]
    assert row["variant"] == "2MB" and row["ratio_to_baseline"]["value"] > 0
    pgherd.ended_well(ended)


def test_killed_while_pages_are_reserved(pgherd, host):
    first = ("--page-sizes", "2MB,none", "--seed", "4")  # by which the block does not begin with a minute of the other kind
    process = pgherd.start("hugepages", *first, *QUICK[:2], "--duration", "60s", "--max-blocks", "1", "--yes", "--no-report")
    pgherd.wait_until(lambda: process.poll() is not None or (reserved() != host[0] and pgherd.programs("pgbench")), 0.05)
    assert process.poll() is None and reserved()[SMALL] > host[0][SMALL]
    process.send_signal(signal.SIGKILL)
    ended = pgherd.end(process)
    assert ended.code == -signal.SIGKILL, ended
    cleaned = pgherd("clean")
    assert cleaned.code == 0, cleaned
    assert state() == host, "by this clean, or by one of another worker's that came first: every one takes back what the dead hold"
    pgherd.nothing_left()


def test_any_study_reserves_what_its_servers_insist_on(pgherd, host):
    ended = pgherd.density("--databases", "1,2", "--set", "huge_pages=on", "--yes")
    assert ended.code in FINE, ended
    verdicts = [check for trial in pgherd.trials() for check in trial["checks"] if check["name"] == "huge-pages"]
    assert verdicts and {verdict["result"] for verdict in verdicts} == {"pass"}


@pytest.mark.parametrize("row", RESERVED_PAGES, ids=lambda row: row.report)
def test_pages_that_the_user_reserved_are_used_only_if_asked_for(pgherd, host, row: ReservedPages):
    """110 pages are enough for the first of the servers, and not for all."""
    pool = Path(huge_pages.pool_file(SMALL))
    try:
        for _ in range(3):
            pool.write_text(str(host[0][SMALL] + 110))
            if reserved()[SMALL] < host[0][SMALL] + 110:
                huge_pages.compact(NODE)
        if huge_pages.pools(NODE)[SMALL].spare < 110:
            pytest.skip("the kernel did not grant 110 pages of 2 MB, or servers of others took them")
        ended = pgherd("density", "--databases", "3", "--vcpus", "0.5", "--scale", "5", *QUICK[2:6], "--no-report", *row.options)
    finally:
        pool.write_text(str(host[0][SMALL]))
    assert ended.code in FINE, ended
    for trial in (trial for trial in pgherd.trials() if len(trial["trial"]["deployment"]["hosts"][0]["containers"]) == 3):
        assert trial["error"] is None, trial["error"]
        metrics = trial["phases"][0]["metrics"]
        taken = [metrics[f"server:db{number:02d}/pg"]["pages.reserved"] > 0 for number in (1, 2, 3)]
        results = [check["result"] for check in trial["checks"] if check["name"] == "huge-pages"]
        if row.right and not any(taken):
            pytest.skip("servers of others took the pages first")
        assert (any(taken), all(taken), results) == (row.right, False, ["fail"] if row.right else []), (taken, trial["checks"])


def test_without_a_terminal_a_change_of_the_host_wants_yes(pgherd, host):
    ended = pgherd("hugepages", "--page-sizes", "none,2MB", *QUICK)
    assert ended.code == BAD_USAGE and "this run changes the host: " in ended.message and "give --yes" in ended.message
    assert not list(pgherd.runs.glob("*/run.json"))


def test_a_dry_run_lists_the_change_and_makes_none(pgherd, host):
    ended = pgherd("hugepages", "--page-sizes", "none,2MB", *QUICK, "--dry-run", "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    assert any("huge pages of 2MB" in change for change in document["host_changes"]) and document["needs_confirmation"]
    assert state() == host


def test_pages_that_cannot_be_had(pgherd, host):
    memory = huge_pages._available(NODE)
    arguments = ("hugepages", "--page-sizes", "none,2MB", "--runtime", "process", *QUICK, "--yes")
    ended = pgherd(*arguments, "--set", f"shared_buffers={memory // 2**20}MB")
    assert ended.code == CANNOT, ended
    assert "huge pages of 2MB take" in ended.message and "of memory are available" in ended.message
    assert not list(pgherd.runs.glob("*/run.json"))


def test_an_ordinary_user_is_told_what_would_make_it_able(ordinary):
    pools = huge_pages.pools(NODE)
    if SMALL not in pools or pools[SMALL].spare >= 200:
        pytest.skip("this kernel has no pages of 2 MB, or some stand free")
    for arguments in ((), ("--page-sizes", "none,2MB")):
        ended = ordinary("hugepages", *arguments, *QUICK, "--yes")
        assert ended.code == CANNOT, ended
        assert "run pgherd as root" in ended.message and str(Path(huge_pages.pool_file(SMALL))) in ended.message
    advice = re.search(r"have root write (\d+) to (/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)", ended.message)
    assert advice, ended
    before = Path(advice[2]).read_text()
    try:
        Path(advice[2]).write_text(advice[1])
        followed = ordinary("hugepages", "--page-sizes", "none,2MB", *QUICK, "--dry-run")
        if huge_pages.pools(NODE)[SMALL].spare < int(advice[1]) - int(before):
            pytest.skip("the kernel did not grant the pages, or servers of others took them")
    finally:
        Path(advice[2]).write_text(before)
    assert followed.code == 0, followed
