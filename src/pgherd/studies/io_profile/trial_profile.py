"""I/O profile of one trial: stalls, latency during and between checkpoints, and the views of PostgreSQL and of the devices. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis import histogram
from pgherd.analysis.checkpoints import Stall, aligned, stalls
from pgherd.model.device_io import Checkpoint, DeviceIo, DeviceView
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.units import MB_PER_SECOND
from pgherd.study.device_io import KB, burst_ratio, has_only_wal, series_numbers, underlying_devices
from pgherd.study.trial_schedule import throughput

PAGE_BYTES = 8192


@dataclass(frozen=True)
class TrialProfile:
    """I/O profile of one trial. Rates are in MB/s, latencies in ms. None: not measured, or too little data.

    Attributes:
        seconds: length of the measured window.
        wal_separate: the WAL's device sees only WAL: it holds no data, and no device with data passes its requests on to it.
        wal_passes_through: the WAL's device passes its requests on to a device with data, as a loop device on a file there does. The
            writes of data alone are unknown then.
        data: of the devices with data or tablespaces, the one with the most writes.
        during: latencies of transactions that overlap a checkpoint, as a histogram of microseconds. ``between``: all others.
        burst_ratio: mean rate of the bursts of data writes over the WAL's mean rate.
        data_rate_device: rate of all devices with data or tablespaces. ``iops`` and ``share_under_1ms`` (from the trace) are of all too.
        external: the servers are external. Their devices and logs are not visible: ``checkpoints``, ``during`` and ``between`` are empty.
        checkpoint_rate: checkpoints per minute by the servers' counters.
    """

    trial: str
    throughput: float
    seconds: float
    external: bool
    wal_separate: bool
    wal_passes_through: bool
    data: DeviceView | None
    wal: DeviceView | None
    checkpoints: tuple[Checkpoint, ...]
    stalls: tuple[Stall, ...] | None
    during: dict[int, int]
    between: dict[int, int]
    burst_ratio: float | None
    wal_rate_postgres: float | None
    wal_rate_device: float | None
    relation_read_rate: float | None
    relation_write_rate: float | None
    checkpoint_rate: float | None
    checkpoint_write_rate: float | None
    data_rate_device: float | None
    iops: float | None
    share_under_1ms: float | None

    @property
    def stall_seconds(self) -> float | None:
        """Total length of the stalls."""
        return None if self.stalls is None else math.fsum(stall.seconds for stall in self.stalls)

    @property
    def wal_per_tx(self) -> float | None:
        """WAL generated per transaction, in kB (2^10 bytes)."""
        return (
            None
            if self.wal_rate_postgres is None or self.throughput <= 0
            else self.wal_rate_postgres * MB_PER_SECOND / KB / self.throughput
        )

    @property
    def checkpoint_count(self) -> float | None:
        """Checkpoints in the measured window: of the log, or by an external server's counters."""
        if not self.external:
            return len(self.checkpoints)
        return None if self.checkpoint_rate is None else self.checkpoint_rate * self.seconds / 60


def is_external(result: TrialResult) -> bool:
    """Return True if the servers of a trial are external."""
    return any(server.dsn is not None for _, _, server in result.trial.deployment.servers())


def profile_of(result: TrialResult) -> TrialProfile | None:
    """Return the profile of a trial's first and only phase. None: the trial failed or has no I/O view."""
    if result.error is not None or not result.phases or result.phases[0].io is None:
        return None
    phase, io = result.phases[0], result.phases[0].io
    data_devices = [device for device in io.devices if "data" in device.roles or "tablespace" in device.roles]
    data = max(data_devices, key=lambda device: math.fsum(device.series.write_bytes), default=None)
    wal = next((device for device in io.devices if "wal" in device.roles), None)
    separate = data is not None and wal is not None and has_only_wal(wal, io.devices)
    passes_through = wal is not None and not underlying_devices(wal.number, io.devices).isdisjoint(device.number for device in data_devices)
    wal_numbers = series_numbers(wal.series) if wal is not None else {}
    external = is_external(result)
    latency = {} if external else io.latency  # without the log, all transactions are outside of checkpoints
    return TrialProfile(
        trial=result.id,
        throughput=throughput(result),
        seconds=phase.seconds,
        external=external,
        wal_separate=separate,
        wal_passes_through=passes_through,
        data=data,
        wal=wal,
        checkpoints=tuple(io.checkpoints),
        stalls=_stalls(phase, io, wal, separate),
        during=latency.get("inside", {}),
        between=latency.get("outside", {}),
        burst_ratio=None if data is None or wal is None or not separate or passes_through else burst_ratio(data.series, wal.series),
        wal_rate_postgres=_server_rate(phase, "wal.bytes"),
        wal_rate_device=wal_numbers.get("write_rate") if separate else None,
        relation_read_rate=_server_rate(phase, "io.read_bytes"),
        relation_write_rate=_server_rate(phase, "io.write_bytes"),
        checkpoint_rate=_checkpoint_rate(phase),
        checkpoint_write_rate=_server_rate(phase, "checkpoint.buffers_written", PAGE_BYTES),
        data_rate_device=_device_sum(data_devices, "write_rate") if separate and not passes_through else None,
        iops=_device_sum(data_devices, "reads", "writes"),
        share_under_1ms=_share_under_1ms(data_devices),
    )


def _stalls(phase: PhaseResult, io: DeviceIo, wal: DeviceView | None, separate: bool) -> tuple[Stall, ...] | None:
    if wal is None:
        return None
    series = wal.series
    lengths = [len(target.per_second) for target in phase.targets]
    if not lengths:
        return None
    per_second = [math.fsum(target.per_second[i] for target in phase.targets) for i in range(min(lengths))]
    transactions = aligned(series.at, series.seconds, per_second)
    # On a device shared with data most bytes are data. There a commit is visible as the flush that it waits for.
    activity = series.write_bytes if separate or not any(series.flushes) else series.flushes
    detected = stalls(series.at, series.seconds, activity, transactions, io.checkpoints)
    return None if detected is None else tuple(detected)


def _server_rate(phase: PhaseResult, metric: str, factor: float = 1.0) -> float | None:
    """Return the sum in MB/s over the servers that have the metric."""
    rates = [values[metric] for entity, values in phase.metrics.items() if entity.startswith("server:") and metric in values]
    return factor * math.fsum(rates) / MB_PER_SECOND if rates else None


def _checkpoint_rate(phase: PhaseResult) -> float | None:
    """Return the checkpoints per minute of the servers that count them."""
    names = ("checkpoint.timed", "checkpoint.requested")
    servers = [values for entity, values in phase.metrics.items() if entity.startswith("server:") and all(name in values for name in names)]
    return 60 * math.fsum(values[name] for values in servers for name in names) if servers else None


def _device_sum(devices: Sequence[DeviceView], *names: str) -> float | None:
    """Return the sum of these numbers over the devices. None if a device lacks one of them."""
    values = [series_numbers(device.series).get(name) for device in devices for name in names]
    present = [value for value in values if value is not None]
    return math.fsum(present) if present and len(present) == len(values) else None


def _share_under_1ms(devices: Sequence[DeviceView]) -> float | None:
    """Return the share of traced reads and writes that took less than 1 ms."""
    if not devices or any(device.trace is None for device in devices):
        return None  # a traced device without requests has an empty trace, not None
    counts = histogram.merged(
        device.trace[kind].latency for device in devices if device.trace for kind in ("read", "write") if kind in device.trace
    )
    return histogram.share_below(counts, 1000.0)


def quantile_ms(counts: dict[int, int], share: float) -> float | None:
    """Return a quantile in ms of a histogram of microseconds."""
    value = histogram.quantile(counts, share)
    return None if value is None else value / 1000
