"""Databases that share a host for real: layouts deployed, loads switched together, memory taken away, kills found."""

from __future__ import annotations

import json
import os
import re

import pytest

from pgherd.host.facts import gather
from pgherd.node.local import LocalNode

LAYOUTS = ("shared-server", "shared-container", "dedicated", "shared-database")
FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
BAD_USAGE, CANNOT = 2, 3
SMALL = ("--workload", "random-block", "--memory", "128MB", "--busy-clients", "3", "--quiet-clients", "1", "--no-report", "--json")
NO_RERUNS = [word for name in ("max_background_cpu=1", "max_steal=1", "min_overlap=0.01") for word in ("--threshold", name)]
QUICK = ("--period-length", "1s", "--warmup", "0.5s", "--periods", "2", *NO_RERUNS)


@pytest.fixture
def limits():
    """Skip where memory cannot be limited."""
    facts = gather(LocalNode())
    if facts.cgroup_writable is None:
        pytest.skip(f"no control groups can be made here: {facts.cgroup_missing}")


def document(ended):
    assert ended.code in FINE, ended
    result = json.loads(ended.out)
    assert result["schema"] == "pgherd/consolidation/2"
    return result


def test_four_layouts_side_by_side(pgherd, limits):
    schemes = ("--schemes", ",".join(LAYOUTS), "--shared-buffers-percent", "25", "--scale", "16")
    ended = pgherd("consolidation", *schemes, *SMALL, *QUICK, "--pattern", "burst")
    result = document(ended)
    rows = {row["layout"]: row for row in result["tables"]["consolidation"]}
    assert all(rows[layout]["throughput"]["value"] > 0 for layout in LAYOUTS), result["warnings"]
    assert all(row["throughput"]["unit"] == "tps" for row in rows.values())
    assert len(result["tables"].get("wait_events", [])) < 2 or "Active sessions differ most" in result["details"][0]
    by_layout = {trial["trial"]["point"]["layout"]: trial for trial in pgherd.trials() if not trial["error"]}
    for layout, shape in zip(LAYOUTS, ((1, 1, 2), (1, 2, 1), (2, 1, 1), (1, 1, 2)), strict=True):
        containers = by_layout[layout]["trial"]["deployment"]["hosts"][0]["containers"]
        assert (len(containers), len(containers[0]["servers"]), len(containers[0]["servers"][0]["databases"])) == shape
        row, gigabytes = rows[layout], rows[layout]["memory_charged"]["value"] / 1024
        assert row["throughput_per_gb"]["value"] == pytest.approx(row["throughput"]["value"] / gigabytes, rel=1e-3)
        buffers = sum(int(server["settings"]["shared_buffers"].removesuffix("MB")) for one in containers for server in one["servers"])
        assert buffers / 4 < 1024 * gigabytes < 256, "warmed buffers are charged, and the containers have 256 MB in all"
    for phases in (trial["phases"] for trial in by_layout.values()):
        assert [len(phase["targets"]) for phase in phases] == [2, 2]
        assert all(0 <= phase["skew"] < phase["end"] - phase["start"] for phase in phases)
    loads = [[load["clients"] for load in phase["loads"].values()] for phase in by_layout["dedicated"]["trial"]["phases"]]
    assert loads == [[1, 1], [3, 3]], "a burst: all are quiet, then all are busy"
    skews = [phase["skew"] for trial in pgherd.trials() for phase in trial["phases"]]
    assert result["findings"]["switch_skew"]["value"] == pytest.approx(1000 * max(skews))
    verdicts = {verdict["name"] for trial in result["trials"] for verdict in trial["checks"]}
    assert "switch-skew" in verdicts
    pgherd.ended_well(ended)


@pytest.mark.parametrize(
    ("pattern", "clients"),
    [("diurnal", [[3, 2, 1, 2], [1, 2, 3, 2]]), ("steady", [[2], [2]]), ("3,1/0,2", [[3, 1], [0, 2]])],
    ids=["diurnal", "steady", "listed"],
)
def test_each_period_has_the_clients_of_its_pattern(pgherd, pattern, clients):
    size = ("--shared-buffers-percent", "25", "--period-length", "1s", "--warmup", "0.5s", "--runtime", "process", *NO_RERUNS)
    named = () if "/" in pattern else ("--busy-clients", "3", "--quiet-clients", "1", "--periods", str(len(clients[0])))
    load = ("--workload", "tpcb-like", "--scale", "1", "--pattern", pattern, *named)
    document(pgherd("consolidation", "--schemes", "shared-database", *load, *size, "--no-report", "--json"))
    trial = pgherd.trials()[0]
    assert trial["error"] is None, trial["error"]
    found = []
    for phase in trial["phases"]:
        reports = {target["target"]: next(name for name in target["raw"] if name.endswith("/stdout")) for target in phase["targets"]}
        texts = [(pgherd.run / "trials" / trial["id"] / name).read_text() for _, name in sorted(reports.items())]
        found.append([int(re.search(r"^number of clients: (\d+)$", text, re.MULTILINE)[1]) for text in texts])
    assert found == [[number for number in period if number] for period in zip(*clients, strict=True)]


def test_what_is_ended_for_want_of_memory_is_found_and_the_run_goes_on(pgherd, limits):
    """Shared buffers of two servers that are all in use cannot leave memory without swap."""
    if os.geteuid() != 0:
        pytest.skip("a limit on swap takes root here")
    arguments = (
        "--schemes",
        "dedicated",
        "--shared-buffers-percent",
        "60",
        "--overcommit",
        "0.75",
        "--swap",
        "none",
        "--scale",
        "64",
        *SMALL,
        *QUICK,
    )
    result = document(pgherd("consolidation", *arguments))
    kills = result["tables"].get("oom_kills", [])
    assert kills, result
    assert {kill["trial"].partition("#")[0] for kill in kills} == {"layout=dedicated,overcommit=0.75,shared_buffers_percent=60"}
    assert {kill["container"] for kill in kills} <= {"db1", "db2"}
    assert all(0 <= kill["time"] < 60 for kill in kills)
    (over,) = (row for row in result["tables"]["consolidation"] if row["overcommit"] == 0.75)
    assert over["trials_with_oom_kill"] == 1 and over["throughput"]["value"] is None
    assert pgherd.record()["state"] == "finished"


def test_a_dry_run_shows_the_layouts_and_does_nothing(pgherd, limits):
    ended = pgherd(
        "consolidation",
        "--schemes",
        "shared-server,dedicated",
        "--dry-run",
        "--workload",
        "select-only",
        "--scale",
        "5",
        "--memory",
        "256MB",
    )
    assert ended.code == 0, ended
    assert "Layout shared-server: 1 container" in ended.out and "Layout dedicated: 2 containers" in ended.out
    assert pgherd.run is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--schemes", "dedicated,9"), "'schemes.1': input should be 'shared-server'"),
        (("--pattern", "weekly"), "there is no pattern 'weekly'"),
        (("--memory", "64TB", "--scale", "1"), "of configured memory, more than the host's budget"),
        (("--overcommit", "0.97", "--memory", "128MB", "--scale", "1", "--busy-clients", "2"), "even if they cache nothing"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(pgherd, limits, arguments, message):
    ended = pgherd("consolidation", *arguments)
    assert ended.code == BAD_USAGE and message in ended.message
    assert pgherd.run is None
