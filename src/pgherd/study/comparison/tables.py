"""Estimates of a comparison and their tables, over all blocks and per host, and the data of its figures. Pure.

The ratio that decides uses the blocks of all hosts. Each block is a pair on one host, so a slower host slows both parts of the pair. Only
the ratio itself may differ between hosts. The intervals per host use the blocks of that host only, and each holds separately.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.analysis.block_ratios import no_ratio_reason, paired_ratio
from pgherd.analysis.group_sequential import Decision
from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.analysis.two_sample import joint
from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.study.comparison import answers, metrics, time_slices, variants
from pgherd.study.comparison.blocks import MIN_CLEAN_BLOCKS, Block, MetricSeries
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.findings import as_finding, missing


@dataclass(frozen=True)
class ComparisonEstimates:
    """All numbers of a comparison.

    Attributes:
        blocks: all complete blocks.
        used: blocks that the numbers use.
        primary: values of the primary metric.
        every: values of all metrics, by name.
        decided: decision by the primary metric, by variant. None: no ratio.
        others: ratios by the other metrics, by variant and metric. Their intervals hold jointly.
        aa_ratios: ratio of the A/A pair, by metric.
    """

    options: CompareOptions
    blocks: Sequence[Block]
    used: Sequence[Block]
    primary: MetricSeries
    every: Mapping[str, MetricSeries]
    decided: Mapping[str, Decision | None]
    others: Mapping[str, Mapping[str, Estimate]]
    aa_ratios: Mapping[str, Estimate]

    @property
    def clean(self) -> bool:
        """True if all used blocks are clean and there are enough of them."""
        return len(self.used) >= MIN_CLEAN_BLOCKS and all(block.clean for block in self.used)

    @property
    def compared(self) -> list[str]:
        """Metrics that can be compared, the primary metric first."""
        name = self.primary.metric.name
        return [name, *(other for other, series in self.every.items() if other != name and not series.unusable_reason(self.options))]

    def ratio(self, variant: str, metric: str) -> Estimate | None:
        """Return a variant's ratio to the baseline. None if it has none."""
        if metric != self.primary.metric.name:
            return self.others.get(variant, {}).get(metric)
        decision = self.decided[variant]
        return None if decision is None else decision.estimate


Row = dict[str, Finding | str | int | float | None]

EXECUTION_OPTIONS = frozenset({"seed", "time_budget", "max_reruns", "precision", "repeats", "fixed_repeats", "fixed_budget", "thresholds"})
"""Options of the execution of a study. They do not affect what it measures, so they do not count as differences."""
SETTINGS = "settings."
DEFAULT_SUFFIX = " (by itself)"
"""Suffix of a setting that is not set and whose default differs between the variants."""


def comparison_rows(estimates: ComparisonEstimates) -> list[Row]:
    """Return one row per variant and metric, the primary metric first.

    Columns: ``label`` names the metric. ``ratio_to_baseline`` is variant ÷ baseline and ``aa_ratio`` is the ratio of the A/A pair.
    ``outcome`` is higher, lower, equivalent or inconclusive, and ``conclusion`` is the same in the metric's words. ``better_direction`` is
    '' if it is unknown. ``blocks_needed`` is the approximate number of further blocks for a conclusion.
    """
    options = estimates.options
    rows: list[Row] = []
    for variant in options.other_variants:
        for name in estimates.compared:
            series, estimate, decision = estimates.every[name], estimates.ratio(variant, name), estimates.decided[variant]
            primary = name == estimates.primary.metric.name
            usable = estimate is not None and math.isfinite(estimate.value)
            outcome = answers.outcome_of(estimate, options.equivalence_margin) if estimate is not None and usable else "inconclusive"
            if primary and decision is not None:
                outcome = decision.outcome
            aa_ratio = estimates.aa_ratios.get(name)
            rows.append(
                {
                    "variant": variant,
                    "metric": name,
                    "label": series.metric.label,
                    "unit": series.metric.unit,
                    "baseline": _mean(series, options.baseline),
                    "value": _mean(series, variant),
                    "ratio_to_baseline": as_finding(estimate, "")
                    if estimate is not None and usable
                    else missing("", answers.reason_without_ratio(series.pair(options, variant))),
                    "conclusion": answers.conclusion(series.metric, outcome, options.equivalence_margin),
                    "outcome": outcome,
                    "better_direction": series.metric.better_direction,
                    "blocks_needed": decision.blocks_needed if primary and decision is not None else None,
                    "primary": int(primary),
                    "aa_ratio": missing("", "the A/A pair has no ratio") if aa_ratio is None else as_finding(aa_ratio, ""),
                }
            )
    return rows


def _mean(series: MetricSeries, name: str) -> Finding:
    values = [value for value in series.values[name] if value is not None]
    if not values:
        return missing(series.metric.unit, series.metric.absent or "not measured")
    return as_finding(mean_interval(values), series.metric.unit, method="mean over blocks, Student's t interval")


def block_rows(options: CompareOptions, blocks: Sequence[Block], results: Sequence[TrialResult]) -> list[Row]:
    """Return one row per trial of a complete block, in their order, split by variant.

    ``order`` is the position of the trial in the run, from 1.
    """
    hosts = {block.number: block.host for block in blocks}
    has_points = any(len(variants.planned_trials(variant)) > 1 for variant in options.variants)
    rows: list[Row] = []
    metric_names: set[str] = set()
    for order, result in [(order, part) for order, trial in enumerate(results, 1) for part in time_slices.split_variants([trial])]:
        if result.trial.repeat not in hosts:
            continue
        row: Row = {
            "block": result.trial.repeat,
            "order": order,
            "variant": str(result.trial.point[time_slices.VARIANT]),
            "trial": result.id,
        }
        if hosts[result.trial.repeat]:
            row["host"] = hosts[result.trial.repeat]
        if has_points:
            row["point"] = ", ".join(f"{name} {value}" for name, value in variants.point_of(result).items())
        row["tainted_trials"] = int(result.tainted)
        values = metrics.metric_values([result])
        metric_names |= set(values)
        row.update(values)
        rows.append(row)
    names = [*(name for name in metrics.METRICS if name in metric_names), *sorted(metric_names - set(metrics.METRICS))]
    return [row | {name: row.get(name) for name in names} for row in rows]


def difference_rows(options: CompareOptions) -> list[Row]:
    """Return one row per option that differs between the variants, then one per differing default of their installations."""
    flat = {variant.name: dict(_flat(variant.options)) for variant in options.variants}
    names = dict.fromkeys(name for values in flat.values() for name in values)
    differing = [name for name in names if len({values.get(name) for values in flat.values()}) > 1]
    rows: list[Row] = []
    for name in differing:
        row: Row = {"option": name.removeprefix(SETTINGS)}
        absent = "the default" if name.startswith(SETTINGS) else "–"
        row.update({variant: values.get(name, absent) for variant, values in flat.items()})
        rows.append(row)
    for name, values in options.defaults.items():
        default: Row = {"option": name + DEFAULT_SUFFIX}
        default.update(values)
        rows.append(default)
    return rows


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield options as text by dotted name, without ``EXECUTION_OPTIONS``. Variants of an I/O profile are included."""
    for name, value in options.items():
        if not prefix and name in EXECUTION_OPTIONS:
            continue
        if name == "variants":
            for variant in value:
                yield from _flat(variant["options"], prefix)
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    """Return an option's value as text. For a volume, this is its kind, size and path."""
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, dict) and "name" in value and "kind" in value:
        size = f" of {format_bytes(int(value['size']))}" if value.get("size") else ""
        return f"{value['name']} ({value['kind']}{size}{' at ' + value['path'] if value.get('path') else ''})"
    return str(value)


def figure_data(estimates: ComparisonEstimates) -> dict[str, Any]:
    """Return the values of all metrics by variant and used block, for the figures. None: not measured."""
    options = estimates.options
    return {
        "blocks": [block.number for block in estimates.used],
        "baseline": options.baseline,
        "aa_variant": options.aa_variant,
        "equivalence_margin": options.equivalence_margin,
        "metrics": {
            name: {
                "label": estimates.every[name].metric.label,
                "unit": estimates.every[name].metric.unit,
                "better_direction": estimates.every[name].metric.better_direction,
                "values": {name: list(values) for name, values in estimates.every[name].values.items()},
            }
            for name in estimates.compared
        },
    }


def host_rows(estimates: ComparisonEstimates) -> list[Row]:
    """Return one row per host and variant: the number of used blocks, and the ratio to the baseline by the primary metric."""
    rows: list[Row] = []
    for host in estimates.options.hosts:
        for variant in estimates.options.other_variants:
            estimate, blocks = _host_ratio(estimates, host, variant)
            ratio = missing("", "no block of this host has a ratio") if estimate is None else as_finding(estimate, "", f"on host {host}")
            rows.append(
                {"host": host, "variant": variant, "metric": estimates.primary.metric.name, "blocks": blocks, "ratio_to_baseline": ratio}
            )
    return rows


def host_warnings(estimates: ComparisonEstimates) -> list[str]:
    """Return a warning for each variant whose ratio differs significantly between two hosts."""
    # All intervals hold jointly at 95 %. If two of them are disjoint, the hosts have different ratios.
    confidence = joint(len(estimates.options.hosts) * len(estimates.options.other_variants))
    texts = (_disagreement(estimates, variant, confidence) for variant in estimates.options.other_variants)
    return [text for text in texts if text is not None]


def disjoint_intervals(bounds: Mapping[str, tuple[float, float]]) -> tuple[str, str] | None:
    """Return the names of two disjoint intervals, the lower one first. None if all of them overlap."""
    return next(((low, high) for low, high in itertools.permutations(bounds, 2) if bounds[low][1] < bounds[high][0]), None)


def _disagreement(estimates: ComparisonEstimates, variant: str, confidence: float) -> str | None:
    bounds = {}
    for host in estimates.options.hosts:
        estimate, _ = _host_ratio(estimates, host, variant, confidence)
        if estimate is not None and estimate.low is not None and estimate.high is not None:
            bounds[host] = (estimate.low, estimate.high)
    hosts = disjoint_intervals(bounds)
    if hosts is None:
        return None
    (low, high), (from_, to) = (bounds[host] for host in hosts)
    return (
        f"The hosts disagree on {variant}: its {estimates.primary.metric.label} is {low:.3g} to {high:.3g} × the baseline's on {hosts[0]}, "
        f"but {from_:.3g} to {to:.3g} × on {hosts[1]}; the common result holds for neither "
        f"(intervals of {100 * confidence:.4g} % each, jointly 95 %)."
    )


def _host_ratio(estimates: ComparisonEstimates, host: str, variant: str, confidence: float = 0.95) -> tuple[Estimate | None, int]:
    """Return the ratio over one host's blocks (None if there is none) and the number of these blocks."""
    indexes = [index for index, block in enumerate(estimates.used) if block.host == host]
    values, baseline = estimates.primary.pair(estimates.options, variant)
    pair = [values[index] for index in indexes], [baseline[index] for index in indexes]
    return (None if no_ratio_reason(*pair) is not None else paired_ratio(*pair, confidence)), len(indexes)
