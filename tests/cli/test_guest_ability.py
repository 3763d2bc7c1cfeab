from __future__ import annotations

import pytest

from pgherd.cli import guest_ability
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import acceleration, disk_image, initramfs, kernel
from pgherd.runtimes.vm.acceleration import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "program", lambda: "/usr/bin/qemu-system-x86_64")
    monkeypatch.setattr(disk_image, "mkfs", lambda: "/sbin/mkfs.ext4")
    monkeypatch.setattr(initramfs, "busybox", lambda: "/bin/busybox")
    monkeypatch.setattr(kernel, "present", lambda cache: Kernel("/k", "6.1", "/m", "installed"))
    monkeypatch.setattr(acceleration, "find", lambda *_: Hypervisor("q", "7.2", True, "kvm"))


def test_with_kvm() -> None:
    assert guest_ability.guest_ability(LocalNode())[1:] == (
        "yes",
        "databases in virtual machines, by QEMU 7.2 with KVM and Linux 6.1 (installed)",
        "",
    )


def test_by_emulation_it_is_functional_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "find", lambda *_: Hypervisor("q", "7.2", True, "tcg", "no device"))
    _, able, what, more = guest_ability.guest_ability(LocalNode())
    assert able == "partly" and "functional only" in what and more == "KVM: no device"


def test_without_a_kernel_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "present", lambda cache: None)
    assert "'pgherd vm build' fetches a kernel" in guest_ability.guest_ability(LocalNode())[3]


def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CapabilityError("no mkfs")

    monkeypatch.setattr(disk_image, "mkfs", missing)
    monkeypatch.setattr(initramfs, "busybox", missing)
    assert guest_ability.guest_ability(LocalNode())[1:] == ("no", "databases in virtual machines", "no mkfs; no mkfs")
