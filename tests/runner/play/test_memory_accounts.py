import pytest

from pgherd.runner.play.memory_accounts import account

MB = 2.0**20


def readings(gap=0.0):
    for t in range(5):
        yield t, "cgroup_memory", "budget", {"memory.usage": 80 * MB}
        yield t + 0.001, "cgroup_memory", "budget", {"memory.limit": 100 * MB}
        yield t + 0.002, "cgroup_memory", "container:a", {"memory.usage": 50 * MB}
        yield t + 0.002, "cgroup_memory", "container:a", {"memory.swap": 7 * MB}
        yield t + 0.003, "cgroup_memory", "container:b", {"memory.usage": (30 - gap * (t == 2)) * MB}
        yield t + 0.004, "memory", "host", {"memory.usage": 5.0}


def test_every_second_of_the_window_is_looked_at():
    found = account(readings(gap=4), 1, 3)
    assert found is not None
    assert (found.seconds, found.worst, found.worst_at) == (3, pytest.approx(0.04), 2)
    assert (found.budget, found.containers, found.unallocated) == (100 * MB, 76 * MB, 20 * MB)
    outside = account(readings(gap=4), 3, 4)
    assert outside is not None and outside.worst == 0


def test_without_a_budget_there_is_no_account():
    assert account([one for one in readings() if one[2] != "budget"], 0, 5) is None
    assert account([one for one in readings() if "memory.limit" not in one[3]], 0, 5) is None, "no limit"
    assert account([], 0, 5) is None
