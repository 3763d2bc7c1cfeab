"""The tables of a comparison, and what its figures need. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.study.comparison import answers, metrics, time_slices, variants
from pgherd.study.comparison.blocks import MetricSeries
from pgherd.study.comparison.blocks import Block
from pgherd.study.comparison.tables import ComparisonEstimates
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.findings import as_finding, missing

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
