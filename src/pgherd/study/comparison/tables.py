"""The tables of a comparison, and what its figures need. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.analysis.paired import paired_ratio, why_no_ratio
from pgherd.analysis.sequential import Decision
from pgherd.analysis.two_sample import joint
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.study.comparison import answers, metrics, time_slices, variants
from pgherd.study.comparison.blocks import MIN_CLEAN_BLOCKS, Block, MetricSeries
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.findings import as_finding, missing


@dataclass(frozen=True)
class ComparisonEstimates:
    """All numbers of a comparison. ``decided``: variant → what its primary metric says, None where it has no ratio; ``others``:
    variant → metric → ratio, with intervals that hold jointly; ``floor``: metric → the A/A pair's ratio."""

    options: CompareOptions
    blocks: Sequence[Block]
    used: Sequence[Block]
    primary: MetricSeries
    every: Mapping[str, MetricSeries]
    decided: Mapping[str, Decision | None]
    others: Mapping[str, Mapping[str, Estimate]]
    floor: Mapping[str, Estimate]

    @property
    def clean(self) -> bool:
        """Whether the numbers rest on clean blocks, enough of them."""
        return len(self.used) >= MIN_CLEAN_BLOCKS and all(block.clean for block in self.used)

    @property
    def compared(self) -> list[str]:
        """The metrics that can be compared, the one that decides first."""
        name = self.primary.metric.name
        return [name, *(one for one, series in self.every.items() if one != name and not series.why_not(self.options))]

    def ratio(self, variant: str, metric: str) -> Estimate | None:
        """A variant's ratio to the baseline; None where it has none."""
        if metric != self.primary.metric.name:
            return self.others.get(variant, {}).get(metric)
        decision = self.decided[variant]
        return None if decision is None else decision.estimate


Row = dict[str, Finding | str | int | float | None]

EXECUTION_OPTIONS = frozenset({"seed", "budget_seconds", "max_reruns", "precision", "repeats", "repeats_one", "thresholds"})
"""Options that say how a study is run, not what it measures."""


SETTINGS = "settings."
DEFAULT_SUFFIX = " (by itself)"
"""Follows the name of what nobody has set, and what differs between the arms all the same."""


def comparison_rows(found: ComparisonEstimates) -> list[Row]:
    """One row per variant and metric, the metric that decides first.

    ``label`` is the metric in words; ``ratio`` is the variant ÷ the baseline, ``floor`` the baseline ÷ itself; ``decision`` is higher,
    lower, equivalent or cannot tell, ``verdict`` the same in the metric's words; ``better`` says which of higher and lower is better
    ('' where that is not known); ``more`` is about how many further blocks would settle it.
    """
    options = found.options
    rows: list[Row] = []
    for side in options.variants:
        for name in found.compared:
            series, estimate, decision = found.every[name], found.ratio(side, name), found.decided[side]
            primary = name == found.primary.metric.name
            usable = estimate is not None and math.isfinite(estimate.value)
            decided = answers.outcome_of(estimate, options.equivalence) if estimate is not None and usable else "cannot tell"
            if primary and decision is not None:
                decided = decision.verdict
            floor = found.floor.get(name)
            rows.append(
                {
                    "variant": side,
                    "metric": name,
                    "label": series.metric.label,
                    "unit": series.metric.unit,
                    "baseline": _mean(series, options.baseline),
                    "value": _mean(series, side),
                    "ratio": as_finding(estimate, "")
                    if estimate is not None and usable
                    else missing("", answers.reason_without_ratio(series.pair(options, side))),
                    "verdict": answers.conclusion(series.metric, decided, options.equivalence),
                    "decision": decided,
                    "better": series.metric.better,
                    "more": decision.more if primary and decision is not None else None,
                    "primary": int(primary),
                    "floor": missing("", "the A/A pair has no ratio") if floor is None else as_finding(floor, ""),
                }
            )
    return rows


def _mean(series: MetricSeries, side: str) -> Finding:
    values = [value for value in series.values[side] if value is not None]
    if not values:
        return missing(series.metric.unit, series.metric.absent or "none was seen")
    return as_finding(mean_interval(values), series.metric.unit, method="mean over blocks, Student's t interval")


def block_rows(options: CompareOptions, blocks: Sequence[Block], results: Sequence[TrialResult]) -> list[Row]:
    """One row per trial of a whole block, in the order in which they ran, and per side where it had them all: ``order`` is the trial's
    place in the run, from 1."""
    hosts = {block.number: block.host for block in blocks}
    several = any(len(variants.planned_trials(arm)) > 1 for arm in options.arms)
    rows: list[Row] = []
    seen_in: set[str] = set()
    for order, result in [(order, own) for order, whole in enumerate(results, 1) for own in time_slices.split_variants([whole])]:
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
        if several:
            row["point"] = ", ".join(f"{name} {value}" for name, value in variants.point_of(result).items())
        row["tainted"] = int(result.tainted)
        values = metrics.metric_values([result])
        seen_in |= set(values)
        row.update(values)
        rows.append(row)
    names = [*(name for name in metrics.METRICS if name in seen_in), *sorted(seen_in - set(metrics.METRICS))]
    return [row | {name: row.get(name) for name in names} for row in rows]


def difference_rows(options: CompareOptions) -> list[Row]:
    """One row per option in which the arms differ, with each arm's value; then what differs between their installations by itself."""
    flat = {arm.name: dict(_flat(arm.options)) for arm in options.arms}
    names = dict.fromkeys(name for found in flat.values() for name in found)
    differing = [name for name in names if len({found.get(name) for found in flat.values()}) > 1]
    rows: list[Row] = []
    for name in differing:
        row: Row = {"option": name.removeprefix(SETTINGS)}
        absent = "the default" if name.startswith(SETTINGS) else "–"
        row.update({arm: found.get(name, absent) for arm, found in flat.items()})
        rows.append(row)
    for name, values in options.defaults.items():
        default: Row = {"option": name + DEFAULT_SUFFIX}
        default.update(values)
        rows.append(default)
    return rows


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Options by dotted name, as text; those of ``UNTOLD`` left out. The arms of a storage study add theirs."""
    for name, value in options.items():
        if not prefix and name in EXECUTION_OPTIONS:
            continue
        if name == "arms":
            for arm in value:
                yield from _flat(arm["options"], prefix)
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    """An option's value in words; of a volume what and where it is."""
    if isinstance(value, list | tuple):
        return ", ".join(_text(one) for one in value) or "none"
    if isinstance(value, dict) and "name" in value and "kind" in value:
        size = f" of {format_bytes(int(value['size']))}" if value.get("size") else ""
        return f"{value['name']} ({value['kind']}{size}{' at ' + value['path'] if value.get('path') else ''})"
    return str(value)


def figure_data(found: ComparisonEstimates) -> dict[str, Any]:
    """What is drawn beyond the tables: for each metric, every side's values by the blocks that count (None where one was not seen)."""
    options = found.options
    return {
        "blocks": [block.number for block in found.used],
        "baseline": options.baseline,
        "again": options.again,
        "equivalence": options.equivalence,
        "metrics": {
            name: {
                "label": found.every[name].metric.label,
                "unit": found.every[name].metric.unit,
                "better": found.every[name].metric.better,
                "values": {side: list(values) for side, values in found.every[name].values.items()},
            }
            for name in found.compared
        },
    }


def host_rows(found: ComparisonEstimates) -> list[Row]:
    """One row per host and variant: the number of blocks that count, and the ratio of the deciding metric to the baseline."""
    made: list[Row] = []
    for host in found.options.hosts:
        for side in found.options.variants:
            estimate, blocks = _ratio(found, host, side)
            ratio = missing("", "no block of this host has a ratio") if estimate is None else as_finding(estimate, "", f"on host {host}")
            made.append({"host": host, "variant": side, "metric": found.primary.metric.name, "blocks": blocks, "ratio": ratio})
    return made


def host_warnings(found: ComparisonEstimates) -> list[str]:
    """A sentence for each variant of which two hosts disagree for certain: of intervals that all hold jointly at 95 %, theirs have nothing
    in common."""
    # If two intervals of those that hold jointly have nothing in common, then one does not hold, or they are of different things.
    confidence = joint(len(found.options.hosts) * len(found.options.variants))
    return [said for side in found.options.variants if (said := _disagreement(found, side, confidence)) is not None]


def disjoint_intervals(bounds: Mapping[str, tuple[float, float]]) -> tuple[str, str] | None:
    """Two of these intervals that have nothing in common, the lower one first; None where all of them overlap."""
    return next(((one, other) for one, other in itertools.permutations(bounds, 2) if bounds[one][1] < bounds[other][0]), None)


def _disagreement(found: ComparisonEstimates, side: str, confidence: float) -> str | None:
    bounds = {}
    for host in found.options.hosts:
        estimate, _ = _ratio(found, host, side, confidence)
        if estimate is not None and estimate.low is not None and estimate.high is not None:
            bounds[host] = (estimate.low, estimate.high)
    hosts = disjoint_intervals(bounds)
    if hosts is None:
        return None
    (low, high), (from_, to) = (bounds[host] for host in hosts)
    return (
        f"The hosts disagree on {side}: its {found.primary.metric.label} is {low:.3g} to {high:.3g} × the baseline's on {hosts[0]}, but "
        f"{from_:.3g} to {to:.3g} × on {hosts[1]}; what is said of all hosts holds for neither "
        f"(intervals of {100 * confidence:.4g} % each, jointly 95 %)."
    )


def _ratio(found: ComparisonEstimates, host: str, side: str, confidence: float = 0.95) -> tuple[Estimate | None, int]:
    """The ratio over one host's blocks, None where they have none; and how many they are."""
    own = [number for number, block in enumerate(found.used) if block.host == host]
    values, baseline = found.primary.pair(found.options, side)
    pair = [values[number] for number in own], [baseline[number] for number in own]
    return (None if why_no_ratio(*pair) is not None else paired_ratio(*pair, confidence)), len(own)
