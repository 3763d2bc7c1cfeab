"""I/O of a guest's drives as QEMU counts it, from the answer to the QMP command ``query-blockstats``.

Documentation: BlockDeviceStats in qapi/block-core.json of QEMU. Metrics that match the guest's view (diskstats) have the same names, so
that both views can be compared. The balloon manager queries QEMU once a second and writes the lines
(pgherd.runtimes.balloon_manager).

QEMU does not report requests in flight, the time with at least one in flight, or the mean queue length.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

_NS = 1e-9
_STATISTICS = {
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
    """Readings of ``guest-drive:GUEST/DRIVE`` for every drive of the guest's devices.

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
            named_statistics = [(_name(drive), drive["stats"]) for drive in drives]
            readings = [(name, _values(statistics)) for name, statistics in named_statistics if name]
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"'{raw[:40]}' is no answer to query-blockstats ({error})") from None
        for name, values in readings:
            yield f"guest-drive:{guest}/{name}", values


def _name(drive: dict[str, Any]) -> str:
    """Return the drive's name, empty for a node without a device of the guest."""
    if drive.get("device"):
        return str(drive["device"])
    path = str(drive.get("qdev") or "")
    if not path:
        return ""
    peripheral = _PERIPHERAL.fullmatch(path)
    return peripheral[1] if peripheral else str(drive.get("node-name") or posixpath.basename(path))


def _values(statistics: dict[str, Any]) -> dict[str, float]:
    values = {metric: float(statistics[key]) * scale for key, (metric, scale) in _STATISTICS.items() if key in statistics}
    values["write_time"] = (float(statistics["wr_total_time_ns"]) + float(statistics.get("flush_total_time_ns", 0))) * _NS
    return values


SAMPLER = QemuBlockstatsSampler()
