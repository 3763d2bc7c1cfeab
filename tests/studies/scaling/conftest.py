"""A simulated server with a known curve of throughput against clients, so that the study is tested without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.scaling.options import ScalingOptions, ScalingVariant
from pgherd.studies.scaling.propose import propose
from pgherd.study.database_options import DatabaseOptions
from simulated_run import SimulatedRun

CORES = 4


def verdict(check: str, result: str = "pass", kind: str = "noise") -> Check:
    return Check(name=check, kind=kind, result=result, observed="seen", expected="wanted")


@dataclass(frozen=True)
class Shape:
    """``each`` tps per client up to ``knee`` clients, then ``slope`` × each per further one, and ``fall`` × each less per client
    past ``peak``."""

    each: float = 10_000.0
    knee: float = 4.0
    slope: float = 0.3
    peak: float = 10.0
    fall: float = 0.05

    def __call__(self, n: float) -> float:
        rising = min(n, self.knee) + self.slope * max(min(n, self.peak) - self.knee, 0)
        return self.each * (rising - self.fall * max(n - self.peak, 0))


@dataclass
class Server(SimulatedRun):
    """Servers on a host of four cores, by variant; a third of the CPU that a server and its clients use is pgbench's."""

    propose = staticmethod(propose)
    options: ScalingOptions
    shapes: Mapping[str, Shape] = field(default_factory=lambda: {"": Shape()})
    noise: float = 0.01
    metrics: bool = True
    taint: Callable[[Trial], str | None] = lambda trial: None
    fail: Callable[[Trial], str | None] = lambda trial: None
    overhead: float = 0.5
    seed: int = 1
    clock: float = 1_000_000.0

    def run(self, trial: Trial) -> TrialResult:
        rng = random.Random(f"{self.seed} {trial.key()}")
        started = self.clock
        self.clock += trial.seconds() + self.overhead
        name, error = f"{int(started)}", self.fail(trial)
        if error:
            return TrialResult(id=name, trial=trial, started=started, ended=self.clock, error=error)
        reason = self.taint(trial)
        (phase,) = trial.phases
        start = started + phase.warmup
        clients = int(trial.point["clients"])
        tps = self.shapes[str(trial.point.get("variant", ""))](clients) * max(rng.gauss(1, self.noise), 0.1) * (0.7 if reason else 1.0)
        verdicts = [verdict(intent, "fail" if reason == intent else "pass", "validity") for intent in trial.validity_checks]
        verdicts += [verdict("steal", "fail" if reason == "steal" else "pass"), verdict("overlap")]
        return TrialResult(
            id=name,
            trial=trial,
            started=started,
            ended=self.clock,
            phases=[self._phase(phase.name, start, phase.seconds, next(iter(phase.loads)), tps, clients)],
            checks=verdicts,
        )

    def _phase(self, name: str, start: float, seconds: float, target: str, tps: float, clients: int) -> PhaseResult:
        ms = 1000 * clients / tps
        result = TargetResult(
            target=target,
            driver="pgbench",
            transactions=tps * seconds,
            throughput=tps,
            latency=Latency(mean=ms, p50=ms, p95=2 * ms, p99=None if clients == 1 else 3 * ms, sampled=1000),
            first=start,
            last=start + seconds,
        )
        busy = min(clients * 0.8, CORES * 0.995)
        metrics: dict[str, dict[str, float]] = {}
        if self.metrics:
            metrics = {
                "container:db01": {"cpu.usage": busy},
                f"driver:{target}": {"cpu.usage": busy / 3},
                "backend:db01/pg": {"cpu.usage": 0.0},
                "pgherd": {"cpu.usage": 0.01},
                "host": {"cpu.user": busy, "cpu.online": CORES, "cpu.idle": CORES - busy, "cpu.iowait": 0.0, "cpu.steal": 0.0},
            }
        return PhaseResult(phase=name, start=start, end=start + seconds, overlap=1.0, targets=[result], metrics=metrics)


BASE = {
    "host_cores": CORES,
    "host_memory": 2**32,
    "vcpus": CORES,
    "runtime": "cgroup",
    "pg_bin": "/pg/bin",
    "pg_version": "18.6",
    "threads": CORES,
}


@pytest.fixture
def server() -> type[Server]:
    return Server


@pytest.fixture
def shape() -> type[Shape]:
    return Shape


@pytest.fixture
def options() -> Callable[..., ScalingOptions]:
    def build(**extra: object) -> ScalingOptions:
        return ScalingOptions(**{**BASE, "clients": (1, 2, 3, 4, 6, 8, 12, 16), "max_clients": 32, **extra})

    return build


@pytest.fixture
def variants(options: Callable[..., ScalingOptions]) -> Callable[..., ScalingOptions]:
    """Options of variants, each with its changes to the server's options."""

    def build(changes: Mapping[str, Mapping[str, object]], **extra: object) -> ScalingOptions:
        return options(
            variants=tuple(ScalingVariant(name=n, options=DatabaseOptions(**{**BASE, **change})) for n, change in changes.items()), **extra
        )

    return build
