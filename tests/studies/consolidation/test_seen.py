import pytest

from pgherd.studies.consolidation.schemes import trial
from pgherd.studies.consolidation.seen import Trials, see, shares_cpu


def point(scheme=1, buffers=25, rate=0.0):
    return {"scheme": scheme, "buffers": buffers, "rate": rate}


def test_one_trials_numbers(make_options, simulate):
    simulator = simulate(make_options())
    seen = see(simulator.options, simulator.run(trial(simulator.options, point(1), 0, "planned")))
    assert seen is not None
    assert seen.totals == pytest.approx([3200] * 4)
    assert seen.throughput == pytest.approx(3200)
    assert seen.corrected == pytest.approx(3400), "the quiet database's 2 × 100 once more"
    assert seen.variation == pytest.approx(0, abs=1e-9)
    assert (seen.used, seen.per_core) == (pytest.approx(3.0), pytest.approx(3200 / 3))
    assert seen.skews == (0.02,) * 4


def test_pgbenchs_workloads_count_transactions(make_options, simulate):
    simulator = simulate(make_options(workload="select-only"))
    seen = see(simulator.options, simulator.run(trial(simulator.options, point(1), 0, "planned")))
    assert seen is not None and seen.throughput == pytest.approx(3200 / 27)


def test_scripts_of_the_users_own_count_transactions_on_the_tables_of_orders_too(make_options, simulate):
    own = make_options(scripts=[{"source": "mine.sql"}])
    assert own.unit == "tps"
    seen = see(own, simulate(own).run(trial(own, point(1), 0, "planned")))
    assert seen is not None and seen.throughput == pytest.approx(3200 / 27)


def test_a_switch_that_reaches_into_what_is_counted_is_told_from_one_that_does_not(make_options, simulate):
    options = make_options()
    one = trial(options, point(1), 0, "planned")
    late = [see(options, simulate(options, skew=skew).run(one)).late for skew in (0.02, 1.5)]
    assert late == [0, 4], "ramps end a second after the first database's beginning"


def test_an_idle_database_has_nothing(make_options, simulate):
    simulator = simulate(make_options(plan=((5, 0), (0, 5))))
    seen = see(simulator.options, simulator.run(trial(simulator.options, point(3), 0, "planned")))
    assert seen is not None
    assert [[one.throughput for one in period] for period in seen.periods] == [[600, 0], [0, 600]]


def test_unseen_cpu_stays_unseen(make_options, simulate):
    simulator = simulate(make_options())
    result = simulator.run(trial(simulator.options, point(1), 0, "planned"))
    blind = result.model_copy(update={"phases": [phase.model_copy(update={"metrics": {}}) for phase in result.phases]})
    seen = see(simulator.options, blind)
    assert seen is not None and seen.used is None and seen.per_core is None


def test_guests_have_no_more_than_their_vcpus_without_any_limit(make_options):
    assert [shares_cpu(make_options(cpu_mode="none", runtime=runtime), 1) for runtime in ("cgroup", "vm")] == [False, True]
    assert not shares_cpu(make_options(cpu_mode="none", runtime="vm"), 3)


def test_a_clean_rerun_stands_for_a_tainted_trial(make_options, simulate):
    options = make_options(blocks=2)
    simulator = simulate(options, taint=lambda one: "steal" if one.repeat == 0 else None)
    runs = [simulator.run(trial(options, point(1), repeat, "planned")) for repeat in (0, 1, 2)]
    with_rerun = Trials(options, runs).blocks(point(1))
    assert [one.key for one in with_rerun] == [f"buffers=25,rate=0.0,scheme=1#{repeat}" for repeat in (2, 1)]
    without = Trials(options, runs[:2]).blocks(point(1))
    assert [one.clean for one in without] == [False, True], "a tainted trial is better than none, and says so"


def test_blocks_without_a_trial_are_empty(make_options, simulate):
    options = make_options(blocks=2)
    simulator = simulate(options, kill=lambda one: "all" if one.repeat else None)
    runs = [simulator.run(trial(options, point(1), repeat, "planned")) for repeat in (0, 1)]
    found = Trials(options, runs)
    assert found.values(point(1), lambda one: one.throughput) == [pytest.approx(3200), None]
    assert found.blocks(point(3)) == [None, None]


@pytest.mark.parametrize(("scheme", "mode", "expected"), [(1, "quota", True), (2, "quota", True), (3, "quota", False), (1, "none", False)])
def test_only_databases_that_share_vcpus_are_corrected(make_options, scheme, mode, expected):
    assert shares_cpu(make_options(cpu_mode=mode), scheme) is expected
