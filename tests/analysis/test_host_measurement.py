from __future__ import annotations

import pytest

from pgherd.analysis.host_measurement import HostRun, most_iops
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.run import RunRecord


def point(iops, latency, spread=0.0, n=3):
    """A point of a curve. Without a spread it has no interval."""

    def finding(value, unit):
        bounds = {"low": value * (1 - spread), "high": value * (1 + spread)} if spread else {}
        return Finding(value=value, unit=unit, n=n, **bounds)

    return finding(iops, "IOPS"), finding(latency, "ms")


def test_iops_where_the_latency_crosses_the_limit():
    found = most_iops([point(20_000, 3.2), point(5_000, 0.2), point(19_000, 1.6)], 1.0, "run r")
    assert found.value == pytest.approx(5_000 + 14_000 * 0.8 / 1.4) and (found.low, found.high) == (None, None)
    assert (found.n, found.source) == (9, "run r")


@pytest.mark.parametrize("deepest", [39_600, 40_400])
def test_a_measured_point_that_keeps_the_limit_is_a_lower_bound(deepest):
    """Two depths at the device's limit have the same IOPS and latencies that differ by a factor: noise must not change the answer."""
    found = most_iops([point(5_000, 0.2, 0.02), point(40_000, 0.8, 0.02), point(deepest, 1.62, 0.02)], 1.0)
    assert found.value == pytest.approx(40_000, rel=0.01) and found.low >= 39_000 and found.high >= 40_000


def test_bounds_are_by_slow_and_by_fast_points():
    found = most_iops([point(1_000, 0.5, 0.1), point(2_000, 2.0, 0.1)], 1.0)
    assert found.value == pytest.approx(1_000 + 1_000 * 0.5 / 1.5)
    assert found.low == pytest.approx(900 + 900 * (1 - 0.55) / 1.65) and found.high == pytest.approx(2_200)


def test_the_upper_bound_holds_a_device_whose_latency_rises_late():
    """By Little's law the device reaches 20,000 IOPS with 20 in flight at 1 ms. It was measured with 1 and with 32."""
    found = most_iops([point(5_000, 0.2, 0.01), point(20_000, 1.6, 0.01), point(20_000, 3.2, 0.01)], 1.0)
    assert found.value == pytest.approx(5_000 + 15_000 * 0.8 / 1.4) and found.low < found.value < 20_000 <= found.high <= 20_200
    falling = most_iops([point(5_000, 0.2, 0.01), point(20_000, 1.2, 0.01), point(12_000, 4, 0.01)], 1.0)
    assert falling.high >= 20_000, "the first point above the limit is that of the lowest latency"


def test_a_curve_below_the_limit_gives_its_largest_iops():
    """The last point was measured once, so the lower bound is by the others."""
    found = most_iops([point(1_000, 0.1, 0.1), point(8_000, 0.4, 0.1), point(9_000, 0.8, n=1)], 1.0)
    assert (found.value, found.low, found.high) == (9_000, pytest.approx(7_200), 9_000)


@pytest.mark.parametrize("curve", [[], [point(500, 2.0)], [point(500, 1.5, 0.01), point(400, 9.0)]])
def test_no_point_keeps_the_limit(curve):
    assert most_iops(curve, 1.0) is None


def test_a_run_without_an_analysis_has_neither_findings_nor_rows():
    record = RunRecord(run="r", study="disk", options={}, started=0.0, pgherd="0")
    run = HostRun("--host-run r", "r", record, ())
    assert (run.findings, list(run.rows("disk")), run.source) == ({}, [], "run r")
    analysed = record.model_copy(update={"analysis": Analysis(answer="a", grade="A", tables={"disk": [{"iops": 1}]})})
    assert list(HostRun("", "r", analysed, ()).rows("disk")) == [{"iops": 1}]
