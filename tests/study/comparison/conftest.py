"""A simulated host on which each side of a comparison has a known throughput, so that the study is tested without PostgreSQL."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, Slice, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.propose import propose
from simulated_run import SimulatedRun


def verdict(check: str, result: str = "pass", kind: str = "noise") -> Check:
    return Check(name=check, kind=kind, result=result, observed="seen", expected="wanted")


def server_options(**changes: Any) -> dict[str, Any]:
    given = {
        "host_cores": 2,
        "host_memory": 2**32,
        "vcpus": 1,
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "databases": (1,),
        "repeats": 1,
    }
    given |= {"duration": 5.0, "warmup": 0.5, "start_state": "restarted"}
    return DensityOptions(**{**given, **changes}).model_dump(mode="json")


@dataclass
class Simulator(SimulatedRun):
    """``truth`` is each variant's throughput as a factor of 10,000 tps; ``noise`` each trial's own, ``drift`` that of the host per hour.
    ``taint`` and ``fail`` say why a trial is so; ``metrics`` are the windows' metrics beside CPU."""

    propose = staticmethod(propose)
    options: CompareOptions
    truth: dict[str, float] = field(default_factory=dict)
    noise: float = 0.01
    drift: float = 0.0
    overhead: float | Callable[[Trial], float] = 1.0
    taint: Callable[[Trial], str | None] = lambda trial: None
    fail: Callable[[Trial], str | None] = lambda trial: None
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    p99: bool = True
    seed: int = 1
    clock: float = 1_000_000.0
    count: int = 0

    def run(self, trial: Trial) -> TrialResult:
        self.count += 1
        rng = random.Random(f"{self.seed} {trial.key()}")
        started, name = self.clock, f"{self.count:04d}"
        self.clock += trial.seconds() + (self.overhead if isinstance(self.overhead, float) else self.overhead(trial))
        if error := self.fail(trial):
            return TrialResult(id=name, trial=trial, started=started, ended=self.clock, error=error)
        hours = (started - 1_000_000.0) / 3600
        factors: dict[str, float] = {}

        def factor(side: str) -> float:
            """Of one of a trial's sides: each has noise of its own."""
            true = self.truth.get(self.options.variant(side).name, 1.0)
            return factors.setdefault(side, true * math.exp(rng.gauss(0, self.noise)) * (1 + self.drift * hours))

        phases = []
        for phase in trial.phases:
            begin = started + phase.warmup
            targets = []
            for target in phase.loads:
                of = phase.slices.of if phase.slices is not None else {str(trial.point["variant"]): target.split("/")[1]}
                (side,) = (side for side, container in of.items() if container == target.split("/")[1])
                own = list(range(list(of).index(side), round(phase.seconds / 0.5), len(of))) if phase.slices is not None else []
                spent = 0.5 * len(own) or phase.seconds
                known = factor(side)
                targets.append(
                    TargetResult(
                        target=target,
                        driver="pgbench",
                        transactions=10_000 * known * spent,
                        throughput=10_000 * known,
                        latency=Latency(p50=0.1 / known, p95=0.2 / known, p99=0.4 / known if self.p99 else None, sampled=1000),
                        first=begin,
                        last=begin + phase.seconds,
                        slices=[Slice(begun=begin + 0.5 * n, ended=begin + 0.5 * n + 0.5, switches=10_000) for n in own],
                    )
                )
            metrics = {f"container:{target.split('/')[1]}": {"cpu.usage": 1.0} for target in phase.loads}
            metrics["host"] = {"context_switches": 20_000.0}
            for entity, values in self.metrics.items():
                metrics[entity] = {**metrics.get(entity, {}), **values}
            phases.append(
                PhaseResult(phase=phase.name, start=begin, end=begin + phase.seconds, overlap=1.0, targets=targets, metrics=metrics)
            )
        why = self.taint(trial)
        verdicts = [verdict("steal", "fail" if why == "steal" else "pass")]
        verdicts += [verdict(intent, "fail" if why == intent else "pass", "validity") for intent in trial.validity_checks]
        return TrialResult(id=name, trial=trial, started=started, ended=self.clock, phases=phases, checks=verdicts)


@pytest.fixture
def simulate() -> type[Simulator]:
    return Simulator


@pytest.fixture
def server() -> Callable[..., dict[str, Any]]:
    """The complete options of one server, as a variant holds them."""
    return server_options


@pytest.fixture
def options() -> Callable[..., CompareOptions]:
    """Options of a comparison of ``base`` with ``other``, or of the variants given."""

    def build(variants: dict[str, dict[str, Any]] | None = None, study: str = "density", **more: Any) -> CompareOptions:
        variants = variants or {"base": server_options(), "other": server_options(protocol="simple")}
        made = tuple(Variant(name=name, study=study, options=given) for name, given in variants.items())
        return CompareOptions(**{"variants": made, "baseline": next(iter(variants)), "max_blocks": 14, **more})

    return build
