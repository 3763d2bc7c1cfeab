"""Repeats of one point put together: which of them count, and their numbers as findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding, Verdict
from pgherd.model.result import TrialResult
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import CpuBreakdown, Observation, observe


@dataclass(frozen=True)
class Repeats:
    """All trials of one point. ``used`` are the clean ones, or the tainted ones where none is clean."""

    used: tuple[Observation, ...]
    tried: int
    tainted: int
    failed: int

    @property
    def clean(self) -> bool:
        """Whether the numbers rest on clean trials."""
        return all(observation.clean for observation in self.used)

    @property
    def throughputs(self) -> list[float]:
        """Total throughput of each used trial."""
        return [observation.throughput for observation in self.used]

    @property
    def mean(self) -> float:
        """Mean total throughput."""
        return sum(self.throughputs) / len(self.used)

    def values(self, take: Callable[[Observation], float | None]) -> list[float]:
        """A quantity of every used trial that has it."""
        return [value for observation in self.used if (value := take(observation)) is not None]

    @property
    def limited_by(self) -> str:
        """What limited most of the used trials."""
        return Counter(observation.limited_by for observation in self.used).most_common(1)[0][0]

    @property
    def note(self) -> str:
        """A note for numbers that rest on tainted trials."""
        return "" if self.clean else "only tainted trials: an indication"


def repeats(options: DatabaseOptions, trials: Sequence[TrialResult]) -> Repeats | None:
    """The trials of one point put together; None where none of them finished with a throughput."""
    seen = [observe(options, trial) for trial in trials]
    finished = [observation for observation in seen if observation is not None and observation.throughput > 0]
    used = [observation for observation in finished if observation.clean] or finished
    if not used:
        return None
    return Repeats(tuple(used), tried=len(trials), tainted=sum(trial.tainted for trial in trials), failed=len(trials) - len(finished))


def mean_finding(
    point: Repeats, take: Callable[[Observation], float | None], unit: str, absent: str, note: str = "", *, most: float = math.inf
) -> Finding:
    """Mean of a quantity over the point's used trials, or the reason why there is none. None of these quantities can be below zero, or
    above ``most``, and so neither can an end of its interval."""
    values = point.values(take)
    if not values:
        return missing(unit, absent)
    mean = mean_interval(values)
    if mean.low is not None and mean.high is not None:
        mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, most))
    return as_finding(mean, unit, "; ".join(text for text in (note, point.note) if text))


def join_continuations(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The results, with each trial that goes on from the one before it as further phases of that; those that failed stand by themselves."""
    found: list[TrialResult] = []
    last: int | None = None
    for result in results:
        if result.error is None and result.trial.goes_on and last is not None:
            found[last] = _and(found[last], result)
            continue
        if result.error is None:
            last = len(found)
        found.append(result)
    return found


def failed_phases(result: TrialResult, verdict: Verdict) -> tuple[str, ...]:
    """The phases of a trial in which a check failed; all of them where it failed for the trial as a whole."""
    return () if verdict.result != "fail" else verdict.failed_in or tuple(phase.phase for phase in result.phases)


def _and(before: TrialResult, after: TrialResult) -> TrialResult:
    verdicts = {(v.check, v.kind): v.model_copy(update={"failed_in": failed_phases(before, v)}) for v in before.verdicts}
    for later in after.verdicts:
        failed = failed_phases(after, later)
        known = verdicts.get((later.check, later.kind))
        worst = later if known is None or later.gravity > known.gravity else known
        verdicts[later.check, later.kind] = worst.model_copy(update={"failed_in": (*(known.failed_in if known else ()), *failed)})
    return before.model_copy(
        update={
            "ended": after.ended,
            "trial": before.trial.model_copy(update={"phases": (*before.trial.phases, *after.trial.phases)}),
            "phases": [*before.phases, *after.phases],
            "verdicts": list(verdicts.values()),
            "memory_kills": (*before.memory_kills, *after.memory_kills),
        }
    )


NO_CONTAINER_CPU = "the CPU of the containers was not seen; a runtime with accounting (cgroup) shows it"
PART_NOT_SEEN = "this part was not seen"

_PARTS: dict[str, tuple[Callable[[CpuBreakdown], float | None], str]] = {
    "databases_cpu": (lambda w: w.databases, "containers without clients and sampling backends"),
    "clients": (lambda w: w.clients, "all drivers, inside and outside"),
    "pgherd": (lambda w: w.pgherd, "with its sampling backends"),
    "platform": (lambda w: w.platform, "all CPU used outside the containers, without pgherd and clients; named parts are in it"),
    "iowait": (lambda w: w.iowait, ""),
    "idle": (lambda w: w.idle, ""),
    "steal": (lambda w: w.steal, ""),
}


def named_parts(points: Sequence[Repeats]) -> list[str]:
    """Names of the parts of the platform that any trial accounted for."""
    return sorted({name for point in points for o in point.used for name in o.cpu.named})


def cpu_cells(point: Repeats, named: Sequence[str]) -> dict[str, Finding]:
    """Column → cores: databases_cpu, clients, pgherd, platform, ``platform.NAME`` of each named part, iowait, idle, steal."""
    cells = {}
    for column, (take, note) in _PARTS.items():
        cells[column] = mean_finding(point, _of_window(take), "cores", _not_seen(column), note)
        if column == "platform":
            for name in named:
                cells[f"platform.{name}"] = mean_finding(point, part_cpu(name), "cores", PART_NOT_SEEN)
    return cells


def _of_window(take: Callable[[CpuBreakdown], float | None]) -> Callable[[Observation], float | None]:
    return lambda observation: take(observation.cpu)


def part_cpu(name: str) -> Callable[[Observation], float | None]:
    """What takes the CPU of a named part of the platform from an observation."""
    return lambda observation: observation.cpu.named.get(name)


def _not_seen(column: str) -> str:
    if column in ("databases_cpu", "platform"):
        return NO_CONTAINER_CPU
    return f"{'the host did not show' if column in ('iowait', 'idle', 'steal') else 'the processes did not show'} it"
