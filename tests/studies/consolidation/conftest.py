"""A simulated host with a known throughput of each layout, to test the study without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import OomKill, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.consolidation.options import LAYOUTS, ConsolidationOptions
from pgherd.studies.consolidation.propose import propose, targets

GB = 2**30
SPEED = dict(zip(LAYOUTS, (100.0, 90.0, 120.0, 120.0, 80.0), strict=True))
"""New orders per minute and client of a busy database, by layout."""
SWAPPED = dict(zip(LAYOUTS, (400.0, 420.0, 160.0, 120.0, 400.0), strict=True))
"""MB swapped out of all containers at a rate of 0.5. Linear below that."""
KEEPS = dict(zip(LAYOUTS, (0.4, 0.4, 0.8, 0.9, 0.4), strict=True))
"""Share of the throughput retained at a rate of 0.5. Linear below that."""


def options(**changes):
    defaults = {
        "host_cores": 8,
        "host_memory": 12 * GB,
        "vcpus": 3,
        "container_memory": 4 * GB,
        "share": 4 * GB,
        "runtime": "cgroup",
        "cpu_mode": "quota",
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "workload": "orders",
        "scale": 30,
        "scripts": [{"source": "orders:new-order", "name": "new-order"}],
        "client_placement": "outside",
        "start_state": "fresh",
        "duration": 8,
        "warmup": 2,
    }
    return ConsolidationOptions.model_validate({**defaults, **changes})


def memory(metrics, swapped):
    """Return the metrics of the containers and the host with this total of swapped MB."""
    each = swapped * 2**20 / len(metrics)
    observed = {
        "memory.usage": 900e6,
        "memory.shmem": 256 * 2**20,
        "memory.file": 512 * 2**20,
        "memory.anon": 64 * 2**20,
        "memory.swap": each,
        "memory.refaults_file": 30.0,
        "memory.refaults_anon": 12.0,
    }
    waits = {name: 0.02 * (number + 1) for number, name in enumerate(sorted(metrics))}
    result = {name: metric | observed | {"psi.memory.some": waits[name]} for name, metric in metrics.items()}
    return result | {
        "zram:zram3": {"zram.orig_data": swapped * 2**20, "zram.mem_used": swapped * 2**20 / 4},
        "host": {"vm.pswpin": 5.0, "vm.pswpout": 7.0},
    }


@dataclass
class Simulator:
    """``taint(trial)`` names a check that fails, ``kill(trial)`` a container with an OOM kill."""

    options: ConsolidationOptions
    noise: float = 0.0
    skew: float = 0.02
    memory: bool = True
    taint: Callable[[Trial], str | None] = lambda trial: None
    kill: Callable[[Trial], str | None] = lambda trial: None
    clock: float = 1e6

    def run(self, trial: Trial) -> TrialResult:
        started, self.clock = self.clock, self.clock + trial.seconds() + 5
        killed = self.kill(trial)
        if killed:
            kills = (OomKill(container=killed, processes=2, time=started + 7.25, names=("postgres",), limit="run"),)
            return TrialResult(
                id=str(int(started)), trial=trial, started=started, ended=self.clock, error="a server died\nits log", oom_kills=kills
            )
        rng = random.Random(trial.key())
        layout, rate = trial.point["layout"], float(trial.point["overcommit"])
        keeps = 1 - (1 - KEEPS[layout]) * rate / 0.5
        drift = 1 + 0.1 * trial.repeat  # blocks differ; pairs within one do not
        phases, at = [], started
        for number, phase in enumerate(trial.phases):
            at += phase.warmup
            collected = []
            for database, target in enumerate(targets(self.options, layout)):
                clients = self.options.plan[database][number]
                if not clients:
                    continue
                value = SPEED[layout] * clients * keeps * drift * rng.gauss(1, self.noise)
                first = at - 1 + (self.skew if database else 0.0)
                collected.append(
                    TargetResult(
                        target=target,
                        driver="pgbench",
                        transactions=value / 27 * phase.seconds,
                        throughput=value / 27,
                        nopm=value,
                        first=first,
                        last=at + phase.seconds,
                    )
                )
            containers = {name.split("/")[1] for name in targets(self.options, layout)}
            metrics = {f"container:{name}": {"cpu.usage": 3.0 / len(containers)} for name in containers}
            if self.memory:
                metrics = memory(metrics, SWAPPED[layout] * rate / 0.5 * drift)
            phases.append(
                PhaseResult(
                    phase=phase.name, start=at, end=at + phase.seconds, overlap=1, targets=collected, metrics=metrics, skew=self.skew
                )
            )
            at += phase.seconds
        reason = self.taint(trial)
        verdicts = [
            Check(name=check, kind="noise", result="fail" if check == reason else "pass", observed="seen", expected="wanted")
            for check in ("overlap", "steal")
        ]
        return TrialResult(id=str(int(started)), trial=trial, started=started, ended=self.clock, phases=phases, checks=verdicts)

    def all(self, most: int = 50) -> list[TrialResult]:
        """Run the study to its end."""
        results: list[TrialResult] = []
        for _ in range(most):
            proposal = propose(self.options, results)
            if proposal.stop is not None:
                self.stopped = proposal.stop
                return results
            results += [self.run(trial) for trial in proposal.trials]
        raise AssertionError("the study does not stop")


@pytest.fixture
def make_options():
    return options


@pytest.fixture
def simulate():
    return Simulator
