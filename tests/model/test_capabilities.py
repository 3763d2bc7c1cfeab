from __future__ import annotations

from typing import get_args

import pytest

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import RuntimeName


@pytest.mark.parametrize("name", get_args(RuntimeName))
def test_every_runtime_has_capabilities(name):
    assert capabilities_of(name).available


def test_only_a_guest_has_a_kernel_of_its_own():
    args = [name for name in get_args(RuntimeName) if capabilities_of(name).own_kernel]
    complete = [name for name in get_args(RuntimeName) if capabilities_of(name).whole_vcpus]
    assert args == complete == ["vm"]


def test_memory_is_limited_where_something_counts_it():
    names = [name for name in get_args(RuntimeName) if capabilities_of(name).memory_limit]
    assert names == ["cgroup", "vm"] == [name for name in get_args(RuntimeName) if capabilities_of(name).accounting]


def test_an_external_server_is_not_managed():
    external = capabilities_of("external")
    assert not (external.managed or external.host_files or external.cpu_quota or external.memory_limit)
