from dataclasses import replace

import pytest

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare.guests import require_guest_can
from pgherd.prepare.hosts import (
    ContainerCpu,
    Containers,
    HostShare,
    check_io,
    choose_cpu,
    choose_memory,
    choose_share,
    guest_memory_needed,
    one_host,
)
from pgherd.studies.density.options import DensityRequest
from pgherd.study.database_options import DatabaseRequest

GB = 2**30
FACTS = HostFacts(hostname="h", kernel="6", cores=4, logical_cpus=4, memory=16 * GB, memory_available=10 * GB)
TWO = (Host(name="a", cores=4, memory=8 * GB), Host(name="b", cores=2, memory=4 * GB))


def test_one_host_gives_what_was_asked_for_or_most_of_what_it_has():
    assert choose_share(FACTS) == HostShare(4, 8 * GB)
    assert choose_share(FACTS, 1.5, GB) == HostShare(1.5, GB)
    for asked, words in (
        ({"cores": 5}, "--host-cores 5 is more than this host"),
        ({"memory": 20 * GB}, "--host-memory 20"),
    ):
        with pytest.raises(UsageError, match=words):
            choose_share(FACTS, **asked)
    with pytest.raises(UsageError, match="more than host b"):
        one_host(5, None, FACTS, "b")


def test_several_hosts_give_the_sum_but_no_container_more_than_one_has():
    share, alone = choose_share(FACTS, over=TWO), HostShare(3, GB)
    assert (share.cores, share.memory) == (6, 12 * GB) and share.largest == 4
    assert share.smallest == 2
    assert alone.largest == alone.smallest == 3


def test_memory_is_given_out_host_by_host():
    share, alone = choose_share(FACTS, over=TWO), HostShare(6, 12 * GB)
    assert share.holds(3 * GB) == 3 and alone.holds(3 * GB) == 4
    assert share.most_on_one(6, 1.0) == 4 and alone.most_on_one(6, 1.0) == 6
    assert share.memory_of_each(6, 1.0) == 2 * GB and alone.memory_of_each(6, 1.0) == 2 * GB
    assert share.memory_of_each(8, 1.0) == 4 * GB // 3, "six of them are on the larger host"


EIGHT_CORES = HostFacts(hostname="h", kernel="6", cores=8, logical_cpus=8, memory=2**34)


def cpu(request, runtime, default):
    share = choose_share(EIGHT_CORES, request.host_cores, request.host_memory, request.over, request.placement)
    containers = Containers(runtime, share, EIGHT_CORES.logical_cpus, request.vcpus, request.cpu_mode)
    return choose_cpu(containers, default)


def choose(memory, runtime):
    return choose_memory(Containers(runtime, HostShare(8, 2**33), 8, memory=None if memory is None else Size(memory)))


@pytest.mark.parametrize(
    ("runtime", "asked", "vcpus", "found"),
    [
        ("cgroup", {}, 0.25, ContainerCpu(0.25, "quota")),
        ("cgroup", {"vcpus": 2}, 0.25, ContainerCpu(2, "quota")),
        ("cgroup", {"vcpus": 2, "cpu_mode": "cpuset"}, 1, ContainerCpu(2, "cpuset")),
        ("process", {}, 0.25, ContainerCpu(1, "cpuset")),
        ("process", {"vcpus": 0.5}, 1, ContainerCpu(0.5, "none")),
        ("process", {"host_cores": 0.5}, 1, ContainerCpu(0.5, "none")),
        ("process", {"host_cores": 1.0}, 0.25, ContainerCpu(1, "cpuset")),
        ("vm", {}, 0.25, ContainerCpu(1, "none")),
        ("vm", {"vcpus": 0.5, "cpu_mode": "quota"}, 1, ContainerCpu(0.5, "quota")),
    ],
)
def test_cpu(runtime, asked, vcpus, found):
    assert cpu(DatabaseRequest(**asked), runtime, vcpus) == found


@pytest.mark.parametrize(("runtime", "cores", "found"), [("cgroup", 1.5, 1.5), ("process", 1.5, 1.0), ("process", 2.0, 2.0)])
def test_nothing_is_chosen_that_no_host_has(runtime, cores, found):
    over = (Host(name="a", cores=1.0), Host(name="b", cores=cores))
    assert cpu(DensityRequest(over=over), runtime, 2.5).vcpus == found
    with pytest.raises(UsageError, match=f"--vcpus 3 is more than the {cores:g} cores"):
        cpu(DensityRequest(over=over, vcpus=3), runtime, 2.5)


@pytest.mark.parametrize(
    ("runtime", "asked", "error", "message"),
    [
        ("process", {"cpu_mode": "quota"}, CapabilityError, "needs the cgroup runtime"),
        ("cgroup", {"vcpus": 1.5, "cpu_mode": "cpuset"}, UsageError, "gives whole CPUs"),
        ("cgroup", {"vcpus": 9}, UsageError, "--vcpus 9 is more than the 8 cores"),
        ("cgroup", {"vcpus": 0.005}, UsageError, "--vcpus 0.005 is less than the least CPU quota that the kernel accepts, 0.01 cores"),
        ("vm", {"vcpus": 1.5}, UsageError, "a guest has whole vCPUs"),
        ("vm", {"vcpus": 9}, UsageError, "more than the 8 CPUs of this host"),
    ],
)
def test_what_cannot_be_given_is_said(runtime, asked, error, message):
    with pytest.raises(error, match=message):
        cpu(DatabaseRequest(**asked), runtime, 1)


def test_memory():
    assert choose(None, "process") is None
    assert choose("1GB", "cgroup") == choose("1GB", "vm") == 2**30
    with pytest.raises(CapabilityError, match="--memory needs the cgroup runtime"):
        choose("1GB", "process")
    with pytest.raises(UsageError, match="--memory 0 is less than the 24.4 MB that a server needs"):
        choose("0", "cgroup")


def guest_can(request, scripts=()):
    require_guest_can(LocalNode(), request.huge_pages, request.client_placement, scripts)


@pytest.mark.parametrize("pages", ["2MB", "thp"])
def test_huge_pages_of_this_machine_are_none_of_a_guests(pages):
    with pytest.raises(CapabilityError, match="a server in a guest uses the guest's kernel"):
        guest_can(DatabaseRequest(huge_pages=pages))


@pytest.mark.parametrize("asked", [{"wal_volume": "/wal"}, {"data_volume": "loop:1GB"}, {"tablespace_volume": ("loop:1GB",)}])
def test_what_lies_apart_may_be_on_disks_of_a_guest(asked):
    guest_can(DatabaseRequest(**asked))


def test_scripts_that_call_programs_stay_outside_guests(tmp_path):
    mine, plain = tmp_path / "mine.sql", tmp_path / "plain.sql"
    mine.write_text("SELECT 1;\n\\set a 1\n\\shell date\n")
    plain.write_text("SELECT '\\shell';\n")
    calls = (Script(source=str(plain)), Script(source=str(mine)))
    with pytest.raises(UsageError, match=r"mine\.sql:3: \\shell runs a program of the machine"):
        guest_can(DatabaseRequest(), calls)
    guest_can(DatabaseRequest(client_placement="outside"), calls)
    guest_can(DatabaseRequest(), (Script(source="builtin:select-only"), Script(source=str(plain))))


def test_a_guest_is_given_what_its_server_needs_and_its_system():
    small = guest_memory_needed({"shared_buffers": "32MB", "max_connections": "20"})
    assert 256 * 2**20 <= small <= 448 * 2**20 and small % (64 * 2**20) == 0
    assert guest_memory_needed({"shared_buffers": "1GB", "max_connections": "20"}) >= small + 2**30 - 64 * 2**20
    assert guest_memory_needed({"shared_buffers": "4096", "max_connections": "20"}) == small, "pages of 8 kB"


CGROUP = capabilities_of("cgroup")


@pytest.mark.parametrize(
    ("cgroup", "asked", "words"),
    [
        ("v1", {"cpu_weight": 200}, []),
        ("v1", {"iops": 200}, ["does not limit the pages that the kernel writes back later"]),
        ("v2", {"io_bandwidth": Size("10MB")}, ["cgroup writeback"]),
    ],
)
def test_io_limits_say_what_they_do_not_limit(cgroup, asked, words):
    messages = check_io(Containers("cgroup", HostShare(4, GB), 4, **asked), CGROUP, FACTS.model_copy(update={"cgroup": cgroup}))
    assert len(messages) == len(words) and all(word in message for word, message in zip(words, messages, strict=True))


def test_io_limits_need_cgroups_and_their_controller():
    share = HostShare(4, GB)
    with pytest.raises(CapabilityError, match="--cpu-weight needs the cgroup runtime"):
        check_io(Containers("process", share, 4, cpu_weight=10, iops=5), capabilities_of("process"), FACTS)
    without = replace(CGROUP, io_limit=False, missing={"io_limit": "the blkio controller is not mounted"})
    with pytest.raises(CapabilityError, match="--iops cannot be enforced: the blkio controller is not mounted"):
        check_io(Containers("cgroup", share, 4, iops=5), without, FACTS)
    with pytest.raises(UsageError, match="--io-bandwidth 1kB is less than the minimum, 64 kB per second"):
        check_io(Containers("cgroup", share, 4, io_bandwidth=Size("1kB")), CGROUP, FACTS)
