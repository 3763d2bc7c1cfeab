"""The compressed swap device that a run has made: what it holds, and what that takes of memory.

Format: Documentation/admin-guide/blockdev/zram.rst of the kernel, ``mm_stat``. The device serves the whole machine: what is said
here is of no single container, and the memory that it takes is charged to none.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_COLUMNS = ("zram.original", "zram.compressed", "zram.used", "zram.limit", "zram.used_most", "zram.same")


class ZramSampler:
    """The first six columns; ``zram.original ÷ zram.used`` is the ratio that counts, the allocator's loss included."""

    name = "zram"
    metrics = (
        Metric("zram.original", "bytes", "gauge", "swapped out to the device, before compression; pages of one value apart"),
        Metric("zram.compressed", "bytes", "gauge", "the same after compression"),
        Metric("zram.used", "bytes", "gauge", "memory that the device takes, its allocator's loss included"),
        Metric("zram.limit", "bytes", "gauge", "memory that it may take at most; 0: no limit"),
        Metric("zram.used_most", "bytes", "gauge", "the most that it took so far"),
        Metric("zram.same", "pages", "gauge", "pages all of one value, which take no memory"),
    )

    def sources(self, view: View) -> list[Source]:
        """One file, where the run's swap is such a device."""
        if view.swap is None or view.swap.zram is None:
            return []
        return [Source(self.name, f"zram:zram{view.swap.zram}", "file", f"/sys/block/zram{view.swap.zram}/mm_stat")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading."""
        fields = raw.split()
        if len(fields) < len(_COLUMNS):
            raise ValueError(f"'{raw[:40]}' is not the text of mm_stat")
        yield source.entity, {name: number(text) for name, text in zip(_COLUMNS, fields, strict=False)}


SAMPLER = ZramSampler()
