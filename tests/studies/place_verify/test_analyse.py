import json
import math
import statistics
from dataclasses import replace

import pytest

from pgherd.analysis.intervals import Estimate
from pgherd.model.analysis import Check
from pgherd.model.load import LatencyObjective
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders, specification
from pgherd.studies.place_verify.analyse import _shares, analyse, compare
from pgherd.studies.place_verify.figures import fairness, predicted_and_measured
from pgherd.studies.place_verify.latency import host_limit, is_right, late_transactions

OBJECTIVE = LatencyObjective(percentile=95, limit_ms=50)
PLANNED_CLASSES = (["within", "within", "near", "beyond"], ["within", "near", "near", "near"])
"""Of both hosts by the plan. The second slot of the first host is wrong."""


def test_a_true_prediction_has_no_error_and_is_in_the_interval(simulate):
    options, results = simulate()
    analysis = analyse(options, results)
    findings = analysis.findings
    assert findings["cpu_error"].n == 8 and findings["cpu_error"].value < 0.02 and analysis.grade == "A"
    assert findings["within_10_percent"].value == findings["in_interval"].value == 1
    assert analysis.answer.startswith("The predicted CPU of 2 planned hosts is off by ")
    assert "within 10 % in 100 % of 8 slots" in analysis.answer
    assert "Memory is not verified: the demand has no memory_mb" in analysis.warnings
    assert "The latency class is not verified: no latency objective is given (--slo)" in analysis.warnings
    assert not {"memory_error", "latency_class_right"} & set(findings)


def test_overload_is_predicted_and_measured(simulate):
    """In the last slot the first host needs 10 of its 8 cores."""
    options, results = simulate(noise=0.0)
    _, found = compare(options, results)
    over = {(one.host, one.slot) for one in found if one.overload_predicted}
    assert over == {(0, 3)} == {(one.host, one.slot) for one in found if one.overload_measured}
    assert next(one for one in found if (one.host, one.slot) == (0, 3)).predicted == options.quota(options.planned[0])
    findings = analyse(options, results).findings
    assert findings["missed_overloads"].value == findings["false_alarms"].value == 0
    assert (findings["missed_overloads"].n, findings["false_alarms"].n) == (1, 7)
    assert any(
        " % of the CPU): 1 measured, 0 of them not predicted. False alarms: 0." in text for text in analyse(options, results).details
    )


def test_a_slot_is_overloaded_if_most_of_its_repeats_are(simulate):
    options, results = simulate(noise=0.0)
    _, found = compare(options, results)
    full = next(one for one in found if one.overload_measured)
    rarely = [replace(full, overload_measured=measured, overload_predicted=False) for measured in (True, False, False)]
    shares = _shares(rarely)
    assert shares["missed_overloads"].value is None and (shares["false_alarms"].value, shares["false_alarms"].n) == (0.0, 1)
    mostly = [replace(one, overload_measured=not one.overload_measured) for one in rarely]
    assert (_shares(mostly)["missed_overloads"].value, _shares(mostly)["missed_overloads"].n) == (1.0, 1)


def test_a_false_prediction_is_found(simulate):
    options, results = simulate(cost=1.5)
    findings = analyse(options, results).findings
    assert findings["cpu_error"].value == pytest.approx(0.4, abs=0.1)
    assert findings["within_10_percent"].value < 0.3 and findings["in_interval"].value < 0.3
    assert findings["missed_overloads"].value > 0, "the second slot needs 9 of 8 cores, but 6 were predicted"


def faster(result, factor):
    """A trial whose containers used this factor of the CPU, except that of the reference database."""
    phases = [
        phase.model_copy(
            update={
                "metrics": {
                    name: values if name.endswith("reference") else {**values, "cpu.usage": factor * values["cpu.usage"]}
                    for name, values in phase.metrics.items()
                }
            }
        )
        for phase in result.phases
    ]
    return result.model_copy(update={"phases": phases})


def test_repeats_of_a_slot_count_once(simulate, with_all):
    """They share the error of its prediction, so that they narrow no interval."""
    options, results = simulate({**with_all, "repeats": 1}, noise=0.05, cost=1.2)
    once, often = analyse(options, results), analyse(options, [*results, results[-1], results[-1]])
    numbers = (
        "cpu_error",
        "within_10_percent",
        "in_interval",
        "missed_overloads",
        "false_alarms",
        "latency_class_right",
        "latency_class_open",
    )
    for name in numbers:
        assert often.findings[name] == once.findings[name], name
    assert (once.findings["cpu_error"].n, once.tables["place-verify"][0]["verified_slots"]) == (8, 4)
    assert often.tables["place-verify"][0]["verified_slots"] == 4


def test_a_slot_is_what_most_of_its_repeats_are(simulate):
    options, results = simulate({"repeats": 1}, noise=0.0)
    right, wrong = results[-1], faster(results[-1], 0.5)
    shares = [
        analyse(options, [*results[:-1], *trials]).findings["within_10_percent"].value
        for trials in ([right, right, wrong], [right, wrong, wrong], [right, wrong])
    ]
    assert shares == [1, 0, 0], "a tie is no hit"


def test_intervals_cover_about_as_often_as_stated(simulate):
    """Arrivals do not vary in the simulation, so the intervals, which allow for them, cover more than 95 %."""
    covered = []
    for seed in range(40):
        _, found = compare(*simulate(noise=0.05, seed=seed))
        covered += [one.covered for one in found]
    assert sum(covered) / len(covered) > 0.93


def test_predictions_follow_the_speed_of_the_machine(simulate):
    """All CPU grows by 3 % from phase to phase, so that the slots need a seventh more than the calibration shows."""
    runs = [simulate(noise=0.03, drift=0.03, seed=seed, changes={"repeats": 1}) for seed in range(20)]
    found = [one for run in runs for one in compare(*run)[1] if one.slot != 3]  # in which one host is full and one idle
    assert abs(statistics.fmean(one.error for one in found)) < 0.02
    assert statistics.fmean(one.measured / one.alone - 1 for one in found) > 0.13
    assert statistics.fmean(one.slowness for one in found) > 1.13
    assert sum(one.covered for one in found) / len(found) > 0.93
    analysis = analyse(*runs[0])
    assert analysis.findings["cpu_error_without_reference"].value > 2 * analysis.findings["cpu_error"].value
    assert any("of the calibration's CPU per transaction" in line for line in analysis.details)


def test_a_host_that_becomes_slower_is_full_earlier(simulate):
    """The second slot needs 6 of 8 cores, and all of them when each transaction takes 1.3 of the CPU."""
    _, found = compare(*simulate(noise=0.0, drift=0.08, changes={"repeats": 1}))
    second = next(one for one in found if (one.host, one.slot) == (0, 1))
    assert second.slowness > 1.3 and second.overload_predicted and second.overload_measured


def test_tainted_missing_and_failed_trials_are_reported(simulate, make_options):
    analysis = analyse(*simulate(tainted=True))
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only: ")
    assert any("trials are tainted, by background-cpu" in text and "they count" in text for text in analysis.warnings)
    asked, results = simulate()
    results = [result for result in results if result.trial.point["stage"] != "verification"] + [
        result for result in results if result.trial.point["stage"] == "verification"
    ]
    taint = Check(name="steal", kind="noise", result="fail", observed="", expected="")
    for stage in ("capacity", "calibration"):
        spoilt = [r.model_copy(update={"checks": [taint]}) if r.trial.point["stage"] == stage else r for r in results]
        assert analyse(asked, spoilt).grade == "C", f"every prediction is by the {stage}"
    for analysis in (
        analyse(make_options(), []),
        analyse(*simulate(observed=False)),
        analyse(*simulate(error=lambda trial: "broken" if trial.point["stage"] == "verification" else None)),
    ):
        assert analysis.answer == "No result: no slot was measured." and analysis.grade == "C"
        assert analysis.findings["cpu_error"].value is None


def test_slots_without_any_load_are_left_out(simulate, make_options, monkeypatch):
    """The idle CPU of a server, fitted from noise, may be zero. Then nothing is predicted for a slot without a load."""
    monkeypatch.setattr("pgherd.studies.place_verify.analyse.predict", lambda *_: (0.0, 0.0, 0.0))
    analysis = analyse(*simulate())
    assert analysis.findings["cpu_error"].value is None and analysis.grade != "A"
    assert any("16 of 16 slots of hosts are left out: no load" in text for text in analysis.warnings)


def test_memory_is_compared_by_host(simulate, with_all):
    """The memory of a server, without its data, is that of the reference database's, whatever was assumed for the scales."""
    for memory in (1.0, 1.4):
        options, results = simulate(with_all, memory=memory)
        analysis = analyse(options, results)
        finding = analysis.findings["memory_error"]
        assert finding.value == pytest.approx(0, abs=1e-9) and finding.n == 2 and finding.low is None and "2 repeats" in finding.note
        assert "; their memory is off by 0.0 %" in analysis.answer
        assert not any(text.startswith("Memory is not") for text in analysis.warnings)
        cells = {row["planned_host"]: row["predicted_memory"] for row in analysis.tables["slots"]}
        assert cells["large-1"] == pytest.approx((2 * 30e6 * memory + 5 * 15e6) / 2**20)
    hidden = 0.1 * (3 * 30e6 + 11 * 15e6)
    rows = analyse(*simulate(with_all, hidden=hidden)).tables["place-verify"]
    assert [row["memory_error"] for row in rows] == pytest.approx([hidden / (2 * 30e6 + 5 * 15e6), 0.1])


def test_latency_classes_are_predicted_by_the_curve_of_the_calibration(simulate, with_all):
    """Containers are late in part from 60 % of their CPU, so that p95 is missed from 62 %. The host uses 50, 75, 37.5 and 125 %."""
    options, results = simulate(with_all, noise=0.0)
    limit = host_limit(options, results[1], 0)
    assert 0.45 < limit.low <= limit.value <= limit.high < 0.75 and limit.value == pytest.approx(0.62, abs=0.03)
    rows = [row for row in analyse(options, results).tables["slots"] if row["planned_host"] == "large-1"]
    assert [row["latency_class"] for row in rows] == ["within", "beyond", "within", "beyond"]
    assert [row["host_late_share"].value > 0.05 for row in rows] == [False, True, False, True]
    analysis = analyse(options, results)
    right, still_open = analysis.findings["latency_class_right"], analysis.findings["latency_class_open"]
    assert right.value == 1 and right.n + still_open.value * still_open.n == still_open.n == 8
    assert analysis.answer.endswith(f"; the latency class is right in 100 % of {right.n} slots, and open in {8 - right.n}.")
    assert "planned_class_right" not in analysis.findings


def test_a_wrong_latency_class_is_found(simulate, with_all, make_options):
    """What the plan says is compared too, and what the calibration did not show is an error of both."""
    planned = [one.model_dump() | {"latency": latency} for one, latency in zip(make_options().planned, PLANNED_CLASSES, strict=True)]
    findings = analyse(*simulate({**with_all, "planned": planned}, noise=0.0)).findings
    assert (findings["planned_class_right"].value, findings["planned_class_right"].n) == (0.75, 4)
    assert findings["planned_class_open"].value == 0.5
    later = analyse(*simulate({**with_all, "planned": planned}, noise=0.0, stall=0.2)).findings
    assert later["latency_class_right"].value < 0.8 < findings["latency_class_right"].value


def test_late_transactions_have_the_wider_interval_of_two():
    def phase(series):
        target = TargetResult(
            target="local/h/db001/bench",
            driver="pgbench",
            transactions=0,
            throughput=0,
            first=0,
            last=4,
            values={"logged_tx": 400.0, "late_p95_50ms_tx": sum(series)},
            series={"logged_tx": [100.0] * 4, "late_p95_50ms_tx": series},
        )
        return PhaseResult(phase="p", start=0, end=4, overlap=1.0, targets=[target], metrics={})

    even, burst = (late_transactions(phase(series), "h", OBJECTIVE) for series in ([5.0, 5.0, 5.0, 5.0], [20.0, 0.0, 0.0, 0.0]))
    assert even.value == burst.value == 0.05 and even.n == 400
    assert (even.low, even.high) == pytest.approx((0.0308, 0.0761), abs=2e-4)  # Clopper-Pearson of 20 of 400
    assert burst.low == 0 and burst.high == pytest.approx(0.05 + 3.182 * math.sqrt(4 / 3 * (15**2 + 3 * 5**2)) / 400, abs=1e-4)
    assert late_transactions(phase([5.0] * 4), "another", OBJECTIVE) is None


@pytest.mark.parametrize(
    ("klass", "low", "high", "logged", "right"),
    [
        ("within", 0.02, 0.04, 400, True),
        ("within", 0.06, 0.10, 400, False),
        ("beyond", 0.06, 0.10, 400, True),
        ("beyond", 0.02, 0.04, 400, False),
        ("near", 0.06, 0.10, 400, None),
        ("within", 0.04, 0.08, 400, None),  # the interval has the allowed share
        ("beyond", 0.04, 0.08, 400, None),
        ("within", 0.0, 0.06, 400, None),
        ("within", 0.0, 0.01, 199, None),  # too few: 5 % of them are fewer than ten
    ],
)
def test_a_class_is_right_by_what_the_slot_kept(klass, low, high, logged, right):
    assert is_right(klass, Estimate((low + high) / 2, low, high, 0.95, logged, ""), OBJECTIVE) is right
    assert is_right(klass, None, OBJECTIVE) is None


def figure_of(options, results):
    analysis = analyse(options, results)
    record = RunRecord(run="r", study="place-verify", options={}, started=0.0, pgherd="0", analysis=analysis)
    return predicted_and_measured(FigureInputs(record=record, analysis=analysis, results=results, directory=None))


def test_the_figure_has_each_slot(simulate, make_options):
    options, results = simulate(noise=0.0)
    datasets = specification(figure_of(options, results), validate=True)["datasets"].values()
    rows = [row for one in datasets for row in (json.loads(one) if isinstance(one, str) else one)]
    assert [row["slot"] for row in rows] == 2 * list(options.slots)
    assert all(row["low"] <= row["measured"] <= row["high"] for row in rows)
    assert "predicted_and_measured" in builders("place-verify")
    with pytest.raises(FigureUnavailable):
        figure_of(make_options(), [])
    with pytest.raises(FigureUnavailable):
        fairness(None)


def test_between_the_curve_and_the_quota_a_class_is_open(simulate, with_all):
    """Transactions are late from 95 % of the CPU, and the calibration goes up to about 75 %."""
    cpu = [[4, 7, 7.9, 9]]
    planned = [{"name": "h", "cores": 8, "databases": ["a"], "cpu": cpu}]
    options, results = simulate({**with_all, "planned": planned, "scales": [[1]]}, noise=0.0, late_from=0.95)
    limit = host_limit(options, results[1], 0)
    assert 0.7 < limit.low < 0.8 and limit.value is None and limit.high == 1
    rows = analyse(options, results).tables["slots"]
    assert [row["latency_class"] for row in rows] == ["within", "near", "near", "beyond"]
