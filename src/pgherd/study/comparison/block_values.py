"""Each metric's values, block by block, on every side: what ratios are made of. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.paired import why_no_ratio
from pgherd.model.result import TrialResult
from pgherd.study.comparison import metrics
from pgherd.study.comparison.blocks import Block
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.comparison.options import CompareOptions

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
