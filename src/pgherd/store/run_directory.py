"""The run directory: ``run.json``, and one directory per finished trial.

A trial is written into ``trials/NNNN.partial`` and renamed to ``trials/NNNN`` when it is whole, so that whatever
carries the final name is complete; ``run.json`` is replaced atomically. A flock on ``lock`` tells a live run from one
whose process was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from pgherd.model.errors import PgherdError, RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import SCHEMA, RunRecord

_NAME = re.compile(r"^\d{8}-\d{6}-[a-z-]+-[0-9a-f]{4}$")

_ABOUT_TO_BEGIN = 60.0

KILLED = "its process was killed"
_TRIES, _TRY_AGAIN = 5, 0.05


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        """Name a run directory; nothing is read or written yet."""
        self.path = path

    @classmethod
    def create(cls, root: Path, study: str) -> RunDirectory:
        """Make a new run directory below ``root``, named time-study-suffix.

        Raises:
            UsageError: the root cannot be written.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{study}-{secrets.token_hex(2)}"
        try:
            (root / name / "trials").mkdir(parents=True)
        except OSError as error:
            raise _no_root(root, error.strerror or str(error)) from None
        return cls(root / name)

    @staticmethod
    def check_root(root: Path) -> None:
        """Raise UsageError where no run directory can be made; makes nothing."""
        existing = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir():
            raise _no_root(root, f"{existing} is not a directory")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise _no_root(root, f"{existing} cannot be written")

    @classmethod
    def find(cls, run: str, root: Path) -> RunDirectory:
        """Find a run by its path, its name, or an unambiguous part of its name ('last' is the newest).

        Raises:
            RunDirectoryError: there is none, or more than one.
        """
        for candidate in (Path(run), root / run):
            if (candidate / "run.json").is_file():
                return cls(candidate)
        names = [directory.path.name for directory in cls.all(root)]
        matches = names[-1:] if run == "last" else [name for name in names if run in name]
        if len(matches) == 1:
            return cls(root / matches[0])
        if matches:
            raise RunDirectoryError(f"'{run}' fits {len(matches)} runs in {root}: {', '.join(matches)}; name one of them")
        if Path(run).is_dir():
            raise RunDirectoryError(f"{run} is not a run directory of pgherd: it has no run.json")
        known = f"; it holds {', '.join(names[-3:])}" if names else "; it holds none"
        raise RunDirectoryError(f"no run '{run}' in {root}{known} (see 'pgherd runs', or give --runs DIR)")

    @staticmethod
    def is_name(name: str) -> bool:
        """Whether a directory of this name may be a run's."""
        return _NAME.fullmatch(name) is not None

    @classmethod
    def all(cls, root: Path) -> list[RunDirectory]:
        """All runs below the root, oldest first; what does not look like a run is left out."""
        if not root.is_dir():
            return []
        return [cls(path) for path in sorted(root.iterdir()) if _NAME.match(path.name) and (path / "run.json").is_file()]

    @classmethod
    def drop_abandoned(cls, root: Path) -> list[str]:
        """Remove runs whose process was killed before it had written run.json; returns their names.

        Younger ones than a minute are left: their process may be about to write it.
        """
        dropped = []
        for path in sorted(root.iterdir()) if root.is_dir() else []:
            if _NAME.match(path.name) and not (path / "run.json").exists() and time.time() - path.stat().st_mtime > _ABOUT_TO_BEGIN:
                shutil.rmtree(path, ignore_errors=True)
                dropped.append(path.name)
        return dropped

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.resolve().name

    def record(self) -> RunRecord:
        """What ``run.json`` holds.

        Raises:
            RunDirectoryError: it is missing, truncated, foreign, or of a newer schema.
        """
        file = self.path / "run.json"
        try:
            document = json.loads(file.read_text())
        except FileNotFoundError:
            raise RunDirectoryError(f"{self.path} is not a run directory of pgherd: it has no run.json") from None
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{file} cannot be read ({error}); its finished trials are in {self.path}/trials") from None
        found = document.get("schema") if isinstance(document, dict) else None
        if found != SCHEMA:
            raise RunDirectoryError(f"{file} has schema '{found}', but this pgherd reads '{SCHEMA}'; use the pgherd that wrote it")
        try:
            return RunRecord.model_validate(document)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise RunDirectoryError(f"{file} is not what this pgherd writes: {where}: {error.errors()[0]['msg']}") from None

    def standing(self) -> RunRecord:
        """The record as things stand: of a run that says it is running, and is executed by nobody, that it was interrupted.

        Raises:
            RunDirectoryError: as ``record``.
        """
        alive = self.alive()  # before run.json is read: a run that ends in between is then said to have ended
        record = self.record()
        beginning = not (self.path / "lock").exists() and time.time() - record.started < _ABOUT_TO_BEGIN
        if alive or beginning or record.state != "running":
            return record
        return record.model_copy(update={"state": "interrupted", "error": KILLED})

    def begun(self) -> bool:
        """Whether the study has proposed anything yet."""
        try:
            return bool(self.record().proposals)
        except RunDirectoryError:
            return False

    def discard_unless_begun(self) -> None:
        """Remove a run whose study has not begun: it holds nothing that a user would want."""
        if not self.begun() and not list((self.path / "trials").glob("*/trial.json")):
            shutil.rmtree(self.path, ignore_errors=True)

    def save(self, record: RunRecord) -> None:
        """Replace ``run.json``, synced. Raises OSError (a full disk)."""
        self.write("run.json", record.model_dump_json(by_alias=True, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the run: temporary name, sync, rename."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def next_trial(self) -> str:
        """The id for one more trial: beyond all that stand there, even where some have been removed by hand."""
        ids = [int(path.name) for path in (self.path / "trials").glob("[0-9]*") if path.name.isdecimal()]
        return f"{max(ids, default=0) + 1:04d}"

    def begin_trial(self, trial: str) -> Path:
        """An empty directory for the trial's raw files, under a name that says it is not finished."""
        path = self.path / "trials" / f"{trial}.partial"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish_trial(self, result: TrialResult) -> Path:
        """Write ``trial.json`` and give the directory its final name."""
        partial = self.path / "trials" / f"{result.id}.partial"
        partial.mkdir(parents=True, exist_ok=True)
        with open(partial / "trial.json", "w") as file:
            file.write(result.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        final = self.path / "trials" / result.id
        partial.replace(final)
        return final

    def drop_partial(self) -> list[str]:
        """Remove what unfinished trials left; returns their ids."""
        left = sorted((self.path / "trials").glob("*.partial"))
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return [path.name.removesuffix(".partial") for path in left]

    def results(self) -> list[TrialResult]:
        """All finished trials in the order in which they ran.

        Raises:
            RunDirectoryError: one of them cannot be read.
        """
        found = []
        for file in sorted((self.path / "trials").glob("*/trial.json")):
            if file.parent.name.endswith(".partial"):
                continue
            try:
                found.append(TrialResult.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError) as error:
                what = f"{len(error.errors())} faults" if isinstance(error, ValidationError) else str(error)
                raise RunDirectoryError(f"{file} cannot be read ({what}); remove its directory to go on without it") from None
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run while it is being executed.

        Raises:
            PgherdError: another process executes it.
        """
        with open(self.path / "lock", "w") as file:
            for _ in range(_TRIES):
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_TRY_AGAIN)  # 'alive' of somebody who watches holds it for an instant
            else:
                raise PgherdError(f"run {self.name} is being executed by another pgherd: 'pgherd watch {self.name}' shows it")
            yield

    def alive(self) -> bool:
        """Whether a process executes the run right now."""
        try:
            with open(self.path / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def _no_root(root: Path, why: str) -> UsageError:
    return UsageError(f"cannot make a run directory in {root}: {why}; choose another with --runs DIR or PGHERD_RUNS")
