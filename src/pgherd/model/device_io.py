"""I/O of the block devices below a trial's servers, and the servers' checkpoints. Stored with each phase's result."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from pgherd.model.base import Model

Direction = Literal["read", "write", "flush", "discard"]
DeviceRole = Literal["data", "wal", "tablespace", "volume"]
"""Contents of a device: parts of servers, or the files of a volume that is itself a target."""


class BlockRequest(NamedTuple):
    """One request to a block device. ``issued`` and ``completed`` are seconds of one clock (None: completion not observed).

    ``offset`` and ``size`` are bytes. ``device`` is ``major:minor``.
    """

    device: str
    direction: Direction
    offset: int
    size: int
    issued: float
    completed: float | None


class DeviceSeries(Model):
    """Series of a device by interval between two samples, in order of time. All lists have the same length.

    ``at`` is the interval's end in seconds from the window's start, ``seconds`` its length. Requests and bytes are per second.
    ``writes`` exclude flushes. ``queue`` is the mean number of requests in flight. ``…_await`` is the mean time from issue to
    completion in ms, None in an interval without such requests. ``queue`` and ``busy`` are None if the kernel does not report
    them.
    """

    at: list[float] = Field(default_factory=list)
    seconds: list[float] = Field(default_factory=list)
    reads: list[float] = Field(default_factory=list)
    writes: list[float] = Field(default_factory=list)
    flushes: list[float] = Field(default_factory=list)
    read_bytes: list[float] = Field(default_factory=list)
    write_bytes: list[float] = Field(default_factory=list)
    queue: list[float | None] = Field(default_factory=list)
    busy: list[float | None] = Field(default_factory=list, description="share of time with at least one request in flight")
    read_await: list[float | None] = Field(default_factory=list)
    write_await: list[float | None] = Field(default_factory=list)
    flush_await: list[float | None] = Field(default_factory=list)


class Pattern(Model):
    """Pattern of one direction on one device, from a trace.

    ``window_share`` and ``adjacent_share`` are the shares of sequential requests by the two rules of
    pgherd.analysis.io_pattern, None with fewer than two requests. ``sizes`` counts requests by size in bytes. Rare sizes are
    counted under 0. ``latency`` and ``gaps`` are histograms (bucket → count, see pgherd.analysis.histogram) in microseconds.
    """

    requests: int
    bytes: int
    window_share: float | None = None
    adjacent_share: float | None = None
    sizes: dict[int, int] = Field(default_factory=dict)
    latency: dict[int, int] = Field(default_factory=dict)
    gaps: dict[int, int] = Field(default_factory=dict)


class DeviceView(Model):
    """One device during one phase. ``roles`` maps a role to the servers (``container/server``) or volumes with files on it.

    ``below`` are the devices that this one passes its requests to. ``trace`` is None without a trace.
    """

    number: str = Field(description="major:minor. For a guest's device its entity, guest-disk:GUEST/DEVICE or guest-drive:GUEST/DRIVE")
    name: str
    roles: dict[DeviceRole, list[str]] = Field(default_factory=dict)
    below: list[str] = Field(default_factory=list)
    series: DeviceSeries = DeviceSeries()
    trace: dict[Direction | Literal["all"], Pattern] | None = None


class Checkpoint(Model):
    """One checkpoint, from the server's log. ``start`` and ``end`` are seconds from the window's start.

    A negative ``start`` is before the window. ``end`` is None if the checkpoint was unfinished when the window ended. ``cause``
    is the server's term (time, wal, immediate …).
    """

    server: str
    start: float
    end: float | None = None
    cause: str = ""
    buffers: int | None = None
    write_seconds: float | None = None
    sync_seconds: float | None = None
    distance_bytes: int | None = None


class TraceCost(Model):
    """Cost and losses of tracing over the whole trial.

    ``cpu`` of the tracing program in cores, ``events`` written, events ``lost`` by the kernel, and requests without an observed
    completion (``incomplete``).
    """

    cpu: float | None
    events: int
    lost: int
    incomplete: int = 0


class DeviceIo(Model):
    """I/O of one phase. ``missing`` are sentences on data that could not be observed, with reasons."""

    devices: list[DeviceView] = Field(default_factory=list)
    checkpoints: list[Checkpoint] = Field(default_factory=list)
    trace: TraceCost | None = None
    latency: dict[Literal["inside", "outside"], dict[int, int]] = Field(
        default_factory=dict, description="logged transactions inside and outside of checkpoints: histograms of microseconds"
    )
    latency_by_second: list[float | None] = Field(
        default_factory=list, description="mean latency of the logged transactions that ended in each second of the window, ms"
    )
    missing: list[str] = Field(default_factory=list)
