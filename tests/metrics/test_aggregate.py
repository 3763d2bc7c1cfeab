import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.aggregate import MARGIN_S, aggregate, near
from pgherd.metrics.sampler import ContainerView, GuestView, ProcessView, SamplingView, ServerView, SwapView, sources
from pgherd.metrics.spool import Spool, SpoolReading


def series(name: str, *points: tuple[float, float], entity: str = "container:a") -> list[SpoolReading]:
    return [(t, "s", entity, {name: value}) for t, value in points]


def one(readings: list[SpoolReading], start: float, end: float) -> float:
    (metrics,) = aggregate(readings, start, end).values()
    (value,) = metrics.values()
    return value


def test_a_counter_becomes_a_rate_between_interpolated_borders() -> None:
    readings = series("cpu.usage", (0, 0), (1, 1), (2, 3), (3, 3), (4, 10))
    assert one(readings, 1, 3) == 1
    assert one(readings, 0.5, 2.5) == pytest.approx((3 - 0.5) / 2)
    assert one(readings, 1.25, 1.75) == pytest.approx(2)


def test_a_border_outside_the_samples_takes_the_nearest_sample_and_the_real_time() -> None:
    readings = series("cpu.usage", (1, 1), (2, 3), (3, 4))
    assert one(readings, 0, 2.5) == pytest.approx((3.5 - 1) / 1.5)
    assert one(readings, 0, 100) == pytest.approx(3 / 2)


def test_a_gauge_becomes_its_mean_by_time() -> None:
    readings = series("memory.usage", (0, 100), (1, 100), (4, 400))
    assert one(readings, 0, 4) == pytest.approx((100 + 3 * 250) / 4)
    assert one(readings, 1, 2) == pytest.approx(150)
    assert one(readings, -5, 50) == pytest.approx(212.5)


@pytest.mark.parametrize(
    ("name", "levels", "increase"),
    [
        ("db.xact_commit", (100, 110, 4, 9), 10 + 4 + 5),
        ("db.xact_commit", (100, 110, 90, 95), 10 + 5),  # one of several databases was dropped
        ("write_time", (4294966, 4294967, 1, 2), 1 + 1.296 + 1),  # 2^32 milliseconds
        ("write_time", (4294966, 4294967, 4294000, 4294968), 1 + 0 + 1),
    ],
)
def test_a_counter_that_may_reset_or_wraps(name: str, levels: tuple[float, ...], increase: float) -> None:
    assert one(series(name, *enumerate(levels)), 0, 3) == pytest.approx(increase / 3)


def test_a_torn_reading_of_another_counter_is_bridged() -> None:
    readings = series("cpu.usage", (0, 10), (1, 11), (2, 3), (3, 12), (4, 13))
    assert one(readings, 0, 4) == pytest.approx(3 / 4)


def test_metrics_may_come_at_instants_of_their_own() -> None:
    readings = [
        (0.0, "cpu", "host", {"cpu.user": 0.0}),
        (0.1, "memory", "host", {"memory.free": 5.0}),
        (1.0, "cpu", "host", {"cpu.user": 1.0, "cpu.system": 1.0}),
        (1.1, "memory", "host", {"memory.free": 7.0}),
        (1.5, "cpu", "host", {"context_switches": 7.0}),
        (2.0, "cpu", "host", {"cpu.user": 2.0, "cpu.system": 3.0}),
        (2.0, "cpu", "container:a", {"cpu.user": 9.0}),
        (2.5, "cpu", "host", {"context_switches": 17.0}),
        (3.0, "cpu", "container:a", {"cpu.user": 19.0}),
    ]
    found = aggregate(readings, 0, 2.25)
    assert found == {"container:a": {"cpu.user": 10}, "host": {"cpu.system": 2, "cpu.user": 1, "context_switches": 10, "memory.free": 6}}


def test_of_two_readings_of_one_instant_the_later_counts() -> None:
    assert one(series("cpu.usage", (0, 0), (1, 5), (1, 6), (2, 8)), 0, 1) == pytest.approx(6)


def test_one_reading_is_no_rate() -> None:
    assert aggregate(series("cpu.usage", (1, 5)), 0, 2) == {}
    assert aggregate(series("cpu.usage", (1, 5), (2, 6)), 3, 4) == {}
    assert aggregate(series("cpu.usage", (5, 5), (6, 6)), 3, 4) == {}
    assert aggregate([], 0, 1) == {}


def test_readings_from_before_the_clock_was_set_back_are_left_out() -> None:
    readings = series("cpu.usage", (10, 0), (11, 1), (10.5, 2), (12, 3))
    assert one(readings, 10, 12) == pytest.approx(1.5)


points = st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1e6)), min_size=2, max_size=30)


@given(points, st.lists(st.floats(0.01, 20), min_size=1, max_size=6))
def test_the_parts_of_a_window_add_up_to_it(steps: list[tuple[float, float]], lengths: list[float]) -> None:
    t, count = 0.0, 0.0
    walk = [(0.0, 0.0)]
    for step, growth in steps:
        t, count = t + step, count + growth
        walk.append((t, count))
    borders = [0.0]
    for length in lengths:
        borders.append(min(t, borders[-1] + length))
    total = 0.0
    for start, end in itertools.pairwise(borders):
        if end > start:
            total += one(series("cpu.usage", *walk), start, end) * (end - start)
    assert total == pytest.approx(one(series("cpu.usage", *walk), 0, borders[-1]) * borders[-1], rel=1e-6, abs=1e-3)


@given(points, st.floats(-5, 100), st.floats(0.01, 100))
def test_a_gauges_mean_lies_within_its_readings(steps: list[tuple[float, float]], start: float, length: float) -> None:
    t = 0.0
    walk = []
    for step, value in steps:
        t += step
        walk.append((t, value))
    for metrics in aggregate(series("memory.usage", *walk), start, start + length).values():
        low, high = min(v for _, v in walk), max(v for _, v in walk)
        assert low - 1e-6 * (high + 1) <= metrics["memory.usage"] <= high + 1e-6 * (high + 1)


def test_a_whole_spool_of_a_herd(text) -> None:
    """40 containers for a minute, as the node writes it."""
    per_container = [
        ("cgroup_cpu", "container:c{}", "v1 usage", "v1-cpuacct.usage", 1),
        ("cgroup_cpu", "container:c{}", "v1 stat", "v1-cpuacct.stat", 5),
        ("cgroup_cpu", "container:c{}", "v1 throttling", "v1-cpu.stat", 1),
        ("cgroup_memory", "container:c{}", "usage", "v1-memory.usage_in_bytes", 1),
        ("cgroup_memory", "container:c{}", "v1 stat", "v1-memory.stat", 5),
        ("pressure", "container:c{}", "cpu", "v2-cpu.pressure", 5),
        ("pressure", "container:c{}", "memory", "v2-memory.pressure", 5),
        ("pressure", "container:c{}", "io", "v2-io.pressure", 5),
        ("processes", "driver:local/c{}/pg/bench", "", "pid-stat-odd-name", 1),
        ("processes", "backend:c{}/pg", "", "pid-stat-odd-name", 5),
        ("database", "server:c{}/pg", "", "sql-database-18.json", 1),
        ("pg_io", "server:c{}/pg", "", "sql-pg_io-18.json", 5),
    ]
    every = [(*row, i) for i in range(40) for row in per_container]
    lines = [json.dumps({"sources": [[s, e.format(i), "file", "/x", tag] for s, e, tag, _, _, i in every], "first": 0})]
    for tick in range(60):
        for index, (_, _, _, name, n, _) in enumerate(every):
            if tick % n == 0:
                lines.append(json.dumps({"t": 1000.0 + tick, "i": index, "raw": text(name)}))
    spool = Spool(lines)
    found = aggregate(spool, 1002.5, 1052.5)
    assert len(found) == 40 * 4
    assert found["container:c7"]["memory.usage"] == 1925120
    assert not spool.failures and not spool.torn


@given(
    st.lists(st.floats(0.2, MARGIN_S / 2), min_size=3, max_size=60),
    st.lists(st.floats(0.2, MARGIN_S / 2), min_size=3, max_size=60),
    st.floats(-200, 1500),
    st.floats(0.1, 300),
)
def test_what_is_far_from_a_window_says_nothing_of_it(often: list[float], seldom: list[float], start: float, length: float) -> None:
    counter = series("cpu.usage", *((t, i * i) for i, t in enumerate(itertools.accumulate(often))))
    gauge = series("memory.usage", *((t, i % 7) for i, t in enumerate(itertools.accumulate(seldom))))
    readings = sorted([*counter, *gauge], key=lambda reading: reading[0])
    assert aggregate(near(readings, start, start + length), start, start + length) == aggregate(readings, start, start + length)


def test_every_source_has_readings_around_a_window() -> None:
    """What ``near`` keeps would else say other things of a window than all readings."""
    many = [ContainerView(f"c{number}", {"v1": "/g/c", "v2": "/g/c", "memory": "/m/c"}, pids=[20 + number]) for number in range(200)]
    servers = [ServerView(f"c{number}/pg", "host=/s", 18, 300 + number) for number in range(200)]
    processes = [ProcessView("pgherd", 12), *(ProcessView(f"backend:{server.name}", 1000 + server.pid) for server in servers)]
    guests = [GuestView("g", 13, 2**30, merging=True)]
    found = sources(SamplingView(many, servers, processes, run_cgroup={"memory": "/m"}, swap=SwapView("/dev/zram1", 1), guests=guests))
    assert max(source.every for source in found) > 30 and all(source.every <= MARGIN_S / 2 for source in found)


def test_a_window_of_a_long_trial_looks_at_its_own_minutes_only() -> None:
    readings = series("cpu.usage", *((t, t) for t in range(4 * 3600)))
    assert len(near(readings, 7200, 7260)) == 60 + 2 * MARGIN_S + 1
