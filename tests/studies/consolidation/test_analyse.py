import pytest

from pgherd.model.finding import Finding
from pgherd.studies.consolidation.analyse import analyse, name_of
from pgherd.studies.consolidation.study import STUDY


def analysed(simulator):
    return analyse(simulator.options, simulator.all())


def test_what_the_simulated_host_does_is_found_again(make_options, simulate):
    found = analysed(simulate(make_options(rates=(0.0, 0.25, 0.5), blocks=3), noise=0.001))
    numbers = {name: finding.value for name, finding in found.findings.items()}
    assert numbers[name_of("throughput", scheme=3, buffers=25, rate=0)] == pytest.approx(32 * 120 * 1.1, rel=0.01)
    assert numbers["ratio.scheme3.buffers25"] == pytest.approx(1.2, rel=0.01)
    assert numbers["normalised.scheme1.buffers75.rate0.5"] == pytest.approx(0.4, rel=0.01)
    assert numbers["normalised.scheme3.buffers75.rate0.25"] == pytest.approx(0.9, rel=0.01)
    assert numbers["held_better.scheme3.buffers25.rate0.5"] == pytest.approx(2.0, rel=0.01)
    assert numbers["balloon_ratio.buffers25.rate0.5"] == pytest.approx(0.9 / 0.8, rel=0.01)
    assert numbers["buffers_ratio.scheme1"] == pytest.approx(1.0, rel=0.01)
    assert numbers["corrected_ratio.scheme3.buffers25"] == pytest.approx(3840 / 3400, rel=0.01)
    assert numbers["switch_skew"] == pytest.approx(20)
    assert "all of them lie in ramp-ups" in found.findings["switch_skew"].note
    assert found.grade == "A"
    for finding in found.findings.values():
        assert (finding.low is not None and finding.high is not None) or finding.note, finding


def test_with_three_blocks_a_difference_is_claimed_with_its_interval(make_options, simulate):
    found = analysed(simulate(make_options(blocks=3), noise=0.001))
    assert "M/M/M does 1.20 (" in found.answer and "one block" not in found.answer
    assert "1/M/M does 0.90 (" in found.answer


def test_one_block_has_no_interval_and_claims_nothing(make_options, simulate):
    found = analysed(simulate(make_options(), noise=0.001))
    assert "one block: no interval, so no difference is claimed" in found.answer
    ratio = found.findings["ratio.scheme3.buffers25"]
    assert (ratio.low, ratio.high) == (None, None) and "one block: no interval" in ratio.note
    assert any(said.startswith("One block: no interval") for said in found.warnings)


def test_when_the_interval_holds_one_no_scheme_differs(make_options, simulate):
    found = analysed(simulate(make_options(blocks=3, schemes=(3, 4)), noise=0.05))
    assert "no scheme differs from M/M/M beyond doubt" in found.answer


def test_published_numbers_stand_beside_ours(make_options, simulate):
    found = analysed(simulate(make_options()))
    number = found.findings["throughput.scheme3.buffers75"]
    assert (number.experiment, number.published) == ("E4", "58,993.92 new orders/min")
    assert found.findings["buffers_ratio.scheme3"].published.startswith("1.121 (E4")
    assert found.findings["variation.scheme3.buffers75"].published == "1.1 %"
    assert found.findings["variation.scheme1.buffers75"].published is None
    assert len(found.tables["published_e4"]) == 8


def test_a_switch_that_was_counted_is_said(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,)), skew=1.5)
    note = analyse(simulator.options, simulator.all()).findings["switch_skew"].note
    assert "in 4 of 4 periods a database began only after the ramp-up" in note


def test_e5s_readings_stand_beside_the_same_rate(make_options, simulate):
    found = analysed(simulate(make_options(rates=(0.0, 0.3, 0.55)))).findings
    assert found["held_better.scheme3.buffers25.rate0.55"].published.startswith("about 3 (E5")
    assert found["held_better.scheme4.buffers75.rate0.55"].published.startswith("about 2.4 (E5")
    assert found["balloon_ratio.buffers75.rate0.55"].published.startswith("about 1.5 (E5")
    assert found["balloon_ratio.buffers75.rate0.3"].published is None


def test_other_workloads_and_rates_have_nothing_published(make_options, simulate):
    pgbench = analysed(simulate(make_options(workload="select-only")))
    assert not any(finding.published for finding in pgbench.findings.values())
    assert "published_e4" not in pgbench.tables
    over = analysed(simulate(make_options(rates=(0.0, 0.5))))
    assert [row["buffers"] for row in over.tables["published_e5"]] == [25, 75]
    assert all(row["judged"] == "no: containers share one kernel" for row in over.tables["published_e5"])
    assert not any(finding.published for name, finding in over.findings.items() if "rate0.5" in name)


def test_scripts_of_the_users_own_have_nothing_published(make_options, simulate):
    found = analysed(simulate(make_options(scripts=[{"source": "mine.sql"}], rates=(0.0, 0.3, 0.55))))
    assert not any(finding.published for finding in found.findings.values())
    assert not any(name.startswith("published") for name in found.tables)
    assert found.findings["throughput.scheme1.buffers25"].unit == "tps"


def test_one_kernel_below_all_containers_is_said(make_options, simulate):
    found = analysed(simulate(make_options()))
    assert any("share one kernel" in said and "not judged against E5" in said for said in found.warnings)


def test_what_guests_hypervisors_take_is_said(make_options, simulate):
    simulator = simulate(make_options(runtime="vm", cpu_mode="none"))
    said = analyse(simulator.options, simulator.all()).warnings
    assert any("hypervisor needs for itself" in warning for warning in said)
    assert not any("one kernel" in warning for warning in said)


def test_a_kill_is_a_finding_and_no_failure(make_options, simulate):
    options = make_options(rates=(0.0, 0.5), schemes=(1, 3), buffers=(75,))

    def kill(trial):
        return "db1" if trial.point["rate"] and trial.point["scheme"] == 3 else None

    found = analysed(simulate(options, kill=kill))
    assert found.tables["memory_kills"] == [
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
    killed = next(row for row in found.tables["consolidation"] if row["scheme"] == 3 and row["rate"] == 0.5)
    assert killed["killed"] == 1
    assert isinstance(killed["throughput"], Finding) and "want of memory" in killed["throughput"].note
    assert isinstance(killed["normalised"], Finding) and "want of memory" in killed["normalised"].note
    assert isinstance(killed["cpu_used"], Finding) and "want of memory" in killed["cpu_used"].note
    assert found.grade == "B", "one block has no interval"
    several = make_options(rates=(0.0, 0.5), schemes=(1, 3), buffers=(75,), blocks=3)
    assert analysed(simulate(several, kill=kill)).grade == "A", "what was measured is clean"


def test_when_everything_is_killed_there_is_no_number(make_options, simulate):
    found = analysed(simulate(make_options(schemes=(1,)), kill=lambda trial: "all"))
    assert found.answer == "No scheme has a number: the kernel ended servers for want of memory in every trial."
    assert found.grade == "C"


def test_tainted_trials_lower_the_grade(make_options, simulate):
    some = analysed(simulate(make_options(max_reruns=0), taint=lambda trial: "steal" if trial.point["scheme"] == 2 else None))
    assert some.grade == "B"
    assert any(said.startswith("Only tainted trials for 1/M/M with 25 % buffers, ") for said in some.warnings)
    throughout = analysed(simulate(make_options(max_reruns=0), taint=lambda trial: "steal"))
    assert throughout.grade == "C" and throughout.answer.startswith("Indication only: ")


def test_schemes_that_rest_mostly_on_tainted_trials_are_an_indication(make_options, simulate):
    """A block's tainted trial counts in its block: so what counts of a combination is whether most of its blocks are clean."""
    asked = make_options(schemes=(1, 3), buffers=(25, 75), blocks=3, max_reruns=0)

    def noisy(**where):
        tainted = simulate(asked, taint=lambda trial: "steal" if {**trial.point, "block": trial.repeat}.items() >= where.items() else None)
        return analysed(tainted)

    assert noisy(block=0).grade == "B", "two blocks of three are clean everywhere"
    assert noisy(scheme=3, buffers=25).grade == "B"
    half = noisy(scheme=3)
    assert half.grade == "C" and any("(2 of 4 points, half of them or more): the whole" in said for said in half.warnings)
    most = simulate(asked, taint=lambda trial: "steal" if trial.repeat else None)
    found = analysed(most)
    assert found.grade == "C", "one clean block of three does not bear a combination"
    assert any(said.startswith("Tainted trials in half of the blocks or more for 1/1/M with 25 % buffers, ") for said in found.warnings)
    assert any("they count only where a block has no clean trial" in said for said in found.warnings)


def test_combinations_without_a_number_are_named(make_options, simulate):
    asked = make_options(schemes=(1, 3), buffers=(25,), max_reruns=0)
    results = simulate(asked).all()
    results = [r if r.trial.point["scheme"] == 1 else r.model_copy(update={"error": "it died", "phases": []}) for r in results]
    found = analyse(asked, results)
    assert found.grade == "B", "what has a number is clean"
    assert "No finished trial for M/M/M with 25 % buffers" in found.warnings


def test_what_cannot_be_had_is_shown_with_its_reason(make_options, simulate):
    found = analysed(simulate(make_options(unavailable={4: "make is missing"})))
    row = found.tables["consolidation"][-1]
    assert row["scheme"] == 4 and row["throughput"].note == "not available: make is missing"
    assert any("make is missing" in said for said in found.warnings)


def test_the_honest_rate_is_a_finding(make_options, simulate):
    found = analysed(simulate(make_options(working_sets=(1376 * 2**20, 1152 * 2**20), rates=(0.0, 0.5))))
    assert found.findings["honest_rate"].value == pytest.approx(0.69, abs=0.005)
    without = analysed(simulate(make_options(rates=(0.0, 0.5))))
    assert any("honest is not known" in said for said in without.warnings)


def test_nothing_measured_is_said_and_not_raised(make_options):
    found = STUDY.analyse(make_options(), [])
    assert found.answer == "No scheme has a number: no trial finished."
    assert found.grade == "C"


def test_a_baseline_that_failed_leaves_nothing_to_hold_against(make_options, simulate):
    options = make_options(rates=(0.0, 0.5), schemes=(1,), buffers=(25,))
    found = analysed(simulate(options, kill=lambda trial: None if trial.point["rate"] else "all"))
    assert found.answer.startswith("No scheme has an undercommitted baseline")
