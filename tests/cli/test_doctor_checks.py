import pytest

from pgherd.cli.doctor_checks import StudyCapability, network_check, vm_check
from pgherd.host import netns
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import disk_image, hypervisor, initramfs, kernel
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel


def values(check: StudyCapability) -> tuple[str, str, str]:
    return check.status, check.capability, check.missing


def test_without_iperf3_there_is_no_network():
    assert values(network_check(LocalNode(), None))[::2] == ("unavailable", "install the package iperf3")


def test_without_namespaces_there_are_other_hosts(monkeypatch):
    def refuse(node):
        raise CapabilityError("need root")

    monkeypatch.setattr(netns, "require_root", refuse)
    assert values(network_check(LocalNode(), "3.12"))[::2] == ("limited", "need root")


@pytest.fixture
def virtual_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "program", lambda: "/usr/bin/qemu-system-x86_64")
    monkeypatch.setattr(disk_image, "mkfs", lambda: "/sbin/mkfs.ext4")
    monkeypatch.setattr(initramfs, "busybox", lambda: "/bin/busybox")
    monkeypatch.setattr(kernel, "present", lambda cache: Kernel("/k", "6.1", "/m", "installed"))
    monkeypatch.setattr(hypervisor, "find", lambda *_: Hypervisor("q", "7.2", True, "kvm"))


@pytest.mark.usefixtures("virtual_machines")
def test_with_kvm() -> None:
    assert values(vm_check(LocalNode())) == (
        "available",
        "databases in virtual machines, by QEMU 7.2 with KVM and Linux 6.1 (installed)",
        "",
    )


@pytest.mark.usefixtures("virtual_machines")
def test_by_emulation_it_is_functional_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "find", lambda *_: Hypervisor("q", "7.2", True, "tcg", "no device"))
    check = vm_check(LocalNode())
    assert check.status == "limited" and "functional only" in check.capability and check.missing == "KVM: no device"


@pytest.mark.usefixtures("virtual_machines")
def test_without_a_kernel_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "present", lambda cache: None)
    assert "'pgherd vm build' downloads a kernel" in vm_check(LocalNode()).missing


@pytest.mark.usefixtures("virtual_machines")
def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CapabilityError("no mkfs")

    monkeypatch.setattr(disk_image, "mkfs", missing)
    monkeypatch.setattr(initramfs, "busybox", missing)
    assert values(vm_check(LocalNode())) == ("unavailable", "databases in virtual machines", "no mkfs; no mkfs")
