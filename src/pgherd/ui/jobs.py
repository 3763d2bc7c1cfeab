"""What the page starts: pgherd's own command line, in processes of their own that neither a browser nor this server ends.

A started study has its own session, journal and locks, and writes what it says into a file; it goes on when the page is closed. Which
run it makes is seen by the pid that a run's reservation, or its live state, names.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgherd.host import paths, reservation
from pgherd.model.errors import CapabilityError, PgherdError, RunDirectoryError, UsageError
from pgherd.store.live import read_live
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.study_forms import LONGEST_SECONDS, arguments, study_forms

_PATIENCE = 120.0
_MOST_PLANS = 32
_MOST_JOBS = 200
_PLAN_LASTS = 1800.0
_TAIL = 8000
_KEPT_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Plan:
    """A plan that was shown, and may be started as it was shown. ``document`` is that of ``--dry-run --json``."""

    id: str
    study: str
    words: tuple[str, ...]
    document: dict[str, Any]
    made: float

    @property
    def command(self) -> str:
        """As it would be typed."""
        return shlex.join(("pgherd", self.study, *self.words))

    @property
    def seconds(self) -> float:
        """Planned time under load."""
        return float(self.document.get("seconds") or 0.0)

    @property
    def confirm(self) -> list[str]:
        """Changes of the host that must be agreed to."""
        return [str(text) for text in self.document.get("confirm") or ()]

    @property
    def too_long(self) -> bool:
        """Whether it is beyond laptop size: what is planned, or what its budget lets it add."""
        return self.longest > LONGEST_SECONDS

    @property
    def longest(self) -> float:
        """Seconds under load that it may come to: its budget may be used up by further repeats."""
        options = self.document.get("options") or {}
        return max(self.seconds, float(options.get("budget_seconds") or 0.0))


@dataclass
class Job:
    """A process that was started. ``run`` is known once it has begun; ``code`` once it has ended. ``resumes`` names the run that it
    was started to go on with."""

    id: str
    what: str
    process: subprocess.Popen[bytes]
    log: Path
    started: float
    run: str | None = None
    code: int | None = None
    resumes: str | None = None

    def said(self) -> str:
        """The end of what it has said."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


class Jobs:
    """Plans that were shown, and processes that were started. Its calls may come from any thread."""

    def __init__(self, runs: Path, places: Path | None = None) -> None:
        """Start runs in ``runs``; what they say is kept below ``places`` (default: the state directory)."""
        self._runs = runs
        self._places = places if places is not None else paths.state_dir() / "ui"
        self._plans: dict[str, Plan] = {}
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._tidy()

    def plan(self, study: str, given: dict[str, str]) -> Plan:
        """What ``--dry-run --json`` says of a study.

        Raises:
            PgherdError: the options are wrong, or this host cannot do it; in the words of the command line.
        """
        words = arguments(study, given)
        document = self._document(study, *words, "--dry-run", "--json", "--runs-dir", str(self._runs))
        plan = Plan(secrets.token_urlsafe(12), study, tuple(words), document, time.monotonic())
        with self._lock:
            self._plans[plan.id] = plan
            while len(self._plans) > _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
        return plan

    def planned(self, plan: str) -> Plan:
        """A plan that was shown lately.

        Raises:
            UsageError: there is none of this id any more.
        """
        with self._lock:
            found = self._plans.get(plan)
        if found is None or time.monotonic() - found.made > _PLAN_LASTS:
            raise UsageError("this plan is not known any more: look at it again, then start it")
        return found

    def start(self, plan: Plan, *, agreed: bool) -> Job:
        """Start a plan as it was shown.

        Raises:
            UsageError: it changes the host and that was not agreed to, or it is beyond laptop size.
            CapabilityError: no process can be started.
        """
        if plan.confirm and not agreed:
            raise UsageError(f"this changes the host: {'; '.join(plan.confirm)}. Agree to it first")
        if plan.too_long:
            raise UsageError(
                f"it may take {plan.longest:.0f} s under load, and more than {LONGEST_SECONDS:.0f} s are started by: {plan.command}"
            )
        with self._lock:
            self._plans.pop(plan.id, None)  # a second click starts no second run
        yes = ["--yes"] if plan.confirm else []
        return self._spawn(plan.command, [plan.study, *plan.words, *yes, "--runs-dir", str(self._runs)])

    def resume(self, directory: RunDirectory) -> Job:
        """Go on with a run that was interrupted.

        Raises:
            UsageError: it is being executed, or finished.
            CapabilityError: no process can be started.
        """
        if directory.alive():
            raise UsageError(f"run {directory.name} is being executed already")
        record = directory.record()
        if record.state == "finished":
            raise UsageError(f"run {directory.name} is finished: there is nothing to go on with")
        owner = (directory.path / "run.json").stat().st_uid
        if owner != os.geteuid() or record.study not in study_forms():
            # What it would run stands in its record, which may name any program.
            raise UsageError(f"run {directory.name} is not gone on with from here; look at it, then: pgherd resume {directory.name}")
        job = self._spawn(f"pgherd resume {directory.name}", ["resume", str(directory.path.resolve())])
        job.resumes = directory.name
        return job

    def job(self, name: str) -> Job | None:
        """A job by its id, with what is known of it by now; None where there is none."""
        with self._lock:
            found = self._jobs.get(name)
        if found is not None:
            self._look(found)
        return found

    def jobs(self) -> list[Job]:
        """All that were started, newest first."""
        with self._lock:
            found = list(self._jobs.values())
        for job in found:
            self._look(job)
        return found[::-1]

    def _tidy(self) -> None:
        """Remove what processes of long ago have said."""
        with contextlib.suppress(OSError):
            for file in self._places.glob("said-*.txt"):
                if time.time() - file.stat().st_mtime > _KEPT_SECONDS:
                    file.unlink()

    def _look(self, job: Job) -> None:
        if job.run is None:
            held = [one.run for one in reservation.live(paths.state_dir()) if one.pid == job.process.pid]
            job.run = next((run for run in held if self._begun(run)), None)
        job.code = job.process.poll()
        if job.run is None and job.code is not None:
            job.run = job.resumes

    def _begun(self, run: str) -> bool:
        """Whether the run is one of ours and says that it runs: one that is gone on with does not from the first moment."""
        try:
            return RunDirectory(self._runs / run).record().state == "running"
        except RunDirectoryError:
            return False

    def _document(self, *words: str) -> dict[str, Any]:
        try:
            done = subprocess.run(
                _command(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, env=_environment(), check=False
            )
            document: dict[str, Any] = json.loads(done.stdout)
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            raise CapabilityError(f"the plan cannot be made: {error}") from None
        if "error" in document:
            raise (CapabilityError if document.get("exit_code") == 3 else UsageError)(str(document["error"]))
        return document

    def _spawn(self, what: str, words: Sequence[str]) -> Job:
        name = secrets.token_urlsafe(12)
        try:
            self._places.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, log = tempfile.mkstemp(prefix="said-", suffix=".txt", dir=self._places)
            with open(number, "wb") as said:
                # A session of its own: a Ctrl-C that ends this server must not end what is being measured.
                process = subprocess.Popen(
                    _command(words), stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=_environment(), start_new_session=True
                )
        except OSError as error:
            raise CapabilityError(f"pgherd cannot be started: {error}") from None
        job = Job(name, what, process, Path(log), time.time())
        with self._lock:
            self._jobs[name] = job
            for old in [one for one in self._jobs.values() if one.code is not None][: max(0, len(self._jobs) - _MOST_JOBS)]:
                del self._jobs[old.id]
        return job


def stop(directory: RunDirectory) -> int:
    """Ask the process that executes a run to end it in order (SIGINT), and return its pid.

    The pid is the one that the run's live state names; it is believed only if that very process holds the run's lock open.

    Raises:
        UsageError: nothing executes the run.
        PgherdError: the process is not ours to end.
    """
    told = read_live(directory.path)
    if told is None or not directory.alive():
        raise UsageError(f"run {directory.name} is not being executed: there is nothing to stop")
    try:
        handle = os.pidfd_open(told.pid)  # from here on the pid cannot come to mean another process
    except OSError:
        raise UsageError(f"run {directory.name} has just ended") from None
    try:
        if not _holds(told.pid, directory.path / "lock"):
            raise PgherdError(f"process {told.pid}, which run {directory.name} names, does not execute it: nothing was stopped")
        signal.pidfd_send_signal(handle, signal.SIGINT)
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"run {directory.name} has just ended") from None
    except PermissionError:
        raise PgherdError(f"run {directory.name} is executed by another account (pid {told.pid}): it is not ours to stop") from None
    finally:
        os.close(handle)
    return told.pid


def _holds(pid: int, lock: Path) -> bool:
    """Whether the process has the file open. Raises PermissionError where that is not ours to see."""
    wanted = lock.stat()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            seen = entry.stat()
        except OSError:
            continue
        if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "pgherd", *words]


def _environment() -> dict[str, str]:
    """Ours, without what would change how it runs or speaks."""
    left_out = {"PGHERD_RUNS", "PGHERD_DEBUG", "PGHERD_TEST_SEED"}
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"COLUMNS": "120"}
