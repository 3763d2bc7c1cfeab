"""What is asked of guests' hypervisors, before anything is begun; tests/it/test_vm.py has it done."""

import pytest

from pgherd.host import huge_pages, ksm
from pgherd.host.huge_pages import HugePagePool
from pgherd.host.storage import Mount
from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Container, Deployment, Host, Server, VmMemoryPolicy, VmOptions, Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.trial import Trial
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import guests as module
from pgherd.prepare.guests import (
    RequestedGuests,
    describe_guests,
    find_hypervisor,
    host_changes,
    page_cache,
    requested_machine,
    require_pinnable,
    whole_memory,
)
from pgherd.prepare.volumes import ServerVolumes
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel
from pgherd.study.database_options import DatabaseOptions

MB = 2**20
STATIC = VmMemoryPolicy()


def asked_machine(request, runtime, vcpus, cores):
    machine = requested_machine(request, runtime)
    require_pinnable(machine, vcpus, cores)
    return machine


def test_nothing_asked_is_nothing():
    assert asked_machine(RequestedGuests(), "vm", 1, 2) is None
    assert asked_machine(RequestedGuests(), "cgroup", 1, 2) is None


def test_what_is_asked():
    asked = RequestedGuests(huge_pages=Size("2MB"), pin_vcpus=True)
    assert asked_machine(asked, "vm", 2, 2) == VmOptions(pinned=True, huge_page=2 * MB)
    assert asked_machine(RequestedGuests(ksm=True), "vm", 2, 2) == VmOptions(merge=True)


@pytest.mark.parametrize(
    ("asked", "runtime", "message"),
    [
        ({"ksm": True}, "cgroup", "--vm-ksm: this is for virtual machines; add --runtime vm"),
        ({"huge_pages": Size("2MB"), "pin_vcpus": True}, "process", "--vm-huge-pages, --vm-pin-vcpus"),
        ({"pin_vcpus": True}, "vm", "a guest has 4 vCPUs and the run 2 CPUs"),
        ({"huge_pages": Size("2MB"), "ksm": True}, "vm", "leave one out"),
        ({"huge_pages": Size("0")}, "vm", "--vm-huge-pages 0 is no size of a page"),
        ({"huge_pages": Size("2MB"), "policy": "virtio-balloon"}, "vm", "cannot be given back"),
    ],
)
def test_what_contradicts_itself_is_refused(asked, runtime, message):
    with pytest.raises(UsageError, match=message):
        asked_machine(RequestedGuests(**asked), runtime, 4, 2)


@pytest.fixture
def study(monkeypatch):
    """A study that proposes one trial for each list of containers."""

    def make(*together, budget=None):
        trials = tuple(
            Trial(point={"n": number}, deployment=Deployment(hosts=(Host(memory=budget, containers=tuple(containers)),)), phases=())
            for number, containers in enumerate(together)
        )
        monkeypatch.setattr(
            module, "study_of", lambda name: type("Study", (), {"propose": lambda self, options, results: Proposal(trials=trials)})()
        )

    return make


def guest(name, memory=512 * MB, **asked):
    return Container(name=name, runtime="vm", memory=memory, vm=VmOptions(**asked) if asked else None)


def test_guests_that_are_not_asked_for_anything_change_nothing(study):
    study([guest("a"), guest("b")])
    assert host_changes(LocalNode(), "any", STATIC, STATIC, 2**31) == ((), {})


def test_huge_pages_are_those_of_the_trial_that_needs_most(study, monkeypatch):
    monkeypatch.setattr(huge_pages, "check", lambda node, wanted: None)
    monkeypatch.setattr(huge_pages, "may_reserve", lambda node, size: True)
    study([guest("a", huge_page=2 * MB)], [guest("a", huge_page=2 * MB), guest("b", huge_page=2 * MB)])
    changes, wanted = host_changes(LocalNode(), "any", STATIC, STATIC, 2**31)
    assert wanted == {2 * MB: 512}
    assert len(changes) == 1 and "512 huge pages of 2MB (1 GB) reserved for guests while they run" in changes[0]


def test_memory_that_is_no_multiple_of_its_pages_is_refused(study):
    study([guest("a", memory=1500 * MB, huge_page=2**30)])
    with pytest.raises(UsageError, match="no multiple of its huge pages of 1 GB"):
        host_changes(LocalNode(), "any", STATIC, STATIC, 2**40)


def test_more_disks_than_a_guest_can_have_are_refused(study):
    def shared(count, **asked):
        servers = tuple(Server(name=f"db{number}", bin="/pg", version="18.1", **asked) for number in range(count))
        return Container(name="a", runtime="vm", memory=512 * MB, servers=servers)

    study([shared(40)])
    assert host_changes(LocalNode(), "any", STATIC, STATIC, 2**30) == ((), {})
    study([guest("a")], [shared(41)])
    with pytest.raises(UsageError, match="guest a needs 41 disks for its 41 servers, and a guest can have 40; lower --databases"):
        host_changes(LocalNode(), "any", STATIC, STATIC, 2**30)


def test_volumes_count_as_disks():
    asked = {"volumes": {"data": "v", "wal": "v"}, "tablespaces": ("v", "v")}
    servers = tuple(Server(name=f"db{number}", bin="/pg", version="18.1", **asked) for number in range(11))
    module._require_disks(Container(name="a", runtime="vm", servers=servers[:10]))
    with pytest.raises(UsageError, match="needs 44 disks for its 11 servers"):
        module._require_disks(Container(name="a", runtime="vm", servers=servers))


def test_merging_is_a_change_where_it_is_off(study, monkeypatch):
    study([guest("a", merge=True)])
    monkeypatch.setattr(ksm, "check", lambda node: None)
    monkeypatch.setattr(ksm, "running", lambda node: False)
    assert "equal pages (KSM) switched on" in host_changes(LocalNode(), "any", STATIC, STATIC, 2**30)[0][0]
    monkeypatch.setattr(ksm, "running", lambda node: True)
    assert host_changes(LocalNode(), "any", STATIC, STATIC, 2**30)[0] == ()

    def cannot(node):
        raise CapabilityError("not here")

    monkeypatch.setattr(ksm, "check", cannot)
    with pytest.raises(CapabilityError, match="not here"):
        host_changes(LocalNode(), "any", STATIC, STATIC, 2**30)


def test_minima_of_balloons_must_fit_the_budget(study):
    study([guest("a"), guest("b")])
    balloons = VmMemoryPolicy(policy="virtio-balloon")
    assert host_changes(LocalNode(), "any", STATIC, balloons, 2**30) == ((), {})
    with pytest.raises(UsageError, match="2 guests are guaranteed"):
        host_changes(LocalNode(), "any", STATIC, balloons, 300 * MB)


def test_guests_and_their_hypervisors_must_fit_where_nobody_takes_memory_back(study):
    """What a guest was given its page cache fills: then the kernel would swap hypervisors out, or end them."""
    study([guest("a")], [guest("a"), guest("b")])
    policy = VmMemoryPolicy(policy="free-page-reporting", overhead=64 * MB)
    assert host_changes(LocalNode(), "any", STATIC, policy, 1152 * MB) == ((), {})
    refused = r"2 guests with 1 GB of memory and 128 MB for QEMU need more than the host's memory budget of 1.12 GB; lower"
    with pytest.raises(UsageError, match=refused):
        host_changes(LocalNode(), "any", STATIC, policy, 1151 * MB)
    study([guest("a")])
    with pytest.raises(UsageError, match="1 guest with 512 MB of memory and 64 MB for QEMU need more"):
        host_changes(LocalNode(), "any", STATIC, STATIC, 512 * MB)
    assert host_changes(LocalNode(), "any", STATIC, VmMemoryPolicy(policy="virtio-balloon"), 512 * MB) == ((), {}), "balloons take the rest"
    study([guest("a"), guest("b")], budget=600 * MB)
    assert host_changes(LocalNode(), "any", STATIC, STATIC, 2**30) == ((), {}), "the trial is short of memory on purpose"


def test_a_weight_is_of_a_guest_that_there_is(study):
    study([guest("a")], [guest("a"), guest("b")])
    given = DatabaseOptions(host_cores=1, host_memory=2**30, vcpus=1, pg_bin="/b", pg_version="18", vm_memory_shares={"b": 2.0})
    assert host_changes(LocalNode(), "any", given, STATIC, 2**31) == ((), {})
    with pytest.raises(UsageError, match="--vm-memory-shares c: no guest of this run has that name; use one of a, b"):
        host_changes(LocalNode(), "any", given.model_copy(update={"vm_memory_shares": {"c": 2.0}}), STATIC, 2**31)


@pytest.mark.parametrize(("dry", "tried"), [(True, 0), (False, 1)])
def test_what_runs_guests_is_tried_unless_nothing_is_to_be_done(monkeypatch, tmp_path, dry, tried):
    kernel, found, calls = Kernel("/boot/vmlinuz", "6.1", "/lib/modules/x", "installed"), Hypervisor("/q", "7.2", True, "kvm"), []
    monkeypatch.setattr(module.kernel, "present", lambda cache: kernel)
    monkeypatch.setattr(module.kernel, "ensure", lambda *given, say: kernel)
    monkeypatch.setattr(module.hypervisor, "remembered", lambda node, kernel, cache: None)
    monkeypatch.setattr(module.hypervisor, "find", lambda node, *given: calls.append(given) or found)
    assert find_hypervisor(LocalNode(), tmp_path, tmp_path, dry=dry) == (kernel, None if dry else found)
    assert calls == [(kernel, str(tmp_path), str(tmp_path))] * tried


def test_by_what_guests_run_is_said(monkeypatch):
    beneath = Kernel("/boot/vmlinuz", "6.1.0-40-cloud-amd64", "/lib/modules/x", "unpacked"), Hypervisor("/q", "7.2", True, "kvm")
    monkeypatch.setattr(module.hypervisor, "groups_for", lambda found: ())
    pools = {2 * MB: HugePagePool(2 * MB, 0, 0, 0, 0, {0: 0})}
    monkeypatch.setattr(module.huge_pages, "pools", lambda node: pools)
    said = describe_guests(LocalNode(), beneath, VmOptions(pinned=True, huge_page=2 * MB), 64 * MB)
    assert said == (
        "Guests run by QEMU 7.2 with KVM; Linux 6.1.0-40-cloud-amd64 (unpacked); vCPU model 'host', machine q35; "
        "each vCPU pinned to one CPU (vCPUs share CPUs if the guests have more vCPUs than the run has cores), huge pages of 2MB, "
        "estimated memory of each QEMU process without its guest's memory: 64 MB."
    )
    monkeypatch.setattr(module.hypervisor, "version", lambda node: "7.2")
    for unknown in ((beneath[0], None), (None, None)):
        assert "KVM is probed when the first guest boots" in describe_guests(LocalNode(), unknown, None, 64 * MB)


def test_huge_pages_on_several_numa_nodes_are_said_to_be_remote(monkeypatch):
    beneath = Kernel("/boot/vmlinuz", "6.1", "/lib/modules/x", "installed"), Hypervisor("/q", "7.2", True, "tcg")
    monkeypatch.setattr(module.huge_pages, "pools", lambda node: {2 * MB: HugePagePool(2 * MB, 0, 0, 0, 0, {0: 0, 1: 0})})
    said = describe_guests(LocalNode(), beneath, VmOptions(pinned=True, huge_page=2 * MB), 64 * MB)
    assert "may be on another NUMA node than their vCPUs, because the kernel reserves huge pages on all 2 nodes" in said
    assert "NUMA" not in describe_guests(LocalNode(), beneath, VmOptions(pinned=True), 64 * MB)


def test_root_says_why_it_runs_qemu_itself(monkeypatch):
    beneath = Kernel("/boot/vmlinuz", "6.1", "/lib/modules/x", "installed"), Hypervisor("/q", "7.2", True, "kvm")
    monkeypatch.setattr(module.hypervisor, "groups_for", lambda found: None)
    for uid, said in ((0, True), (1000, False)):
        monkeypatch.setattr(module.os, "geteuid", lambda uid=uid: uid)
        assert ("QEMU runs as root, because only root's group" in describe_guests(LocalNode(), beneath, None, 64 * MB)) is said


def test_memory_is_rounded_to_what_qemu_can_be_told():
    assert whole_memory(512 * MB) == (512 * MB, ())
    memory, (said,) = whole_memory(512 * MB + 7)
    assert memory == 512 * MB and "Each guest has 512 MB" in said and "rounded down" in said


def test_a_cache_below_the_guests_disks_is_said_and_no_working_set_is_measured_on_it(monkeypatch, tmp_path):
    cached = {str(tmp_path)}
    monkeypatch.setattr(module.storage, "direct_io_works", lambda directory: directory not in cached)
    cache = tmp_path / "not" / "yet"
    assert "this host's page cache also holds the guests' disks" in page_cache(LocalNode(), "density", cache, ServerVolumes())[0]
    with pytest.raises(CapabilityError, match=r"the knee would not be visible.*--data-volume"):
        page_cache(LocalNode(), "working-set", cache, ServerVolumes())
    elsewhere = ServerVolumes(volumes=(Volume(name="v", path="/fast"),), roles={"data": "v"})
    assert page_cache(LocalNode(), "working-set", cache, elsewhere) == ()
    cached.add("/fast")
    assert "/fast does not support direct I/O" in page_cache(LocalNode(), "density", cache, elsewhere)[0]
    cached.clear()
    monkeypatch.setattr(module.storage, "mount_of", lambda node, path: Mount("0:31", "/fast", "tmpfs", "tmpfs", False))
    assert "is in memory" in page_cache(LocalNode(), "density", cache, elsewhere)[0]
