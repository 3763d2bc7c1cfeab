"""Pages that back a server's shared memory, from /proc/PID/smaps of one of its processes (proc(5)).

The page tables of a process cover only the pages that it has touched. So this source is not sampled during a trial. It is read once, of the
backend that has loaded the databases into shared buffers, before that backend exits. Walking the tables takes the kernel
milliseconds per gigabyte, under the lock of the process's memory map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgherd.host.kernel_files import number
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ..(?:.)(.) \S+ \S+ (\d+)\s*(.*)$")
_ANONYMOUS_NAMES = ("/anon_hugepage", "/dev/zero", "/SYSV", "/memfd:")
"""Names of shared mappings without a file: reserved huge pages, ordinary pages, System V, memory files."""


class SharedMemorySampler:
    """The largest shared mapping without a file, which is PostgreSQL's main shared memory."""

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
        head = _HEAD.match(line)
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


SAMPLER = SharedMemorySampler()
