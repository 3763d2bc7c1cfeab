"""Trials of one sweep curve."""

from __future__ import annotations

from pgherd.model.result import OomKill
from pgherd.studies.working_set.curves import SweepTrials, extra_memory
from pgherd.studies.working_set.options import SweepCurve
from pgherd.studies.working_set.propose import trial_at

CURVE = SweepCurve("memory", 30)


def ran(server, options, sizes, **extra):
    study_options = options()
    return SweepTrials(
        CURVE, server(study_options, **extra).all([trial_at(study_options, CURVE, size, 0, n, "planned") for n, size in enumerate(sizes)])
    )


def test_a_curve_has_no_trials_of_others(server, options):
    study_options = options()
    simulated = server(study_options)
    others = [
        trial_at(study_options, SweepCurve("memory", 2), 300, 0, 0, "planned"),
        trial_at(study_options, SweepCurve("shared-buffers", 30), 64, 90, 0, "planned"),
    ]
    trials = SweepTrials(CURVE, simulated.all([*others, trial_at(study_options, CURVE, 200, 0, 0, "planned")]))
    assert trials.sizes == trials.measured_sizes == [200]


def test_clean_trials_count_before_tainted_ones(server, options):
    outcome = ran(server, options, (200, 200, 300), taint=lambda trial: trial.repeat != 0)
    assert [result.trial.repeat for result in outcome.used] == [0, 2]
    assert outcome.measured_sizes == [200, 300]


def test_ended_for_memory_once_is_dead(server, options):
    result = ran(server, options, (100, 200), lives=150.0)
    assert result.out_of_memory_sizes == [100]
    assert result.measured_sizes == [200]


def test_reported_kills_count_too(server, options):
    outcome = ran(server, options, (100, 200), fail=lambda trial: "ended while starting" if trial.point["memory"] == 100 else None)
    assert outcome.out_of_memory_sizes == []
    kill = OomKill(container="db01", processes=1, time=0.0, names=("postgres (1)",), limit="container")
    results = [result.model_copy(update={"oom_kills": (kill,)}) if result.error else result for result in outcome.trials]
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
    result = ran(server, options, (100, 100), fail=lambda trial: "memory limit" if trial.repeat == 0 else None)
    assert result.out_of_memory_sizes == [] and result.measured_sizes == [100]


def test_the_difference_of_e7(server, options):
    study_options = options(time_budget=900.0, vary=("memory", "shared-buffers"))
    results, _ = server(study_options, noise=0.0).until_stop()
    assert extra_memory(study_options, results, 30) == (250 - 64, "container working set − its shared buffers, as in E7")


def test_a_server_needs_some_memory_in_addition_to_its_buffers(server, options):
    study_options = options(shared_buffers=190)
    curve = SweepCurve("memory", 2)
    results = server(study_options, noise=0.0).all(
        [trial_at(study_options, curve, size, 0, 0, "planned") for size in study_options.memory_sizes]
    )
    extra, reason = extra_memory(study_options, results, 2)
    assert extra == 27 and "since E7's rule gives 10 MB: a deviation" in reason


def test_without_a_knee_the_largest_or_the_smallest_size_is_used(server, options):
    study_options = options()
    curve = SweepCurve("memory", 30)
    trials = [trial_at(study_options, curve, size, 0, 0, "planned") for size in study_options.memory_sizes]
    extra, reason = extra_memory(study_options, server(study_options, memory={30: 900.0}).all(trials), 30)
    assert extra == 350 - 64 and reason.startswith("largest container") and reason.endswith("a deviation")
    extra, reason = extra_memory(study_options, server(study_options, memory={30: 1.0}, noise=0.001).all(trials), 30)
    assert extra == 69 and "since E7's rule gives 36 MB: a deviation" in reason
    trials = [trial_at(study_options, curve, size, 0, 0, "planned") for size in (150, 200, 250)]
    extra, reason = extra_memory(study_options, server(study_options, memory={30: 1.0}, noise=0.001).all(trials), 30)
    assert extra == 150 - 64 and reason.startswith("smallest container") and reason.endswith("a deviation")
    trials = [trial_at(study_options, curve, size, 0, 0, "planned") for size in (66, 70, 75, 80)]
    extra, reason = extra_memory(study_options, server(study_options, memory={30: 90.0}, noise=0.0).all(trials), 30)
    assert extra == 69 and "since E7's rule gives 16 MB: a deviation" in reason
