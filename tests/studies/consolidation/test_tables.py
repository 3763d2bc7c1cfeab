import pytest

from pgherd.model.analysis import Finding
from pgherd.studies.consolidation import tables
from pgherd.studies.consolidation.analyse import analyse
from pgherd.studies.consolidation.tables import memory_rows, memory_use, swap_findings
from pgherd.studies.consolidation.trials import TrialsByPoint


def trials_of(simulator):
    return TrialsByPoint(simulator.options, simulator.all())


def test_a_row_for_each_combination_even_if_nothing_ran(make_options):
    options = make_options(overcommit=(0.0, 0.5))
    rows = tables.layout_rows(options, TrialsByPoint(options, []))
    assert len(rows) == 16
    assert all(row["throughput"].note == tables.NOT_RUN for row in rows)


def test_only_shared_layouts_have_the_correction(make_options, simulate):
    simulator = simulate(make_options(shared_buffers_percent=(25,)))
    rows = {row["layout"]: row for row in tables.layout_rows(simulator.options, trials_of(simulator))}
    assert rows["shared-server"]["vcpu_corrected"].value == pytest.approx(3400)
    assert rows["shared-server"]["throughput"].value == pytest.approx(3200)
    assert rows["dedicated"]["vcpu_corrected"].value is None and "dedicated vCPUs" in rows["dedicated"]["vcpu_corrected"].note
    assert rows["shared-server"]["cpu_percent"].value == pytest.approx(300)
    assert rows["shared-server"]["ratio"].note == "the first layout"


def test_layouts_of_different_vcpus_are_compared_with_the_correction_too(make_options, simulate):
    simulator = simulate(make_options(shared_buffers_percent=(25,)))
    rows = {row["layout"]: row for row in tables.layout_rows(simulator.options, trials_of(simulator))}
    assert rows["dedicated"]["ratio"].value == pytest.approx(3840 / 3200)
    assert rows["dedicated"]["vcpu_corrected_ratio"].value == pytest.approx(3840 / 3400), (
        "the quiet database's 200 counts twice in shared-server only"
    )
    assert rows["shared-container"]["vcpu_corrected_ratio"].value == pytest.approx((2880 + 180) / 3400), "both are corrected"
    assert rows["shared-server"]["vcpu_corrected_ratio"].note == "the first layout"
    assert rows["dedicated"]["vcpu_corrected_ratio"].published.startswith("about 1 (E4")


def test_layouts_of_equal_vcpus_need_none(make_options, simulate):
    for changes in (
        {"schemes": ("dedicated", "dedicated-balloon")},
        {"schemes": ("shared-server", "shared-container")},
        {"cpu_mode": "none"},
    ):
        simulator = simulate(make_options(shared_buffers_percent=(25,), **changes))
        rows = {row["layout"]: row for row in tables.layout_rows(simulator.options, trials_of(simulator))}
        assert all("vcpu_corrected_ratio" not in row for row in rows.values())
    assert rows["shared-server"]["vcpu_corrected"].note == "no correction: the vCPUs of a container are not limited"


def test_periods_name_every_database_with_its_clients(make_options, simulate):
    simulator = simulate(make_options(shared_buffers_percent=(25,), schemes=("dedicated",)))
    rows = tables.period_rows(simulator.options, trials_of(simulator))
    assert [(row["period"], row["database"], row["clients"]) for row in rows[:4]] == [
        (1, "DB_1", 30),
        (1, "DB_2", 2),
        (2, "DB_1", 2),
        (2, "DB_2", 30),
    ]
    assert [isinstance(row["cpu_percent"], Finding) for row in rows[:2]] == [True, False]


def test_available_memory_is_that_of_the_rate(make_options):
    options = make_options(overcommit=(0.0, 0.5), schemes=("dedicated",), shared_buffers_percent=(25,))
    rows = tables.layout_rows(options, TrialsByPoint(options, []))
    assert [row["memory_available"] for row in rows] == [None, 4096]


# ---- efficiency


def test_efficiency_has_an_interval_over_blocks(make_options, simulate):
    """Blocks are at 1, 1.1 and 1.2 times the speed: Student's half width is 4.303 × 0.1 ÷ √3 of the first."""
    simulator = simulate(make_options(schemes=("shared-server", "dedicated", "shared-database"), shared_buffers_percent=(25,), repeats=3))
    rows = {row["layout"]: row for row in tables.layout_rows(simulator.options, trials_of(simulator))}
    charged = 900e6 / 2**30
    for layout, first, memory in (("shared-server", 3200, charged), ("dedicated", 3840, 2 * charged), ("shared-database", 2560, charged)):
        row = rows[layout]
        assert row["memory_charged"].value == pytest.approx(1024 * memory) and row["memory_charged"].unit == "MB"
        for column, per in (("throughput_per_core", 3.0), ("throughput_per_gb", memory)):
            assert row[column].value == pytest.approx(1.1 * first / per) and row[column].n == 3
            assert row[column].high - row[column].low == pytest.approx(2 * 4.3027 * 0.1 / 3**0.5 * first / per, rel=1e-4)
    assert rows["shared-database"]["throughput_per_gb"].unit == "new orders/min/GB"
    assert rows["shared-database"]["ratio"].value == pytest.approx(0.8), "over the server with a database each"


def test_locked_memory_is_no_containers(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,), overcommit=(0.0, 0.5)))
    results = simulator.all()
    before = [memory_use(result) for result in results]
    for phase in (phase for result in results for phase in result.phases):
        phase.metrics["container:locked-memory"] = {"memory.usage": 4e9, "memory.anon": 4e9, "cpu.usage": 1.0, "psi.memory.some": 1.0}
    assert [memory_use(result) for result in results] == before
    row = tables.layout_rows(simulator.options, TrialsByPoint(simulator.options, results))[0]
    assert (row["memory_charged"].value, row["cpu_percent"].value) == (pytest.approx(2 * 900e6 / 2**20), pytest.approx(300))


def test_memory_that_was_not_measured_is_missing_with_the_reason(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,)), memory=False)
    (row,) = tables.layout_rows(simulator.options, trials_of(simulator))
    assert row["throughput_per_gb"].value is None and "runtime cgroup measures it" in row["throughput_per_gb"].note
    assert row["throughput_per_core"].value == pytest.approx(3840 / 3)


# ---- memory


def test_containers_are_added_up_and_the_highest_pressure_counts(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,), overcommit=(0.0, 0.5)))
    over = next(result for result in simulator.all() if result.trial.point["overcommit"])
    outcome = memory_use(over)
    assert outcome["charged"] == pytest.approx(2 * 900e6 / tables.MB)
    assert outcome["shared"] == 512 and outcome["page_cache"] == 512 and outcome["private"] == 128
    assert outcome["swapped"] == pytest.approx(160)
    assert outcome["refaults"] == pytest.approx(84)
    assert (outcome["swapped_in"], outcome["swapped_out"]) == (5, 7)
    assert outcome["memory_pressure"] == pytest.approx(4), "of the container with the most pressure"
    assert outcome["compressed"] == pytest.approx(160) and outcome["compression_ratio"] == pytest.approx(4)
    assert "ballooned" not in outcome


def test_a_quantity_missing_in_one_period_is_absent(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,)))
    (result,) = simulator.all()
    del result.phases[1].metrics["host"]
    assert "swapped_in" not in memory_use(result) and "charged" in memory_use(result)


def test_compression_by_zswap_is_read_from_the_containers(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,), overcommit=(0.0, 0.5)))
    over = next(result for result in simulator.all() if result.trial.point["overcommit"])
    for phase in over.phases:
        del phase.metrics["zram:zram3"]
        for name in ("container:db1", "container:db2"):
            phase.metrics[name] |= {"memory.zswapped": 60.0 * tables.MB, "memory.zswap": 20.0 * tables.MB}
    assert memory_use(over)["compressed"] == 120 and memory_use(over)["compression_ratio"] == pytest.approx(3)


def test_the_balloon_is_not_part_of_other_quantities(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated-balloon",), shared_buffers_percent=(25,)))
    (result,) = simulator.all()
    before = memory_use(result)
    for phase in result.phases:
        phase.metrics.update({f"server:{name}/pg": {"balloon.bytes": 100.0 * tables.MB} for name in ("db1", "db2")})
    after = memory_use(result)
    assert after.pop("ballooned") == 200
    assert after == before


def test_a_row_for_each_combination_with_an_interval_from_three_blocks_on(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.5), repeats=3))
    rows = memory_rows(simulator.options, trials_of(simulator))
    assert len(rows) == 16
    over = next(row for row in rows if (row["layout"], row["shared_buffers_percent"], row["overcommit"]) == ("shared-server", 75, 0.5))
    assert over["swapped"].value == pytest.approx(440) and over["swapped"].low is not None
    assert all(row[name].unit == unit for row in rows for name, unit in tables.UNITS.items() if name in row)


def test_unmeasured_memory_makes_no_row_and_no_finding(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.5)), memory=False)
    trials = trials_of(simulator)
    assert memory_rows(simulator.options, trials) == []
    assert swap_findings(simulator.options, trials) == {}


def test_separate_containers_are_compared_with_the_shared_one_at_each_rate(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.3), repeats=3))
    result = swap_findings(simulator.options, trials_of(simulator))
    apart = result["swapped_ratio{layout=dedicated,shared_buffers_percent=25,overcommit=0.3}"]
    assert apart.value == pytest.approx(0.4) and apart.low is not None
    assert (apart.experiment, apart.published) == ("E6", f"below 0.5 ({tables.SOURCE_E6})")
    balloon = result["swapped_balloon_ratio{shared_buffers_percent=75,overcommit=0.3}"]
    assert balloon.value == pytest.approx(0.75) and balloon.published.startswith("about 0.8")
    assert result["swapped_ratio{layout=dedicated,shared_buffers_percent=75,overcommit=0.3}"].published is None, (
        "E6 published it for 25 % buffers"
    )
    assert not any("overcommit=0." not in name for name in result)


def test_nothing_is_published_at_other_rates_or_of_other_workloads(make_options, simulate):
    for changes in ({"overcommit": (0.0, 0.5)}, {"overcommit": (0.0, 0.3), "workload": "select-only"}):
        simulator = simulate(make_options(**changes))
        result = swap_findings(simulator.options, trials_of(simulator))
        assert result and not any(finding.published for finding in result.values())


def test_a_few_pages_have_no_ratio(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.001)))
    assert all("compression_ratio" not in memory_use(result) for result in simulator.all())
    assert swap_findings(simulator.options, trials_of(simulator)) == {}


def test_a_block_without_swapping_counts_as_the_minimum(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.3), repeats=3))
    results = simulator.all()
    point = {"layout": "dedicated", "shared_buffers_percent": 25, "overcommit": 0.3}
    best = next(item for item in results if item.trial.repeat == 1 and point.items() <= item.trial.point.items())
    for phase in best.phases:
        for entity in ("container:db1", "container:db2"):
            phase.metrics[entity]["memory.swap"] = 0.0
    result = swap_findings(simulator.options, TrialsByPoint(simulator.options, results))
    ratio = result["swapped_ratio{layout=dedicated,shared_buffers_percent=25,overcommit=0.3}"]
    assert ratio.n == 3 and ratio.value == pytest.approx((0.4 * 0.4 / (240 * 1.1)) ** (1 / 3)), "one MB over what the shared one swapped"
    assert "at most: in 1 of 3 blocks it was below 1 MB" in ratio.note
    assert "at most" not in result["swapped_ratio{layout=dedicated,shared_buffers_percent=75,overcommit=0.3}"].note
    balloon = result["swapped_balloon_ratio{shared_buffers_percent=25,overcommit=0.3}"]
    assert balloon.n == 2 and balloon.value == pytest.approx(0.75), "a base of zero has no ratio"


def test_guests_have_balloons_and_no_shared_memory(make_options, simulate):
    simulator = simulate(make_options(schemes=("dedicated",), shared_buffers_percent=(25,), overcommit=(0.0, 0.3), runtime="vm"))
    results = simulator.all()
    for phase in (phase for result in results for phase in result.phases):
        for name in ("db1", "db2"):
            phase.metrics[f"guest:{name}"] = {
                "guest.memory_configured": 512.0 * tables.MB,
                "guest.memory_balloon_actual": 412.0 * tables.MB,
                "qemu.anon": 300.0 * tables.MB,
            }
    row = memory_rows(simulator.options, TrialsByPoint(simulator.options, results))[-1]
    assert "shared" not in row and row["guest_balloons"].value == pytest.approx(200) and row["guest_balloons"].unit == "MB"
    assert "guest_memory" in row["guest_balloons"].note and "hypervisors'" in row["private"].note
    for phase in results[-1].phases:
        del phase.metrics["guest:db1"]["guest.memory_balloon_actual"]
    assert "guest_balloons" not in memory_use(results[-1]), "the sum needs every guest"


def test_one_block_has_no_interval(make_options, simulate):
    simulator = simulate(make_options(overcommit=(0.0, 0.5)))
    result = swap_findings(simulator.options, trials_of(simulator))
    assert all(finding.low is None and "one block: no interval" in finding.note for finding in result.values())


def test_overcommitted_runs_have_the_memory_tables(make_options, simulate):
    over, under = (simulate(make_options(overcommit=rates)) for rates in ((0.0, 0.3), (0.0,)))
    over_tables = analyse(over.options, over.all()).tables
    assert len(over_tables["memory"]) == 16
    assert [row["shared_buffers_percent"] for row in over_tables["published"] if row["experiment"] == "E6"] == [25, 75]
    under_tables = analyse(under.options, under.all()).tables
    assert "memory" not in under_tables and {row["experiment"] for row in under_tables["published"]} == {"E4"}


# ---- published references


@pytest.mark.parametrize("key", tables.BASELINES)
def test_productivity_is_throughput_over_cores_as_published(key):
    """E4's third line follows from its first two, to the rounding of the CPU column."""
    baseline = tables.BASELINES[key]
    assert 100 * baseline.nopm / baseline.cpu == pytest.approx(baseline.per_core, rel=2e-4)


def test_buffers_gain_as_published():
    """E4 published +12.1 % for dedicated and +13.2 % for dedicated-balloon."""
    assert tables.published_buffers_gain("dedicated") == pytest.approx(1.121, abs=0.0006)
    assert tables.published_buffers_gain("dedicated-balloon") == pytest.approx(1.132, abs=0.0006)


def test_schemas_have_the_reading_of_tenants(make_options):
    rows = tables.published_rows(make_options(schemes=("dedicated", "shared-database"), workload="select-only"))
    assert {row["experiment"] for row in rows} == {"EDBT 2026"} and "3.3 times that of schemas" in rows[-1]["reading"]
    assert {row["layout"]: row["ratio_to_schemas"] for row in rows[:-1]} == {"shared-database": 1, "shared-server": 1.22, "dedicated": 3.3}
    assert tables.published_rows(make_options(workload="select-only")) == []


@pytest.mark.parametrize(("databases", "published"), [(10, ("EDBT 2026", "2.7 (EDBT 2026, ")), (2, (None, ""))])
def test_ratios_of_ten_tenants_have_the_published_ones(make_options, databases, published):
    layouts = ("shared-server", "dedicated", "shared-database")
    plan = ((4,),) * databases
    options = make_options(databases=databases, schemes=layouts, shared_buffers_percent=(25,), workload="tpcb-like", plan=plan, scripts=())
    ratio = {row["layout"]: row["ratio"] for row in tables.layout_rows(options, TrialsByPoint(options, []))}
    assert (ratio["dedicated"].experiment, (ratio["dedicated"].published or "")[: len(published[1])]) == published
    assert (ratio["shared-database"].published or "0.82").startswith("0.82") and ratio["shared-server"].published is None


def test_an_unpublished_ratio_is_none():
    assert tables.published_ratio(25, "dedicated", "shared-server") == f"{52647.45 / 45303.41:.3f} ({tables.SOURCE})"
    assert tables.published_ratio(50, "dedicated", "shared-server") is None
