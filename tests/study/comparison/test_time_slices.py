"""All sides in one trial, and its result taken apart again."""

import pytest

from pgherd.study.comparison import time_slices, variants
from pgherd.study.comparison.analyse import analyse
from pgherd.study.comparison.blocks import complete_blocks
from pgherd.study.comparison.propose import propose


@pytest.fixture
def study_options(options):
    return options(interleave="slices", max_blocks=20, time_budget=1e6)


def test_each_side_has_what_is_its_own(study_options, simulate):
    (result,) = simulate(study_options, truth={"other": 0.8}, noise=0.0).all(variants.block_trials(study_options, 3))
    outcome = {split_variant.trial.point["variant"]: split_variant for split_variant in time_slices.split_variants([result])}
    assert set(outcome) == set(study_options.block_variants)
    for variant, item in outcome.items():
        (phase,) = item.phases
        (target,) = phase.targets
        assert target.target.split("/")[1] == variants.container_names(study_options)[variant] and list(item.trial.phases[0].loads) == [
            target.target
        ]
        assert target.throughput == phase.throughput == pytest.approx(8_000 if variant == "other" else 10_000)
        assert set(phase.metrics) == {f"container:{variants.container_names(study_options)[variant]}", "host"}
        assert item.trial.key() == f"variant={variant}#3" and item.id == result.id


def test_context_switches_are_those_of_its_turns(study_options, simulate):
    (result,) = simulate(study_options, noise=0.0).all(variants.block_trials(study_options, 0))
    split_variant = time_slices.split_variants([result])[0]
    own = result.phases[0].targets[0].slices
    assert split_variant.phases[0].metrics["host"] == {
        "context_switches": pytest.approx(sum(turn.switches for turn in own) / result.phases[0].seconds)
    }
    unseen = [
        target.model_copy(update={"slices": [turn.model_copy(update={"switches": None}) for turn in target.slices]})
        for target in result.phases[0].targets
    ]
    blind = result.model_copy(update={"phases": [result.phases[0].model_copy(update={"targets": unseen})]})
    assert "host" not in time_slices.split_variants([blind])[0].phases[0].metrics


def test_what_is_no_trial_by_turns_stays_as_it_is(options, simulate):
    study_options = options()
    results = simulate(study_options).all(variants.block_trials(study_options, 0))
    assert time_slices.split_variants(results) == results


def test_one_trial_is_a_whole_block(study_options, simulate):
    results = simulate(study_options).all(variants.block_trials(study_options, 0))
    (block,) = complete_blocks(study_options, results)
    assert block.all == tuple(results) and {variant: len(result) for variant, result in block.results.items()} == dict.fromkeys(
        study_options.block_variants, 1
    )
    assert block.clean and block.finished and block.gap == 0.0


def test_a_failed_trial_is_no_side_s_alone(study_options, simulate):
    simulator = simulate(study_options, fail=lambda trial: "the server died")
    results, stop = simulator.until_stop()
    assert len(results) == 2 and stop == "all variants (interleaved) did not finish a trial in any of 2 blocks: the server died"
    analysis = analyse(study_options, results)
    assert analysis.grade == "C" and "2 trials of all variants (interleaved) did not finish: the server died" in analysis.warnings


def test_a_difference_is_found_and_told_block_by_block(study_options, simulate):
    simulator = simulate(study_options, truth={"other": 0.9}, noise=0.01)
    results, stop = simulator.until_stop()
    assert "other" in stop and propose(study_options, results).stop == stop
    analysis = analyse(study_options, results)
    ratio = analysis.findings["ratio:other:throughput"]
    assert ratio.low < 0.9 < ratio.high and analysis.answer.startswith("other is slower than base")
    rows = analysis.tables["blocks"]
    assert [row["order"] for row in rows[:4]] == [1, 1, 1, 2] and {row["variant"] for row in rows[:3]} == set(study_options.block_variants)
    switches = next(row for row in analysis.tables["comparison"] if row["metric"] == "context_switches_per_tx")
    assert switches["baseline"].value == pytest.approx(2.0, rel=0.05), "10,000 a turn of half a second, at 10,000 tps"
    assert any("device I/O per transaction: with time slices all variants share the devices" in warning for warning in analysis.warnings)


def test_a_tainted_block_is_run_again(study_options, simulate):
    simulator = simulate(study_options, taint=lambda trial: "steal" if trial.repeat == 1 else None)
    results, _ = simulator.until_stop()
    again = [result for result in results if result.trial.reason.startswith("rerun")]
    assert [result.trial.reason for result in again] == ["rerun of block 1: all-interleaved failed steal"]
