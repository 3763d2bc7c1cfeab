"""Results grouped into blocks, the blocks that can be used, and the values of each metric by block. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.block_ratios import no_ratio_reason
from pgherd.model.result import TrialResult
from pgherd.study.comparison import metrics, time_slices, variants
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.shared_options import PIN

NO_COMMON_POINT = "the variants have no point in common"
"""Reason why the mean of a metric cannot be compared."""
MIN_CLEAN_BLOCKS = 3
"""Number of clean blocks from which tainted ones are left out. With fewer, finished ones are the fallback, as an indication."""


@dataclass(frozen=True)
class Block:
    """Block of trials.

    Attributes:
        number: number of the block.
        results: results by name in the block, in their order. Results of a trial with time slices are split by variant.
        all: results of all trials, not split.
    """

    number: int
    results: Mapping[str, tuple[TrialResult, ...]]
    all: tuple[TrialResult, ...]

    @property
    def finished(self) -> bool:
        """True if no trial failed."""
        return all(result.error is None for result in self.all)

    @property
    def host(self) -> str:
        """Host of a cluster that the block ran on. ``a, b`` if it moved to another host, '' without a cluster."""
        in_order = sorted(self.all, key=lambda result: result.started)
        return ", ".join(dict.fromkeys(name for result in in_order if (name := _host(result))))

    @property
    def clean(self) -> bool:
        """True if no trial is tainted and all ran on the same host."""
        return not any(result.tainted for result in self.all) and ", " not in self.host

    @property
    def faults(self) -> str:
        """Reasons why the block is not clean: ``base failed steal; big did not finish``."""
        faults = [f"{result.trial.point[VARIANT]} {_fault(result)}" for result in self.all if result.tainted]
        return "; ".join(faults) or f"it ran on several hosts ({self.host})"

    @property
    def gap(self) -> float:
        """Longest pause between two trials, in seconds. An interruption of the run within the block makes it long."""
        spans = sorted((result.started, result.ended) for result in self.all)
        return max((after[0] - before[1] for before, after in itertools.pairwise(spans)), default=0.0)


def complete_blocks(options: CompareOptions, results: Sequence[TrialResult]) -> list[Block]:
    """Return all blocks without missing trials, by number."""
    numbers = sorted({result.trial.repeat for result in results})
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    blocks = []
    for number in numbers:
        keys = {trial.key() for trial in variants.block_trials(options, number)}
        if keys <= set(by_key):
            blocks.append(_block(options, number, [result for key, result in by_key.items() if key in keys]))
    return blocks


def _block(options: CompareOptions, number: int, results: Sequence[TrialResult]) -> Block:
    parts = time_slices.split_variants(results)
    by_variant = {name: tuple(part for part in parts if part.trial.point[VARIANT] == name) for name in options.block_variants}
    return Block(number, by_variant, tuple(results))


def used_blocks(blocks: Sequence[Block], limit: int) -> list[Block]:
    """Return at most ``limit`` blocks for the results: the clean ones, or with too few of them all finished ones, clean ones first."""
    clean = [block for block in blocks if block.clean]
    finished = [block for block in blocks if block.finished]
    if len(clean) >= min(MIN_CLEAN_BLOCKS, len(finished)):
        return clean[:limit]
    chosen = {block.number for block in sorted(finished, key=lambda block: not block.clean)[:limit]}
    return [block for block in finished if block.number in chosen]


def _host(result: TrialResult) -> str:
    """Return the host of the cluster that a trial was pinned to (see distributed.placing)."""
    return next((host.name for host in result.trial.deployment.hosts if host.labels.get(PIN) == host.name), "")


def _fault(result: TrialResult) -> str:
    if result.error is not None:
        return "did not finish"
    return "failed " + ", ".join(v.name for v in result.checks if v.taints)


Values = tuple[float | None, ...]


@dataclass(frozen=True)
class MetricSeries:
    """Values of one metric: one per block, by name in the block. None: not measured."""

    metric: ComparedMetric
    values: Mapping[str, Values]

    def pair(self, options: CompareOptions, variant: str) -> tuple[Values, Values]:
        """Return a variant's values and the baseline's."""
        return self.values[variant], self.values[options.baseline]

    def unusable_reason(self, options: CompareOptions) -> str:
        """Return the reason why the metric cannot be compared. '' if it can, for at least one variant."""
        measured = [value for value in self.values[options.baseline] if value is not None]
        if not measured:
            return self.metric.absent or f"{options.baseline} has none"
        if statistics.median(measured) < self.metric.minimum:
            return f"too small in {options.baseline} ({statistics.median(measured):.2g} {self.metric.unit})"
        reasons = [no_ratio_reason(*self.pair(options, variant)) for variant in options.other_variants]
        return "" if None in reasons else next(reason for reason in reasons if reason is not None)


def all_series(options: CompareOptions, blocks: Sequence[Block]) -> dict[str, MetricSeries]:
    """Return all metrics by name. The metrics of ``study.comparison.metrics.METRICS`` come first and are always included. Others follow."""
    common = variants.common_points(options)
    by_variant = {name: [metrics.metric_values(block.results[name], common=common) for block in blocks] for name in options.block_variants}
    unit: dict[str, str] = {}
    if options.compare_findings:
        for variant in options.block_variants:
            for values, block in zip(by_variant[variant], blocks, strict=True):
                findings = metrics.study_findings(options.variant(variant), block.results[variant])
                unit |= {name: finding.unit for name, finding in findings.items()}
                values |= {name: finding.value for name, finding in findings.items() if finding.value is not None}
    results = _all_results(blocks)
    names = dict.fromkeys(metrics.METRICS) | {name: None for series in by_variant.values() for values in series for name in values}
    return {
        name: MetricSeries(
            _metric(options, name, results, unit.get(name, "")),
            {variant: tuple(values.get(name) for values in by_variant[variant]) for variant in options.block_variants},
        )
        for name in names
    }


def _metric(options: CompareOptions, name: str, results: Sequence[TrialResult], unit: str) -> ComparedMetric:
    metric, common = metrics.metric_for(name, results, unit), variants.common_points(options)
    if common is not None and name in metrics.METRICS:
        return replace(metric, label=f"{metric.label} at common points") if common else replace(metric, absent=NO_COMMON_POINT)
    if options.in_slices and metric.name == metrics.DEVICE_IO:
        return replace(metric, absent="with time slices all variants share the devices (--interleave trials separates them)")
    return metric


def _all_results(blocks: Sequence[Block]) -> list[TrialResult]:
    return [result for block in blocks for result in block.all]


def primary_series(options: CompareOptions, blocks: Sequence[Block]) -> MetricSeries:
    """Return the values of the primary metric.

    Raises:
        KeyError: no trial has it. The argument is a sentence that lists the available metrics.
    """
    if options.metric is None or options.metric.partition(metrics.POINT_MARK)[0] in metrics.METRICS:
        name, common, results = options.metric or metrics.DEFAULT_METRIC, variants.common_points(options), _all_results(blocks)
        by_variant = {
            variant: tuple(metrics.metric_values(block.results[variant], name, common).get(name) for block in blocks)
            for variant in options.block_variants
        }
        incomparable = common == frozenset() and any(name in metrics.metric_values([result], name) for result in results)
        if options.metric is not None or incomparable or any(value for values in by_variant.values() for value in values):
            return MetricSeries(_metric(options, name, results, ""), by_variant)
    all_metrics = all_series(options, blocks)
    usable = [name for name, series in all_metrics.items() if not series.unusable_reason(options)]
    name = options.metric or next(iter(usable), metrics.DEFAULT_METRIC)
    if name not in all_metrics:
        raise KeyError(f"no trial has the metric '{name}'; available: {', '.join(usable) or 'none'}")
    return all_metrics[name]
