"""Runs that are looked at while they run: each is read once a second however many pages watch it, and forgotten when none does."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pgherd.report.live_status import LiveRun, LiveStatus
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.sparkline import Sparkline, sparkline

_AT_MOST_EVERY = 0.8
_FORGOTTEN_AFTER = 60.0
SHOWN = 120.0
"""Seconds of the past that the curves show."""


@dataclass(frozen=True)
class Seen:
    """What a look showed, and curves of the last two minutes: throughput per second, and CPU in use on the host (cores)."""

    present: LiveStatus
    throughput: Sparkline | None
    cpu: Sparkline | None


@dataclass
class _Watched:
    run: LiveRun
    lock: threading.Lock
    seen: Seen | None = None
    at: float = 0.0


class Watching:
    """All runs that are watched. Its calls may come from any thread."""

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self._runs: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def look(self, directory: RunDirectory) -> Seen:
        """What the run shows now, or showed less than a second ago.

        Raises:
            RunDirectoryError: the directory holds no run that this version can read.
        """
        now = time.monotonic()
        with self._lock:
            self._runs = {name: one for name, one in self._runs.items() if now - one.at < _FORGOTTEN_AFTER or not one.at}
            watched = self._runs.setdefault(str(directory.path), _Watched(LiveRun(directory), threading.Lock()))
        with watched.lock:
            if watched.seen is None or time.monotonic() - watched.at >= _AT_MOST_EVERY:
                present = watched.run.look()
                watched.seen = Seen(present, _throughput(present), _cpu(watched.run, present))
                watched.at = time.monotonic()
            return watched.seen


def _throughput(present: LiveStatus) -> Sparkline | None:
    if present.throughput is None:
        return None
    return sparkline(present.throughput.series, present.at, SHOWN)


def _cpu(run: LiveRun, present: LiveStatus) -> Sparkline | None:
    if run.readings is None:
        return None
    return sparkline(run.cpu, present.at, SHOWN, present.host.vcpus if present.host else None)
