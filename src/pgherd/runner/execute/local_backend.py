"""Backends that deploy and run trials, as the loop uses them; the backend of the local host."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgherd.metrics.sampler import ProcessView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.analysis import Check, Thresholds
from pgherd.model.host_facts import HostFacts
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.runner import memory_checks, trial_checks
from pgherd.runner.deploy.targets import TargetResolver
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver
from pgherd.study.guests import discount_checks


@dataclass(frozen=True)
class TrialOutcome:
    """Results of a trial's phases. A failed trial has only OOM kills and their checks."""

    phases: Sequence[PhaseResult] = ()
    checks: Sequence[Check] = ()
    oom_kills: tuple[OomKill, ...] = ()


class Backend(Protocol):
    """One host, or several as one."""

    def placed(self, trial: Trial) -> Trial:
        """Return the trial with its containers placed on the present hosts. Raises TrialError if they do not fit."""
        ...

    def apply(self, trial: Trial) -> str:
        """Apply the trial's deployment and starting state. Return a summary of the transition. Raises TrialError."""
        ...

    def run(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: RunObserver) -> TrialOutcome:
        """Run the trial's phases, count and check. Files go to ``directory``; ``name`` is the trial's in the run.

        Raises:
            TrialError: it could not be finished.
            OSError: files cannot be written (a full disk).
        """
        ...

    def failed(self, trial: Trial, thresholds: Thresholds) -> TrialOutcome:
        """Handle a failed trial: return OOM kills and their checks, and mark all running servers unhealthy."""
        ...

    def probe(self, trial: Trial) -> dict[str, float]:
        """Return the readings of a trial that has a probe and no load, and no deployment."""
        ...

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Return the non-default settings of the target's server, or of the first server."""
        ...


class LocalDeployment(Protocol):
    """Deployment on one host, below a backend. ``pgherd.runner.deploy.deployer.Deployer`` is one."""

    node: Node
    facts: HostFacts
    scratch: Path
    watched: list[ProcessView]

    def apply(self, trial: Trial) -> tuple[TargetResolver, str]:
        """Apply the trial's deployment and starting state. Return the target resolver and a summary of the transition."""
        ...

    def probe(self, trial: Trial) -> dict[str, float]:
        """Return the readings of a trial that has a probe and no load."""
        ...

    def stop_phase_targets(self) -> None:
        """Stop what ran only for the phases of the trial."""
        ...

    def readings(self) -> dict[str, dict[str, float]]:
        """Return values read once, by entity and metric. They are stored with the sampled metrics of every phase."""
        ...

    def from_prometheus(self, windows: Sequence[tuple[float, float]]) -> tuple[list[SpoolReading], list[PrometheusView]]:
        """Return samples of external servers' hosts, and a view of each server and window, server by server. Raises TrialError."""
        ...

    def verify(self, trial: Trial) -> None:
        """Check the databases for which consistency is requested. Raises TrialError if one is inconsistent."""
        ...

    def oom_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills since the trial began."""
        ...

    def mark_unhealthy(self) -> None:
        """Mark all running servers unhealthy, after a failed trial or an OOM kill."""
        ...

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Return the non-default settings of the running servers."""
        ...


class LocalBackend:
    """Backend of one host. Drivers write to the deployment's scratch directory, which is removed after the trial."""

    def __init__(self, deployer: LocalDeployment) -> None:
        self._deployer = deployer
        self._resolver: TargetResolver | None = None

    def placed(self, trial: Trial) -> Trial:
        return trial

    def apply(self, trial: Trial) -> str:
        self._resolver, transition = self._deployer.apply(trial)
        return transition

    def run(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: RunObserver) -> TrialOutcome:
        assert self._resolver is not None
        deployer, scratch = self._deployer, self._deployer.scratch / name
        try:
            deployer.node.make_dir(str(scratch), mode=0o711)
            asked = any(container.prometheus is not None for _, container in trial.deployment.containers())
            elsewhere = deployer.from_prometheus if asked else None
            results, jump = phases.run(deployer.node, trial, self._resolver, directory, scratch, watcher, deployer.watched, elsewhere)
        finally:
            deployer.node.remove_tree(str(scratch))
            for handle in self._resolver.guests().values():  # drivers' output in a guest uses the guest's memory
                with contextlib.suppress(OSError):
                    assert handle.node is not None
                    handle.node.remove_tree(str(scratch))
        results, kills = completed(deployer, trial, results)
        checks = discount_checks(trial_checks.judge(trial, results, deployer.facts, thresholds, jump), results)
        return TrialOutcome(results, checks + memory_checks.judge_memory(trial, results, kills, thresholds), kills)

    def failed(self, trial: Trial, thresholds: Thresholds) -> TrialOutcome:
        kills = self._deployer.oom_kills()
        self._deployer.mark_unhealthy()
        return TrialOutcome((), memory_checks.judge_memory(trial, [], kills, thresholds), kills)

    def probe(self, trial: Trial) -> dict[str, float]:
        return self._deployer.probe(trial)

    def settings(self, target: str | None = None) -> dict[str, str]:
        return self._deployer.settings(target)


def completed(deployer: LocalDeployment, trial: Trial, played: Sequence[PhaseResult]) -> tuple[list[PhaseResult], tuple[OomKill, ...]]:
    """Add readings that are read once to the phases, check consistency, and return the OOM kills too.

    After an OOM kill all servers are marked unhealthy. It may have ended processes of a server without ending a driver.

    Raises:
        TrialError: a database is inconsistent.
    """
    deployer.stop_phase_targets()
    readings = deployer.readings() if played else {}
    results = [_with(phase, readings) for phase in played]
    if any(database.verify for *_, database in trial.deployment.databases()):
        deployer.verify(trial)
    kills = deployer.oom_kills()
    if kills:
        deployer.mark_unhealthy()
    return results, kills


def _with(phase: PhaseResult, readings: dict[str, dict[str, float]]) -> PhaseResult:
    metrics = {entity: {**phase.metrics.get(entity, {}), **values} for entity, values in readings.items()}
    return phase.model_copy(update={"metrics": {**phase.metrics, **metrics}}) if metrics else phase
