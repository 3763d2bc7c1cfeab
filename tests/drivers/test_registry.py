import pytest

from pgherd.drivers.registry import driver, drivers, on_clock, read_rates, tells
from pgherd.model.errors import UsageError

# ---- drivers by name


def test_finds_every_driver_by_its_own_name() -> None:
    assert "pgbench" in drivers()
    assert all(name == found.name for name, found in drivers().items())


def test_an_unknown_driver_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no driver 'idle'; known: .*pgbench"):
        driver("idle")


# ---- progress while a driver runs


LINE = "progress: {} s, {} tps, lat 0.8 ms stddev 0.1, 0 failed\n"
PROGRESS = LINE.format(1700000001.5, 1234.5) + LINE.format(1700000002.5, 99.0)


def test_pgbench_tells_every_second():
    assert tells("pgbench")
    assert read_rates("pgbench", PROGRESS) == [(1700000001.5, 1234.5), (1700000002.5, 99.0)]


def test_the_others_tell_nothing_before_their_end():
    for name in ("fio", "iperf3", "command", "unheard-of"):
        assert not tells(name) and read_rates(name, PROGRESS) == [] and on_clock(name, PROGRESS, 1.0) == ""


def test_what_is_told_can_be_put_on_another_clock():
    moved = on_clock("pgbench", f"pgbench (18.6)\n{PROGRESS}", 100.25)
    assert moved == LINE.format("1699999901.250", 1234.5) + LINE.format("1699999902.250", 99.0)
