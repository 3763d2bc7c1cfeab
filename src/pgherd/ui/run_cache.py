"""Runs as the pages show them, read once and kept while their files do not change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.store.run_directory import RunDirectory

_KEPT = 8


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run with all its finished trials. While nothing changes it is the same object."""

    directory: RunDirectory
    record: RunRecord
    results: tuple[TrialResult, ...]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.directory.name


class RunCache:
    """Reads whole runs, and keeps the last few. Its calls may come from any thread."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._kept: OrderedDict[str, tuple[tuple[int, ...], LoadedRun]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, directory: RunDirectory) -> LoadedRun:
        """The run as it is on disk.

        Raises:
            RunDirectoryError: it cannot be read.
        """
        key, stamp = str(directory.path), _stamp(directory)
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known[0] == stamp:
                self._kept.move_to_end(key)
                return known[1]
        whole = LoadedRun(directory, directory.record(), tuple(directory.results()))
        with self._lock:
            self._kept[key] = (stamp, whole)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return whole


def _stamp(directory: RunDirectory) -> tuple[int, ...]:
    """What changes with run.json, or when a trial is finished."""
    found: list[int] = []
    for path in (directory.path / "run.json", directory.path / "trials"):
        try:
            seen = path.stat()
            found += [seen.st_mtime_ns, seen.st_size]
        except OSError:
            found += [0, 0]
    return tuple(found)
