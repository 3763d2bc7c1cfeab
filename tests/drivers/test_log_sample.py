import pytest

from pgherd.drivers.log_sample import latency, percentile


def test_percentiles_need_ten_values_beyond_them() -> None:
    values = [float(i) for i in range(200)]
    assert percentile(values, 0.5) == 99.5
    assert percentile(values, 0.95) == pytest.approx(189.05)
    assert percentile(values[:199], 0.95) is None
    assert percentile(values, 0.99) is None
    assert percentile([], 0.5) is None


def test_the_mean_is_not_the_sample_s():
    found = latency([float(i) for i in range(20, 0, -1)], 3.5)
    assert (found.mean, found.p50, found.p95, found.maximum, found.sampled) == (3.5, 10.5, None, 20.0, 20)
    assert latency([], None).maximum is None
