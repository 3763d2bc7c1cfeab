"""Run directory: ``run.json``, and one directory per finished trial.

A trial is written into ``trials/NNNN.partial`` and renamed to ``trials/NNNN``, so that a directory with the final name is complete.
``run.json`` is replaced atomically. A flock on ``lock`` distinguishes a live run from one whose process was killed.
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
from pgherd.node.files import make_private
from pgherd.store import version_1

_NAME = re.compile(r"^\d{8}-\d{6}-[a-z-]+-[0-9a-f]{4}$")

_STARTUP_S = 60.0
"""Time in which a new run may still lack ``run.json`` or ``lock``."""

KILLED = "its process was killed"
_LOCK_ATTEMPTS, _LOCK_RETRY_S = 5, 0.05


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        """Set the path. Nothing is read or written."""
        self.path = path

    @classmethod
    def create(cls, root: Path, study: str) -> RunDirectory:
        """Create a run directory in ``root``, named time-study-suffix.

        Raises:
            UsageError: the root is not writable.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{study}-{secrets.token_hex(2)}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            (root / name).mkdir(mode=0o700)  # command lines, settings and output are for this user only
            (root / name / "trials").mkdir(mode=0o700)
        except OSError as error:
            raise _root_error(root, error.strerror or str(error)) from None
        return cls(root / name)

    @staticmethod
    def check_root(root: Path) -> None:
        """Raise UsageError if no run directory can be created in ``root``. Creates nothing."""
        existing = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir():
            raise _root_error(root, f"{existing} is not a directory")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise _root_error(root, f"{existing} cannot be written")

    @classmethod
    def find(cls, run: str, root: Path) -> RunDirectory:
        """Find a run by its path, its name, or an unambiguous part of its name. 'last' is the newest.

        Raises:
            RunDirectoryError: no run matches, or more than one.
        """
        for candidate in (Path(run), root / run):
            if (candidate / "run.json").is_file():
                return cls(candidate)
        names = [directory.path.name for directory in cls.all(root)]
        matches = names[-1:] if run == "last" else [name for name in names if run in name]
        if len(matches) == 1:
            return cls(root / matches[0])
        if matches:
            raise RunDirectoryError(f"'{run}' matches {len(matches)} runs in {root}: {', '.join(matches)}; name one of them")
        if Path(run).is_dir():
            raise RunDirectoryError(f"{run} is not a run directory of pgherd: it has no run.json")
        newest = f"; it has {', '.join(names[-3:])}" if names else "; it has none"
        raise RunDirectoryError(f"no run '{run}' in {root}{newest} (see 'pgherd list', or set --runs-dir)")

    @staticmethod
    def is_name(name: str) -> bool:
        """Return True if a run directory may have this name."""
        return _NAME.fullmatch(name) is not None

    @classmethod
    def all(cls, root: Path) -> list[RunDirectory]:
        """Return all runs in the root, oldest first. Other files and directories are left out."""
        if not root.is_dir():
            return []
        return [cls(path) for path in sorted(root.iterdir()) if _NAME.match(path.name) and (path / "run.json").is_file()]

    @classmethod
    def drop_abandoned(cls, root: Path) -> list[str]:
        """Remove runs whose process was killed before it wrote run.json. Returns their names.

        Runs younger than a minute are kept, because their process may still be about to write it.
        """
        removed = []
        for path in sorted(root.iterdir()) if root.is_dir() else []:
            if _NAME.match(path.name) and not (path / "run.json").exists() and time.time() - path.stat().st_mtime > _STARTUP_S:
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)
        return removed

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def record(self) -> RunRecord:
        """Read ``run.json``.

        Raises:
            RunDirectoryError: it is missing, truncated, no record of a run, or of another schema.
        """
        file = self.path / "run.json"
        try:
            document = json.loads(file.read_text())
        except FileNotFoundError:
            raise RunDirectoryError(f"{self.path} is not a run directory of pgherd: it has no run.json") from None
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{file} cannot be read ({error}); its finished trials are in {self.path}/trials") from None
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema not in (SCHEMA, version_1.SCHEMA):
            raise RunDirectoryError(f"{file} has schema '{schema}', but this pgherd reads '{SCHEMA}'; use the pgherd that wrote it")
        try:
            return RunRecord.model_validate(document if schema == SCHEMA else version_1.run_document(document))
        except (KeyError, TypeError, AttributeError) as error:
            raise RunDirectoryError(f"{file} is no record of a run: {error!r}") from None
        except ValidationError as error:
            location = ".".join(map(str, error.errors()[0]["loc"]))
            raise RunDirectoryError(f"{file} is no record of a run: {location}: {error.errors()[0]['msg']}") from None

    def standing(self) -> RunRecord:
        """Return the record with its actual state: a run recorded as running without a process was interrupted.

        Raises:
            RunDirectoryError: as in ``record``.
        """
        alive = self.alive()  # before run.json is read, so that a run which ends in between counts as ended
        record = self.record()
        starting = not (self.path / "lock").exists() and time.time() - record.started < _STARTUP_S
        if alive or starting or record.state != "running":
            return record
        return record.model_copy(update={"state": "interrupted", "error": KILLED})

    def begun(self) -> bool:
        """Return True if the study has proposed trials."""
        try:
            return bool(self.record().proposals)
        except RunDirectoryError:
            return False

    def discard_unless_begun(self) -> None:
        """Remove a run without proposals and trials, because it has no results."""
        if not self.begun() and not list((self.path / "trials").glob("*/trial.json")):
            shutil.rmtree(self.path, ignore_errors=True)

    def save(self, record: RunRecord) -> None:
        """Replace ``run.json`` and sync it, in the present schema. Raises OSError, for example if the disk is full."""
        record = record.model_copy(update={"schema_": SCHEMA})
        self.write("run.json", record.model_dump_json(by_alias=True, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the run atomically: temporary name, sync, rename."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def next_trial(self) -> str:
        """Return the id of the next trial: above all existing ones, even if some have been removed by hand."""
        ids = [int(path.name) for path in (self.path / "trials").glob("[0-9]*") if path.name.isdecimal()]
        return f"{max(ids, default=0) + 1:04d}"

    def begin_trial(self, trial: str) -> Path:
        """Create an empty directory for the trial's raw files, with the name of an unfinished trial."""
        path = self.path / "trials" / f"{trial}.partial"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish_trial(self, result: TrialResult) -> Path:
        """Write ``trial.json`` and rename the directory to its final name."""
        partial = self.path / "trials" / f"{result.id}.partial"
        partial.mkdir(parents=True, exist_ok=True)
        with open(partial / "trial.json", "w") as file:
            file.write(result.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        make_private(partial)
        final = self.path / "trials" / result.id
        partial.replace(final)
        return final

    def drop_partial(self) -> list[str]:
        """Remove the directories of unfinished trials. Returns their ids."""
        unfinished = sorted((self.path / "trials").glob("*.partial"))
        for path in unfinished:
            shutil.rmtree(path, ignore_errors=True)
        return [path.name.removesuffix(".partial") for path in unfinished]

    def results(self) -> list[TrialResult]:
        """Return all finished trials in the order in which they ran.

        Raises:
            RunDirectoryError: one of them cannot be read.
        """
        results = []
        for file in sorted((self.path / "trials").glob("*/trial.json")):
            if file.parent.name.endswith(".partial"):
                continue
            try:
                data = file.read_bytes()
                if version_1.is_former_trial(data):
                    data = json.dumps(version_1.trial_document(self.record().study, json.loads(data))).encode()
                results.append(TrialResult.model_validate_json(data))
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = f"{len(error.errors())} invalid fields" if isinstance(error, ValidationError) else str(error)
                raise RunDirectoryError(f"{file} cannot be read ({reason}); remove its directory to continue without it") from None
        return results

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run during its execution.

        Raises:
            PgherdError: another process executes it.
        """
        with open(self.path / "lock", "w") as file:
            for _ in range(_LOCK_ATTEMPTS):
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOCK_RETRY_S)  # 'alive' of another process holds the lock for an instant
            else:
                raise PgherdError(f"run {self.name} is being executed by another pgherd: 'pgherd watch {self.name}' shows it")
            yield

    def alive(self) -> bool:
        """Return True if a process currently executes the run."""
        try:
            with open(self.path / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def _root_error(root: Path, reason: str) -> UsageError:
    return UsageError(f"cannot create a run directory in {root}: {reason}; choose another with --runs-dir DIR or PGHERD_RUNS")
