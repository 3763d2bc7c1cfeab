from pgherd.drivers.telling import on_clock, read_rates, tells

LINE = "progress: {} s, {} tps, lat 0.8 ms stddev 0.1, 0 failed\n"
PROGRESS = LINE.format(1700000001.5, 1234.5) + LINE.format(1700000002.5, 99.0)


def test_pgbench_tells_every_second():
    assert tells("pgbench")
    assert read_rates("pgbench", PROGRESS) == [(1700000001.5, 1234.5), (1700000002.5, 99.0)]


def test_the_others_tell_nothing_before_their_end():
    for driver in ("fio", "iperf3", "command", "unheard-of"):
        assert not tells(driver) and read_rates(driver, PROGRESS) == [] and on_clock(driver, PROGRESS, 1.0) == ""


def test_what_is_told_can_be_put_on_another_clock():
    moved = on_clock("pgbench", f"pgbench (18.6)\n{PROGRESS}", 100.25)
    assert moved == LINE.format("1699999901.250", 1234.5) + LINE.format("1699999902.250", 99.0)
