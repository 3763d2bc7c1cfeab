"""Start studies from the web page, each as a separate pgherd process.

A started process has a separate session, journal and locks, and writes its output to a file. It continues when the page is closed or this
server ends. The run of a process is the one whose reservation names its pid. A thread looks for it, because the reservation ends with the
run, and a hidden page sends no requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import stat
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
from pgherd.store.live_state import read_live
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.study_forms import LONGEST_SECONDS, arguments, study_forms

_PLAN_TIMEOUT_S = 120.0
_MAX_PLANS = 32
_MAX_JOBS = 200
_JOB_INTERVAL_S = 1.0
"""Seconds between two looks for the run of a started process."""
_PLAN_LIFETIME_S = 1800.0
_TAIL_BYTES = 8000
_LOG_LIFETIME_S = 7 * 86400.0
_LOCKED = re.compile(r"^lock:.* FLOCK +ADVISORY +WRITE ", re.MULTILINE)
"""Line of an exclusive lock in the kernel's description of an open file (proc_pid_fdinfo(5))."""


@dataclass(frozen=True)
class RunPlan:
    """A study with its options, shown to the user before it starts. ``document`` is the output of ``--dry-run --json``."""

    id: str
    study: str
    words: tuple[str, ...]
    document: dict[str, Any]
    made: float

    @property
    def command(self) -> str:
        """Equivalent shell command."""
        return shlex.join(("pgherd", self.study, *self.words))

    @property
    def seconds(self) -> float:
        """Planned time under load."""
        return float(self.document.get("seconds") or 0.0)

    @property
    def needs_confirmation(self) -> list[str]:
        """Host changes that the user must confirm."""
        return [str(text) for text in self.document.get("needs_confirmation") or ()]

    @property
    def too_long(self) -> bool:
        """True if the longest possible load exceeds ``LONGEST_SECONDS``."""
        return self.longest > LONGEST_SECONDS

    @property
    def longest(self) -> float:
        """Longest possible time under load, in seconds. Further repeats may use the whole time budget. Without one there are reruns."""
        options = self.document.get("options") or {}
        budget = float(options.get("time_budget") or 0.0)
        seconds = [float(trial["seconds"]) for trial in self.document.get("trials") or ()]
        reruns = max(int(self.document.get("max_trials") or 0) - len(seconds), 0)
        return max(self.seconds, budget) if budget else self.seconds + reruns * max(seconds, default=0.0)


@dataclass
class Job:
    """Started pgherd process. ``run`` is None until its run has begun, ``code`` until it has ended.

    ``resumes`` names the run that it resumes, if any.
    """

    id: str
    what: str
    process: subprocess.Popen[bytes]
    log: Path
    started: float
    run: str | None = None
    code: int | None = None
    resumes: str | None = None

    def said(self) -> str:
        """Return the end of its output, at most 8000 bytes."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


class Jobs:
    """Shown plans and started processes. All methods are thread-safe."""

    def __init__(self, runs: Path, log_dir: Path | None = None) -> None:
        """Start runs in ``runs``, and keep their output in ``log_dir`` (default: ``ui`` in the state directory)."""
        self._runs = runs
        self._state_dir = paths.state_dir()
        self._log_dir = log_dir if log_dir is not None else self._state_dir / "ui"
        self._plans: dict[str, RunPlan] = {}
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._remove_old_logs()

    def plan(self, study: str, given: dict[str, str]) -> RunPlan:
        """Return the plan of a study, from ``--dry-run --json``.

        Raises:
            PgherdError: an option is wrong, or this host cannot run it. The message is that of the command line.
        """
        words = arguments(study, given)
        document = self._document(study, *words, "--dry-run", "--json", "--runs-dir", str(self._runs))
        plan = RunPlan(secrets.token_urlsafe(12), study, tuple(words), document, time.monotonic())
        with self._lock:
            self._plans[plan.id] = plan
            while len(self._plans) > _MAX_PLANS:
                del self._plans[next(iter(self._plans))]
        return plan

    def planned(self, plan: str) -> RunPlan:
        """Return a plan that was shown in the last 30 minutes.

        Raises:
            UsageError: the id is unknown, or the plan has expired.
        """
        with self._lock:
            shown = self._plans.get(plan)
        if shown is None or time.monotonic() - shown.made > _PLAN_LIFETIME_S:
            raise UsageError("this plan has expired: show the plan again, then start it")
        return shown

    def start(self, plan: RunPlan, *, agreed: bool) -> Job:
        """Start a plan, with the options that were shown.

        Raises:
            UsageError: its host changes are not confirmed (``agreed``), or it may run longer than ``LONGEST_SECONDS``.
            CapabilityError: no process can be started.
        """
        if plan.needs_confirmation and not agreed:
            raise UsageError(f"this study changes the host: {'; '.join(plan.needs_confirmation)}; confirm these changes first")
        if plan.too_long:
            raise UsageError(
                f"it may take {plan.longest:.0f} s under load, and this page allows at most {LONGEST_SECONDS:.0f} s; use: {plan.command}"
            )
        with self._lock:
            self._plans.pop(plan.id, None)  # so that a second click starts no second run
        yes = ["--yes"] if plan.needs_confirmation else []
        return self._spawn(plan.command, [plan.study, *plan.words, *yes, "--runs-dir", str(self._runs)])

    def resume(self, directory: RunDirectory) -> Job:
        """Resume an interrupted run.

        Raises:
            UsageError: the run is being executed, is finished, or cannot be resumed from the page.
            CapabilityError: no process can be started.
        """
        if directory.alive():
            raise UsageError(f"run {directory.name} is being executed already, and cannot be resumed before it ends")
        record = directory.record()
        if record.state == "finished":
            raise UsageError(f"run {directory.name} is finished: there is nothing to resume")
        distrust = directory.distrust()
        if distrust is not None or record.study not in study_forms():
            # The record may come from a different user and may name any program to run.
            raise UsageError(
                f"run {directory.name} cannot be resumed from this page, because {distrust or f'it is of the study {record.study}'}: "
                f"check its run.json, then use: pgherd resume {directory.argument}"
            )
        job = self._spawn(f"pgherd resume {directory.name}", ["resume", str(directory.path.resolve())])
        job.resumes = directory.name
        return job

    def job(self, name: str) -> Job | None:
        """Return a job by its id, with its current state; None if the id is unknown."""
        with self._lock:
            job = self._jobs.get(name)
        if job is not None:
            self._refresh(job)
        return job

    def jobs(self) -> list[Job]:
        """Return all jobs with their current state, newest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            self._refresh(job)
        return jobs[::-1]

    def _remove_old_logs(self) -> None:
        """Remove output files that are older than a week."""
        with contextlib.suppress(OSError):
            for file in self._log_dir.glob("said-*.txt"):
                if time.time() - file.stat().st_mtime > _LOG_LIFETIME_S:
                    file.unlink()

    def _follow(self, job: Job) -> None:
        """Update a job until its run or its exit code is known."""
        while job.run is None and job.code is None:
            with contextlib.suppress(OSError):  # the next look may succeed
                self._refresh(job)
            time.sleep(_JOB_INTERVAL_S)

    def _refresh(self, job: Job) -> None:
        """Update ``run`` and ``code`` of a job. Several threads may do so at the same time."""
        if job.run is None:
            for held in reservation.live(self._state_dir):
                if held.pid == job.process.pid and self._begun(held.run):
                    job.run = held.run
        code = job.process.poll()
        if job.run is None and code is not None:
            job.run = job.resumes
        job.code = code

    def _begun(self, run: str) -> bool:
        """Return True if the run is in this directory, its recorded state is running, and its study has proposed trials.

        A resumed run holds its reservation before it records that state. A new run that fails before the first proposal is removed.
        """
        try:
            record = RunDirectory(self._runs / run).record()
        except RunDirectoryError:
            return False
        return record.state == "running" and bool(record.proposals)

    def _document(self, *words: str) -> dict[str, Any]:
        try:
            done = subprocess.run(
                _command(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PLAN_TIMEOUT_S, env=_environment(), check=False
            )
            document: dict[str, Any] = json.loads(done.stdout)
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            raise CapabilityError(f"the plan cannot be made: {error}; run the study with --dry-run on the command line") from None
        if "error" in document:
            raise (CapabilityError if document.get("exit_code") == 3 else UsageError)(str(document["error"]))
        return document

    def _spawn(self, what: str, words: Sequence[str]) -> Job:
        name = secrets.token_urlsafe(12)
        try:
            self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, log = tempfile.mkstemp(prefix="said-", suffix=".txt", dir=self._log_dir)
            with open(number, "wb") as output:
                # In a separate session, because a Ctrl-C that ends this server must not end a measurement.
                process = subprocess.Popen(
                    _command(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment(), start_new_session=True
                )
        except OSError as error:
            raise CapabilityError(f"pgherd cannot be started: {error}") from None
        job = Job(name, what, process, Path(log), time.time())
        with self._lock:
            self._jobs[name] = job
            for old in [one for one in self._jobs.values() if one.code is not None][: max(0, len(self._jobs) - _MAX_JOBS)]:
                del self._jobs[old.id]
        threading.Thread(target=self._follow, args=(job,), name="pgherd-ui-job", daemon=True).start()
        return job


def stop(directory: RunDirectory) -> int:
    """Send SIGINT to the process that executes a run, so that it ends in order, and return its pid.

    The pid is read from the run's live state. It is used only if that process has locked the run's lock file and belongs to the owner of
    the run's directory.

    Raises:
        UsageError: no process executes the run.
        PgherdError: the process does not hold the lock, or belongs to a different user.
    """
    state = read_live(directory.path)
    if state is None or not directory.alive():
        raise UsageError(f"run {directory.name} is not being executed: there is nothing to stop")
    handle: int | None = None
    try:
        handle = os.pidfd_open(state.pid)  # so that a reused pid is not signalled
    except ProcessLookupError:
        raise UsageError(f"run {directory.name} has just ended") from None
    except OSError:
        pass  # Linux before 5.3, or seccomp
    try:
        if os.stat(f"/proc/{state.pid}").st_uid != directory.owner() or not _holds(state.pid, directory.path / "lock"):
            raise PgherdError(
                f"run {directory.name} names process {state.pid}, but that process does not execute it: nothing was stopped; "
                "stop the run where it was started"
            )
        if handle is None:
            os.kill(state.pid, signal.SIGINT)
        else:
            signal.pidfd_send_signal(handle, signal.SIGINT)
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"run {directory.name} has just ended") from None
    except PermissionError:
        raise PgherdError(f"run {directory.name} is executed by a different user (pid {state.pid}): stop it as that user") from None
    finally:
        if handle is not None:
            os.close(handle)
    return state.pid


def _holds(pid: int, lock: Path) -> bool:
    """Return True if the process has locked the file. Raises PermissionError if its open files are unreadable."""
    lock_stat = lock.lstat()
    if not stat.S_ISREG(lock_stat.st_mode):
        return False
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            if os.path.samestat(entry.stat(), lock_stat) and _LOCKED.search(Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()):
                return True
        except OSError:
            continue
    return False


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "pgherd", *words]


def _environment() -> dict[str, str]:
    """Return the environment without the variables that change what pgherd does or prints."""
    left_out = {"PGHERD_RUNS", "PGHERD_DEBUG", "PGHERD_TEST_SEED"}
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"COLUMNS": "120"}
