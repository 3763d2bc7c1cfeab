"""The benchmarks' arithmetic and their committed results. That they run is checked by benchmarks/test_quick.py (./check --long)."""

from __future__ import annotations

import ast
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.analysis.group_sequential import decide
from pgherd.model.analysis import Finding
from pgherd.model.errors import CapabilityError, PgherdError, TrialError, UsageError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SHARED_OPTIONS = {"pairs", "quick", "seed", "out", "machine"}


@pytest.fixture(scope="module")
def modules():
    """The benchmarks' shared modules, imported as their scripts do."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("paired"), importlib.import_module("outcome")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_hodges_lehmann_known_answer(modules):
    # Hollander & Wolfe, Nonparametric Statistical Methods, table 3.1 (depression scale): estimate -0.46; the interval
    # at 96.1 % (the least that is not below 95 %) is -0.786 to -0.010.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    value, low, high = modules[0].hodges_lehmann([y - x for x, y in zip(before, after, strict=True)])
    assert (value, low, high) == pytest.approx((-0.46, -0.786, -0.010), abs=5e-4)


def test_interval_covers_as_often_as_it_says(modules, seed):
    rng = random.Random(seed)
    hits = 0
    for _ in range(1000):
        # Pairs with a burst of foreign load now and then; the true ratio is 0.99.
        ours = [0.99 * rng.lognormvariate(0, 0.02) * (0.7 if rng.random() < 0.05 else 1) for _ in range(20)]
        plain = [rng.lognormvariate(0, 0.02) * (0.7 if rng.random() < 0.05 else 1) for _ in range(20)]
        result = modules[0].ratio(ours, plain)
        hits += result.low <= 0.99 <= result.high
    assert hits >= 920  # 950 are to be expected; fewer than 920 by chance once in 100,000 times


def test_few_pairs_have_a_t_interval_or_none(modules):
    few = modules[0].ratio([2.0, 2.2, 1.8], [1.0, 1.1, 0.9])
    assert few.value == pytest.approx(2.0) and few.low == pytest.approx(2.0) and "t interval" in few.method
    assert modules[0].ratio([2.0], [1.0]).low is None


def test_presence_disturbs_in_either_direction(modules):
    figures = importlib.import_module("presence").figures

    def met(ratio):
        pairs = [{"present": ratio * (1 + 0.001 * (i % 3)), "absent": 1.0} for i in range(20)]
        return figures([pair | {"pgherd CPU present": 0.0, "pgherd CPU absent": 0.0} for pair in pairs], 2)[0].met

    assert (met(0.97), met(1.0), met(1.03)) == (False, True, False)


def test_repeatability_scores_the_capacity_by_cpu_and_the_range_of_the_modes(modules):
    benchmark = importlib.import_module("repeatability")
    modes = [
        {"databases": 10, "mode": mode, "lowest_throughput": low, "highest_throughput": high}
        for mode, low, high in (("slow", 40.0, 50.0), ("fast", 70.0, 80.0))
    ]
    assert benchmark.ranges(modes) == {"10": [40.0, 80.0]}
    row = {"capacity_by_cpu": [9.2, 9.1, 9.3], "capacity_by_throughput": [10.0, 8.0, 12.0], "efficiency at 10": [0.9, 0.7, 1.1]}
    found = {figure.name: figure for figure in benchmark.figures([{**row, "range": benchmark.ranges(modes)}] * 4)}
    assert found["capacity by cpu: width of the interval"].value == pytest.approx(0.2)
    assert found["half width of the capacity by cpu"].met is True and found["half width of the throughput efficiency at 10"].met is False
    assert found["range of the modes: highest ÷ lowest trial of a run at 10"].value == pytest.approx(2)


@pytest.mark.parametrize("pairs", [1, 2, 7, 40])
def test_orders_are_balanced(modules, pairs, seed):
    orders = list(modules[0].orders(pairs, ["plain", "pgherd"], random.Random(seed)))
    assert len(orders) == pairs
    assert all(set(order) == {"plain", "pgherd"} for order in orders)
    assert all(a == b[::-1] for a, b in zip(orders[::2], orders[1::2], strict=False))
    first = Counter(order[0] for order in orders)
    assert abs(first["plain"] - first["pgherd"]) <= 1


def test_pairs_end_when_told(modules):
    observed = []
    sides = {"plain": lambda: 1, "pgherd": lambda: 2}
    modules[0].run_blocks(10, random.Random(1), sides, lambda number, pair: observed.append(pair) or number == 3)
    assert observed == [{"plain": 1, "pgherd": 2}] * 3


def test_document_is_json_with_raw_last(modules):
    text = modules[1].document_text({"a": 1.23456789012, "b": []}, [{"x": 1}, {"x": 2.5}])
    assert json.loads(text) == {"a": 1.234568, "b": [], "raw": [{"x": 1}, {"x": 2.5}]}
    with pytest.raises(ValueError):
        modules[1].document_text({"a": float("nan")}, [])


def test_digits_follow_the_interval(modules):
    figure = modules[1].Figure("ratio", 0.99412, "", 0.99112, 0.99712, 40, goal="≥ 0.99", met=True)
    assert (modules[1].value_text(figure), modules[1].interval_text(figure)) == ("0.9941", "0.9911 to 0.9971")
    assert modules[1].value_text(modules[1].Figure("size", 0.485, "MB")) == "0.4850 MB"


@pytest.mark.parametrize(
    ("low", "high", "bounds", "message"),
    [
        (2.1, 2.9, {"least": 2}, True),
        (1.1, 1.9, {"least": 2}, False),
        (0.2, 4.2, {"least": 2}, None),
        (20, 90, {"most": 60}, None),
        (0.99, 1.03, {"most": 1.03}, True),
        (1.04, 1.09, {"most": 1.03}, False),
        (0.995, 1.004, {"least": 0.99, "most": 1.01}, True),
        (1.02, 1.03, {"least": 0.99, "most": 1.01}, False),
        (0.9, 1.1, {"least": 0.99, "most": 1.01}, None),
        (None, None, {"most": 60}, None),
    ],
)
def test_a_goal_that_the_interval_holds_is_neither_met_nor_missed(modules, low, high, bounds, message):
    assert modules[1].met(SimpleNamespace(low=low, high=high), **bounds) is message


def test_a_goal_that_wants_a_narrow_interval_is_not_met_by_a_wide_one(modules):
    judge = importlib.import_module("throughput").judge
    conclusions = [judge(SimpleNamespace(low=low, high=high)) for low, high in ((0.996, 1.005), (1.0, 1.02), (0.97, 0.98), (0.988, 0.996))]
    assert conclusions == [True, None, False, None]


def test_a_failed_trial_is_no_first_number(modules, tmp_path):
    first_use = importlib.import_module("first_use")
    for name, error in (("0001", "no server"), (".0002", None), ("0002", None)):
        assert not first_use._succeeded(tmp_path)
        (tmp_path / "run/trials" / name).mkdir(parents=True)
        (tmp_path / "run/trials" / name / "trial.json").write_text(json.dumps({"error": error}))
    assert first_use._succeeded(tmp_path)


def test_a_first_use_is_ended_with_all_that_it_has_started(modules, monkeypatch):
    first_use = importlib.import_module("first_use")
    launcher = subprocess.Popen(["sh", "-c", "echo up; sleep 60; :"], stdout=subprocess.PIPE, start_new_session=True)
    with launcher:
        assert launcher.stdout is not None and launcher.stdout.readline() == b"up\n"
        first_use._end(launcher)
        assert launcher.stdout.read() == b"" and launcher.returncode, "its child would hold the pipe"
    deaf = subprocess.Popen(["sleep", "60"], start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    monkeypatch.setattr(first_use, "PATIENCE", 0.1)
    with pytest.raises(TrialError, match="was killed"):
        first_use._end(deaf)
    assert deaf.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("other", "met"), [(100.0, True), (90.0, False)])
def test_classes_apart_make_the_sum_of_their_parts_or_not(modules, other, met):
    tenants = importlib.import_module("tenants")
    rng = random.Random(1)  # of any seeds, one in twenty has an interval without the truth

    def side(**tps):
        return {name: value * rng.lognormvariate(0, 0.005) for name, value in tps.items()}

    rows = [{"small": side(small=50.0), "large": side(large=100.0), "both": side(small=50.0, large=other)} for _ in range(40)]
    together, small, large = tenants.apart_figures(rows)
    assert together.met is met and large.met is met and small.met is True
    assert together.value == pytest.approx((50 + other) / 150, rel=0.01) and "large next to the other" in large.name


def test_phases_whose_lag_nobody_measured_are_no_result(modules):
    tenants = importlib.import_module("tenants")
    phase = {"tenants": 40, "due": 100.0, "done": 99.0, "behind": 0, "lag unknown": 40, "switch ms": 15.0, "own CPU": 2.0}
    with pytest.raises(PgherdError, match="lag is unknown in all 8 phases"):
        tenants.phase_figures([{"phases": [phase] * 8, "pgherd by clock": 2.5, "backends by clock": 1.0}])
    half = [{"phases": [phase, {**phase, "lag unknown": 0}], "pgherd by clock": 2.5, "backends by clock": 1.0}] * 3
    assert "unknown in 120 of 240" in tenants.phase_figures(half)[1].note


def test_slots_of_one_plan_are_not_independent(modules):
    of_plans = importlib.import_module("plan_truth")._of_plans

    def share(*plans: list[bool]):
        return of_plans([hit for plan in plans for hit in plan], [{"slots": plan} for plan in plans])

    few, many = share(*[[True, False]] * 4), share(*[[True, False] * 40] * 4)
    assert (few.value, few.low, few.high, few.n) == (many.value, many.low, many.high, many.n) and few.value == 0.5
    whole = share(*[[True] * 16] * 10)
    assert whole.value == 1 and whole.low == pytest.approx(0.69, abs=0.01), "ten of ten plans"
    assert share([True] * 15 + [False], [True] * 14 + [False] * 2, [True] * 16).high == 1


def test_a_wide_interval_shows_no_known_truth(modules):
    tenants = importlib.import_module("tenants")
    rows = [{"first": {"first": 100.0}, "second": {"second": 100.0}, "both": {"first": a, "second": 100 - a}} for a in (20, 80, 50, 50)]
    share, slowed = tenants.quota_figures(rows)
    assert (share.value, share.met) == (0.5, None) and slowed.value > 0 and not slowed.goal
    assert tenants.quota_figures([{**row, "both": {"first": 50, "second": 50 + i / 10}} for i, row in enumerate(rows)])[0].met is True


@pytest.mark.parametrize(("ends", "met"), [((0.99, 1.01), True), ((0.9, 1.1), None), ((0.9, 0.97), False)])
def test_an_aggressor_on_another_cpu_has_no_effect_or_one(modules, ends, met):
    isolation = importlib.import_module("isolation")
    found = {"apart": Finding(value=sum(ends) / 2, unit="ratio", low=ends[0], high=ends[1], n=15)}
    (figure,) = isolation.figures({**found, "at a rate": Finding(value=None, unit="ratio", note="too few")}, [])
    assert figure.met is met and figure.value == pytest.approx(sum(ends) / 2) and "1 within the interval" in figure.goal


def test_equal_loads_in_a_quota_share_what_they_get(modules):
    isolation = importlib.import_module("isolation")
    rows = [{"part": "quota", "victim tps": 40.0 + i, "aggressor tps": 40.0} for i in (-1, 0, 1, 0)]
    rows += [{"part": "quota", "victim tps": 100.0, "aggressor tps": None}, {"part": "apart", "victim tps": 9.0, "aggressor tps": 1.0}]
    slowed = Finding(value=0.4, unit="ratio", low=0.39, high=0.41, n=4)
    ratio, share = isolation.figures({"quota": slowed}, rows)
    assert (ratio.met, ratio.goal) == (None, "") and share.met is True and share.value == pytest.approx(0.5, abs=1e-3)


def test_phases_are_judged_together_by_rate_lag_switch_and_cpu(modules):
    tenants = importlib.import_module("tenants")
    phase = {"tenants": 40, "due": 100.0, "done": 99.0, "behind": 0, "lag unknown": 0, "switch ms": 15.0, "own CPU": 2.0}
    rows = [{"phases": [phase] * 8, "pgherd by clock": 2.5, "backends by clock": 1.0} for _ in range(6)]
    met = {figure.name.partition(": ")[2]: figure.met for figure in tenants.phase_figures(rows)}
    assert met["transactions ÷ due, of a phase"] and met["from the first to the last switch, median"]
    assert met["phases of a tenant that miss its rate by more than 2 %"] and met["pgherd and its backends in phases"]
    assert met["pgherd and its backends, switches included"] is False, "3.5 %"


def test_the_cost_of_a_sampled_log_follows_from_that_of_logging_all(modules):
    log_cost = importlib.import_module("log_cost")

    def block(logging: float):
        return {"no log": {log_cost.CPU: 50.0}, "sampled": {log_cost.CPU: 50.0}, "all": {log_cost.CPU: logging}}

    reading, writing, everything, _ = log_cost.figures([block(50 * times) for times in (1.2, 1.1, 1.3)])
    assert everything.value == pytest.approx(1 / 1.1972, rel=1e-4)  # the geometric mean
    assert reading.value == pytest.approx(1 / (1 + 0.05 * 0.1972), rel=1e-4) and reading.low < reading.value < reading.high
    assert "5 %" in reading.name and reading.met is None, "the interval holds the goal"
    assert writing.value < reading.value and not writing.goal
    assert log_cost.figures([block(51 + i / 10) for i in range(3)])[0].met is True
    assert log_cost.figures([block(100.0 + i) for i in range(3)])[0].met is False


def test_results_page_is_generated_from_the_committed_results(modules):
    results_page = importlib.import_module("results_page")
    written, made = (results_page.without_ages(text) for text in (results_page.PAGE.read_text(), results_page.page()))
    assert written == made != results_page.page(), "run: python benchmarks/results_page.py"
    assert results_page.EXTENSION_PAGE.read_text() == results_page.extension_page(), "run: python benchmarks/results_page.py"
    assert "\n## balloon_grid\n" in results_page.extension_page() and "\n## balloon_grid\n" not in results_page.page()


def test_the_page_shows_the_age_of_each_result(modules, tmp_path):
    results_page, outcome = importlib.import_module("results_page"), modules[1]
    head = outcome.commit().rstrip("+")
    if not head:
        pytest.skip("this is no clone")
    for name, commit in (("ui", head), ("startup", "0" * 12), ("report", "")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"commit": commit}))
    assert results_page.ages(tmp_path)[1:] == [["0", "ui"], ["unknown: measure again", "startup, report"]]


def test_results_page_has_every_figure_and_names_missing_results(modules, tmp_path):
    results_page, outcome = importlib.import_module("results_page"), modules[1]
    assert "## startup\n\nNot run yet." in results_page.page(tmp_path)
    cases = [
        outcome.Figure(f"{case}: {name}", 1.5, unit, 1.0, 2.0, n) for case in "ab" for name, unit, n in (("x", "s", 3), ("y", "ms", 4))
    ]
    assert results_page.cross_table(cases) == [
        ["", "x (s, n=3)", "y (ms, n=4)"],
        ["a", "1.50 (1.00–2.00)", "1.50 (1.00–2.00)"],
        ["b", "1.50 (1.00–2.00)", "1.50 (1.00–2.00)"],
    ]
    assert results_page.cross_table([*cases, outcome.Figure("c", 1.0, "")]) is None
    with_goal = outcome.Figure("a: x", 1.5, "s", 1.0, 2.0, 3, goal="≤ 1.8")
    assert results_page.flat_table([with_goal])[1] == ["a: x", "1.50 s", "1.00–2.00", "3", "≤ 1.8 ?"]


def test_a_single_measurement_meets_no_goal(modules):
    outcome = modules[1]
    assert outcome.Figure("x", 1.0, "s", goal="≤ 2", met=True).met is outcome.Figure("x", 3.0, "s", goal="≤ 2", met=False).met is None
    assert outcome.Figure("x", 1.0, "s", 0.9, 1.1, 2, goal="≤ 2", met=True).met is True
    assert outcome.met_text(outcome.Figure("x", 1.0, "s", goal="≤ 2", met=True)) == "inconclusive"


def test_coverage_outside_of_its_goal_has_a_cause(modules):
    results_page = importlib.import_module("results_page")
    cases = {
        "hinge, 4 %: knee": (0.989, False),
        "drift, 20 windows: drift": (0.95, True),
        "dip: found": (0.1, None),
        "new: x": (0.5, False),
    }
    figures = [{"name": name, "value": value, "unit": "", "n": 9, "goal": "x", "met": met} for name, (value, met) in cases.items()]
    (rows,) = results_page.outside_goals({"benchmark": "coverage_models", "figures": figures}).values()
    assert [row[0] for row in rows[1:]] == ["hinge, 4 %: knee", "new: x"]
    assert "heap" in rows[1][3] and rows[2][3] == "not known"
    assert results_page.outside_goals({"benchmark": "coverage_models", "figures": figures[1:3]}) == {}
    missed = [{**figures[3], "name": "3 % noise: efficiency at 9"}]
    (rows,) = results_page.outside_goals({"benchmark": "coverage", "figures": missed}).values()
    assert [row[0] for row in rows[1:]] == ["3 % noise: efficiency at 9"], "the page's table has capacities alone"


def test_a_result_records_its_commit_and_the_page_shows_it(modules, tmp_path):
    results_page, outcome = importlib.import_module("results_page"), modules[1]
    options = Namespace(out=tmp_path / "startup.json", machine="a machine")
    outcome.store(outcome.Outcome("startup", False, 1, figures=[outcome.Figure("x", 1.0, "s")], raw=[{"x": 1}]), options)
    commit = json.loads(options.out.read_text())["commit"]
    if not commit:
        pytest.skip("this is no clone of the repository")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=BENCHMARKS).stdout
    assert head.startswith(commit.rstrip("+")) and len(commit) >= 12
    assert outcome.commits_since(commit) == 0 and outcome.commits_since("0" * 12) is None
    assert f" · commit {commit} · " in results_page.page(tmp_path)
    assert " · commit not recorded" in results_page.section({**json.loads(options.out.read_text()), "commit": ""})


def test_answers_of_searches_agree_within_one_database(modules):
    searches = importlib.import_module("slo_repeatability")
    assert searches.agreeing([12, 13, 12, 14, 13]) == 4 and searches.agreeing([12, 14, 16]) == 1 and searches.agreeing([]) == 0

    def made(*answers):
        capacities = [[None] * 3 if answer is None else [answer, answer - 1, answer + 1] for answer in answers]
        return searches.figures([{"capacity": capacity, "seconds": 250} for capacity in capacities])

    agree, middle, holding, longest = made(*[12, 13] * 4, 14, 13)
    assert agree.met is True and agree.note == "9 of 10" and (middle.value, middle.low, middle.high) == (13, 12, 14)
    assert holding.note == "10 of 10" and longest.met is True
    assert made(*[12, 13] * 4, 14, 11)[0].met is False and made(*[12] * 8, None, None)[0].met is False
    assert made(12, 13, 12)[0].met is None, "too few runs"
    assert made(*[12] * 9, *range(20, 64, 4))[0].met is False, "9 of 20 are not 9 of 10"


def test_every_benchmark_has_a_quick_run(modules):
    tests = "".join((BENCHMARKS / name).read_text() for name in ("test_quick.py", "test_balloon.py"))
    real = {"balloon_oracle": '"balloon_grid", "--oracle"'}
    without = [name for name in modules[1].ORDER if real.get(name, f'"{name}"') not in tests]
    assert without == ["long_check"]


@pytest.mark.parametrize("file", sorted(BENCHMARKS.glob("*.py")), ids=lambda file: file.stem)
def test_options_that_are_read_are_declared(file):
    """argparse's namespace has no types. An option that was renamed in one place only ends the run, maybe after an hour."""
    mains = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    nodes = [node for main in mains for node in ast.walk(main)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"]
    words = [word for call in calls for word in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "dest"))]
    declared = {word.value.lstrip("-").replace("-", "_") for word in words if isinstance(word, ast.Constant)} | SHARED_OPTIONS
    options = [node for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "options"]
    declared |= {node.attr for node in options if isinstance(node.ctx, ast.Store)}
    assert {node.attr for node in options} <= declared


def test_readme_names_every_benchmark(modules):
    readme = (BENCHMARKS / "README.md").read_text()
    for name in modules[1].ORDER:
        command = "balloon_grid.py --oracle" if name == "balloon_oracle" else f"{name}.py"
        assert (BENCHMARKS / command.partition(" ")[0]).is_file()
        assert f"python benchmarks/{command}" in readme


def test_alarms_of_simulated_gates_are_counted_once_a_study(modules):
    gate_alarms, numpy = importlib.import_module("gate_alarms"), importlib.import_module("numpy")
    rng = numpy.random.default_rng(5)
    levels = iter([100.0, 90.0, 100.0, 100.0])

    def noise(rng, shape):
        return next(levels) + rng.normal(0, 0.1, shape)

    assert gate_alarms.alarms(noise, rng, 12, 3) == 12, "a loss of 10 % is seen at every point, and over all"
    assert gate_alarms.alarms(noise, rng, 12, 3) < 6
    row = gate_alarms.worst("x", [{"studies": 100, "alarms": 1, "points": 1}, {"studies": 100, "alarms": 40, "points": 8}])
    assert (row.value, row.met) == (40.0, False) and row.low < 40 < row.high and "8" in row.note


def test_simulated_studies_end_as_the_package_ends_them(modules, seed):
    simulated = importlib.import_module("studies_simulated")
    numpy = importlib.import_module("numpy")
    rng, codes = numpy.random.default_rng(seed), {"higher": 1, "lower": -1, "equivalent": 2, "inconclusive": 0}
    logs = simulated.log_ratios(simulated.everything(rng, 60, 60), rng) * 0.02 + 0.015
    budgets = rng.integers(6, 21, 60)
    ended = simulated.end_by_budget(logs, 20, budgets)
    for study, budget in enumerate(budgets.tolist()):
        for blocks in range(1, budget + 1):
            values, baseline = numpy.exp(logs[study, :blocks]).tolist(), [1.0] * blocks
            decision = decide(values, baseline, max_blocks=20, last=blocks == budget)
            if decision.stop:
                break
        assert (codes[decision.outcome], blocks) == (ended.outcome[study], ended.blocks[study])
        assert decision.estimate.low == pytest.approx(numpy.exp(ended.low[study]))


@pytest.mark.parametrize("file", sorted((BENCHMARKS / "results").glob("*.json")), ids=lambda file: file.stem)
def test_committed_results_are_whole_and_not_quick(file, modules):
    document = json.loads(file.read_text())
    assert document["schema"] == modules[1].SCHEMA
    assert document["benchmark"] == file.stem
    assert not document["quick"]
    assert document["figures"] and document["raw"]


def test_known_truth_counts_hits_false_alarms_and_coverage(modules, monkeypatch, tmp_path):
    """Clopper and Pearson's interval of 17 of 20 is 62.1 to 96.8 % (their paper's method; any table of it)."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        known_truth = importlib.import_module("known_truth")
    finally:
        sys.path.remove(str(BENCHMARKS))

    def row(series, decision, low, high, truth, floor=(0.99, 1.01), grade="B"):
        ratio = [1.0 if low is None else (low + high) / 2, low, high]
        return {
            "series": series,
            "decision": decision,
            "ratio": ratio,
            "floor": [1.0, *floor],
            "truth": truth,
            "cores": [known_truth.QUOTA, 0.99 * 0.95 * known_truth.QUOTA],
            "blocks": 9,
            "seconds": 99.0,
            "grade": grade,
        }

    result = [row("quota", "lower", 0.93, 0.97, 0.95)] * 17
    missed = [
        row("quota", "lower", 0.90, 0.94, 0.95),
        row("quota", "lower", 0.93, 0.97, 0.95, grade="C"),
        row("quota", "inconclusive", None, None, 0.95),
    ]
    same = [row("same", "equivalent", 0.99, 1.01, 1.0)] * 17 + [row("same", "higher", 1.01, 1.05, 1.0, (1.01, 1.03))] * 3
    figures = {figure.name: figure for figure in known_truth.figures([*result, *missed, *same], 20)}
    hits = figures["quota: found, with an interval that holds the truth"]
    assert (hits.value, hits.met) == (85.0, True) and (hits.low, hits.high) == pytest.approx((62.1, 96.8), abs=0.05)
    assert figures["quota: found"].value == 90.0
    assert figures["quota: interval holds the truth"].value == 90.0
    assert (figures["same: false alarms"].value, figures["same: false alarms"].met) == (15.0, False)
    assert figures["same: interval holds the truth"].value == 85.0
    assert figures["same: A/A pair differs from itself"].value == 15.0
    assert figures["quota: seconds of a try"].met is True
    used = figures["quota: share of the quota that was used"]
    assert used.value == pytest.approx(99) and used.note == "both sides used theirs up"
    said = {
        "metric": "throughput",
        "outcome": "lower",
        "conclusion": "lower",
        "ratio_to_baseline": {"value": 0.95, "low": 0.93, "high": 0.97},
        "baseline": {"value": 100.0},
        "value": {"value": 95.0},
    }
    document = {"answer": "lower", "grade": "B", "tables": {"comparison": [said]}, "findings": {"blocks": {"value": 9}}}
    monkeypatch.setattr(known_truth.command, "pgherd", lambda words: subprocess.CompletedProcess(words, 0, json.dumps(document), ""))
    tried = known_truth.tried(tmp_path, "quota", None, None, 1)
    assert known_truth.hit(tried) and {figure.name for figure in known_truth.figures([tried], 20)} >= {"quota: seconds of a try"}
    few = {figure.name: figure for figure in known_truth.figures(result[:5], 20)}
    assert few["quota: found, with an interval that holds the truth"].met is None, "five tries prove no goal for twenty"


_REPORT = """<testsuites><testsuite>
<testcase classname="tests.it.test_kill" name="test_killed[disk-0]" time="10.2">
  <properties><property name="nth" value="0"/></properties></testcase>
<testcase classname="tests.it.test_kill" name="test_killed[disk-3]" time="9.9">
  <properties><property name="nth" value="3"/></properties>
  <failure message="left behind: a process&#10;more">text</failure></testcase>
<testcase classname="tests.it.test_kill" name="test_killed[disk-3]" time="1"><properties><property name="nth" value="3"/></properties>
  <error message="failed on teardown">text</error></testcase>
<testcase classname="tests.it.test_kill" name="test_once" time="1"/>
<testcase classname="tests.it.test_other" name="test_twice" time="1"><skipped message="no KVM"/></testcase>
<testcase classname="tests.it.test_other" name="test_thrice" time="2"><error message="broke"/></testcase>
</testsuite></testsuites>"""


def test_long_check_counts_faults_and_the_rest(modules):
    long_check = importlib.import_module("long_check")
    created = long_check.rows(long_check.read(_REPORT), "2026-01-31", "abc", 7)
    assert [(row.file, row.fault, row.passed, row.failed, row.skipped) for row in created] == [
        ("tests/it/test_kill", "", 1, [], []),
        ("tests/it/test_kill", "test_killed[disk]", 1, ["test_killed[disk] (3): left behind: a process more"], []),
        ("tests/it/test_other", "", 0, ["test_thrice: broke"], ["test_twice: no KVM"]),
    ]
    every = {"tests/it/test_kill", "tests/it/test_other"}
    fault, remainder = long_check.figures(created, every)
    assert (fault.name, fault.value, fault.n, fault.met) == ("passed, test_kill: killed[disk]", 50, 2, False)
    assert (remainder.name, remainder.value, remainder.n, remainder.met) == ("passed, other tests of 2 of 2 files", 50, 2, False)
    assert "left behind" in fault.note and "broke" in remainder.note
    passing = [long_check.Row("tests/it/test_kill", "", 9, commit="abc"), long_check.Row("tests/it/test_other", "", 9, commit="abc")]
    older = [*passing[:1], long_check.Row("tests/it/test_other", "", 9, commit="old")]
    for made, met in ((passing, True), (passing[:1], None), (older, None)):
        assert [figure.met for figure in long_check.figures(made, every)] == [met]
    broken = '<testsuites><testcase classname="" name="tests.it.test_torn"><error message="SyntaxError"/></testcase></testsuites>'
    assert [(row.file, row.failed) for row in long_check.rows(long_check.read(broken), "", "", 7)] == [
        ("tests/it/test_torn", ["tests.it.test_torn: SyntaxError"])
    ]
    with pytest.raises(ValueError, match="JUnit"):
        long_check.read("collected 3 items")


def test_a_part_of_a_long_check_replaces_its_own_files_alone(modules, tmp_path, monkeypatch):
    long_check = importlib.import_module("long_check")
    old = [long_check.Row("tests/it/test_kill", "gone", 20), long_check.Row("tests/it/test_quiet", "", 5, date="2026-01-01", commit="old")]
    now = long_check.rows(long_check.read(_REPORT), "2026-01-31", "new", 7)
    report, result = tmp_path / "long.xml", tmp_path / "result.json"
    report.write_text(_REPORT)
    result.write_text(json.dumps({"raw": [vars(row) for row in old]}))
    assert [(row.file, row.fault, row.commit) for row in long_check.merged(old, now)] == [
        ("tests/it/test_kill", "", "new"),
        ("tests/it/test_kill", "test_killed[disk]", "new"),
        ("tests/it/test_other", "", "new"),
        ("tests/it/test_quiet", "", "old"),
    ]
    for part, files in ((["--part"], 3), ([], 2)):
        monkeypatch.setattr(sys, "argv", ["long_check.py", str(report), "--out", str(result), *part])
        long_check.main()
        assert len({row["file"] for row in json.loads(result.read_text())["raw"]}) == files


def test_balloons_servers_are_taken_down_though_one_of_them_raises(modules, tmp_path, monkeypatch):
    balloon_server = importlib.import_module("balloon_server")
    finished: list[str] = []

    class Server:
        def __init__(self, name: str, broken: str = "") -> None:
            self.name, self.broken = name, broken

        def stop(self, *_: object) -> None:
            finished.append(self.name)
            if self.broken:
                raise OSError(self.broken)

    monkeypatch.setattr(balloon_server, "remove_group", finished.append)
    path = tmp_path / "place"
    path.mkdir()
    servers = [Server("one"), Server("two", "will not stop"), Server("three")]
    home = balloon_server.Home(path, None, servers, {"one": "group of one", "two": None, "three": "group of three"})
    with pytest.raises(OSError, match="will not stop"):
        home.close()
    assert set(finished[:3]) == {"one", "two", "three"} and set(finished[3:]) == {"group of one", "group of three"}
    assert not path.exists()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_benchmark_that_is_ended_takes_back_what_it_has_made(number, tmp_path):
    path, began = tmp_path / "made", tmp_path / "began"
    script = f"""
import contextlib, pathlib, signal, time
import outcome

signal.signal(signal.{number}, signal.SIG_DFL)  # one that is ignored at the start stays so

def main():
    made = pathlib.Path({str(path)!r})
    made.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(made.rmdir)
        pathlib.Path({str(began)!r}).touch()
        time.sleep(60)

outcome.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=BENCHMARKS, stderr=subprocess.PIPE, text=True) as process:
        while not began.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(getattr(signal, number))
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130 and message.endswith("interrupted\n")
    assert began.exists() and not path.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_balloons_home_is_removed_after_a_signal(modules, number, tmp_path, monkeypatch):
    balloon_server = importlib.import_module("balloon_server")
    monkeypatch.setattr(balloon_server.interruption, "_asked", False)
    monkeypatch.setattr(balloon_server.installations, "find_all", lambda _: [SimpleNamespace(kind="system")])
    monkeypatch.setattr(balloon_server, "build", lambda *_: SimpleNamespace(installation=None))
    monkeypatch.setattr(balloon_server.tempfile, "mkdtemp", lambda **_: str(tmp_path / "place"))
    (tmp_path / "place").mkdir()
    before = {each: signal.getsignal(each) for each in balloon_server.interruption.SIGNALS}
    for each in before:
        signal.signal(each, signal.SIG_DFL if each != signal.SIGINT else signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), balloon_server.interruption.ended_by_signals(), balloon_server.home("system"):
            os.kill(os.getpid(), number)
            time.sleep(10)
        assert not (tmp_path / "place").exists()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_pool_that_breaks_a_rule_fails_and_is_not_skipped(modules):
    balloon_server = importlib.import_module("balloon_server")
    balloon_server.keep_the_rules(SimpleNamespace(sql=lambda _: [(0,)]))
    with pytest.raises(TrialError, match="found 3 buffers"):
        balloon_server.keep_the_rules(SimpleNamespace(sql=lambda _: [(3,)]))


def test_a_quiet_window_is_as_long_as_the_inflation_was(modules, tmp_path, monkeypatch):
    balloon = importlib.import_module("balloon")
    requests = []

    def window(server, pool, sessions, clients, length, inflating, logs):
        requests.append((length, inflating))
        return {"seconds": 1.75 if inflating else length}

    monkeypatch.setattr(balloon, "window", window)
    assert balloon.windows(None, 256, 1, 1, 0.5, tmp_path) == {"inflating": {"seconds": 1.75}, "left": {"seconds": 1.75}}
    assert requests == [(0.5, True), (1.75, False)]


def test_memory_is_asked_for_all_sizes_before_anything_starts(modules, monkeypatch):
    native = importlib.import_module("balloon_native")
    monkeypatch.setattr(native.psutil, "virtual_memory", lambda: SimpleNamespace(available=4096 * 2**20))
    native.need_memory([(1024, 8)])
    with pytest.raises(CapabilityError, match="8192 MB needs 16384 MB .* 4096 MB"):
        native.need_memory([(1024, 8), (8192, 64)])


def test_watching_alone_keeps_what_the_last_result_measured_alone(modules, tmp_path):
    guests = importlib.import_module("guests")
    settings = {"postgres": "15.18", "scale": 1, "vcpus": 1, "memory": 512, "idle": 20.0}
    stored = {**settings, "idle": 8.0, "accelerator": "tcg"}
    alone = {"seconds": {"ready": 9.0}, "accelerator": "tcg"}
    file = tmp_path / "guests.json"
    file.write_text(json.dumps({"settings": stored, "raw": [alone, {"together": 8, "both": 0.01}]}))

    def kept(now=settings, together=None, idle=None, pairs=None):
        return guests.kept(Namespace(out=file, together=together, idle=idle, pairs=pairs), now)

    assert kept() == (stored, [alone])
    assert kept(settings | {"postgres": "16.3"}) == (stored, [alone]), "no server runs in those that are watched"
    with pytest.raises(UsageError, match=r"'vcpus': 1.*not with.*'vcpus': 2.*leave --watch-only out"):
        kept(settings | {"vcpus": 2})
    with pytest.raises(UsageError, match="--together 0"):
        kept(together=0)
    with pytest.raises(UsageError, match="--idle and --pairs"):
        kept(idle=8.0)
    file.write_text(json.dumps({"settings": stored, "raw": [{"together": 8, "both": 0.01}]}))
    with pytest.raises(UsageError, match="no guests that were measured alone"):
        kept()


def test_an_earlier_run_changes_no_result(modules, tmp_path, monkeypatch, capsys):
    measuring = importlib.import_module("measuring")
    names = ("between trials s", "before the first load s", "after the last trial s", "total s", "trials")
    row = dict.fromkeys(names, 400.0) | {f"share {of}": 0.1 for of in ("by run.json", "by its trials", "with analysis and report")}
    monkeypatch.setattr(measuring, "taken", lambda *_, **__: row)
    monkeypatch.setattr(measuring, "RunDirectory", lambda _: SimpleNamespace(record=lambda: SimpleNamespace(study="density", started=1e9)))
    monkeypatch.setattr(modules[1], "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(sys, "argv", ["measuring.py", "a-run"])
    measuring.main()
    output = capsys.readouterr().out
    assert (
        "density, an earlier run: total s" in output
        and "nothing written" in output
        and "is not known" in output
        and "≤" not in output
        and "≥" not in output
    )
    assert not list((tmp_path / "results").iterdir())
    monkeypatch.setattr(sys, "argv", ["measuring.py", "a-run", "--out", str(tmp_path / "kept.json")])
    measuring.main()
    (stored,) = json.loads((tmp_path / "kept.json").read_text())["raw"]
    assert (stored["study"], stored["date"]) == ("density, an earlier run", "2001-09-09")


def test_coverage_is_judged_by_the_interval_of_the_share(modules):
    figure = importlib.import_module("coverage").figure

    def judged(held, missed):
        return figure("a case: peak", [True] * held + [False] * missed, False).met

    assert (judged(1900, 100), judged(1700, 300), judged(1999, 1)) == (True, False, False)
    assert judged(1937, 63) is None, "0.9685 (0.9599 to 0.9753) holds the upper end of the goal"
    some = figure("a case: peak", [True, True, True, False, None], True)
    assert (some.value, some.n, some.goal, some.met, some.note) == (0.75, 4, "", None, "no interval in 20 % of the runs")
    assert figure("a case: drift", [None, None], False) is None


def test_coverage_of_models_simulates_all_kinds(modules):
    coverage = importlib.import_module("coverage_models")
    simulated = dict(coverage.cases())
    assert simulated["drift, 5 windows, rho 0.8"](1) == {"drift": None}
    assert set(simulated["hinge, 4 % and 22 % last"](1)) == {"a", "b", "knee"}
    assert set(simulated["one peak, 3 %"](1)) == {"peak", "set"}
    assert set(simulated["dip of 7 %, convexity 2"](1).values()) <= {True, False}


def test_an_effect_of_a_constant_exceeds_its_tolerance_and_its_scatter(modules):
    effects = importlib.import_module("controller_constants").effects
    values = {"as shipped": [1.0, 2.0, 3.0, None], "A": [1.2, 2.2, 3.21, 1.0], "B": [1.9, 1.1, 3.3, 1.0], "C": [1.01, 2.02, 3.03, None]}
    rows = [{"constant": name, "change": "halved", "scenario": "turns", "settling": list_} for name, list_ in values.items()]
    assert effects(rows, "A", "halved") == ["turns: settling +10.2 %"]
    assert effects(rows, "B", "halved") == [], "it scatters by more than 5 %"
    assert effects(rows, "C", "halved") == [], "1 % is too little"


def test_a_changed_constant_is_compared_with_the_shipped_one_of_the_same_block(modules):
    real, simulated = (importlib.import_module(f"controller_constants{suffix}") for suffix in ("_real", ""))
    rows = [
        {"block": block, "side": side, "tps": 100.0 * block * factor, "p99 ms": 2.0 * block / factor, "half after s": 1.0}
        for block in range(1, 7)
        for side, factor in (("as shipped", 1.0), ("RAMP halved", 2.0))
    ]
    throughput, p99, _ = real.figures(rows)
    assert throughput.name == "RAMP halved: throughput ÷ as shipped" and throughput.n == 6
    assert throughput.value == pytest.approx(2) and p99.value == pytest.approx(0.5)
    assert set(real.with_effect()) <= set(simulated.constants())
    text = (simulated.SOURCES / simulated.CONSTANTS).read_text()
    assert [line for line in simulated.changed(text, "RAMP", "doubled").splitlines() if line not in text.splitlines()] == [
        "#define RAMP ((0.1) * 2.0)"
    ]


def test_changes_of_a_limit_are_judged_without_the_phase_that_changes_nothing(modules):
    limit_changes = importlib.import_module("limit_changes")

    def phase(tps: float, number: int, **different: object) -> dict[str, object]:
        usual = {"tps": tps, "recovered": 1.0, "limited": 0.5, "p99": 1.0 + (number > 1), "slowest": 50.0 + 5 * number, "zram": None}
        return usual | different

    def trial(case: str, pool: str, repeat: int, tps: float, **different: object) -> dict[str, object]:
        row = {"case": case, "pool": pool, "repeat": repeat, "killed": False, "tainted": False, "error": None}
        return row | {"phases": [phase(tps + repeat, number, **different) for number in range(10)]}

    natives = [trial(case, "small", repeat, 100) for case in ("none", "none-steps") for repeat in range(6)]
    refused = [trial("none", "large", repeat, 900, limited=None) for repeat in range(6)]
    balloons = [trial(case, "balloon", repeat, 120) for case in ("none", "none-steps") for repeat in range(6)]
    figures = {figure.name: figure for figure in limit_changes.figures([*natives, *refused, *balloons])}
    kills, refusals = (figures[f"pool balloon: {words}"] for words in ("trials with an OOM kill", "refused lower limits"))
    assert (kills.note, kills.met, refusals.note) == ("0 of 12, in 60 lower limits", None, "0 of 60, in 60 lower limits"), "too few"
    assert figures["pool large: refused lower limits"].note == "24 of 24, in 24 lower limits"
    ratio = figures["at 25 %, all cases: throughput, of the best native pool"]
    assert ratio.n == 12 and ratio.met and 1.19 < ratio.value < 1.2, "large never had its limits, so it is no reference"
    smaller = figures["limit changed to half or more of it: median time to 90 %"]
    assert (smaller.value, smaller.met, smaller.n) == (1.0, True, 12), "changes of one trial are not independent"
    assert smaller.note == "48 of 48 changes within the goal; median of each trial's changes"
    late = figures["slowest transaction after a change"]
    assert (late.value, late.met, late.note.split(";")[0]) == (95.0, None, "0 of 96 changes had one above the goal")
    unchanged = figures["at 100 %, before any change, all cases: throughput, of the best native pool"]
    assert unchanged.n == 12 and 1.19 < unchanged.value < 1.2
    p99 = {words: figures[f"limit changed to a {words} one: p99, of the phase without a change"] for words in ("lower", "larger")}
    assert {words: (figure.value, figure.n) for words, figure in p99.items()} == {"lower": (2.0, 12), "larger": (2.0, 12)}
    dead = {"case": "none", "pool": "balloon", "repeat": 6, "killed": True, "tainted": True, "phases": []}
    slow = [trial("none", "balloon", 7 + repeat, 120, recovered=4.0, slowest=50.0 + repeat) for repeat in range(2)]
    worse = {figure.name: figure for figure in limit_changes.figures([*natives, *balloons, *slow, dead])}
    assert (worse["pool balloon: trials with an OOM kill"].note, worse["pool balloon: trials with an OOM kill"].met) == (
        "1 of 15, in 68 lower limits",
        False,
    )
    assert worse["limit changed to half or more of it: median time to 90 %"].note.startswith("48 of 52 changes within the goal")
    assert worse["limit changed to half or more of it: longest time to 90 %"].value == 4.0
