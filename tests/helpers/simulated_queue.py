"""A simulated host for searches by latency objective: an M/M/1 queue whose limit is known. For the tests and benchmarks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgherd.model.analysis import Check
from pgherd.model.load import Phase
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from simulated_run import SimulatedRun


@dataclass
class Queue(SimulatedRun):
    """Databases that share one server of ``capacity`` transactions per second, each at most ``alone``.

    The latency of an M/M/1 queue is exponential with a mean of 1 / (capacity − rate), so the share within a limit is known. The number of
    late transactions of a block is drawn. Above the capacity, the schedule lag grows by the missing share.
    """

    propose: Any
    options: Any
    capacity: float = 4000.0
    alone: float = 1000.0
    taint: Callable[[Trial], str | None] = lambda trial: None
    seed: int = 1
    clock: float = 1_000_000.0
    host_cpu: bool = True

    def late(self, rate: float, limit_ms: float) -> float:
        """Share of the transactions that take longer than the limit."""
        room = self.capacity - rate
        return math.exp(-room * limit_ms / 1000) if room > 0 else 1.0

    def largest(self, rate: float, percentile: float, limit_ms: float) -> int:
        """The largest number of databases at this rate that keeps an objective."""
        return max((n for n in range(1, 1000) if self.late(n * rate, limit_ms) <= 1 - percentile / 100), default=0)

    def run(self, trial: Trial) -> TrialResult:
        rng = random.Random(f"{self.seed} {trial.key()}")
        started = at = self.clock
        self.clock += trial.seconds() + 1.0
        phases = []
        for phase in trial.phases:
            phases.append(self._phase(rng, phase, at))
            at += phase.planned()
        failed = self.taint(trial)
        checks = [Check(name=failed or "steal", kind="noise", result="fail" if failed else "pass", observed="o", expected="e")]
        return TrialResult(id=f"{int(started)}", trial=trial, started=started, ended=self.clock, phases=phases, checks=checks)

    def _phase(self, rng: random.Random, phase: Phase, started: float) -> PhaseResult:
        total = math.fsum(load.rate or self.alone for load in phase.loads.values())
        share = min(1.0, self.capacity / total) if total else 1.0
        targets = []
        for target, load in phase.loads.items():
            tps = (load.rate or self.alone) * share
            logged = max(1, round(rng.gauss(tps * phase.seconds * load.sampling, math.sqrt(tps * phase.seconds * load.sampling))))
            values: dict[str, float] = {"logged_tx": logged}
            seconds = int(phase.seconds)
            series = {"logged_tx": [logged / phase.seconds] * seconds}
            for objective in load.objectives:
                late = self.late(total, objective.limit_ms)
                count = min(logged, max(0, round(rng.gauss(logged * late, math.sqrt(logged * late * (1 - late))))))
                values[f"late_{objective.key}_tx"] = count
                series[f"late_{objective.key}_tx"] = [count / phase.seconds] * seconds
                room = max(self.capacity - total, 1e-3)
                values[f"{objective.name}_ms"] = min(-1000 * math.log(objective.allowed) / room, 1e4) * rng.gauss(1, 0.05)
                values[f"{objective.name}_least_ms"] = values[f"{objective.name}_ms"]
            latency = Latency(mean=1.0, p50=0.7, p95=2.0, sampled=logged)
            if load.rate is not None:
                latency = latency.model_copy(update={"lag_mean": 0.2, "lag_growth": 1 - share})
            targets.append(
                TargetResult(
                    target=target,
                    driver="pgbench",
                    transactions=tps * phase.seconds,
                    throughput=tps,
                    latency=latency,
                    first=started,
                    last=started + phase.planned(),
                    values=values,
                    series=series,
                )
            )
        used = min(1.0, total / self.capacity)
        host = {"cpu.online": 2.0, "cpu.user": 2 * used, "cpu.idle": 2 * (1 - used), "cpu.iowait": 0.0, "cpu.steal": 0.0}
        start = started + phase.warmup
        return PhaseResult(
            phase=phase.name,
            start=start,
            end=start + phase.seconds,
            overlap=1.0,
            targets=targets,
            metrics={"host": host} if self.host_cpu else {},
        )
