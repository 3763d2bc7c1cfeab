"""Runs in progress as the pages show them, with curves of their recent past.

Each run is polled at most once a second, even if several pages show it, and dropped when none does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.report.live_status import LiveRun, LiveStatus
from pgherd.store.run_directory import RunDirectory

_POLL_INTERVAL_S = 0.8
_DROP_AFTER_S = 60.0
SHOWN = 120.0
"""Seconds of the past that the curves show."""
WIDTH, HEIGHT = 600, 96
_TOLERANCE = 1.05
"""Factor by which a value may exceed the axis's top, because the clocks of its measurement differ."""


@dataclass(frozen=True)
class Sparkline:
    """Curve as SVG paths in a box of WIDTH × HEIGHT. The axis goes from 0 to ``top``; ``last`` is the latest value."""

    line: str
    area: str
    top: float
    last: float
    seconds: float


@dataclass(frozen=True)
class RunSnapshot:
    """State of a run, with curves of throughput per second and of CPU in use on the host (cores)."""

    present: LiveStatus
    throughput: Sparkline | None
    cpu: Sparkline | None


@dataclass
class _CachedRun:
    run: LiveRun
    lock: threading.Lock
    snapshot: RunSnapshot | None = None
    at: float = 0.0


class LiveRuns:
    """All runs that pages show. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, _CachedRun] = {}
        self._lock = threading.Lock()

    def poll(self, directory: RunDirectory) -> RunSnapshot:
        """Return the state of a run, at most a second old.

        Raises:
            RunDirectoryError: this version cannot read the run.
        """
        now = time.monotonic()
        with self._lock:
            self._runs = {path: cached for path, cached in self._runs.items() if now - cached.at < _DROP_AFTER_S or not cached.at}
            cached = self._runs.setdefault(str(directory.path), _CachedRun(LiveRun(directory), threading.Lock()))
        with cached.lock:
            if cached.snapshot is None or time.monotonic() - cached.at >= _POLL_INTERVAL_S:
                present = cached.run.look()
                cached.snapshot = RunSnapshot(present, _throughput(present), _cpu(cached.run, present))
                cached.at = time.monotonic()
            return cached.snapshot


def _throughput(present: LiveStatus) -> Sparkline | None:
    if present.throughput is None:
        return None
    return sparkline(present.throughput.series, present.at, SHOWN)


def _cpu(run: LiveRun, present: LiveStatus) -> Sparkline | None:
    if run.readings is None:
        return None
    return sparkline(run.cpu, present.at, SHOWN, present.host.vcpus if present.host else None)


def sparkline(series: Sequence[tuple[float, float]], now: float, seconds: float, top: float | None = None) -> Sparkline | None:
    """Draw the last ``seconds`` of a series of (seconds since the epoch, value). Return None for fewer than two points.

    The axis ends at ``top``. Without it, or if a value exceeds it, the axis ends slightly above the largest value. A shorter series
    starts at the left edge.
    """
    shown = sorted({t: value for t, value in series if t >= now - seconds}.items())  # of equal instants the last value
    if len(shown) < 2:
        return None
    begin = max(now - seconds, shown[0][0])
    span = max(now - begin, 10.0)
    largest = max(value for _, value in shown)
    ceiling = top if top is not None and largest <= top * _TOLERANCE else largest * 1.1 or 1.0
    points = [((t - begin) / span * WIDTH, HEIGHT - min(max(value, 0.0) / ceiling, 1.0) * (HEIGHT - 4)) for t, value in shown]
    line = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{line}L{points[-1][0]:.1f},{HEIGHT}L{points[0][0]:.1f},{HEIGHT}Z"
    return Sparkline(line, area, ceiling, shown[-1][1], span)
