"""Memory and CPU that a guest's hypervisor uses on its host, from /proc/PID (proc(5)), and memory merged by KSM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pgherd.metrics.kernel_text import TICKS, number, process_fields
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

_STATUS = {
    "RssAnon": "qemu.anon",
    "RssShmem": "qemu.shared",
    "HugetlbPages": "qemu.shared",  # a memory file on reserved huge pages, which no other line counts
    "RssFile": "qemu.file",
    "VmSwap": "qemu.swapped",
}
_HUGE_PAGE_LINES = ("Shared_Hugetlb:", "Private_Hugetlb:")
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{3})\S ")
_MEMORY_FILES = ("/memfd:", "/dev/zero", "/anon_hugepage", "/dev/shm/")  # noqa: S108 (only compared)
"""Names of mappings that are memory, not files on a disk."""
_SMAPS_TICKS = 60
"""Ticks between two readings of smaps, each of which takes about 6 ms."""
_STAT_TAG = "cpu"
_UTIME, _STIME, _GUEST_TIME = 11, 12, 40
"""Fields of /proc/PID/stat after the command's name, counted from 0."""


class QemuProcessSampler:
    """Readings of ``guest:NAME``.

    ``status`` is cheap and read each second, but covers the whole process. ``smaps`` separates the guest's memory, one
    large mapping, from the memory of the hypervisor. The kernel walks the page tables for it, so it is read once a
    minute and at both ends of a trial. Both count pages in the host's page tables. Memory that a guest has never
    touched, has in its balloon, or has reported as free is in neither.

    ``stat`` separates the CPU time of vCPUs (``guest_time``) from that of the hypervisor. Only KVM reports it there: for
    emulated vCPUs it is zero, and all time belongs to the hypervisor.
    """

    name = "qemu_process"
    metrics = (
        SampledMetric("qemu.anon", "bytes", "gauge", "private memory of its hypervisor process, guest memory included"),
        SampledMetric("qemu.shared", "bytes", "gauge", "shared memory of its hypervisor process: guest memory in a memory file"),
        SampledMetric("qemu.file", "bytes", "gauge", "program and libraries of its hypervisor in memory"),
        SampledMetric("qemu.swapped", "bytes", "gauge", "private memory of its hypervisor process swapped out by the host"),
        SampledMetric("qemu.overhead", "bytes", "gauge", "memory of its hypervisor process that is not guest memory; read once a minute"),
        SampledMetric("guest.resident", "bytes", "gauge", "guest memory in the host's memory; read once a minute"),
        SampledMetric("qemu.cpu", "s", "counter", "CPU time of its hypervisor process, vCPUs included"),
        SampledMetric("qemu.cpu_guest", "s", "counter", "CPU time of its hypervisor process spent in vCPUs; zero for emulated vCPUs"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        sources = []
        for guest in view.guests:
            entity, directory = f"guest:{guest.name}", f"/proc/{guest.pid}"
            sources.append(SampleSource(self.name, entity, "file", f"{directory}/status"))
            sources.append(SampleSource(self.name, entity, "file", f"{directory}/smaps", every=_SMAPS_TICKS, tag=str(guest.memory)))
            sources.append(SampleSource(self.name, entity, "file", f"{directory}/stat", tag=_STAT_TAG))
        return sources

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per file. status and smaps count in kB of 1024 bytes, stat counts in ticks."""
        if source.tag == _STAT_TAG:
            yield source.entity, _cpu(raw)
            return
        if not source.tag:
            yield source.entity, _status(raw)
            return
        resident, overhead = _split_smaps(raw, int(source.tag))
        yield source.entity, {"guest.resident": resident, "qemu.overhead": overhead}


def _cpu(raw: str) -> dict[str, float]:
    fields = process_fields(raw, _GUEST_TIME)
    total, guest = number(fields[_UTIME]) + number(fields[_STIME]), number(fields[_GUEST_TIME])
    return {"qemu.cpu": total / TICKS, "qemu.cpu_guest": guest / TICKS}


def _status(raw: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for line in raw.splitlines():
        key, _, remainder = line.partition(":")
        if key in _STATUS and remainder.endswith(" kB"):
            values[_STATUS[key]] = values.get(_STATUS[key], 0.0) + number(remainder.split()[0]) * 1024
    if "qemu.anon" not in values:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/status")
    return values


def _split_smaps(raw: str, memory: int) -> tuple[float, float]:
    """Return resident bytes of the mapping that is the guest's memory, and of all other mappings without a file.

    The guest's memory is the smallest read-write mapping of at least ``memory`` bytes. The code cache of emulation may
    be as large, but it is executable too.
    """
    candidates: list[tuple[int, float]] = []
    size, plain, in_file, total = 0, False, False, 0.0
    for line in raw.splitlines():
        head = _MAPPING.match(line)
        if head:
            size, plain = int(head[2], 16) - int(head[1], 16), head[3] == "rw-"
            name = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
            in_file = name.startswith("/") and not name.startswith(_MEMORY_FILES)
        elif not in_file and line.startswith(_HUGE_PAGE_LINES):  # not part of Rss
            resident = number(line.split()[1]) * 1024
            total += resident
            if candidates and plain and size >= memory:
                candidates[-1] = (size, candidates[-1][1] + resident)
        elif line.startswith("Anonymous:" if in_file else "Rss:"):  # a library's variables are private copies of its file
            resident = number(line.split()[1]) * 1024
            total += resident
            if plain and not in_file and size >= memory:
                candidates.append((size, resident))
    if not size:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/smaps")
    if not candidates:
        raise ValueError(f"no mapping is as large as the guest's memory, {memory} bytes")
    guest = min(candidates)[1]
    return guest, total - guest


EMULATED = "emulated"
_EMULATION_TICKS = 10
"""Ticks between two readings of a command line, which does not change."""


class GuestMachineSampler:
    """Readings of ``guest:NAME``: whether its processors are emulated, from the hypervisor's command line.

    It is read when sampling starts, before any driver starts. A live view of a run must not present the speed of an
    emulated processor as a result.
    """

    name = "guest_machine"
    metrics = (SampledMetric(EMULATED, "", "gauge", "1 if its processors are emulated (TCG), so that rates inside it are meaningless"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"guest:{guest.name}", "file", f"/proc/{guest.pid}/cmdline", every=_EMULATION_TICKS)
            for guest in view.guests
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading by the accelerator after ``-accel`` (qemu(1))."""
        accelerator = next((value for option, value in pairwise(raw.split("\0")) if option == "-accel"), None)
        if accelerator is None:
            raise ValueError(f"'{raw[:40]}' is no command line of QEMU with an accelerator")
        yield source.entity, {EMULATED: float(accelerator.partition(",")[0] == "tcg")}


_KSM_DIRECTORY = "/sys/kernel/mm/ksm"
_KSM_FILES = {"ksm.shared": "pages_shared", "ksm.saved": "pages_sharing", "ksm.unshared": "pages_unshared", "ksm.full_scans": "full_scans"}
_MERGED = "guest.ksm_merged"
_PAGE_BYTES = 4096
"""Size of the pages that KSM merges. Guests are x86-64 only."""


class SamePageMergingSampler:
    """Kernel same-page merging (KSM): readings of ``host`` and of ``guest:NAME``, while guests run whose memory it may merge.

    The files in ``/sys/kernel/mm/ksm`` cover the whole machine, including merges of other programs. The kernel updates
    them only while merging is on. ``/proc/PID/ksm_merging_pages`` (since Linux 5.19) is one hypervisor's part. The memory
    that the kernel needs for its search, about 64 bytes per scanned page, is not subtracted.
    (Documentation/admin-guide/mm/ksm.rst of the kernel.)
    """

    name = "same_page_merging"
    metrics = (
        SampledMetric("ksm.shared", "bytes", "gauge", "merged pages that are kept once by KSM"),
        SampledMetric("ksm.saved", "bytes", "gauge", "memory saved by KSM: all further uses of merged pages"),
        SampledMetric("ksm.unshared", "bytes", "gauge", "mergeable pages without an identical page"),
        SampledMetric("ksm.full_scans", "rounds", "counter", "rounds over all mergeable memory"),
        SampledMetric(_MERGED, "bytes", "gauge", "memory of its hypervisor process merged by KSM"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return four files of the host and one of each mergeable guest, or nothing without such a guest."""
        guests = [guest for guest in view.guests if guest.merging]
        if not guests:
            return []
        return [SampleSource(self.name, "host", "file", f"{_KSM_DIRECTORY}/{file}", tag=metric) for metric, file in _KSM_FILES.items()] + [
            SampleSource(self.name, f"guest:{guest.name}", "file", f"/proc/{guest.pid}/ksm_merging_pages", tag=_MERGED) for guest in guests
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading: each file has one number, a count of pages or of scans."""
        if source.tag not in _KSM_FILES and source.tag != _MERGED:
            raise ValueError(f"'{source.tag}' is no count of merged pages")
        yield source.entity, {source.tag: number(raw.strip()) * (1 if source.tag == "ksm.full_scans" else _PAGE_BYTES)}


QEMU_PROCESS, GUEST_MACHINE, SAME_PAGE_MERGING = QemuProcessSampler(), GuestMachineSampler(), SamePageMergingSampler()
SAMPLERS = (QEMU_PROCESS, GUEST_MACHINE, SAME_PAGE_MERGING)
