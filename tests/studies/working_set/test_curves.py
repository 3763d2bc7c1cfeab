"""Trials of one sweep curve."""

from __future__ import annotations

from pgherd.model.result import OomKill
from pgherd.studies.working_set.curves import SweepTrials, extra_memory
from pgherd.studies.working_set.options import SweepCurve
from pgherd.studies.working_set.propose import trial_at

CURVE = SweepCurve("memory", 30)


def ran(server, options, sizes, **more):
    own = options()
    return SweepTrials(CURVE, server(own, **more).all([trial_at(own, CURVE, size, 0, n, "planned") for n, size in enumerate(sizes)]))


def test_a_curve_has_no_trials_of_others(server, options):
    own = options()
    simulated = server(own)
    others = [
        trial_at(own, SweepCurve("memory", 2), 300, 0, 0, "planned"),
        trial_at(own, SweepCurve("shared-buffers", 30), 64, 90, 0, "planned"),
    ]
    found = SweepTrials(CURVE, simulated.all([*others, trial_at(own, CURVE, 200, 0, 0, "planned")]))
    assert found.sizes == found.measured_sizes == [200]


def test_clean_trials_count_before_tainted_ones(server, options):
    found = ran(server, options, (200, 200, 300), taint=lambda trial: trial.repeat != 0)
    assert [result.trial.repeat for result in found.used] == [0, 2]
    assert found.measured_sizes == [200, 300]


def test_ended_for_memory_once_is_dead(server, options):
    found = ran(server, options, (100, 200), lives=150.0)
    assert found.out_of_memory_sizes == [100]
    assert found.measured_sizes == [200]


def test_reported_kills_count_too(server, options):
    found = ran(server, options, (100, 200), fail=lambda trial: "ended while starting" if trial.point["memory"] == 100 else None)
    assert found.out_of_memory_sizes == []
    kill = OomKill(container="db01", processes=1, time=0.0, names=("postgres (1)",), limit="container")
    results = [result.model_copy(update={"oom_kills": (kill,)}) if result.error else result for result in found.trials]
    assert SweepTrials(CURVE, results).out_of_memory_sizes == [100]


def test_failed_for_another_reason_is_dead_only_the_second_time(server, options):
    def broken(trial):
        return "no idea" if trial.point["memory"] == 100 else None

    assert ran(server, options, (100, 200), fail=broken).out_of_memory_sizes == []
    assert ran(server, options, (100, 200, 100), fail=broken).out_of_memory_sizes == [100]


def test_what_is_smaller_than_the_dead_is_dead(server, options):
    def broken(trial):
        return "no idea" if trial.point["memory"] == 80 else None

    assert ran(server, options, (80, 100, 200), fail=broken, lives=150.0).out_of_memory_sizes == [80, 100]


def test_what_lived_once_is_not_dead(server, options):
    found = ran(server, options, (100, 100), fail=lambda trial: "memory limit" if trial.repeat == 0 else None)
    assert found.out_of_memory_sizes == [] and found.measured_sizes == [100]


def test_the_difference_of_e7(server, options):
    own = options(time_budget=900.0, vary=("memory", "shared-buffers"))
    results, _ = server(own, noise=0.0).until_stop()
    assert extra_memory(own, results, 30) == (250 - 64, "container working set − its shared buffers, as in E7")


def test_a_server_needs_some_memory_in_addition_to_its_buffers(server, options):
    own = options(shared_buffers=190)
    curve = SweepCurve("memory", 2)
    results = server(own, noise=0.0).all([trial_at(own, curve, size, 0, 0, "planned") for size in own.memory_sizes])
    extra, why = extra_memory(own, results, 2)
    assert extra == 27 and "since E7's rule gives 10 MB: a deviation" in why


def test_without_a_knee_the_largest_or_the_smallest_size_is_used(server, options):
    own = options()
    curve = SweepCurve("memory", 30)
    trials = [trial_at(own, curve, size, 0, 0, "planned") for size in own.memory_sizes]
    extra, why = extra_memory(own, server(own, memory={30: 900.0}).all(trials), 30)
    assert extra == 350 - 64 and why.startswith("largest container") and why.endswith("a deviation")
    extra, why = extra_memory(own, server(own, memory={30: 1.0}, noise=0.001).all(trials), 30)
    assert extra == 69 and why.startswith("smallest container") and why.endswith("a deviation")
