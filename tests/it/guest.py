"""A small virtual machine that sees this machine's files, read-only, and has every control group controller on cgroup v2.

QEMU emulates its processor (no KVM is needed). The kernel is Debian's: one that is installed, else its package, unpacked beside
the environment and not installed. The guest writes to memory only, and is gone when its command has ended.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_APPLETS = ("sh", "mount", "insmod", "mkdir", "cat", "chroot", "poweroff")
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


class NotToBeHad(Exception):
    """Why there can be no guest here."""


@dataclass(frozen=True)
class Ended:
    """What a command in the guest came to: its exit code (None: the guest never told) and all that the console showed."""

    code: int | None
    console: str


def run(argv: list[str], environment: dict[str, str], directory: str, seconds: float, *, memory: str = "2G") -> Ended:
    """Run a command in a guest of its own, as root; its time is up after ``seconds``. Raises NotToBeHad."""
    kernel, modules = find_kernel()
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        raise NotToBeHad("qemu-system-x86_64 is missing (Debian: qemu-system-x86)")
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    command = f"cd {shlex.quote(directory)} && env -i {words} {shlex.join(argv)}"
    with tempfile.TemporaryDirectory(prefix="pgherd-guest-") as scratch:
        initrd, console = Path(scratch, "initrd"), Path(scratch, "console")
        initrd.write_bytes(archive(modules, command))
        asked = [qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-smp", "2", "-m", memory]
        asked += ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-kernel", str(kernel), "-initrd", str(initrd)]
        asked += ["-append", "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off cgroup_no_v1=all rdinit=/init"]
        asked += ["-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap", "-serial", f"file:{console}"]
        try:
            done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return Ended(None, f"{_text(console)}\n(its {seconds:.0f} s are over)")
        ended = _ENDED.search(said := _text(console))
        return Ended(int(ended[1]) if ended else None, said + done.stderr)


def _text(console: Path) -> str:
    return console.read_text(errors="replace").replace("\r", "") if console.exists() else ""


@functools.cache
def find_kernel() -> tuple[Path, Path]:
    """A kernel that the guest can boot, and its modules' directory; raises NotToBeHad with the reason."""
    if os.uname().machine != "x86_64":
        raise NotToBeHad(f"the guest is made for x86_64, not for {os.uname().machine}")
    for home in (Path("/"), Path(sys.prefix) / "cache/guest-kernel"):
        if found := _kernel_below(home):
            return found
    home = Path(sys.prefix) / "cache/guest-kernel"
    _unpack(home)
    if found := _kernel_below(home):
        return found
    raise NotToBeHad(f"no kernel with the modules {', '.join(_MODULES)} lies below {home}")


def _kernel_below(home: Path) -> tuple[Path, Path] | None:
    for image in sorted(home.glob("boot/vmlinuz-*"), reverse=True):
        modules = home / "lib/modules" / image.name.removeprefix("vmlinuz-") / "kernel"
        if os.access(image, os.R_OK) and (modules / "fs/9p/9p.ko").exists():
            return image, modules
    return None


def _unpack(home: Path) -> None:
    """Debian's kernel package, without installing it: its scripts would build a boot image for this machine."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotToBeHad(f"there is no kernel in /boot that has 9p and overlay as modules, and no {tool} to fetch one")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotToBeHad(f"{home.parent} cannot be made: {error.strerror}") from None
    said = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", said)
    if package is None:
        raise NotToBeHad("apt does not know linux-image-amd64; run 'apt-get update' once")
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        done = subprocess.run(["apt-get", "download", package[1]], cwd=scratch, capture_output=True, text=True, timeout=240)
        files = list(Path(scratch).glob("*.deb"))
        if done.returncode or not files:
            raise NotToBeHad(f"{package[1]} cannot be downloaded: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
        subprocess.run(["dpkg-deb", "-x", files[0].name, "whole"], cwd=scratch, check=True, timeout=240)
        Path(scratch, "whole").rename(home)


def archive(modules: Path, command: str) -> bytes:
    """The guest's first file system: busybox, the modules in the order in which they are loaded, and the command (cpio, newc)."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise NotToBeHad("busybox is missing (Debian: busybox-static)")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in ["bin", "modules", "proc", "sys", "dev", "lower", "upper", "root"]]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, Path(busybox).read_bytes()))
    entries += [(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in _APPLETS]
    order = load_order(modules, _MODULES)
    entries += [(f"modules/{path.stem}.ko", stat.S_IFREG | 0o644, path.read_bytes()) for path in order]
    entries.append(("modules/order", stat.S_IFREG | 0o644, "".join(f"{path.stem}\n" for path in order).encode()))
    entries += [("command", stat.S_IFREG | 0o644, command.encode()), ("init", stat.S_IFREG | 0o755, _INIT.encode())]
    whole = b"".join(_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1))
    return gzip.compress(whole, 1)


def load_order(modules: Path, wanted: tuple[str, ...]) -> list[Path]:
    """The files of modules and of all that they depend on (as their own headers say), those that others need first."""
    files = {path.stem.replace("-", "_"): path for path in modules.rglob("*.ko")}
    order: list[Path] = []

    def add(name: str) -> None:
        path = files.get(name.replace("-", "_"))
        if path is None or path in order:
            return  # built into the kernel, or there already
        depends = re.search(rb"\0depends=([^\0]*)", path.read_bytes())
        for other in filter(None, (depends[1].decode() if depends else "").split(",")):
            add(other)
        order.append(path)

    for name in wanted:
        add(name)
    return order


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)
