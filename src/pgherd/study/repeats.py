"""Repeats of one point put together: which of them count, and their numbers as findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation, observe


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
