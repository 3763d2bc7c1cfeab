"""A simulated set of volumes with known figures, so that the study is tested without fio."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from pgherd.model.analysis import Check
from pgherd.model.deployment import Volume
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.disk.options import TESTS, DiskOptions, DiskVolume, propose

MS = 1.0


@dataclass
class Bank:
    """Volumes that make ``iops`` I/Os per second at most, each I/O taking ``latency`` ms; ``cached`` is the share that the device
    does not see; ``jobs_cpu`` and ``busy`` (of the host's CPU) are what the trial used; ``slope`` is how much an hour's worth of a
    trial rises or falls from its first second to its last. ``speed`` is by how much a host is faster than the others."""

    options: DiskOptions
    iops: float = 40_000.0
    latency: float = 0.2
    cached: float = 0.0
    job_cpu: float = 0.3
    busy: float = 0.5
    slope: float = 0.0
    noise: float = 0.005
    fail: Callable[[Trial], str | None] = lambda trial: None
    taint: Callable[[Trial], bool] = lambda trial: False
    together: float = 1.0
    speed: dict[str, float] = field(default_factory=dict)
    seed: int = 1
    clock: float = field(default=1_000_000.0)

    def run(self, trial: Trial) -> TrialResult:
        started, self.clock = self.clock, self.clock + trial.seconds() + 0.5
        error = self.fail(trial)
        if error:
            return TrialResult(id="0001", trial=trial, started=started, ended=self.clock, error=error)
        rng = random.Random(f"{self.seed} {trial.key()}")
        phase, test = trial.phases[0], TESTS[str(trial.point["test"])]
        targets, moved = [], {"read": 0.0, "write": 0.0}
        for target, load in phase.loads.items():
            # Little's law: so many in flight, each taking so long, are so many a second, up to what the volume can do.
            created = min(load.clients * load.threads / (self.latency / 1000), self.iops if test.bytes == 8192 else self.iops / 40)
            created *= (self.together if len({t.rpartition("/")[2] for t in phase.loads}) > 1 else 1.0) * rng.gauss(1, self.noise)
            created *= self.speed.get(target.partition("/")[0], 1.0)
            if load.rate is not None:
                created = min(created, load.rate)
            values = {"job_cpu": self.job_cpu}
            shares = {"randrw": {"read": 0.7, "write": 0.3}}.get(test.rw) or {"write" if test.writes else "read": 1.0}
            for direction, share in shares.items():
                values |= {
                    f"{direction}_iops": created * share,
                    f"{direction}_bytes_per_second": created * share * test.bytes,
                    f"{direction}_mean_ms": self.latency,
                }
                values |= {f"{direction}_p50_ms": self.latency, f"{direction}_p99_ms": 3 * self.latency}
                moved[direction] += created * share * test.bytes
            seconds = int(phase.seconds)
            series = [created * (1 + self.slope * (at / max(seconds - 1, 1) - 0.5)) for at in range(seconds)]
            targets.append(
                TargetResult(
                    target=target,
                    driver="fio",
                    transactions=created * phase.seconds,
                    throughput=created,
                    per_second=series,
                    latency=Latency(mean=self.latency, sampled=1000),
                    values=values,
                    first=started + phase.warmup,
                    last=self.clock,
                )
            )
        device = {f"{direction}_bytes": amount * (1 - self.cached) for direction, amount in moved.items()}
        devices = {
            f"{item.volume.host}/{item.devices[0]}" if item.volume.host else item.devices[0]
            for item in self.options.volumes
            if item.devices
        }
        metrics = {f"disk:{name}": device for name in devices}
        cpu = {"cpu.user": 4 * self.busy, "cpu.idle": 4 * (1 - self.busy), "cpu.online": 4.0}
        metrics |= dict.fromkeys(["host", *(f"host:{host}" for host in self.options.hosts)], cpu)
        result = "fail" if self.taint(trial) else "pass"
        verdicts = [Check(name="steal", kind="noise", result=result, observed="o", expected="w")]
        begin = started + phase.warmup
        measured = PhaseResult(phase=phase.name, start=begin, end=begin + phase.seconds, overlap=1.0, targets=targets, metrics=metrics)
        return TrialResult(id="0001", trial=trial, started=started, ended=self.clock, phases=[measured], checks=verdicts)

    def all(self) -> list[TrialResult]:
        """Run the study to its end."""
        results: list[TrialResult] = []
        while not (proposal := propose(self.options, results)).stop:
            results += [self.run(trial) for trial in proposal.trials]
        return results


def options(count: int = 1, hosts: Sequence[str | None] = (None,), **changes: object) -> DiskOptions:
    size = 64 * 2**30
    volumes = [
        DiskVolume(volume=Volume(name=f"disk{n}", path=f"/mnt/{n}", host=host), size=size, filesystem="ext4", devices=(f"sd{n}",))
        for host in hosts
        for n in range(count)
    ]
    return DiskOptions.model_validate({"volumes": volumes, "host_cores": 4, "memory": 16 * 2**30, "seed": 3, **changes})


@pytest.fixture
def make():
    return options


@pytest.fixture
def bank():
    return Bank
