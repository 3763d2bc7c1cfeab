"""Guests as their host sees them: memory and CPU of the hypervisor's process, memory balloons, and I/O of their drives.

Memory and CPU are read from /proc/PID (proc(5)), and memory merged by KSM from /sys. A node has no file to read for balloons and
drives. The balloon manager queries the hypervisor (QMP) once a second, and spools what it reads and sets
(pgherd.runtimes.balloon_manager).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isfinite
from typing import Any

from pgherd.host.kernel_files import TICKS, number, process_fields
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

# ---- process of the hypervisor


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


# ---- balloons


_MANAGER_VALUES = {
    "memory": "guest.memory_configured",
    "minimum": "guest.minimum",
    "actual": "guest.memory_balloon_actual",
    "target": "guest.target",
    "working_set": "guest.working_set",
}
_GUEST_STATISTICS = {
    "stat-free-memory": "guest.free",
    "stat-available-memory": "guest.available",
    "stat-total-memory": "guest.memory_managed",
    "stat-disk-caches": "guest.disk_caches",
    "stat-swap-in": "guest.swap_in",
    "stat-swap-out": "guest.swap_out",
    "stat-major-faults": "guest.major_faults",
    "stat-minor-faults": "guest.minor_faults",
}
_NOT_REPORTED = 2**63
"""Values from here on mean that the guest does not report the statistic."""


class GuestBalloonSampler:
    """Readings of ``guest:NAME``. The guest's statistics are those of virtio 1.2, section 5.5.6.4. A missing one is absent.

    Memory that a database balloon inside the guest returns is first free memory of the guest, and later part of the
    guest's balloon. Never add the two.
    """

    name = "guest_balloon"
    metrics = (
        SampledMetric("guest.memory_configured", "bytes", "gauge", "configured memory"),
        SampledMetric("guest.minimum", "bytes", "gauge", "memory that the guest always keeps"),
        SampledMetric("guest.memory_balloon_actual", "bytes", "gauge", "memory that the guest has: configured memory minus its balloon"),
        SampledMetric("guest.target", "bytes", "gauge", "memory size that the host requested last"),
        SampledMetric("guest.ballooned", "bytes", "gauge", "memory in the guest's balloon, including memory returned by its databases"),
        SampledMetric("guest.working_set", "bytes", "gauge", "the balloon manager's estimate of used memory"),
        SampledMetric("guest.free", "bytes", "gauge", "unused memory, reported by the guest"),
        SampledMetric("guest.available", "bytes", "gauge", "memory usable without swapping, reported by the guest"),
        SampledMetric("guest.memory_managed", "bytes", "gauge", "memory managed by the guest's kernel"),
        SampledMetric("guest.disk_caches", "bytes", "gauge", "page cache inside the guest"),
        SampledMetric("guest.swap_in", "bytes", "counter", "memory swapped in inside the guest", resets=True),
        SampledMetric("guest.swap_out", "bytes", "counter", "memory swapped out inside the guest", resets=True),
        SampledMetric("guest.major_faults", "faults", "counter", "page faults inside the guest that needed I/O", resets=True),
        SampledMetric("guest.minor_faults", "faults", "counter", "page faults inside the guest without I/O", resets=True),
        SampledMetric("guest.statistics_age", "s", "gauge", "age of the guest's statistics"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the balloon manager writes the lines itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        try:
            document = json.loads(raw)
            statistics = document["stats"]
            values = {metric: float(document[key]) for key, metric in _MANAGER_VALUES.items() if key in document}
            values["guest.ballooned"] = max(float(document["memory"]) - float(document["actual"]), 0.0)
            values |= {
                metric: float(statistics[key])
                for key, metric in _GUEST_STATISTICS.items()
                if 0 <= int(statistics.get(key, -1)) < _NOT_REPORTED
            }
            if float(document["last_update"]) > 0 and "at" in document:
                values["guest.statistics_age"] = max(float(document["at"]) - float(document["last_update"]), 0.0)
            _require_finite(values)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise _foreign(raw, error) from None
        yield source.entity, values


class BalloonManagerSampler:
    """CPU time of all threads of the balloon manager, as ``platform:balloon-manager``.

    The manager runs in pgherd's process. Its CPU time still counts as platform overhead, because a platform of virtual
    machines needs such a manager also without a benchmark (E2).
    """

    name = "balloon_manager"
    metrics = (SampledMetric("cpu.usage", "s", "counter", "CPU time used"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the balloon manager writes the lines itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        try:
            yield source.entity, {"cpu.usage": float(json.loads(raw)["cpu"])}
        except (KeyError, TypeError, OverflowError) as error:
            raise _foreign(raw, error) from None


def _require_finite(values: Mapping[str, float]) -> None:
    if not all(map(isfinite, values.values())):
        raise OverflowError("a number is infinite or NaN")


def _foreign(raw: str, error: Exception) -> ValueError:
    return ValueError(f"'{raw[:40]}' is not a line of the balloon manager ({error})")


GUEST_BALLOON, BALLOON_MANAGER = GuestBalloonSampler(), BalloonManagerSampler()


# ---- drives


_NS = 1e-9
_DRIVE_STATISTICS = {
    "rd_operations": ("reads", 1.0),
    "wr_operations": ("writes", 1.0),
    "rd_bytes": ("read_bytes", 1.0),
    "wr_bytes": ("write_bytes", 1.0),
    "rd_total_time_ns": ("read_time", _NS),
    "flush_operations": ("flushes", 1.0),
    "flush_total_time_ns": ("flush_time", _NS),
    "unmap_operations": ("discards", 1.0),
    "rd_merged": ("reads_merged", 1.0),
    "wr_merged": ("writes_merged", 1.0),
    "failed_rd_operations": ("failed_reads", 1.0),
    "failed_wr_operations": ("failed_writes", 1.0),
    "failed_flush_operations": ("failed_flushes", 1.0),
}
_PERIPHERAL = re.compile(r"/machine/peripheral/([^/]+)(?:/.*)?")


class QemuBlockstatsSampler:
    """Readings of ``guest-drive:GUEST/DRIVE`` for every drive of the guest's devices, from the answer to ``query-blockstats``.

    Documentation: BlockDeviceStats in qapi/block-core.json of QEMU. Metrics that match the guest's view (diskstats) have the same
    names, so that both views can be compared. QEMU does not report requests in flight, the time with at least one in flight, or
    the mean queue length.

    A drive's name is the id of its backend (``-drive id=``), otherwise its device's id, otherwise its node's name.

    diskstats includes flushes in its write time. QEMU counts them separately, so they are added: ``write_time`` has the
    same meaning in both. A request merged by the guest's kernel is one request in both. Requests that QEMU merges are in
    ``…_merged``.
    """

    name = "qemu_blockstats"
    metrics = (
        SampledMetric("reads", "requests", "counter", "reads completed"),
        SampledMetric("writes", "requests", "counter", "writes completed, without flushes"),
        SampledMetric("read_bytes", "bytes", "counter", "data read"),
        SampledMetric("write_bytes", "bytes", "counter", "data written"),
        SampledMetric("read_time", "s", "counter", "summed duration of all reads"),
        SampledMetric("write_time", "s", "counter", "summed duration of all writes, flush requests included"),
        SampledMetric("discards", "requests", "counter", "discards completed"),
        SampledMetric("flushes", "requests", "counter", "flushes completed"),
        SampledMetric("flush_time", "s", "counter", "summed duration of all flushes"),
        SampledMetric("reads_merged", "requests", "counter", "reads that QEMU merged into another request"),
        SampledMetric("writes_merged", "requests", "counter", "writes that QEMU merged into another request"),
        SampledMetric("failed_reads", "requests", "counter", "reads that failed"),
        SampledMetric("failed_writes", "requests", "counter", "writes that failed"),
        SampledMetric("failed_flushes", "requests", "counter", "flushes that failed"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the balloon manager writes the lines itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per drive, including empty ones: a CD drive without a disc has a backend too."""
        guest = source.entity.removeprefix("guest:")
        try:
            drives = json.loads(raw)
            if not isinstance(drives, list):
                raise TypeError("no list")
            named_statistics = [(_drive_name(drive), drive["stats"]) for drive in drives]
            readings = [(name, _drive_values(statistics)) for name, statistics in named_statistics if name]
            for _, values in readings:
                _require_finite(values)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"'{raw[:40]}' is no answer to query-blockstats ({error})") from None
        for name, values in readings:
            yield f"guest-drive:{guest}/{name}", values


def _drive_name(drive: dict[str, Any]) -> str:
    """Return the drive's name, empty for a node without a device of the guest."""
    if drive.get("device"):
        return str(drive["device"])
    path = str(drive.get("qdev") or "")
    if not path:
        return ""
    peripheral = _PERIPHERAL.fullmatch(path)
    return peripheral[1] if peripheral else str(drive.get("node-name") or posixpath.basename(path))


def _drive_values(statistics: dict[str, Any]) -> dict[str, float]:
    values = {metric: float(statistics[key]) * scale for key, (metric, scale) in _DRIVE_STATISTICS.items() if key in statistics}
    values["write_time"] = (float(statistics["wr_total_time_ns"]) + float(statistics.get("flush_total_time_ns", 0))) * _NS
    return values


QEMU_BLOCKSTATS = QemuBlockstatsSampler()
SAMPLERS = (QEMU_PROCESS, GUEST_MACHINE, SAME_PAGE_MERGING, GUEST_BALLOON, BALLOON_MANAGER, QEMU_BLOCKSTATS)
