"""QEMU's command line for the description of a guest. Pure."""

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
"""Names of the program: the usual one, and the path in Red Hat's distributions. Guests are x86_64 only."""
NAME_PREFIX = "pgherd-"
"""Prefix of every guest's QEMU name, by which running guests are found."""
MIN_MEMORY_BYTES = 160 * 2**20
"""Bytes below which a guest does not boot."""
MEMORY_UNIT_BYTES = 2**20
"""Guest memory is a multiple of this many bytes, the unit of QEMU's option."""
MAX_COMMAND_LINE = 2047
"""Maximum bytes of a kernel's command line on x86 (Linux, COMMAND_LINE_SIZE minus the final NUL)."""
MAX_SERIAL = 20
"""Maximum bytes of a virtio disk's serial (VIRTIO_BLK_ID_BYTES)."""
BALLOON = "/machine/peripheral/balloon0"
"""Path of the balloon device among QEMU's objects, for ``qom-get`` and ``qom-set``."""

MAX_DISKS = 40
"""Maximum disks of a guest in addition to that of its system. The mount points of more may not fit into the kernel's command line."""

_MIB = 2**20
_SLOTS_MMIO = 8
_FIRST_DISK_SLOT, _DISKS_PER_SLOT = 16, 8
"""Slots of a q35's bus for disks. QEMU puts the other devices into the lowest slots. A slot has room for eight devices."""


@dataclass(frozen=True)
class Disk:
    """Raw image as a virtio disk. The guest finds it by its ``serial``.

    ``mount`` is the mount point in the guest (None: not mounted). ``direct`` bypasses the host's page cache, where the image's file system
    supports that. Otherwise the host caches the disk a second time.
    """

    serial: str
    path: str
    mount: str | None = None
    readonly: bool = False
    direct: bool = False


@dataclass(frozen=True)
class GuestSpec:
    """Description of a guest. Sizes are bytes.

    ``backing`` of its memory: 'plain', 'shared' (a memory file, for vhost-user devices), or 'huge' (reserved huge pages of ``huge_page``,
    allocated at start). ``merge`` enables KSM for it. ``reporting`` enables free page reporting. ``deflate_on_oom`` returns pages of the
    balloon before the guest kills a process. ``port`` on 127.0.0.1 is forwarded to the guest's ``guest_port`` (None: no port).
    ``further`` are more pairs of ports. ``stats_seconds`` is the period of the balloon statistics (0: off). ``shell`` starts a shell on
    the console. ``words`` are appended to the kernel's command line.
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
        """Ports of 127.0.0.1 that are forwarded to the guest, in the order of the guest's ports."""
        return () if self.port is None else (self.port, *(here for here, _ in self.further))

    def check(self) -> None:
        """Raise UsageError where the description is invalid."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise UsageError(f"'{self.name}' is not a valid name of a guest; use letters, digits, '.', '_' and '-'")
        if self.memory < MIN_MEMORY_BYTES:
            raise UsageError(
                f"guest {self.name} has {format_bytes(self.memory)} of memory; it needs at least {format_bytes(MIN_MEMORY_BYTES)} to boot"
            )
        if self.memory % MEMORY_UNIT_BYTES:
            raise UsageError(f"guest {self.name} has {self.memory} bytes of memory, which is not a multiple of 1 MB; round it down")
        if self.backing == "huge" and self.memory % self.huge_page:
            size, page = format_bytes(self.memory), format_bytes(self.huge_page)
            raise UsageError(f"guest {self.name} has {size} of memory on huge pages, which is not a multiple of {page}")
        if self.vcpus < 1:
            raise UsageError(f"guest {self.name} has {self.vcpus} vCPUs; it needs at least 1")
        for disk in self.disks:
            if not re.fullmatch(r"[a-z0-9-]+", disk.serial) or len(disk.serial) > MAX_SERIAL or disk.serial == "root":
                raise UsageError(
                    f"'{disk.serial}' cannot be a disk's serial; use up to {MAX_SERIAL} lower-case letters, digits and '-', and not 'root'"
                )
            if disk.mount is not None and (not disk.mount.startswith("/") or re.search(r"[\s\"]", disk.mount)):
                raise UsageError(
                    f"disk {disk.serial} cannot be mounted at '{disk.mount}': the path must be absolute, without spaces and quotes"
                )
        if len({disk.serial for disk in self.disks}) < len(self.disks):
            raise UsageError(f"guest {self.name} has two disks with the same serial")
        if len(self.disks) > MAX_DISKS:
            raise UsageError(f"guest {self.name} has {len(self.disks)} disks, the maximum is {MAX_DISKS}; put fewer servers into it")
        slots = 1 + len(self.disks) + 3 + (self.port is not None)
        if self.machine == "microvm" and slots > _SLOTS_MMIO:
            raise UsageError(f"guest {self.name} needs {slots} devices, and a microvm has room for {_SLOTS_MMIO}; use the machine q35")
        if len(words := kernel_command_line(self)) > MAX_COMMAND_LINE:
            raise UsageError(
                f"the kernel's command line of guest {self.name} has {len(words)} bytes, the "
                f"maximum is {MAX_COMMAND_LINE}; use shorter paths"
            )


@dataclass(frozen=True)
class GuestFiles:
    """Files of one running guest: the sockets of monitor, agent and console, and the console's log."""

    monitor: str
    agent: str
    console: str
    log: str


def kernel_command_line(guest: GuestSpec) -> str:
    """Return the kernel's command line. The boot script of the guest reads the parameters that start with ``pgherd.``."""
    words = ["console=ttyS0", "quiet", "panic=-1", "reboot=t", "rdinit=/init", "cgroup_no_v1=all"]
    if guest.accelerator == "tcg":
        # An emulated processor's timer fails the kernel's test, and mitigations slow it down most. Its cycle counter is not marked as
        # reliable: on a busy host the kernel may calibrate it several-fold wrong, and must be able to switch to another clock.
        words += ["no_timer_check", "mitigations=off"]
        # A microvm has no clock against which the kernel could calibrate that of an emulated processor. Without a value it hangs.
        words += ["tsc_early_khz=2000000"] if guest.machine == "microvm" else []
    words += [f"pgherd.name={guest.name}", "pgherd.root=root"]
    words += [f"pgherd.disk={disk.serial}:{disk.mount}" for disk in guest.disks if disk.mount is not None]
    if guest.shell:
        words.append("pgherd.shell=ttyS0")
    return " ".join([*words, *guest.words])


def arguments(program: str, guest: GuestSpec, places: GuestFiles, *, sandbox: bool = True) -> list[str]:
    """Return QEMU's command line. ``sandbox``: this QEMU supports seccomp. Raises UsageError where the description is invalid."""
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
    # A microvm has few devices. A distribution's kernel needs these to power off and to keep time.
    # QEMU offers all its memory to KSM unless mem-merge is off for the machine too, regardless of the backend's option.
    machine = f"{guest.machine},memory-backend=ram,mem-merge={_on(guest.merge)}"
    argv += ["-machine", machine + (",acpi=on,rtc=on,pit=on,pic=on,isa-serial=on" if mmio else "")]
    argv += ["-global", "virtio-mmio.force-legacy=false"] if mmio else []
    tcg = guest.accelerator == "tcg"
    argv += ["-accel", "tcg,thread=multi,tb-size=32" if tcg else "kvm", "-cpu", "max" if tcg else "host", "-smp", str(guest.vcpus)]
    argv += ["-m", f"{guest.memory // _MIB}M", "-object", _memory(guest)]
    argv += ["-kernel", guest.kernel, "-initrd", guest.initrd, "-append", kernel_command_line(guest)]
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
    for number, disk in enumerate((Disk("root", guest.root, readonly=True), *guest.disks)):
        # Report I/O errors to the guest: by default QEMU stops a guest without a message when its image cannot grow.
        options = "readonly=on" if disk.readonly else "discard=unmap,werror=report,rerror=report"
        options += ",cache=none,aio=threads" if disk.direct else ""
        argv += ["-drive", f"if=none,id={disk.serial},format=raw,file={_escaped(disk.path)},{options}"]
        slot, function = divmod(number, _DISKS_PER_SLOT)
        place = [] if mmio else [f"addr={_FIRST_DISK_SLOT + slot:x}.{function}", "multifunction=on"]
        argv += device("blk", f"drive={disk.serial}", f"serial={disk.serial}", *place)
    if guest.port is not None:
        # The guest has no outgoing network, and only the forwarded ports lead into it.
        forwarded = [
            f"hostfwd=tcp:127.0.0.1:{host_port}-:{guest_port}" for host_port, guest_port in ((guest.port, guest.guest_port), *guest.further)
        ]
        argv += ["-netdev", ",".join(["user,id=net0,restrict=on", *forwarded])]
        # No network boot firmware: it is in a separate package, and QEMU does not start where that is missing.
        argv += device("net", "netdev=net0", *([] if mmio else ["romfile="]))
    argv += device("balloon", "id=balloon0", f"deflate-on-oom={_on(guest.deflate_on_oom)}", f"free-page-reporting={_on(guest.reporting)}")
    argv += ["-object", "rng-builtin,id=rng0", *device("rng", "rng=rng0")]
    if sandbox:
        argv += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    return argv


def _memory(guest: GuestSpec) -> str:
    common = f"id=ram,size={guest.memory},merge={_on(guest.merge)}"
    if guest.backing == "huge":
        return f"memory-backend-memfd,{common},share=on,hugetlb=on,hugetlbsize={guest.huge_page},prealloc=on"
    return f"memory-backend-memfd,{common},share=on" if guest.backing == "shared" else f"memory-backend-ram,{common}"


def _on(value: bool) -> str:
    return "on" if value else "off"


def _escaped(path: str) -> str:
    """Return a path as the value of an option. A comma ends a value unless it is doubled."""
    return path.replace(",", ",,")


def option(argv: Sequence[str], name: str) -> str:
    """Return the argument after an option of a command line, or '' if the option is missing."""
    return next((after for word, after in itertools.pairwise(argv) if word == name), "")
