import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.memory_accounting import balance, compression_ratio, instants, nearest_value

MB = 2.0**20


def test_containers_and_unallocated_add_up() -> None:
    limit = [(0.0, 100 * MB)]
    (item,) = instants(limit, [(0.001, 80 * MB)], {"a": [(0.002, 50 * MB)], "b": [(0.003, 30 * MB)]})
    assert (item.containers, item.unallocated, item.gap) == (80 * MB, 20 * MB, 0)


def test_what_no_container_has_is_missing() -> None:
    result = instants([(0, 100.0)], [(0, 80.0), (1, 80.0), (2, 80.0)], {"a": [(0, 80.0), (1, 75.0), (2, 84.0)]})
    assert [item.gap for item in result] == pytest.approx([0, 0.05, -0.04])
    worst = balance(result, 0, 2)
    assert worst is not None
    assert (worst.seconds, worst.worst.at, worst.worst.gap) == (3, 1, pytest.approx(0.05))
    outside = balance(result, 1.5, 2)
    assert outside is not None and outside.worst.gap == pytest.approx(-0.04)
    assert balance(result, 3, 4) is None


def test_a_limit_holds_until_its_next_reading() -> None:
    result = instants([(0, 100.0), (2, 50.0)], [(0, 40.0), (1, 40.0), (2, 40.0)], {"a": [(0, 40.0), (1, 40.0), (2, 40.0)]})
    assert [item.budget for item in result] == [100, 100, 50]
    assert [element.unallocated for element in result] == [60, 60, 10]


def test_a_container_that_was_not_read_then_makes_no_second() -> None:
    charged = [(0.0, 80.0), (1.0, 80.0)]
    result = instants([(0, 100.0)], charged, {"a": [(0, 80.0), (1, 40.0)], "b": [(1.01, 40.0)]})
    assert [item.at for item in result] == [1]
    assert instants([(0, 100.0)], charged, {}) == []
    assert instants([], charged, {"a": [(0, 80.0)]}) == []


def test_nearest_reading() -> None:
    assert nearest_value([(0, 1.0), (1, 2.0)], 0.4) == 1
    assert nearest_value([(0, 1.0), (1, 2.0)], 0.6) == 2
    assert nearest_value([(0, 1.0)], 0.6) is None
    assert nearest_value([], 0) is None


def test_ratio_of_compression() -> None:
    assert compression_ratio(300, 100) == 3
    assert compression_ratio(0, 100) is None
    assert compression_ratio(100, 0) is None


amounts = st.floats(0, 1e12)


@given(st.lists(st.lists(amounts, min_size=3, max_size=3), min_size=1, max_size=5), st.floats(1, 1e13))
def test_parts_of_what_is_charged_leave_no_gap(parts: list[list[float]], budget: float) -> None:
    """Nothing is missing if the containers have all that the cgroup is charged for."""
    charged = [(float(i), sum(element[i] for element in parts)) for i in range(3)]
    containers = {str(n): [(float(i), value) for i, value in enumerate(part)] for n, part in enumerate(parts)}
    result = instants([(0.0, budget)], charged, containers)
    assert len(result) == 3
    for item in result:
        assert abs(item.gap) * budget <= 1e-9 * (budget + item.containers)
        assert item.containers + item.unallocated == pytest.approx(budget, abs=1e-6 * (budget + item.containers))
