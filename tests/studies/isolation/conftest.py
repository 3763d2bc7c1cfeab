"""A simulated host on which each aggressor multiplies the victim's p99 by a known factor, to test the study without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.isolation.options import IsolationOptions
from pgherd.studies.isolation.propose import addresses, propose
from simulated_run import SimulatedRun

GB = 2**30
FACTORS = {("shared-server", "cpu"): 3.0, ("shared-server", "wal"): 8.0, ("quota", "cpu"): 1.0, ("quota", "wal"): 2.0}


def options(**changes):
    defaults = {
        "host_cores": 4,
        "host_memory": 8 * GB,
        "vcpus": 1,
        "container_memory": GB,
        "runtime": "cgroup",
        "cpu_mode": "quota",
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "settings": {"shared_buffers": "128MB"},
        "scripts": [{"source": "builtin:tpcb-like"}],
        "schemes": ("shared-server", "quota"),
        "aggressors": ("cpu", "wal"),
        "scripts_of": {"cpu": "/x/cpu.sql", "wal": "/x/wal.sql"},
        "clients": 8,
        "aggressor_clients": 4,
        "rate": 100.0,
        "duration": 15,
        "warmup": 3,
        "repeats": 8,
        "fixed_repeats": True,
    }
    return IsolationOptions.model_validate({**defaults, **changes})


@dataclass
class Simulator(SimulatedRun):
    """``taint(trial)``: whether a check fails. ``starved(trial)``: whether it has too few transactions for a p99. ``factors``: of the p99
    by scheme and aggressor (None: every trial is starved).
    """

    options: IsolationOptions
    noise: float = 0.05
    check: str = "background-cpu"
    taint: Callable[[Trial], bool] = lambda trial: False
    starved: Callable[[Trial], bool] = lambda trial: False
    factors: dict[tuple[str, str], float | None] | None = None
    clock: float = 1e6
    propose = staticmethod(propose)

    def run(self, trial: Trial) -> TrialResult:
        scheme, aggressor = str(trial.point["scheme"]), str(trial.point["aggressor"])
        factor = {**FACTORS, **(self.factors or {})}.get((scheme, aggressor), 1.0)
        chance = random.Random(f"{trial.key()}")
        latency = None if factor is None or self.starved(trial) else 10 * factor * (1 + self.noise * chance.uniform(-1, 1))
        begun, self.clock = self.clock, self.clock + trial.seconds() + 1
        window = {"first": begun + 3, "last": begun + 18}
        targets = [
            TargetResult(
                target=address,
                driver="pgbench",
                transactions=1500,
                throughput=100.0 if address == addresses(scheme)[0] else 40.0,
                latency=Latency(p50=None if latency is None else latency / 5, p99=latency, mean=3),
                **window,
            )
            for address in trial.phases[0].loads
        ]
        failed = Check(name=self.check, kind="noise", result="fail" if self.taint(trial) else "pass", observed="", expected="")
        phase = PhaseResult(phase="steady", start=begun + 3, end=begun + 18, overlap=1.0, targets=targets)
        return TrialResult(id=trial.key(), trial=trial, started=begun, ended=self.clock, phases=[phase], checks=[failed])


@pytest.fixture
def simulate():
    """Return ``simulate(changes of the options, of the simulator)``: options, and the results of a whole run."""

    def run(changes=None, **how):
        chosen = options(**(changes or {}))
        return chosen, Simulator(chosen, **how).until_stop()[0]

    return run


@pytest.fixture
def make_options():
    return options
