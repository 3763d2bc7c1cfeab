import pytest

from pgherd.studies.consolidation.propose import trial
from pgherd.studies.consolidation.trials import TrialsByPoint, finished_trial, shares_cpu


def point(layout="shared-server", buffers=25, rate=0.0):
    return {"layout": layout, "shared_buffers_percent": buffers, "overcommit": rate}


RERUN_OF_0 = "rerun of tainted layout=shared-server,overcommit=0.0,shared_buffers_percent=25#0: failed steal"


def run_all(simulator, *trials):
    """Run trials of the shared server, given by block and reason."""
    return [simulator.run(trial(simulator.options, point("shared-server"), repeat, reason)) for repeat, reason in trials]


def test_values_of_a_trial(make_options, simulate):
    simulator = simulate(make_options())
    finished = finished_trial(simulator.options, simulator.run(trial(simulator.options, point("shared-server"), 0, "planned")))
    assert finished is not None
    assert finished.totals == pytest.approx([3200] * 4)
    assert finished.throughput == pytest.approx(3200)
    assert finished.vcpu_corrected == pytest.approx(3400), "the quiet database's 2 × 100 counts twice"
    assert finished.cv == pytest.approx(0, abs=1e-9)
    assert (finished.cores_used, finished.throughput_per_core) == (pytest.approx(3.0), pytest.approx(3200 / 3))
    assert finished.skews == (0.02,) * 4


def test_pgbenchs_workloads_count_transactions(make_options, simulate):
    simulator = simulate(make_options(workload="select-only"))
    finished = finished_trial(simulator.options, simulator.run(trial(simulator.options, point("shared-server"), 0, "planned")))
    assert finished is not None and finished.throughput == pytest.approx(3200 / 27)


def test_user_scripts_count_transactions_on_the_tables_of_orders_too(make_options, simulate):
    options = make_options(scripts=[{"source": "mine.sql"}])
    assert options.unit == "tps"
    finished = finished_trial(options, simulate(options).run(trial(options, point("shared-server"), 0, "planned")))
    assert finished is not None and finished.throughput == pytest.approx(3200 / 27)


def test_switches_after_the_warmup_are_late(make_options, simulate):
    options = make_options()
    planned = trial(options, point("shared-server"), 0, "planned")
    late = [finished_trial(options, simulate(options, skew=skew).run(planned)).late for skew in (0.02, 1.5)]
    assert late == [0, 4], "the warm-up ends a second after the first database's start"


def test_an_idle_database_has_no_throughput(make_options, simulate):
    simulator = simulate(make_options(plan=((5, 0), (0, 5))))
    finished = finished_trial(simulator.options, simulator.run(trial(simulator.options, point("dedicated"), 0, "planned")))
    assert finished is not None
    assert [[one.throughput for one in period] for period in finished.periods] == [[600, 0], [0, 600]]


def test_unmeasured_cpu_is_unknown(make_options, simulate):
    simulator = simulate(make_options())
    result = simulator.run(trial(simulator.options, point("shared-server"), 0, "planned"))
    blind = result.model_copy(update={"phases": [phase.model_copy(update={"metrics": {}}) for phase in result.phases]})
    finished = finished_trial(simulator.options, blind)
    assert finished is not None and finished.cores_used is None and finished.throughput_per_core is None


def test_guests_share_cpu_without_a_limit(make_options):
    assert [shares_cpu(make_options(cpu_mode="none", runtime=runtime), 1) for runtime in ("cgroup", "vm")] == [False, True]
    assert not shares_cpu(make_options(cpu_mode="none", runtime="vm"), "dedicated")


def test_a_clean_rerun_replaces_a_tainted_trial(make_options, simulate):
    options = make_options(repeats=2)
    simulator = simulate(options, taint=lambda planned: "steal" if planned.repeat == 0 else None)
    runs = run_all(simulator, (0, "planned"), (1, "planned"), (2, RERUN_OF_0))
    with_rerun = TrialsByPoint(options, runs).by_block(point("shared-server"))
    assert [one.key for one in with_rerun] == [
        f"layout=shared-server,overcommit=0.0,shared_buffers_percent=25#{repeat}" for repeat in (2, 1)
    ]
    without = TrialsByPoint(options, runs[:2]).by_block(point("shared-server"))
    assert [one.clean for one in without] == [False, True], "a tainted trial counts if there is no clean one"


def test_a_rerun_replaces_the_trial_that_it_repeats_and_never_a_kill(make_options, simulate):
    """Block 0 is killed and block 1 tainted: the rerun of block 1 takes its place, and the kill stays."""
    options = make_options(repeats=3)
    simulator = simulate(
        options,
        taint=lambda planned: "steal" if planned.repeat == 1 else None,
        kill=lambda planned: "all" if planned.repeat == 0 else None,
    )
    runs = run_all(simulator, (0, "planned"), (1, "planned"), (2, "planned"), (3, RERUN_OF_0.replace("#0", "#1")))
    chosen = TrialsByPoint(options, runs).chosen(point("shared-server"))
    assert [result.trial.repeat for result in chosen] == [0, 3, 2]
    assert TrialsByPoint(options, runs).blocks_died(point("shared-server")) == 1
    even_a_rerun_of_the_kill = run_all(simulator, (0, "planned"), (3, RERUN_OF_0))
    assert TrialsByPoint(options, even_a_rerun_of_the_kill).chosen(point("shared-server"))[0].oom_kills


def test_blocks_without_a_trial_are_empty(make_options, simulate):
    options = make_options(repeats=2)
    simulator = simulate(options, kill=lambda planned: "all" if planned.repeat else None)
    runs = [simulator.run(trial(options, point("shared-server"), repeat, "planned")) for repeat in (0, 1)]
    by_point = TrialsByPoint(options, runs)
    assert by_point.values(point("shared-server"), lambda one: one.throughput) == [pytest.approx(3200), None]
    assert by_point.by_block(point("dedicated")) == [None, None]


@pytest.mark.parametrize(
    ("layout", "mode", "expected"),
    [
        ("shared-server", "quota", True),
        ("shared-container", "quota", True),
        ("dedicated", "quota", False),
        ("shared-server", "none", False),
    ],
)
def test_only_databases_that_share_vcpus_are_corrected(make_options, layout, mode, expected):
    assert shares_cpu(make_options(cpu_mode=mode), layout) is expected
