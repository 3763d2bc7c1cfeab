from __future__ import annotations

import pytest

from pgherd.analysis.host_class import HostClass, LatencyLimit, latency_limit, miss_probability
from pgherd.model.analysis import Finding


def curve(*points):
    """Points (cores, latency) with an interval of 10 %, or (cores, latency, None) without one."""
    return [
        (one[0], Finding(value=one[1], unit="ms", low=None if len(one) > 2 else 0.9 * one[1], high=None if len(one) > 2 else 1.1 * one[1]))
        for one in points
    ]


def test_limit_is_where_the_curve_crosses_the_objective():
    found = latency_limit(curve((2, 1.0), (4, 2.0), (6, 12.0)), 7.0, "p95 ≤ 7 ms")
    assert found.value == pytest.approx(5.0) and found.low < 5.0 < (found.high or 0)
    exact = latency_limit(curve((2, 1.0, None), (4, 3.0, None)), 2.0, "")
    assert (exact.low, exact.value, exact.high) == (3.0, 3.0, 3.0)


def test_noise_does_not_make_two_limits():
    found = latency_limit(curve((1, 3.0, None), (2, 1.0, None), (3, 2.0, None), (4, 8.0, None)), 5.0, "")
    assert found.value == pytest.approx(3.5)


def test_a_curve_that_ends_before_leaves_the_rest_open():
    found = latency_limit(curve((2, 1.0), (4, 2.0)), 7.0, "")
    assert (found.low, found.value, found.high) == (4, None, None)
    assert [found.classify(cores) for cores in (0, 4, 5, 50)] == ["within", "within", "near", "near"]


def test_a_curve_above_the_objective_has_no_cpu_within_it():
    found = latency_limit(curve((2, 5.0), (4, 6.0)), 1.0, "")
    assert (found.low, found.value, found.high) == (0, 0, 0) and found.classify(0.1) == "beyond" and found.classify(0) == "within"


def test_classes():
    limit = LatencyLimit(objective="p99 ≤ 10 ms", low=3, value=4, high=5)
    assert [limit.classify(cores) for cores in (3, 3.1, 5, 5.1)] == ["within", "near", "near", "beyond"]


def test_host_names():
    host = HostClass.model_validate({"name": "big", "capacity": {"cpu_cores": 4}, "names": ["a"]})
    assert [host.host_name(number) for number in range(3)] == ["a", "big-2", "big-3"]


def test_the_memory_is_the_capacity_of_the_minima():
    host = HostClass.model_validate({"name": "a", "capacity": {"memory_mb": 8}})
    assert host.capacity["memory_min_mb"].value == 8 and HostClass.model_validate(host.model_dump()) == host
    stated = HostClass.model_validate({"name": "a", "capacity": {"memory_mb": 8, "memory_min_mb": 6}})
    assert stated.capacity["memory_min_mb"].value == 6
    assert "memory_min_mb" not in HostClass.model_validate({"name": "a", "capacity": {"cpu_cores": 8}}).capacity


def with_limit(low, value, high, capacity=10.0):
    limit = LatencyLimit(objective="p95 ≤ 5 ms", low=low, value=value, high=high)
    return HostClass.model_validate({"name": "big", "capacity": {"cpu_cores": capacity}, "latency": limit})


def test_a_limit_without_an_interval_is_missed_above_it():
    found = miss_probability(with_limit(4, 4, 4), {"cpu_cores": 0.5})
    assert found.value == 1 and found.method == "the demand is above the capacity of p95 ≤ 5 ms"
    measured = {"value": 10.0, "low": 8.04, "high": 11.96}
    assert miss_probability(with_limit(6, 6, 6, measured), {"cpu_cores": 0.5}).value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("limit", [(4, 4.5, None), (4, None, None)])
def test_a_limit_without_an_upper_bound_has_no_probability(limit):
    found = miss_probability(with_limit(*limit), {"cpu_cores": 0.5})
    assert found.value is None and found.note == "the measured curve of p95 ≤ 5 ms has no upper bound"
    assert miss_probability(with_limit(*limit), {"cpu_cores": 1.1}).value == 1, "the capacity is exceeded"


def test_any_capacity_that_is_missed_counts():
    at_demand = {"value": 10.0, "low": 8.0, "high": 12.0}
    host = HostClass.model_validate({"name": "a", "capacity": dict.fromkeys(("cpu_cores", "read_iops", "write_iops"), at_demand)})
    found = miss_probability(host, dict.fromkeys(host.capacity, 1.0))
    assert found.value == pytest.approx(1 - 0.5**3) and not found.note


def test_an_open_limit_leaves_the_known_part():
    iops = {"value": 10.0, "low": 8.0, "high": 12.0}
    limit = LatencyLimit(objective="p95 ≤ 5 ms", low=4, value=None, high=None)
    host = HostClass.model_validate({"name": "a", "capacity": {"cpu_cores": 10.0, "read_iops": iops}, "latency": limit})
    found = miss_probability(host, {"cpu_cores": 0.3, "read_iops": 1.0})
    assert found.value == pytest.approx(0.5) and found.note.startswith("at least")


@pytest.mark.parametrize("need,chance", [(10.0, 0.025), (11.0, 0.5), (19.0, 0.975)])
def test_each_end_of_an_interval_has_its_probability(need, chance):
    host = HostClass.model_validate({"name": "a", "capacity": {"read_iops": {"value": 11.0, "low": 10.0, "high": 19.0}}})
    assert miss_probability(host, {"read_iops": need / 11}).value == pytest.approx(chance, abs=1e-3)
