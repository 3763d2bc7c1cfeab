"""Figures of benchmarks, and what their committed results and pages say of how they were made."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def modules():
    """The benchmarks' shared modules, imported as their scripts do."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("paired"), importlib.import_module("outcome")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_a_latency_class_is_judged_with_the_interval_of_the_late_share(modules):
    plan_truth = importlib.import_module("plan_truth")

    def right(late: float, **interval: object) -> dict[str, float]:
        slot = {"class": "within", "late": late, "transactions": 2000, "memory": [1.0, 1.0], **interval}
        found = plan_truth._memory_and_latency([[slot]])
        return {figure.name: figure.value for figure in found if "classes" in figure.name}

    assert right(0.01) == {"latency classes right": 100, "latency classes open": 0}, "by independent transactions, 0.6 to 1.5 %"
    assert right(0.045) == {"latency classes open": 100}
    assert right(0.01, **{"late interval": [0.0, 0.06]}) == {"latency classes open": 100}
    assert right(0.2, **{"late interval": [0.15, 0.3]})["latency classes right"] == 0
    assert right(0.01, **{"late interval": [None, None]}) == {"latency classes open": 100}


@pytest.mark.parametrize("file", sorted((BENCHMARKS / "results").glob("*.json")), ids=lambda file: file.stem)
def test_committed_figures_are_by_the_formulas_of_today(file, modules):
    again, document = importlib.import_module("again"), json.loads(file.read_text())
    made = again.figures_again(document)
    assert (made is None) == (file.stem in again.NOT_IN_RAW)
    assert made is None or again.changes(document, made) == [], "run: python benchmarks/again.py"


def test_figures_that_differ_are_told(modules):
    again = importlib.import_module("again")
    old = vars(modules[1].Figure("x", 1.0, "s", 0.9, 1.1, 6, goal="≤ 2", met=True))
    assert again.changes({"figures": [old]}, [{**old, "value": 1.0 + 1e-6}]) == [], "rounded"
    assert again.changes({"figures": [old]}, [{**old, "met": None}]) == [
        "x: 1 (0.9 to 1.1), n=6, ≤ 2: True → x: 1 (0.9 to 1.1), n=6, ≤ 2: None"
    ]
    assert again.changes({"figures": [old]}, [{**old, "low": None}]) == ["x: 1 (0.9 to 1.1), n=6, ≤ 2: True → x: 1, n=6, ≤ 2: True"]
    assert again.changes({"figures": [old]}, [{**old, "name": "y"}]) == [
        "gone: x: 1 (0.9 to 1.1), n=6, ≤ 2: True",
        "new: y: 1 (0.9 to 1.1), n=6, ≤ 2: True",
    ]


def test_the_default_repeats_of_a_hundred_hosts_can_decide(modules):
    hundred = importlib.import_module("cluster_hundred")
    rows = [{"hosts": 100, **{step: 0.1 * (9 + repeat) for step, *_ in hundred.STEPS}} for repeat in range(hundred.REPEATS)]
    assert [figure.met for figure in hundred.figures(rows) if figure.goal] == [True, None, True], "the goals are 2, 1 and 30 s"


def test_scrapes_of_one_trial_are_not_independent(modules):
    metrics_cost = importlib.import_module("metrics_cost")
    rows = [
        {"databases": 8, "trial": trial, "ms": 2.0, "CPU ms": 10.0 + trial + one, "samples": 5.0, "bytes": 9.0}
        for trial in range(3)
        for one in (-0.1, 0.1) * 4
    ]
    rows += [{"databases": 8, "trial": trial, "glimpse CPU ms": 3.0 + trial, "glimpse bytes": 9.0} for trial in range(3) for _ in "ab"]
    figures = {figure.name: figure for figure in metrics_cost.figures(rows, 2.0)}
    scrape, share = figures["8 databases, a scrape"], figures["8 databases, a scrape each 2 s"]
    assert (scrape.value, scrape.n, share.value) == (pytest.approx(11), 3, pytest.approx(0.55))
    assert scrape.low == pytest.approx(11 - 4.303 / 3**0.5, abs=1e-3), "Student's t of three values with a deviation of 1"
    assert figures["8 databases, a glimpse of a cluster's host"].n == 3


def test_hits_of_searches_are_judged_by_their_share(modules):
    slo_truth = importlib.import_module("slo_truth")

    def met(near: int, far: int) -> bool | None:
        row = {"series": "rate", "truth": 10.0, "step": 1.0, "open": False, "seconds": 9.0}
        answers = [10.0] * near + [20.0] * far
        return slo_truth.figures([{**row, "capacity": [answer, answer - 1, answer + 1]} for answer in answers])[0].met

    assert (met(9, 1), met(8, 2), met(5, 0)) == (True, False, None)
    assert (met(18, 2), met(9, 11)) == (True, False), "9 of 20 are not 9 of 10"


def test_steal_is_judged_by_its_worst_case(modules):
    steal_pairs = importlib.import_module("steal_pairs")
    usual = {"burst": 1.0, "studies": 2000, "false": 80, "bias": [0.001, 0.0, 0.002]}
    rows = [
        {**usual, "steal": steal, "truth": truth, "further loss": further, "covered": 1800 if steal == 0.4 else 1950}
        for steal in steal_pairs.STEAL
        for truth in steal_pairs.TRUTHS
        for further in steal_pairs.FURTHER_LOSS
    ]
    figures = {figure.name: figure for figure in steal_pairs.figures(rows)}
    pooled, worst = figures["ratio 1.05 covered"], figures["ratio 1.05 covered, the worst case"]
    assert pooled.value > 96 and not pooled.goal and (worst.value, worst.n, worst.met) == (90, 2000, False)
    assert "steal_pairs, where each end is a one-sided 99 % bound" in importlib.import_module("results_page").INTRODUCTION


def test_the_extensions_page_is_no_measured_code(modules, monkeypatch):
    outcome, called = modules[1], []

    def run(words, **_):
        called.append(words)
        return SimpleNamespace(returncode=0, stdout="7")

    monkeypatch.setattr(outcome.subprocess, "run", run)
    assert outcome.commits_since("abc") == 7 and outcome.commit.__wrapped__() == "7"
    paths = [words[words.index("--") + 1 :] for words in called if "--" in words]
    assert paths == [list(outcome.MEASURED)] * 2 and ":!../extension/pg_balloon/RESULTS.md" in paths[0]


def test_every_run_of_a_result_keeps_its_arguments_and_its_noise(modules, tmp_path, monkeypatch):
    results_page, outcome = importlib.import_module("results_page"), modules[1]
    monkeypatch.setattr(outcome, "_added_to", {})
    monkeypatch.setattr(outcome, "_before", [])
    options = Namespace(out=tmp_path / "startup.json", machine="a machine")
    for seed, words in ((1, ["--pairs", "3"]), (2, ["--more", "--seed", "2"]), (3, ["--more"])):
        monkeypatch.setattr(sys, "argv", ["startup.py", *words])
        raw = outcome.blocks_before("startup", options, {}) if seed > 1 else []
        made = outcome.Outcome("startup", False, seed, {}, [outcome.Figure("x", 1.0, "s")], [*raw, {"x": seed}], {"steal share": seed / 10})
        for _ in "ab":  # as a benchmark that stores what it has so far
            outcome.store(made, options)
    document = json.loads(options.out.read_text())
    assert [(run["seed"], run["arguments"], run["noise"]["steal share"], run["machine"]) for run in (*document["before"], document)] == [
        (1, ["--pairs", "3"], 0.1, "a machine"),
        (2, ["--more", "--seed", "2"], 0.2, "a machine"),
        (3, ["--more"], 0.3, "a machine"),
    ]
    script = "benchmarks/startup.py"
    assert f"· `{script} --pairs 3`, then `{script} --more --seed 2`, then `{script} --more` ·" in results_page.section(document)
    without = {name: value for name, value in document.items() if name != "before"}
    assert " · arguments not recorded · " in results_page.section({**without, "arguments": []}), "of its additions"
    options.out.write_text(json.dumps({**without, "arguments": []}))
    outcome.blocks_before("startup", options, {})
    assert outcome._before[0]["arguments"] is None
    alone = {name: value for name, value in without.items() if name != "first"}
    assert f" · `{script}` · " in results_page.section({**alone, "arguments": []})
    del alone["arguments"]
    assert " · arguments not recorded · " in results_page.section(alone)


def test_throughput_at_a_limit_is_compared_by_repeat(modules):
    limit_changes = importlib.import_module("limit_changes")

    def trial(pool: str, repeat: int, tps: float) -> dict[str, object]:
        phase = {"tps": tps, "recovered": 1.0, "limited": 0.5, "p99": 1.0, "slowest": 50.0, "zram": 10.0 * (repeat + 1)}
        return {"case": "none", "pool": pool, "repeat": repeat, "killed": False, "tainted": False, "error": None, "phases": [phase] * 10}

    def ratio(*rows: dict[str, object]):
        figures = {figure.name: figure for figure in limit_changes.figures(rows)}
        return figures["at 50 %, all cases: throughput, of the best native pool"]

    balloons = [trial("balloon", repeat, 10.0**repeat) for repeat in (0, 1, 2)]
    natives = [trial("large", repeat, 2 * 10.0**repeat) for repeat in (1, 2, 3)]
    by_repeat = ratio(*balloons, *natives)
    assert (by_repeat.value, by_repeat.n) == (pytest.approx(0.5), 2), "not the first of each against one another"
    still = ratio(*balloons[:2], trial("balloon", 2, 0.0), *natives)
    assert (still.value, still.low, still.met, still.n) == (0.0, None, False, 2) and "no ratio" in still.note
    figures = {figure.name: figure for figure in limit_changes.figures(balloons)}
    swap = figures["pool balloon at 25 %: memory of compressed swap, beyond the limit"]
    assert (swap.value, swap.n) == (20.0, 3), "one value of each trial"
    assert figures["limit changed to a larger one: p99, of the phase without a change"].n == 3
