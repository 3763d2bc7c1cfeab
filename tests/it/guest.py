"""A small virtual machine that sees this machine's files, read-only, and has every control group controller on cgroup v2.

QEMU emulates its processor (no KVM is needed). The kernel is Debian's: one that is installed, else its package, unpacked beside
the environment and not installed. The guest writes to memory only, and is gone when its command has ended.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import hypervisor, initramfs, kernel

_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_PACKAGES = ("linux-image-amd64", "linux-image-generic")
"""The smaller kernels for virtual machines have no 9p."""
_ENDED = re.compile(r"^guest: exit code (\d+)\s*$", re.MULTILINE)
_INIT = """#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko || echo "guest: no module $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 files /lower
mount -t tmpfs -o size=1g memory /upper; mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work files /root
mount -t proc proc /root/proc; mount -t sysfs sysfs /root/sys; mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts; mount -t tmpfs memory /root/dev/shm; mount -t devpts pts /root/dev/pts
mount -t tmpfs -o mode=1777,size=1g memory /root/run
mount -t cgroup2 cgroup /root/sys/fs/cgroup
chroot /root /bin/sh -c "$(cat /command)"
echo "guest: exit code $?"
poweroff -f
"""


NotToBeHad = CapabilityError
"""Why there can be no guest here."""


@dataclass(frozen=True)
class Ended:
    """What a command in the guest came to: its exit code (None: the guest never told) and all that the console showed."""

    code: int | None
    console: str


def run(argv: list[str], environment: dict[str, str], directory: str, seconds: float, *, memory: str = "2G") -> Ended:
    """Run a command in a guest of its own, as root; its time is up after ``seconds``. Raises NotToBeHad."""
    qemu = hypervisor.program()
    message = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    command = f"cd {shlex.quote(directory)} && env -i {message} {shlex.join(argv)}"
    with tempfile.TemporaryDirectory(prefix="pgherd-guest-") as scratch:
        initrd, console = Path(scratch, "initrd"), Path(scratch, "console")
        booted = _kernel()
        initrd.write_bytes(initramfs.archive(booted, _MODULES, init=_INIT, files={"command": command.encode()}))
        request = [qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-smp", "2", "-m", memory]
        request += ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-kernel", booted.image, "-initrd", str(initrd)]
        request += ["-append", "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off cgroup_no_v1=all rdinit=/init"]
        request += ["-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap", "-serial", f"file:{console}"]
        try:
            finished = subprocess.run(request, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return Ended(None, f"{_text(console)}\n(its {seconds:.0f} s are over)")
        ended = _ENDED.search(output := _text(console))
        return Ended(int(ended[1]) if ended else None, output + finished.stderr)


def _text(console: Path) -> str:
    return console.read_text(errors="replace").replace("\r", "") if console.exists() else ""


def _kernel() -> kernel.Kernel:
    """A kernel that the guest can boot, unpacked beside the environment if none is installed."""
    cache = Path(sys.prefix, "cache")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            return kernel.ensure(LocalNode(), str(cache), scratch, needed=_MODULES, packages=_PACKAGES, say=lambda text: None)
    except OSError as error:
        raise NotToBeHad(f"{cache} cannot be written: {error.strerror}") from None
