"""CPU and memory of processes, from /proc/PID/stat (documentation: proc(5)).

Two uses. A container without a control group is accounted for by the process trees of its pids. And what runs beside
the databases is accounted for by itself: drivers, pgherd, its sampling backends, parts of the platform.

Each pid is a source of its own; where several describe one entity, reading the spool adds them up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pgherd.metrics import accounting
from pgherd.metrics.cpu import TICKS
from pgherd.metrics.keyed import cadence, number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

PAGE = os.sysconf("SC_PAGE_SIZE")
"""Bytes per page of memory; a node with another page size would need its own."""

_UTIME, _STIME, _CUTIME, _CSTIME, _RSS = 11, 12, 13, 14, 21


class ProcessesSampler:
    """Trees count children that have ended and were waited for (a backend that exits moves its time into its
    postmaster's); single processes do not. A tree is read file by file, so a child that ends meanwhile may be missed
    once: the dip is bridged, not taken for a reset.
    """

    name = "processes"
    metrics = (
        Metric("cpu.usage", "s", "counter", "CPU time used"),
        Metric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        Metric("cpu.system", "s", "counter", "CPU time in the kernel"),
        Metric("memory.rss", "bytes", "gauge", "resident memory, shared pages included"),
    )

    def sources(self, view: View) -> list[Source]:
        """A tree per pid of a container without CPU accounting; a file per process to be watched."""
        slow = cadence(max(len(view.containers), len(view.processes)))
        found = [
            Source(self.name, f"container:{container.name}", "tree", str(pid), tag="tree")
            for container in view.containers
            if accounting.cpu(container.groups) is None
            for pid in container.pids
        ]
        for process in view.processes:
            # A backend uses a millisecond a second, of which ticks of ten see nothing: the scheduler's clock does. It counts
            # one thread, and a backend has no other.
            backend = process.entity.startswith("backend:")
            what, every = ("schedstat", slow) if backend else ("stat", 1)
            found.append(Source(self.name, process.entity, "file", f"/proc/{process.pid}/{what}", every=every, tag=what if backend else ""))
        return found

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading: of a tree the CPU only, since the shared memory of its processes would be counted many times."""
        if source.tag == "schedstat":
            yield source.entity, {"cpu.usage": _run_time(raw)}
            return
        tree = source.tag == "tree"
        user = system = resident = 0.0
        lines = raw.splitlines()
        for line in lines:
            # The command's name is in parentheses and may hold spaces and parentheses itself; the last one closes it.
            fields = line[line.rfind(")") + 1 :].split()
            if "(" not in line or len(fields) <= _RSS:
                raise ValueError(f"'{line[:40]}' is not a line of /proc/PID/stat")
            user += number(fields[_UTIME]) + (number(fields[_CUTIME]) if tree else 0.0)
            system += number(fields[_STIME]) + (number(fields[_CSTIME]) if tree else 0.0)
            resident += number(fields[_RSS])
        if not lines:
            raise ValueError("an empty text is not a line of /proc/PID/stat")
        values = {"cpu.usage": (user + system) / TICKS, "cpu.user": user / TICKS, "cpu.system": system / TICKS}
        yield source.entity, values if tree else values | {"memory.rss": resident * PAGE}


def _run_time(raw: str) -> float:
    """CPU seconds of a thread: the first of the three numbers of /proc/PID/schedstat, in nanoseconds (sched-stats.rst)."""
    fields = raw.split()
    if len(fields) != 3:
        raise ValueError(f"'{raw[:40]}' is not the text of /proc/PID/schedstat")
    return number(fields[0]) / 1e9


SAMPLER = ProcessesSampler()
