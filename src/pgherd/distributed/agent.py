"""Agent of one cluster host: the same session, deployment and phases as on a single host, called remotely.

``distributed.cluster_backend`` calls these methods through an engine (``pgherd.cluster``), each call in some thread.
All work runs in one thread that lives as long as the agent, because the kernel ends a process when the thread that
started it ends. All instants are of this host's clock.

During a trial, samples stay on the host, so that the network is quiet. Only a few of them are shown to observers
(pgherd.distributed.cluster_backend).
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pgherd import __version__
from pgherd.cluster import labels
from pgherd.distributed import merge_results
from pgherd.distributed.remote_clients import AgentTargetResolver, RemoteEndpoint, RemoteEndpoints, ServerAccess, require_tls
from pgherd.distributed.template_transfer import TemplateTransfer
from pgherd.drivers.driver import tells
from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.journal import Journal, clean
from pgherd.host.server_user import server_account
from pgherd.metrics.spool import LatestReadings, SpoolReading
from pgherd.model.analysis import Check, Thresholds
from pgherd.model.base import Model
from pgherd.model.errors import PgherdError, TrialError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import OomKill, PhaseResult, TargetResult
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node import secrets
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.prepare import volumes
from pgherd.prepare.prepared_study import PreparedStudy, VolumeContents, prepare, runnable
from pgherd.runner import memory_checks
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.deploy.huge_pages import probe_huge_pages
from pgherd.runner.execute import phases
from pgherd.runner.execute.local_backend import completed
from pgherd.runner.execute.measurement_window import CommonWindow, DrivenPhases
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession, open_session
from pgherd.store.live_state import SPOOL, TailReader, output_name
from pgherd.store.samples import write_samples_apart

SHOWN = frozenset({"cpu", "memory", "diskstats", "cgroup_cpu", "cgroup_memory", "processes"})
"""Samplers whose readings are shown while a run is watched."""


@dataclass(frozen=True)
class HostSnapshot:
    """Readings and drivers' output on one host since the previous glimpse. Times are of that host's clock.

    Each item of ``told`` has a phase's index, a target, its driver, and complete lines of that driver's stderr.
    """

    readings: list[SpoolReading]
    told: list[tuple[int, str, str, str]]


class LiveSampler:
    """Live view of one trial."""

    def __init__(self, part: Trial, directory: Path, scratch: Path) -> None:
        """Args:
        directory: directory of spooled samples; it need not exist yet.
        scratch: directory of drivers' output.
        """
        self._latest = LatestReadings(TailReader(directory / SPOOL), SHOWN)
        self._outputs = [
            (number, target, load.driver, TailReader(scratch / output_name(number, target) / "stderr"))
            for number, phase in enumerate(part.phases)
            for target, load in phase.loads.items()
            if tells(load.driver)
        ]
        self._lock = threading.Lock()

    def snapshot(self) -> HostSnapshot:
        """Return what was added since the last call. Readings in between are not parsed."""
        with self._lock:
            outputs = []
            for number, target, driver, lines in self._outputs:
                added = b"".join(line + b"\n" for line in lines)
                if added:
                    outputs.append((number, target, driver, added.decode(errors="replace")))
            return HostSnapshot(self._latest.added(), outputs)


CHUNK_BYTES = 4 * 2**20
"""Maximum bytes of files per call."""

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True)
class HostInfo:
    """Description of a host: facts, version of pgherd, PostgreSQL installations (version, directory), labels.

    ``free_bytes`` is the space for servers' data.
    """

    facts: HostFacts
    pgherd: str
    postgres: tuple[tuple[str, str], ...]
    labels: dict[str, str]
    free_bytes: int


@dataclass(frozen=True)
class HostWindows:
    """Host's report on phases that it has run.

    ``spans`` has the drivers' window by phase, ``jump`` the step of its clock against the monotonic clock (s),
    ``ready`` the time by which it was ready before the agreed instant (s).
    """

    spans: list[CommonWindow]
    jump: float
    ready: float


@dataclass(frozen=True)
class HostResult:
    """One host's share of a trial's results."""

    phases: list[PhaseResult]
    checks: list[Check]
    kills: tuple[OomKill, ...]


@dataclass(frozen=True)
class FileChunk:
    """Bytes to append to one file. ``path`` is relative to the trial's directory."""

    path: str
    data: bytes


def _require_wanted(called_off: threading.Event) -> None:
    if called_off.is_set():
        raise TrialError("called off by the driver")


class _CallObserver(RunObserver):
    """Keeps the current step for observers, and ends work that was called off."""

    def __init__(self, called_off: threading.Event) -> None:
        self.step = ""
        self.notes: list[str] = []
        self._called_off = called_off

    def setup(self, what: str) -> None:
        self.check_cancelled()
        self.step = what

    def check_cancelled(self) -> None:
        _require_wanted(self._called_off)

    def note(self, text: str) -> None:
        self.notes.append(text)


class HostAgent:
    """Host's part in a run. One run at a time: ``open`` begins it, ``close`` ends it."""

    def __init__(self) -> None:
        self._called_off = threading.Event()
        self._node = LocalNode(partial(_require_wanted, self._called_off))
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="pgherd-agent")
        self._open = contextlib.ExitStack()
        self._observer = _CallObserver(self._called_off)
        self._session: RunSession | None = None
        self._deployer: Deployer | None = None
        self._carrier: TemplateTransfer | None = None
        self._driven: DrivenPhases | None = None
        self._sampler: LiveSampler | None = None
        self._runnable: dict[str, Installation] = {}
        self._opened: ServerAccess | None = None
        self._ways = RemoteEndpoints()
        self._trial: Path | None = None
        self._files: list[tuple[str, int]] = []
        self._inputs: tuple[Journal, Path] | None = None

    def hello(self) -> HostInfo:
        """Return a description of this host."""
        return self._do(self._hello)

    def put(self, name: str, data: bytes) -> str:
        """Store a file of the driver and return its path here. It is removed with the run, or when the agent ends."""
        return self._do(lambda: self._put(name, data))

    def prepare(self, study: str, asked: Model, dry: bool) -> PreparedStudy:
        """Complete a request here, for all hosts. Raises as ``pgherd.prepare.prepared_study.prepare``."""
        return self._do(lambda: prepare(self._node, study, asked, dry=dry))

    def check_volumes(self, holds: tuple[VolumeContents, ...], run_as: str | None) -> None:
        """Require that this host's volumes can hold what is requested. Nothing is created.

        Raises as ``volumes.look``, and as ``server_account`` if this host lacks the user.
        """
        self._do(lambda: self._look(holds, run_as))

    def probe_huge_pages(self, pages: dict[int, int]) -> None:
        """Require that these huge pages (size in bytes → number) are available at once. Raises CapabilityError."""
        self._do(lambda: probe_huge_pages(self._node, pages))

    def version_in(self, directory: str) -> str | None:
        """Return the version of PostgreSQL in a directory of this host, or None without a complete and supported one."""
        return self._do(lambda: self._version_in(directory))

    def open(self, run: str, environment: RunEnvironment, postgres: dict[str, str]) -> list[str]:
        """Open the run's session here. Return notes on the cleanup of killed runs.

        ``postgres`` maps bin directories, as trials name them, to the required version. If this host has that version
        elsewhere, it is used from there.

        Raises:
            UsageError: this host lacks that version.
            CapabilityError: as ``runner.session.open_session``.
        """
        return self._do(lambda: self._begin(run, environment, postgres))

    def keep_variables(self, values: dict[str, str]) -> None:
        """Keep the values of the run's variables for commands, until the run ends. They are not recorded."""
        self._do(lambda: secrets.keep_variables(values))

    def templates(self, step: str, *arguments: Any) -> Any:
        """Run a step of transferring templates between hosts: the method of ``TemplateTransfer`` of that name. Raises as that
        method.
        """
        return self._do(lambda: getattr(self._open_carrier(), step)(*arguments))

    def apply(self, part: Trial) -> str:
        """Apply this host's part of a trial's deployment. Raises TrialError."""
        return self._do(lambda: self._apply(part))

    def ways(self, part: Trial) -> dict[str, RemoteEndpoint]:
        """Return target → endpoint for other hosts, for all databases of a part that was applied."""
        return self._do(lambda: {} if self._opened is None else self._opened.ways(part, self._open_fleet()))

    def learn(self, ways: dict[str, RemoteEndpoint]) -> None:
        """Store the endpoints by which drivers of this host reach databases of other hosts."""
        self._do(lambda: self._learn(ways))

    def run(self, part: Trial, name: str, begin: float) -> HostWindows:
        """Run the phases from an agreed instant on. Raises TrialError."""
        return self._do(lambda: self._run_part(part, name, begin))

    def results(
        self, part: Trial, windows: list[tuple[float, float]] | None, limits: Thresholds, driven: list[list[TargetResult]] | None = None
    ) -> HostResult:
        """Count in these windows, one per phase (None: each phase's window here), and check. Then the files can be
        collected.

        ``driven`` is what drivers on another host counted of this host's servers, by phase. It is checked here, and
        not returned. Raises TrialError, OSError.
        """
        return self._do(lambda: self._results(part, windows, limits, driven))

    def collect(self, at: tuple[int, int] = (0, 0)) -> tuple[list[FileChunk], tuple[int, int] | None]:
        """Return pieces of the trial's files from a position on, and the next position (None at the end)."""
        return self._do(lambda: self._collect(at))

    def discard(self) -> None:
        """Remove the trial's files."""
        self._do(self._discard)

    def failed(self, part: Trial, limits: Thresholds) -> HostResult:
        """Handle a trial that failed on any host: return this host's OOM kills and their checks."""
        return self._do(lambda: self._failed(part, limits))

    def probe(self, part: Trial) -> dict[str, float]:
        return self._do(lambda: self._open_fleet().probe(part))

    def settings(self, target: str | None) -> dict[str, str]:
        return self._do(lambda: self._open_fleet().settings(target))

    def step(self) -> str:
        """Return the current step. Does not wait for running work."""
        return self._observer.step

    def glimpse(self) -> HostSnapshot:
        """Return readings and output of the running trial since the last call. Does not wait for running work."""
        sampler = self._sampler
        return HostSnapshot([], []) if sampler is None else sampler.snapshot()

    def call_off(self) -> None:
        """End running work and requested calls that have not begun; they fail within 1 s. Returns immediately.

        An SQL statement that prepares data, such as VACUUM, runs to its end.
        ``failed`` must follow.
        """
        self._called_off.set()

    def close(self) -> list[str]:
        """End the run here: stop its servers and undo all changes. Return notes on what could not be undone."""
        self._called_off.set()
        return self._do(self._end)

    def lost(self) -> None:
        """End for good, as ``close``, because the driver is gone or dismisses this agent."""
        self._called_off.set()
        with contextlib.suppress(RuntimeError):  # the agent has ended already
            self._do(self._end)
        self._worker.shutdown(wait=False)

    def _do(self, work: Callable[[], _Outcome]) -> _Outcome:
        return self._worker.submit(work).result()

    def _open_fleet(self) -> Deployer:
        if self._deployer is None:
            raise TrialError("this host's agent has no open run: it was restarted")
        return self._deployer

    def _open_carrier(self) -> TemplateTransfer:
        if self._carrier is None:
            raise TrialError("this host's agent has no open run: it was restarted")
        return self._carrier

    def _hello(self) -> HostInfo:
        versions = tuple((installation.version, installation.bin) for installation in installations.find_all(self._node))
        cache = paths.cache_dir()
        existing = next(path for path in (cache, *cache.parents) if path.exists())
        return HostInfo(gather(self._node), __version__, versions, labels.local_labels(), shutil.disk_usage(existing).free)

    def _version_in(self, directory: str) -> str | None:
        try:
            return installations.choose(self._node, pg_bin=directory).version
        except UsageError:
            return None

    def _look(self, holds: tuple[VolumeContents, ...], run_as: str | None) -> None:
        account = server_account(run_as)
        for holding in holds:
            volumes.look(self._node, holding, account)

    def _put(self, name: str, data: bytes) -> str:
        if self._inputs is None:
            journal = Journal.open(self._node, paths.state_dir(), "inputs")
            self._inputs = journal, paths.work_tree(self._node, journal, "inputs", None)
        file = self._inputs[1] / Path(name).name
        file.write_bytes(data)
        return str(file)

    def _begin(self, run: str, environment: RunEnvironment, postgres: dict[str, str]) -> list[str]:
        self._close()
        notes = clean(self._node, paths.state_dir())
        self._called_off.clear()
        self._observer = _CallObserver(self._called_off)
        try:
            self._session = self._open.enter_context(open_session(self._node, run, environment, self._observer))
            self._runnable = {bin_: self._installation(bin_, version, self._session) for bin_, version in postgres.items()}
            if environment.listen is not None:
                for installation in self._runnable.values():
                    require_tls(self._session, installation)
                self._opened = ServerAccess(self._session, environment.listen)
                self._session = replace(self._session, opening=self._opened.opening)
            self._deployer = Deployer(self._session, self._runnable, self._observer)
            self._carrier = TemplateTransfer(self._node, self._runnable, str(paths.cache_dir()), self._session.account)
        except BaseException:
            self._close()
            raise
        self._open.callback(self._deployer.close)
        return notes

    def _installation(self, bin_: str, version: str, opened: RunSession) -> Installation:
        version_of = {installation.bin: installation.version for installation in installations.find_all(self._node)}
        if version_of.get(bin_) == version or self._node.exists(f"{bin_}/postgres"):
            with contextlib.suppress(PgherdError):
                return runnable(self._node, bin_, version, opened)
        same_version = next((directory for directory, other in version_of.items() if other == version), None)
        if same_version is None:
            installed = ", ".join(f"{other} in {directory}" for directory, other in version_of.items()) or "none"
            raise UsageError(
                f"the run uses PostgreSQL {version} in {bin_}, but this host has {installed}; install the same version on every host"
            )
        return runnable(self._node, same_version, version, opened)

    def _apply(self, part: Trial) -> str:
        if self._carrier is not None:
            self._carrier.drop()  # an abandoned transfer holds the lock that creating the template needs
        self._discard()
        _, transition = self._open_fleet().apply(part)
        return transition

    def _run_part(self, part: Trial, name: str, begin: float) -> HostWindows:
        deployer, opened = self._open_fleet(), self._session
        assert opened is not None
        self._discard()
        self._trial = opened.work / f"trial-{name}"
        self._node.make_dir(str(self._trial))
        scratch = deployer.scratch / name
        self._node.make_dir(str(scratch), mode=0o711)
        stage = AgentTargetResolver(deployer, self._ways, self._called_off, begin)
        self._sampler = LiveSampler(part, self._trial, scratch)
        try:
            self._driven = phases.drive(self._node, part, stage, self._trial, scratch, RunObserver(), deployer.watched, begin=begin)
        finally:
            self._sampler = None
        return HostWindows(self._driven.spans(), self._driven.jump, stage.ready)

    def _learn(self, ways: dict[str, RemoteEndpoint]) -> None:
        assert self._session is not None
        self._ways.learn(ways, self._session, self._runnable)

    def _results(
        self, part: Trial, windows: list[tuple[float, float]] | None, limits: Thresholds, others: list[list[TargetResult]] | None
    ) -> HostResult:
        deployer, driven = self._open_fleet(), self._driven
        assert driven is not None and self._trial is not None
        counted = driven.results(windows, write_samples_apart)
        results, kills = completed(deployer, part, counted)
        checked = results
        if others is not None:
            checked = [
                phase.model_copy(update={"targets": [*phase.targets, *targets]}) for phase, targets in zip(results, others, strict=True)
            ]
        checks = merge_results.of_part(part, checked, deployer.facts, limits, driven.jump)
        self._node.remove_tree(str(deployer.scratch / self._trial.name.removeprefix("trial-")))
        self._driven = None
        files = [path for path in sorted(self._trial.rglob("*")) if path.is_file()]
        self._files = [(str(path.relative_to(self._trial)), path.stat().st_size) for path in files]
        return HostResult(results, checks + memory_checks.judge_memory(part, checked, kills, limits), kills)

    def _collect(self, position: tuple[int, int]) -> tuple[list[FileChunk], tuple[int, int] | None]:
        number, offset = position
        pieces, remaining = [], CHUNK_BYTES
        while number < len(self._files) and remaining > 0:
            path, size = self._files[number]
            assert self._trial is not None
            with open(self._trial / path, "rb") as file:
                file.seek(offset)
                data = file.read(remaining)
            pieces.append(FileChunk(path, data))
            remaining -= len(data)
            offset += len(data)
            if offset >= size:
                number, offset = number + 1, 0
        return pieces, (number, offset) if number < len(self._files) else None

    def _discard(self) -> None:
        if self._trial is not None:
            self._node.remove_tree(str(self._trial))
            if self._deployer is not None:
                self._node.remove_tree(str(self._deployer.scratch / self._trial.name.removeprefix("trial-")))
        self._trial, self._driven, self._files = None, None, []

    def _failed(self, part: Trial, limits: Thresholds) -> HostResult:
        self._called_off.clear()
        self._discard()
        kills = self._open_fleet().oom_kills()
        self._open_fleet().mark_unhealthy()
        return HostResult([], memory_checks.judge_memory(part, [], kills, limits), kills)

    def _end(self) -> list[str]:
        try:
            return self._close()
        finally:
            if self._inputs is not None:
                self._inputs[0].close()
                self._inputs = None

    def _close(self) -> list[str]:
        with contextlib.suppress(OSError):
            self._discard()
        with contextlib.suppress(OSError):
            if self._carrier is not None:
                self._carrier.drop()
        self._deployer = self._session = self._opened = self._carrier = None
        self._ways = RemoteEndpoints()
        secrets.keep_variables({})
        try:
            self._open.close()
        finally:
            self._open = contextlib.ExitStack()
        notes, self._observer.notes = self._observer.notes, []
        return notes


def make_agent() -> HostAgent:
    """Return an agent of the host where this is called."""
    return HostAgent()
