"""Proposed trials, their order, additional sizes, and the end of a run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pgherd.studies.working_set.curves import SweepTrials, extra_memory
from pgherd.studies.working_set.options import CONTAINER, SweepCurve, coordinate_of
from pgherd.studies.working_set.propose import next_size, propose, trial_at, worst_case


def sizes(results, sweep, clients):
    return sorted(
        {r.trial.point[coordinate_of(sweep)] for r in results if r.trial.point["sweep"] == sweep and r.trial.point["clients"] == clients}
    )


def test_begins_with_all_sizes_of_memory_in_mixed_order(options):
    first = propose(options(), [])
    points = [(t.point["clients"], t.point["memory"]) for t in first.trials]
    assert sorted(points) == sorted((c, s) for c in (30, 2) for s in options().memory_sizes)
    assert points != sorted(points) and points != sorted(points, reverse=True)
    assert any(a[0] != b[0] for a, b in pairwise(points))
    assert {t.point["shared_buffers"] for t in first.trials} == {64}
    other = propose(options(seed=2), [])
    assert [t.key() for t in other.trials] != [t.key() for t in first.trials]


def test_the_container_is_as_large_as_the_point_says(options):
    for trial in propose(options(), []).trials:
        (container,) = trial.deployment.hosts[0].containers
        assert container.name == CONTAINER
        assert container.memory == trial.point["memory"] * 2**20
        assert container.servers[0].settings["shared_buffers"] == f"{trial.point['shared_buffers']}MB"
        assert trial.state == options().start_state
        assert trial.failure_expected and trial.final_readings == ("buffers",)


def test_goes_on_near_the_knee(server, options):
    results, stop = server(options(vary=("memory",), time_budget=600.0), noise=0.04).until_stop()
    added = [r.trial.point for r in results if r.trial.reason.startswith("added") and r.trial.point["sweep"] == "memory"]
    assert added
    near = [p for p in added if abs(p["memory"] - {30: 250, 2: 200}[p["clients"]]) <= 60]
    assert len(near) >= len(added) * 0.6
    assert stop
    for clients, truth in ((30, 250), (2, 200)):
        knee = SweepTrials(SweepCurve("memory", clients), results).knee
        assert knee.half_width is not None and knee.half_width <= 0.07
        assert knee.low - 3 <= truth <= knee.high + 3


def test_the_second_sweep_uses_the_first(server, options):
    results, _ = server(options()).until_stop()
    for clients, knee in ((30, 250), (2, 200)):
        extra = {
            r.trial.point["memory"] - r.trial.point["shared_buffers"]
            for r in results
            if r.trial.point["sweep"] == "shared-buffers" and r.trial.point["clients"] == clients
        }
        assert len(extra) == 1
        assert abs(extra.pop() - (knee - 64)) <= 20
    order = [r.trial.point["sweep"] for r in results]
    assert order == sorted(order)  # all of memory, then all of shared buffers


def test_a_given_difference_needs_no_first_sweep(server, options):
    own = options(vary=("shared-buffers",), memory_sizes=(), extra_memory=90)
    results, _ = server(own).until_stop()
    assert {r.trial.point["memory"] - r.trial.point["shared_buffers"] for r in results} == {90}
    assert extra_memory(own, results, 2) == (90, "as requested")


def test_without_a_first_sweep_the_difference_is_a_deviation(options):
    extra, why = extra_memory(options(vary=("shared-buffers",)), [], 2)
    assert extra > 128 and "deviation" in why


def test_ends_within_its_budget(server, options):
    for budget in (60.0, 150.0, 300.0):
        results, stop = server(options(time_budget=budget)).until_stop()
        assert sum(r.ended - r.started for r in results) <= budget
        assert stop
    assert len(results) <= worst_case(options(time_budget=300.0))


def test_the_first_sweep_leaves_room_for_the_second(server, options):
    results, _ = server(options(time_budget=260.0, precision=0.001)).until_stop()
    assert sizes(results, "shared-buffers", 30) and sizes(results, "shared-buffers", 2)


def test_sizes_out_of_memory_are_not_tried_again(server, options):
    results, _ = server(options(time_budget=900.0, repeats=2), lives=140.0).until_stop()
    dead = [r for r in results if r.trial.point["memory"] == 100 and r.trial.point["sweep"] == "memory"]
    assert len(dead) == 2  # one of each load
    assert all(r.error for r in dead)
    # and nothing smaller than what did not live
    failed_at = max(r.trial.point["memory"] for r in results if r.error)
    after = False
    for result in results:
        after = after or bool(result.error)
    assert after and failed_at < 140


def test_a_given_number_of_repeats_is_kept(server, options):
    given = options(time_budget=900.0, repeats=2, fixed_repeats=True, precision=0.001)
    results, stop = server(given).until_stop()
    planned = given.sizes("memory")
    counts = {size: sum(r.trial.point["memory"] == size for r in results if r.trial.point["sweep"] == "memory") for size in planned}
    assert set(counts.values()) == {2 * len(given.clients)}
    added = [r.trial.key().rpartition("#")[0] for r in results if r.trial.reason.startswith("added")]
    assert added and len(set(added)) == len(added)
    assert stop


def test_a_cliff_is_bisected(server, options):
    """The server is equally fast at every size with enough memory, so that the run searches the smallest one."""
    own = options(vary=("memory",), time_budget=900.0)
    results, _ = server(own, memory={30: 1.0, 2: 1.0}, lives=163.0).until_stop()
    for clients in (30, 2):
        measured = SweepTrials(SweepCurve("memory", clients), results)
        assert measured.knee.kind == "cliff"
        assert measured.out_of_memory_sizes[-1] < 163 <= measured.measured_sizes[0]
        assert measured.measured_sizes[0] - measured.out_of_memory_sizes[-1] <= 0.1 * measured.measured_sizes[0] + 1


def test_a_knee_beyond_the_largest_size_is_searched_there(server, options):
    own = options(vary=("memory",), time_budget=1500.0)
    results, _ = server(own, memory={30: 700.0, 2: 500.0}).until_stop()
    assert max(sizes(results, "memory", 30)) > 700
    assert SweepTrials(SweepCurve("memory", 30), results).knee.kind == "knee"


def test_never_beyond_what_the_host_has(server, options):
    own = options(time_budget=1500.0, max_container=400)
    results, stop = server(own, memory={30: 900.0, 2: 900.0}).until_stop()
    assert max(r.trial.point["memory"] for r in results) <= 400
    assert stop


def test_given_sizes_and_no_others(server, options):
    results, stop = server(options(refine=False)).until_stop()
    assert sizes(results, "memory", 30) == list(options().memory_sizes)
    assert stop == "all planned trials are done"


def test_one_rerun_of_a_size_without_a_clean_trial(server, options):
    own = options(vary=("memory",), refine=False)
    results, _ = server(own, taint=lambda trial: trial.point["memory"] == 200).until_stop()
    again = [r for r in results if r.trial.reason.startswith("rerun")]
    assert {r.trial.point["memory"] for r in again} == {200}
    assert len(again) == 2


def test_failures_for_another_reason_are_tried_once_more(server, options):
    own = options(vary=("memory",), refine=False)
    once = set()

    def fail(trial):
        if trial.point["memory"] == 300 and trial.point["clients"] == 2 and not once:
            once.add(trial.key())
            return "pgbench lost its connection"
        return None

    results, _ = server(own, fail=fail).until_stop()
    assert SweepTrials(SweepCurve("memory", 2), results).out_of_memory_sizes == []
    assert 300 in SweepTrials(SweepCurve("memory", 2), results).measured_sizes


def test_ends_when_nothing_lives(server, options):
    results, stop = server(options(), lives=10_000).until_stop()
    assert "no trial finished" in stop
    assert {r.trial.point["sweep"] for r in results} == {"memory"}


def test_resume_is_replay(server, options):
    own = options()
    results, _ = server(own).until_stop()
    for count in range(0, len(results), 5):
        again = propose(own, results[:count])
        assert again.trials
        assert again.trials[0].key() == results[count].trial.key()


def test_keys_are_unique(server, options):
    results, _ = server(options(time_budget=900.0, repeats=2)).until_stop()
    keys = [r.trial.key() for r in results]
    assert len(keys) == len(set(keys))


CURVE = SweepCurve("memory", 30)


@pytest.fixture
def after(server, options):
    """The next size after these, each measured once in their order."""

    def found(sizes, *, turn=0, curve=CURVE, extra=0, own=None, **more):
        own = own or options()
        trials = [trial_at(own, curve, size, extra, number, "planned") for number, size in enumerate(sizes)]
        return next_size(own, SweepTrials(curve, server(own, **more).all(trials)), turn, extra)

    return found


SIZES = (100, 150, 200, 250, 300, 350)


def test_within_the_interval(after):
    size = after(SIZES, noise=0.05)
    assert 150 < size < 350 and size not in SIZES


def test_every_third_turn_repeats_a_size(after):
    assert after(SIZES, noise=0.05, turn=2) in SIZES


def test_a_few_lucky_trials_are_not_enough(after):
    assert after(SIZES, noise=0.0) is not None
    assert after(SIZES * 2, noise=0.0) is None


def test_beyond_the_largest_as_far_as_the_host_goes(after, options):
    assert after(SIZES, memory={30: 900.0}) == round(350 * 1.35)
    assert after(SIZES, memory={30: 900.0}, own=options(max_container=380)) == 380
    assert after(SIZES, memory={30: 900.0}, own=options(max_container=352)) is None


def test_below_the_smallest_down_to_the_shared_buffers(after):
    assert after(SIZES, memory={30: 1.0}, noise=0.0) == 75
    assert after((65, *SIZES), memory={30: 1.0}, noise=0.0) is None
    assert after((16, 32, 64, 96), curve=SweepCurve("shared-buffers", 30), extra=100, buffers={30: 1.0}, noise=0.0) == 12


def test_both_ends_once_more_where_noise_hides_the_knee(after):
    assert after((100, 100, 150, 200, 250, 300, 350), memory={30: 1.0}, noise=0.5) == 350
    assert after((100, 150, 200, 250, 300, 350, 350), memory={30: 1.0}, noise=0.5) == 100


def test_bisection_between_success_and_out_of_memory(after):
    assert after(SIZES, memory={30: 1.0}, noise=0.0, lives=120.0) == 125
    assert after((100, 140, 145, 150, 200, 250, 300), memory={30: 1.0}, noise=0.0, lives=142.0) is None


def test_too_few_sizes(after):
    assert after((100, 300)) == 200


def test_nothing_lives(after):
    assert after(SIZES, lives=1000.0) is None
