"""The host's memory, from /proc/meminfo."""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.keyed import flat_keyed
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_WANTED = {
    "MemTotal": "memory.total",
    "MemAvailable": "memory.available",
    "MemFree": "memory.free",
    "Cached": "memory.cached",
    "Buffers": "memory.buffers",
    "Dirty": "memory.dirty",
    "Writeback": "memory.writeback",
    "Shmem": "memory.shmem",
    "PageTables": "memory.page_tables",
    "Hugetlb": "memory.hugetlb",
    "SwapTotal": "memory.swap_total",
    "SwapFree": "memory.swap_free",
    "Zswap": "memory.zswap",
    "Zswapped": "memory.zswapped",
}


class MemorySampler:
    """Gauges in bytes; what the kernel does not have (Zswap before 5.19) is absent."""

    name = "memory"
    metrics = (
        Metric("memory.total", "bytes", "gauge", "memory that the kernel manages"),
        Metric("memory.available", "bytes", "gauge", "the kernel's estimate of what can be used without swapping"),
        Metric("memory.free", "bytes", "gauge", "unused memory"),
        Metric("memory.cached", "bytes", "gauge", "page cache, shared memory included, swap cache excluded"),
        Metric("memory.buffers", "bytes", "gauge", "block devices' page cache"),
        Metric("memory.dirty", "bytes", "gauge", "waiting to be written"),
        Metric("memory.writeback", "bytes", "gauge", "being written"),
        Metric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        Metric("memory.page_tables", "bytes", "gauge", "page tables of all processes"),
        Metric("memory.hugetlb", "bytes", "gauge", "reserved huge pages of all sizes, in use or not"),
        Metric("memory.swap_total", "bytes", "gauge", "swap space"),
        Metric("memory.swap_free", "bytes", "gauge", "unused swap space"),
        Metric("memory.zswap", "bytes", "gauge", "memory that the compressed swap cache takes"),
        Metric("memory.zswapped", "bytes", "gauge", "swapped out into the compressed swap cache, before compression"),
    )

    def sources(self, view: View) -> list[Source]:
        """/proc/meminfo."""
        return [Source(self.name, "host", "file", "/proc/meminfo")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; the file counts in kB of 1024 bytes."""
        yield source.entity, flat_keyed(raw, _WANTED, 1024)


SAMPLER = MemorySampler()
