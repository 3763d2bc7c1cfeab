import pytest

from pgherd.studies.compare.study import STUDY
from pgherd.study.comparison import variants
from pgherd.study.comparison.analyse import analyse


def told(options, simulate, **how):
    results, _ = simulate(options, **how).until_stop()
    return analyse(options, results), results


def row(found, variant, metric):
    return next(row for row in found.tables["comparison"] if row["variant"] == variant and row["metric"] == metric)


def test_a_difference_is_told_with_its_interval(options, simulate):
    found, results = told(options(), simulate, truth={"other": 0.8})
    assert found.answer.startswith("other is slower than base: throughput −") and "; base against itself (A/A): " in found.answer
    assert found.grade == "A" and not [warning for warning in found.warnings if not warning.startswith("Left out")]
    ratio = found.findings["ratio:other:throughput"]
    assert ratio.low < 0.8 < ratio.high and ratio.unit == "" and ratio.n == len(results) // 3 == found.findings["blocks"].value
    aa_ratio = found.findings["aa_ratio:throughput"]
    assert aa_ratio.low < 1 < aa_ratio.high
    first = found.tables["comparison"][0]
    assert first["metric"] == "throughput" and first["primary"] == 1 and first["conclusion"] == "slower" and first["outcome"] == "lower"
    assert first["better_direction"] == "higher" and first["ratio_to_baseline"] == ratio and first["aa_ratio"].value == aa_ratio.value
    assert first["baseline"].value == pytest.approx(10_000, rel=0.02) and first["value"].unit == "tps"
    assert row(found, "other", "p95")["conclusion"] == "slower" and row(found, "other", "cpu_per_tx")["conclusion"] == "higher cost"
    assert any(
        text.startswith("other differs significantly from base in other metrics: CPU per transaction +2") for text in found.next_steps
    )
    assert len(found.tables["blocks"]) == len(results)
    assert found.tables["differences"] == [{"option": "protocol", "base": "prepared", "other": "simple"}]
    assert found.figures["series"]["metrics"]["throughput"]["values"]["other"]


def test_what_was_not_seen_is_left_out_with_the_reason(options, simulate):
    found, _ = told(options(), simulate, truth={"other": 0.8}, p99=False)
    assert not [row for row in found.tables["comparison"] if row["metric"] in ("p99", "memory", "wal_per_tx")]
    assert "Left out: p99 latency: fewer than ten sampled transactions beyond p99" in found.warnings
    assert "ratio:other:memory" not in found.findings


def test_where_no_server_is_deployed_nobody_misses_what_only_servers_have(options, simulate):
    results, _ = simulate(options(), truth={"other": 0.8}, p99=False).until_stop()
    (host,) = results[0].trial.deployment.hosts
    empty = results[0].trial.deployment.model_copy(update={"hosts": (host.model_copy(update={"containers": ()}),)})
    bare = [one.model_copy(update={"trial": one.trial.model_copy(update={"deployment": empty})}) for one in results]
    assert not [said for said in analyse(options(), bare).warnings if said.startswith("Left out")]


def test_equal_things_are_said_to_be_equal(options, simulate):
    found, _ = told(options(time_budget=1e6), simulate, noise=0.002)
    assert found.answer.startswith("other and base do not differ by more than 2 %") and found.grade == "A"
    assert found.tables["comparison"][0]["conclusion"] == "equivalent (±2 %)"


def test_what_cannot_be_told_says_what_would_settle_it(options, simulate):
    found, _ = told(options(time_budget=1e6), simulate, noise=0.05)
    first = found.tables["comparison"][0]
    assert found.answer.startswith("No difference between other and base established yet")
    assert (
        first["conclusion"] == "inconclusive"
        and first["blocks_needed"] > 0
        and f"about {first['blocks_needed']} more blocks" in found.answer
    )
    assert any(
        text.startswith(f"A run that is likely to decide: --max-blocks {14 + first['blocks_needed']} --time-budget ")
        for text in found.next_steps
    )


def test_a_budget_that_ends_it_between_looks_still_gives_an_interval(options, simulate):
    made = options(max_blocks=40, time_budget=20 * 8.5)
    found, results = told(made, simulate, truth={"other": 0.8}, noise=0.001)
    assert found.findings["ratio:other:throughput"].low is not None, f"{len(results)} trials"


def test_a_block_that_was_run_again_costs_no_grade_and_one_that_was_not_does(options, simulate):
    def once(trial):
        return "steal" if trial.repeat == 2 and trial.point["variant"] == "other" else None

    found, _ = told(options(time_budget=1e6), simulate, truth={"other": 0.8}, taint=once)
    assert found.grade == "A"
    assert "blocks have a tainted trial, by steal (1); they are left out" in found.warnings[0]
    found, _ = told(options(time_budget=1e6, max_reruns=0), simulate, noise=0.05, taint=once)
    assert found.grade == "B" and found.findings["blocks"].note == "of 14 that were run, 1 tainted"


def test_a_rerun_that_is_rerun_costs_no_grade(options, simulate):
    def twice(trial):
        again = trial.repeat == 2 or trial.reason.startswith("rerun of block 2:")
        return "steal" if again and trial.point["variant"] == "other" else None

    found, _ = told(options(time_budget=1e6), simulate, truth={"other": 0.8}, taint=twice)
    assert found.warnings[0].startswith("2 of ") and found.grade == "A"


def test_variants_of_different_points_are_compared_at_the_common_ones(options, server, simulate):
    """Twice as many databases make twice the throughput here, so means over different points differ."""
    made = options({"a": server(databases=(1, 2)), "b": server(databases=(1, 2, 4))}, time_budget=1e6)
    found, _ = told(made, simulate, noise=0.002)
    assert found.answer.startswith("b and a do not differ by more than 2 %: throughput at common points ")
    assert "The variants have different points: each mean is over the common ones, databases=1, databases=2" in found.warnings
    found, _ = told(options({"a": server(databases=(2,)), "b": server(databases=(1, 2, 4))}, time_budget=1e6), simulate, noise=0.002)
    assert found.answer.startswith("b and a do not differ by more than 2 %: ")
    assert row(found, "b", "throughput@databases=2")["ratio_to_baseline"].value == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("of_study", [False, True])
def test_without_a_common_point_there_is_no_mean(options, server, simulate, of_study):
    made = options({"a": server(databases=(1, 2)), "b": server(databases=(4, 8))}, compare_findings=of_study)
    found, results = told(made, simulate)
    assert found.answer == "No result: throughput: the variants have no point in common." and found.grade == "C"
    assert len({result.trial.repeat for result in results}) == 2, "two blocks show it"
    found, _ = told(options({"a": server(databases=(1,)), "b": server(databases=(4,))}), simulate)
    assert found.findings["ratio:b:throughput"].value == pytest.approx(4, rel=0.1), "one point is compared with one"


def test_tainted_throughout_is_an_indication(options, simulate):
    found, _ = told(options(max_blocks=8, max_reruns=1), simulate, truth={"other": 0.8}, taint=lambda trial: "steal")
    assert found.grade == "C" and found.answer.startswith("Indication only: other is slower than base")
    assert "they are used as fallback" in found.warnings[0]
    assert found.findings["ratio:other:throughput"].note.startswith("only tainted blocks")


def test_an_unknown_check_is_no_pass(options, simulate):
    results, _ = simulate(options(), truth={"other": 0.8}).until_stop()
    blind = [r.model_copy(update={"checks": [v.model_copy(update={"result": "unknown"}) for v in r.checks]}) for r in results]
    found = analyse(options(), blind)
    assert found.grade == "B" and any("Could not be checked here" in warning for warning in found.warnings)


def test_a_baseline_that_differs_from_itself_is_called_into_question(options, simulate):
    results, _ = simulate(options(time_budget=1e6), noise=0.01).until_stop()

    def slower(result):
        if result.trial.point["variant"] != "base (A/A)":
            return result
        phase = result.phases[0]
        targets = [target.model_copy(update={"throughput": target.throughput * 0.9}) for target in phase.targets]
        return result.model_copy(update={"phases": [phase.model_copy(update={"targets": targets})]})

    found = analyse(options(time_budget=1e6), [slower(result) for result in results])
    assert found.grade == "B" and any(warning.startswith("base differs from itself (−") for warning in found.warnings)


def test_a_torn_block_is_said(options, simulate):
    simulator = simulate(options(time_budget=1e6), noise=0.05)
    results = simulator.all(variants.block_trials(options(), 0)[:2])
    simulator.clock += 300
    results += simulator.all(variants.block_trials(options(), 0)[2:])
    for number in range(1, 4):
        results += simulator.all(variants.block_trials(options(), number))
    assert "Block 0 was interrupted for 5 min: its pairs are far apart in time" in analyse(options(), results).warnings


def test_failures_are_told(options, simulate):
    made = options()
    found, _ = told(made, simulate, fail=lambda trial: "no room" if trial.point["variant"] == "other" else None)
    assert found.grade == "C"
    assert found.answer == "No result: other did not finish a trial in any of 2 blocks: no room."
    assert "2 trials of other did not finish: no room" in found.warnings
    assert analyse(made, []).answer == "No result: no trial was run."


def test_several_variants_and_points_with_a_studys_own_findings(options, server, simulate):
    arms_ = {name: server(databases=(1, 2, 4), protocol=name) for name in ("prepared", "simple", "extended")}
    made = options(arms_, compare_findings=True, time_budget=1e6)
    found, _ = told(made, simulate, truth={"simple": 0.7}, noise=0.003)
    assert "simple is slower than prepared" in found.answer and "extended and prepared do not differ" in found.answer
    assert row(found, "simple", "throughput@databases=4")["conclusion"] == "slower"
    own = row(found, "simple", "reference_throughput")
    assert own["conclusion"] == "lower" and own["better_direction"] == "" and own["unit"]


def test_a_variant_without_the_metric_is_named_and_costs_the_best_grade(options, server, simulate):
    made = options({name: server(protocol=name) for name in ("prepared", "simple", "extended")}, metric="p95", time_budget=1e6)
    results, _ = simulate(made, truth={"simple": 0.7}, noise=0.003).until_stop()
    assert analyse(made, results).grade == "A"

    def without(phase):
        latency = [target.latency.model_copy(update={"p95": None}) for target in phase.targets]
        targets = [target.model_copy(update={"latency": one}) for target, one in zip(phase.targets, latency, strict=True)]
        return phase.model_copy(update={"targets": targets})

    blind = [
        result.model_copy(update={"phases": list(map(without, result.phases))}) if result.trial.point["variant"] == "extended" else result
        for result in results
    ]
    found = analyse(made, blind)
    assert found.grade == "B" and "extended was not compared, because it has no p95" in found.answer
    assert found.answer.startswith("simple is slower than prepared")


def test_a_steadier_metric_is_recommended_where_the_one_asked_for_cannot_tell(options, simulate):
    made = options(time_budget=1e6)
    results, _ = simulate(made, noise=0.1).until_stop()
    steady = []
    for result in results:
        phase = result.phases[0]
        used = {"cpu.usage": phase.throughput * 0.0001}
        metrics = phase.metrics | {"container:db01": used}
        steady.append(result.model_copy(update={"phases": [phase.model_copy(update={"metrics": metrics})]}))
    found = analyse(made, steady)
    assert any(text.startswith("CPU per transaction has less noise here than throughput") for text in found.next_steps)
    assert not any("steadier" in text for text in analyse(made, results).next_steps)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 7, 17])
def test_it_never_raises_for_what_is_missing(options, simulate, cut):
    results, _ = simulate(options(), noise=0.05).until_stop()
    found = STUDY.analyse(options(), results[:cut])
    assert found.answer.endswith(".") and found.grade in "ABC"
    assert STUDY.analyse(options(metric="memory"), results[:cut]).grade == "C"
