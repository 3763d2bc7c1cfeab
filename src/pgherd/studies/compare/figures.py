"""Figures of a comparison: changes with their intervals (a forest plot), the pairs of every block, and the trials in run order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLACK, BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILLION, data
from pgherd.report.data_files import Row
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite
from pgherd.report.html_model import metric_label
from pgherd.report.trial_figures import drift
from pgherd.study.comparison import metrics
from pgherd.study.comparison.answers import as_change, percent_change
from pgherd.study.comparison.options import AA_SUFFIX

MarkRow = dict[str, object]

# ---- values from the analysis

Outcome = Literal["better", "worse", "differs", "equal", "unclear"]
"""Meaning of an interval. 'differs': different for certain, for a metric without a better direction. 'equal': no difference beyond the
margin. 'unclear': the interval is too wide, or there is none."""

DEFAULT_MARGIN = 0.02


@dataclass(frozen=True)
class MetricChange:
    """One metric of one variant against the baseline, as ratios.

    ``low`` and ``high`` are None without an interval. ``aa_interval`` is the interval of the A/A pair, or its ratio on both sides of 1.
    ``better_direction`` is '' if it is unknown.
    """

    variant: str
    label: str
    value: float
    low: float | None
    high: float | None
    better_direction: str
    primary: bool
    aa_interval: tuple[float, float] | None

    @property
    def certain(self) -> bool:
        """True if the interval excludes a ratio of 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)

    def outcome(self, margin: float) -> Outcome:
        """Classify the interval at this equivalence margin."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.certain:
            if self.better_direction not in ("higher", "lower"):
                return "differs"
            return "better" if (self.low > 1) == (self.better_direction == "higher") else "worse"
        return "equal" if self.low >= 1 / (1 + margin) and self.high <= 1 + margin else "unclear"


@dataclass(frozen=True)
class TrialValue:
    """Value of the deciding metric in one trial, with its block, its position in the run and its variant.

    ``variant`` of the baseline's second trial in a block is the baseline's name with ``(A/A)``. ``point`` is '' if there is only one.
    """

    block: int
    order: float
    variant: str
    point: str
    value: float
    tainted: bool

    @property
    def base_variant(self) -> str:
        """The variant without ``(A/A)``: both trials of the A/A pair run the same server."""
        return self.variant.removesuffix(AA_SUFFIX)


@dataclass(frozen=True)
class BlockValues:
    """Values of the deciding metric in the blocks that count.

    ``values`` has a list for each variant, in the order of ``numbers``. None: no value in that block.
    """

    label: str
    unit: str
    numbers: tuple[int, ...]
    values: dict[str, list[float | None]]

    def ratios(self, variant: str, first: str) -> dict[int, float]:
        """Return block → ratio of a variant to the baseline, for the blocks that have both."""
        pairs = zip(self.numbers, self.values[variant], self.values.get(first, []), strict=False)
        return {number: value / base for number, value, base in pairs if value and base}


def metric_changes(inputs: FigureInputs) -> list[MetricChange]:
    """Return the rows of the table ``comparison`` that have a ratio, in its order: by variant, the deciding metric first."""
    changes = [change for row in inputs.analysis.tables.get("comparison", []) if (change := _metric_change(row)) is not None]
    if not changes:
        raise FigureUnavailable("no metric has a ratio to the baseline")
    return changes


def _metric_change(row: Row) -> MetricChange | None:
    ratio = row.get("ratio_to_baseline")
    value = finite(ratio)
    if not isinstance(ratio, Finding) or value is None or value <= 0:
        return None
    low, high = finite(ratio.low), finite(ratio.high)
    has_interval = low is not None and low > 0 and high is not None
    return MetricChange(
        variant=clean(row.get("variant", "")),
        label=metric_label(row),
        value=value,
        low=low if has_interval else None,
        high=high if has_interval else None,
        better_direction=str(row.get("better_direction") or ""),
        primary=bool(row.get("primary")),
        aa_interval=_aa_interval(row.get("aa_ratio")),
    )


def _aa_interval(cell: object) -> tuple[float, float] | None:
    """Return the A/A pair's interval. Without an interval: its ratio, on both sides of 1."""
    value = finite(cell)
    if not isinstance(cell, Finding) or value is None or value <= 0:
        return None
    low, high = finite(cell.low), finite(cell.high)
    if low is not None and high is not None and low > 0:
        return low, high
    return min(value, 1 / value), max(value, 1 / value)


def variant_names(changes: Sequence[MetricChange]) -> list[str]:
    """Return the names of the variants, in the table's order."""
    return list(dict.fromkeys(change.variant for change in changes))


def equivalence_margin(inputs: FigureInputs) -> float:
    """Return the equivalence margin of the run."""
    return finite(inputs.record.options.get("equivalence_margin")) or DEFAULT_MARGIN


def baseline_name(inputs: FigureInputs) -> str:
    """Return the name of the variant that the others are compared with."""
    return clean(inputs.record.options.get("baseline") or "baseline")


def _deciding_row(inputs: FigureInputs) -> Row:
    rows = inputs.analysis.tables.get("comparison", [])
    return next((row for row in rows if row.get("primary")), {})


def _series(inputs: FigureInputs) -> Mapping[str, Any]:
    series = inputs.analysis.figures.get("series")
    return series if isinstance(series, Mapping) else {}


def block_values(inputs: FigureInputs) -> BlockValues:
    """Return the deciding metric by block: the baseline, its second trial, then the variants."""
    row, series = _deciding_row(inputs), _series(inputs)
    metric = series.get("metrics", {}).get(str(row.get("metric")))
    if not metric:
        raise FigureUnavailable("no block has a value of the deciding metric")
    values = {clean(variant): [finite(value) for value in numbers] for variant, numbers in metric["values"].items()}
    first = baseline_name(inputs)
    ordered = sorted(values, key=lambda variant: (variant != first, variant != first + AA_SUFFIX))
    numbers = tuple(int(number) for number in series.get("blocks", ()))
    return BlockValues(metric_label(metric), clean(metric.get("unit") or ""), numbers, {variant: values[variant] for variant in ordered})


def trial_values(inputs: FigureInputs) -> tuple[str, str, list[TrialValue]]:
    """Return (label, unit, value of every trial in the order in which they ran) of the deciding metric."""
    row = _deciding_row(inputs)
    metric = metrics.metric_for(str(row.get("metric")).partition(metrics.POINT_MARK)[0], inputs.results, clean(row.get("unit") or ""))
    trials = [trial for row in inputs.analysis.tables.get("blocks", []) if (trial := _trial_value(row, metric.name)) is not None]
    if not trials:
        raise FigureUnavailable(f"single trials have no value of {clean(metric.label)}")
    return clean(metric.label), clean(row.get("unit") or metric.unit), sorted(trials, key=lambda trial: trial.order)


def _trial_value(row: Row, metric: str) -> TrialValue | None:
    value, block, order = finite(row.get(metric)), finite(row.get("block")), finite(row.get("order"))
    if value is None or value <= 0 or block is None or order is None:
        return None
    point = clean(row.get("point") or "")
    return TrialValue(int(block), order, clean(row.get("variant", "")), point, value, bool(row.get("tainted_trials")))


# ---- changes with their intervals


@dataclass(frozen=True)
class MarkStyle:
    """Style of a kind of mark. Kinds differ in shape and in colour."""

    fill: str
    stroke: str
    shape: str


_OUTCOMES: dict[Outcome, tuple[str, MarkStyle]] = {
    "better": ("better", MarkStyle(BLUE, BLUE, "circle")),
    "worse": ("worse", MarkStyle(VERMILLION, VERMILLION, "square")),
    "differs": ("differs", MarkStyle(PURPLE, PURPLE, "triangle-up")),
    "equal": ("no difference beyond the margin", MarkStyle(GREEN, GREEN, "diamond")),
    "unclear": ("inconclusive", MarkStyle("#ffffff", MUTED, "circle")),
}
"""Outcome → its text in the legend and its style."""
_DIRECTIONS = {"higher": "← worse | better →", "lower": "← better | worse →"}
_VARIANTS = (
    (BLUE, "square"),
    (VERMILLION, "triangle-up"),
    (GREEN, "diamond"),
    (PURPLE, "triangle-down"),
    (ORANGE, "cross"),
    (SKY, "square"),
)
_BAND, _EDGE, _JOIN = "#dfe3e8", "#8c959f", "#b4bcc5"
_ROW_HEIGHT = 27
"""Height of a row of the forest plot, in px."""
MAX_METRICS = 24
"""Number of metrics drawn for a variant. The table has all."""


@register("forest")
def forest(inputs: FigureInputs) -> Figure:
    """Draw the change of every metric against the baseline with its interval, over the A/A interval. One panel for each variant."""
    changes, margin, first = metric_changes(inputs), equivalence_margin(inputs), baseline_name(inputs)
    by_variant = {name: [change for change in changes if change.variant == name] for name in variant_names(changes)}
    shown = [change for variant_changes in by_variant.values() for change in variant_changes[:MAX_METRICS]]
    domain = _domain(shown, margin)
    styles = {text: style for outcome, (text, style) in _OUTCOMES.items() if any(change.outcome(margin) == outcome for change in shown)}
    panels = [_panel(variant_changes[:MAX_METRICS], name, first, domain, margin, styles) for name, variant_changes in by_variant.items()]
    title = _forest_title(by_variant, margin)
    subtitle = f"Bars are intervals, on a scale of ratios. Between the dashed lines (±{margin * 100:g} %) two values count as equal."
    if any(change.aa_interval for change in shown):
        subtitle += f" Grey: {first} against itself."
    if any(_outside(end, domain) for change in shown for end in (change.value, change.low, change.high)):
        subtitle += " An arrow: the value or its interval is beyond the axis."
    if max(map(len, by_variant.values())) > MAX_METRICS:
        subtitle += f" The first {MAX_METRICS} metrics are drawn. The table has all."
    chart = alt.vconcat(*panels, spacing=18).properties(title=chart_style.title(title, subtitle))
    return Figure(title, chart, (TRIALS,), "The intervals of a table hold jointly, at the confidence that the table gives.")


def _forest_title(by_variant: Mapping[str, Sequence[MetricChange]], margin: float) -> str:
    """Return the certain changes of each variant. An inconclusive deciding metric is named before them."""
    parts = []
    for name, changes in by_variant.items():
        certain = [f"{change.label} {percent_change(change.value)}" for change in changes if change.certain]
        texts = [", ".join(certain[:4]) + (f" and {len(certain) - 4} more" if len(certain) > 4 else "")] if certain else []
        if not certain and (equal := [change.label for change in changes if change.outcome(margin) == "equal"]):
            texts.append(f"no difference beyond {margin * 100:g} % in {', '.join(equal[:3])}")
        if texts:
            texts[:0] = [f"{change.label} inconclusive" for change in changes if change.primary and change.outcome(margin) == "unclear"]
        parts.append(f"{name}: {', '.join(texts) or 'no difference is certain'}")
    return "; ".join(parts)


def _domain(changes: Sequence[MetricChange], margin: float) -> tuple[float, float]:
    """Return the range of ratios on the axis of all panels.

    The range holds the deciding metrics and their A/A intervals. The other metrics extend it to at most three times that, so that the
    deciding ones remain readable.
    """
    needed, requested = 1.5 * math.log1p(margin), 0.0
    for change in changes:
        ends = [abs(math.log(end)) for end in (change.value, change.low, change.high, *(change.aa_interval or ())) if end]
        requested = max(requested, *ends)
        needed = max(needed, *ends) if change.primary else needed
    reach = min(max(needed, requested), 3 * needed) * 1.06
    return math.exp(-reach), math.exp(reach)


def _outside(end: float | None, domain: tuple[float, float]) -> bool:
    return end is not None and not domain[0] <= end <= domain[1]


def _panel(
    changes: Sequence[MetricChange],
    name: str,
    first: str,
    domain: tuple[float, float],
    margin: float,
    styles: Mapping[str, MarkStyle],
) -> alt.LayerChart | alt.FacetChart:
    """Return one variant's panel, with a row for each metric."""
    names = [f"{change.label}{' (decides)' if change.primary else ''}" for change in changes]
    texts = [as_change(change.value, change.low, change.high) for change in changes]
    left, right = 26 + round(6.0 * max(map(len, names))), 24 + round(6.1 * max(map(len, texts))) + 104
    width = max(180, chart_style.WIDTH - left - right)
    x = _change_axis(first, domain, width)
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=320, labelPadding=10, ticks=False, domain=False))
    rows = [_forest_row(change, row_name, text, margin, domain) for change, row_name, text in zip(changes, names, texts, strict=True)]
    banded = [row for row in rows if row["aa_low"] is not None]
    band = alt.Chart(data(banded)).mark_bar(color=_BAND, height={"band": 0.72})
    edges = alt.Chart(data([{"x": 1 / (1 + margin)}, {"x": 1 + margin}])).mark_rule(color=_EDGE, strokeDash=[4, 3], strokeWidth=1.2)
    layers = [
        *([band.encode(x=_same_axis(x, "aa_low:Q"), x2=alt.X2("aa_high:Q"), y=y)] if banded else []),
        edges.encode(x=x),
        alt.Chart(data([{"x": 1}])).mark_rule(color=INK, strokeWidth=1.2).encode(x=x),
        *_interval_bars(rows, x, y),
        _marks([row for row in rows if row["x"] is not None], x, y, "kind", styles, legend="bottom"),
    ]
    labels = alt.Chart(data(rows)).encode(y=y)
    layers.append(labels.mark_text(align="left", fontSize=12).encode(x=alt.value(width + 10), text=alt.Text("text:N")))
    directions = labels.mark_text(align="right", fontSize=11, color=MUTED)
    layers.append(directions.encode(x=alt.value(width + right), text=alt.Text("direction:N")))
    head = alt.TitleParams(f"{name} against {first}", fontSize=13, fontWeight=600, anchor="start", frame="group", offset=8)
    return alt.layer(*layers, width=width, height=_ROW_HEIGHT * len(rows), title=head)


def _forest_row(change: MetricChange, name: str, text: str, margin: float, domain: tuple[float, float]) -> MarkRow:
    """Return a change clipped to the axis. ``left`` and ``right`` are True where it extends beyond the axis."""
    kind, style = _OUTCOMES[change.outcome(margin)]
    low, high = change.low or change.value, change.high or change.value
    aa_ends = [min(max(end, domain[0]), domain[1]) for end in change.aa_interval or ()]
    return {
        "row": name,
        "x": None if _outside(change.value, domain) else change.value,
        "low": min(max(low, domain[0]), domain[1]),
        "high": min(max(high, domain[0]), domain[1]),
        "left": low < domain[0],
        "right": high > domain[1],
        "colour": style.stroke,
        "kind": kind,
        "text": text,
        "direction": _DIRECTIONS.get(change.better_direction, ""),
        "aa_low": aa_ends[0] if aa_ends else None,
        "aa_high": aa_ends[1] if aa_ends else None,
    }


def _change_axis(first: str, domain: tuple[float, float], width: float) -> alt.X:
    """Return a logarithmic axis of ratios, labelled as changes in percent."""
    axis = alt.Axis(
        title=f"change against {first}, %",
        values=chart_style.ratio_ticks(domain, width),
        labelExpr="datum.value == 1 ? '0' : format((datum.value - 1) * 100, '+.4~g')",
    )
    return alt.X("x:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=axis)


def _same_axis(x: alt.X, field: str) -> alt.X:
    """Return the same horizontal axis for another field, because layers that share a scale must also share its axis."""
    copied: alt.X = x.copy(deep=False)
    copied["shorthand"] = field
    return copied


def _interval_bars(rows: Sequence[MarkRow], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return bars, and arrows where a bar extends beyond the axis."""
    colour = alt.Color("colour:N", scale=None)
    bar = alt.Chart(data(rows)).mark_rule(strokeWidth=2.2).encode(x=_same_axis(x, "low:Q"), x2=alt.X2("high:Q"), y=y, color=colour)
    arrows = []
    for direction, end in (("left", "low"), ("right", "high")):
        clipped = [row for row in rows if row[direction]]
        arrow = alt.Chart(data(clipped)).mark_point(shape=f"triangle-{direction}", filled=True, size=80, opacity=1)
        arrows += [arrow.encode(x=_same_axis(x, f"{end}:Q"), y=y, color=colour)] if clipped else []
    return [bar, *arrows]


def _marks(
    rows: Sequence[MarkRow],
    x: alt.X,
    y: alt.Y,
    field: str,
    styles: Mapping[str, MarkStyle],
    *,
    legend: Literal["top", "bottom"] | None = None,
    size: float = 75,
) -> alt.Chart:
    """Return marks that differ in fill, stroke and shape, with one legend."""
    shown = None
    if legend:
        shown = alt.Legend(title=None, orient=legend, direction="horizontal", symbolSize=85, labelLimit=300, columns=4, offset=8)

    def scale(values: Sequence[str]) -> alt.Scale:
        return alt.Scale(domain=list(styles), range=list(values))

    chart: alt.Chart = (
        alt.Chart(data(rows))
        .mark_point(opacity=1, strokeWidth=1.9, size=size)
        .encode(
            x=x,
            y=y,
            fill=alt.Fill(f"{field}:N", scale=scale([style.fill for style in styles.values()]), legend=shown),
            stroke=alt.Stroke(f"{field}:N", scale=scale([style.stroke for style in styles.values()]), legend=shown),
            shape=alt.Shape(f"{field}:N", scale=scale([style.shape for style in styles.values()]), legend=shown),
        )
    )
    return chart


def _variant_styles(variants: Sequence[str], first: str) -> dict[str, MarkStyle]:
    """Return a black circle for the baseline, a hollow one for its second trial, and a colour and shape for each variant."""
    styles = {}
    for variant in variants:
        if variant in (first, first + AA_SUFFIX):
            styles[variant] = MarkStyle(BLACK if variant == first else "#ffffff", BLACK, "circle")
        else:
            colour, shape = _VARIANTS[sum(name not in (first, first + AA_SUFFIX) for name in styles) % len(_VARIANTS)]
            styles[variant] = MarkStyle(colour, colour, shape)
    return styles


# ---- the pairs of every block


@register("pairs")
def pairs(inputs: FigureInputs) -> Figure:
    """Draw the deciding metric in every block: above the values, below the change within the block."""
    blocks, first = block_values(inputs), baseline_name(inputs)
    ratios = {name: by_block for name in blocks.values if name != first and (by_block := blocks.ratios(name, first))}
    if not ratios:
        raise FigureUnavailable("no block has both a variant and the baseline")
    styles = _variant_styles(list(blocks.values), first)
    deciding = [change for change in metric_changes(inputs) if change.primary]
    panels = (_values_panel(blocks, first, styles), _ratios_panel(blocks, ratios, first, styles, deciding))
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(fill="independent", stroke="independent", shape="independent")
    counts = [f"{name} in {sum(ratio > 1 for ratio in by_block.values())} of {len(by_block)}" for name, by_block in ratios.items()]
    title = f"Blocks in which {blocks.label} is higher than that of {first}: {', '.join(counts)}"
    subtitle = (
        "Above: each block's values, baseline and variant joined. Below: the change within each block. Drift from block to block does "
        f"not affect it. {first + AA_SUFFIX} is the A/A pair."
    )
    if any(change.low is not None for change in deciding):
        subtitle += " Dashed lines with a band: the estimates with their intervals."
    return Figure(title, chart.properties(title=chart_style.title(title, subtitle)), (TRIALS,), "Only blocks that count are drawn.")


def _block_axis(numbers: Sequence[int], title: str | None) -> alt.X:
    """Return an axis of block numbers, the same in both panels."""
    low, high = min(numbers), max(numbers)
    ticks = [tick for tick in chart_style.whole_ticks(high, most=16) if tick >= low]
    axis = alt.Axis(title=title, grid=False, format="d", values=ticks)
    return alt.X("x:Q", scale=alt.Scale(domain=[low - 0.6, high + 0.6], nice=False), axis=axis)


def _shifts(variants: Sequence[str]) -> dict[str, float]:
    """Return variant → horizontal shift of its marks within a block, so that they do not overlap."""
    step = min(0.22, 0.7 / max(len(variants) - 1, 1))
    return {variant: (index - (len(variants) - 1) / 2) * step for index, variant in enumerate(variants)}


def _values_panel(blocks: BlockValues, first: str, styles: Mapping[str, MarkStyle]) -> alt.LayerChart | alt.FacetChart:
    """Return the values of each block, with lines from the baseline to each variant."""
    shifts = _shifts(list(blocks.values))
    by_variant = {variant: dict(zip(blocks.numbers, values, strict=False)) for variant, values in blocks.values.items()}
    rows: list[MarkRow] = []
    joins: list[chart_style.Line] = []
    for variant, by_block in by_variant.items():
        for block, value in by_block.items():
            if value is None:
                continue
            rows.append({"x": block + shifts[variant], "y": value, "variant": variant})
            base = by_variant.get(first, {}).get(block)
            if variant != first and base is not None:
                colour = _JOIN if variant == first + AA_SUFFIX else styles[variant].stroke
                joins.append(([(block + shifts[first], base), (block + shifts[variant], value)], colour, 1.2, [1, 0]))
    domain = _padded([value for values in blocks.values.values() for value in values if value is not None])
    x = _block_axis(blocks.numbers, None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=domain, nice=False), title=_with_unit(blocks.label, blocks.unit))
    layers = [*chart_style.lines(joins, x, y), _marks(rows, x, y, "variant", styles, legend="top", size=60)]
    return alt.layer(*layers, width=chart_style.plot_width(), height=210)


def _ratios_panel(
    blocks: BlockValues,
    ratios: Mapping[str, Mapping[int, float]],
    first: str,
    styles: Mapping[str, MarkStyle],
    deciding: Sequence[MetricChange],
) -> alt.LayerChart | alt.FacetChart:
    """Return the change within each block against its baseline, with the estimates and their intervals."""
    shifts = _shifts(list(ratios))
    rows: list[MarkRow] = [
        {"x": block + shifts[variant], "y": (ratio - 1) * 100, "variant": variant}
        for variant, by_block in ratios.items()
        for block, ratio in by_block.items()
    ]
    domain = _padded([0.0, *((ratio - 1) * 100 for by_block in ratios.values() for ratio in by_block.values())])
    x = _block_axis(blocks.numbers, "block")
    y = alt.Y("y:Q", scale=alt.Scale(domain=domain, nice=False), title=f"change against {first}, %")
    ends = (min(blocks.numbers) - 0.6, max(blocks.numbers) + 0.6)
    layers: list[alt.Chart] = []
    for change in deciding:
        colour, level = styles[change.variant].stroke if change.variant in styles else MUTED, (change.value - 1) * 100
        if change.low is not None and change.high is not None:
            box = {"x": ends[0], "x2": ends[1], "y": max((change.low - 1) * 100, domain[0]), "y2": min((change.high - 1) * 100, domain[1])}
            band = alt.Chart(data([box])).mark_rect(color=colour, opacity=0.12)
            layers.append(band.encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q")))
        if domain[0] <= level <= domain[1]:
            layers += chart_style.lines([([(ends[0], level), (ends[1], level)], colour, 1.4, [6, 3])], x, y)
    layers.append(alt.Chart(data([{"y": 0}])).mark_rule(color=INK, strokeWidth=1.2).encode(y=y))
    layers.append(_marks(rows, x, y, "variant", {variant: styles[variant] for variant in ratios}, size=60))
    return alt.layer(*layers, width=chart_style.plot_width(), height=170)


def _padded(values: Sequence[float]) -> list[float]:
    """Return the ends of an axis that holds all values with a margin. The ends always differ."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return [low - margin, high + margin]


def _with_unit(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name


# ---- the trials in run order


@register("order")
def order(inputs: FigureInputs) -> Figure:
    """Draw the deciding metric of each trial in run order, so that drift is visible."""
    metric, unit, trials = trial_values(inputs)
    if len(trials) < 4:
        raise FigureUnavailable("fewer than four trials: too few to estimate a drift")
    first, last = baseline_name(inputs), round(trials[-1].order)
    present = {trial.variant for trial in trials}
    in_table_order = [first, first + AA_SUFFIX, *variant_names(metric_changes(inputs))]
    variants = [name for name in in_table_order if name in present] + sorted(present - set(in_table_order))
    relative = len({trial.point for trial in trials}) > 1
    deviations = _deviations(trials)
    values = deviations if relative else [trial.value for trial in trials]
    axis = alt.Axis(title="run order of the trials", grid=False, format="d", values=chart_style.whole_ticks(last, least=1))
    x = alt.X("x:Q", scale=alt.Scale(domain=[0.5, last + 0.5], nice=False), axis=axis)
    y_title = f"{metric}, % off the mean of its variant and point" if relative else _with_unit(metric, unit)
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(domain=_padded(values), nice=False))
    rows: list[MarkRow] = [{"x": trial.order, "y": value, "variant": trial.variant} for trial, value in zip(trials, values, strict=True)]
    layers = [*_block_edges(trials, x)]
    rings = [row for row, trial in zip(rows, trials, strict=True) if trial.tainted]
    if rings:
        layers.append(alt.Chart(data(rings)).mark_point(size=230, stroke=VERMILLION, strokeWidth=1.6, opacity=1).encode(x=x, y=y))
    layers.append(_marks(rows, x, y, "variant", _variant_styles(variants, first), legend="top", size=60))
    # The drift is estimated from clean trials, because the value of a tainted trial can be arbitrarily wrong.
    clean_trials = [(trial, deviation) for trial, deviation in zip(trials, deviations, strict=True) if not trial.tainted]
    slope = drift([(f"{trial.base_variant} {trial.point}", trial.order, deviation) for trial, deviation in clean_trials], last)
    subject = f"{metric[0].upper()}{metric[1:]}"
    title = f"{subject} of each trial in run order"
    subtitle = f"Each mark is a trial or its slices.{' A ring marks a tainted trial.' if rings else ''} Faint lines separate the blocks. "
    if slope is None:
        subtitle += "Too few clean trials to estimate a drift."
    else:
        total, error, _ = slope
        drifted = abs(total) > error
        title = f"{subject} drifted by" if drifted else f"No drift of {metric} beyond the scatter:"
        title += f" {total:+.1f} ± {error:.1f} % from the first trial to the last".replace("-", "−")
        subtitle += "Drift is the common slope within the variants, ± two standard errors."
        subtitle += " Pairing by block removes it from the comparison." if drifted else ""
    chart = alt.layer(*layers, width=chart_style.plot_width(), height=240, title=chart_style.title(title, subtitle))
    return Figure(title, chart, (TRIALS,))


def _deviations(trials: Sequence[TrialValue]) -> list[float]:
    """Return each trial's deviation in percent from the mean of its variant and point. Both trials of the A/A pair share a mean."""
    values: dict[tuple[str, str], list[float]] = {}
    for trial in trials:
        values.setdefault((trial.base_variant, trial.point), []).append(trial.value)
    return [(trial.value / statistics.fmean(values[trial.base_variant, trial.point]) - 1) * 100 for trial in trials]


def _block_edges(trials: Sequence[TrialValue], x: alt.X) -> list[alt.Chart]:
    """Return lines between the blocks."""
    starts: dict[int, float] = {}
    for trial in trials:
        starts[trial.block] = min(starts.get(trial.block, math.inf), trial.order)
    edges = [{"x": start - 0.5} for start in sorted(starts.values())[1:]]
    return [alt.Chart(data(edges)).mark_rule(color=chart_style.FAINT, strokeWidth=1).encode(x=x)] if edges else []
