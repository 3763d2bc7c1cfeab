"""CPU and memory of processes, from /proc/PID/stat and /proc/PID/schedstat (proc(5)).

A container without a cgroup is counted by the process trees of its pids. Drivers, pgherd, its sampling backends and parts of the platform
are counted as single processes. Each pid is a separate source. If several sources describe one entity, the spool's reader adds
them up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pgherd.host.kernel_files import TICKS, number, process_fields
from pgherd.metrics import cgroup
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView, cadence
from pgherd.node.protocol import SampleSource

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


SAMPLER = ProcessesSampler()
