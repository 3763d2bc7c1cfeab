"""Trials of one point combined: continued trials, repeats, their means and CPU use as findings. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.model.analysis import Check, Finding
from pgherd.model.result import TrialResult
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import CpuBreakdown, Observation, observe


@dataclass(frozen=True)
class Repeats:
    """All trials of one point. ``used`` holds the clean trials, or the tainted ones if no trial is clean."""

    used: tuple[Observation, ...]
    tried: int
    tainted: int
    failed: int

    @property
    def clean(self) -> bool:
        """True if the used trials are clean."""
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
        """Return a quantity of every used trial that has it."""
        return [value for observation in self.used if (value := take(observation)) is not None]

    @property
    def bottleneck(self) -> str:
        """Most frequent bottleneck of the used trials."""
        return Counter(observation.bottleneck for observation in self.used).most_common(1)[0][0]

    @property
    def note(self) -> str:
        """Note for numbers from tainted trials."""
        return "" if self.clean else "only tainted trials: an indication"


def repeats(options: DatabaseOptions, trials: Sequence[TrialResult]) -> Repeats | None:
    """Combine the trials of one point. None if no trial finished with a throughput."""
    observations = [observe(options, trial) for trial in trials]
    finished = [observation for observation in observations if observation is not None and observation.throughput > 0]
    used = [observation for observation in finished if observation.clean] or finished
    if not used:
        return None
    return Repeats(tuple(used), tried=len(trials), tainted=sum(trial.tainted for trial in trials), failed=len(trials) - len(finished))


def mean_finding(
    point: Repeats, take: Callable[[Observation], float | None], unit: str, absent: str, note: str = "", *, most: float = math.inf
) -> Finding:
    """Return the mean of a quantity over the point's used trials, or ``absent`` as the reason if no trial has it.

    The quantity is at least zero and at most ``most``, so the interval is clipped to this range.
    """
    values = point.values(take)
    if not values:
        return missing(unit, absent)
    mean = mean_interval(values)
    if mean.low is not None and mean.high is not None:
        mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, most))
    return as_finding(mean, unit, "; ".join(text for text in (note, point.note) if text))


def mean_over_points(values: Sequence[Sequence[float]]) -> Estimate:
    """Estimate the mean over points from the trials of each. Several points differ by design, so their mean has no interval.

    Raises:
        ValueError: no values.
    """
    known = [of_point for of_point in values if of_point]
    if len(known) == 1:
        return mean_interval(known[0])
    mean = fmean(map(fmean, known))
    return Estimate(mean, None, None, None, sum(map(len, known)), "mean over the points", "no interval: the points differ by design")


def pgherd_cpu(points: Sequence[Repeats]) -> Finding:
    """Return the CPU of pgherd and its sampling backends."""
    values = [point.values(lambda observation: observation.cpu.pgherd) for point in points]
    if not any(values):
        return missing("cores", "CPU of pgherd was not measured")
    return as_finding(mean_over_points(values), "cores", "pgherd with its sampling backends")


def join_continuations(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Append each trial that continues the previous one (``goes_on``) to that trial, as further phases. Failed trials stay separate.

    A long measurement is split into such trials, so that an interruption loses only the last of them.
    """
    combined: list[TrialResult] = []
    last: int | None = None
    for result in results:
        if result.error is None and result.trial.continues_previous and last is not None:
            combined[last] = _append(combined[last], result)
            continue
        if result.error is None:
            last = len(combined)
        combined.append(result)
    return combined


def failed_phases(result: TrialResult, check: Check) -> tuple[str, ...]:
    """Return the phases of a trial in which a check failed. These are all phases if the check covers the whole trial."""
    return () if check.result != "fail" else check.failed_phases or tuple(phase.phase for phase in result.phases)


def _append(first: TrialResult, second: TrialResult) -> TrialResult:
    checks = {(v.name, v.kind): v.model_copy(update={"failed_phases": failed_phases(first, v)}) for v in first.checks}
    for later in second.checks:
        failed = failed_phases(second, later)
        earlier = checks.get((later.name, later.kind))
        worst = later if earlier is None or later.gravity > earlier.gravity else earlier
        checks[later.name, later.kind] = worst.model_copy(update={"failed_phases": (*(earlier.failed_phases if earlier else ()), *failed)})
    return first.model_copy(
        update={
            "ended": second.ended,
            "trial": first.trial.model_copy(update={"phases": (*first.trial.phases, *second.trial.phases)}),
            "phases": [*first.phases, *second.phases],
            "checks": list(checks.values()),
            "oom_kills": (*first.oom_kills, *second.oom_kills),
        }
    )


NO_CONTAINER_CPU = "CPU of the containers was not measured; the cgroup runtime measures it"
PART_NOT_SEEN = "CPU of this part was not measured"

_PARTS: dict[str, tuple[Callable[[CpuBreakdown], float | None], str]] = {
    "databases_cpu": (lambda cpu: cpu.databases, "containers without clients and sampling backends"),
    "clients_cpu": (lambda cpu: cpu.clients, "all drivers, inside and outside"),
    "pgherd_cpu": (lambda cpu: cpu.pgherd, "with its sampling backends"),
    "platform_cpu": (lambda cpu: cpu.platform, "CPU used outside the containers, without pgherd and clients; includes the named parts"),
    "iowait": (lambda cpu: cpu.iowait, ""),
    "idle": (lambda cpu: cpu.idle, ""),
    "steal": (lambda cpu: cpu.steal, ""),
}


def named_parts(points: Sequence[Repeats]) -> list[str]:
    """Return the names of all tracked parts of the platform in these trials."""
    return sorted({name for point in points for o in point.used for name in o.cpu.named})


def cpu_cells(point: Repeats, named: Sequence[str]) -> dict[str, Finding]:
    """Return the CPU cells of a point in cores, by column.

    Columns: databases_cpu, clients_cpu, pgherd_cpu, platform_cpu, ``platform_cpu.NAME`` of each named part, iowait, idle, steal.
    """
    cells = {}
    for column, (take, note) in _PARTS.items():
        cells[column] = mean_finding(point, _of_cpu(take), "cores", _not_seen(column), note)
        if column == "platform_cpu":
            for name in named:
                cells[f"platform_cpu.{name}"] = mean_finding(point, part_cpu(name), "cores", PART_NOT_SEEN)
    return cells


def _of_cpu(take: Callable[[CpuBreakdown], float | None]) -> Callable[[Observation], float | None]:
    return lambda observation: take(observation.cpu)


def part_cpu(name: str) -> Callable[[Observation], float | None]:
    """Return a function that extracts the CPU of a named part of the platform from an observation."""
    return lambda observation: observation.cpu.named.get(name)


def _not_seen(column: str) -> str:
    if column in ("databases_cpu", "platform_cpu"):
        return NO_CONTAINER_CPU
    return "not reported by the host" if column in ("iowait", "idle", "steal") else "not measured for these processes"
