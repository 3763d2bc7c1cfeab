"""One trial's numbers, and the trials of a point by block. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis import overcommitment
from pgherd.analysis.overcommitment import Period
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.consolidation.options import APART, ConsolidationOptions
from pgherd.studies.consolidation.schemes import targets
from pgherd.study.trial_schedule import Point


@dataclass(frozen=True)
class Seen:
    """A finished trial. ``periods`` holds each database's clients and throughput in each period; ``throughput`` is the sum of the
    databases', averaged over the periods. ``cores`` are those that the containers used in each period, None where not seen;
    ``skews`` (seconds) how far apart the databases switched at each period's beginning, and ``late`` in how many periods one of them
    did so only after the ramp-up.
    """

    key: str
    clean: bool
    periods: tuple[tuple[Period, ...], ...]
    cores: tuple[float, ...] | None
    skews: tuple[float, ...]
    late: int

    @property
    def totals(self) -> list[float]:
        """Throughput of all databases in each period."""
        return [sum(one.throughput for one in period) for period in self.periods]

    @property
    def throughput(self) -> float:
        """The one number of a scheme (E4)."""
        return statistics.fmean(self.totals)

    @property
    def corrected(self) -> float:
        """With E4's correction for databases that share one container's vCPUs."""
        return overcommitment.corrected(self.periods)

    @property
    def variation(self) -> float | None:
        """Coefficient of variation across periods."""
        return overcommitment.variation(self.totals)

    @property
    def used(self) -> float | None:
        """Cores used, averaged over the periods."""
        return None if self.cores is None else statistics.fmean(self.cores)

    @property
    def per_core(self) -> float | None:
        """Throughput per fully used core."""
        return None if self.used is None else overcommitment.per_core(self.throughput, self.used)


def see(options: ConsolidationOptions, result: TrialResult) -> Seen | None:
    """A trial's numbers; None where it did not finish."""
    if result.error is not None or len(result.phases) != len(options.plan[0]):
        return None
    addresses = targets(options, int(result.trial.point["scheme"]))
    periods = []
    for number, phase in enumerate(result.phases):
        by_target = {one.target: one for one in phase.targets}
        row = zip(options.plan, addresses, strict=True)
        periods.append(tuple(Period(clients[number], _of(options, by_target.get(address))) for clients, address in row))
    cores = [_cores(phase) for phase in result.phases]
    seen = [one for one in cores if one is not None]
    return Seen(
        key=result.trial.key(),
        clean=not result.tainted,
        periods=tuple(periods),
        cores=tuple(seen) if len(seen) == len(cores) else None,
        skews=tuple(phase.skew for phase in result.phases if phase.skew is not None),
        late=sum(any(one.first >= phase.start for one in phase.targets) for phase in result.phases if phase.skew is not None),
    )


def _of(options: ConsolidationOptions, target: TargetResult | None) -> float:
    if target is None:
        return 0.0
    return (target.new_orders_per_minute or 0.0) if options.enters_orders else target.throughput


def _cores(phase: PhaseResult) -> float | None:
    """CPU of all containers, in cores."""
    used = [metrics["cpu.usage"] for entity, metrics in phase.metrics.items() if entity.startswith("container:") and "cpu.usage" in metrics]
    return sum(used) if used else None


class Trials:
    """All results of a run, by point and block."""

    def __init__(self, options: ConsolidationOptions, results: Sequence[TrialResult]) -> None:
        self.options = options
        self.results = results
        self._seen = {result.trial.key(): see(options, result) for result in results}

    def of(self, point: Point) -> list[TrialResult]:
        """All trials of a point, reruns included."""
        return [result for result in self.results if result.trial.point == dict(point)]

    def chosen(self, point: Point) -> list[TrialResult | None]:
        """What counts in each block: its own trial if that is clean, else a clean rerun, else its own though it is tainted; None where it
        was not run."""
        trials = self.of(point)
        own = {result.trial.repeat: result for result in trials if result.trial.repeat < self.options.blocks}
        spare = [result for result in trials if result.trial.repeat >= self.options.blocks and not result.tainted]
        found = []
        for block in range(self.options.blocks):
            result = own.get(block)
            if (result is None or result.tainted) and spare:
                result = spare.pop(0)
            found.append(result)
        return found

    def blocks(self, point: Point) -> list[Seen | None]:
        """The numbers of what counts in each block; None where there is nothing: it was not run, or it did not finish."""
        return [None if result is None else self._seen[result.trial.key()] for result in self.chosen(point)]

    def values(self, point: Point, take: Callable[[Seen], float | None]) -> list[float | None]:
        """A quantity in each block."""
        return [None if one is None else take(one) for one in self.blocks(point)]

    def every(self) -> list[Seen]:
        """All that finished."""
        return [one for one in self._seen.values() if one is not None]


def shares_cpu(options: ConsolidationOptions, scheme: int) -> bool:
    """Whether the scheme's databases share one container's vCPUs, where others' have vCPUs of their own: E4's correction is for it. A guest
    has no more than its vCPUs, with or without a limit on top."""
    return scheme not in APART and (options.cpu_mode != "none" or options.runtime == "vm")
