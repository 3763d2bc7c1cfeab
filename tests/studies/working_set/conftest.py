"""A simulated server with a known working set, so that the study is tested without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.working_set.options import WorkingSetOptions
from pgherd.studies.working_set.propose import propose
from simulated_run import SimulatedRun

MB = 2**20
KILLED = "container db01 exceeded its memory limit, and the kernel killed 1 process in it"


@dataclass
class Server(SimulatedRun):
    """One server: containers below ``lives`` MB do not live, up to ``memory`` MB they save ``reads`` per transaction in a straight line,
    and shared buffers up to ``buffers`` MB save a little copying. By number of clients."""

    propose = staticmethod(propose)
    options: WorkingSetOptions
    memory: dict[int, float] = field(default_factory=lambda: {30: 250.0, 2: 200.0})
    buffers: dict[int, float] = field(default_factory=lambda: {30: 100.0, 2: 60.0})
    lives: float = 0.0
    tps: float = 20_000.0
    noise: float = 0.01
    dip: float = 0.0
    metrics: bool = True
    taint: Callable[[Trial], bool] = lambda trial: False
    fail: Callable[[Trial], str | None] = lambda trial: None
    overhead: float = 3.0
    clock: float = 1_000_000.0

    def truth(self, trial: Trial) -> float:
        clients, memory, buffers = (int(trial.point[name]) for name in ("clients", "memory", "shared_buffers"))
        if trial.point["sweep"] == "memory":
            time = 1 + 2 * max(0.0, 1 - memory / self.memory[clients])
        else:
            time = 1 + 0.5 * max(0.0, 1 - buffers / self.buffers[clients])
        share = buffers / memory
        return self.tps / time * (1 - self.dip if 0.45 <= share <= 0.55 else 1.0)

    def run(self, trial: Trial) -> TrialResult:
        rng = random.Random(trial.key())
        started = self.clock
        self.clock += trial.seconds() + self.overhead
        name, memory, clients = f"{int(started * 10)}", int(trial.point["memory"]), int(trial.point["clients"])
        error = self.fail(trial) or (KILLED if memory < self.lives else None)
        if error:
            return TrialResult(id=name, trial=trial, started=started, ended=self.clock, error=error)
        tps = self.truth(trial) * rng.lognormvariate(0, self.noise)
        bad = self.taint(trial)
        verdicts = [
            Check(name="steal", kind="noise", result="fail" if bad else "pass", observed="seen", expected="wanted"),
            *(Check(name=intent, kind="validity", result="pass", observed="seen", expected="wanted") for intent in trial.validity_checks),
        ]
        (phase,) = trial.phases
        start = started + phase.warmup
        target = next(iter(phase.loads))
        missing = 2 * max(0.0, 1 - memory / self.memory[clients])
        metrics = {
            "container:db01": {
                "cpu.usage": 1.0,
                "memory.usage": (memory - 5.0) * MB,
                "memory.inactive_file": 20.0 * MB,
                "memory.refaults_file": missing * tps,
                "memory.refaults_anon": 0.0,
                "memory.swap": 0.0,
                "psi.memory.some": 0.0,
                "psi.io.some": min(missing, 0.9),
            },
            "server:db01/pg": {"db.blks_read": max(0.0, 1 - int(trial.point["shared_buffers"]) / 90) * tps, "buffers.reused": 70.0 * MB},
        }
        ms = 1000 * clients / tps
        result = TargetResult(
            target=target,
            driver="pgbench",
            transactions=tps * phase.seconds,
            throughput=tps,
            latency=Latency(mean=ms, p50=ms, p95=2 * ms, sampled=1000),
            first=start,
            last=start + phase.seconds,
        )
        played = PhaseResult(
            phase=phase.name, start=start, end=start + phase.seconds, overlap=1.0, targets=[result], metrics=metrics if self.metrics else {}
        )
        return TrialResult(id=name, trial=trial, started=started, ended=self.clock, phases=[played], checks=verdicts)


BASE = {
    "host_cores": 2,
    "host_memory": 2**33,
    "vcpus": 2,
    "runtime": "cgroup",
    "pg_bin": "/pg/bin",
    "pg_version": "18.6",
    "clients": (30, 2),
    "shared_buffers": 64,
    "memory_sizes": (100, 150, 200, 250, 300, 350),
    "shared_buffers_sizes": (16, 32, 64, 96, 128, 160),
    "max_container": 4000,
    "configured_memory": 400,
    "database_size": 128,
    "repeats": 1,
    "duration": 3.0,
    "warmup": 1.0,
    "precision": 0.05,
    "time_budget": 400.0,
    "seed": 1,
}


@pytest.fixture
def server() -> type[Server]:
    return Server


@pytest.fixture
def options() -> Callable[..., WorkingSetOptions]:
    def build(**extra: object) -> WorkingSetOptions:
        return WorkingSetOptions(**{**BASE, **extra})

    return build
