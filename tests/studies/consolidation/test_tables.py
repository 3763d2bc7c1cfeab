import pytest

from pgherd.model.finding import Finding
from pgherd.studies.consolidation import tables
from pgherd.studies.consolidation.seen import Trials


def trials_of(simulator):
    return Trials(simulator.options, simulator.all())


def test_a_row_for_each_combination_even_if_nothing_ran(make_options):
    options = make_options(rates=(0.0, 0.5))
    rows = tables.scheme_rows(options, Trials(options, []))
    assert len(rows) == 16
    assert all(row["throughput"].note == tables.NOT_RUN for row in rows)


def test_correction_stands_beside_the_raw_number_of_schemes_1_and_2_only(make_options, simulate):
    simulator = simulate(make_options(buffers=(25,)))
    rows = {row["scheme"]: row for row in tables.scheme_rows(simulator.options, trials_of(simulator))}
    assert rows[1]["corrected"].value == pytest.approx(3400)
    assert rows[1]["throughput"].value == pytest.approx(3200)
    assert rows[3]["corrected"].value is None and "vCPUs of its own" in rows[3]["corrected"].note
    assert rows[1]["cpu_used"].value == pytest.approx(300)
    assert rows[1]["ratio"].note == "the first scheme"


def test_schemes_of_different_vcpus_are_compared_with_the_correction_too(make_options, simulate):
    simulator = simulate(make_options(buffers=(25,)))
    rows = {row["scheme"]: row for row in tables.scheme_rows(simulator.options, trials_of(simulator))}
    assert rows[3]["ratio"].value == pytest.approx(3840 / 3200)
    assert rows[3]["corrected_ratio"].value == pytest.approx(3840 / 3400), "the quiet database's 200 once more in scheme 1 alone"
    assert rows[2]["corrected_ratio"].value == pytest.approx((2880 + 180) / 3400), "both are corrected"
    assert rows[1]["corrected_ratio"].note == "the first scheme"
    assert rows[3]["corrected_ratio"].published.startswith("about 1 (E4")


def test_schemes_of_equal_vcpus_need_none(make_options, simulate):
    for changes in ({"schemes": (3, 4)}, {"schemes": (1, 2)}, {"cpu_mode": "none"}):
        simulator = simulate(make_options(buffers=(25,), **changes))
        rows = {row["scheme"]: row for row in tables.scheme_rows(simulator.options, trials_of(simulator))}
        assert all("corrected_ratio" not in row for row in rows.values())
    assert rows[1]["corrected"].note == "no correction: nothing limits a container's vCPUs"


def test_periods_name_every_database_with_its_clients(make_options, simulate):
    simulator = simulate(make_options(buffers=(25,), schemes=(3,)))
    rows = tables.period_rows(simulator.options, trials_of(simulator))
    assert [(row["period"], row["database"], row["clients"]) for row in rows[:4]] == [
        (1, "DB_1", 30),
        (1, "DB_2", 2),
        (2, "DB_1", 2),
        (2, "DB_2", 30),
    ]
    assert [isinstance(row["cpu_used"], Finding) for row in rows[:2]] == [True, False]


def test_available_memory_is_that_of_the_rate(make_options):
    options = make_options(rates=(0.0, 0.5), schemes=(3,), buffers=(25,))
    rows = tables.scheme_rows(options, Trials(options, []))
    assert [row["available"] for row in rows] == [None, 4096]
