from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.load import TimeSlicing
from pgherd.report import drawing, trial_figures
from pgherd.report.drawing import FigureInputs, FigureUnavailable


def inputs(run, results=None) -> FigureInputs:
    return FigureInputs(run[0], run[0].analysis, run[1] if results is None else results)


def scaled(result, factor):
    phases = [
        phase.model_copy(
            update={"targets": [target.model_copy(update={"throughput": target.throughput * factor}) for target in phase.targets]}
        )
        for phase in result.phases
    ]
    return result.model_copy(update={"phases": phases, "checks": []})


def even(run, count=4):
    """Trials of one point that differ in nothing but their order."""
    first = next(result for result in run[1] if result.trial.point["databases"] == 8 and not result.tainted)
    return [
        first.model_copy(update={"id": f"{i:04d}", "started": first.started + 10 * i, "ended": first.ended + 10 * i}) for i in range(count)
    ]


def test_a_drifting_host_shows_as_drift(run8):
    drifting = [scaled(result, 1 - 0.02 * i) for i, result in enumerate(even(run8, 6))]
    assert trial_figures.order(inputs(run8, drifting)).title == "Throughput drifted by −10.5 ± 0.0 % from the first trial to the last"
    steady = [scaled(result, 1.0) for result in even(run8, 6)]
    assert trial_figures.order(inputs(run8, steady)).title.startswith("No drift beyond the scatter: +0.0 ± 0.0 %")


def test_tainted_trials_neither_bend_the_line_nor_move_the_mean(run8):
    trials = [scaled(result, 1.0) for result in even(run8, 8)]
    bad = next(result for result in run8[1] if result.tainted and result.error is None).checks
    trials[5] = scaled(trials[5], 0.5).model_copy(update={"checks": bad})
    assert trial_figures.order(inputs(run8, trials)).title.startswith("No drift beyond the scatter: +0.0 ± 0.0 %")


@given(st.floats(-5, 5), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=12, max_size=20), st.integers(0, 100))
def test_the_drift_of_mixed_points_is_found_again(slope, order, level):
    """Points of any level that drift alike: taking a point's mean away must not flatten the slope."""
    trials = [(name, float(i), level * ord(name) + slope * i) for i, (name, _) in enumerate(order, 1)]
    means = {name: sum(y for n, _, y in trials if n == name) / sum(n == name for n, *_ in trials) for name, *_ in trials}
    result = trial_figures.drift([(name, x, y - means[name]) for name, x, y in trials], len(trials))
    if result is not None:
        assert result[0] == pytest.approx(slope * (len(trials) - 1), abs=1e-6)
        assert result[1] == pytest.approx(0, abs=1e-6)


def test_a_few_clean_trials_in_the_middle_tell_no_drift():
    middle = [("2", float(position), position * 10.0) for position in range(8, 12)]
    assert trial_figures.drift(middle, 14) is None
    assert trial_figures.drift([("2", float(index), 0.0) for index in range(1, 6)], 5) is None
    assert trial_figures.drift([("2", float(position), 0.0) for position in range(1, 8)], 20) is None


def test_points_without_repeats_cannot_show_drift(synthetic):
    with pytest.raises(FigureUnavailable, match="fewer than four"):
        trial_figures.order(inputs(synthetic.density_run(8, repeats=1)))


def with_rates(result, rates):
    (phase,) = result.phases
    targets = [target.model_copy(update={"throughput": rate}) for target, rate in zip(phase.targets, rates, strict=True)]
    return result.model_copy(update={"phases": [phase.model_copy(update={"targets": targets})]})


def test_fairness_names_the_least_fair_trial(run8):
    trials = [scaled(result, 1.0) for result in even(run8, 3)]
    trials[1] = with_rates(trials[1], [50.0, 150.0, *[100.0] * 6])
    title = trial_figures.fairness(inputs(run8, trials)).title
    assert title == "Least fair trial: one target at 50 %, another at 150 % of their mean (8 databases)"


def test_targets_of_fairer_trials_are_within_the_frame_as_well(run8):
    first, second = even(run8, 2)
    trials = [with_rates(first, [50.0, 150.0, *[100.0] * 6]), with_rates(second, [170.0, *[90.0] * 7])]
    figure = trial_figures.fairness(inputs(run8, trials))
    assert "one target at 50 %, another at 150 %" in figure.title
    low, top = drawing.specification(figure)["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert low <= 50 and 170 <= top <= 180


def test_one_target_has_nobody_to_be_fair_to(run8):
    alone = [result for result in run8[1] if result.trial.point["databases"] == 1]
    with pytest.raises(FigureUnavailable, match="more than one target"):
        trial_figures.fairness(inputs(run8, alone))


def test_variants_by_turns_owe_each_other_nothing(run8):
    result = even(run8, 1)[0]
    (phase,) = result.trial.phases
    turns = TimeSlicing(of={target: target.split("/")[1] for target in phase.loads}, seconds=0.1, counted=0.1)
    taken = result.trial.model_copy(update={"phases": (phase.model_copy(update={"slices": turns}),)})
    by_turns = [result.model_copy(update={"trial": taken})]
    for builder in (trial_figures.fairness, trial_figures.seconds):
        with pytest.raises(FigureUnavailable) as raised:
            builder(inputs(run8, by_turns))
        assert not str(raised.value)


def test_strips_are_of_the_point_that_fills_the_cores_and_the_last(run8):
    chosen = trial_figures._chosen_points(inputs(run8), trial_figures._measured(inputs(run8)))
    assert [name for name, _ in chosen] == ["8", "10"]


def test_hours_by_the_second_are_averaged_into_a_page(synthetic):
    record, results = synthetic.soak_run(windows=240)
    figure = trial_figures.seconds(FigureInputs(record, record.analysis, results))
    drawn = drawing.svg(figure, prefix="seconds")
    assert "the mean of" in str(drawing.specification(figure)) and len(drawn) < 1_000_000


def test_phases_follow_each_other_and_an_idle_target_is_at_zero(run8):
    result = even(run8, 1)[0]
    first = result.phases[0]
    second = first.model_copy(update={"targets": first.targets[:1]})
    series = trial_figures._series(result.model_copy(update={"phases": [first, second, first]}))
    assert {len(sery) for sery in series} == {30} and len(series) == 8
    assert series[0][10:20] == first.targets[0].per_second and series[1][10:20] == [0.0] * 10


def test_nothing_measured_nothing_drawn(run8):
    for builder in (trial_figures.order, trial_figures.fairness, trial_figures.seconds):
        with pytest.raises(FigureUnavailable, match="no trial has a throughput"):
            builder(inputs(run8, run8[1][-1:]))


def test_a_point_of_words_is_named_after_what_it_is(run8):
    first = run8[1][0]
    named = [first.model_copy(update={"trial": first.trial.model_copy(update={"point": {"variant": "big"}}), "checks": []})]
    assert trial_figures._where("big", named) == "variant big"
    assert trial_figures._where("8", [first]) == "8 databases"
