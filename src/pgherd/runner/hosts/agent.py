"""One host of a cluster at work: the same session, fleet and phases as on one host alone, called from afar.

What is called here comes from ``runner.cluster_bench`` by way of an engine (``pgherd.cluster``), each call in some thread. All work is
done in one thread of the agent's own, which lives as long as it does: the kernel ends a process when the thread that
started it ends. All instants are of this host's clock.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pgherd import __version__
from pgherd.cluster import labels
from pgherd.drivers.telling import tells
from pgherd.host import paths
from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.host.journal import Journal, clean
from pgherd.metrics.latest import Latest
from pgherd.metrics.spool import SpoolReading
from pgherd.model.base import Model
from pgherd.model.errors import PgherdError, TrialError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Verdict
from pgherd.model.result import MemoryKill, PhaseResult, TargetResult
from pgherd.model.run import Surroundings
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.fleet import Fleet
from pgherd.runner.deploy.pages import try_out
from pgherd.runner.hosts import verdicts as host_verdicts
from pgherd.runner.hosts.distant_clients import AgentsStage, Opened, Way, Ways, insist_tls
from pgherd.runner.hosts.golden_carrying import Carrier
from pgherd.runner.judge import memory as memory_verdicts
from pgherd.runner.play import phases
from pgherd.runner.play.bench import completed
from pgherd.runner.play.driven import Common, Driven
from pgherd.runner.prepare import server_places
from pgherd.runner.prepare.catalogue import prepare
from pgherd.runner.prepare.prepared import Prepared, runnable
from pgherd.runner.prepare.server_places import Holding
from pgherd.runner.session import Session, session
from pgherd.runner.watcher import Watcher
from pgherd.store.live import SPOOL, Lines, output_name
from pgherd.store.samples_apart import write_samples_apart

SHOWN = frozenset({"cpu", "memory", "diskstats", "cgroup_cpu", "cgroup_memory", "processes"})
"""Samplers whose readings are passed on: those that are shown while a run is watched."""


@dataclass(frozen=True)
class Glimpse:
    """What has been read and told on one host since the glimpse before; all instants are of that host's clock.

    ``told`` holds a phase's index, a target, its driver, and whole lines of that driver's stderr.
    """

    readings: list[SpoolReading]
    told: list[tuple[int, str, str, str]]


class Lookout:
    """Takes glimpses of one trial."""

    def __init__(self, part: Trial, directory: Path, scratch: Path) -> None:
        """``directory`` is where samples are spooled, ``scratch`` where drivers write; nothing need be there yet."""
        self._latest = Latest(Lines(directory / SPOOL), SHOWN)
        self._outputs = [
            (number, target, load.driver, Lines(scratch / output_name(number, target) / "stderr"))
            for number, phase in enumerate(part.phases)
            for target, load in phase.loads.items()
            if tells(load.driver)
        ]
        self._lock = threading.Lock()

    def take(self) -> Glimpse:
        """What has been added since; of the readings in between nothing is parsed."""
        with self._lock:
            told = []
            for number, target, driver, lines in self._outputs:
                said = b"".join(line + b"\n" for line in lines)
                if said:
                    told.append((number, target, driver, said.decode(errors="replace")))
            return Glimpse(self._latest.added(), told)


PIECE = 4 * 2**20
"""Bytes of files that one call hands over at most."""

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True)
class Greeting:
    """What a host is: its facts, the pgherd and the PostgreSQL installations on it (version, directory), its labels, and how many bytes
    are free where servers' data would lie."""

    facts: HostFacts
    pgherd: str
    postgres: tuple[tuple[str, str], ...]
    labels: dict[str, str]
    room: int


@dataclass(frozen=True)
class Drove:
    """What a host says of phases that it has driven: when its drivers ran, by phase, how far its clock moved against the monotonic
    one (s), and how long before the agreed instant it was ready (s)."""

    spans: list[Common]
    jump: float
    ready: float


@dataclass(frozen=True)
class Counted:
    """One host's share of a trial's results."""

    phases: list[PhaseResult]
    verdicts: list[Verdict]
    kills: tuple[MemoryKill, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes of one file, to be appended to it; ``path`` is relative to the trial's directory."""

    path: str
    data: bytes


class _Listener(Watcher):
    """Keeps the last step, for whoever asks, and ends the work where it has been called off."""

    def __init__(self, called_off: threading.Event) -> None:
        self.step = ""
        self.said: list[str] = []
        self._called_off = called_off

    def setup(self, what: str) -> None:
        self.insist()
        self.step = what

    def insist(self) -> None:
        if self._called_off.is_set():
            raise TrialError("called off by the driver")

    def note(self, text: str) -> None:
        self.said.append(text)


class HostAgent:
    """A host's part in a run. One run at a time; ``open`` begins it and ``close`` ends it."""

    def __init__(self) -> None:
        """Nothing is opened yet, and nothing of the host is changed."""
        self._node = LocalNode()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="pgherd-agent")
        self._open = contextlib.ExitStack()
        self._called_off = threading.Event()
        self._listener = _Listener(self._called_off)
        self._session: Session | None = None
        self._fleet: Fleet | None = None
        self._carrier: Carrier | None = None
        self._driven: Driven | None = None
        self._lookout: Lookout | None = None
        self._usable: dict[str, Installation] = {}
        self._opened: Opened | None = None
        self._ways = Ways()
        self._trial: Path | None = None
        self._files: list[tuple[str, int]] = []
        self._inputs: tuple[Journal, Path] | None = None

    def hello(self) -> Greeting:
        """What this host is."""
        return self._do(self._hello)

    def put(self, name: str, data: bytes) -> str:
        """Keep a file of the driver's; returns its path here. It goes with the run, or when the agent ends."""
        return self._do(lambda: self._put(name, data))

    def prepare(self, study: str, asked: Model, dry: bool) -> Prepared:
        """Complete a request here, for all hosts; raises as ``runner.catalogue.prepare``."""
        return self._do(lambda: prepare(self._node, study, asked, dry=dry))

    def look(self, holds: tuple[Holding, ...], run_as: str | None) -> None:
        """Insist that what is to lie on volumes can lie on this host's; nothing is made. Raises as ``server_places.look``, and as
        ``server_account`` where this host does not have the account."""
        self._do(lambda: self._look(holds, run_as))

    def try_out(self, pages: dict[int, int]) -> None:
        """Whether so many huge pages (size in bytes → number) can be had at once; raises CapabilityError."""
        self._do(lambda: try_out(self._node, pages))

    def open(self, run: str, surroundings: Surroundings, postgres: dict[str, str]) -> list[str]:
        """Open the run's session here. ``postgres`` maps bin directories, as trials name them, to the version wanted; where this
        host has that version elsewhere, it is taken from there. Returns what was cleaned up of runs that were killed.

        Raises:
            UsageError: this host does not have that version.
            CapabilityError: as ``runner.session.session``.
        """
        return self._do(lambda: self._begin(run, surroundings, postgres))

    def golden(self, step: str, *arguments: Any) -> Any:
        """A step of carrying golden copies between hosts: the method of ``Carrier`` of that name. Raises as that."""
        return self._do(lambda: getattr(self._carrying(), step)(*arguments))

    def apply(self, part: Trial) -> str:
        """Bring this host's part of a trial's deployment about; raises TrialError."""
        return self._do(lambda: self._apply(part))

    def ways(self, part: Trial) -> dict[str, Way]:
        """Target → the way from another host to it, for all databases of a part that has been brought about."""
        return self._do(lambda: {} if self._opened is None else self._opened.ways(part, self._up()))

    def learn(self, ways: dict[str, Way]) -> None:
        """Know how drivers of this host reach databases of others."""
        self._do(lambda: self._learn(ways))

    def play(self, part: Trial, name: str, begin: float) -> Drove:
        """Drive the phases from an agreed instant on; raises TrialError."""
        return self._do(lambda: self._play(part, name, begin))

    def results(
        self, part: Trial, windows: list[tuple[float, float]] | None, limits: Thresholds, driven: list[list[TargetResult]] | None = None
    ) -> Counted:
        """Count in these windows, one per phase (None: each phase's own here), and judge; the files are then ready to be collected.
        ``driven`` is what drivers on another host counted of this one's servers, by phase: it is judged here, and not returned.
        Raises TrialError, OSError."""
        return self._do(lambda: self._results(part, windows, limits, driven))

    def collect(self, at: tuple[int, int] = (0, 0)) -> tuple[list[Piece], tuple[int, int] | None]:
        """Pieces of the trial's files from a position on, and the position of the next ones; None: that was all."""
        return self._do(lambda: self._collect(at))

    def discard(self) -> None:
        """The trial's files have been collected, or are not wanted."""
        self._do(self._discard)

    def failed(self, part: Trial, limits: Thresholds) -> Counted:
        """The trial has failed, here or elsewhere: what the kernel ended here, and what that is judged to be."""
        return self._do(lambda: self._failed(part, limits))

    def probe(self, part: Trial) -> dict[str, float]:
        """As ``Fleet.probe``."""
        return self._do(lambda: self._up().probe(part))

    def settings(self, target: str | None) -> dict[str, str]:
        """As ``Fleet.settings``."""
        return self._do(lambda: self._up().settings(target))

    def step(self) -> str:
        """What is being done, for whoever watches; answered at once."""
        return self._listener.step

    def glimpse(self) -> Glimpse:
        """What has been read and told of the trial that is played since this was asked last; answered at once."""
        lookout = self._lookout
        return Glimpse([], []) if lookout is None else lookout.take()

    def call_off(self) -> None:
        """End what is being done, or has been asked for and not begun: it fails within a second. ``failed`` follows. Answered at once."""
        self._called_off.set()

    def close(self) -> list[str]:
        """End the run here: stop its servers, take everything back. Returns what could not be."""
        self._called_off.set()
        return self._do(self._end)

    def lost(self) -> None:
        """The driver is gone, or does not want this agent any more: as ``close``, and for good."""
        self._called_off.set()
        with contextlib.suppress(RuntimeError):  # it has been ended already
            self._do(self._end)
        self._worker.shutdown(wait=False)

    def _do(self, work: Callable[[], _Outcome]) -> _Outcome:
        return self._worker.submit(work).result()

    def _up(self) -> Fleet:
        if self._fleet is None:
            raise TrialError("this host's agent has no run open: it was started anew meanwhile")
        return self._fleet

    def _carrying(self) -> Carrier:
        if self._carrier is None:
            raise TrialError("this host's agent has no run open: it was started anew meanwhile")
        return self._carrier

    def _hello(self) -> Greeting:
        found = tuple((one.version, one.bin) for one in installations.find_all(self._node))
        cache = paths.cache_dir()
        existing = next(path for path in (cache, *cache.parents) if path.exists())
        return Greeting(gather(self._node), __version__, found, labels.own(), shutil.disk_usage(existing).free)

    def _look(self, holds: tuple[Holding, ...], run_as: str | None) -> None:
        account = server_account(run_as)
        for held in holds:
            server_places.look(self._node, held, account)

    def _put(self, name: str, data: bytes) -> str:
        if self._inputs is None:
            journal = Journal.open(self._node, paths.state_dir(), "inputs")
            self._inputs = journal, paths.work_tree(self._node, journal, "inputs", None)
        file = self._inputs[1] / Path(name).name
        file.write_bytes(data)
        return str(file)

    def _begin(self, run: str, surroundings: Surroundings, postgres: dict[str, str]) -> list[str]:
        self._close()
        said = clean(self._node, paths.state_dir())
        self._called_off.clear()
        self._listener = _Listener(self._called_off)
        try:
            self._session = self._open.enter_context(session(self._node, run, surroundings, self._listener))
            self._usable = {bin_: self._installation(bin_, version, self._session) for bin_, version in postgres.items()}
            if surroundings.listen is not None:
                for one in self._usable.values():
                    insist_tls(self._session, one)
                self._opened = Opened(self._session, surroundings.listen)
                self._session = replace(self._session, opening=self._opened.opening)
            self._fleet = Fleet(self._session, self._usable, self._listener)
            self._carrier = Carrier(self._node, self._usable, str(paths.cache_dir()), self._session.account)
        except BaseException:
            self._close()
            raise
        self._open.callback(self._fleet.close)
        return said

    def _installation(self, bin_: str, version: str, opened: Session) -> Installation:
        found = {one.bin: one.version for one in installations.find_all(self._node)}
        if found.get(bin_) == version or self._node.exists(f"{bin_}/postgres"):
            with contextlib.suppress(PgherdError):
                return runnable(self._node, bin_, version, opened)
        same = next((directory for directory, one in found.items() if one == version), None)
        if same is None:
            have = ", ".join(f"{one} in {directory}" for directory, one in found.items()) or "none"
            raise UsageError(
                f"the run is of PostgreSQL {version} in {bin_}, but this host has {have}; install the same version on every host"
            )
        return runnable(self._node, same, version, opened)

    def _apply(self, part: Trial) -> str:
        if self._carrier is not None:
            self._carrier.drop()  # a copy that was given up holds the lock under which it is now to be made here
        self._discard()
        _, transition = self._up().apply(part)
        return transition

    def _play(self, part: Trial, name: str, begin: float) -> Drove:
        fleet, opened = self._up(), self._session
        assert opened is not None
        self._discard()
        self._trial = opened.work / f"trial-{name}"
        self._node.make_dir(str(self._trial))
        scratch = fleet.scratch / name
        self._node.make_dir(str(scratch), mode=0o711)
        stage = AgentsStage(fleet, self._ways, self._called_off, begin)
        self._lookout = Lookout(part, self._trial, scratch)
        try:
            self._driven = phases.drive(self._node, part, stage, self._trial, scratch, Watcher(), fleet.watched, begin=begin)
        finally:
            self._lookout = None
        return Drove(self._driven.spans(), self._driven.jump, stage.ready)

    def _learn(self, ways: dict[str, Way]) -> None:
        assert self._session is not None
        self._ways.learn(ways, self._session, self._usable)

    def _results(
        self, part: Trial, windows: list[tuple[float, float]] | None, limits: Thresholds, others: list[list[TargetResult]] | None
    ) -> Counted:
        fleet, driven = self._up(), self._driven
        assert driven is not None and self._trial is not None
        counted = driven.results(windows, write_samples_apart)
        found, kills = completed(fleet, part, counted)
        seen = found
        if others is not None:
            seen = [one.model_copy(update={"targets": [*one.targets, *more]}) for one, more in zip(found, others, strict=True)]
        judged = host_verdicts.of_part(part, seen, fleet.facts, limits, driven.jump)
        self._node.remove_tree(str(fleet.scratch / self._trial.name.removeprefix("trial-")))
        self._driven = None
        files = [path for path in sorted(self._trial.rglob("*")) if path.is_file()]
        self._files = [(str(path.relative_to(self._trial)), path.stat().st_size) for path in files]
        return Counted(found, judged + memory_verdicts.judge(part, seen, kills, limits), kills)

    def _collect(self, at: tuple[int, int]) -> tuple[list[Piece], tuple[int, int] | None]:
        number, offset = at
        pieces, room = [], PIECE
        while number < len(self._files) and room > 0:
            path, size = self._files[number]
            assert self._trial is not None
            with open(self._trial / path, "rb") as file:
                file.seek(offset)
                data = file.read(room)
            pieces.append(Piece(path, data))
            room -= len(data)
            offset += len(data)
            if offset >= size:
                number, offset = number + 1, 0
        return pieces, (number, offset) if number < len(self._files) else None

    def _discard(self) -> None:
        if self._trial is not None:
            self._node.remove_tree(str(self._trial))
            if self._fleet is not None:
                self._node.remove_tree(str(self._fleet.scratch / self._trial.name.removeprefix("trial-")))
        self._trial, self._driven, self._files = None, None, []

    def _failed(self, part: Trial, limits: Thresholds) -> Counted:
        self._called_off.clear()
        self._discard()
        kills = self._up().memory_kills()
        self._up().distrust()
        return Counted([], memory_verdicts.judge(part, [], kills, limits), kills)

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
        self._fleet = self._session = self._opened = self._carrier = None
        self._ways = Ways()
        try:
            self._open.close()
        finally:
            self._open = contextlib.ExitStack()
        said, self._listener.said = self._listener.said, []
        return said


def make_agent() -> HostAgent:
    """An agent on the host where this is called."""
    return HostAgent()
