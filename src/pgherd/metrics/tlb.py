"""Misses of the data TLB and the page walks that they cost, from the processor's counters as `perf stat -I -x;` tells them.

Few virtual machines have such counters. What an event is called differs between processors: for each metric the first
alternative of ``EVENTS`` that can be counted is taken (pgherd.runner.play.counters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.metrics.spool import SpoolReading
from pgherd.node.protocol import Source

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
"""Metric → alternatives; the events of one alternative are added up. (linux: tools/perf/pmu-events)"""
_METRIC = {event: metric for metric, alternatives in EVENTS.items() for events in alternatives for event in events}


class TlbSampler:
    """Counted by a perf beside each server, for the postmaster's children that begin after it: the clients' backends."""

    name = "tlb"
    metrics = (
        Metric(
            "tlb.load_misses",
            "misses",
            "counter",
            "loads that no level of the data TLB had a translation for, as the processor counts them",
        ),
        Metric("tlb.store_misses", "misses", "counter", "stores that no level of the data TLB had a translation for"),
        Metric("tlb.walks", "walks", "counter", "page walks for data that completed"),
        Metric("tlb.walk_cycles", "cycles", "counter", "cycles in which the processor walked page tables for data"),
        Metric("tlb.cycles", "cycles", "counter", "cycles in all"),
    )

    def sources(self, view: View) -> list[Source]:
        """None: perf reads the counters itself."""
        return []

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading: what a whole output adds up to."""
        totals: dict[str, float] = {}
        for _, counted in intervals(raw):
            for name, value in counted.items():
                totals[name] = totals.get(name, 0.0) + value
        if totals:
            yield source.entity, totals


def intervals(raw: str) -> Iterator[tuple[float, dict[str, float]]]:
    """(seconds since perf began, metric → count in the interval that ended then); events that were not counted are absent.

    Lines: time;value;unit;event;run time;share;… (perf-stat(1), CSV FORMAT). An interval in which none of the processes ran
    is '<not counted>': zero. A last line cut short is left out. Raises ValueError for text of another kind.
    """
    at, found = 0.0, dict[str, float]()
    for line in raw.splitlines():
        fields = line.split(";")
        if line.startswith("#") or not line.strip() or len(fields) < 5:
            if len(fields) == 1 and line.strip() and not line.startswith("#"):
                raise ValueError(f"'{line[:40]}' is not a line of perf stat")
            continue
        time, value, event = _number(fields[0]), fields[1], fields[3].split(":")[0]
        if time != at and found:
            yield at, found
            found = {}
        at = time
        metric = _METRIC.get(event)
        if metric is not None and value != "<not supported>":
            found[metric] = found.get(metric, 0.0) + (0.0 if value == "<not counted>" else _number(value))
    if found:
        yield at, found


def _number(text: str) -> float:
    if not re.fullmatch(r"\s*\d+(\.\d+)?", text):
        raise ValueError(f"'{text[:40]}' is not a number of perf stat")
    return float(text)


def readings(raw: str, began: float, entity: str) -> Iterator[SpoolReading]:
    """The growing counters of an output, as a spool would hold them; ``began`` is when perf did (seconds since the epoch)."""
    totals: dict[str, float] = {}
    for after, counted in intervals(raw):
        if not totals:
            yield began, TlbSampler.name, entity, dict.fromkeys(counted, 0.0)
        for name, value in counted.items():
            totals[name] = totals.get(name, 0.0) + value
        yield began + after, TlbSampler.name, entity, dict(totals)


SAMPLER = TlbSampler()
