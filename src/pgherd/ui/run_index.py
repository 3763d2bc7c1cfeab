"""The list of runs: what it shows of each, read once and kept until the run's files change.

A run is recognised by the modification time and size of its ``run.json``, so that listing a thousand runs costs a thousand ``stat``
calls and not a thousand parses. What was read is also kept on disk, for the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pgherd.host import paths
from pgherd.model.finding import Grade
from pgherd.report.formatting import clean
from pgherd.store.run_directory import RunDirectory

LARGEST = 64 * 2**20
"""Bytes of a run.json beyond which it is not read for the list: no run of ours comes near it."""

_LONGEST = 400
_MOST_HOSTS = 1000
_LONGEST_HOST = 100
_SHOWN_HOSTS = 4
_BETWEEN = ", "
_SCHEMA = "pgherd/ui-index/2"
_UNFINISHED = ("running", "killed", "interrupted", "failed")


@dataclass(frozen=True)
class Summary:
    """What the list shows of a run. ``state`` is that of run.json, 'killed' where that says running but nothing runs it, or
    'unreadable', where ``answer`` says why. ``started`` and ``ended`` are seconds since the epoch; ``trials`` counts finished ones;
    ``host`` names all hosts, with commas between them.
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
        """Whether a process executes it."""
        return self.state == "running"

    @property
    def hosts(self) -> list[str]:
        """Each of its hosts; of a run on a cluster there are several."""
        return self.host.split(_BETWEEN) if self.host else []

    @property
    def hosts_shown(self) -> str:
        """Its hosts, or of many the first ones and how many more there are."""
        more = len(self.hosts) - _SHOWN_HOSTS
        return self.host if more <= 1 else f"{_BETWEEN.join(self.hosts[:_SHOWN_HOSTS])} and {more} more"


@dataclass(frozen=True)
class _CachedSummary:
    """A summary as run.json has it, and by what it is recognised."""

    stamp: tuple[int, int]
    summary: Summary


class RunIndex:
    """The runs below one directory. Its calls may come from any thread."""

    def __init__(self, root: Path, kept: Path | None = None) -> None:
        """Index the runs in ``root``; ``kept`` is the file that outlives the process (None: a file in the cache directory)."""
        self.root = root
        self._kept = kept if kept is not None else _kept_file(root)
        self._known: dict[str, _CachedSummary] = {}
        self._lock = threading.Lock()
        self._loaded = False

    def runs(self) -> list[Summary]:
        """All runs, newest first."""
        with self._lock:
            self._load()
            found: dict[str, _CachedSummary] = {}
            fresh = False
            for name, stamp in _stamps(self.root).items():
                known = self._known.get(name)
                if known is None or known.stamp != stamp:
                    known, fresh = _CachedSummary(stamp, _summary(self.root / name, name)), True
                found[name] = known
            gone = len(found) != len(self._known)
            self._known = found
            if fresh or gone:
                self._save()
            shown = [self._now(known.summary) for known in found.values()]
        return sorted(shown, key=lambda one: (one.started, one.run), reverse=True)

    def directory(self, run: str) -> RunDirectory | None:
        """The run of exactly this name; None where there is none. A name is never taken for a path."""
        names = {entry.name for entry in os.scandir(self.root)} if self.root.is_dir() and len(run) < 200 else set()
        found = RunDirectory(self.root / run) if run in names else None
        return found if found is not None and RunDirectory.is_name(run) and (found.path / "run.json").is_file() else None

    def _now(self, summary: Summary) -> Summary:
        """The same with what may have changed beside run.json."""
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
            document = json.loads(self._kept.read_bytes())
            if document["schema"] == _SCHEMA:
                for row in document["runs"]:
                    summary = Summary(**{name: value for name, value in row["summary"].items() if name in names})
                    self._known[summary.run] = _CachedSummary((int(row["stamp"][0]), int(row["stamp"][1])), summary)

    def _save(self) -> None:
        """Keep it for the next start. What cannot be written is read again then."""
        rows = [{"stamp": known.stamp, "summary": asdict(known.summary)} for known in self._known.values()]
        temporary = self._kept.with_name(f"{self._kept.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            self._kept.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
            number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(number, "w") as file:
                json.dump({"schema": _SCHEMA, "runs": rows}, file)
            temporary.replace(self._kept)


def _kept_file(root: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return paths.cache_dir() / "ui" / f"index-{digest}.json"


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Name → modification time (ns) and size of run.json, of everything that looks like a run."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if RunDirectory.is_name(entry.name):
                with contextlib.suppress(OSError):
                    seen = os.stat(f"{entry.path}/run.json")
                    found[entry.name] = (seen.st_mtime_ns, seen.st_size)
    return found


def _summary(path: Path, name: str) -> Summary:
    """Read with no more checks than the list needs; whoever opens the run hears what else is wrong with it."""
    try:
        if (path / "run.json").stat().st_size > LARGEST:
            raise ValueError(f"run.json is larger than {LARGEST // 2**20} MB")
        document = json.loads((path / "run.json").read_bytes())
        return _of(document, path, name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = clean(error)[:_LONGEST]
        return Summary(name, clean(name.split("-")[2]), "unreadable", _instant(name), answer=f"run.json cannot be read: {why}")


def _of(document: Mapping[str, Any], path: Path, name: str) -> Summary:
    analysis = document.get("analysis") or {}
    hosts = document.get("hosts") or {}
    own = [clean(str(facts.get("hostname") or key)) for key, facts in hosts.items()]
    names = own if len(set(own)) == len(own) else list(map(clean, hosts))  # of a cluster whose hosts have one name their names there
    state, grade = str(document["state"]), analysis.get("grade")
    ended = document.get("ended")
    return Summary(
        run=name,
        study=clean(str(document["study"]))[:60],
        state=state if state in ("running", "finished", "interrupted", "failed") else "unreadable",
        started=float(document["started"]),
        ended=None if ended is None else float(ended),
        grade=grade if grade in ("A", "B", "C") else None,
        host=_BETWEEN.join(name[:_LONGEST_HOST] for name in names[:_MOST_HOSTS]),
        answer=clean(str(analysis.get("answer") or document.get("error") or ""))[:_LONGEST],
        trials=_trials(path),
        resumable=state != "finished" and document.get("surroundings") is not None,
    )


def _trials(path: Path) -> int:
    """How many trials are finished, by their directories' names."""
    try:
        with os.scandir(path / "trials") as entries:
            return sum(entry.name.isdecimal() for entry in entries)
    except OSError:
        return 0


def _instant(name: str) -> float:
    """When a run began, by its name; 0.0 where that is no instant."""
    import time

    try:
        return time.mktime(time.strptime(name[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return 0.0
