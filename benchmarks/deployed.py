"""Databases that are up exactly as ``pgherd density`` has them up, and what they and pgherd use of the CPU."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pgherd.cli.run_study import TerminalProgress
from pgherd.metrics.cgroup import CGROUP_CPU
from pgherd.metrics.sampler import SamplingView
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.protocol import SampleSource, SamplingLoop
from pgherd.prepare.prepared_study import prepare, runnable
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession, open_session
from pgherd.studies.density.options import DensityOptions, DensityRequest, deployment
from pgherd.study.database_options import DatabaseOptions


@dataclass(frozen=True)
class Deployed:
    """Databases that are up: how they were asked for, their fleet and session."""

    options: DensityOptions
    fleet: Deployer
    session: RunSession

    def trial(self, loads: Mapping[str, Load], *, ramp: float, seconds: float) -> Trial:
        """A trial of one phase on what is up."""
        phase = Phase(warmup=ramp, seconds=seconds, loads=dict(loads))
        return Trial(point={"databases": len(loads)}, deployment=deployment(self.options), phases=(phase,))

    def settings(self) -> dict[str, Any]:
        """What a result must share with another to be added to it."""
        return {
            "container": f"{self.options.runtime}, {self.options.vcpus:g} vCPU by {self.options.cpu_mode}",
            "scale": self.options.scale,
            "clients": self.options.clients,
            "threads": self.options.threads,
            "log sampling": self.options.sampling,
            "postgres": self.options.pg_version,
            "database settings": self.options.settings,
        }

    def targets(self) -> list[str]:
        """The databases' addresses."""
        return [str(place) for place, *_ in deployment(self.options).databases()]


@contextlib.contextmanager
def watcher() -> Iterator[TerminalProgress]:
    """The progress that a user sees on a terminal, drawn in full and thrown away: its cost is part of pgherd's."""
    with open(os.devnull, "w") as nowhere, TerminalProgress(Console(file=nowhere, force_terminal=True, width=120)) as made:
        yield made


def complete(node: LocalNode, **asked: Any) -> tuple[DensityOptions, Any]:
    """The density options for this host from a request's fields, and all else that is prepared with them."""
    prepared = prepare(node, "density", DensityRequest(**asked))
    assert isinstance(prepared.options, DensityOptions)
    return prepared.options, prepared


@contextlib.contextmanager
def opened(node: LocalNode, options: DatabaseOptions, prepared: Any, progress: RunObserver) -> Iterator[tuple[Deployer, RunSession]]:
    """A session with an empty fleet, as a run has it; all of it is taken back at the end."""
    with open_session(node, f"benchmark-{secrets.token_hex(2)}", prepared.environment, progress) as live:
        fleet = Deployer(live, {options.pg_bin: runnable(node, options.pg_bin, options.pg_version, live)}, progress)
        try:
            yield fleet, live
        finally:
            fleet.close()


def play(node: LocalNode, fleet: Deployer, trial: Trial) -> list[PhaseResult]:
    """Run the phases of a trial, on servers that keep running if they are those of the trial before."""
    fleet.apply(trial)
    scratch = fleet.scratch / "trial"
    node.make_dir(str(scratch), mode=0o711)
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory, watcher() as progress:
        progress.planned(1, trial.seconds())
        progress.trial(trial, 1)
        played, _ = phases.run(node, trial, fleet, Path(directory), scratch, progress, fleet.watched)
    shutil.rmtree(scratch)
    return played


@contextlib.contextmanager
def deployed(node: LocalNode, progress: RunObserver, **asked: Any) -> Iterator[Deployed]:
    """Databases for a density request, up and warm."""
    options, prepared = complete(node, **asked)
    with opened(node, options, prepared, progress) as (fleet, live):
        found = Deployed(options, fleet, live)
        fleet.apply(found.trial({}, ramp=0.0, seconds=1.0))
        yield found


def containers_cpu(node: LocalNode, view: SamplingView) -> float | None:
    """CPU seconds that all containers have used so far; None where the runtime does not count them."""
    total, seen = 0.0, False
    for source in CGROUP_CPU.sources(view):
        for _, metrics in CGROUP_CPU.parse(node.read(source.where).decode(), source):
            if "cpu.usage" in metrics:
                total, seen = total + metrics["cpu.usage"], True
    return total if seen else None


def process_cpu(pid: int) -> float:
    """CPU seconds of a process so far, to the nanosecond (/proc/PID/stat has ticks of 10 ms).

    Its CPU-time clock is what clock_getcpuclockid(3) returns: on Linux ~pid << 3 | CPUCLOCK_SCHED.
    """
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(frozen=True)
class Used:
    """CPU seconds so far at one instant (monotonic seconds): pgherd's own, and its sampling backends'."""

    at: float
    own: float
    backends: float


class CountedNode(LocalNode):
    """The local node, which notes what pgherd has used when sampling begins (``begun``), when a trial's measured time is
    over (``over``), and when its last sample is taken (``ended``)."""

    def __init__(self) -> None:
        """As the local node."""
        super().__init__()
        self.begun: Used | None = None
        self.over: Used | None = None
        self.ended: Used | None = None
        self.sampling: SamplingLoop | None = None

    def sample(self, sources: Sequence[SampleSource], spool: str, period: float = 1.0) -> Any:
        """Start the sampling loop and note."""
        self.begun = self.used()
        self.sampling = super().sample(sources, spool, period)
        return _Counted(self, self.sampling)

    def used(self) -> Used:
        """What has been used by now."""
        pids = self.sampling.backends().values() if self.sampling else ()
        return Used(time.monotonic(), time.process_time(), sum(process_cpu(pid) for pid in pids))


class _Counted:
    """A sampling loop whose end is noted."""

    def __init__(self, node: CountedNode, sampling: SamplingLoop) -> None:
        self._node, self._sampling = node, sampling
        self.add, self.backends = sampling.add, sampling.backends

    def stop(self) -> None:
        self._node.over = self._node.used()
        self._sampling.stop()
        self._node.ended = self._node.used()
