"""A simulated host on which servers and transactions have a known CPU, to test the study without PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.place_verify.options import PlaceVerifyOptions
from pgherd.studies.place_verify.propose import propose
from simulated_run import SimulatedRun

IDLE, COST = 0.002, 0.0005
"""CPU of an idle server in cores, and of a transaction in seconds."""
SERVER, SCALE = 30_000_000, 15_000_000
"""Memory of a server without data, and of one scale of data, in bytes."""
WITH_ALL = {
    "objective": {"percentile": 95, "limit_ms": 50},
    "memory_factor": 0.1,
    "scales": [[1, 4], [2, 2, 7]],
    "scale_bytes": SCALE,
}
"""Options of a verification of memory and latency class besides the CPU."""


def options(**changes):
    planned = [
        {"name": "large-1", "cores": 8, "databases": ["a", "b"], "cpu": [[2, 4, 1, 5], [2, 2, 2, 5]]},
        {"name": "large-2", "cores": 8, "databases": ["c", "d", "e"], "cpu": [[1, 2, 3, 0], [1, 1, 1, 0], [2, 3, 2, 0.2]]},
    ]
    defaults = {
        "host_cores": 4,
        "host_memory": 2**33,
        "vcpus": 1,
        "runtime": "cgroup",
        "cpu_mode": "quota",
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "scripts": [{"source": "/x/load.sql"}],
        "planned": planned,
        "slots": ["00:00", "06:00", "12:00", "18:00"],
        "factor": 0.125,
        "duration": 4,
        "warmup": 1.5,
        "repeats": 2,
        "fixed_repeats": True,
    }
    return PlaceVerifyOptions.model_validate({**defaults, **changes})


@dataclass
class Simulator(SimulatedRun):
    """Each container has at most its quota. ``cost`` multiplies the CPU of a transaction in the verification. ``noise``: relative.

    ``drift``: by how much all CPU grows from phase to phase, as on a host that becomes slower. ``memory`` multiplies that of servers, and
    ``hidden`` is memory of each host that no server explains, in bytes. ``stall``: what queues add to the CPU in the verification.
    ``late_from``: share of its CPU from which transactions of a container are late. All are when it is full.
    """

    options: PlaceVerifyOptions
    cost: float = 1.0
    noise: float = 0.01
    drift: float = 0.0
    memory: float = 1.0
    hidden: float = 0.0
    stall: float = 0.0
    late_from: float = 0.6
    played: int = 0
    seed: int = 1
    tainted: bool = False
    error: Callable[[Trial], str | None] = lambda trial: None
    observed: bool = True
    clock: float = 1e6
    propose = staticmethod(propose)

    def run(self, trial: Trial) -> TrialResult:
        chance = random.Random(f"{self.seed} {trial.key()}")
        begun, self.clock = self.clock, self.clock + trial.seconds() + 1
        verified = trial.point["stage"] == "verification"
        dearer = self.cost if verified else 1
        phases = []
        for phase in trial.phases:
            slower, self.played = (1 + self.drift) ** self.played, self.played + 1
            metrics, targets = {}, []
            for container in trial.deployment.hosts[0].containers:
                loads = {name: load.rate or 1e5 for name, load in phase.loads.items() if name.split("/")[1] == container.name}
                cost = COST * (1 if container.name == "reference" else dearer)
                base, each = IDLE * len(container.servers) * slower, cost * slower
                wanted = sum(loads.values())
                reached = min(wanted, (container.vcpus - base) / each)
                memory = sum(SERVER * self.memory + SCALE * server.databases[0].scale for server in container.servers)
                memory += 0 if container.name == "reference" else self.hidden
                cpu = (base + each * reached) * chance.gauss(1, self.noise)
                metrics[f"container:{container.name}"] = {"cpu.usage": cpu, "memory.usage": memory}
                used = min((base + each * wanted) / container.vcpus + self.stall * verified, 1.0)
                late = max(0.0, (used - self.late_from) / (1 - self.late_from))
                for name, rate in loads.items():
                    done = rate * reached / wanted
                    values = {"logged_tx": 4 * done, "late_p95_50ms_tx": 4 * done * late}
                    targets.append(
                        TargetResult(
                            target=name,
                            driver="pgbench",
                            transactions=done * 4,
                            throughput=done,
                            first=begun,
                            last=self.clock,
                            values=values,
                            series={key: [value / 4] * 4 for key, value in values.items()},
                        )
                    )
            metrics = metrics if self.observed else {}
            phases.append(PhaseResult(phase=phase.name, start=begun, end=begun + 4, overlap=1.0, targets=targets, metrics=metrics))
        check = Check(name="background-cpu", kind="noise", result="fail" if self.tainted else "pass", observed="", expected="")
        error = self.error(trial)
        results = [] if error else phases
        return TrialResult(id=trial.key(), trial=trial, started=begun, ended=self.clock, phases=results, checks=[check], error=error)


@pytest.fixture
def with_all():
    return WITH_ALL


@pytest.fixture
def make_options():
    return options


@pytest.fixture
def simulate():
    """Return a function that runs a whole simulated verification: its options and results."""

    def run(changes=None, **simulated):
        chosen = options(**(changes or {}))
        return chosen, Simulator(chosen, **simulated).until_stop()[0]

    return run


@pytest.fixture
def simulator():
    return Simulator
