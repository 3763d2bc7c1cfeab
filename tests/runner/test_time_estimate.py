import pytest

from pgherd.runner.time_estimate import DEFAULT_OVERHEAD_S, TimeEstimate


def test_before_any_has_run_the_overhead_is_a_guess():
    left = TimeEstimate()
    left.plan(4, 40.0)
    assert left.trials == 4 and left.finished == 0 and left.overhead == DEFAULT_OVERHEAD_S
    assert left.seconds() == pytest.approx(4 * (10 + DEFAULT_OVERHEAD_S))
    assert left.seconds(running=1) == pytest.approx(3 * (10 + DEFAULT_OVERHEAD_S))


def test_then_it_is_the_mean_of_those_that_ran():
    left = TimeEstimate()
    left.plan(4, 40.0)
    left.finish(took=11.0, planned=10.0)
    left.finish(took=13.0, planned=10.0)
    assert left.trials == 2 and left.finished == 2 and left.overhead == 2.0
    assert left.seconds() == pytest.approx(2 * 12.0)
    assert left.seconds(running=5) == 0.0


def test_of_what_has_no_planned_time_nothing_is_told_until_one_has_run():
    left = TimeEstimate()
    left.plan(3, 0.0)
    assert left.overhead is None and left.seconds() is None and left.seconds(running=3) == 0.0
    left.finish(took=5.0, planned=0.0)
    assert left.seconds() == pytest.approx(10.0)


def test_a_new_plan_takes_the_place_of_the_old_one_and_no_plan_takes_none():
    left = TimeEstimate()
    left.plan(3, 30.0)
    left.plan(1, 8.0)
    assert left.trials == 1
    left.plan(0, 0.0)
    assert left.trials == 1
    left.finish(took=9.0, planned=8.0)
    left.finish(took=9.0, planned=8.0)
    assert left.trials == 0 and left.seconds() == 0.0


def test_one_that_failed_early_makes_none_of_less_than_nothing():
    left = TimeEstimate()
    left.plan(2, 20.0)
    left.finish(took=1.0, planned=10.0)
    assert left.overhead == 0.0
