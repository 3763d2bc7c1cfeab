"""I/O of the host's block devices, from /proc/diskstats (Documentation/admin-guide/iostats.rst of the kernel)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

SECTOR = 512
"""Bytes per sector in this file, whatever the device's own sector size."""


class DiskstatsSampler:
    """Whole devices that did any I/O since boot, as ``disk:NAME``; ``major`` and ``minor`` are a device's stable key.

    A request that only flushes the device's cache (an fdatasync) is counted by the kernel both as a flush and as a
    write of no sectors, so flushes are subtracted from writes. Where a file system's journal flushes along with a real
    write, that write is subtracted too: ``writes`` + ``flushes`` is what the kernel says. Partitions are left out:
    their I/O is their device's. A guest's devices are ``guest-disk:GUEST/NAME``.
    """

    name = "diskstats"
    metrics = (
        Metric("reads", "requests", "counter", "reads completed"),
        Metric("writes", "requests", "counter", "writes completed, without flushes"),
        Metric("read_bytes", "bytes", "counter", "read"),
        Metric("write_bytes", "bytes", "counter", "written"),
        Metric("read_time", "s", "counter", "summed duration of all reads"),
        Metric("write_time", "s", "counter", "summed duration of all writes, flush requests included"),
        Metric("in_flight", "requests", "gauge", "issued and not completed"),
        Metric("io_time", "s", "counter", "time in which at least one request was in flight"),
        Metric("weighted_io_time", "s", "counter", "time × requests in flight; as a rate the mean queue length"),
        Metric("discards", "requests", "counter", "discards completed"),
        Metric("flushes", "requests", "counter", "flushes completed"),
        Metric("flush_time", "s", "counter", "summed duration of all flushes"),
        Metric("major", "", "gauge", "major number of the device"),
        Metric("minor", "", "gauge", "minor number of the device"),
    )

    def sources(self, view: View) -> list[Source]:
        """/proc/diskstats."""
        return [Source(self.name, "disk", "file", "/proc/diskstats")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per device. Kernels before 4.18 have no discards, before 5.5 no flushes."""
        disk = f"{source.entity}/" if source.entity.startswith("guest-disk:") else "disk:"
        rows = [line.split() for line in raw.splitlines() if line.strip()]
        names = {row[2] for row in rows if len(row) >= 14}
        if rows and not names:
            raise ValueError(f"not a line of /proc/diskstats: '{' '.join(rows[0])[:40]}'")
        for row in rows:
            if len(row) < 14 or _is_partition(row[2], names):
                continue
            counts = [number(text) for text in row[3:20]]
            if not counts[0] and not counts[4]:
                continue
            values = {
                "major": number(row[0]),
                "minor": number(row[1]),
                "reads": counts[0],
                "read_bytes": counts[2] * SECTOR,
                "read_time": counts[3] / 1000,
                "writes": counts[4],
                "write_bytes": counts[6] * SECTOR,
                "write_time": counts[7] / 1000,
                "in_flight": counts[8],
                "io_time": counts[9] / 1000,
                "weighted_io_time": counts[10] / 1000,
            }
            if len(counts) > 11:
                values["discards"] = counts[11]
            if len(counts) > 16:
                values |= {"flushes": counts[15], "flush_time": counts[16] / 1000, "writes": max(0.0, counts[4] - counts[15])}
            yield f"{disk}{row[2]}", values


def _is_partition(name: str, names: set[str]) -> bool:
    """sda1 of sda; nvme0n1p2 of nvme0n1 (a device that ends in a digit has a p before the partition's number)."""
    match = re.fullmatch(r"(.*\d)p\d+|(.*\D)\d+", name)
    return match is not None and (match[1] or match[2]) in names


SAMPLER = DiskstatsSampler()
