"""What brings trials about and plays them, as the loop sees it; and that of one host, over a fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgherd.metrics.sampler import ProcessView
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Verdict
from pgherd.model.result import MemoryKill, PhaseResult
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.runner.deploy.targets import Stage
from pgherd.runner.judge import memory as memory_verdicts
from pgherd.runner.judge import verdicts
from pgherd.runner.play import phases
from pgherd.runner.watcher import Watcher
from pgherd.studies import emulated


@dataclass(frozen=True)
class Played:
    """What came of a trial's phases; of one that failed only verdicts and kills, if anything was seen."""

    phases: Sequence[PhaseResult] = ()
    verdicts: Sequence[Verdict] = ()
    memory_kills: tuple[MemoryKill, ...] = ()


class Bench(Protocol):
    """One host, or several as one."""

    def placed(self, trial: Trial) -> Trial:
        """The trial as it is run here: with its containers on the hosts that are there. Raises TrialError where they do not fit."""
        ...

    def apply(self, trial: Trial) -> str:
        """Bring the trial's deployment and state about; returns what the transition was. Raises TrialError."""
        ...

    def play(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: Watcher) -> Played:
        """Drive the trial's phases, count, and judge. ``name`` is the trial's in the run, and ``directory`` where its files go.

        Raises:
            TrialError: it could not be finished.
            OSError: files cannot be written (a full disk).
        """
        ...

    def failed(self, trial: Trial, thresholds: Thresholds) -> Played:
        """The trial has failed: what the kernel ended, and what that is judged to be. Nothing that is up is taken for healthy any more."""
        ...

    def probe(self, trial: Trial) -> dict[str, float]:
        """The readings of a trial with a probe and no load, for which nothing needs to be up; see pgherd.runner.probe.probes."""
        ...

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings of the servers that are up which differ from the default, as the server of a target, or the first, says."""
        ...


class OneHost(Protocol):
    """What a bench of one host stands on (see pgherd.runner.deploy.fleet)."""

    node: Node
    facts: HostFacts
    scratch: Path
    watched: list[ProcessView]

    def apply(self, trial: Trial) -> tuple[Stage, str]:
        """Bring the trial's deployment and state about; returns the stage and what the transition was."""
        ...

    def probe(self, trial: Trial) -> dict[str, float]:
        """The readings of a trial with a probe and no load."""
        ...

    def rest(self) -> None:
        """The trial's phases are over: end what was up for them alone."""
        ...

    def readings(self) -> dict[str, dict[str, float]]:
        """What was read once of what is up, by entity and metric: it goes beside the sampled metrics of every phase."""
        ...

    def verify(self, trial: Trial) -> None:
        """Check the databases whose consistency is to be checked; raises TrialError where one contradicts itself."""
        ...

    def memory_kills(self) -> tuple[MemoryKill, ...]:
        """What the kernel ended for want of memory since the trial began."""
        ...

    def distrust(self) -> None:
        """A trial has failed: take nothing that is up for healthy."""
        ...

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings of the servers that are up which differ from the default."""
        ...


class LocalBench:
    """One host. The trial's drivers write below the fleet's scratch directory, which goes when the trial is over."""

    def __init__(self, fleet: OneHost) -> None:
        """Nothing is brought about yet."""
        self._fleet = fleet
        self._stage: Stage | None = None

    def placed(self, trial: Trial) -> Trial:
        """The trial itself."""
        return trial

    def apply(self, trial: Trial) -> str:
        """As the fleet does it."""
        self._stage, transition = self._fleet.apply(trial)
        return transition

    def play(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: Watcher) -> Played:
        """Play the phases on this host."""
        assert self._stage is not None
        fleet, scratch = self._fleet, self._fleet.scratch / name
        try:
            fleet.node.make_dir(str(scratch), mode=0o711)
            found, jump = phases.play(fleet.node, trial, self._stage, directory, scratch, watcher, fleet.watched)
        finally:
            fleet.node.remove_tree(str(scratch))
            for room in self._stage.guests().values():  # drivers' output in a guest is memory of the guest
                with contextlib.suppress(OSError):
                    assert room.node is not None
                    room.node.remove_tree(str(scratch))
        found, kills = completed(fleet, trial, found)
        judged = emulated.judged(verdicts.judge(trial, found, fleet.facts, thresholds, jump), found)
        return Played(found, judged + memory_verdicts.judge(trial, found, kills, thresholds), kills)

    def failed(self, trial: Trial, thresholds: Thresholds) -> Played:
        """What the kernel ended; servers are restored before the next trial."""
        kills = self._fleet.memory_kills()
        self._fleet.distrust()
        return Played((), memory_verdicts.judge(trial, [], kills, thresholds), kills)

    def probe(self, trial: Trial) -> dict[str, float]:
        """As the fleet does it."""
        return self._fleet.probe(trial)

    def settings(self, target: str | None = None) -> dict[str, str]:
        """As the fleet's servers say."""
        return self._fleet.settings(target)


def completed(fleet: OneHost, trial: Trial, played: Sequence[PhaseResult]) -> tuple[list[PhaseResult], tuple[MemoryKill, ...]]:
    """The phases with what was read once of the servers, after the consistency checks; and what the kernel ended.

    Raises:
        TrialError: a database contradicts itself.
    """
    fleet.rest()
    found = [_with(phase, fleet.readings()) for phase in played]
    if any(database.verify for *_, database in trial.deployment.databases()):
        fleet.verify(trial)
    return found, fleet.memory_kills()


def _with(phase: PhaseResult, readings: dict[str, dict[str, float]]) -> PhaseResult:
    metrics = {entity: {**phase.metrics.get(entity, {}), **more} for entity, more in readings.items()}
    return phase.model_copy(update={"metrics": {**phase.metrics, **metrics}}) if metrics else phase
