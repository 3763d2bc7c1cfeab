from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.runtimes.vm import hypervisor, initramfs
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel

KERNEL = Kernel("/boot/vmlinuz-1", "1", "/nowhere", "installed")


class Qemu(LocalNode):
    """A node on which QEMU says what it is told to."""

    def __init__(
        self, *, console: str = "pgherd: booted\n", code: int = 0, err: str = "", hangs: bool = False, sandbox: bool = True
    ) -> None:
        super().__init__()
        self.console, self.code, self.err, self.hangs, self.sandbox = console, code, err, hangs, sandbox
        self.boots = 0

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        text = list(command.argv)
        if "--version" in text:
            return Completed(0, "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n", "")
        if "none" in text and "-machine" in text and text[text.index("-machine") + 1] == "none":
            return Completed(0 if self.sandbox else 1, "", "")
        self.boots += 1
        if self.hangs:
            raise TimeoutError("it did not end")
        serial = next(word for word in text if word.startswith("file:"))
        Path(serial.removeprefix("file:")).write_text(self.console)
        return Completed(self.code, "", self.err)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A device that can be opened, and programs that are there."""
    file = tmp_path / "kvm"
    file.touch()
    monkeypatch.setattr(hypervisor, "DEVICE", str(file))
    monkeypatch.setattr(hypervisor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(initramfs, "archive", lambda *_, **__: b"archive")
    return file


def find(node: Qemu, tmp_path: Path, **extra):
    return hypervisor.find(node, KERNEL, str(tmp_path / "cache"), str(tmp_path), **extra)


def test_a_kernel_that_boots_by_kvm_makes_it_the_accelerator(tmp_path: Path) -> None:
    result = find(Qemu(), tmp_path)
    assert (result.accelerator, result.why, result.sandbox, result.version) == ("kvm", "", True, "7.2.22")
    assert not result.functional_only and result.sentence() == "QEMU 7.2.22 with KVM"


@pytest.mark.skipif(os.geteuid() != 0, reason="QEMU runs as another user only for root")
def test_the_cache_that_it_creates_can_be_entered_by_others(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        find(Qemu(), tmp_path)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("cache", "cache/vm")] == [0o711, 0o711]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Qemu(hangs=True), "did not boot with it within 15 s"),
        (Qemu(console="", code=1, err="qemu: failed to initialize kvm: Device or resource busy\n"), "failed to initialize kvm"),
        (Qemu(console="Kernel panic - not syncing\n"), "Kernel panic - not syncing"),
        (Qemu(console="", code=-6), "QEMU ended with exit code -6"),
    ],
)
def test_a_device_by_which_nothing_boots_is_not_used(tmp_path: Path, node: Qemu, reason: str) -> None:
    result = find(node, tmp_path)
    assert result.accelerator == "tcg" and reason in result.why and result.functional_only
    assert "functional only" in result.sentence() and reason in result.sentence()


def test_the_result_is_kept_for_this_kernel_and_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Qemu(console="Kernel panic - not syncing\n")
    first = find(node, tmp_path)
    monkeypatch.setattr(hypervisor.time, "time", lambda: 4e9)
    assert find(node, tmp_path) == first and node.boots == 1
    assert hypervisor.remembered(node, KERNEL, str(tmp_path / "cache")) == first
    find(node, tmp_path, again=True)
    assert node.boots == 2
    other = Kernel("/boot/vmlinuz-2", "2", "/nowhere", "installed")
    hypervisor.find(node, other, str(tmp_path / "cache"), str(tmp_path))
    assert node.boots == 3


def test_without_the_device_nothing_is_tried(tmp_path: Path, device: Path) -> None:
    device.unlink()
    node = Qemu()
    result = find(node, tmp_path)
    assert result.accelerator == "tcg" and "switch virtualisation on" in result.why and node.boots == 0
    assert not (tmp_path / "cache").exists()  # it may be there tomorrow


def test_an_accelerator_can_be_asked_for(tmp_path: Path) -> None:
    assert find(Qemu(), tmp_path, accelerator="tcg").accelerator == "tcg"
    with pytest.raises(CapabilityError, match="KVM does not run guests here: .*--accel tcg"):
        find(Qemu(hangs=True), tmp_path, accelerator="kvm", again=True)


def test_a_qemu_without_seccomp_gets_no_sandbox(tmp_path: Path) -> None:
    assert not find(Qemu(sandbox=False), tmp_path).sandbox


def test_without_qemu_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hypervisor.shutil, "which", lambda name: None)
    with pytest.raises(CapabilityError, match="install the package qemu-system-x86"):
        find(Qemu(), tmp_path)


def test_qemu_is_found_where_red_hat_puts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hypervisor.shutil, "which", lambda name: name if name.startswith("/usr/libexec/") else None)
    assert find(Qemu(), tmp_path).program == "/usr/libexec/qemu-kvm"


@pytest.mark.parametrize(
    "node",
    [
        Qemu(hangs=True),
        Qemu(console="", code=1, err="Could not access KVM kernel module: Device or resource busy\n"),
        Qemu(console="", code=1, err="Could not access KVM kernel module: No such device\nfailed to initialize kvm\n"),
        Qemu(console="", code=-9),
    ],
)
def test_what_may_have_been_the_moments_fault_is_tried_again(tmp_path: Path, node: Qemu, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.boots
    assert find(node, tmp_path) == find(node, tmp_path) and node.boots == before + 1, "within a run nothing else is found"
    later = hypervisor.time.time() + hypervisor.PASSING_SECONDS + 1
    monkeypatch.setattr(hypervisor.time, "time", lambda: later)
    assert hypervisor.remembered(node, KERNEL, str(tmp_path / "cache")) is None
    assert not find(Qemu(), tmp_path).functional_only


def test_what_qemu_needs_for_itself_is_reckoned_by_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, node = str(tmp_path / "cache"), Qemu()
    monkeypatch.setattr(hypervisor.kernels, "present", lambda cache_dir: None)
    assert hypervisor.overhead(node, cache) == hypervisor.OVERHEAD["tcg"], "nothing is known yet"
    monkeypatch.setattr(hypervisor.kernels, "present", lambda cache_dir: KERNEL)
    assert hypervisor.overhead(node, cache) == hypervisor.OVERHEAD["tcg"]
    find(node, tmp_path)
    assert hypervisor.overhead(node, cache) == hypervisor.OVERHEAD["kvm"] < hypervisor.OVERHEAD["tcg"]
    monkeypatch.setattr(hypervisor.shutil, "which", lambda name: None)
    assert hypervisor.overhead(node, cache) == hypervisor.OVERHEAD["tcg"], "what is missing is said elsewhere"


def test_the_group_of_the_device_is_what_an_account_needs(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device.unlink()
    kvm, tcg = (Hypervisor("/q", "7.2", True, item) for item in ("kvm", "tcg"))
    assert hypervisor.groups_for(kvm) == (), "it is not there: QEMU will say so"
    device.write_text("")
    result = device.stat()
    for mode, group, groups in ((0o666, 0, ()), (0o660, 107, ("107",)), (0o660, 0, None), (0o600, 107, None)):
        device.chmod(mode)
        status = os.stat_result((stat.S_IFCHR | mode, *result[1:5], group, *result[6:]))
        monkeypatch.setattr(hypervisor.os, "stat", lambda path, status=status: status)
        assert hypervisor.groups_for(kvm) == groups
        assert hypervisor.groups_for(tcg) == ()
