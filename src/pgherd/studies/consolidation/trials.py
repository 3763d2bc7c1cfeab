"""Values of a finished consolidation trial, and the trials of a run by point and block. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis import overcommitment
from pgherd.analysis.overcommitment import Period
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.consolidation.options import DEDICATED, ConsolidationOptions
from pgherd.studies.consolidation.propose import targets
from pgherd.study.trial_schedule import Point, repeats_trial

_GB = 2**30


@dataclass(frozen=True)
class ConsolidationTrial:
    """A finished trial.

    Attributes:
        periods: clients and throughput of each database, in each period.
        cores: CPU cores that the containers used, in each period. None: not measured.
        memory: bytes charged to the containers, shared memory included, as the mean over the periods. None: not measured.
        skews: time in seconds between the first and the last database's switch to a period's load, in each period.
        late: number of periods in which a database switched only after the warm-up.
    """

    key: str
    clean: bool
    periods: tuple[tuple[Period, ...], ...]
    cores: tuple[float, ...] | None
    memory: float | None
    skews: tuple[float, ...]
    late: int

    @property
    def totals(self) -> list[float]:
        """Throughput of all databases in each period."""
        return [sum(database.throughput for database in period) for period in self.periods]

    @property
    def throughput(self) -> float:
        """Throughput of all databases, averaged over the periods: the metric of a layout in E4."""
        return statistics.fmean(self.totals)

    @property
    def vcpu_corrected(self) -> float:
        """Throughput with E4's correction for databases that share one container's vCPUs."""
        return overcommitment.vcpu_corrected(self.periods)

    @property
    def cv(self) -> float | None:
        """Coefficient of variation across periods."""
        return overcommitment.coefficient_of_variation(self.totals)

    @property
    def cores_used(self) -> float | None:
        """CPU cores used, averaged over the periods."""
        return None if self.cores is None else statistics.fmean(self.cores)

    @property
    def throughput_per_core(self) -> float | None:
        """Throughput per fully used core."""
        return None if self.cores_used is None else overcommitment.throughput_per_core(self.throughput, self.cores_used)

    @property
    def throughput_per_gb(self) -> float | None:
        """Throughput per GB of memory charged to the containers."""
        return self.throughput / (self.memory / _GB) if self.memory else None


def finished_trial(options: ConsolidationOptions, result: TrialResult) -> ConsolidationTrial | None:
    """Return the values of a trial. None: it did not finish."""
    if result.error is not None or len(result.phases) != len(options.plan[0]):
        return None
    addresses = targets(options, str(result.trial.point["layout"]))
    periods = []
    for number, phase in enumerate(result.phases):
        by_address = {target.target: target for target in phase.targets}
        databases = zip(options.plan, addresses, strict=True)
        periods.append(tuple(Period(clients[number], _throughput(options, by_address.get(address))) for clients, address in databases))
    cores = [summed(of_containers(phase, result.trial), "cpu.usage") for phase in result.phases]
    measured_cores = tuple(used for used in cores if used is not None)
    charged = [summed(of_containers(phase, result.trial), "memory.usage") for phase in result.phases]
    measured_charges = [memory for memory in charged if memory is not None]
    return ConsolidationTrial(
        key=result.trial.key(),
        clean=not result.tainted,
        periods=tuple(periods),
        cores=measured_cores if len(measured_cores) == len(cores) else None,
        memory=statistics.fmean(measured_charges) if len(measured_charges) == len(charged) else None,
        skews=tuple(phase.skew for phase in result.phases if phase.skew is not None),
        late=sum(any(target.first >= phase.start for target in phase.targets) for phase in result.phases if phase.skew is not None),
    )


def _throughput(options: ConsolidationOptions, target: TargetResult | None) -> float:
    if target is None:
        return 0.0
    return (target.nopm or 0.0) if options.enters_orders else target.throughput


def of_containers(phase: PhaseResult, trial: Trial) -> list[Mapping[str, float]]:
    """Return the metrics of the trial's containers, without the idle one that may hold locked memory."""
    return [phase.metrics.get(f"container:{container.name}", {}) for _, container in trial.deployment.containers()]


def summed(entities: Iterable[Mapping[str, float]], name: str, divisor: float = 1.0) -> float | None:
    """Return the sum of a metric over the entities that have it, or None if there are none."""
    values = [metrics[name] for metrics in entities if name in metrics]
    return sum(values) / divisor if values else None


class TrialsByPoint:
    """All results of a run, by point and block."""

    def __init__(self, options: ConsolidationOptions, results: Sequence[TrialResult]) -> None:
        self.options = options
        self.results = results
        self._finished = {result.trial.key(): finished_trial(options, result) for result in results}

    def all_at(self, point: Point) -> list[TrialResult]:
        """Return all trials of a point, including reruns."""
        return [result for result in self.results if result.trial.point == dict(point)]

    def chosen(self, point: Point) -> list[TrialResult | None]:
        """Return the trial that counts in each block: the planned one, or its clean rerun if it is tainted.

        Nothing replaces a trial with an OOM kill, which is a result. None: the block has no trial.
        """
        trials = self.all_at(point)
        planned = {result.trial.repeat: result for result in trials if result.trial.repeat < self.options.repeats}
        clean = [result for result in trials if not result.tainted]
        chosen = []
        for block in range(self.options.repeats):
            result = planned.get(block)
            if result is not None and result.tainted and not result.oom_kills:
                result = next((rerun for rerun in clean if repeats_trial(rerun, result)), result)
            chosen.append(result)
        return chosen

    def blocks_died(self, point: Point) -> int:
        """Return the number of blocks whose trial of a point had an OOM kill."""
        return sum(result is not None and bool(result.oom_kills) for result in self.chosen(point))

    def by_block(self, point: Point) -> list[ConsolidationTrial | None]:
        """Return the values of the trial that counts in each block. None: no trial, or it did not finish."""
        return [None if result is None else self._finished[result.trial.key()] for result in self.chosen(point)]

    def values(self, point: Point, value_of: Callable[[ConsolidationTrial], float | None]) -> list[float | None]:
        """Return a value in each block."""
        return [None if trial is None else value_of(trial) for trial in self.by_block(point)]

    def finished(self) -> list[ConsolidationTrial]:
        """Return the values of all finished trials."""
        return [trial for trial in self._finished.values() if trial is not None]


def shares_cpu(options: ConsolidationOptions, layout: str) -> bool:
    """Return True if the layout's databases share one container's limited vCPUs, which E4's correction is for.

    A guest is limited to its vCPUs even without a CPU limit.
    """
    return layout not in DEDICATED and options.cpu_limited
