"""What a guest's hypervisor takes of its host: memory (/proc/PID/status and, seldom, /proc/PID/smaps) and CPU (/proc/PID/stat); proc(5).

``status`` is cheap and read each second, but says what the whole process has. ``smaps`` tells the guest's memory, one large mapping, from
what the hypervisor needs for itself; the kernel walks the page tables for it, so it is read once a minute only, and at both ends
of a trial. Both are of this host's page tables: what a guest has never touched, has in its balloon, or has reported as free is in neither.

``stat`` tells the CPU that went into running vCPUs (``guest_time``) from the hypervisor's own. Only KVM enters it there: of emulated vCPUs
it is nothing, and all is the hypervisor's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgherd.metrics.cpu import TICKS
from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_WANTED = {
    "RssAnon": "qemu.anon",
    "RssShmem": "qemu.shared",
    "HugetlbPages": "qemu.shared",  # a memory file on reserved huge pages, which the kernel counts in no other line
    "RssFile": "qemu.file",
    "VmSwap": "qemu.swapped",
}
_HUGE = ("Shared_Hugetlb:", "Private_Hugetlb:")
_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{3})\S ")
_NO_FILES = ("/memfd:", "/dev/zero", "/anon_hugepage", "/dev/shm/")
"""Names that memory has although no file is behind it."""
_SELDOM = 60
"""Ticks between two readings of smaps, each of which takes some 6 ms."""
_CPU = "cpu"
_UTIME, _STIME, _GUEST_TIME = 11, 12, 40
"""Fields of stat after the command's name, the first of which is number 0."""


class QemuProcessSampler:
    """Readings of ``guest:NAME``, in bytes."""

    name = "qemu_process"
    metrics = (
        Metric("qemu.anon", "bytes", "gauge", "private memory that the guest's hypervisor has, the guest's own included"),
        Metric("qemu.shared", "bytes", "gauge", "shared memory of it: the guest's own, where that is a memory file"),
        Metric("qemu.file", "bytes", "gauge", "its program and libraries in memory"),
        Metric("qemu.swapped", "bytes", "gauge", "of its private memory, swapped out by the host"),
        Metric("qemu.overhead", "bytes", "gauge", "private and shared memory of it that is not the guest's; read once a minute"),
        Metric("guest.resident", "bytes", "gauge", "of the guest's memory, in the host's memory; read once a minute"),
        Metric("qemu.cpu", "s", "counter", "CPU time that the guest's hypervisor used, its vCPUs included"),
        Metric("qemu.cpu_guest", "s", "counter", "of its hypervisor's CPU time, what went into running vCPUs; of emulated ones nothing"),
    )

    def sources(self, view: View) -> list[Source]:
        """Three files of each guest."""
        found = []
        for guest in view.guests:
            entity, place = f"guest:{guest.name}", f"/proc/{guest.pid}"
            found.append(Source(self.name, entity, "file", f"{place}/status"))
            found.append(Source(self.name, entity, "file", f"{place}/smaps", every=_SELDOM, tag=str(guest.memory)))
            found.append(Source(self.name, entity, "file", f"{place}/stat", tag=_CPU))
        return found

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per file; those of memory count in kB of 1024 bytes, that of CPU in ticks."""
        if source.tag == _CPU:
            yield source.entity, _cpu(raw)
            return
        if not source.tag:
            yield source.entity, _status(raw)
            return
        resident, others = _split(raw, int(source.tag))
        yield source.entity, {"guest.resident": resident, "qemu.overhead": others}


def _cpu(raw: str) -> dict[str, float]:
    # The command's name is in parentheses and may hold spaces and parentheses itself; the last one closes it.
    fields = raw[raw.rfind(")") + 1 :].split()
    if "(" not in raw or len(fields) <= _GUEST_TIME:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/stat")
    used, guest = number(fields[_UTIME]) + number(fields[_STIME]), number(fields[_GUEST_TIME])
    return {"qemu.cpu": used / TICKS, "qemu.cpu_guest": guest / TICKS}


def _status(raw: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for line in raw.splitlines():
        key, _, rest = line.partition(":")
        if key in _WANTED and rest.endswith(" kB"):
            values[_WANTED[key]] = values.get(_WANTED[key], 0.0) + number(rest.split()[0]) * 1024
    if "qemu.anon" not in values:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/status")
    return values


def _split(raw: str, memory: int) -> tuple[float, float]:
    """Resident bytes of the mapping that is the guest's memory, and of the rest without files.

    The guest's is the smallest mapping for reading and writing that is at least as large as its memory. What emulation translates code
    into may be as large, but is for executing too.
    """
    data: list[tuple[int, float]] = []
    size, plain, files, others = 0, False, False, 0.0
    for line in raw.splitlines():
        head = _HEAD.match(line)
        if head:
            size, plain = int(head[2], 16) - int(head[1], 16), head[3] == "rw-"
            name = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
            files = name.startswith("/") and not name.startswith(_NO_FILES)
        elif not files and line.startswith(_HUGE):  # in no other line either
            resident = number(line.split()[1]) * 1024
            others += resident
            if data and plain and size >= memory:
                data[-1] = (size, data[-1][1] + resident)
        elif line.startswith("Anonymous:" if files else "Rss:"):  # a library's variables are private copies of its file
            resident = number(line.split()[1]) * 1024
            others += resident
            if plain and not files and size >= memory:
                data.append((size, resident))
    if not size:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/smaps")
    if not data:
        raise ValueError(f"no mapping is as large as the guest's memory, {memory} bytes")
    own = min(data)[1]
    return own, others - own


SAMPLER = QemuProcessSampler()
