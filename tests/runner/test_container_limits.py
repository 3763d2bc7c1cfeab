import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.guest_memory import GuestMemory
from pgherd.model.load import Script
from pgherd.runner.container_limits import Limits, guest_memory, guest_memory_needed, insist_guest_can, limits, memory
from pgherd.studies.databases import DatabaseRequest

FACTS = HostFacts(hostname="h", kernel="6", cores=8, logical_cpus=8, memory=2**34)


@pytest.mark.parametrize(
    ("runtime", "asked", "vcpus", "found"),
    [
        ("cgroup", {}, 0.25, Limits(0.25, "quota")),
        ("cgroup", {"vcpus": 2}, 0.25, Limits(2, "quota")),
        ("cgroup", {"vcpus": 2, "cpu_mode": "cpuset"}, 1, Limits(2, "cpuset")),
        ("process", {}, 0.25, Limits(1, "cpuset")),
        ("process", {"vcpus": 0.5}, 1, Limits(0.5, "none")),
        ("vm", {}, 0.25, Limits(1, "none")),
        ("vm", {"vcpus": 0.5, "cpu_mode": "quota"}, 1, Limits(0.5, "quota")),
    ],
)
def test_cpu(runtime, asked, vcpus, found):
    assert limits(DatabaseRequest(**asked), runtime, 8, FACTS, vcpus) == found


@pytest.mark.parametrize(
    ("runtime", "asked", "error", "message"),
    [
        ("process", {"cpu_mode": "quota"}, CapabilityError, "needs the cgroup runtime"),
        ("cgroup", {"vcpus": 1.5, "cpu_mode": "cpuset"}, UsageError, "gives whole CPUs"),
        ("cgroup", {"vcpus": 9}, UsageError, "--vcpus 9 is more than the 8 cores"),
        ("vm", {"vcpus": 1.5}, UsageError, "a guest has whole vCPUs"),
        ("vm", {"vcpus": 9}, UsageError, "more than the 8 CPUs of this host"),
    ],
)
def test_what_cannot_be_given_is_said(runtime, asked, error, message):
    with pytest.raises(error, match=message):
        limits(DatabaseRequest(**asked), runtime, 8, FACTS, 1)


def test_memory():
    assert memory(DatabaseRequest(), "process") is None
    assert memory(DatabaseRequest(memory="1GB"), "cgroup") == memory(DatabaseRequest(memory="1GB"), "vm") == 2**30
    with pytest.raises(CapabilityError, match="--memory needs the cgroup runtime"):
        memory(DatabaseRequest(memory="1GB"), "process")


@pytest.mark.parametrize(
    "asked", [{"wal_dir": "/wal"}, {"data_on": "loop:1GB"}, {"tablespaces_on": ("loop:1GB",)}, {"huge_pages": "2MB"}, {"huge_pages": "thp"}]
)
def test_what_guests_cannot_have_yet_is_refused(asked):
    with pytest.raises(CapabilityError, match="does not reach into virtual machines yet"):
        insist_guest_can(DatabaseRequest(**asked), ())


def test_scripts_of_ones_own_stay_outside_guests():
    mine = (Script(source="/mine.sql"),)
    with pytest.raises(CapabilityError, match="--client-place outside"):
        insist_guest_can(DatabaseRequest(), mine)
    insist_guest_can(DatabaseRequest(client_place="outside"), mine)
    insist_guest_can(DatabaseRequest(), (Script(source="builtin:select-only"),))


def test_guests_memory_policy():
    assert guest_memory(DatabaseRequest(), "vm") == GuestMemory(policy="static")
    assert guest_memory(DatabaseRequest(guest_memory="guest-balloon"), "vm") == GuestMemory(policy="guest-balloon")
    assert guest_memory(DatabaseRequest(), "cgroup") is None
    with pytest.raises(UsageError, match="add --runtime vm"):
        guest_memory(DatabaseRequest(guest_memory="static"), "cgroup")


def test_a_guest_is_given_what_its_server_needs_and_its_system():
    small = guest_memory_needed({"shared_buffers": "32MB", "max_connections": "20"})
    assert 256 * 2**20 <= small <= 448 * 2**20 and small % (64 * 2**20) == 0
    assert guest_memory_needed({"shared_buffers": "1GB", "max_connections": "20"}) >= small + 2**30 - 64 * 2**20
