"""Reading the analysis of a comparison for figures: changes with their intervals, blocks with their pairs, the order of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pgherd.model.finding import Finding
from pgherd.report.data_files import Row
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.formatting import clean, finite
from pgherd.report.html_model import metric_label
from pgherd.study.comparison import metrics
from pgherd.study.comparison.options import AGAIN

Class = Literal["better", "worse", "differs", "equal", "unclear"]
"""What an interval says: better or worse for certain, different where no direction is better, no difference beyond the margin,
or not enough to tell."""

MARGIN = 0.02


@dataclass(frozen=True)
class MetricChange:
    """One metric of one variant against the baseline: ratios, not per cent. ``low`` and ``high`` None: no interval. ``floor``: the
    A/A pair's interval (or its ratio on both sides of 1); ``better``: which direction is, '' where that is not known."""

    variant: str
    label: str
    value: float
    low: float | None
    high: float | None
    better: str
    primary: bool
    floor: tuple[float, float] | None

    @property
    def certain(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)

    def meaning(self, margin: float) -> Class:
        """What the interval says at this equivalence margin."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.certain:
            if self.better not in ("higher", "lower"):
                return "differs"
            return "better" if (self.low > 1) == (self.better == "higher") else "worse"
        return "equal" if self.low >= 1 / (1 + margin) and self.high <= 1 + margin else "unclear"


@dataclass(frozen=True)
class Measured:
    """One trial's value: its block, its place in the run, the side it stands for, its point where there are several."""

    block: int
    order: float
    side: str
    point: str
    value: float
    tainted: bool

    @property
    def arm(self) -> str:
        """The side without "again": the A/A pair are one thing twice."""
        return self.side.removesuffix(AGAIN)


@dataclass(frozen=True)
class BlockValues:
    """The deciding metric of all blocks that count: by side, a value for each of ``numbers`` (None where there is none)."""

    label: str
    unit: str
    numbers: tuple[int, ...]
    values: dict[str, list[float | None]]

    def ratios(self, side: str, first: str) -> dict[int, float]:
        """Block → ratio of a side to the baseline, where both are there."""
        pairs = zip(self.numbers, self.values[side], self.values.get(first, []), strict=False)
        return {number: value / base for number, value, base in pairs if value and base}


def changes(inputs: FigureInputs) -> list[MetricChange]:
    """All rows of the table ``comparison`` that have a ratio, in its order: variant by variant, the deciding metric first."""
    found = [change for row in inputs.analysis.tables.get("comparison", []) if (change := _change(row)) is not None]
    if not found:
        raise FigureUnavailable("no metric has a ratio to the baseline")
    return found


def _change(row: Row) -> MetricChange | None:
    ratio = row.get("ratio")
    value = finite(ratio)
    if not isinstance(ratio, Finding) or value is None or value <= 0:
        return None
    low, high = finite(ratio.low), finite(ratio.high)
    whole = low is not None and low > 0 and high is not None
    return MetricChange(
        variant=clean(row.get("variant", "")),
        label=metric_label(row),
        value=value,
        low=low if whole else None,
        high=high if whole else None,
        better=str(row.get("better") or ""),
        primary=bool(row.get("primary")),
        floor=_floor(row.get("floor")),
    )


def _floor(cell: object) -> tuple[float, float] | None:
    """The A/A pair's interval; without one its ratio, on both sides of 1."""
    value = finite(cell)
    if not isinstance(cell, Finding) or value is None or value <= 0:
        return None
    low, high = finite(cell.low), finite(cell.high)
    if low is not None and high is not None and low > 0:
        return low, high
    return min(value, 1 / value), max(value, 1 / value)


def variants(found: Sequence[MetricChange]) -> list[str]:
    """Names of the variants, in the table's order."""
    return list(dict.fromkeys(change.variant for change in found))


def margin(inputs: FigureInputs) -> float:
    """The equivalence margin that the run was judged by."""
    return finite(inputs.record.options.get("equivalence")) or MARGIN


def baseline(inputs: FigureInputs) -> str:
    """The name of the arm that all others are held against."""
    return clean(inputs.record.options.get("baseline") or "baseline")


def _primary(inputs: FigureInputs) -> Row:
    rows = inputs.analysis.tables.get("comparison", [])
    return next((row for row in rows if row.get("primary")), {})


def _series(inputs: FigureInputs) -> Mapping[str, Any]:
    found = inputs.analysis.figures.get("series")
    return found if isinstance(found, Mapping) else {}


def deciding(inputs: FigureInputs) -> BlockValues:
    """The deciding metric by blocks, the baseline first, the same again, then the variants."""
    row, series = _primary(inputs), _series(inputs)
    held = series.get("metrics", {}).get(str(row.get("metric")))
    if not held:
        raise FigureUnavailable("no block has a value of the metric that decides")
    values = {clean(side): [finite(value) for value in of] for side, of in held["values"].items()}
    first = baseline(inputs)
    ordered = sorted(values, key=lambda side: (side != first, side != first + AGAIN))
    numbers = tuple(int(number) for number in series.get("blocks", ()))
    return BlockValues(metric_label(held), clean(held.get("unit") or ""), numbers, {side: values[side] for side in ordered})


def measured(inputs: FigureInputs) -> tuple[str, str, list[Measured]]:
    """(label, unit, every trial's value in the order in which they ran) of the metric that decides."""
    row = _primary(inputs)
    metric = metrics.of(str(row.get("metric")).partition(metrics.AT)[0], inputs.results, clean(row.get("unit") or ""))
    found = [one for row in inputs.analysis.tables.get("blocks", []) if (one := _measured(row, metric.name)) is not None]
    if not found:
        raise FigureUnavailable(f"trials have no value of {clean(metric.label)} of their own")
    return clean(metric.label), clean(row.get("unit") or metric.unit), sorted(found, key=lambda one: one.order)


def _measured(row: Row, metric: str) -> Measured | None:
    value, block, order = finite(row.get(metric)), finite(row.get("block")), finite(row.get("order"))
    if value is None or value <= 0 or block is None or order is None:
        return None
    point = clean(row.get("point") or "")
    return Measured(int(block), order, clean(row.get("variant", "")), point, value, bool(row.get("tainted")))
