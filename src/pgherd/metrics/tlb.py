"""Misses of the data TLB and the resulting page walks, from the processor's counters as `perf stat -I -x;` prints them.

Few virtual machines have these counters. Event names differ between processors: for each metric, the first alternative of ``EVENTS`` that
can be counted is used (pgherd.runner.execute.perf_counters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.metrics.spool import SpoolReading
from pgherd.node.protocol import SampleSource

EVENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
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
_METRIC = {event: metric for metric, alternatives in EVENTS.items() for events in alternatives for event in events}


class TlbSampler:
    """Counts of one perf process per server, over the postmaster's children that start after it: the clients' backends."""

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
        for _, counts in intervals(raw):
            for name, value in counts.items():
                totals[name] = totals.get(name, 0.0) + value
        if totals:
            yield source.entity, totals


def intervals(raw: str) -> Iterator[tuple[float, dict[str, float]]]:
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
        time, value, event = _number(fields[0]), fields[1], fields[3].split(":")[0]
        if time != at and counts:
            yield at, counts
            counts = {}
        at = time
        metric = _METRIC.get(event)
        if metric is not None and value != "<not supported>":
            counts[metric] = counts.get(metric, 0.0) + (0.0 if value == "<not counted>" else _number(value))
    if counts:
        yield at, counts


def _number(text: str) -> float:
    if not re.fullmatch(r"\s*\d+(\.\d+)?", text):
        raise ValueError(f"'{text[:40]}' is not a number of perf stat")
    return float(text)


def readings(raw: str, began: float, entity: str) -> Iterator[SpoolReading]:
    """Yield the growing counters of an output in a spool's form. ``began`` is the start of perf (seconds since the epoch)."""
    totals: dict[str, float] = {}
    for after, counts in intervals(raw):
        if not totals:
            yield began, TlbSampler.name, entity, dict.fromkeys(counts, 0.0)
        for name, value in counts.items():
            totals[name] = totals.get(name, 0.0) + value
        yield began + after, TlbSampler.name, entity, dict(totals)


SAMPLER = TlbSampler()
