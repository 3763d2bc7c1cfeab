"""QEMU's command line for a guest, from a description of it. Pure: nothing is looked at and nothing is started."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.runtimes.vm.initramfs import AGENT_PORT

PROGRAMS = ("qemu-system-x86_64", "/usr/libexec/qemu-kvm")
"""The hypervisor's program, by its usual name and where Red Hat's distributions put it; guests are made for x86_64 only."""
NAME_PREFIX = "pgherd-"
"""Every guest's QEMU bears a name that begins so: it is how running guests are found."""
LEAST_MEMORY = 160 * 2**20
"""Bytes below which a guest does not come up."""
UNIT = 2**20
"""Bytes of which a guest's memory is a multiple: QEMU is told its size in them."""
MOST_WORDS = 2047
"""Bytes of a kernel's command line on x86 (Linux, COMMAND_LINE_SIZE less its final NUL)."""
MOST_SERIAL = 20
"""Bytes of a virtio disk's serial (VIRTIO_BLK_ID_BYTES)."""
BALLOON = "/machine/peripheral/balloon0"
"""The balloon device's path among QEMU's objects, for ``qom-get`` and ``qom-set``."""

_MIB = 2**20
_SLOTS_MMIO = 8


@dataclass(frozen=True)
class Disk:
    """A raw image as a virtio disk, found in the guest by its ``serial``.

    ``mount`` is where the guest mounts it (None: nowhere). ``direct`` goes past this machine's page cache, where the image's file
    system can do that; a disk without it is cached here a second time.
    """

    serial: str
    path: str
    mount: str | None = None
    readonly: bool = False
    direct: bool = False


@dataclass(frozen=True)
class Guest:
    """What a guest is made of. Sizes are bytes.

    ``backing`` of its memory: 'plain', 'shared' (a memory file, which vhost-user devices need), or 'huge' (reserved huge pages of
    ``huge_page``, taken at the start). ``merge`` lets the host's KSM look for equal pages. ``reporting`` tells the host which pages are
    free; ``deflate_on_oom`` gives the balloon's pages back before the guest ends a process. ``port`` is the one on 127.0.0.1 that
    is forwarded to the guest's ``guest_port`` (None: none); ``further`` are more of them, each with the guest's. ``stats_seconds``: how
    often the guest tells the balloon device its figures (0: never). ``shell`` puts a shell on the console. ``words`` are further ones on
    the kernel's command line.
    """

    name: str
    kernel: str
    initrd: str
    root: str
    disks: tuple[Disk, ...] = ()
    vcpus: int = 1
    memory: int = 512 * _MIB
    machine: Literal["q35", "microvm"] = "q35"
    accelerator: Literal["kvm", "tcg"] = "tcg"
    backing: Literal["plain", "shared", "huge"] = "plain"
    huge_page: int = 2 * _MIB
    merge: bool = False
    reporting: bool = True
    deflate_on_oom: bool = True
    stats_seconds: int = 1
    port: int | None = None
    guest_port: int = 5432
    further: tuple[tuple[int, int], ...] = ()
    shell: bool = False
    words: tuple[str, ...] = field(default=())

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of 127.0.0.1 that lead into it, in the order of the guest's own."""
        return () if self.port is None else (self.port, *(here for here, _ in self.further))

    def check(self) -> None:
        """Raise UsageError where no guest can be like that."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise UsageError(f"'{self.name}' cannot be a guest's name; use letters, digits, '.', '_' and '-'")
        if self.memory < LEAST_MEMORY:
            raise UsageError(
                f"guest {self.name} has {format_bytes(self.memory)} of memory; it needs {format_bytes(LEAST_MEMORY)} to come up"
            )
        if self.memory % UNIT:
            raise UsageError(f"guest {self.name} has {self.memory} bytes of memory, which is not a whole number of MB; round it down")
        if self.backing == "huge" and self.memory % self.huge_page:
            size, page = format_bytes(self.memory), format_bytes(self.huge_page)
            raise UsageError(f"guest {self.name} has {size} of memory on huge pages, which is not a multiple of {page}")
        if self.vcpus < 1:
            raise UsageError(f"guest {self.name} has {self.vcpus} vCPUs; give it one or more")
        for disk in self.disks:
            if not re.fullmatch(r"[a-z0-9-]+", disk.serial) or len(disk.serial) > MOST_SERIAL or disk.serial == "root":
                raise UsageError(
                    f"'{disk.serial}' cannot be a disk's serial; use up to {MOST_SERIAL} lower-case letters, digits and '-', and not 'root'"
                )
            if disk.mount is not None and (not disk.mount.startswith("/") or re.search(r"[\s\"]", disk.mount)):
                raise UsageError(
                    f"disk {disk.serial} cannot be mounted at '{disk.mount}': the path must be absolute, without blanks and quotes"
                )
        if len({disk.serial for disk in self.disks}) < len(self.disks):
            raise UsageError(f"guest {self.name} has two disks with the same serial")
        slots = 1 + len(self.disks) + 3 + (self.port is not None)
        if self.machine == "microvm" and slots > _SLOTS_MMIO:
            raise UsageError(f"guest {self.name} needs {slots} devices, and a microvm has room for {_SLOTS_MMIO}; use the machine q35")
        if len(words := kernel_words(self)) > MOST_WORDS:
            raise UsageError(
                f"the kernel's command line of guest {self.name} has {len(words)} bytes, and {MOST_WORDS} are the most; use shorter paths"
            )


@dataclass(frozen=True)
class Places:
    """Files of one running guest: the sockets of monitor, agent and console, and the console's log."""

    monitor: str
    agent: str
    console: str
    log: str


def kernel_words(guest: Guest) -> str:
    """The kernel's command line; the guest's first script reads those words of it that begin with ``pgherd.``."""
    words = ["console=ttyS0", "quiet", "panic=-1", "reboot=t", "rdinit=/init", "cgroup_no_v1=all"]
    if guest.accelerator == "tcg":
        # An emulated processor's timer fails the kernel's test, and mitigations cost it most; it is never measured. Its cycle counter is
        # not called reliable: on a busy host the kernel may measure it several-fold wrong, and has to notice and take another clock.
        words += ["no_timer_check", "mitigations=off"]
        # A microvm has no clock by which the kernel could measure that of an emulated processor; without any value it hangs.
        words += ["tsc_early_khz=2000000"] if guest.machine == "microvm" else []
    words += [f"pgherd.name={guest.name}", "pgherd.root=root"]
    words += [f"pgherd.disk={disk.serial}:{disk.mount}" for disk in guest.disks if disk.mount is not None]
    if guest.shell:
        words.append("pgherd.shell=ttyS0")
    return " ".join([*words, *guest.words])


def arguments(program: str, guest: Guest, places: Places, *, sandbox: bool = True) -> list[str]:
    """The whole command line; ``sandbox`` where this QEMU has seccomp. Raises UsageError where no guest can be like that."""
    guest.check()
    mmio = guest.machine == "microvm"

    def device(kind: str, *options: str) -> list[str]:
        return ["-device", ",".join([f"virtio-{kind}-{'device' if mmio else 'pci'}", *options])]

    argv = [
        program,
        "-name",
        f"guest={NAME_PREFIX}{guest.name},debug-threads=on",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]
    # A microvm has nothing that it does not need; these let a distribution's kernel power it off and keep time.
    # All of QEMU's memory is offered to KSM unless the machine too is told not to, whatever the backend says.
    machine = f"{guest.machine},memory-backend=ram,mem-merge={_on(guest.merge)}"
    argv += ["-machine", machine + (",acpi=on,rtc=on,pit=on,pic=on,isa-serial=on" if mmio else "")]
    argv += ["-global", "virtio-mmio.force-legacy=false"] if mmio else []
    tcg = guest.accelerator == "tcg"
    argv += ["-accel", "tcg,thread=multi,tb-size=32" if tcg else "kvm", "-cpu", "max" if tcg else "host", "-smp", str(guest.vcpus)]
    argv += ["-m", f"{guest.memory // _MIB}M", "-object", _memory(guest)]
    argv += ["-kernel", guest.kernel, "-initrd", guest.initrd, "-append", kernel_words(guest)]
    argv += ["-qmp", f"unix:{_escaped(places.monitor)},server=on,wait=off"]
    if guest.shell:
        argv += [
            "-chardev",
            f"socket,id=console,path={_escaped(places.console)},server=on,wait=off,logfile={_escaped(places.log)}",
            "-serial",
            "chardev:console",
        ]
    else:
        argv += ["-serial", f"file:{places.log}"]
    argv += device("serial", "id=serial0")
    argv += ["-chardev", f"socket,id=agent,path={_escaped(places.agent)},server=on,wait=off"]
    argv += ["-device", f"virtserialport,bus=serial0.0,chardev=agent,name={AGENT_PORT}"]
    for disk in (Disk("root", guest.root, readonly=True), *guest.disks):
        # An error is the guest's to see: by itself QEMU stops a guest whose image cannot grow, without a word.
        options = "readonly=on" if disk.readonly else "discard=unmap,werror=report,rerror=report"
        options += ",cache=none,aio=threads" if disk.direct else ""
        argv += ["-drive", f"if=none,id={disk.serial},format=raw,file={_escaped(disk.path)},{options}"]
        argv += device("blk", f"drive={disk.serial}", f"serial={disk.serial}")
    if guest.port is not None:
        # The guest reaches nothing; only the forwarded ports lead into it.
        forwarded = [f"hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in ((guest.port, guest.guest_port), *guest.further)]
        argv += ["-netdev", ",".join(["user,id=net0,restrict=on", *forwarded])]
        # No firmware to boot over the network: it lies in a package of its own, and QEMU does not start where that is missing.
        argv += device("net", "netdev=net0", *([] if mmio else ["romfile="]))
    argv += device("balloon", "id=balloon0", f"deflate-on-oom={_on(guest.deflate_on_oom)}", f"free-page-reporting={_on(guest.reporting)}")
    argv += ["-object", "rng-builtin,id=rng0", *device("rng", "rng=rng0")]
    if sandbox:
        argv += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    return argv


def _memory(guest: Guest) -> str:
    common = f"id=ram,size={guest.memory},merge={_on(guest.merge)}"
    if guest.backing == "huge":
        return f"memory-backend-memfd,{common},share=on,hugetlb=on,hugetlbsize={guest.huge_page},prealloc=on"
    return f"memory-backend-memfd,{common},share=on" if guest.backing == "shared" else f"memory-backend-ram,{common}"


def _on(value: bool) -> str:
    return "on" if value else "off"


def _escaped(path: str) -> str:
    """A path in an option: commas end a value unless doubled."""
    return path.replace(",", ",,")


def option(argv: Sequence[str], name: str) -> str:
    """The word after an option of a command line; '' where it does not stand in it."""
    return next((after for word, after in itertools.pairwise(argv) if word == name), "")
