"""All sides in one trial, and its result taken apart again."""

import pytest

from pgherd.study.comparison import time_slices, variants
from pgherd.study.comparison.analyse import analyse
from pgherd.study.comparison.blocks import complete_blocks
from pgherd.study.comparison.propose import propose


@pytest.fixture
def made(options):
    return options(interleave="slices", max_blocks=20, time_budget=1e6)


def test_each_side_has_what_is_its_own(made, simulate):
    (result,) = simulate(made, truth={"other": 0.8}, noise=0.0).all(variants.block_trials(made, 3))
    found = {one.trial.point["variant"]: one for one in time_slices.split_variants([result])}
    assert set(found) == set(made.block_variants)
    for side, one in found.items():
        (phase,) = one.phases
        (target,) = phase.targets
        assert target.target.split("/")[1] == variants.container_names(made)[side] and list(one.trial.phases[0].loads) == [target.target]
        assert target.throughput == phase.throughput == pytest.approx(8_000 if side == "other" else 10_000)
        assert set(phase.metrics) == {f"container:{variants.container_names(made)[side]}", "host"}
        assert one.trial.key() == f"variant={side}#3" and one.id == result.id


def test_context_switches_are_those_of_its_turns(made, simulate):
    (result,) = simulate(made, noise=0.0).all(variants.block_trials(made, 0))
    one = time_slices.split_variants([result])[0]
    own = result.phases[0].targets[0].slices
    assert one.phases[0].metrics["host"] == {
        "context_switches": pytest.approx(sum(turn.switches for turn in own) / result.phases[0].seconds)
    }
    unseen = [
        target.model_copy(update={"slices": [turn.model_copy(update={"switches": None}) for turn in target.slices]})
        for target in result.phases[0].targets
    ]
    blind = result.model_copy(update={"phases": [result.phases[0].model_copy(update={"targets": unseen})]})
    assert "host" not in time_slices.split_variants([blind])[0].phases[0].metrics


def test_what_is_no_trial_by_turns_stays_as_it_is(options, simulate):
    made = options()
    results = simulate(made).all(variants.block_trials(made, 0))
    assert time_slices.split_variants(results) == results


def test_one_trial_is_a_whole_block(made, simulate):
    results = simulate(made).all(variants.block_trials(made, 0))
    (block,) = complete_blocks(made, results)
    assert block.all == tuple(results) and {side: len(own) for side, own in block.results.items()} == dict.fromkeys(made.block_variants, 1)
    assert block.clean and block.finished and block.gap == 0.0


def test_a_failed_trial_is_no_side_s_alone(made, simulate):
    simulator = simulate(made, fail=lambda trial: "the server died")
    results, stop = simulator.until_stop()
    assert len(results) == 2 and stop == "all variants (interleaved) did not finish a trial in any of 2 blocks: the server died"
    found = analyse(made, results)
    assert found.grade == "C" and "2 trials of all variants (interleaved) did not finish: the server died" in found.warnings


def test_a_difference_is_found_and_told_block_by_block(made, simulate):
    simulator = simulate(made, truth={"other": 0.9}, noise=0.01)
    results, stop = simulator.until_stop()
    assert "other" in stop and propose(made, results).stop == stop
    found = analyse(made, results)
    ratio = found.findings["ratio:other:throughput"]
    assert ratio.low < 0.9 < ratio.high and found.answer.startswith("other is slower than base")
    rows = found.tables["blocks"]
    assert [row["order"] for row in rows[:4]] == [1, 1, 1, 2] and {row["variant"] for row in rows[:3]} == set(made.block_variants)
    switches = next(row for row in found.tables["comparison"] if row["metric"] == "context_switches_per_tx")
    assert switches["baseline"].value == pytest.approx(2.0, rel=0.05), "10,000 a turn of half a second, at 10,000 tps"
    assert any("device I/O per transaction: with time slices all variants share the devices" in said for said in found.warnings)


def test_a_tainted_block_is_run_again(made, simulate):
    simulator = simulate(made, taint=lambda trial: "steal" if trial.repeat == 1 else None)
    results, _ = simulator.until_stop()
    again = [result for result in results if result.trial.reason.startswith("rerun")]
    assert [result.trial.reason for result in again] == ["rerun of block 1: all-interleaved failed steal"]
