"""A simulated server of which each pool has a known throughput at each limit, to test the study without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, OomKill, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.balloon_limits.options import BalloonLimitsOptions
from pgherd.studies.balloon_limits.propose import propose
from simulated_run import SimulatedRun

GB = 2**30
STEADY = {
    ("small", 100): 8000.0,
    ("small", 50): 8000.0,
    ("large", 100): 10_000.0,
    ("large", 50): 9000.0,
    ("balloon", 100): 10_000.0,
    ("balloon", 50): 7600.0,
}
"""Steady throughput of a pool at a limit, in percent."""


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
        "scripts": [{"source": "builtin:select-only"}],
        "pools": ("small", "large", "balloon"),
        "pool_sizes": {"small": 320 * 2**20, "large": 640 * 2**20, "balloon": 640 * 2**20},
        "limits": (100, 100, 50, 100),
        "balloon": {"shared_preload_libraries": "pg_balloon"},
        "clients": 4,
        "duration": 10,
        "warmup": 5,
        "repeats": 5,
        "fixed_repeats": True,
    }
    return BalloonLimitsOptions.model_validate({**defaults, **changes})


@dataclass
class Simulator(SimulatedRun):
    """A change costs half of the throughput for three seconds, and twice the p99. Its slowest transaction takes 60 ms, the others' 9 ms.

    ``refuse(pool, limit)``: whether the kernel refuses. ``kill(pool)``: whether an OOM kill ends the trial.
    """

    options: BalloonLimitsOptions
    refuse: Callable[[str, int], bool] = lambda pool, limit: False
    kill: Callable[[str], bool] = lambda pool: False
    taint: Callable[[str], bool] = lambda pool: False
    stall: Callable[[str, int], bool] = lambda pool, limit: False
    clock: float = 1e6
    propose = staticmethod(propose)

    def run(self, trial: Trial) -> TrialResult:
        pool = str(trial.point["pool"])
        begun, self.clock = self.clock, self.clock + trial.seconds() + 1
        if self.kill(pool):
            killed = OomKill(container="server", processes=1, time=begun)
            return TrialResult(id=trial.key(), trial=trial, started=begun, ended=self.clock, error="killed", oom_kills=(killed,))
        noise = 1 + 0.02 * random.Random(trial.key()).uniform(-1, 1)
        phases, at = [], begun
        for number, phase in enumerate(trial.phases):
            at += phase.warmup
            limit = self.options.limits[number]
            level = 0.0 if self.stall(pool, limit) else STEADY[pool, limit] * noise
            falls = number > 0 and limit < self.options.limits[number - 1]
            second = [level / 2 if falls and at_second < 3 else level for at_second in range(int(phase.seconds))]
            (address,) = phase.loads
            target = TargetResult(
                target=address,
                driver="pgbench",
                transactions=sum(second),
                throughput=sum(second) / len(second),
                per_second=second,
                latency=Latency(p99=4.0 * noise if falls else 2.0, maximum=60.0 * noise if falls else 9.0, mean=1),
                first=at,
                last=at + phase.seconds,
            )
            refused = any(self.refuse(pool, limit) for _ in phase.memory)
            phases.append(
                PhaseResult(
                    phase=phase.name,
                    start=at,
                    end=at + phase.seconds,
                    overlap=1.0,
                    targets=[target],
                    limited_after=dict.fromkeys(phase.memory, None if refused else 0.5),
                )
            )
            at += phase.seconds
        check = Check(name="background-cpu", kind="noise", result="fail" if self.taint(pool) else "pass", observed="", expected="")
        return TrialResult(id=trial.key(), trial=trial, started=begun, ended=self.clock, phases=phases, checks=[check])


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
