"""`pgherd compare` on real servers: blocks, what differs, resume in the middle of a block, bad input."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import signal
from pathlib import Path

import pytest

FINE = (0, 1)
"""Exit codes of a run that came to its end: so few and short trials give grade C on a busy machine."""
INTERRUPTED, BAD_USAGE = 130, 2
QUICK = ("compare", "--scale", "1", "--duration", "1s", "--warmup", "0s", "--host-memory", "1GB", "--no-report")
CALM = (
    "--threshold",
    "max_background_cpu=1",
    "--threshold",
    "max_steal=1",
    "--threshold",
    "min_overlap=0.01",
    "--threshold",
    "max_overrun=9",
)
"""What else runs on the host is no matter here, and no reason to run a block again."""
LONGER = ("--duration", "2s", "--warmup", "500ms")
BUFFERS = ("--variant", "whole", "--variant", "tiny:shared_buffers=128kB")


def rows(log):
    """The lines of a compressed transaction log, in columns."""
    return [line.split() for line in gzip.decompress(log.read_bytes()).decode().splitlines()]


def side(trial) -> str:
    return trial["trial"]["point"]["variant"]


def test_variants_differ_in_what_they_were_told_to(pgherd):
    ended = pgherd(*QUICK, *CALM, *BUFFERS, "--interleave", "trials", "--max-blocks", "2", "--json")
    assert ended.code in FINE, ended
    trials = pgherd.trials()
    assert len(trials) >= 6 and not [trial["error"] for trial in trials if trial["error"]]
    first = {side(trial): trial for trial in trials[:3]}
    assert set(first) == {"whole", "whole (A/A)", "tiny"}
    assert [trial["transition"] for trial in trials[1:3]] == ["1 restarted"] * 2, "all sides begin alike"
    misses = {name: trial["phases"][0]["metrics"]["server:db01/pg"]["db.blks_read"] for name, trial in first.items()}
    assert misses["tiny"] > 100 * max(misses["whole"], misses["whole (A/A)"], 1), "the server really had so few buffers"
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/compare/2" and document["study"] == "compare"
    (difference,) = document["tables"]["differences"]
    assert (difference["option"], difference["tiny"]) == ("shared_buffers", "128kB") and difference["whole"].endswith("MB")
    row = document["tables"]["comparison"][0]
    assert (row["variant"], row["metric"], row["primary"]) == ("tiny", "throughput", 1) and row["ratio_to_baseline"]["value"] > 0
    assert {row["trial"] for row in document["tables"]["blocks"]} <= {trial["id"] for trial in trials}
    shown = pgherd("show", "last")
    assert shown.code == 0 and document["answer"][:40] in re.sub(r"\s+", " ", shown.out) and "throughput" in shown.out
    assert "compare" in pgherd("list").out
    repeated = pgherd("show", "last", "1", "--repro-script")
    assert repeated.code == 0 and "pgbench" in repeated.out
    pgherd.judged_fairly()


def test_loads_are_interleaved_in_slices(pgherd):
    ended = pgherd(*QUICK, *CALM, *BUFFERS, "--max-blocks", "2", "--json")
    assert ended.code in FINE, ended
    trials = pgherd.trials()
    assert len(trials) >= 2 and not [trial["error"] for trial in trials if trial["error"]]
    assert [trial["transition"] for trial in trials[:2]] == ["3 restored", "3 restarted"], "all begin each block alike"
    for trial in trials:
        assert side(trial) == "all-interleaved"
        (phase,) = trial["phases"]
        by_container = {target["target"].split("/")[1]: target for target in phase["targets"]}
        assert set(by_container) == {"whole", "whole-a-a", "tiny"}
        spans = sorted((turn["begun"], turn["ended"]) for target in phase["targets"] for turn in target["slices"])
        assert len(spans) >= 6 and all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), spans
        for target in phase["targets"]:
            log = next(name for name in target["raw"] if "/log." in name)
            ends = [float(f"{row[4]}.{int(row[5]):06d}") for row in rows(pgherd.run / "trials" / trial["id"] / log)]
            own = [(turn["begun"], turn["ended"] + 0.01) for turn in target["slices"]]
            within = [at for at in ends if phase["start"] + 0.35 < at <= phase["end"]]
            stray = [at for at in within if not any(begun <= at <= ended for begun, ended in own)]
            assert len(within) > 100 and len(stray) <= len(within) // 100, "it made load in its own turns"
    document = json.loads(ended.out)
    assert {row["variant"] for row in document["tables"]["blocks"]} == {"whole", "whole (A/A)", "tiny"}
    misses = {item: trials[1]["phases"][0]["metrics"][f"server:{item}/pg"]["db.blks_read"] for item in ("whole", "whole-a-a", "tiny")}
    assert misses["tiny"] > 100 * max(misses["whole"], misses["whole-a-a"], 1), "the server really had so few buffers"
    record = pgherd.record()
    assert record["options"]["interleave"] == "slices"
    assert {name: variant_setting["shared_buffers"] for name, variant_setting in record["variant_settings"].items()}["tiny"] == "128kB"
    assert "shared_buffers" not in record["settings"], "the two differ in it"
    repeated = pgherd("show", "last", "2", "--repro-script")
    assert repeated.code == 0 and repeated.out.count("\nwarm ") == 3 and repeated.out.count("\nreport\n") == 3, "one after the other"


@pytest.mark.long  # its grade needs a host without other tests
def test_three_blocks_have_a_grade(pgherd):
    ended = pgherd(*QUICK, *BUFFERS, *LONGER, "--max-blocks", "3", "--time-budget", "60s", "--json")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    (row,) = [row for row in document["tables"]["comparison"] if row["primary"]]
    assert row["variant"] == "tiny" and row["ratio_to_baseline"]["value"] > 0
    pgherd.ended_well(ended)


def test_a_comparison_ends_with_its_precision(pgherd):
    """The variants are alike. Ten blocks permit a look at seven, whose interval reaches from the lowest ratio to the highest."""
    precision = ("--max-blocks", "10", "--precision", "45%", "--equivalence-margin", "0.01%")
    pgherd.patience = 400.0
    ended = pgherd(*QUICK, *CALM, "--variant", "same:work_mem=5MB", *precision, "--json")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    rows_of = {name: [row for row in document["tables"]["blocks"] if row["variant"] == name] for name in ("base", "same")}
    pairs = zip(rows_of["same"][:7], rows_of["base"][:7], strict=True)
    ratios = [same["throughput"] / base["throughput"] for same, base in pairs]
    enough = max(ratios) / min(ratios) <= 1.45**2
    assert len(rows_of["same"]) == (7 if enough else 10), ratios
    (ratio,) = [row["ratio_to_baseline"] for row in document["tables"]["comparison"] if row["primary"]]
    assert not enough or (ratio["low"], ratio["high"]) == pytest.approx((min(ratios), max(ratios)))


def stopped(pid: int) -> bool:
    """Whether a process waits until it is its turn."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["KILL", "INT"])
def test_ended_while_clients_wait_for_their_turn(pgherd, number):
    process = pgherd.start(*QUICK, *CALM, *BUFFERS, "--duration", "3s", "--max-blocks", "2")
    pgherd.wait_until(lambda: any(map(stopped, pgherd.programs("pgbench"))))
    process.send_signal(number)
    ended = pgherd.end(process)
    assert ended.code == (-number if number == signal.SIGKILL else INTERRUPTED), ended
    if number == signal.SIGKILL:
        assert pgherd("clean").code == 0
    pgherd.nothing_left(said=ended.err)
    assert not pgherd.trials() and pgherd("resume", "last", "--no-report").code in FINE
    assert len(pgherd.trials()) >= 2 and pgherd.record()["state"] == "finished"


def test_a_client_that_dies_while_it_waits_is_told(pgherd):
    process = pgherd.start(*QUICK, *CALM, *BUFFERS, "--duration", "5s", "--max-blocks", "1")

    def waiting() -> list[int]:
        return [pid for pid in pgherd.programs("pgbench") if stopped(pid)]

    pgherd.wait_until(lambda: bool(waiting()))
    victim = next(iter(waiting()), None)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    ended = pgherd.end(process)
    assert pgherd.trials()[0]["error"].startswith("pgbench on local/") and "ended early with signal SIGKILL" in pgherd.trials()[0]["error"]
    pgherd.nothing_left(said=ended.err)


def test_resumed_in_the_middle_of_a_block(pgherd):
    process = pgherd.start(
        *QUICK, *CALM, "--variant", "simple:protocol=simple", "--interleave", "trials", "--max-blocks", "2", "--seed", "7"
    )
    pgherd.wait_until(lambda: pgherd.in_trial(5))
    process.send_signal(signal.SIGINT)
    ended = pgherd.end(process)
    assert ended.code == INTERRUPTED and "Resume with: pgherd resume" in ended.err, ended
    retained, before = pgherd.digests(), [trial["trial"] for trial in pgherd.trials()]
    assert len(before) == 4
    resumed = pgherd("resume", "last", "--no-report")
    assert resumed.code in FINE, resumed
    assert {name: pgherd.digests().get(name) for name in retained} == retained
    trials = pgherd.trials()
    assert [trial["trial"] for trial in trials[:4]] == before
    blocks: dict[int, list[str]] = {}
    for trial in trials:
        blocks.setdefault(trial["trial"]["repeat"], []).append(side(trial))
    assert all(sorted(sides) == ["base", "base (A/A)", "simple"] for sides in blocks.values()), blocks
    assert pgherd.record()["state"] == "finished"


def test_scenario_files_of_watched_servers(pgherd, tmp_path):
    """Those of the storage study, whose options hold the server's own; its findings are compared too."""
    files = []
    for name, clients in (("few", 1), ("many", 2)):
        files.append(str(tmp_path / f"{name}.yaml"))
        options = {"scale": 1, "clients": clients, "duration": "4s", "warmup": "0s"}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"study": "io-profile", "options": options}))
    ended = pgherd("compare", *files, *CALM, "--max-blocks", "1", "--host-memory", "1GB", "--no-report", "--json")
    assert ended.code in FINE, ended
    trials = pgherd.trials()
    assert sorted(map(side, trials[:3])) == ["few", "few (A/A)", "many"] and not [trial["error"] for trial in trials if trial["error"]]
    document = json.loads(ended.out)
    differing = {row["option"]: (row["few"], row["many"]) for row in document["tables"]["differences"]}
    assert differing.pop("clients") == ("1", "2") and set(differing) <= {"max_connections", "threads"}, differing
    assert "io-profile.throughput" in {row["metric"] for row in document["tables"]["comparison"]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(("--variant", "a", "--variant", "b"), "variants 'a' and 'b' are identical", id="identical"),
        pytest.param(
            ("--variant", "a:work_mem=1GB", "--variant", "b:work_mem=1024MB"),
            "identical: work_mem is 1GB in 'a' and 1024MB in 'b', which is the same value",
            id="identical in other words",
        ),
        pytest.param(("--variant", "a:work_mem=much"), 'variant \'a\': .*invalid value for parameter "work_mem": "much"', id="bad value"),
        pytest.param(
            ("--variant", "a:nonsense=1"), "variant 'a': .*unrecognized configuration parameter \"nonsense\"", id="no such setting"
        ),
        pytest.param(("--variant", "a:clientz=4"), "'clientz' is neither an option nor a setting .did you mean clients", id="typing error"),
        pytest.param((), "there is nothing to compare", id="nothing"),
        pytest.param(("/nonexistent.yaml", "/nonexistent.yaml"), "/nonexistent.yaml: No such file", id="no scenario"),
    ],
)
def test_bad_input(pgherd, arguments, text):
    ended = pgherd(*QUICK, *arguments)
    assert ended.code == BAD_USAGE, ended
    assert re.search(text, ended.message), ended.message
    assert not ended.out and not list(pgherd.runs.glob("*/run.json"))
    pgherd.nothing_left()


def test_scenarios_of_a_study_are_compared_by_its_own_readings(pgherd):
    """Sizes need no load, and never differ by chance."""
    pgherd.runs.mkdir()
    files = []
    for scale in (1, 2):
        files.append(pgherd.runs / f"scale{scale}.yaml")
        files[-1].write_text(f"study: database-size\noptions:\n  scales: [{scale}]\n")
    ended = pgherd("compare", *map(str, files), "--max-blocks", "1", "--no-report", "--json")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    assert document["answer"]
    assert {side(trial) for trial in pgherd.trials()} == {"scale1", "scale1 (A/A)", "scale2"}
