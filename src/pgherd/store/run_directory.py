"""Run directory: ``run.json``, and one directory per finished trial.

A trial is written into ``trials/NNNN.partial`` and renamed to ``trials/NNNN``, so that a directory with the final name is complete.
``run.json`` is replaced atomically. A flock on ``lock`` distinguishes a live run from one whose process was killed.

A run directory may be from another user. Files in it are opened through a handle of the directory and without following links, and no
method writes into a directory that is not the user's (``pgherd.node.files.ours``).
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from pgherd.model.errors import PgherdError, RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import SCHEMA, RunRecord
from pgherd.node import files
from pgherd.node.files import Directory, UnsafeFileError
from pgherd.store import version_1

_NAME = re.compile(r"^\d{8}-\d{6}-[a-z-]+-[0-9a-f]{4}$")

DEFAULT_ROOT = Path("pgherd-runs")

_STARTUP_S = 60.0
"""Time in which a new run may still lack ``run.json`` or ``lock``."""

KILLED = "its process was killed"
_LOCK_ATTEMPTS, _LOCK_RETRY_S = 5, 0.05

_MAX_JSON_VALUES = 5_000_000
"""Maximum number of values in run.json or trial.json. Three hours of a hundred databases have 1.1 million of throughput alone, and
twice as many for each latency objective. Reading takes about 75 bytes for each."""
_MAX_RESULTS_BYTES = 512 * 2**20
"""Maximum size of all trial.json of a run."""
_MAX_COPY_BYTES = 2**30
"""Maximum size of a run that is copied."""


def without_process(record: RunRecord) -> RunRecord:
    """Return the record of a run that no process executes: if it says that the run is running, its process was killed."""
    return record.model_copy(update={"state": "interrupted", "error": KILLED}) if record.state == "running" else record


class RunDirectory:
    """Directory of one run: its record and its trials."""

    def __init__(self, path: Path) -> None:
        """Set the path. Nothing is read or written."""
        self.path = path

    @classmethod
    def create(cls, root: Path, study: str) -> RunDirectory:
        """Create a run directory in ``root``, named time-study-suffix. The time is UTC, so that names sort in any time zone.

        Raises:
            UsageError: the root is not writable, or this process is of root and other users can exchange what is in it.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{study}-{secrets.token_hex(2)}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            _require_safe_for_root(root, root)  # another user may have created it since check_root
            (root / name).mkdir(mode=0o700)  # command lines, settings and output are for this user only
            (root / name / "trials").mkdir(mode=0o700)
        except OSError as error:
            raise _root_error(root, error.strerror or str(error)) from None
        return cls(root / name)

    @staticmethod
    def check_root(root: Path) -> None:
        """Raise UsageError if no run directory can be created in ``root``. Creates nothing.

        Root also requires that no other user can exchange a run directory there, because files of a trial are written by their paths.
        """
        existing = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir():
            raise _root_error(root, f"{existing} is not a directory")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise _root_error(root, f"{existing} cannot be written")
        _require_safe_for_root(root, existing)

    @classmethod
    def find(cls, run: str, root: Path) -> RunDirectory:
        """Find a run by its name, an unambiguous part of its name, or its path, which must contain a slash.

        'last' is the newest run of this user or of the root's owner, because another user may add one to a shared root.

        Raises:
            RunDirectoryError: no run matches, or more than one.
        """
        if "/" in run or run in (".", ".."):
            directory = cls(Path(run))
            if not directory.has_record():
                raise RunDirectoryError(f"{run} is not a run directory of pgherd: it has no run.json")
            return directory
        directories = cls.all(root)
        if run == "last":
            trusted = files.ours() | {root.stat().st_uid} if directories else set()
            directories = [directory for directory in directories if directory.owner() in trusted][-1:]
        elif run and cls(root / run).has_record():
            return cls(root / run)
        names = [directory.path.name for directory in directories]
        matches = names if run == "last" else [name for name in names if run in name]
        if len(matches) == 1:
            return cls(root / matches[0])
        if matches:
            raise RunDirectoryError(f"'{run}' matches {len(matches)} runs in {root}: {', '.join(matches)}; name one of them")
        if Path(run).is_dir():
            raise RunDirectoryError(f"no run '{run}' in {root}; a path of a run contains a slash: ./{run}")
        newest = f"; it has {', '.join(names[-3:])}" if names else "; it has none"
        raise RunDirectoryError(f"no run '{run}' in {root}{newest} (see 'pgherd list', or set --runs-dir)")

    @property
    def argument(self) -> str:
        """The run as a quoted argument of commands in this working directory: its name in the default root, else its path."""
        text = self.path.name if self.path.parent == DEFAULT_ROOT else str(self.path)
        bare = self.path.parent == Path() and text not in (".", "..")  # a path needs a slash
        return shlex.quote(f"./{text}" if bare else text)

    @staticmethod
    def is_name(name: str) -> bool:
        """Return True if a run directory may have this name."""
        return _NAME.fullmatch(name) is not None

    @classmethod
    def all(cls, root: Path) -> list[RunDirectory]:
        """Return all runs in the root, oldest first. Other files and directories are left out."""
        if not root.is_dir():
            return []
        return [cls(path) for path in sorted(root.iterdir()) if cls.is_name(path.name) and cls(path).has_record()]

    @classmethod
    def drop_abandoned(cls, root: Path) -> tuple[list[str], list[str]]:
        """Remove this user's runs whose process was killed before it wrote run.json.

        Returns their names, and sentences about those that cannot be removed. Runs younger than a minute are kept, because their
        process may still be about to write it.
        """
        removed, failures = [], []
        for path in sorted(root.iterdir()) if root.is_dir() else []:
            status = path.lstat()
            if not cls.is_name(path.name) or not stat.S_ISDIR(status.st_mode) or status.st_uid not in files.ours():
                continue
            if not os.path.lexists(path / "run.json") and time.time() - status.st_mtime > _STARTUP_S:
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    failures.append(_removal_error(path, error))
                else:
                    removed.append(path.name)
        return removed, failures

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def _open(self) -> Directory:
        """Open the directory. It may be a link, but links in it are not followed."""
        return Directory.open(os.path.realpath(self.path))

    @contextmanager
    def _open_to_write(self) -> Iterator[Directory]:
        """Open the directory to change it. It is created if it is missing.

        Raises:
            RunDirectoryError: it belongs to another user.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._open() as directory:
            if directory.owner() not in files.ours():
                raise RunDirectoryError(f"{self.foreign_text(directory.owner())}, and pgherd does not write into it")
            yield directory

    def has_record(self) -> bool:
        """Return True if there is a regular file ``run.json``, and the directory is no link of another user."""
        try:
            if stat.S_ISLNK((link := self.path.lstat()).st_mode) and link.st_uid not in files.ours() | {0}:
                return False
            return stat.S_ISREG((self.path / "run.json").lstat().st_mode)
        except OSError:
            return False

    def owner(self) -> int:
        """Return the uid that owns the directory. Raises OSError."""
        return self.path.stat().st_uid

    def is_ours(self) -> bool:
        """Return True if the directory belongs to this user, so that pgherd may write into it."""
        return self.owner() in files.ours()

    def foreign_text(self, owner: int | None = None) -> str:
        """Return text such as ``run NAME belongs to user 'nobody'``."""
        return f"run {self.name} belongs to {files.user_name(self.owner() if owner is None else owner)}"

    def distrust(self) -> str | None:
        """Return why another user can choose what this run's record and input files contain, or None if none can."""
        if not self.is_ours():
            return f"it belongs to {files.user_name(self.owner())}"
        real = Path(os.path.realpath(self.path))
        for path in (real, real / "run.json", real / "trials", real / "inputs", *sorted((real / "inputs").rglob("*"))):
            if os.path.lexists(path) and (reason := files.distrust(path, *files.ours())):
                return reason
        return None

    def document(self) -> Any:
        """Return the contents of ``run.json`` unchecked.

        Raises:
            OSError, PgherdError, ValueError: it cannot be read, or is no JSON.
        """
        with self._open() as directory:
            return _json(directory.read("run.json"))

    def record(self) -> RunRecord:
        """Read ``run.json``.

        Raises:
            RunDirectoryError: it is missing, truncated, no record of a run, or of another schema.
        """
        file = self.path / "run.json"
        try:
            document = self.document()
        except FileNotFoundError:
            raise RunDirectoryError(f"{self.path} is not a run directory of pgherd: it has no run.json") from None
        except (OSError, ValueError, UnsafeFileError) as error:
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

    @cached_property
    def _study(self) -> str:
        """Name of the study, read once, because each trial of a former schema needs it. Raises as ``record``."""
        return self.record().study

    def standing(self) -> RunRecord:
        """Return the record with its actual state: a run recorded as running without a process was interrupted.

        Raises:
            RunDirectoryError: as in ``record``.
        """
        alive = self.alive()  # before run.json is read, so that a run which ends in between counts as ended
        record = self.record()
        starting = not (self.path / "lock").exists() and time.time() - record.started < _STARTUP_S
        return record if alive or starting else without_process(record)

    def begun(self) -> bool:
        """Return True if the study has proposed trials."""
        try:
            return bool(self.record().proposals)
        except RunDirectoryError:
            return False

    def discard_unless_begun(self) -> None:
        """Remove a run without proposals and trials, because it has no results."""
        if not self.begun() and not self.trial_names() and self.is_ours():
            shutil.rmtree(self.path, ignore_errors=True)

    def save(self, record: RunRecord) -> None:
        """Replace ``run.json`` and sync it, in the present schema. Raises OSError, for example if the disk is full."""
        record = record.model_copy(update={"schema_": SCHEMA})
        self.write("run.json", record.model_dump_json(by_alias=True, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the run atomically: temporary name, sync, rename. ``name`` may contain subdirectories.

        Raises:
            RunDirectoryError: the directory belongs to another user.
            UnsafeFileError: a subdirectory is a link.
            OSError: for example if the disk is full.
        """
        with self._open_to_write() as directory:
            files.write_below(directory, name, data, mode=0o600)

    def remove(self, name: str) -> None:
        """Remove a file in a subdirectory, if it exists. Raises as ``write``."""
        parent, _, last = name.rpartition("/")
        with self._open_to_write() as directory, suppress(FileNotFoundError), directory.directory(parent) as inner:
            inner.remove(last)

    def next_trial(self) -> str:
        """Return the id of the next trial: above all existing ones, even if some have been removed by hand."""
        ids = [int(path.name) for path in (self.path / "trials").glob("[0-9]*") if path.name.isdecimal()]
        return f"{max(ids, default=0) + 1:04d}"

    def begin_trial(self, trial: str) -> Path:
        """Create an empty directory for the trial's raw files, with the name of an unfinished trial.

        Raises:
            RunDirectoryError: an unfinished trial of this name cannot be removed.
        """
        name = f"{trial}.partial"
        with self._open_to_write() as directory, directory.directory("trials", create=True) as trials:
            try:
                trials.remove_tree(name)
            except OSError as error:
                raise RunDirectoryError(_removal_error(self.path / "trials" / name, error)) from None
            os.mkdir(name, dir_fd=trials.number)
        return self.path / "trials" / name

    def finish_trial(self, result: TrialResult) -> Path:
        """Write ``trial.json`` and rename the directory to its final name."""
        name = f"{result.id}.partial"
        with self._open_to_write() as directory, directory.directory("trials", create=True) as trials:
            with trials.directory(name, create=True) as partial:
                partial.write("trial.json", result.model_dump_json(indent=1).encode())
            files.make_private(self.path / "trials" / name)
            trials.rename(name, result.id)
        return self.path / "trials" / result.id

    def drop_partial(self) -> tuple[list[str], list[str]]:
        """Remove the directories of unfinished trials. Returns their ids, and sentences about those that cannot be removed."""
        removed, failures = [], []
        with self._open_to_write() as directory, suppress(FileNotFoundError), directory.directory("trials") as trials:
            for name in [name for name in trials.names() if name.endswith(".partial")]:
                try:
                    trials.remove_tree(name)
                except OSError as error:
                    failures.append(_removal_error(self.path / "trials" / name, error))
                else:
                    removed.append(name.removesuffix(".partial"))
        return removed, failures

    def trial_names(self) -> list[str]:
        """Return the names of the directories of finished trials, in the order in which they ran."""
        paths = sorted((self.path / "trials").glob("*/trial.json"))
        return [path.parent.name for path in paths if not path.parent.name.endswith(".partial")]

    def result(self, trial: str, *, limit: int = files.MAX_BYTES) -> TrialResult:
        """Return a finished trial.

        Raises:
            RunDirectoryError: it cannot be read.
        """
        file = self.path / "trials" / trial / "trial.json"
        try:
            data = files.read_below(self.path, f"trials/{trial}/trial.json", limit=limit)
            _check_size(data)
            if version_1.is_former_trial(data):
                result = TrialResult.model_validate(version_1.trial_document(self._study, from_json(data)))
            else:
                result = TrialResult.model_validate_json(data)
            if result.id != trial:
                raise ValueError(f"it is of trial '{result.id}'")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UnsafeFileError) as error:
            reason = f"{len(error.errors())} invalid fields" if isinstance(error, ValidationError) else str(error)
            raise RunDirectoryError(f"{file} cannot be read ({reason}); remove its directory to continue without it") from None
        return result

    def results(self) -> list[TrialResult]:
        """Return all finished trials in the order in which they ran.

        Raises:
            RunDirectoryError: one of them cannot be read.
        """
        results, left = [], _MAX_RESULTS_BYTES
        for trial in self.trial_names():
            results.append(self.result(trial, limit=min(left, files.MAX_BYTES)))
            left -= (self.path / "trials" / trial / "trial.json").stat().st_size
        return results

    def copied(self, root: Path) -> RunDirectory:
        """Copy the record, the input files and the finished trials to a new run directory, which only this user can change.

        Paths of input files in the options name the copies. Raises PgherdError, also if the run has links or special files.
        """
        record = self.record()
        if not self.is_name(f"00000000-000000-{record.study}-0000"):
            raise RunDirectoryError(f"run {self.name} is of a study '{record.study}', which cannot be the name of a study")
        copy = RunDirectory.create(root, record.study)
        try:
            with self._open() as source, copy._open_to_write() as target:
                left = _MAX_COPY_BYTES
                if source.exists("inputs"):
                    with source.directory("inputs") as inputs, target.directory("inputs", create=True, mode=0o755) as kept:
                        left -= files.copy_tree(inputs, kept, left)
                names = self.trial_names()
                if names:
                    with source.directory("trials") as trials, target.directory("trials") as kept:
                        left -= files.copy_tree(trials, kept, left, only=names)
            options = _moved(record.options, f"/{record.run}/inputs/", copy.path.resolve() / "inputs")
            copy.save(record.model_copy(update={"run": copy.name, "options": options}))
        except BaseException:
            shutil.rmtree(copy.path, ignore_errors=True)
            raise
        return copy

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run during its execution.

        Raises:
            PgherdError: another process executes it.
        """
        with self._open_to_write() as directory, ExitStack() as stack:
            _make_lock_private(directory)
            file = stack.enter_context(directory.open_file("lock", os.O_RDWR | os.O_CREAT, 0o600))
            for _ in range(_LOCK_ATTEMPTS):
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOCK_RETRY_S)  # 'alive' of another process holds the lock for an instant
            else:
                if not files.has_lock(os.fstat(file), *files.ours()) and files.lock_holders(os.fstat(file)):
                    raise PgherdError(
                        f"another user's {files.lock_holder(file)} holds the lock of run {self.name}; remove the file {self.path}/lock"
                    )
                raise PgherdError(f"run {self.name} is being executed by another pgherd: 'pgherd watch {self.argument}' shows it")
            yield

    def alive(self) -> bool:
        """Return True if a process currently executes the run."""
        try:
            with self._open() as directory:
                if directory.owner() in files.ours():
                    with suppress(OSError):  # a read-only or full disk
                        _make_lock_private(directory)
                with directory.open_file("lock") as file:
                    if files.try_lock(file, shared=True):
                        return False
                    status = os.fstat(file)
                    # A lock whose process the kernel does not list is from another container.
                    return not files.lock_holders(status) or files.has_lock(status, directory.owner())
        except (FileNotFoundError, UnsafeFileError):
            return False
        except PermissionError:  # the run of another user
            return files.has_lock((self.path / "lock").lstat(), self.owner())
        except OSError:
            return True


def _make_lock_private(directory: Directory) -> None:
    """Replace a lock file that other users can open, as a former pgherd created it: whoever can open it can lock it.

    It only gets another mode if a process of its owner holds it.
    """
    with suppress(FileNotFoundError), directory.open_file("lock") as file:
        status = os.fstat(file)
        if not status.st_mode & 0o077:
            return
        if files.has_lock(status, status.st_uid):
            os.fchmod(file, 0o600)
        else:
            directory.write("lock", b"")


def _removal_error(path: Path, error: OSError) -> str:
    """Return a sentence about a directory that cannot be removed."""
    owner = path.lstat().st_uid
    way = "by hand" if owner in files.ours() else f"as {files.user_name(owner)}"
    return f"{path} cannot be removed ({error.strerror or error}); remove it {way}"


def _json(data: bytes) -> Any:
    """Return parsed JSON. Raises ValueError, also if it has too many values or is nested too deeply."""
    _check_size(data)
    return from_json(data)


def _check_size(data: bytes) -> None:
    """Raise ValueError if a JSON text has too many values to be parsed in reasonable memory."""
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > _MAX_JSON_VALUES:
        raise ValueError(f"it has more than {_MAX_JSON_VALUES:,} values")


def _moved(value: Any, marker: str, inputs: Path) -> Any:
    """Return options in which each path of an input file, recognised by ``marker``, is below ``inputs``."""
    if isinstance(value, dict):
        return {name: _moved(item, marker, inputs) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, marker, inputs) for item in value]
    if isinstance(value, str) and value.startswith("/") and marker in value:
        below = PurePath(value.partition(marker)[2])
        return value if ".." in below.parts else str(inputs / below)
    return value


def _require_safe_for_root(root: Path, existing: Path) -> None:
    """Raise UsageError if this process is of root, and other users can exchange what it creates in ``existing``."""
    if os.geteuid() != 0 or (reason := files.distrust(existing, *files.ours(), inside=True)) is None:
        return
    owner = existing.stat().st_uid
    if files.distrust(existing, *files.ours(), owner, inside=True) is None:
        other_way = f", or trust {files.user_name(owner)} with 'SUDO_UID={owner} pgherd …', as sudo does"
    else:
        other_way = ", or take the right to write there from the others"
    raise UsageError(
        f"cannot create a run directory in {root}: pgherd runs as root, and other users could exchange the run for links, because "
        f"{reason}; add --runs-dir {os.path.expanduser('~root')}/pgherd-runs (or PGHERD_RUNS), a directory that only root can change"
        f"{other_way}"
    )


def _root_error(root: Path, reason: str) -> UsageError:
    return UsageError(f"cannot create a run directory in {root}: {reason}; choose another with --runs-dir DIR or PGHERD_RUNS")
