import pytest

from pgherd.model.finding import Finding
from pgherd.studies.consolidation.analyse import analyse, answer_of, name_of
from pgherd.studies.consolidation.study import STUDY
from pgherd.studies.consolidation.tables import scheme_rows
from pgherd.studies.consolidation.trials import TrialsByPoint


def analysed(simulator):
    return analyse(simulator.options, simulator.all())


def test_the_truth_of_the_simulated_host_is_estimated(make_options, simulate):
    analysis = analysed(simulate(make_options(rates=(0.0, 0.25, 0.5), blocks=3), noise=0.001))
    numbers = {name: finding.value for name, finding in analysis.findings.items()}
    assert numbers[name_of("throughput", scheme=3, buffers=25, rate=0)] == pytest.approx(32 * 120 * 1.1, rel=0.01)
    assert numbers["ratio.scheme3.buffers25"] == pytest.approx(1.2, rel=0.01)
    assert numbers["normalised.scheme1.buffers75.rate0.5"] == pytest.approx(0.4, rel=0.01)
    assert numbers["normalised.scheme3.buffers75.rate0.25"] == pytest.approx(0.9, rel=0.01)
    assert numbers["held_better.scheme3.buffers25.rate0.5"] == pytest.approx(2.0, rel=0.01)
    assert numbers["balloon_ratio.buffers25.rate0.5"] == pytest.approx(0.9 / 0.8, rel=0.01)
    assert numbers["buffers_ratio.scheme1"] == pytest.approx(1.0, rel=0.01)
    assert numbers["corrected_ratio.scheme3.buffers25"] == pytest.approx(3840 / 3400, rel=0.01)
    assert numbers["switch_skew"] == pytest.approx(20)
    assert "all switches are within the warm-up" in analysis.findings["switch_skew"].note
    assert analysis.grade == "A"
    for finding in analysis.findings.values():
        assert (finding.low is not None and finding.high is not None) or finding.note, finding


def test_with_three_blocks_a_difference_is_claimed_with_its_interval(make_options, simulate):
    analysis = analysed(simulate(make_options(blocks=3), noise=0.001))
    assert "M/M/M reaches 1.20 (" in analysis.answer and "one block" not in analysis.answer
    assert "1/M/M reaches 0.90 (" in analysis.answer


def test_one_block_has_no_interval_and_claims_nothing(make_options, simulate):
    analysis = analysed(simulate(make_options(), noise=0.001))
    assert "one block: no interval, so no difference is claimed" in analysis.answer
    ratio = analysis.findings["ratio.scheme3.buffers25"]
    assert (ratio.low, ratio.high) == (None, None) and "one block: no interval" in ratio.note
    assert any(warning.startswith("One block: no interval") for warning in analysis.warnings)


def test_without_a_certain_difference_the_answer_claims_none(make_options, simulate):
    analysis = analysed(simulate(make_options(blocks=3, schemes=(3, 4)), noise=0.05))
    assert "no scheme certainly differs from M/M/M" in analysis.answer


def test_findings_have_the_published_values(make_options, simulate):
    analysis = analysed(simulate(make_options()))
    number = analysis.findings["throughput.scheme3.buffers75"]
    assert (number.experiment, number.published) == ("E4", "58,993.92 new orders/min")
    assert analysis.findings["buffers_ratio.scheme3"].published.startswith("1.121 (E4")
    assert analysis.findings["variation.scheme3.buffers75"].published == "1.1 %"
    assert analysis.findings["variation.scheme1.buffers75"].published is None
    assert len(analysis.tables["published_e4"]) == 8


def test_a_late_switch_is_reported(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,)), skew=1.5)
    note = analyse(simulator.options, simulator.all()).findings["switch_skew"].note
    assert "in 4 of 4 periods a database switched after the warm-up" in note


def test_e5s_readings_are_references_at_the_same_rate(make_options, simulate):
    analysis = analysed(simulate(make_options(rates=(0.0, 0.3, 0.55)))).findings
    assert analysis["held_better.scheme3.buffers25.rate0.55"].published.startswith("about 3 (E5")
    assert analysis["held_better.scheme4.buffers75.rate0.55"].published.startswith("about 2.4 (E5")
    assert analysis["balloon_ratio.buffers75.rate0.55"].published.startswith("about 1.5 (E5")
    assert analysis["balloon_ratio.buffers75.rate0.3"].published is None


def test_other_workloads_and_rates_have_nothing_published(make_options, simulate):
    pgbench = analysed(simulate(make_options(workload="select-only")))
    assert not any(finding.published for finding in pgbench.findings.values())
    assert "published_e4" not in pgbench.tables
    over = analysed(simulate(make_options(rates=(0.0, 0.5))))
    assert [row["buffers"] for row in over.tables["published_e5"]] == [25, 75]
    assert all(row["judged"] == "no: containers share one kernel" for row in over.tables["published_e5"])
    assert not any(finding.published for name, finding in over.findings.items() if "rate0.5" in name)


def test_user_scripts_have_nothing_published(make_options, simulate):
    analysis = analysed(simulate(make_options(scripts=[{"source": "mine.sql"}], rates=(0.0, 0.3, 0.55))))
    assert not any(finding.published for finding in analysis.findings.values())
    assert not any(name.startswith("published") for name in analysis.tables)
    assert analysis.findings["throughput.scheme1.buffers25"].unit == "tps"


def test_one_kernel_for_all_containers_is_a_warning(make_options, simulate):
    analysis = analysed(simulate(make_options()))
    assert any("share one kernel" in warning and "not judged against E5" in warning for warning in analysis.warnings)


def test_memory_of_hypervisors_is_a_warning(make_options, simulate):
    simulator = simulate(make_options(runtime="vm", cpu_mode="none"))
    warnings = analyse(simulator.options, simulator.all()).warnings
    assert any("hypervisors' memory is taken" in warning for warning in warnings)
    assert not any("one kernel" in warning for warning in warnings)


def test_an_oom_kill_is_a_result_and_no_failure(make_options, simulate):
    options = make_options(rates=(0.0, 0.5), schemes=(1, 3), buffers=(75,))

    def kill(trial):
        return "db1" if trial.point["rate"] and trial.point["scheme"] == 3 else None

    analysis = analysed(simulate(options, kill=kill))
    assert analysis.tables["memory_kills"] == [
        {
            "trial": "buffers=75,rate=0.5,scheme=3#0",
            "container": "db1",
            "processes": 2,
            "who": "postgres",
            "limit": "budget",
            "seconds_into_trial": 7.2,
            "said": "a server died",
        }
    ]
    killed = next(row for row in analysis.tables["consolidation"] if row["scheme"] == 3 and row["rate"] == 0.5)
    assert killed["killed"] == 1
    assert isinstance(killed["throughput"], Finding) and "OOM kill" in killed["throughput"].note
    assert isinstance(killed["normalised"], Finding) and "OOM kill" in killed["normalised"].note
    assert isinstance(killed["cpu_used"], Finding) and "OOM kill" in killed["cpu_used"].note
    assert analysis.grade == "B", "one block has no interval"
    several = make_options(rates=(0.0, 0.5), schemes=(1, 3), buffers=(75,), blocks=3)
    assert analysed(simulate(several, kill=kill)).grade == "A", "finished trials are clean"


def test_when_every_trial_is_killed_there_is_no_result(make_options, simulate):
    analysis = analysed(simulate(make_options(schemes=(1,)), kill=lambda trial: "all"))
    assert analysis.answer == "No result: every trial had OOM kills."
    assert analysis.grade == "C"


def test_tainted_trials_lower_the_grade(make_options, simulate):
    some = analysed(simulate(make_options(max_reruns=0), taint=lambda trial: "steal" if trial.point["scheme"] == 2 else None))
    assert some.grade == "B"
    assert any(warning.startswith("Only tainted trials for 1/M/M with 25 % buffers, ") for warning in some.warnings)
    throughout = analysed(simulate(make_options(max_reruns=0), taint=lambda trial: "steal"))
    assert throughout.grade == "C" and throughout.answer.startswith("Indication only: ")


def test_schemes_with_mostly_tainted_trials_are_an_indication(make_options, simulate):
    """A tainted trial counts in its block. A combination is clean if most of its blocks are clean."""
    options = make_options(schemes=(1, 3), buffers=(25, 75), blocks=3, max_reruns=0)

    def noisy(**where):
        tainted = simulate(
            options, taint=lambda trial: "steal" if {**trial.point, "block": trial.repeat}.items() >= where.items() else None
        )
        return analysed(tainted)

    assert noisy(block=0).grade == "B", "two blocks of three are clean everywhere"
    assert noisy(scheme=3, buffers=25).grade == "B"
    half = noisy(scheme=3)
    assert half.grade == "C" and any("(2 of 4 points, half of them or more): the whole" in warning for warning in half.warnings)
    most = simulate(options, taint=lambda trial: "steal" if trial.repeat else None)
    analysis = analysed(most)
    assert analysis.grade == "C", "one clean block of three is not enough"
    assert any(
        warning.startswith("Tainted trials in half of the blocks or more for 1/1/M with 25 % buffers, ") for warning in analysis.warnings
    )
    assert any("they count only where a block has no clean trial" in warning for warning in analysis.warnings)


def test_combinations_without_a_value_are_named(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25,), max_reruns=0)
    results = simulate(options).all()
    results = [r if r.trial.point["scheme"] == 1 else r.model_copy(update={"error": "it died", "phases": []}) for r in results]
    analysis = analyse(options, results)
    assert analysis.grade == "B", "combinations with a value are clean"
    assert "No finished trial for M/M/M with 25 % buffers" in analysis.warnings


def test_unavailable_schemes_are_listed_with_the_reason(make_options, simulate):
    analysis = analysed(simulate(make_options(unavailable={4: "make is missing"})))
    row = analysis.tables["consolidation"][-1]
    assert row["scheme"] == 4 and row["throughput"].note == "not available: make is missing"
    assert any("make is missing" in warning for warning in analysis.warnings)


def test_the_safe_rate_is_a_finding(make_options, simulate):
    analysis = analysed(simulate(make_options(working_sets=(1376 * 2**20, 1152 * 2**20), rates=(0.0, 0.5))))
    assert analysis.findings["honest_rate"].value == pytest.approx(0.69, abs=0.005)
    without = analysed(simulate(make_options(rates=(0.0, 0.5))))
    assert any("safe overcommitment rate is unknown" in warning for warning in without.warnings)


def test_without_trials_there_is_no_result(make_options):
    analysis = STUDY.analyse(make_options(), [])
    assert analysis.answer == "No result: no trial finished."
    assert analysis.grade == "C"


def test_a_failed_baseline_leaves_nothing_to_compare_with(make_options, simulate):
    options = make_options(rates=(0.0, 0.5), schemes=(1,), buffers=(25,))
    analysis = analysed(simulate(options, kill=lambda trial: None if trial.point["rate"] else "all"))
    assert analysis.answer.startswith("No scheme has an undercommitted baseline")


# ---- answer


def answer(simulator):
    trials = TrialsByPoint(simulator.options, simulator.all())
    return answer_of(simulator.options, trials, scheme_rows(simulator.options, trials))


def test_one_scheme_has_only_its_throughput(make_options, simulate):
    assert answer(simulate(make_options(schemes=(3,), buffers=(25,)))) == "With 25 % buffers M/M/M reaches 3,840 new orders/min."


def test_a_ratio_of_schemes_with_different_vcpus_is_followed_by_the_corrected_one(make_options, simulate):
    one_block = answer(simulate(make_options(schemes=(1, 3), buffers=(25,))))
    assert (
        "M/M/M has the highest throughput, 3,840 new orders/min, 1.20 × 1/1/M, 1.13 × with E4's correction for vCPUs (one block"
        in one_block
    )
    three = answer(simulate(make_options(schemes=(1, 2, 3), buffers=(25,), blocks=3), noise=0.001))
    assert "× 1/1/M, 1.13 (1.1" in three
    assert "1/M/M reaches 0.90 (0.90 … 0.90) × 1/1/M;" in three, "both share their vCPUs"


def test_two_blocks_claim_nothing_either(make_options, simulate):
    assert answer(simulate(make_options(buffers=(25,), blocks=2))).endswith("(two blocks: no interval, so no difference is claimed).")


def test_where_too_few_of_many_blocks_have_both_there_is_no_interval(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25,), blocks=3)
    text = answer(simulate(options, kill=lambda trial: "db1" if trial.point["scheme"] == 3 and trial.repeat else None))
    assert (
        "M/M/M has the highest throughput, 3,840 new orders/min, 1.20 × 1/1/M, 1.13 × with E4's correction for vCPUs (no interval)" in text
    )


def test_retained_throughput_at_the_highest_rate(make_options, simulate):
    text = answer(simulate(make_options(schemes=(1, 3), buffers=(75,), rates=(0.0, 0.25, 0.5), blocks=3), noise=0.001))
    assert "throughput at 50 % overcommitment relative to undercommitted: 1/1/M 40 % (" in text
    assert "M/M/M 80 % (" in text and "25 %" not in text


def test_a_rate_at_which_all_were_killed_is_not_the_reported_one(make_options, simulate):
    options = make_options(schemes=(1,), buffers=(75,), rates=(0.0, 0.25, 0.5))
    text = answer(simulate(options, kill=lambda trial: "all" if trial.point["rate"] == 0.5 else None))
    assert "throughput at 25 % overcommitment relative to undercommitted: 1/1/M 70 %" in text
    assert "; OOM kills: 1/1/M at 50 % (one block" in text


def test_killed_schemes_are_listed_with_the_others(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(75,), rates=(0.0, 0.25, 0.5))
    text = answer(simulate(options, kill=lambda trial: "db1" if trial.point["rate"] and trial.point["scheme"] == 3 else None))
    assert "throughput at 50 % overcommitment relative to undercommitted: 1/1/M 40 %;" in text
    assert "OOM kills: M/M/M at 25 % and at 50 %" in text


def test_a_size_of_buffers_at_which_all_were_killed_is_reported(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25, 75), rates=(0.0, 0.5))
    text = answer(simulate(options, kill=lambda trial: "db1" if trial.point["buffers"] == 75 else None))
    assert text.startswith("With 25 % buffers ")
    killed = "1/1/M undercommitted and at 50 %, M/M/M undercommitted and at 50 %"
    assert f"; with 75 % buffers OOM kills: {killed} (one block" in text


def test_without_a_baseline_and_without_kills_the_answer_reports_that(make_options, simulate):
    trials = simulate(make_options(schemes=(1,), buffers=(75,), rates=(0.0, 0.5)))
    rows = scheme_rows(trials.options, TrialsByPoint(trials.options, trials.all()))
    lost = [{**row, "normalised": None} for row in rows if row["rate"]]
    assert answer_of(trials.options, TrialsByPoint(trials.options, []), lost).startswith("No scheme has an undercommitted baseline")
