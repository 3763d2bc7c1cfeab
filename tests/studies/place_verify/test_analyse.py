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


def test_a_host_that_becomes_slower_is_calibrated_on_both_sides(simulate):
    """All CPU grows by 1 % from phase to phase, so that the slots need a seventh more than the first calibration says."""
    found = [one for seed in range(20) for one in compare(*simulate(noise=0.03, drift=0.01, seed=seed, changes={"repeats": 1}))[1]]
    errors = [one.error for one in found if one.slot != 3]  # in which one host is full and one idle
    assert abs(statistics.fmean(errors)) < 0.02, "neither side alone is right"
    assert sum(one.covered for one in found) / len(found) > 0.93


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
