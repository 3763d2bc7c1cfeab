import pytest

from pgherd.model.analysis import Finding
from pgherd.studies.consolidation.analyse import analyse, answer_of, name_of
from pgherd.studies.consolidation.study import STUDY
from pgherd.studies.consolidation.tables import layout_rows
from pgherd.studies.consolidation.trials import TrialsByPoint


def analysed(simulator):
    return analyse(simulator.options, simulator.all())


def test_the_truth_of_the_simulated_host_is_estimated(make_options, simulate):
    analysis = analysed(simulate(make_options(overcommit=(0.0, 0.25, 0.5), repeats=3), noise=0.001))
    numbers = {name: finding.value for name, finding in analysis.findings.items()}
    assert numbers[name_of("throughput", {"layout": "dedicated", "shared_buffers_percent": 25, "overcommit": 0.0})] == pytest.approx(
        32 * 120 * 1.1, rel=0.01
    )
    assert numbers["ratio{layout=dedicated,shared_buffers_percent=25}"] == pytest.approx(1.2, rel=0.01)
    assert numbers["relative_to_undercommitted{layout=shared-server,shared_buffers_percent=75,overcommit=0.5}"] == pytest.approx(
        0.4, rel=0.01
    )
    assert numbers["relative_to_undercommitted{layout=dedicated,shared_buffers_percent=75,overcommit=0.25}"] == pytest.approx(0.9, rel=0.01)
    assert numbers["retention_ratio{layout=dedicated,shared_buffers_percent=25,overcommit=0.5}"] == pytest.approx(2.0, rel=0.01)
    assert numbers["balloon_gain_ratio{shared_buffers_percent=25,overcommit=0.5}"] == pytest.approx(0.9 / 0.8, rel=0.01)
    assert numbers["shared_buffers_ratio{layout=shared-server}"] == pytest.approx(1.0, rel=0.01)
    assert numbers["vcpu_corrected_ratio{layout=dedicated,shared_buffers_percent=25}"] == pytest.approx(3840 / 3400, rel=0.01)
    assert numbers["switch_skew"] == pytest.approx(20)
    assert "all switches are within the warm-up" in analysis.findings["switch_skew"].note
    assert analysis.grade == "A"
    for finding in analysis.findings.values():
        assert (finding.low is not None and finding.high is not None) or finding.note, finding


def test_with_three_blocks_a_difference_is_claimed_with_its_interval(make_options, simulate):
    analysis = analysed(simulate(make_options(repeats=3), noise=0.001))
    assert "dedicated reaches 1.20 (" in analysis.answer and "one block" not in analysis.answer
    assert "shared-container reaches 0.90 (" in analysis.answer


def test_one_block_has_no_interval_and_claims_nothing(make_options, simulate):
    analysis = analysed(simulate(make_options(), noise=0.001))
    assert "one block: no interval, so no difference is claimed" in analysis.answer
    ratio = analysis.findings["ratio{layout=dedicated,shared_buffers_percent=25}"]
    assert (ratio.low, ratio.high) == (None, None) and "one block: no interval" in ratio.note
    assert any(warning.startswith("One block: no interval") for warning in analysis.warnings)


def test_wait_events_are_a_row_for_each_layout(make_options, simulate):
    simulator = simulate(make_options(schemes=("shared-server", "dedicated")))
    none = {f"waits.{name}": 0.0 for name in ("cpu", "lock", "lwlock", "io", "ipc", "client", "other")}
    waits = {"shared-server": none | {"waits.cpu": 1.0, "waits.lock": 3.0}, "dedicated": none | {"waits.cpu": 2.0}}
    results = []
    for result in simulator.all():
        server = {"server:x/pg": waits[str(result.trial.point["layout"])]}
        phases = [phase.model_copy(update={"metrics": phase.metrics | server}) for phase in result.phases]
        results.append(result.model_copy(update={"phases": phases}))
    assert all(result.trial.wait_events for result in results)
    analysis = analyse(simulator.options, results)
    rows = {(row["layout"], row["shared_buffers_percent"]): row for row in analysis.tables["wait_events"]}
    assert rows["shared-server", 25]["waits_lock"].value == 0.75 and rows["dedicated", 75]["on_cpu"].value == 1
    places = [f"{share} % in {name} with 25 % buffers" for share, name in ((75, "shared-server"), (0, "dedicated"))]
    assert analysis.details[0] == f"Active sessions differ most in the share waiting for a lock: {', '.join(places)}."
    assert len(analysis.details) == 2 and "wait_events" not in analysed(simulator).tables


def test_without_a_certain_difference_the_answer_claims_none(make_options, simulate):
    analysis = analysed(simulate(make_options(repeats=3, schemes=("dedicated", "dedicated-balloon")), noise=0.05))
    assert "no layout certainly differs from dedicated" in analysis.answer


def test_the_answer_claims_only_what_is_jointly_certain(make_options, simulate):
    """An interval of the table is that of one ratio, and the answer is about four."""
    options = make_options(repeats=3, schemes=("shared-server", "shared-container", "dedicated"))
    analysis = analysed(simulate(options, noise=0.06))
    assert analysis.findings["ratio{layout=dedicated,shared_buffers_percent=25}"].low > 1
    assert "With 25 % buffers no layout certainly differs from shared-server" in analysis.answer
    assert "with 75 % buffers dedicated reaches 1.17 (1.10 … 1.24) × shared-server" in analysis.answer


def test_findings_have_the_published_values(make_options, simulate):
    analysis = analysed(simulate(make_options()))
    number = analysis.findings["throughput{layout=dedicated,shared_buffers_percent=75}"]
    assert (number.experiment, number.published) == ("E4", "58,993.92 new orders/min")
    assert analysis.findings["shared_buffers_ratio{layout=dedicated}"].published.startswith("1.121 (E4")
    assert analysis.findings["cv{layout=dedicated,shared_buffers_percent=75}"].published == "1.1 %"
    assert analysis.findings["cv{layout=shared-server,shared_buffers_percent=75}"].published is None
    assert [row["experiment"] for row in analysis.tables["published"]] == ["E4"] * 8


def test_a_late_switch_is_reported(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,)), skew=1.5)
    note = analyse(simulator.options, simulator.all()).findings["switch_skew"].note
    assert "in 4 of 4 periods a database switched after the warm-up" in note


def test_e5s_readings_are_references_at_the_same_rate(make_options, simulate):
    analysis = analysed(simulate(make_options(overcommit=(0.0, 0.3, 0.55)))).findings
    assert analysis["retention_ratio{layout=dedicated,shared_buffers_percent=25,overcommit=0.55}"].published.startswith("about 3 (E5")
    assert analysis["retention_ratio{layout=dedicated-balloon,shared_buffers_percent=75,overcommit=0.55}"].published.startswith(
        "about 2.4 (E5"
    )
    assert analysis["balloon_gain_ratio{shared_buffers_percent=75,overcommit=0.55}"].published.startswith("about 1.5 (E5")
    assert analysis["balloon_gain_ratio{shared_buffers_percent=75,overcommit=0.3}"].published is None


def test_other_workloads_and_rates_have_nothing_published(make_options, simulate):
    pgbench = analysed(simulate(make_options(workload="select-only")))
    assert not any(finding.published for finding in pgbench.findings.values())
    assert "published" not in pgbench.tables
    over = analysed(simulate(make_options(overcommit=(0.0, 0.5))))
    readings = [row for row in over.tables["published"] if row["experiment"] != "E4"]
    assert [(row["experiment"], row["shared_buffers_percent"]) for row in readings] == [("E5", 25), ("E5", 75), ("E6", 25), ("E6", 75)]
    assert all(row["judged"] == "no: containers share one kernel" for row in readings)
    assert not any(finding.published for name, finding in over.findings.items() if "overcommit=0.5" in name)


def test_user_scripts_have_nothing_published(make_options, simulate):
    analysis = analysed(simulate(make_options(scripts=[{"source": "mine.sql"}], overcommit=(0.0, 0.3, 0.55))))
    assert not any(finding.published for finding in analysis.findings.values())
    assert not any(name.startswith("published") for name in analysis.tables)
    assert analysis.findings["throughput{layout=shared-server,shared_buffers_percent=25}"].unit == "tps"


def test_one_kernel_for_all_containers_is_a_warning(make_options, simulate):
    analysis = analysed(simulate(make_options()))
    assert any("share one kernel" in warning and "not judged against E5" in warning for warning in analysis.warnings)


def test_memory_of_hypervisors_is_a_warning(make_options, simulate):
    simulator = simulate(make_options(runtime="vm", cpu_mode="none"))
    warnings = analyse(simulator.options, simulator.all()).warnings
    assert any("hypervisors' memory is taken" in warning for warning in warnings)
    assert not any("one kernel" in warning for warning in warnings)


def test_an_oom_kill_is_a_result_and_no_failure(make_options, simulate):
    options = make_options(overcommit=(0.0, 0.5), schemes=("shared-server", "dedicated"), shared_buffers_percent=(75,))

    def kill(trial):
        return "db1" if trial.point["overcommit"] and trial.point["layout"] == "dedicated" else None

    analysis = analysed(simulate(options, kill=kill))
    assert analysis.tables["oom_kills"] == [
        {
            "trial": "layout=dedicated,overcommit=0.5,shared_buffers_percent=75#0",
            "container": "db1",
            "processes": 2,
            "process_names": "postgres",
            "limit": "run",
            "time": 7.2,
            "message": "a server died",
        }
    ]
    killed = next(row for row in analysis.tables["consolidation"] if row["layout"] == "dedicated" and row["overcommit"] == 0.5)
    assert killed["trials_with_oom_kill"] == 1
    assert isinstance(killed["throughput"], Finding) and "OOM kill" in killed["throughput"].note
    assert isinstance(killed["relative_to_undercommitted"], Finding) and "OOM kill" in killed["relative_to_undercommitted"].note
    assert isinstance(killed["cpu_percent"], Finding) and "OOM kill" in killed["cpu_percent"].note
    assert analysis.grade == "B", "one block has no interval"
    several = make_options(overcommit=(0.0, 0.5), schemes=("shared-server", "dedicated"), shared_buffers_percent=(75,), repeats=3)
    assert analysed(simulate(several, kill=kill)).grade == "A", "finished trials are clean"


def test_blocks_that_died_are_counted_in_row_and_answer(make_options, simulate):
    options = make_options(overcommit=(0.0, 0.5), schemes=("shared-server", "dedicated"), shared_buffers_percent=(75,), repeats=3)

    def kill(trial):
        return "db1" if trial.point["overcommit"] and trial.point["layout"] == "dedicated" and trial.repeat == 1 else None

    analysis = analysed(simulate(options, kill=kill))
    row = next(row for row in analysis.tables["consolidation"] if row["layout"] == "dedicated" and row["overcommit"] == 0.5)
    assert row["blocks_died"] == "1 of 3" and "1 of 3 blocks died" in row["throughput"].note
    assert "OOM kills: dedicated at 50 % (1 of 3 blocks died)" in analysis.answer


def test_when_every_trial_is_killed_there_is_no_result(make_options, simulate):
    analysis = analysed(simulate(make_options(schemes=("shared-server",)), kill=lambda trial: "all"))
    assert analysis.answer == "No result: every trial had OOM kills."
    assert analysis.grade == "C"


def test_tainted_trials_lower_the_grade(make_options, simulate):
    some = analysed(
        simulate(make_options(max_reruns=0), taint=lambda trial: "steal" if trial.point["layout"] == "shared-container" else None)
    )
    assert some.grade == "B"
    assert any(warning.startswith("Only tainted trials for shared-container with 25 % buffers, ") for warning in some.warnings)
    throughout = analysed(simulate(make_options(max_reruns=0), taint=lambda trial: "steal"))
    assert throughout.grade == "C" and throughout.answer.startswith("Indication only: ")


def test_layouts_with_mostly_tainted_trials_are_an_indication(make_options, simulate):
    """A tainted trial counts in its block. A combination is clean if most of its blocks are clean."""
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25, 75), repeats=3, max_reruns=0)

    def noisy(**where):
        tainted = simulate(
            options, taint=lambda trial: "steal" if {**trial.point, "block": trial.repeat}.items() >= where.items() else None
        )
        return analysed(tainted)

    assert noisy(block=0).grade == "B", "two blocks of three are clean everywhere"
    assert noisy(layout="dedicated", shared_buffers_percent=25).grade == "B"
    half = noisy(layout="dedicated")
    assert half.grade == "C" and any("(2 of 4 points, half of them or more): the whole" in warning for warning in half.warnings)
    most = simulate(options, taint=lambda trial: "steal" if trial.repeat else None)
    analysis = analysed(most)
    assert analysis.grade == "C", "one clean block of three is not enough"
    assert any(
        warning.startswith("Tainted trials in half of the blocks or more for shared-server with 25 % buffers, ")
        for warning in analysis.warnings
    )
    assert any("they count only where a block has no clean trial" in warning for warning in analysis.warnings)


def test_combinations_without_a_value_are_named(make_options, simulate):
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25,), max_reruns=0)
    results = simulate(options).all()
    results = [
        r if r.trial.point["layout"] == "shared-server" else r.model_copy(update={"error": "it died", "phases": []}) for r in results
    ]
    analysis = analyse(options, results)
    assert analysis.grade == "B", "combinations with a value are clean"
    assert "No finished trial for dedicated with 25 % buffers" in analysis.warnings


def test_unavailable_layouts_are_listed_with_the_reason(make_options, simulate):
    analysis = analysed(simulate(make_options(unavailable={"dedicated-balloon": "make is missing"})))
    row = analysis.tables["consolidation"][-1]
    assert row["layout"] == "dedicated-balloon" and row["throughput"].note == "not available: make is missing"
    assert any("make is missing" in warning for warning in analysis.warnings)


def test_the_safe_rate_is_a_finding(make_options, simulate):
    analysis = analysed(simulate(make_options(working_set_size=(1376 * 2**20, 1152 * 2**20), overcommit=(0.0, 0.5))))
    assert analysis.findings["max_safe_overcommit"].value == pytest.approx(0.69, abs=0.005)
    without = analysed(simulate(make_options(overcommit=(0.0, 0.5))))
    assert any("maximum safe overcommitment is unknown" in warning for warning in without.warnings)


def test_without_trials_there_is_no_result(make_options):
    analysis = STUDY.analyse(make_options(), [])
    assert analysis.answer == "No result: no trial finished."
    assert analysis.grade == "C"


def test_a_failed_baseline_leaves_nothing_to_compare_with(make_options, simulate):
    options = make_options(overcommit=(0.0, 0.5), schemes=("shared-server",), shared_buffers_percent=(25,))
    analysis = analysed(simulate(options, kill=lambda trial: None if trial.point["overcommit"] else "all"))
    assert analysis.answer.startswith("No layout has an undercommitted baseline")


# ---- answer


def answer(simulator):
    trials = TrialsByPoint(simulator.options, simulator.all())
    return answer_of(simulator.options, trials, layout_rows(simulator.options, trials))


def test_one_layout_has_only_its_throughput(make_options, simulate):
    assert (
        answer(simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,))))
        == "With 25 % buffers dedicated reaches 3,840 new orders/min."
    )


def test_a_ratio_of_layouts_with_different_vcpus_is_followed_by_the_corrected_one(make_options, simulate):
    one_block = answer(simulate(make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25,))))
    assert (
        "dedicated has the highest throughput, 3,840 new orders/min, 1.20 × shared-server, 1.13 × with E4's correction for vCPUs (one block"
        in one_block
    )
    three = answer(
        simulate(
            make_options(schemes=("shared-server", "shared-container", "dedicated"), shared_buffers_percent=(25,), repeats=3), noise=0.001
        )
    )
    assert "× shared-server, 1.13 (1.1" in three
    assert "shared-container reaches 0.90 (0.90 … 0.90) × shared-server;" in three, "both share their vCPUs"


def test_two_blocks_claim_nothing_either(make_options, simulate):
    assert answer(simulate(make_options(shared_buffers_percent=(25,), repeats=2))).endswith(
        "(two blocks: no interval, so no difference is claimed)."
    )


def test_where_too_few_of_many_blocks_have_both_there_is_no_interval(make_options, simulate):
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25,), repeats=3)
    text = answer(simulate(options, kill=lambda trial: "db1" if trial.point["layout"] == "dedicated" and trial.repeat else None))
    assert "dedicated has the highest throughput, 3,840 new orders/min, 1.20 × shared-server, 1.13 × with E4's correction" in text
    assert "correction for vCPUs (no interval)" in text


def test_retained_throughput_at_the_highest_rate(make_options, simulate):
    text = answer(
        simulate(
            make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(75,), overcommit=(0.0, 0.25, 0.5), repeats=3),
            noise=0.001,
        )
    )
    assert "throughput at 50 % overcommitment relative to undercommitted: shared-server 40 % (" in text
    assert "dedicated 80 % (" in text and "25 %" not in text


def test_a_rate_at_which_all_were_killed_is_not_the_reported_one(make_options, simulate):
    options = make_options(schemes=("shared-server",), shared_buffers_percent=(75,), overcommit=(0.0, 0.25, 0.5))
    text = answer(simulate(options, kill=lambda trial: "all" if trial.point["overcommit"] == 0.5 else None))
    assert "throughput at 25 % overcommitment relative to undercommitted: shared-server 70 %" in text
    assert "; OOM kills: shared-server at 50 % (one block" in text


def test_killed_layouts_are_listed_with_the_others(make_options, simulate):
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(75,), overcommit=(0.0, 0.25, 0.5))
    text = answer(
        simulate(options, kill=lambda trial: "db1" if trial.point["overcommit"] and trial.point["layout"] == "dedicated" else None)
    )
    assert "throughput at 50 % overcommitment relative to undercommitted: shared-server 40 %;" in text
    assert "OOM kills: dedicated at 25 % and at 50 %" in text


def test_a_size_of_buffers_at_which_all_were_killed_is_reported(make_options, simulate):
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25, 75), overcommit=(0.0, 0.5))
    text = answer(simulate(options, kill=lambda trial: "db1" if trial.point["shared_buffers_percent"] == 75 else None))
    assert text.startswith("With 25 % buffers ")
    killed = "shared-server undercommitted and at 50 %, dedicated undercommitted and at 50 %"
    assert f"; with 75 % buffers OOM kills: {killed} (one block" in text


def test_without_a_baseline_and_without_kills_the_answer_reports_that(make_options, simulate):
    trials = simulate(make_options(schemes=("shared-server",), shared_buffers_percent=(75,), overcommit=(0.0, 0.5)))
    rows = layout_rows(trials.options, TrialsByPoint(trials.options, trials.all()))
    lost = [{**row, "relative_to_undercommitted": None} for row in rows if row["overcommit"]]
    assert answer_of(trials.options, TrialsByPoint(trials.options, []), lost).startswith("No layout has an undercommitted baseline")
