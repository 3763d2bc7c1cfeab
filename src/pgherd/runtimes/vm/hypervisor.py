"""Detection of QEMU: version, seccomp sandbox, and whether KVM boots a guest.

The presence of ``/dev/kvm`` is not enough: in some nested or sandboxed machines a stock kernel does not boot with KVM. The check boots one
with an initramfs that only powers off. The result is cached for this kernel and this QEMU. A failure that may be temporary is cached for an
hour.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node
from pgherd.runtimes.vm import initramfs
from pgherd.runtimes.vm import kernel as kernels
from pgherd.runtimes.vm.kernel import Kernel
from pgherd.runtimes.vm.log_pipe import LogPipe
from pgherd.runtimes.vm.qemu import PROGRAMS

DEVICE = "/dev/kvm"
PROBE_SECONDS = 15.0
"""Time limit of the probe. With KVM the kernel takes less than two seconds."""
FUNCTIONAL_ONLY = "emulated processors (TCG): functional only, timings are meaningless"
PASSING_SECONDS = 3600.0
"""Validity of a failure that may be temporary: the kernel was too slow, or the device or memory was in use."""
OVERHEAD: Mapping[Literal["kvm", "tcg"], int] = {"kvm": 64 * 2**20, "tcg": 104 * 2**20}
"""Estimated memory of QEMU beyond the memory of its guest, bytes.

With emulation 70 to 97 MB were measured, of which up to 32 MB are translated code. KVM has none. With KVM it was not measured.
"""
_TEMPORARY = re.compile("could not access KVM|resource busy|temporarily unavailable|cannot allocate memory", re.IGNORECASE)
"""QEMU prints the first text where it cannot open the device, e.g. before the module is loaded or access is granted."""
_BOOTED = "pgherd: booted"
_INIT = f"#!/bin/busybox sh\n/bin/busybox echo '{_BOOTED}'\n/bin/busybox poweroff -f\n"
_SECCOMP = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@dataclass(frozen=True)
class Hypervisor:
    """QEMU on this host: program, version, whether its seccomp sandbox works, and the accelerator of guests.

    ``why`` is the reason why the accelerator is not KVM ('' where it is).
    """

    program: str
    version: str
    sandbox: bool
    accelerator: Literal["kvm", "tcg"]
    why: str = ""

    @property
    def functional_only(self) -> bool:
        """Whether timings of its guests are meaningless, because processors are emulated."""
        return self.accelerator == "tcg"

    def sentence(self) -> str:
        """Return a description for people."""
        return (
            f"QEMU {self.version} with KVM" if not self.functional_only else f"QEMU {self.version}, {FUNCTIONAL_ONLY} (no KVM: {self.why})"
        )


def located() -> str | None:
    """Return the path of QEMU, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def program() -> str:
    """Return the path of QEMU. Raises CapabilityError where it is missing."""
    if (path := located()) is not None:
        return path
    names = " (or ".join(PROGRAMS) + ")"
    raise CapabilityError(f"{names} is missing (it runs virtual machines); install the package qemu-system-x86 (Red Hat: qemu-kvm)")


def version(node: Node) -> str:
    """Return QEMU's version. Raises CapabilityError where it is missing or does not run."""
    name = program()
    completed = node.run(Command([name, "--version"]), timeout=20)
    match = re.search(r"version (\d+(?:\.\d+)+)", completed.out)
    if completed.code or match is None:
        raise CapabilityError(f"{name} --version prints no QEMU version: {(completed.err or completed.out).strip()[:200]}")
    return match[1]


def find(node: Node, kernel: Kernel, cache_dir: str, scratch: str, *, accelerator: str | None = None, again: bool = False) -> Hypervisor:
    """Return the hypervisor for guests, from the cache if possible. ``accelerator`` requests one of them.

    Raises:
        CapabilityError: QEMU is missing, or KVM was requested and does not work.
    """
    qemu_version = version(node)
    file = Path(cache_dir, "vm", "hypervisor.json")
    key = _key(qemu_version, kernel)
    hypervisor = None if again else _cached(file, key)
    if hypervisor is None:
        sandbox = _sandboxed(node, scratch)
        device_error = _no_device()
        reason, permanent = (device_error, True) if device_error else _boot(node, kernel, scratch, sandbox)
        hypervisor = Hypervisor(program(), qemu_version, sandbox, "tcg" if reason else "kvm", reason)
        if not device_error:  # not cached, because access may be granted or a module loaded at any time
            kernels.make_home(cache_dir)
            temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
            until = None if permanent else time.time() + PASSING_SECONDS
            temporary.write_text(json.dumps({"key": key, "until": until, "found": asdict(hypervisor)}))
            temporary.replace(file)
    if accelerator == "kvm" and hypervisor.functional_only:
        raise CapabilityError(f"KVM does not run guests here: {hypervisor.why}; use --accel tcg for functional tests")
    if accelerator == "tcg" and not hypervisor.functional_only:
        return Hypervisor(hypervisor.program, hypervisor.version, hypervisor.sandbox, "tcg", "emulation was asked for")
    return hypervisor


def remembered(node: Node, kernel: Kernel, cache_dir: str) -> Hypervisor | None:
    """Return the cached result, or None before the first probe."""
    return _cached(Path(cache_dir, "vm", "hypervisor.json"), _key(version(node), kernel))


def overhead(node: Node, cache_dir: str) -> int:
    """Return the estimated memory of QEMU beyond its guest's memory, bytes. Until a probe has succeeded with KVM it is the larger one."""
    guest_kernel = kernels.present(cache_dir)
    hypervisor = None
    with contextlib.suppress(CapabilityError):
        hypervisor = None if guest_kernel is None else remembered(node, guest_kernel, cache_dir)
    return OVERHEAD["tcg" if hypervisor is None else hypervisor.accelerator]


def groups_for(hypervisor: Hypervisor) -> tuple[str, ...] | None:
    """Return the groups that another user needs to run guests. None where no group helps, or only root's, which grants more than the
    device."""
    if hypervisor.functional_only:
        return ()
    try:
        status = os.stat(DEVICE)
    except FileNotFoundError:
        return ()
    if status.st_mode & 0o006 == 0o006:
        return ()
    return (str(status.st_gid),) if status.st_gid and status.st_mode & 0o060 == 0o060 else None


def _key(qemu_version: str, kernel: Kernel) -> str:
    host = os.uname()
    device = os.stat(DEVICE).st_rdev if os.path.exists(DEVICE) else 0
    return hashlib.sha256(
        json.dumps([qemu_version, kernel.release, host.release, host.version, device, os.geteuid()]).encode()
    ).hexdigest()[:16]


def _cached(file: Path, key: str) -> Hypervisor | None:
    try:
        document = json.loads(file.read_text())
        until = document["until"]
        valid = document["key"] == key and (until is None or time.time() < until <= time.time() + PASSING_SECONDS)
        return Hypervisor(**document["found"]) if valid else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _no_device() -> str:
    """Return the reason why KVM cannot be probed, or ''."""
    if not os.path.exists(DEVICE):
        return f"there is no {DEVICE}; on hardware, switch virtualisation on in the firmware and load kvm_intel or kvm_amd"
    if os.access(DEVICE, os.R_OK | os.W_OK):
        return ""
    status = os.stat(DEVICE)
    if not status.st_gid or status.st_mode & 0o060 != 0o060:
        return f"{DEVICE} is not accessible; run pgherd as root"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return f"{DEVICE} is not accessible; add this user to the group {group}"


def _sandboxed(node: Node, scratch: str) -> bool:
    """Return whether this QEMU was built with seccomp, and the kernel supports it."""
    script = Path(scratch, "monitor-words")
    script.write_text("quit\n")
    argv = [program(), "-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "stdio", "-sandbox", _SECCOMP]
    try:
        return node.run(Command(argv, stdin=str(script)), timeout=20).code == 0
    except TimeoutError:
        return False


def _boot(node: Node, kernel: Kernel, scratch: str, sandbox: bool) -> tuple[str, bool]:
    """Boot a kernel with KVM. Return the reason of a failure ('' for success), and whether it is permanent."""
    initrd, console = Path(scratch, "probe-initrd"), os.path.join(scratch, "probe-console")
    initrd.write_bytes(initramfs.archive(kernel, (), init=_INIT))
    argv = [
        program(),
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "q35",
        "-accel",
        "kvm",
        "-cpu",
        "host",
    ]
    argv += ["-m", "192M", "-kernel", kernel.image, "-initrd", str(initrd), "-append", "console=ttyS0 quiet panic=-1 reboot=t rdinit=/init"]
    argv += ["-serial", f"file:{console}", *(["-sandbox", _SECCOMP] if sandbox else [])]
    started = time.monotonic()
    try:
        with LogPipe(console) as log:
            completed = node.run(Command(argv), timeout=PROBE_SECONDS)
    except TimeoutError:
        return f"{DEVICE} is there, but a kernel did not boot with it within {PROBE_SECONDS:.0f} s", False
    output = log.text()
    if _BOOTED in output:
        return "", True
    last_line = (
        completed.err.strip() or output.strip() or f"QEMU ended with exit code {completed.code} after {time.monotonic() - started:.1f} s"
    ).splitlines()[-1]
    permanent = completed.code != -signal.SIGKILL and not _TEMPORARY.search(completed.err)
    return f"{DEVICE} is there, but a kernel does not boot with it ({last_line.strip()[:200]})", permanent
