import pytest

from pgherd.metrics import accounting


@pytest.mark.parametrize(
    ("groups", "cpu", "memory"),
    [
        ({}, None, None),
        ({"v2": "/u/a"}, ("v2", "/u/a"), ("v2", "/u/a")),
        ({"cpuacct": "/c/a", "memory": "/m/a", "v2": "/u/a"}, ("v1", "/c/a"), ("v1", "/m/a")),
        ({"memory": "/m/a"}, None, ("v1", "/m/a")),
        ({"cpu": "/c/a"}, None, None),
    ],
)
def test_v1_counts_where_a_container_has_both(groups, cpu, memory) -> None:
    assert accounting.cpu(groups) == cpu
    assert accounting.memory(groups) == memory
