"""Detection of QEMU: version, seccomp sandbox, and whether KVM boots a guest.

The presence of ``/dev/kvm`` is not enough: in some nested or sandboxed machines a stock kernel does not boot with KVM. The check boots one
with an initramfs that only powers off. The result is cached for this kernel and this QEMU. A failure that may be temporary is cached for an
hour.
"""

from __future__ import annotations

import contextlib
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
_PASSING = re.compile("could not access KVM|resource busy|temporarily unavailable|cannot allocate memory", re.IGNORECASE)
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
    if (found := located()) is not None:
        return found
    wanted = " (or ".join(PROGRAMS) + ")"
    raise CapabilityError(f"{wanted} is missing (it runs virtual machines); install the package qemu-system-x86 (Red Hat: qemu-kvm)")


def version(node: Node) -> str:
    """Return QEMU's version. Raises CapabilityError where it is missing or does not run."""
    name = program()
    said = node.run(Command([name, "--version"]), timeout=20)
    match = re.search(r"version (\d+(?:\.\d+)+)", said.out)
    if said.code or match is None:
        raise CapabilityError(f"{name} --version prints no QEMU version: {(said.err or said.out).strip()[:200]}")
    return match[1]


def find(node: Node, kernel: Kernel, cache_dir: str, scratch: str, *, accelerator: str | None = None, again: bool = False) -> Hypervisor:
    """Return the hypervisor for guests, from the cache if possible. ``accelerator`` requests one of them.

    Raises:
        CapabilityError: QEMU is missing, or KVM was requested and does not work.
    """
    found = version(node)
    file = Path(cache_dir, "vm", "hypervisor.json")
    key = _key(found, kernel)
    known = None if again else _known(file, key)
    if known is None:
        sandbox = _sandboxed(node, scratch)
        closed = _no_device()
        why, lasting = (closed, True) if closed else _boot(node, kernel, scratch, sandbox)
        known = Hypervisor(program(), found, sandbox, "tcg" if why else "kvm", why)
        if not closed:  # not cached, because access may be granted or a module loaded at any time
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
            until = None if lasting else time.time() + PASSING_SECONDS
            temporary.write_text(json.dumps({"key": key, "until": until, "found": asdict(known)}))
            temporary.replace(file)
    if accelerator == "kvm" and known.functional_only:
        raise CapabilityError(f"KVM does not run guests here: {known.why}; use --accelerator tcg for functional tests")
    if accelerator == "tcg" and not known.functional_only:
        return Hypervisor(known.program, known.version, known.sandbox, "tcg", "emulation was asked for")
    return known


def remembered(node: Node, kernel: Kernel, cache_dir: str) -> Hypervisor | None:
    """Return the cached result, or None before the first probe."""
    return _known(Path(cache_dir, "vm", "hypervisor.json"), _key(version(node), kernel))


def overhead(node: Node, cache_dir: str) -> int:
    """Return the estimated memory of QEMU beyond its guest's memory, bytes. Until a probe has succeeded with KVM it is the larger one."""
    booted = kernels.present(cache_dir)
    known = None
    with contextlib.suppress(CapabilityError):
        known = None if booted is None else remembered(node, booted, cache_dir)
    return OVERHEAD["tcg" if known is None else known.accelerator]


def groups_for(hypervisor: Hypervisor) -> tuple[str, ...] | None:
    """Return the groups that another user needs to run guests. None where no group helps, or only root's, which grants more than the
    device."""
    if hypervisor.functional_only:
        return ()
    try:
        found = os.stat(DEVICE)
    except FileNotFoundError:
        return ()
    if found.st_mode & 0o006 == 0o006:
        return ()
    return (str(found.st_gid),) if found.st_gid and found.st_mode & 0o060 == 0o060 else None


def _key(found: str, kernel: Kernel) -> str:
    host = os.uname()
    device = os.stat(DEVICE).st_rdev if os.path.exists(DEVICE) else 0
    return hashlib.sha256(json.dumps([found, kernel.release, host.release, host.version, device, os.geteuid()]).encode()).hexdigest()[:16]


def _known(file: Path, key: str) -> Hypervisor | None:
    try:
        document = json.loads(file.read_text())
        until = document["until"]
        holds = document["key"] == key and (until is None or time.time() < until <= time.time() + PASSING_SECONDS)
        return Hypervisor(**document["found"]) if holds else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _no_device() -> str:
    """Return the reason why KVM cannot be probed, or ''."""
    if not os.path.exists(DEVICE):
        return f"there is no {DEVICE}; on hardware, switch virtualisation on in the firmware and load kvm_intel or kvm_amd"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} is not accessible; add this user to the group kvm"
    return ""


def _sandboxed(node: Node, scratch: str) -> bool:
    """Return whether this QEMU was built with seccomp, and the kernel supports it."""
    words = Path(scratch, "monitor-words")
    words.write_text("quit\n")
    argv = [program(), "-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "stdio", "-sandbox", _SECCOMP]
    try:
        return node.run(Command(argv, stdin=str(words)), timeout=20).code == 0
    except TimeoutError:
        return False


def _boot(node: Node, kernel: Kernel, scratch: str, sandbox: bool) -> tuple[str, bool]:
    """Boot a kernel with KVM. Return the reason of a failure ('' for success), and whether it is permanent."""
    initrd, console = Path(scratch, "probe-initrd"), Path(scratch, "probe-console")
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
    began = time.monotonic()
    try:
        done = node.run(Command(argv), timeout=PROBE_SECONDS)
    except TimeoutError:
        return f"{DEVICE} is there, but a kernel did not boot with it within {PROBE_SECONDS:.0f} s", False
    said = console.read_text(errors="replace") if console.exists() else ""
    if _BOOTED in said:
        return "", True
    words = (
        done.err.strip() or said.strip() or f"QEMU ended with exit code {done.code} after {time.monotonic() - began:.1f} s"
    ).splitlines()[-1]
    lasting = done.code != -signal.SIGKILL and not _PASSING.search(done.err)
    return f"{DEVICE} is there, but a kernel does not boot with it ({words.strip()[:200]})", lasting
