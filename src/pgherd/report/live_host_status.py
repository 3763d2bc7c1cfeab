"""CPU and memory of the host of a run that is watched; of a run on several hosts, of each and of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pgherd.model.facts import HostFacts
from pgherd.model.run import RunRecord
from pgherd.report.live_status import LiveUsage
from pgherd.store.live import LiveTrial

_IN_USE = ("cpu.user", "cpu.nice", "cpu.system", "cpu.irq", "cpu.softirq")

Series = list[tuple[float, float]]
"""(seconds since the epoch, value), in order of time."""


class Readings(Protocol):
    """What is asked of the samples of the trial that runs."""

    def series(self, entity: str, name: str) -> Series:
        """A gauge's readings, or a counter's increase per second."""
        ...

    def latest(self, entity: str, name: str) -> float | None:
        """The last of them; None where there is none."""
        ...


def taking_part(record: RunRecord, trial: LiveTrial) -> Mapping[str, HostFacts]:
    """The hosts of a cluster that take part in a trial; none in a run on this host."""
    if record.surroundings is None or record.surroundings.cluster is None:
        return {}
    return {name: facts for name, facts in record.hosts.items() if name in trial.hosts}


def host_uses(readings: Readings, record: RunRecord, trial: LiveTrial) -> tuple[LiveUsage, list[LiveUsage]]:
    """What the host uses, CPU in cores and its memory that is not available; of several hosts, all together and then each."""
    hosts = taking_part(record, trial)
    if not hosts:
        facts = next(iter(record.hosts.values()), None)
        return _use(readings, "host", "host", None if facts is None else facts.logical_cpus), []
    each = [_use(readings, name, f"host:{name}", facts.logical_cpus) for name, facts in hosts.items()]
    whole = LiveUsage(
        name="all hosts",
        cpu=_total([one.cpu for one in each]),
        vcpus=_total([one.vcpus for one in each]),
        memory=_total([one.memory for one in each]),
        limit=_total([one.limit for one in each]),
    )
    return whole, each


def cpu_in_use(readings: Readings, record: RunRecord, trial: LiveTrial) -> Series:
    """The CPU in use over time, in cores; of several hosts what all of them said last, at each instant at which one said something."""
    entities = [f"host:{name}" for name in taking_part(record, trial)] or ["host"]
    each = [_by_instant([readings.series(entity, name) for name in _IN_USE]) for entity in entities]
    if len(each) == 1:
        return each[0]
    found: Series = []
    last: dict[int, float] = {}
    for t, number, value in sorted((t, number, value) for number, series in enumerate(each) for t, value in series):
        last[number] = value
        if len(last) == len(each):
            found.append((t, sum(last.values())))
    return found


def _use(readings: Readings, name: str, entity: str, cores: float | None) -> LiveUsage:
    used = [rate for mode in _IN_USE if (rate := readings.latest(entity, mode)) is not None]
    total, available = readings.latest(entity, "memory.total"), readings.latest(entity, "memory.available")
    memory = None if total is None or available is None else total - available
    return LiveUsage(name=name, cpu=sum(used) if used else None, vcpus=cores, memory=memory, limit=total)


def _total(values: Sequence[float | None]) -> float | None:
    """None where one is not known: a sum over some hosts would pass for that of all."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _by_instant(parts: Sequence[Series]) -> Series:
    """Series of one source, summed up instant by instant."""
    found: dict[float, float] = {}
    for part in parts:
        for t, value in part:
            found[t] = found.get(t, 0.0) + value
    return sorted(found.items())
