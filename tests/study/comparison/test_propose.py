import pytest

from pgherd.analysis.group_sequential import analysis_schedule
from pgherd.study.comparison import variants
from pgherd.study.comparison.propose import propose, worst_case


def test_the_first_batch_is_one_block(options):
    proposal = propose(options(), [])
    assert proposal.trials == variants.block_trials(options(), 0)
    assert proposal.max_trials == worst_case(options()) == 3 * 15, "45 trials of 5.5 s fit into 260 s"


def test_a_clear_difference_ends_it_at_the_first_look(options, simulate):
    results, stop = simulate(options(), truth={"other": 0.8}).until_stop()
    first = analysis_schedule(14)[0]
    assert len(results) == 3 * first < 3 * 14
    assert stop.startswith(f"{first} blocks, enough for a conclusion; other: the 95 % interval")


def test_no_difference_goes_on_until_it_is_certain_or_all_blocks_are_run(options, simulate):
    results, stop = simulate(options(), noise=0.002).until_stop()
    assert "enough for a conclusion" in stop and "is within ±2 %" in stop
    results, stop = simulate(options(time_budget=1e6), noise=0.2).until_stop()
    assert len(results) == 3 * 14
    assert stop.startswith("14 blocks, all planned; other: ")


def test_several_variants_share_one_error_rate(options, server, simulate):
    study_options = options(
        {"a": server(), "b": server(protocol="simple"), "c": server(protocol="extended")}, max_blocks=30, time_budget=1e6
    )
    results, stop = simulate(study_options, truth={"b": 0.8, "c": 0.9}).until_stop()
    blocks = len(results) // 4
    assert blocks in analysis_schedule(30, 0.025) and "b: the 97.5 % interval" in stop and "c: the 97.5 % interval" in stop


@pytest.mark.parametrize("metric", ["p95", "cpu_per_tx"])
def test_another_metric_decides(options, simulate, metric):
    _, stop = simulate(options(metric=metric), truth={"other": 0.8}).until_stop()
    assert "is above zero" in stop


def test_precision_goes_on_after_the_verdict(options, simulate):
    how = {"truth": {"other": 0.5}, "noise": 0.05}
    soon, _ = simulate(options(time_budget=1e6, max_blocks=40), **how).until_stop()
    late, _ = simulate(options(time_budget=1e6, max_blocks=40, precision=0.03), **how).until_stop()
    assert len(soon) < len(late)


def test_the_budget_ends_it(options, simulate):
    results, stop = simulate(options(max_blocks=40, time_budget=100), noise=0.2).until_stop()
    assert len(results) == 15, "five blocks of three trials of 6.5 s"
    assert stop == "the budget of 100 s is used up; 5 blocks were run"


def test_the_first_block_is_run_whatever_the_budget(options, simulate):
    results, stop = simulate(options(time_budget=1)).until_stop()
    assert len(results) == 3 and "budget" in stop


def test_resume_is_replay_in_the_middle_of_a_block_too(options, simulate):
    study_options = options(time_budget=1e6)

    def taint(trial):
        return "steal" if trial.repeat in (1, 4) and trial.point["variant"] == "base" else None

    complete, stop = simulate(study_options, noise=0.05, taint=taint).until_stop()
    for cut in range(len(complete)):
        proposal = propose(study_options, complete[:cut])
        assert [trial.key() for trial in proposal.trials] == [
            result.trial.key() for result in complete[cut : cut + len(proposal.trials)]
        ], f"after {cut} trials"
    assert propose(study_options, complete).stop == stop


def test_a_tainted_block_is_run_again_as_a_whole(options, simulate):
    study_options = options(time_budget=1e6)
    results, _ = simulate(
        study_options,
        truth={"other": 0.8},
        taint=lambda trial: "steal" if trial.repeat == 2 and trial.point["variant"] == "other" else None,
    ).until_stop()
    first = analysis_schedule(14)[0]
    again = [result.trial for result in results if result.trial.reason != "planned"]
    assert len(results) == 3 * (first + 1)
    assert {trial.point["variant"] for trial in again} == {"base", "base (A/A)", "other"} and {trial.repeat for trial in again} == {first}
    assert {trial.reason for trial in again} == {"rerun of block 2: other failed steal"}


def test_reruns_are_bounded(options, simulate):
    study_options = options(max_blocks=8, max_reruns=3, time_budget=1e6)
    results, stop = simulate(study_options, taint=lambda trial: "steal").until_stop()
    assert len(results) == 3 * 11
    assert stop == "11 blocks were run, 3 of them as reruns, and 11 are tainted"


def test_an_arm_that_never_finishes_ends_it_after_two_blocks(options, simulate):
    study_options = options(time_budget=1e6)
    results, stop = simulate(study_options, fail=lambda trial: "no room" if trial.point["variant"] == "other" else None).until_stop()
    assert len(results) == 6
    assert stop == "other did not finish a trial in any of 2 blocks: no room"


def test_one_failure_does_not_end_it(options, simulate):
    study_options = options(time_budget=1e6)
    results, stop = simulate(
        study_options, truth={"other": 0.8}, fail=lambda trial: "no" if trial.repeat == 0 and trial.point["variant"] == "other" else None
    ).until_stop()
    assert "enough for a conclusion" in stop and len(results) == 3 * (analysis_schedule(14)[0] + 1)


def test_a_metric_that_nothing_has_ends_it(options, server, simulate):
    arms_ = {"a": server(), "b": server(protocol="simple")}
    results, stop = simulate(options(arms_, compare_findings=True, metric="nonsense", time_budget=1e6)).until_stop()
    assert stop.startswith("no trial has the metric 'nonsense'") and len(results) == 6, "two blocks show it as well as seven"
    results, stop = simulate(options(metric="memory", time_budget=1e6)).until_stop()
    assert stop == "memory cannot be compared: this runtime does not measure a container's memory" and len(results) == 6


def test_a_metric_that_only_the_first_block_lacks_does_not_end_it(options, simulate):
    simulator = simulate(options(metric="p99", time_budget=1e6), truth={"other": 0.8})
    few = simulate(simulator.options, p99=False).all(variants.block_trials(simulator.options, 0))
    again = propose(simulator.options, few).trials
    assert {trial.repeat for trial in again} == {1}, "one further block shows whether that was chance"
    then = propose(simulator.options, [*few, *simulator.all(again)])
    assert then.stop is None and len({trial.repeat for trial in then.trials}) > 1


def test_side_by_side_restarts_are_reckoned_with(options, server, simulate):
    """Each block begins with a restart, which takes longer than going on."""
    created = options(
        {"a": server(duration=1.7, warmup=0.3), "b": server(duration=1.7, warmup=0.3, protocol="simple")}, interleave="slices"
    )
    created = created.model_copy(update={"max_blocks": 40, "time_budget": 70.0})
    simulator = simulate(created, noise=0.2, overhead=lambda trial: 1.1 if trial.state == "restarted" else 0.1)
    results, stop = simulator.until_stop()
    assert len(results) == 10 and stop == "the budget of 70 s is used up; 10 blocks were run", "10 of 6.5 s fit, 11 do not"
