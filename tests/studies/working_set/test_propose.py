"""Which trials a working-set run proposes, in which order, and when it stops."""

from __future__ import annotations

from itertools import pairwise

from pgherd.studies.working_set.curves import Measured, difference
from pgherd.studies.working_set.options import CONTAINER, Curve
from pgherd.studies.working_set.propose import propose, worst_case


def sizes(results, sweep, clients):
    return sorted({r.trial.point[sweep] for r in results if r.trial.point["sweep"] == sweep and r.trial.point["clients"] == clients})


def test_begins_with_all_sizes_of_memory_in_mixed_order(options):
    first = propose(options(), [])
    points = [(t.point["clients"], t.point["memory"]) for t in first.trials]
    assert sorted(points) == sorted((c, s) for c in (30, 2) for s in options().memory_sizes)
    assert points != sorted(points) and points != sorted(points, reverse=True)
    assert any(a[0] != b[0] for a, b in pairwise(points))
    assert {t.point["buffers"] for t in first.trials} == {64}
    other = propose(options(seed=2), [])
    assert [t.key() for t in other.trials] != [t.key() for t in first.trials]


def test_the_container_is_as_large_as_the_point_says(options):
    for trial in propose(options(), []).trials:
        (container,) = trial.deployment.hosts[0].containers
        assert container.name == CONTAINER
        assert container.memory == trial.point["memory"] * 2**20
        assert container.servers[0].settings["shared_buffers"] == f"{trial.point['buffers']}MB"
        assert trial.state == options().state
        assert trial.may_die and trial.looks == ("buffers",)


def test_goes_on_near_the_knee(server, options):
    results, stop = server(options(sweeps=("memory",), budget_seconds=600.0), noise=0.04).until_stop()
    added = [r.trial.point for r in results if r.trial.reason.startswith("added") and r.trial.point["sweep"] == "memory"]
    assert added
    near = [p for p in added if abs(p["memory"] - {30: 250, 2: 200}[p["clients"]]) <= 60]
    assert len(near) >= len(added) * 0.6
    assert stop
    for clients, truth in ((30, 250), (2, 200)):
        knee = Measured(Curve("memory", clients), results).knee
        assert knee.half_width is not None and knee.half_width <= 0.07
        assert knee.low - 3 <= truth <= knee.high + 3


def test_the_second_sweep_stands_on_the_first(server, options):
    results, _ = server(options()).until_stop()
    for clients, knee in ((30, 250), (2, 200)):
        beyond = {
            r.trial.point["memory"] - r.trial.point["buffers"]
            for r in results
            if r.trial.point["sweep"] == "buffers" and r.trial.point["clients"] == clients
        }
        assert len(beyond) == 1
        assert abs(beyond.pop() - (knee - 64)) <= 20
    order = [r.trial.point["sweep"] for r in results]
    assert order == sorted(order, reverse=True)  # all of memory, then all of buffers


def test_a_given_difference_needs_no_first_sweep(server, options):
    own = options(sweeps=("buffers",), memory_sizes=(), difference=90)
    results, _ = server(own).until_stop()
    assert {r.trial.point["memory"] - r.trial.point["buffers"] for r in results} == {90}
    assert difference(own, results, 2) == (90, "as asked for")


def test_without_a_first_sweep_the_difference_is_said_to_deviate(options):
    beyond, why = difference(options(sweeps=("buffers",)), [], 2)
    assert beyond > 128 and "deviation" in why


def test_ends_within_its_budget(server, options):
    for budget in (60.0, 150.0, 300.0):
        results, stop = server(options(budget_seconds=budget)).until_stop()
        assert sum(r.ended - r.started for r in results) <= budget
        assert stop
    assert len(results) <= worst_case(options(budget_seconds=300.0))


def test_the_first_sweep_leaves_room_for_the_second(server, options):
    results, _ = server(options(budget_seconds=260.0, precision=0.001)).until_stop()
    assert sizes(results, "buffers", 30) and sizes(results, "buffers", 2)


def test_what_does_not_live_is_not_tried_again(server, options):
    results, _ = server(options(budget_seconds=900.0, repeats=2), lives=140.0).until_stop()
    dead = [r for r in results if r.trial.point["memory"] == 100 and r.trial.point["sweep"] == "memory"]
    assert len(dead) == 2  # one of each load
    assert all(r.error for r in dead)
    # and nothing smaller than what did not live
    failed_at = max(r.trial.point["memory"] for r in results if r.error)
    after = False
    for result in results:
        after = after or bool(result.error)
    assert after and failed_at < 140


def test_between_what_lives_and_what_does_not(server, options):
    """A server that is as fast in any container that it lives in: the edge is looked for."""
    own = options(sweeps=("memory",), budget_seconds=900.0)
    results, _ = server(own, memory={30: 1.0, 2: 1.0}, lives=163.0).until_stop()
    for clients in (30, 2):
        measured = Measured(Curve("memory", clients), results)
        assert measured.knee.kind == "cliff"
        assert measured.dead[-1] < 163 <= measured.lived[0]
        assert measured.lived[0] - measured.dead[-1] <= 0.1 * measured.lived[0] + 1


def test_a_knee_beyond_the_largest_size_is_looked_for_there(server, options):
    own = options(sweeps=("memory",), budget_seconds=1500.0)
    results, _ = server(own, memory={30: 700.0, 2: 500.0}).until_stop()
    assert max(sizes(results, "memory", 30)) > 700
    assert Measured(Curve("memory", 30), results).knee.kind == "knee"


def test_never_beyond_what_the_host_has(server, options):
    own = options(budget_seconds=1500.0, most=400)
    results, stop = server(own, memory={30: 900.0, 2: 900.0}).until_stop()
    assert max(r.trial.point["memory"] for r in results) <= 400
    assert stop


def test_given_sizes_and_no_others(server, options):
    results, stop = server(options(refine=False)).until_stop()
    assert sizes(results, "memory", 30) == list(options().memory_sizes)
    assert stop == "all planned trials are done"


def test_one_rerun_of_a_size_without_a_clean_trial(server, options):
    own = options(sweeps=("memory",), refine=False)
    results, _ = server(own, taint=lambda trial: trial.point["memory"] == 200).until_stop()
    again = [r for r in results if r.trial.reason.startswith("rerun")]
    assert {r.trial.point["memory"] for r in again} == {200}
    assert len(again) == 2


def test_failures_for_another_reason_are_tried_once_more(server, options):
    own = options(sweeps=("memory",), refine=False)
    once = set()

    def fail(trial):
        if trial.point["memory"] == 300 and trial.point["clients"] == 2 and not once:
            once.add(trial.key())
            return "pgbench lost its connection"
        return None

    results, _ = server(own, fail=fail).until_stop()
    assert Measured(Curve("memory", 2), results).dead == []
    assert 300 in Measured(Curve("memory", 2), results).lived


def test_ends_when_nothing_lives(server, options):
    results, stop = server(options(), lives=10_000).until_stop()
    assert "no server lived" in stop
    assert {r.trial.point["sweep"] for r in results} == {"memory"}


def test_resume_is_replay(server, options):
    own = options()
    results, _ = server(own).until_stop()
    for count in range(0, len(results), 5):
        again = propose(own, results[:count])
        assert again.trials
        assert again.trials[0].key() == results[count].trial.key()


def test_keys_are_unique(server, options):
    results, _ = server(options(budget_seconds=900.0, repeats=2)).until_stop()
    keys = [r.trial.key() for r in results]
    assert len(keys) == len(set(keys))
