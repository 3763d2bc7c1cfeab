import pytest

from pgherd.study.comparison import variants
from pgherd.study.comparison.blocks import all_series, complete_blocks, primary_series, used_blocks


def run(simulate, options, count, **how):
    simulator = simulate(options, **how)
    return [result for number in range(count) for result in simulator.all(variants.block_trials(options, number))]


def tainted(*numbers):
    return lambda trial: "steal" if trial.repeat in numbers and trial.point["variant"] == "other" else None


def test_only_whole_blocks_are_blocks(options, simulate):
    results = run(simulate, options(), 3)
    assert [block.number for block in complete_blocks(options(), results[:-1])] == [0, 1]
    assert set(complete_blocks(options(), results)[2].results) == {"base", "base (A/A)", "other"}


def test_one_tainted_trial_taints_its_block(options, simulate):
    blocks = complete_blocks(options(), run(simulate, options(), 4, taint=tainted(2)))
    assert [block.clean for block in blocks] == [True, True, False, True]
    assert blocks[2].faults == "other failed steal"
    assert [block.number for block in used_blocks(blocks, 14)] == [0, 1, 3]


def test_tainted_blocks_stand_in_where_too_few_are_clean(options, simulate):
    blocks = complete_blocks(options(), run(simulate, options(), 5, taint=tainted(0, 1, 2)))
    assert [block.number for block in used_blocks(blocks, 14)] == [0, 1, 2, 3, 4]
    assert used_blocks(blocks[3:], 14) == blocks[3:], "two clean blocks are all there is"
    assert [block.number for block in used_blocks(blocks, 3)] == [0, 3, 4], "as many as were planned, the clean ones first"
    assert [block.number for block in used_blocks(blocks, 1)] == [3]


def test_a_block_with_a_trial_that_failed_has_no_pair(options, simulate):
    def fail(trial):
        return "no" if trial.repeat == 1 and trial.point["variant"] == "base" else None

    blocks = complete_blocks(options(), run(simulate, options(), 2, fail=fail))
    assert [block.finished for block in blocks] == [True, False]
    assert blocks[1].faults == "base did not finish"
    assert [block.number for block in used_blocks(blocks, 14)] == [0]


def test_an_interruption_shows_as_a_gap(options, simulate):
    simulator = simulate(options())
    trials = variants.block_trials(options(), 0)
    results = simulator.all(trials[:1])
    simulator.clock += 3600
    results += simulator.all(trials[1:])
    assert complete_blocks(options(), results)[0].gap == 3600
    assert complete_blocks(options(), run(simulate, options(), 1))[0].gap == 0


def test_a_block_that_had_to_move_in_its_midst_is_no_pair(options, simulate):
    def on(result, name):
        complete = result.trial.deployment.hosts[0]
        own = complete.model_copy(update={"name": name, "labels": {"host": name}, "containers": ()})
        deployment = result.trial.deployment.model_copy(update={"hosts": (complete, own)})
        return result.model_copy(update={"trial": result.trial.model_copy(update={"deployment": deployment})})

    results = run(simulate, options(), 2)
    moved = [on(item, "a") for item in results[:4]] + [on(element, "b") for element in results[4:]]
    first, other = complete_blocks(options(), moved)
    assert (first.host, first.clean) == ("a", True) and (other.host, other.clean) == ("a, b", False)
    assert other.faults == "it ran on several hosts (a, b)"
    assert complete_blocks(options(), results)[0].host == ""


def blocks(options, simulate, count=3, **how):
    simulator = simulate(options, **how)
    return complete_blocks(options, [result for number in range(count) for result in simulator.all(variants.block_trials(options, number))])


def test_values_stand_block_by_block_on_every_side(options, simulate):
    study_options = options()
    series = all_series(study_options, blocks(study_options, simulate, truth={"other": 1.5}, noise=0.0))["throughput"]
    assert dict(series.values) == {
        "base": pytest.approx([10_000] * 3),
        "base (A/A)": pytest.approx([10_000] * 3),
        "other": pytest.approx([15_000] * 3),
    }
    assert series.unusable_reason(study_options) == ""


def test_every_metric_is_there_and_says_why_it_cannot_be_compared(options, simulate):
    study_options = options()
    every = all_series(study_options, blocks(study_options, simulate, p99=False, metrics={"server:db01/pg": {"wal.bytes": 100.0}}))
    assert every["p99"].unusable_reason(study_options) == "fewer than ten sampled transactions beyond p99"
    assert every["memory"].unusable_reason(study_options).startswith("this runtime does not measure")
    assert every["wal_per_tx"].unusable_reason(study_options) == "too small in base (0.01 bytes)"


def test_the_metric_that_decides(options, simulate):
    study_options = options()
    result = blocks(study_options, simulate)
    assert primary_series(study_options, result).metric.name == "throughput"
    assert primary_series(options(metric="p95"), result).values["base"] == pytest.approx([0.2] * 3, rel=0.1)
    assert primary_series(options(metric="memory"), result).values["base"] == (None,) * 3, "asked for, though it was not seen"


def test_a_studys_own_finding_can_decide(options, server, simulate):
    arms_ = {"a": server(databases=(1, 2, 4)), "b": server(databases=(1, 2, 4), protocol="simple")}
    study_options = options(arms_, compare_findings=True, metric="efficiency_at_saturation")
    result = blocks(study_options, simulate, count=2, noise=0.0)
    series = primary_series(study_options, result)
    assert series.metric.unit == "ratio" and series.values["b"] == pytest.approx([1.0, 1.0], rel=0.01)
    with pytest.raises(KeyError, match="no trial has the metric 'nonsense'; available: throughput, cpu_per_tx"):
        primary_series(options(arms_, compare_findings=True, metric="nonsense"), result)
