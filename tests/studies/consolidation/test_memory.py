import pytest

from pgherd.studies.consolidation import memory, published
from pgherd.studies.consolidation.analyse import analyse
from pgherd.studies.consolidation.memory import memory_rows, swap_findings, use
from pgherd.studies.consolidation.seen import Trials

MB = 2**20


def trials_of(simulator):
    return Trials(simulator.options, simulator.all())


def test_containers_are_added_up_and_the_worst_wait_counts(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,), rates=(0.0, 0.5)))
    over = next(result for result in simulator.all() if result.trial.point["rate"])
    found = use(over)
    assert found["charged"] == pytest.approx(2 * 900e6 / MB)
    assert found["shared"] == 512 and found["page_cache"] == 512 and found["private"] == 128
    assert found["swapped"] == pytest.approx(160)
    assert found["refaults"] == pytest.approx(84)
    assert (found["swapped_in"], found["swapped_out"]) == (5, 7)
    assert found["waiting"] == pytest.approx(4), "of the container that waits longest"
    assert found["compressed"] == pytest.approx(160) and found["compression"] == pytest.approx(4)
    assert "ballooned" not in found


def test_what_one_period_did_not_see_is_not_averaged_over_the_others(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,)))
    (result,) = simulator.all()
    del result.phases[1].metrics["host"]
    assert "swapped_in" not in use(result) and "charged" in use(result)


def test_compression_in_the_swap_cache_is_the_containers_own(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,), rates=(0.0, 0.5)))
    over = next(result for result in simulator.all() if result.trial.point["rate"])
    for phase in over.phases:
        del phase.metrics["zram:zram3"]
        for name in ("container:db1", "container:db2"):
            phase.metrics[name] |= {"memory.zswapped": 60.0 * MB, "memory.zswap": 20.0 * MB}
    assert use(over)["compressed"] == 120 and use(over)["compression"] == pytest.approx(3)


def test_the_balloon_is_a_part_of_nothing(make_options, simulate):
    simulator = simulate(make_options(schemes=(4,), buffers=(25,)))
    (result,) = simulator.all()
    before = use(result)
    for phase in result.phases:
        phase.metrics.update({f"server:{name}/pg": {"balloon.bytes": 100.0 * MB} for name in ("db1", "db2")})
    after = use(result)
    assert after.pop("ballooned") == 200
    assert after == before


def test_a_row_for_each_combination_with_an_interval_from_three_blocks_on(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.5), blocks=3))
    rows = memory_rows(simulator.options, trials_of(simulator))
    assert len(rows) == 16
    over = next(row for row in rows if (row["scheme"], row["buffers"], row["rate"]) == (1, 75, 0.5))
    assert over["swapped"].value == pytest.approx(440) and over["swapped"].low is not None
    assert all(row[name].unit == unit for row in rows for name, unit in memory.UNITS.items() if name in row)


def test_what_was_not_seen_makes_no_row_and_no_finding(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.5)), memory=False)
    trials = trials_of(simulator)
    assert memory_rows(simulator.options, trials) == []
    assert swap_findings(simulator.options, trials) == {}


def test_separate_containers_are_held_against_the_shared_one_at_each_rate(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.3), blocks=3))
    found = swap_findings(simulator.options, trials_of(simulator))
    apart = found["swapped_ratio.scheme3.buffers25.rate0.3"]
    assert apart.value == pytest.approx(0.4) and apart.low is not None
    assert (apart.experiment, apart.published) == ("E6", f"below 0.5 ({published.SOURCE_E6})")
    balloon = found["swapped_balloon_ratio.buffers75.rate0.3"]
    assert balloon.value == pytest.approx(0.75) and balloon.published.startswith("about 0.8")
    assert found["swapped_ratio.scheme3.buffers75.rate0.3"].published is None, "E6 said it of 25 % buffers"
    assert not any("rate0." not in name for name in found)


def test_nothing_is_published_at_other_rates_or_of_other_workloads(make_options, simulate):
    for changes in ({"rates": (0.0, 0.5)}, {"rates": (0.0, 0.3), "workload": "select-only"}):
        simulator = simulate(make_options(**changes))
        found = swap_findings(simulator.options, trials_of(simulator))
        assert found and not any(finding.published for finding in found.values())


def test_a_few_pages_have_no_ratio(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.001)))
    assert all("compression" not in use(result) for result in simulator.all())
    assert swap_findings(simulator.options, trials_of(simulator)) == {}


def test_a_block_in_which_nothing_was_swapped_counts_as_the_best_of_all(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.3), blocks=3))
    results = simulator.all()
    point = {"scheme": 3, "buffers": 25, "rate": 0.3}
    best = next(one for one in results if one.trial.repeat == 1 and point.items() <= one.trial.point.items())
    for phase in best.phases:
        for entity in ("container:db1", "container:db2"):
            phase.metrics[entity]["memory.swap"] = 0.0
    found = swap_findings(simulator.options, Trials(simulator.options, results))
    ratio = found["swapped_ratio.scheme3.buffers25.rate0.3"]
    assert ratio.n == 3 and ratio.value == pytest.approx((0.4 * 0.4 / (240 * 1.1)) ** (1 / 3)), "one MB over what the shared one swapped"
    assert "at most: in 1 of 3 blocks it was below 1 MB" in ratio.note
    assert "at most" not in found["swapped_ratio.scheme3.buffers75.rate0.3"].note
    balloon = found["swapped_balloon_ratio.buffers25.rate0.3"]
    assert balloon.n == 2 and balloon.value == pytest.approx(0.75), "over nothing there is no ratio"


def test_guests_have_no_shared_memory_to_show_and_balloons_of_their_own(make_options, simulate):
    simulator = simulate(make_options(schemes=(3,), buffers=(25,), rates=(0.0, 0.3), runtime="vm"))
    results = simulator.all()
    for phase in (phase for one in results for phase in one.phases):
        for name in ("db1", "db2"):
            phase.metrics[f"guest:{name}"] = {"guest.memory": 512.0 * MB, "guest.actual": 412.0 * MB, "qemu.anon": 300.0 * MB}
    row = memory_rows(simulator.options, Trials(simulator.options, results))[-1]
    assert "shared" not in row and row["guest_balloons"].value == pytest.approx(200) and row["guest_balloons"].unit == "MB"
    assert "guest_memory" in row["guest_balloons"].note and "hypervisors'" in row["private"].note
    for phase in results[-1].phases:
        del phase.metrics["guest:db1"]["guest.actual"]
    assert "guest_balloons" not in use(results[-1]), "one guest's alone are not those of all"


def test_one_block_has_no_interval_and_says_so(make_options, simulate):
    simulator = simulate(make_options(rates=(0.0, 0.5)))
    found = swap_findings(simulator.options, trials_of(simulator))
    assert all(finding.low is None and "one block: no interval" in finding.note for finding in found.values())


def test_the_tables_are_there_where_memory_was_overcommitted(make_options, simulate):
    over, under = (simulate(make_options(rates=rates)) for rates in ((0.0, 0.3), (0.0,)))
    tables = analyse(over.options, over.all()).tables
    assert len(tables["memory"]) == 16
    assert [row["buffers"] for row in tables["published_e6"]] == [25, 75]
    assert not {"memory", "published_e6"} & set(analyse(under.options, under.all()).tables)
