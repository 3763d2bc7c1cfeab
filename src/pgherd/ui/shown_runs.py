"""Runs that pages show: an index of all, a cache of those shown, and the present state of those that are executed.

The index keeps a summary of each run until the modification time or size of its ``run.json`` changes. Listing a thousand runs then costs
a thousand ``stat`` calls and no parsing. The summaries are also stored on disk for the next start.

A run in progress has curves of its recent past. It is polled at most once a second, even if several pages show it, and dropped when
none does.
"""

from __future__ import annotations

import calendar
import contextlib
import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pgherd.host import paths
from pgherd.model.analysis import Grade
from pgherd.model.errors import PgherdError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report.live_status import LiveRun, LiveStatus
from pgherd.store.run_directory import RunDirectory
from pgherd.study.analyse_run import refreshed

_MAX_TEXT = 400
_MAX_HOSTS = 1000
_MAX_HOST_NAME = 100
_SHOWN_HOSTS = 4
_SEPARATOR = ", "
_SCHEMA = "pgherd/ui-index/2"
_UNFINISHED = ("running", "killed", "interrupted", "failed")
_CACHED_RUNS = 8


@dataclass(frozen=True)
class Summary:
    """Row of the list of runs.

    ``state`` is that of run.json, 'killed' for a running one without a process, or 'unreadable', with the reason in ``answer``.
    ``started`` and ``ended`` are seconds since the epoch. ``trials`` counts finished ones. ``host`` lists all hosts, separated by commas.
    """

    run: str
    study: str
    state: str
    started: float
    ended: float | None = None
    grade: Grade | None = None
    host: str = ""
    answer: str = ""
    trials: int = 0
    resumable: bool = False

    @property
    def live(self) -> bool:
        """True while a process executes the run."""
        return self.state == "running"

    @property
    def hosts(self) -> list[str]:
        """Host names; several for a run on a cluster."""
        return self.host.split(_SEPARATOR) if self.host else []

    @property
    def hosts_shown(self) -> str:
        """Hosts, shortened to the first ones and the number of others."""
        others = len(self.hosts) - _SHOWN_HOSTS
        return self.host if others <= 1 else f"{_SEPARATOR.join(self.hosts[:_SHOWN_HOSTS])} and {others} more"


@dataclass(frozen=True)
class _CachedSummary:
    """Summary from run.json, with the modification time (ns) and size of the file."""

    stamp: tuple[int, int]
    summary: Summary


class RunIndex:
    """Runs in one directory. Thread-safe."""

    def __init__(self, root: Path, file: Path | None = None) -> None:
        """Index the runs in ``root``. ``file`` stores the index (None: a file in the cache directory)."""
        self.root = root
        self._file = file if file is not None else _index_file(root)
        self._by_name: dict[str, _CachedSummary] = {}
        self._lock = threading.Lock()
        self._loaded = False

    def runs(self) -> list[Summary]:
        """Return all runs, newest first."""
        with self._lock:
            self._load()
            by_name: dict[str, _CachedSummary] = {}
            changed = False
            for name, stamp in _stamps(self.root).items():
                cached = self._by_name.get(name)
                if cached is None or cached.stamp != stamp:
                    cached, changed = _CachedSummary(stamp, _summary(self.root / name, name)), True
                by_name[name] = cached
            changed |= len(by_name) != len(self._by_name)
            self._by_name = by_name
            if changed:
                self._save()
            summaries = [self._refreshed(cached.summary) for cached in by_name.values()]
        return sorted(summaries, key=lambda summary: (summary.started, summary.run), reverse=True)

    def directory(self, run: str) -> RunDirectory | None:
        """Return the run of exactly this name, or None. The name is never used as a path."""
        names = {entry.name for entry in os.scandir(self.root)} if self.root.is_dir() and len(run) < 200 else set()
        directory = RunDirectory(self.root / run) if run in names else None
        return directory if directory is not None and RunDirectory.is_name(run) and directory.has_record() else None

    def _refreshed(self, summary: Summary) -> Summary:
        """Update the parts of a summary that do not come from run.json."""
        if summary.state not in _UNFINISHED:
            return summary
        directory = RunDirectory(self.root / summary.run)
        state = summary.state if summary.state != "running" or directory.alive() else "killed"
        return replace(summary, state=state, trials=_trials(directory.path), resumable=summary.resumable and state != "running")

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        names = {field.name for field in fields(Summary)}
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            document = json.loads(self._file.read_bytes())
            if document["schema"] == _SCHEMA:
                for row in document["runs"]:
                    summary = Summary(**{name: value for name, value in row["summary"].items() if name in names})
                    self._by_name[summary.run] = _CachedSummary((int(row["stamp"][0]), int(row["stamp"][1])), summary)

    def _save(self) -> None:
        """Store the index for the next start. If the file cannot be written, the next start reads all runs."""
        rows = [{"stamp": cached.stamp, "summary": asdict(cached.summary)} for cached in self._by_name.values()]
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            paths.make_cache_dir()
            self._file.parent.mkdir(exist_ok=True, mode=0o711)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "w") as file:
                json.dump({"schema": _SCHEMA, "runs": rows}, file)
            temporary.replace(self._file)


def _index_file(root: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return paths.cache_dir() / "ui" / f"index-{digest}.json"


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Return run name → modification time (ns) and size of its run.json."""
    stamps = {}
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if RunDirectory.is_name(entry.name):
                with contextlib.suppress(OSError):
                    status = os.stat(f"{entry.path}/run.json", follow_symlinks=False)
                    stamps[entry.name] = (status.st_mtime_ns, status.st_size)
    return stamps


def _summary(path: Path, name: str) -> Summary:
    """Read a summary with only the checks that the list requires. The page of the run reports other errors."""
    try:
        return _from_document(RunDirectory(path).document(), path, name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, PgherdError) as error:
        reason = clean(error)[:_MAX_TEXT]
        return Summary(name, clean(name.split("-")[2]), "unreadable", _instant(name), answer=f"run.json cannot be read: {reason}")


def _from_document(document: Mapping[str, Any], path: Path, name: str) -> Summary:
    analysis = document.get("analysis") or {}
    hosts = document.get("hosts") or {}
    hostnames = [clean(str(facts.get("hostname") or key)) for key, facts in hosts.items()]
    # Hosts of a cluster may share one hostname. Then their names in the cluster are used.
    names = hostnames if len(set(hostnames)) == len(hostnames) else list(map(clean, hosts))
    state, grade = str(document["state"]), analysis.get("grade")
    ended = document.get("ended")
    return Summary(
        run=name,
        study=clean(str(document["study"]))[:60],
        state=state if state in ("running", "finished", "interrupted", "failed") else "unreadable",
        started=float(document["started"]),
        ended=None if ended is None else float(ended),
        grade=grade if grade in ("A", "B", "C") else None,
        host=_SEPARATOR.join(name[:_MAX_HOST_NAME] for name in names[:_MAX_HOSTS]),
        answer=clean(str(analysis.get("answer") or document.get("error") or ""))[:_MAX_TEXT],
        trials=_trials(path),
        resumable=state != "finished" and (document.get("environment") or document.get("surroundings")) is not None,
    )


def _trials(path: Path) -> int:
    """Count finished trials by the names of their directories."""
    try:
        with os.scandir(path / "trials") as entries:
            return sum(entry.name.isdecimal() for entry in entries)
    except OSError:
        return 0


def _instant(name: str) -> float:
    """Return the start of a run from its name, or 0.0 if the name contains none."""
    try:
        return calendar.timegm(time.strptime(name[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return 0.0


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """Run with all its finished trials. The cache returns the same object until the run changes, but a new one for a killed run."""

    directory: RunDirectory
    record: RunRecord
    results: tuple[TrialResult, ...]

    @property
    def name(self) -> str:
        return self.directory.name


class RunCache:
    """The most recently used runs. Thread-safe."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, tuple[tuple[int, ...], LoadedRun]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, directory: RunDirectory) -> LoadedRun:
        """Return a run in its present state. A run that is recorded as running, but has no process, was interrupted.

        Raises:
            RunDirectoryError: the run cannot be read.
        """
        run = self._recorded(directory)
        if run.record.state != "running":
            return run
        record = directory.standing()  # not cached, because a killed process leaves run.json unchanged
        return run if record.state == "running" else replace(run, record=refreshed(record, run.results))

    def _recorded(self, directory: RunDirectory) -> LoadedRun:
        """Return a run with the state of its run.json."""
        key, stamp = str(directory.path), _run_stamp(directory)
        with self._lock:
            cached = self._runs.get(key)
            if cached is not None and cached[0] == stamp:
                self._runs.move_to_end(key)
                return cached[1]
        results = tuple(directory.results())
        run = LoadedRun(directory, refreshed(directory.record(), results), results)
        with self._lock:
            self._runs[key] = (stamp, run)
            while len(self._runs) > _CACHED_RUNS:
                self._runs.popitem(last=False)
        return run


def _run_stamp(directory: RunDirectory) -> tuple[int, ...]:
    """Return numbers that change if run.json changes or a trial finishes."""
    stamp: list[int] = []
    for path in (directory.path / "run.json", directory.path / "trials"):
        try:
            status = path.stat()
            stamp += [status.st_mtime_ns, status.st_size]
        except OSError:
            stamp += [0, 0]
    return tuple(stamp)


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
