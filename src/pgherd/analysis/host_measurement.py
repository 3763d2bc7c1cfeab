"""Capacities of hosts by runs: input of the studies' functions that compute them, their result, and IOPS by a latency curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.analysis.host_class import LatencyLimit, ResourceCapacity, crossing
from pgherd.model.analysis import Finding
from pgherd.model.load import LatencyObjective
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord


@dataclass(frozen=True)
class HostRun:
    """Run that is named by ``--host-run``.

    Attributes:
        option: the option as given, for messages.
        name: name of the run.
        record: its record.
        results: its finished trials.
        objective: latency objective of the plan. None: that of the run.
        balloon: the servers of the class have pg_balloon.
    """

    option: str
    name: str
    record: RunRecord
    results: Sequence[TrialResult]
    objective: LatencyObjective | None = None
    balloon: bool = False

    @property
    def source(self) -> str:
        """Name of the run as the source of a capacity."""
        return f"run {self.name}"

    @property
    def findings(self) -> Mapping[str, Finding]:
        """Findings of the run. Empty without an analysis."""
        return self.record.analysis.findings if self.record.analysis else {}

    def rows(self, table: str) -> Sequence[dict[str, Finding | str | int | float | None]]:
        """Return the rows of a table of the run. Empty without an analysis or such a table."""
        return self.record.analysis.tables.get(table, ()) if self.record.analysis else ()


@dataclass(frozen=True)
class HostMeasurement:
    """Capacities of a host by one run.

    Attributes:
        capacity: resource → capacity, in place of the stated one.
        bounds: resource → largest measured use. It replaces no stated capacity that is larger.
        defaults: resource → capacity for a class that is in no file.
        latency: CPU up to which the host keeps a latency objective.
        memory_factor: factor by which working sets may exceed the memory of the host.
        notes: limits of the measurement, as sentences without a full stop.
    """

    capacity: Mapping[str, ResourceCapacity] = field(default_factory=dict)
    bounds: Mapping[str, ResourceCapacity] = field(default_factory=dict)
    defaults: Mapping[str, ResourceCapacity] = field(default_factory=dict)
    latency: LatencyLimit | None = None
    memory_factor: ResourceCapacity | None = None
    notes: tuple[str, ...] = ()


def most_iops(curve: Sequence[tuple[Finding, Finding]], limit_ms: float, source: str = "") -> ResourceCapacity | None:
    """Return the most IOPS at a latency of at most the limit, by a measured curve. None: no point of it keeps the limit.

    The curve is linear between two points. The latency of a device rises ever faster, so the true IOPS at the limit are higher, up to those
    of the first point above the limit, which are the upper bound. A curve that ends below the limit gives its largest IOPS. The lower
    bound is by the lowest IOPS and the highest latency of each point, and the upper one by the opposite. A point without an interval
    counts for the value and the upper bound only.

    Args:
        curve: IOPS and latency in ms. All have a value.
        limit_ms: of the latency.
        source: of the curve, for messages.
    """
    value = _most([(iops.value, latency.value) for iops, latency in curve], limit_ms)
    if value <= 0:
        return None
    lows = [(iops.low, latency.high) for iops, latency in curve if iops.low is not None and latency.high is not None]
    highs = sorted(
        ((latency.value if latency.low is None else latency.low) or 0.0, iops.high or iops.value or 0.0) for iops, latency in curve
    )
    kept = [iops for latency, iops in highs if latency <= limit_ms]
    above = [iops for latency, iops in highs if latency > limit_ms]
    low = _most(lows, limit_ms)
    return ResourceCapacity(
        value=value,
        low=min(low, value) if low > 0 else None,
        high=max(value, *kept, *above[:1]) if low > 0 else None,
        n=sum(iops.n for iops, _ in curve),
        source=source,
    )


def _most(curve: Sequence[tuple[float | None, float | None]], limit_ms: float) -> float:
    points = sorted((iops or 0.0, latency or 0.0) for iops, latency in curve)
    found = crossing([iops for iops, _ in points], [latency for _, latency in points], limit_ms) if points else 0.0
    # At the device's limit, two depths have the same IOPS, and latencies that differ by a factor. The fit pools these.
    kept = max((iops for iops, latency in points if latency <= limit_ms), default=0.0)
    return points[-1][0] if found is None else max(found, kept)
