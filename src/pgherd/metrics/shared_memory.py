"""What a server's shared memory lies on, from /proc/PID/smaps of one of its processes (proc(5)).

A process' page tables show only what that process has touched. So this is not sampled while a trial runs: it is read once,
of the backend that has just read the databases into shared buffers, before that ends. (To walk the tables takes the
kernel milliseconds per gigabyte, and its lock on them.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ..(?:.)(.) \S+ \S+ (\d+)\s*(.*)$")
_MAIN = ("/anon_hugepage", "/dev/zero", "/SYSV", "/memfd:")
"""Names of mappings that shared memory without a file has: of reserved huge pages, of ordinary ones, of System V."""


class SharedMemorySampler:
    """The largest shared mapping without a file: PostgreSQL's main shared memory."""

    name = "shared_memory"
    metrics = (
        Metric("pages.size", "bytes", "gauge", "size of the pages that back the server's shared memory"),
        Metric("pages.mapped", "bytes", "gauge", "shared memory that the process which read the databases has touched"),
        Metric("pages.reserved", "bytes", "gauge", "of that, what lies on reserved huge pages, which no control group counts"),
        Metric("pages.huge", "bytes", "gauge", "of that, what lies on huge pages, reserved or transparent"),
    )

    def sources(self, view: View) -> list[Source]:
        """Nothing while a trial runs."""
        return []

    def once(self, server: str, pid: int) -> Source:
        """What to read of a server's process at the one moment."""
        return Source(self.name, f"server:{server}", "file", f"/proc/{pid}/smaps")

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading, if the process has such a mapping; smaps counts in kB of 1024 bytes."""
        best: dict[str, float] = {}
        for name, fields in _mappings(raw):
            if name.startswith(_MAIN) and fields.get("Size", 0.0) > best.get("Size", 0.0):
                best = fields
        if best:
            reserved = best.get("Shared_Hugetlb", 0.0) + best.get("Private_Hugetlb", 0.0)
            yield (
                source.entity,
                {
                    "pages.size": best.get("KernelPageSize", 0.0),
                    "pages.mapped": best.get("Rss", 0.0) + reserved,
                    "pages.reserved": reserved,
                    "pages.huge": reserved + best.get("ShmemPmdMapped", 0.0) + best.get("AnonHugePages", 0.0),
                },
            )


def _mappings(raw: str) -> Iterator[tuple[str, dict[str, float]]]:
    """(name, field → bytes) of every shared mapping."""
    name, fields = "", dict[str, float]()
    for line in raw.splitlines():
        head = _HEAD.match(line)
        if head:
            if fields:
                yield name, fields
            name, fields = (head[3] if head[1] == "s" else ""), {}
        elif line.endswith(" kB"):
            key, _, rest = line.partition(":")
            fields[key] = number(rest.split()[0]) * 1024 if rest.split() else 0.0
        elif ":" not in line:
            raise ValueError(f"'{line[:40]}' is not a line of /proc/PID/smaps")
    if fields:
        yield name, fields


SAMPLER = SharedMemorySampler()
