"""I/O of a guest's drives as QEMU counts it below the guest: the answer to the QMP command ``query-blockstats``.

Documentation: BlockDeviceStats in qapi/block-core.json of QEMU. The metrics have the names of the guest's own view (diskstats) where
they mean the same, so that both views can be held against each other; what differs is said at the metric. The lines are written by the
host's balloon manager (pgherd.runtimes.balloon_manager), which asks QEMU once a second.

Not to be had here: requests in flight, time with at least one in flight, and the mean queue.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_NS = 1e-9
_COUNTED = {
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
    """Readings of ``guest-drive:GUEST/DRIVE`` for every drive that a guest's device has; the drive's name is that of its backend
    (``-drive id=``), else its device's id, else its node's name.

    diskstats has flushes within its write time; QEMU counts them apart, so they are added: ``write_time`` means the same in both.
    A request that the guest's kernel has merged is one in both; one that QEMU merges besides is in ``…_merged``.
    """

    name = "qemu_blockstats"
    metrics = (
        Metric("reads", "requests", "counter", "reads completed"),
        Metric("writes", "requests", "counter", "writes completed, without flushes"),
        Metric("read_bytes", "bytes", "counter", "read"),
        Metric("write_bytes", "bytes", "counter", "written"),
        Metric("read_time", "s", "counter", "summed duration of all reads"),
        Metric("write_time", "s", "counter", "summed duration of all writes, flush requests included"),
        Metric("discards", "requests", "counter", "discards completed"),
        Metric("flushes", "requests", "counter", "flushes completed"),
        Metric("flush_time", "s", "counter", "summed duration of all flushes"),
        Metric("reads_merged", "requests", "counter", "reads that QEMU put into another one"),
        Metric("writes_merged", "requests", "counter", "writes that QEMU put into another one"),
        Metric("failed_reads", "requests", "counter", "reads that failed"),
        Metric("failed_writes", "requests", "counter", "writes that failed"),
        Metric("failed_flushes", "requests", "counter", "flushes that failed"),
    )

    def sources(self, view: View) -> list[Source]:
        """None: QEMU is asked by the manager, which writes the lines itself."""
        return []

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per drive; an empty one (a CD drive without a disc has a backend, too) is as good as any."""
        guest = source.entity.removeprefix("guest:")
        try:
            drives = json.loads(raw)
            if not isinstance(drives, list):
                raise TypeError("no list")
            found = [(_name(drive), drive["stats"]) for drive in drives]
            readings = [(name, _values(stats)) for name, stats in found if name]
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"'{raw[:40]}' is no answer to query-blockstats ({error})") from None
        for name, values in readings:
            yield f"guest-drive:{guest}/{name}", values


def _name(drive: dict[str, Any]) -> str:
    """What the drive is called; empty for a node that no device of the guest has."""
    if drive.get("device"):
        return str(drive["device"])
    path = str(drive.get("qdev") or "")
    if not path:
        return ""
    given = _PERIPHERAL.fullmatch(path)
    return given[1] if given else str(drive.get("node-name") or posixpath.basename(path))


def _values(stats: dict[str, Any]) -> dict[str, float]:
    values = {metric: float(stats[key]) * scale for key, (metric, scale) in _COUNTED.items() if key in stats}
    values["write_time"] = (float(stats["wr_total_time_ns"]) + float(stats.get("flush_total_time_ns", 0))) * _NS
    return values


SAMPLER = QemuBlockstatsSampler()
