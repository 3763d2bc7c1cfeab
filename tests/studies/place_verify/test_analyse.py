import json
import statistics

import pytest

from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders, specification
from pgherd.studies.place_verify.analyse import analyse, compare
from pgherd.studies.place_verify.figures import fairness, predicted_and_measured


def test_a_true_prediction_has_no_error_and_is_in_the_interval(simulate):
    options, results = simulate()
    analysis = analyse(options, results)
    findings = analysis.findings
    assert findings["cpu_error"].n == 16 and findings["cpu_error"].value < 0.02 and analysis.grade == "A"
    assert findings["within_10_percent"].value == findings["in_interval"].value == 1
    assert analysis.answer.startswith("The predicted CPU of 2 planned hosts is off by ")
    assert "within 10 % in 100 % of 16 slots" in analysis.answer
    assert any("Only CPU is verified" in text for text in analysis.warnings)


def test_overload_is_predicted_and_measured(simulate):
    """In the last slot the first host needs 10 of its 8 cores."""
    options, results = simulate(noise=0.0)
    _, found = compare(options, results)
    over = {(one.host, one.slot) for one in found if one.overload_predicted}
    assert over == {(0, 3)} == {(one.host, one.slot) for one in found if one.overload_measured}
    assert next(one for one in found if (one.host, one.slot) == (0, 3)).predicted == options.quota(options.planned[0])
    findings = analyse(options, results).findings
    assert findings["missed_overloads"].value == findings["false_alarms"].value == 0
    assert (findings["missed_overloads"].n, findings["false_alarms"].n) == (2, 14)


def test_a_false_prediction_is_found(simulate):
    options, results = simulate(cost=1.5)
    findings = analyse(options, results).findings
    assert findings["cpu_error"].value == pytest.approx(0.4, abs=0.1)
    assert findings["within_10_percent"].value < 0.3 and findings["in_interval"].value < 0.3
    assert findings["missed_overloads"].value > 0, "the second slot needs 9 of 8 cores, but 6 were predicted"


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
    for analysis in (
        analyse(make_options(), []),
        analyse(*simulate(observed=False)),
        analyse(*simulate(error=lambda trial: "broken" if trial.point["stage"] == "verification" else None)),
    ):
        assert analysis.answer == "No result: no slot was measured." and analysis.grade == "C"
        assert analysis.findings["cpu_error"].value is None


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
