"""A simulated host with a known density curve, so that the study is tested without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import propose
from simulated_run import SimulatedRun

BEGUN = 1_000_000.0
"""When a simulated run begins, seconds since the epoch."""


def verdict(check: str, result: str = "pass", kind: str = "noise", severity: str = "taint") -> Check:
    return Check(name=check, kind=kind, result=result, observed="seen", expected="wanted", severity=severity)


@dataclass
class Simulator(SimulatedRun):
    """A host of so many cores on which databases of so many vCPUs each make ``rate`` tps per core of theirs until the
    cores (less ``overhead``, used by a platform) are full. ``alone`` multiplies the throughput of one database alone."""

    propose = staticmethod(propose)
    options: DensityOptions
    rate: float = 60_000.0
    overhead: float = 0.0
    alone: float = 1.0
    noise: float = 0.01
    overhead_metrics: bool = True
    metrics: bool = True
    taint: Callable[[Trial], str | None] = lambda trial: None
    fail: Callable[[Trial], str | None] = lambda trial: None
    drift: float = 0.0
    seed: int = 1
    clock: float = field(default=BEGUN)

    def truth(self, n: int) -> float:
        """Throughput of n databases."""
        observation = self.options
        cores = min(n * observation.vcpus, observation.host_cores - self.overhead)
        if observation.rate is not None:
            return min(n * observation.rate, cores * self.rate)
        return cores * self.rate * (self.alone if n == 1 else 1.0)

    def run(self, trial: Trial) -> TrialResult:
        rng = random.Random(f"{self.seed} {trial.key()}")
        started = self.clock
        self.clock += trial.seconds() + 0.5
        error = self.fail(trial)
        name = f"{int(started)}"
        if error:
            return TrialResult(id=name, trial=trial, started=started, ended=self.clock, error=error)
        reason = self.taint(trial)
        phases, at = [], started
        for phase in trial.phases:
            at += phase.warmup
            hours = (at - BEGUN) / 3600
            factor = rng.gauss(1, self.noise) * (0.7 if reason else 1.0) * (1 + self.drift * hours)
            phases.append(self._phase(rng, phase.name, at, phase.seconds, list(phase.loads), factor))
            at += phase.seconds
        verdicts = [verdict(intent, kind="validity") for intent in trial.validity_checks]
        verdicts += [verdict("steal", "fail" if reason == "steal" else "pass"), verdict("overlap")]
        if self.options.rate is not None and self.truth(len(trial.phases[0].loads)) < 0.98 * len(trial.phases[0].loads) * self.options.rate:
            verdicts = [v if v.name != "rate-achieved" else v.model_copy(update={"result": "fail"}) for v in verdicts]
        if reason and reason != "steal":
            verdicts = [v if v.name != reason else v.model_copy(update={"result": "fail"}) for v in verdicts]
        return TrialResult(id=name, trial=trial, started=started, ended=self.clock, phases=phases, checks=verdicts)

    def _phase(self, rng: random.Random, name: str, start: float, seconds: float, targets: list[str], factor: float) -> PhaseResult:
        observation, n = self.options, len(targets)
        total = self.truth(n) * factor
        parts = [rng.gauss(1, 0.02) for _ in targets]
        tps = [total * part / sum(parts) for part in parts]
        cores = min(n * observation.vcpus, observation.host_cores - self.overhead)
        latency = Latency(mean=1, p50=1.0 * n, p95=2.0 * n, p99=None if n > 5 else 3.0 * n, sampled=1000)
        results = [
            TargetResult(
                target=t, driver="pgbench", transactions=x * seconds, throughput=x, latency=latency, first=start, last=start + seconds
            )
            for t, x in zip(targets, tps, strict=True)
        ]
        metrics: dict[str, dict[str, float]] = {}
        if self.metrics:
            for target in targets:
                metrics[f"container:{target.split('/')[1]}"] = {"cpu.usage": cores / n}
                metrics[f"driver:{target}"] = {"cpu.usage": 0.15 * cores / n}
                metrics[f"backend:{target.split('/')[1]}/pg"] = {"cpu.usage": 0.001}
            metrics["pgherd"] = {"cpu.usage": 0.01}
            metrics["platform:vm"] = {"cpu.usage": self.overhead / 2}
            busy = cores + 0.01 + self.overhead
            metrics["host"] = {
                "cpu.user": busy * 0.7,
                "cpu.nice": 0.0,
                "cpu.system": busy * 0.25,
                "cpu.irq": 0.0,
                "cpu.softirq": busy * 0.05,
                "cpu.steal": 0.0,
                "cpu.iowait": 0.0,
                "cpu.idle": max(observation.host_cores + 0.01 - busy, 0.0),
            }
        return PhaseResult(phase=name, start=start, end=start + seconds, overlap=1.0, targets=results, metrics=metrics)


@pytest.fixture
def simulate() -> type[Simulator]:
    return Simulator


@pytest.fixture
def options() -> Callable[..., DensityOptions]:
    def build(**extra: object) -> DensityOptions:
        inputs = {"host_cores": 2, "host_memory": 2**32, "vcpus": 0.25, "cpu_mode": "quota", "pg_bin": "/pg/bin", "pg_version": "18.6"}
        inputs["databases"] = (1, 2, 3, 5, 6, 8, 10)
        return DensityOptions(**{**inputs, **extra})

    return build
