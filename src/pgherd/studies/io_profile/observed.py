"""What one trial says of the storage: stalls, latency inside and outside of checkpoints, PostgreSQL's view and the devices'. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis import histogram
from pgherd.analysis.checkpoints import Stall, aligned, stalls
from pgherd.model.io_view import Checkpoint, DeviceView, IoView
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.device_io import KB, MB, burst_ratio, has_only_wal, series_numbers, underlying_devices
from pgherd.study.trial_schedule import throughput

BLOCK = 8192


@dataclass(frozen=True)
class Observed:
    """One trial. Rates are MB/s (2^20 bytes), latencies ms; None: not seen, or too little of it.

    ``data`` is the device that took the most writes of those that hold data or tablespaces; ``data_written``, ``iops`` and
    ``fast_share`` (the share of their requests under 1 ms, by the trace) are of all of those. ``apart`` says whether the WAL's device
    sees the WAL alone: no data lie on it, nor on one that passes its requests on to it. ``through`` says that it passes its own on to
    one of the data's, which then sees both: what the data's devices wrote is not told. ``stalls`` is None where nothing can be said of
    them.
    ``burst_ratio`` is the mean rate of the data's bursts over the WAL's mean rate. ``window`` is the length in seconds.
    """

    trial: str
    throughput: float
    window: float
    apart: bool
    through: bool
    data: DeviceView | None
    wal: DeviceView | None
    checkpoints: tuple[Checkpoint, ...]
    stalls: tuple[Stall, ...] | None
    inside: dict[int, int]
    outside: dict[int, int]
    burst_ratio: float | None
    wal_generated: float | None
    wal_written: float | None
    relations_written: float | None
    checkpoint_written: float | None
    data_written: float | None
    iops: float | None
    fast_share: float | None

    @property
    def stalled(self) -> float | None:
        """Seconds stalled in a window."""
        return None if self.stalls is None else math.fsum(one.seconds for one in self.stalls)

    @property
    def wal_per_tx(self) -> float | None:
        """WAL that PostgreSQL generated for a transaction, kB (2^10 bytes)."""
        return None if self.wal_generated is None or self.throughput <= 0 else self.wal_generated * MB / KB / self.throughput


def observe(result: TrialResult) -> Observed | None:
    """The numbers of a trial; None where it failed or has no I/O view. The first phase counts: such a trial has one."""
    if result.error is not None or not result.phases or result.phases[0].io is None:
        return None
    phase, io = result.phases[0], result.phases[0].io
    holding = [view for view in io.devices if "data" in view.roles or "tablespace" in view.roles]
    data = max(holding, key=lambda view: math.fsum(view.series.write_bytes), default=None)
    wal = next((view for view in io.devices if "wal" in view.roles), None)
    apart = data is not None and wal is not None and has_only_wal(wal, io.devices)
    through = wal is not None and not underlying_devices(wal.number, io.devices).isdisjoint(view.number for view in holding)
    wal_numbers = series_numbers(wal.series) if wal is not None else {}
    return Observed(
        trial=result.id,
        throughput=throughput(result),
        window=phase.seconds,
        apart=apart,
        through=through,
        data=data,
        wal=wal,
        checkpoints=tuple(io.checkpoints),
        stalls=_stalls(phase, io, wal, apart),
        inside=io.latency.get("inside", {}),
        outside=io.latency.get("outside", {}),
        burst_ratio=None if data is None or wal is None or not apart or through else burst_ratio(data.series, wal.series),
        wal_generated=_servers(phase, "wal.bytes"),
        wal_written=wal_numbers.get("write_rate") if apart else None,
        relations_written=_servers(phase, "io.write_bytes"),
        checkpoint_written=_servers(phase, "ckpt.buffers", BLOCK),
        data_written=_sum(holding, "write_rate") if apart and not through else None,
        iops=_sum(holding, "reads", "writes"),
        fast_share=_fast(holding),
    )


def _stalls(phase: PhaseResult, io: IoView, wal: DeviceView | None, apart: bool) -> tuple[Stall, ...] | None:
    if wal is None:
        return None
    series = wal.series
    lengths = [len(target.per_second) for target in phase.targets]
    if not lengths:
        return None
    per_second = [math.fsum(target.per_second[i] for target in phase.targets) for i in range(min(lengths))]
    transactions = aligned(series.at, series.seconds, per_second)
    # Where data lie there too, the bytes are mostly theirs; then a commit shows as the flush that it waits for.
    writing = series.write_bytes if apart or not any(series.flushes) else series.flushes
    found = stalls(series.at, series.seconds, writing, transactions, io.checkpoints)
    return None if found is None else tuple(found)


def _servers(phase: PhaseResult, metric: str, factor: float = 1.0) -> float | None:
    """MB/s of all servers that tell."""
    seen = [found[metric] for entity, found in phase.metrics.items() if entity.startswith("server:") and metric in found]
    return factor * math.fsum(seen) / MB if seen else None


def _sum(views: Sequence[DeviceView], *names: str) -> float | None:
    """Of some numbers over some devices; None where one of them is not known of one."""
    values = [series_numbers(view.series).get(name) for view in views for name in names]
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _fast(views: Sequence[DeviceView]) -> float | None:
    """The share of traced reads and writes that took less than 1 ms."""
    if not views or any(view.trace is None for view in views):
        return None  # one that was traced and had no requests has an empty trace
    counts = histogram.merged(view.trace[kind].latency for view in views if view.trace for kind in ("read", "write") if kind in view.trace)
    return histogram.share_below(counts, 1000.0)


def quantile_ms(counts: dict[int, int], share: float) -> float | None:
    """A quantile of a histogram of microseconds, in ms."""
    value = histogram.quantile(counts, share)
    return None if value is None else value / 1000
