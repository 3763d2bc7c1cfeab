"""The gate over made-up runs whose truth is known."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.analysis import OPEN_END, Analysis, Check, Finding
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import gate as gates
from pgherd.report.gate import ALL, Comparison, Gate, change_text, gate, remedy
from pgherd.report.gate_metrics import GateRun, MetricLimit
from pgherd.studies.database_size.options import DatabaseSizeOptions
from pgherd.studies.database_size.study import STUDY


@pytest.fixture(scope="module")
def runs(synthetic):
    """A function that makes a density run of 8 databases with this throughput of a single database."""

    def make(alone: float, seed: int, **update: object) -> GateRun:
        record, results = synthetic.density_run(
            8, seed=seed, seconds=4, vcpus=0.25, alone=alone, name=f"20260131-120000-density-{seed:04x}"
        )
        return GateRun(f"run-{seed}", record.model_copy(update=update), results)

    return make


@pytest.fixture(scope="module")
def baseline(runs) -> GateRun:
    return runs(17_000.0, 1)


def by_point(gate: Gate) -> dict[str, Comparison]:
    return {comparison.point: comparison for comparison in gate.comparisons}


# ---- what is decided


def test_a_run_that_is_much_slower_everywhere_is_worse(baseline, runs):
    outcome = gate(baseline, runs(15_000.0, 3))
    assert outcome.failed and outcome.result == "regression"
    over = by_point(outcome)[ALL]
    assert over.result == "regression" and over.change.value == pytest.approx(-11.8, abs=2)
    assert outcome.answer.startswith("Worse than allowed: throughput over all points −1")
    assert "allowed −5 %, and" in outcome.answer


def test_an_equal_run_is_not_worse(baseline, runs):
    outcome = gate(baseline, runs(17_000.0, 2))
    assert not outcome.failed and by_point(outcome)[ALL].result == "pass"
    assert outcome.answer.startswith("Nothing is significantly worse than allowed: throughput over all points")


def test_a_faster_run_is_better(baseline, runs):
    outcome = gate(baseline, runs(21_000.0, 4))
    assert by_point(outcome)[ALL].result == "improvement" and not outcome.failed


def test_worse_but_not_for_certain_cannot_tell_and_says_what_would(baseline, runs):
    outcome = gate(baseline, runs(15_800.0, 4))
    over = by_point(outcome)[ALL]
    assert not outcome.failed and outcome.result == "inconclusive" and over.doubtful
    assert outcome.answer.startswith("Inconclusive: throughput over all points −")
    assert (
        over.repeats_needed is not None
        and f"about {over.repeats_needed} more repeats at each point in each run would settle it." in outcome.answer
    )


def test_what_is_allowed_decides(baseline, runs):
    slower = runs(15_000.0, 3)
    assert by_point(gate(baseline, slower, [MetricLimit("throughput", 0.2)]))[ALL].result == "pass"
    assert gate(baseline, slower, [MetricLimit("throughput", 0.0)]).failed


def test_lower_is_better_of_latency(baseline, runs):
    slower = gate(baseline, runs(14_000.0, 3), [MetricLimit("p95", 0.05)])
    assert slower.failed and slower.regressions[0].limit == "+5 %" and slower.regressions[0].change.value > 5
    assert not gate(baseline, runs(20_000.0, 3), [MetricLimit("p95", 0.05)]).failed


def test_more_comparisons_widen_all_intervals(baseline, runs):
    other = runs(17_000.0, 2)
    alone = by_point(gate(baseline, other))[ALL].change
    among = next(
        comparison.change
        for comparison in gate(baseline, other, [MetricLimit("throughput"), MetricLimit("p95"), MetricLimit("cpu_per_tx")]).comparisons
        if comparison.point == ALL
    )
    assert among.low < alone.low and among.high > alone.high
    assert "one of 9 simultaneous intervals" in alone.method and alone.confidence == 0.95


def test_points_come_smallest_first_and_the_median_over_all_before_them(baseline, runs):
    points = [comparison.point for comparison in gate(baseline, runs(17_000.0, 2)).comparisons]
    assert points[0] == ALL and points[1:] == sorted(points[1:], key=lambda words: int(words.split()[-1]))


def test_tainted_trials_support_nothing(baseline, runs):
    other = runs(12_000.0, 3)
    fail = Check(name="steal", kind="noise", result="fail", observed="", expected="")
    at4 = [result.model_copy(update={"checks": [fail]}) if result.trial.point == {"databases": 5} else result for result in other.results]
    item = by_point(gate(baseline, GateRun(other.name, other.record, at4)))["databases 5"]
    assert item.result == "inconclusive" and item.change.value < -20 and remedy(item) == f"only tainted trials in {other.name}"


@pytest.mark.parametrize("side", ["baseline", "run"])
def test_a_run_of_grade_c_supports_nothing_and_cannot_pass(baseline, runs, side):
    other = runs(17_000.0, 2)
    graded = {"baseline": baseline, "run": other}
    was = graded[side]
    record = was.record.model_copy(update={"analysis": was.record.analysis.model_copy(update={"grade": "C"})})
    graded[side] = GateRun(was.name, record, was.results)
    outcome = gate(graded["baseline"], graded["run"])
    assert outcome.failed and not outcome.regressions
    assert {comparison.result for comparison in outcome.comparisons} == {"inconclusive"}
    assert outcome.answer == f"The gate fails: run {was.name} has grade C: it is an indication only and supports no conclusion."


@settings(deadline=None, max_examples=25)
@given(loss=st.floats(0.2, 0.6), allowed=st.floats(0, 0.15))
def test_a_large_loss_fails_and_the_same_gain_never_does(synthetic, loss, allowed):
    record, results = synthetic.density_run(8, seconds=2, vcpus=0.25, alone=17_000.0)
    slower = [scaled(result, 1 - loss) for result in results]
    old, new = GateRun("a", record, results), GateRun("b", record.model_copy(update={"run": "b"}), slower)
    assert gate(old, new, [MetricLimit("throughput", allowed)]).failed
    assert not gate(new, old, [MetricLimit("throughput", allowed)]).failed


def scaled(result: TrialResult, factor: float) -> TrialResult:
    phases = [
        phase.model_copy(
            update={"targets": [target.model_copy(update={"throughput": target.throughput * factor}) for target in phase.targets]}
        )
        for phase in result.phases
    ]
    return result.model_copy(update={"phases": phases})


# ---- findings


def test_a_finding_is_compared_by_its_intervals(baseline, runs):
    other = runs(17_000.0, 2)
    value = Finding(value=0.70, unit="ratio", low=0.69, high=0.71, confidence=0.95, n=5)
    record = other.record.model_copy(
        update={"analysis": other.record.analysis.model_copy(update={"findings": {"efficiency_at_saturation": value}})}
    )
    (item,) = gate(baseline, GateRun("b", record, other.results), [MetricLimit("efficiency_at_saturation", 0.1)]).comparisons
    assert item.result == "regression" and item.change.value == pytest.approx(100 * (0.70 / 0.857 - 1), abs=2)
    (same,) = gate(baseline, other, [MetricLimit("efficiency_at_saturation", 0.5)]).comparisons
    assert same.result == "pass"


@pytest.mark.parametrize("open_run", ["baseline", "run"])
def test_an_end_beyond_the_measured_range_is_no_bound(baseline, runs, open_run):
    """A capacity 'from 9.6, upper bound not reached' may be as large as that of the other run, or larger."""

    def with_capacity(run, value, low, high, note=""):
        found = Finding(value=value, unit="databases", low=low, high=high, confidence=0.95, n=4, note=note)
        analysis = run.record.analysis.model_copy(update={"findings": {"capacity": found}})
        return GateRun(run.name, run.record.model_copy(update={"analysis": analysis}), run.results)

    larger, smaller = (11.2, 10.9, 11.5), (9.9, 9.6, 10.0)
    pair = [(baseline, larger), (runs(17_000.0, 2), smaller)] if open_run == "run" else [(baseline, smaller), (runs(17_000.0, 2), larger)]
    closed = [with_capacity(run, *ends) for run, ends in pair]
    note = f"{OPEN_END} by the largest number measured (10)"
    opened = [with_capacity(run, *ends, note if ends == smaller else "") for run, ends in pair]
    limit = [MetricLimit("capacity", 0.02)]
    (change,), (unknown,) = (gate(*both, limit).comparisons for both in (closed, opened))
    assert (change.result, unknown.result) == ("regression" if open_run == "run" else "improvement", "inconclusive")
    assert "unbounded" in change_text(unknown.change) or unknown.change.low == -100


def test_findings_in_different_units_are_not_compared(baseline, runs):
    other = runs(17_000.0, 2)
    value = Finding(value=857.0, unit="per mille", low=850.0, high=860.0, confidence=0.95, n=5)
    analysis = other.record.analysis.model_copy(update={"findings": {"efficiency_at_saturation": value}})
    run = GateRun("b", other.record.model_copy(update={"analysis": analysis}), other.results)
    with pytest.raises(UsageError, match="its units differ, ratio in the baseline, and per mille in the run"):
        gate(baseline, run, [MetricLimit("efficiency_at_saturation")])


def test_a_finding_without_an_interval_cannot_tell(baseline, runs):
    other = runs(17_000.0, 2)
    findings = {"efficiency_at_saturation": Finding(value=0.5, unit="ratio")}
    record = other.record.model_copy(update={"analysis": other.record.analysis.model_copy(update={"findings": findings})})
    result = gate(baseline, GateRun("b", record, other.results), [MetricLimit("efficiency_at_saturation")])
    assert not result.failed and "no interval: one of the two has none" in result.answer


# ---- other studies


def sizes(pg_version: str, larger: float = 1.0) -> GateRun:
    options = DatabaseSizeOptions(pg_bin="/b", pg_version=pg_version, scales=(1, 2, 5, 10))
    results = [
        TrialResult(id="0001", trial=trial, started=0, ended=1, probe={"database_bytes": larger * (7.7e6 + 15.68e6 * trial.point["scale"])})
        for trial in STUDY.propose(options, []).trials
    ]
    record = RunRecord(
        run=f"r{pg_version}",
        study="database-size",
        state="finished",
        options=options.model_dump(),
        postgres={"/b": pg_version},
        started=0,
        pgherd="1",
        analysis=STUDY.analyse(options, results),
    )
    return GateRun(record.run, record, results)


def test_sizes_are_exact(synthetic):
    assert gate(sizes("17.1"), sizes("18.6", 1.04)).result == "pass"
    outcome = gate(sizes("17.1"), sizes("18.6", 1.06))
    assert outcome.failed and len(outcome.comparisons) == 5 and outcome.comparisons[0].change.value == pytest.approx(6)
    assert "The versions differ (PostgreSQL): a change may come from that" in outcome.warnings


def test_what_differs_between_any_two_runs_is_no_reason_for_a_warning(baseline, runs):
    def variants(seed: int, scale: int) -> dict:
        return {"variants": [{"name": "a", "options": {"seed": seed, "host_memory": seed * 2**30, "scale": scale}}]}

    def warned(other: dict) -> list[str]:
        old, new = (
            GateRun(item.name, item.record.model_copy(update={"options": options}), item.results)
            for item, options in ((baseline, variants(1, 1)), (runs(17_000.0, 2), other))
        )
        return [warning for warning in gate(old, new).warnings if warning.startswith("The options differ")]

    assert warned(variants(2, 1)) == []
    assert warned(variants(2, 5)) == ["The options differ (variants: a: options: scale): a change may come from that"]


def test_variants_of_a_comparison_are_points_and_the_baseline_again_is_the_baseline(baseline, runs):
    def compared(run: GateRun) -> GateRun:
        names = {1: "base", 2: "base (A/A)", 3: "big", 5: "small"}
        retained = [result for result in run.results if result.trial.point["databases"] in names and result.error is None]
        moved = [
            result.model_copy(
                update={"trial": result.trial.model_copy(update={"point": {"variant": names[int(result.trial.point["databases"])]}})}
            )
            for result in retained
        ]
        return GateRun(run.name, run.record.model_copy(update={"study": "compare"}), moved)

    outcome = by_point(gate(compared(baseline), compared(runs(17_000.0, 2))))
    assert list(outcome) == [ALL, "variant base", "variant big", "variant small"]
    assert outcome["variant base"].old.n > outcome["variant big"].old.n


# ---- what differs


def test_another_host_is_another_platform(baseline, runs, synthetic):
    result = gate(baseline, runs(17_000.0, 2, hosts={"local": synthetic.host_facts(4.0, "other")}))
    assert result.warnings[0].startswith("The hosts differ (cores, logical cpus, physical cores): this compares two platforms")
    named = gate(baseline, runs(17_000.0, 2, hosts={"local": synthetic.host_facts(2.0, "other")}))
    assert named.warnings[0] == "The runs are of two hosts whose known facts are equal except for their names"


def test_a_run_that_was_resumed_on_another_host_says_so(baseline, runs):
    record = baseline.record
    analysis = record.analysis.model_copy(update={"grade": "B", "grade_reason": ""})
    other = runs(17_000.0, 2, resumed_on_changed_host=["After 5 trials …"], analysis=analysis)
    warnings = gate(baseline, GateRun(other.name, other.record, [result for result in other.results if not result.tainted])).warnings
    assert not any("The hosts differ" in warning for warning in warnings)
    of_it = [warning for warning in warnings if warning.startswith(f"Run {other.name}")]
    assert of_it == [f"Run {other.name}: After 5 trials …"], "nothing in it was noisy"


WIDE = "the answer's interval spans 12 sizes"


@pytest.mark.parametrize(
    ("reason", "noisy", "text"),
    [
        (WIDE, False, WIDE),
        (WIDE, True, f"{WIDE}; some of its trials were noisy"),
        ("", True, "some of its trials were noisy"),
        ("", False, "some checks could not be made, points are missing, "),
    ],
)
def test_a_run_of_grade_b_has_its_reason(baseline, runs, reason, noisy, text):
    other = runs(17_000.0, 2)
    record = other.record.model_copy(update={"analysis": other.record.analysis.model_copy(update={"grade": "B", "grade_reason": reason})})
    results = [result for result in other.results if not result.tainted]
    if noisy:
        fail = Check(name="steal", kind="noise", result="fail", observed="", expected="")
        results[0] = results[0].model_copy(update={"checks": [fail]})
    warnings = gate(baseline, GateRun(other.name, record, results)).warnings
    (warning,) = [warning for warning in warnings if warning.startswith(f"Run {other.name}")]
    assert warning.startswith(f"Run {other.name} has grade B: {text}") and ("noisy" in warning) is noisy


def test_settings_options_and_days_apart_are_said(baseline, runs):
    record = baseline.record
    other = runs(
        17_000.0,
        2,
        settings={**record.settings, "io_method": "worker"},
        options={**record.options, "efficiency": 0.9},
        started=record.started + 90_000,
    )
    text = " ".join(gate(baseline, other).warnings)
    for message in ("The settings differ (io_method)", "The options differ (efficiency)", "The runs started 25 h apart"):
        assert message in text


def test_equal_runs_differ_in_nothing(baseline, runs):
    result = gate(baseline, runs(17_000.0, 2))
    assert not any(table.rows for table in result.differences.values())
    assert not any("differ" in warning for warning in result.warnings)


# ---- bad input


def refused(*arguments: object) -> str:
    with pytest.raises(UsageError) as error:
        gate(*arguments)  # type: ignore[arg-type]
    return str(error.value)


def test_what_cannot_be_compared_is_one_message(baseline, runs, synthetic):
    other = runs(17_000.0, 2)
    assert "are the same run" in refused(baseline, baseline)
    assert "of different studies" in refused(baseline, GateRun("x", *synthetic.other_study()))
    assert "is not finished (it is interrupted); let it end, or resume it, then compare" in refused(
        baseline, GateRun("x", other.record.model_copy(update={"state": "interrupted"}), other.results)
    )
    record, results = synthetic.density_run(80, seconds=2, repeats=1)
    alone = [result for result in results if result.trial.point["databases"] > 20]
    assert "have no point in common: run-1 has databases 1, " in refused(baseline, GateRun("x", record, alone))


def test_a_metric_that_one_run_has_not_is_said_with_what_there_is(baseline, runs):
    other = runs(17_000.0, 2)
    text = refused(baseline, other, [MetricLimit("speed")])
    assert "'speed' is not in run run-1" in text and "throughput, cpu_per_tx, p50, p95, p99" in text and "efficiency_at_saturation" in text
    blind = [
        result.model_copy(update={"phases": [phase.model_copy(update={"metrics": {}}) for phase in result.phases]})
        for result in other.results
    ]
    assert "'cpu_per_tx' is not in run x: the container's CPU was not measured" in refused(
        baseline, GateRun("x", other.record, blind), [MetricLimit("cpu_per_tx")]
    )
    empty = other.record.model_copy(
        update={
            "analysis": other.record.analysis.model_copy(
                update={"findings": {"efficiency_at_saturation": Finding(value=None, unit="", note="too few")}}
            )
        }
    )
    assert "has no number in run x: too few" in refused(
        baseline, GateRun("x", empty, other.results), [MetricLimit("efficiency_at_saturation")]
    )


def test_a_direction_that_is_not_known_must_be_said(baseline, runs):
    def with_bends(run: GateRun) -> GateRun:
        assert run.record.analysis is not None
        bend = Finding(value=5.0, unit="bends", low=4.9, high=5.1, confidence=0.95, n=9)
        return GateRun(
            run.name,
            run.record.model_copy(update={"analysis": run.record.analysis.model_copy(update={"findings": {"bends": bend}})}),
            run.results,
        )

    sides = with_bends(baseline), with_bends(runs(17_000.0, 2))
    assert "--metric 'bends:5%:higher'" in refused(*sides, [MetricLimit("bends")])
    assert not gate(*sides, [MetricLimit("bends", 0.05, "lower")]).failed


def test_a_point_that_only_one_run_has_is_left_out_and_said(baseline, runs):
    other = runs(17_000.0, 2)
    fewer = [result for result in other.results if result.trial.point != {"databases": 1}]
    outcome = gate(baseline, GateRun("b", other.record, fewer))
    assert "databases 1" not in by_point(outcome)
    assert "Only run-1 has databases 1, which is not compared" in outcome.warnings


def test_a_percentile_that_some_points_lack_leaves_them_out(baseline, runs):
    other = runs(17_000.0, 2)

    def without(result: TrialResult) -> TrialResult:
        if result.trial.point != {"databases": 1}:
            return result
        phases = [
            phase.model_copy(
                update={"targets": [t.model_copy(update={"latency": t.latency.model_copy(update={"p99": None})}) for t in phase.targets]}
            )
            for phase in result.phases
        ]
        return result.model_copy(update={"phases": phases})

    outcome = gate(baseline, GateRun("b", other.record, [without(result) for result in other.results]), [MetricLimit("p99")])
    assert "databases 1" not in by_point(outcome)
    assert any(re.match(r"p99 at databases 1 is omitted \(b: fewer than ten", warning) for warning in outcome.warnings)


def test_changes_are_written_with_the_digits_that_they_deserve():
    def change(value: float, low: float | None = None, high: float | None = None) -> str:
        return change_text(Finding(value=value, unit="%", low=low, high=high))

    assert change(-6.123, -11.04, -0.96) == "−6.1 % (−11.0 … −1.0 %)"
    assert change(0.004, -0.2, 0.21) == "+0.00 % (−0.20 … +0.21 %)"
    assert change(71, 20, 131) == "+71 % (+20 … +131 %)"
    assert change(-4.0) == "−4.0 %" and change(3, -50, 1e300) == "+3.0 % (unbounded)"
    assert change(11900, 11500, 12300) == "+11900 % (+11500 … +12300 %)"
    assert change(200, 50, 1e17) == "+200 % (+50 % … unbounded)"


def test_an_analysis_that_is_missing_is_said(baseline, runs):
    other = runs(17_000.0, 2, analysis=None)
    assert "is not finished" in refused(baseline, other)
    assert isinstance(baseline.record.analysis, Analysis) and gates.NOTE.endswith(".")


# ---- what is lost


def with_capacity(runs, seed: int, rate: float, capacity: float | None, grade: str = "A") -> GateRun:
    run = runs(17_000.0, seed)
    bounds = {} if capacity is None else {"low": capacity - 0.5, "high": capacity + 0.5, "confidence": 0.95}
    findings = {
        "capacity": Finding(value=capacity, unit="databases", n=9, note="" if capacity else "1 database already misses it", **bounds),
        "rate": Finding(value=rate, unit="tps per database", n=1),
    }
    analysis = run.record.analysis.model_copy(update={"findings": findings, "grade": grade})
    options = run.record.options | {"objectives": [{"percentile": 99, "limit_ms": 10}]}
    return GateRun(run.name, run.record.model_copy(update={"analysis": analysis, "options": options}), run.results)


def test_capacities_at_different_rates_are_not_compared(runs):
    """Half of each run's throughput: a server that lost 30 % has the same number of databases at a lower rate."""
    with pytest.raises(UsageError, match=r"are at 500 and 350 tps per database; give both runs the same rate, such as --rate 500"):
        gate(with_capacity(runs, 1, 500, 12.0), with_capacity(runs, 2, 350, 12.0))
    assert not gate(with_capacity(runs, 1, 500, 12.0), with_capacity(runs, 2, 500, 12.0)).failed


def test_a_lost_capacity_fails_and_is_reported(runs):
    outcome = gate(with_capacity(runs, 1, 500, 12.0), with_capacity(runs, 2, 500, None, grade="C"))
    assert outcome.failed and outcome.comparisons[0].result == "inconclusive"
    assert outcome.comparisons[0].change.value is None and "grade C" in outcome.answer
    with pytest.raises(UsageError, match="'capacity' has no number in run"):
        gate(with_capacity(runs, 1, 500, 12.0), with_capacity(runs, 2, 500, None))


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (None, None, "inconclusive"),
        (3.0, None, "improvement"),
        (7.0, None, "inconclusive"),
        (None, 2.0, "regression"),
        (None, 4.0, "inconclusive"),
    ],
)
def test_a_capacity_beyond_the_largest_size_is_compared_by_its_lower_bound(runs, old, new, result):
    """In CI often every size keeps the objective. That is no bad usage, and a loss to fewer databases is still found."""
    pair = []
    for seed, value in enumerate((old, new)):
        run = with_capacity(runs, seed, 500, value)
        beyond = Finding(value=None, unit="databases", low=4, confidence=0.95, n=9, note="4 databases, the largest measured, keep it")
        analysis = run.record.analysis
        findings = analysis.findings | ({"capacity": beyond} if value is None else {})
        record = run.record.model_copy(update={"analysis": analysis.model_copy(update={"findings": findings})})
        pair.append(GateRun(run.name, record, run.results))
    outcome = gate(*pair)
    (comparison,) = outcome.comparisons
    assert comparison.result == result and outcome.failed == (result == "regression")
    assert comparison.change.value is None and "largest measured" in comparison.change.note
    if old is new is None:
        assert "from at least 4 (95 %) to at least 4 (95 %) databases" in outcome.answer
        assert "both are beyond the largest size measured" in outcome.answer


@pytest.mark.parametrize(("error", "share", "words"), [("out of memory", 1.0, "every trial of"), (None, 0.0, "made no transaction")])
def test_a_point_at_which_the_run_died_or_made_nothing_fails(baseline, runs, error, share, words):
    other = runs(17_000.0, 2)
    last = other.results[-1].trial.point
    lost = [scaled(result, share).model_copy(update={"error": error}) if result.trial.point == last else result for result in other.results]
    outcome = gate(baseline, GateRun(other.name, other.record, lost))
    assert outcome.failed and words in outcome.answer
