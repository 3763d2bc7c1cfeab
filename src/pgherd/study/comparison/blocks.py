"""Results in blocks: what holds every arm, and which of them can be compared. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.paired import why_no_ratio
from pgherd.model.result import TrialResult
from pgherd.study.cluster_options import PIN
from pgherd.study.comparison import metrics, time_slices, variants
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.time_slices import VARIANT

MIN_CLEAN_BLOCKS = 3
"""Clean blocks from which on tainted ones are left out; with fewer, those that finished stand in, as an indication."""


@dataclass(frozen=True)
class Block:
    """One block: its trials (``all``), and by side each one's in the order in which they ran: those of a trial by turns are apart."""

    number: int
    results: Mapping[str, tuple[TrialResult, ...]]
    all: tuple[TrialResult, ...]

    @property
    def finished(self) -> bool:
        """Whether every trial has numbers."""
        return all(result.error is None for result in self.all)

    @property
    def host(self) -> str:
        """The host of a cluster on which it ran; ``a, b`` where it had to move in its midst, '' for a run without a cluster."""
        in_order = sorted(self.all, key=lambda result: result.started)
        return ", ".join(dict.fromkeys(name for result in in_order if (name := _host(result))))

    @property
    def clean(self) -> bool:
        """Whether no trial is tainted, and all ran on one host: a pair is only as good as its worse half."""
        return not any(result.tainted for result in self.all) and ", " not in self.host

    @property
    def faults(self) -> str:
        """Why it is not clean: ``base failed steal; big did not finish``."""
        found = [f"{result.trial.point[VARIANT]} {_fault(result)}" for result in self.all if result.tainted]
        return "; ".join(found) or f"it ran on several hosts ({self.host})"

    @property
    def gap(self) -> float:
        """The longest time between two of its trials, seconds: a run that was interrupted within a block tears it apart."""
        spans = sorted((result.started, result.ended) for result in self.all)
        return max((after[0] - before[1] for before, after in itertools.pairwise(spans)), default=0.0)


def complete_blocks(options: CompareOptions, results: Sequence[TrialResult]) -> list[Block]:
    """All blocks of which every trial was run, by number."""
    numbers = sorted({result.trial.repeat for result in results})
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    found = []
    for number in numbers:
        keys = {trial.key() for trial in variants.block_trials(options, number)}
        if keys <= set(by_key):
            found.append(_block(options, number, [result for key, result in by_key.items() if key in keys]))
    return found


def _block(options: CompareOptions, number: int, results: Sequence[TrialResult]) -> Block:
    own = time_slices.split_variants(results)
    by_side = {side: tuple(result for result in own if result.trial.point[VARIANT] == side) for side in options.sides}
    return Block(number, by_side, tuple(results))


def used_blocks(blocks: Sequence[Block], most: int) -> list[Block]:
    """The blocks that the numbers rest on, ``most`` at most: the clean ones, or where those are too few all that finished, the clean
    ones before others."""
    clean = [block for block in blocks if block.clean]
    finished = [block for block in blocks if block.finished]
    if len(clean) >= min(MIN_CLEAN_BLOCKS, len(finished)):
        return clean[:most]
    chosen = {block.number for block in sorted(finished, key=lambda block: not block.clean)[:most]}
    return [block for block in finished if block.number in chosen]


def _host(result: TrialResult) -> str:
    """The host of the cluster that a trial was pinned to, as its deployment names it beside the whole (see runner.placing)."""
    return next((host.name for host in result.trial.deployment.hosts if host.labels.get(PIN) == host.name), "")


def _fault(result: TrialResult) -> str:
    if result.error is not None:
        return "did not finish"
    return "failed " + ", ".join(v.check for v in result.verdicts if v.taints)


Values = tuple[float | None, ...]


@dataclass(frozen=True)
class MetricSeries:
    """One metric's values: by side, one for each block in the order in which they ran; None where it was not seen."""

    metric: ComparedMetric
    values: Mapping[str, Values]

    def pair(self, options: CompareOptions, side: str) -> tuple[Values, Values]:
        """A side's values and the baseline's."""
        return self.values[side], self.values[options.baseline]

    def why_not(self, options: CompareOptions) -> str:
        """Why the metric cannot be compared; '' where it can, for one variant at least."""
        seen = [value for value in self.values[options.baseline] if value is not None]
        if not seen:
            return self.metric.absent or f"{options.baseline} has none"
        if statistics.median(seen) < self.metric.least:
            return f"next to nothing in {options.baseline} ({statistics.median(seen):.2g} {self.metric.unit})"
        whys = [why_no_ratio(*self.pair(options, side)) for side in options.variants]
        return "" if None in whys else next(why for why in whys if why is not None)


def all_series(options: CompareOptions, blocks: Sequence[Block]) -> dict[str, MetricSeries]:
    """Every metric that any trial has, those of ``metrics.METRICS`` first, and all of these even where none was seen."""
    found = {side: [metrics.metric_values(block.results[side]) for block in blocks] for side in options.sides}
    unit: dict[str, str] = {}
    if options.own:
        for side in options.sides:
            for values, block in zip(found[side], blocks, strict=True):
                own = metrics.study_findings(options.arm(side), block.results[side])
                unit |= {name: finding.unit for name, finding in own.items()}
                values |= {name: finding.value for name, finding in own.items() if finding.value is not None}
    results = _all(blocks)
    names = dict.fromkeys(metrics.METRICS) | {name: None for side in options.sides for values in found[side] for name in values}
    return {
        name: MetricSeries(
            _metric(options, name, results, unit.get(name, "")),
            {side: tuple(values.get(name) for values in found[side]) for side in options.sides},
        )
        for name in names
    }


def _metric(options: CompareOptions, name: str, results: Sequence[TrialResult], unit: str) -> ComparedMetric:
    found = metrics.metric_for(name, results, unit)
    if options.side_by_side and found.name == metrics.DEVICE_IO:
        return replace(found, absent="side by side the devices serve all variants at once (--arms one-at-a-time tells them apart)")
    return found


def _all(blocks: Sequence[Block]) -> list[TrialResult]:
    return [result for block in blocks for result in block.all]


def primary_series(options: CompareOptions, blocks: Sequence[Block]) -> MetricSeries:
    """The values of the metric that decides.

    Raises:
        KeyError: no trial has it; the argument is a sentence that says which there are.
    """
    if options.metric is None or options.metric.partition(metrics.POINT_MARK)[0] in metrics.METRICS:
        name = options.metric or metrics.DEFAULT_METRIC
        found = {side: tuple(metrics.metric_values(block.results[side], name).get(name) for block in blocks) for side in options.sides}
        if options.metric is not None or any(value for values in found.values() for value in values):
            return MetricSeries(metrics.metric_for(name, _all(blocks)), found)
    every = all_series(options, blocks)
    usable = [name for name, series in every.items() if not series.why_not(options)]
    name = options.metric or next(iter(usable), metrics.DEFAULT_METRIC)
    if name not in every:
        raise KeyError(f"no trial has the metric '{name}'; there are {', '.join(usable) or 'none'}")
    return every[name]
