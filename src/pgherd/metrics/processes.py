"""CPU and memory of processes, their wake-ups, pages of their shared memory, and their TLB misses.

CPU and memory are from /proc/PID/stat and /proc/PID/schedstat (proc(5)). A container without a cgroup is counted by the process
trees of its pids. Drivers, pgherd, its sampling backends and parts of the platform are counted as single processes. Each pid is a
separate source. If several sources describe one entity, the spool's reader adds them up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from pgherd.host.kernel_files import TICKS, number, process_fields
from pgherd.metrics import cgroup
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView, cadence
from pgherd.metrics.spool import SpoolReading
from pgherd.node.protocol import SampleSource

# ---- CPU and memory


PAGE = os.sysconf("SC_PAGE_SIZE")
"""Bytes per page of this host. Wrong for a node with another page size."""

_UTIME, _STIME, _CUTIME, _CSTIME, _RSS = 11, 12, 13, 14, 21


class ProcessesSampler:
    """CPU time of process trees and single processes, and resident memory of single processes.

    Trees include children that have exited and were waited for, because an exiting backend moves its time to the
    postmaster. Single processes do not. A tree is read file by file, so a child that exits during the read may be missed
    once. That dip is bridged and not taken for a reset.
    """

    name = "processes"
    metrics = (
        SampledMetric("cpu.usage", "s", "counter", "CPU time used"),
        SampledMetric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        SampledMetric("cpu.system", "s", "counter", "CPU time in the kernel"),
        SampledMetric("memory.rss", "bytes", "gauge", "resident memory, shared pages included"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return a tree per pid of a container without CPU accounting, and a file per watched process."""
        slow = cadence(max(len(view.containers), len(view.processes)))
        sources = [
            SampleSource(self.name, f"container:{container.name}", "tree", str(pid), tag="tree")
            for container in view.containers
            if cgroup.cpu(container.groups) is None
            for pid in container.pids
        ]
        for process in view.processes:
            # A sampling backend uses about 1 ms per second, which ticks of 10 ms miss. The scheduler's clock in schedstat
            # counts it. schedstat covers one thread, and a backend has no other.
            backend = process.entity.startswith("backend:")
            file, every = ("schedstat", slow) if backend else ("stat", 1)
            tag = file if backend else ""
            sources.append(SampleSource(self.name, process.entity, "file", f"/proc/{process.pid}/{file}", every=every, tag=tag))
        return sources

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading. A tree has only CPU time, because shared memory would be counted once per process."""
        if source.tag == "schedstat":
            yield source.entity, {"cpu.usage": _run_time(raw)}
            return
        tree = source.tag == "tree"
        user = system = resident = 0.0
        lines = raw.splitlines()
        for line in lines:
            fields = process_fields(line, _RSS)
            user += number(fields[_UTIME]) + (number(fields[_CUTIME]) if tree else 0.0)
            system += number(fields[_STIME]) + (number(fields[_CSTIME]) if tree else 0.0)
            resident += number(fields[_RSS])
        if not lines:
            raise ValueError("an empty text is not a line of /proc/PID/stat")
        values = {"cpu.usage": (user + system) / TICKS, "cpu.user": user / TICKS, "cpu.system": system / TICKS}
        yield source.entity, values if tree else values | {"memory.rss": resident * PAGE}


def _run_time(raw: str) -> float:
    """Return the CPU seconds of a thread: the first of three numbers in schedstat, in nanoseconds (sched-stats.rst)."""
    fields = raw.split()
    if len(fields) != 3:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/schedstat")
    return number(fields[0]) / 1e9


PROCESSES = ProcessesSampler()


class WakeupsSampler:
    """Voluntary context switches of idle servers' processes. Each is a wake-up: a process that is awake again waits again.

    Processes that live for less than the sampling period, such as most autovacuum workers of an idle server, are missed.
    """

    name = "wakeups"
    metrics = (SampledMetric("wakeups", "switches", "counter", "voluntary context switches of the servers' processes"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return a source per server of the containers that are left alone."""
        return [
            SampleSource(self.name, f"container:{container.name}", "switches", str(pid))
            for container in view.containers
            if container.quiet
            for pid in container.pids
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, {"wakeups": number(raw.strip())}


WAKEUPS = WakeupsSampler()


# ---- shared memory


_MAPPING_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ..(?:.)(.) \S+ \S+ (\d+)\s*(.*)$")
_ANONYMOUS_NAMES = ("/anon_hugepage", "/dev/zero", "/SYSV", "/memfd:")
"""Names of shared mappings without a file: reserved huge pages, ordinary pages, System V, memory files."""


class SharedMemorySampler:
    """The largest shared mapping without a file, which is PostgreSQL's main shared memory, from /proc/PID/smaps (proc(5)).

    The page tables of a process cover only the pages that it has touched. So this source is not sampled during a trial. It is
    read once, of the backend that has loaded the databases into shared buffers, before that backend exits. Walking the tables
    takes the kernel milliseconds per gigabyte, under the lock of the process's memory map.
    """

    name = "shared_memory"
    metrics = (
        SampledMetric("pages.size", "bytes", "gauge", "size of the pages that back the server's shared memory"),
        SampledMetric("pages.mapped", "bytes", "gauge", "shared memory touched by the process that loaded the databases"),
        SampledMetric("pages.reserved", "bytes", "gauge", "shared memory on reserved huge pages, which no cgroup counts"),
        SampledMetric("pages.huge", "bytes", "gauge", "shared memory on huge pages, reserved or transparent"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the file is not sampled during a trial."""
        return []

    def once(self, server: str, pid: int) -> SampleSource:
        """Return the source for the single reading of a server's process."""
        return SampleSource(self.name, f"server:{server}", "file", f"/proc/{pid}/smaps")

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading, or none for a process without such a mapping."""
        main: dict[str, float] = {}
        for name, fields in _mappings(raw):
            if name.startswith(_ANONYMOUS_NAMES) and fields.get("Size", 0.0) > main.get("Size", 0.0):
                main = fields
        if main:
            reserved = main.get("Shared_Hugetlb", 0.0) + main.get("Private_Hugetlb", 0.0)
            yield (
                source.entity,
                {
                    "pages.size": main.get("KernelPageSize", 0.0),
                    "pages.mapped": main.get("Rss", 0.0) + reserved,
                    "pages.reserved": reserved,
                    "pages.huge": reserved + main.get("ShmemPmdMapped", 0.0) + main.get("AnonHugePages", 0.0),
                },
            )


def _mappings(raw: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield (name, field → bytes) of every mapping. The name of a private mapping is empty. smaps counts in kB of 1024 bytes."""
    name, fields = "", dict[str, float]()
    for line in raw.splitlines():
        head = _MAPPING_HEAD.match(line)
        if head:
            if fields:
                yield name, fields
            name, fields = (head[3] if head[1] == "s" else ""), {}
        elif line.endswith(" kB"):
            key, _, remainder = line.partition(":")
            fields[key] = number(remainder.split()[0]) * 1024 if remainder.split() else 0.0
        elif ":" not in line:
            raise ValueError(f"'{line[:40]}' is not a line of /proc/PID/smaps")
    if fields:
        yield name, fields


SHARED_MEMORY = SharedMemorySampler()


# ---- TLB misses


TLB_EVENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tlb.load_misses": (("dTLB-load-misses",),),
    "tlb.store_misses": (("dTLB-store-misses",),),
    "tlb.walks": (
        ("dtlb_load_misses.walk_completed", "dtlb_store_misses.walk_completed"),  # Intel
        ("ls_l1_d_tlb_miss.all_l2_miss",),  # AMD, Zen 2 and later
        ("dtlb_walk",),  # ARMv8
    ),
    "tlb.walk_cycles": (
        ("dtlb_load_misses.walk_active", "dtlb_store_misses.walk_active"),  # Intel, Skylake and later
        ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration"),  # Intel, Sandy Bridge to Broadwell
    ),
    "tlb.cycles": (("cycles",),),
}
"""Metric → alternatives. The events of one alternative are added up. (linux: tools/perf/pmu-events)"""
_TLB_METRIC = {event: metric for metric, alternatives in TLB_EVENTS.items() for events in alternatives for event in events}


class TlbSampler:
    """Misses of the data TLB and the resulting page walks, from the processor's counters as `perf stat -I -x;` prints them.

    One perf process per server counts the postmaster's children that start after it: the clients' backends. Few virtual
    machines have these counters. Event names differ between processors: for each metric, the first alternative of
    ``TLB_EVENTS`` that can be counted is used (pgherd.runner.execute.perf_counters).
    """

    name = "tlb"
    metrics = (
        SampledMetric("tlb.load_misses", "misses", "counter", "load misses in all levels of the data TLB, as the processor counts them"),
        SampledMetric("tlb.store_misses", "misses", "counter", "store misses in all levels of the data TLB"),
        SampledMetric("tlb.walks", "walks", "counter", "completed page walks for data"),
        SampledMetric("tlb.walk_cycles", "cycles", "counter", "cycles with an active page walk for data"),
        SampledMetric("tlb.cycles", "cycles", "counter", "all cycles"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: perf reads the counters itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading: the sums of a complete output."""
        totals: dict[str, float] = {}
        for _, counts in tlb_intervals(raw):
            for name, value in counts.items():
                totals[name] = totals.get(name, 0.0) + value
        if totals:
            yield source.entity, totals


def tlb_intervals(raw: str) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield (seconds since the start of perf, metric → count in the interval that ended then).

    Events that were not counted are absent. Lines are time;value;unit;event;run time;share;… (perf-stat(1), CSV FORMAT).
    '<not counted>' means that no process ran in the interval, and counts as zero. A truncated last line is left out.
    Raises ValueError for text of another kind.
    """
    at, counts = 0.0, dict[str, float]()
    for line in raw.splitlines():
        fields = line.split(";")
        if line.startswith("#") or not line.strip() or len(fields) < 5:
            if len(fields) == 1 and line.strip() and not line.startswith("#"):
                raise ValueError(f"'{line[:40]}' is not a line of perf stat")
            continue
        time, value, event = _perf_number(fields[0]), fields[1], event_of(fields[3])
        if time != at and counts:
            yield at, counts
            counts = {}
        at = time
        metric = _TLB_METRIC.get(event)
        if metric is not None and value != "<not supported>":
            counts[metric] = counts.get(metric, 0.0) + (0.0 if value == "<not counted>" else _perf_number(value))
    if counts:
        yield at, counts


def event_of(text: str) -> str:
    """Return the name of a counted event, without modifiers (``cycles:u``) and the kind of core (``cpu_atom/cycles/``)."""
    unit = re.fullmatch(r"\w+/([^/]+)/\w*", text)
    return unit[1] if unit else text.split(":")[0]


def _perf_number(text: str) -> float:
    if not re.fullmatch(r"\s*\d+(\.\d+)?", text):
        raise ValueError(f"'{text[:40]}' is not a number of perf stat")
    return float(text)


def tlb_readings(raw: str, began: float, entity: str) -> Iterator[SpoolReading]:
    """Yield the growing counters of an output in a spool's form. ``began`` is the start of perf (seconds since the epoch)."""
    totals: dict[str, float] = {}
    for after, counts in tlb_intervals(raw):
        if not totals:
            yield began, TlbSampler.name, entity, dict.fromkeys(counts, 0.0)
        for name, value in counts.items():
            totals[name] = totals.get(name, 0.0) + value
        yield began + after, TlbSampler.name, entity, dict(totals)


TLB = TlbSampler()
SAMPLERS = (PROCESSES, WAKEUPS, SHARED_MEMORY, TLB)
