"""The figures of a comparison: changes with their intervals (a forest plot), every block's pair, and the order of the trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLACK, BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.trial_figures import drift
from pgherd.studies.compare import figures_data
from pgherd.studies.compare.figures_data import BlockValues, Class, Measured, MetricChange
from pgherd.study.comparison.answers import as_change, percent
from pgherd.study.comparison.options import AGAIN

Row = dict[str, object]


@dataclass(frozen=True)
class Look:
    """How a kind of mark is drawn: told apart by shape as well as by colour."""

    fill: str
    stroke: str
    shape: str


_CLASSES: dict[Class, tuple[str, Look]] = {
    "better": ("better", Look(BLUE, BLUE, "circle")),
    "worse": ("worse", Look(VERMILLION, VERMILLION, "square")),
    "differs": ("differs", Look(PURPLE, PURPLE, "triangle-up")),
    "equal": ("no difference beyond the margin", Look(GREEN, GREEN, "diamond")),
    "unclear": ("cannot tell", Look("#ffffff", MUTED, "circle")),
}
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
_STEP = 27
"""Height of a row of the forest plot, in px."""
MOST = 24
"""Metrics of a variant that are drawn; the table has all."""


# ---- changes with their intervals


@register("forest")
def forest(inputs: FigureInputs) -> Figure:
    """The change of every metric against the baseline with its interval, over the A/A floor; one panel per variant."""
    found, margin, first = figures_data.changes(inputs), figures_data.margin(inputs), figures_data.baseline(inputs)
    of = {name: [change for change in found if change.variant == name] for name in figures_data.variants(found)}
    shown = [change for own in of.values() for change in own[:MOST]]
    domain = _domain(shown, margin)
    looks = {words: look for kind, (words, look) in _CLASSES.items() if any(change.meaning(margin) == kind for change in shown)}
    panels = [_panel(own[:MOST], name, first, domain, margin, looks) for name, own in of.items()]
    sentence = _sentence(of, margin)
    subtitle = f"Bars are intervals, on a scale of ratios. Between the dashed lines (±{margin * 100:g} %) two values count as equal."
    if any(change.floor for change in shown):
        subtitle += f" Grey: {first} against itself."
    if any(_cut(end, domain) for change in shown for end in (change.value, change.low, change.high)):
        subtitle += " An arrow: it lies or goes on beyond the axis."
    if max(map(len, of.values())) > MOST:
        subtitle += f" The first {MOST} metrics; the table has all."
    chart = chart_style.panels(panels, sentence, subtitle, spacing=18)
    return Figure(sentence, chart, (TRIALS,), "The table says at which confidence the intervals hold, and that they do so jointly.")


def _sentence(of: Mapping[str, Sequence[MetricChange]], margin: float) -> str:
    """What is certain of each variant, the deciding metric first, also where it could not tell."""
    parts = []
    for name, own in of.items():
        sure = [f"{change.label} {percent(change.value)}" for change in own if change.certain]
        said = [", ".join(sure[:4]) + (f" and {len(sure) - 4} more" if len(sure) > 4 else "")] if sure else []
        if not sure and (equal := [change.label for change in own if change.meaning(margin) == "equal"]):
            said.append(f"no difference beyond {margin * 100:g} % in {', '.join(equal[:3])}")
        if said:
            said[:0] = [f"nobody can tell by {change.label}" for change in own if change.primary and change.meaning(margin) == "unclear"]
        parts.append(f"{name}: {', '.join(said) or 'no difference is certain'}")
    return "; ".join(parts)


def _domain(shown: Sequence[MetricChange], margin: float) -> tuple[float, float]:
    """The ratios that the axis of all panels reaches to.

    It holds what the deciding metrics and their floors need, and of the others as much as leaves those large enough to see.
    """
    needed, wanted = 1.5 * math.log1p(margin), 0.0
    for change in shown:
        ends = [abs(math.log(end)) for end in (change.value, change.low, change.high, *(change.floor or ())) if end]
        wanted = max(wanted, *ends)
        needed = max(needed, *ends) if change.primary else needed
    reach = min(max(needed, wanted), 3 * needed) * 1.06
    return math.exp(-reach), math.exp(reach)


def _cut(end: float | None, domain: tuple[float, float]) -> bool:
    return end is not None and not domain[0] <= end <= domain[1]


def _panel(
    own: Sequence[MetricChange], name: str, first: str, domain: tuple[float, float], margin: float, looks: Mapping[str, Look]
) -> alt.LayerChart | alt.FacetChart:
    """One variant: a row for each metric."""
    names = [f"{change.label}{' (decides)' if change.primary else ''}" for change in own]
    words = [as_change(change.value, change.low, change.high) for change in own]
    left, right = 26 + round(6.0 * max(map(len, names))), 24 + round(6.1 * max(map(len, words))) + 104
    width = max(180, chart_style.WIDTH - left - right)
    x = _change_axis(first, domain, width)
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=320, labelPadding=10, ticks=False, domain=False))
    rows = [_forest_row(*one, margin, domain) for one in zip(own, names, words, strict=True)]
    banded = [row for row in rows if row["floor_low"] is not None]
    band = alt.Chart(data(banded)).mark_bar(color=_BAND, height={"band": 0.72})
    edges = alt.Chart(data([{"x": 1 / (1 + margin)}, {"x": 1 + margin}])).mark_rule(color=_EDGE, strokeDash=[4, 3], strokeWidth=1.2)
    layers = [
        *([band.encode(x=chart_style.on(x, "floor_low:Q"), x2=alt.X2("floor_high:Q"), y=y)] if banded else []),
        edges.encode(x=x),
        chart_style.reference_line(x, 1, color=INK, strokeWidth=1.2),
        *_intervals(rows, x, y),
        _dots([row for row in rows if row["x"] is not None], x, y, "kind", looks, legend="bottom"),
    ]
    beside = alt.Chart(data(rows)).encode(y=y)
    layers.append(beside.mark_text(align="left", fontSize=12).encode(x=alt.value(width + 10), text=alt.Text("words:N")))
    directions = beside.mark_text(align="right", fontSize=11, color=MUTED)
    layers.append(directions.encode(x=alt.value(width + right), text=alt.Text("direction:N")))
    head = alt.TitleParams(f"{name} against {first}", fontSize=13, fontWeight=600, anchor="start", frame="group", offset=8)
    return alt.layer(*layers, width=width, height=_STEP * len(rows), title=head)


def _forest_row(change: MetricChange, name: str, words: str, margin: float, domain: tuple[float, float]) -> Row:
    """A change within the axis; ``left`` and ``right`` say where it goes on beyond it."""
    kind, look = _CLASSES[change.meaning(margin)]
    low, high = change.low or change.value, change.high or change.value
    floor = [min(max(end, domain[0]), domain[1]) for end in change.floor or ()]
    return {
        "row": name,
        "x": None if _cut(change.value, domain) else change.value,
        "low": min(max(low, domain[0]), domain[1]),
        "high": min(max(high, domain[0]), domain[1]),
        "left": low < domain[0],
        "right": high > domain[1],
        "colour": look.stroke,
        "kind": kind,
        "words": words,
        "direction": _DIRECTIONS.get(change.better, ""),
        "floor_low": floor[0] if floor else None,
        "floor_high": floor[1] if floor else None,
    }


def _change_axis(first: str, domain: tuple[float, float], width: float) -> alt.X:
    """Ratios on a logarithmic scale, labelled as changes in per cent."""
    axis = alt.Axis(
        title=f"change against {first}, %",
        values=chart_style.ratio_ticks(domain, width),
        labelExpr="datum.value == 1 ? '0' : format((datum.value - 1) * 100, '+.4~g')",
    )
    return alt.X("x:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=axis)


def _intervals(rows: Sequence[Row], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Bars, and arrows at the axis' ends where they go on."""
    colour = alt.Color("colour:N", scale=None)
    bar = alt.Chart(data(rows)).mark_rule(strokeWidth=2.2).encode(x=chart_style.on(x, "low:Q"), x2=alt.X2("high:Q"), y=y, color=colour)
    arrows = []
    for side, end in (("left", "low"), ("right", "high")):
        cut = [row for row in rows if row[side]]
        arrow = alt.Chart(data(cut)).mark_point(shape=f"triangle-{side}", filled=True, size=80, opacity=1)
        arrows += [arrow.encode(x=chart_style.on(x, f"{end}:Q"), y=y, color=colour)] if cut else []
    return [bar, *arrows]


def _dots(
    rows: Sequence[Row],
    x: alt.X,
    y: alt.Y,
    field: str,
    looks: Mapping[str, Look],
    *,
    legend: Literal["top", "bottom"] | None = None,
    size: float = 75,
) -> alt.Chart:
    """Marks told apart by fill, stroke and shape, in one legend."""
    shown = None
    if legend:
        shown = alt.Legend(title=None, orient=legend, direction="horizontal", symbolSize=85, labelLimit=300, columns=4, offset=8)

    def scaled(values: Sequence[str]) -> alt.Scale:
        return alt.Scale(domain=list(looks), range=list(values))

    placed: alt.Chart = (
        alt.Chart(data(rows))
        .mark_point(opacity=1, strokeWidth=1.9, size=size)
        .encode(
            x=x,
            y=y,
            fill=alt.Fill(f"{field}:N", scale=scaled([look.fill for look in looks.values()]), legend=shown),
            stroke=alt.Stroke(f"{field}:N", scale=scaled([look.stroke for look in looks.values()]), legend=shown),
            shape=alt.Shape(f"{field}:N", scale=scaled([look.shape for look in looks.values()]), legend=shown),
        )
    )
    return placed


def _side_looks(sides: Sequence[str], first: str) -> dict[str, Look]:
    """The baseline is a black circle, the same again a hollow one, each variant has a colour and shape of its own."""
    looks = {}
    for side in sides:
        if side in (first, first + AGAIN):
            looks[side] = Look(BLACK if side == first else "#ffffff", BLACK, "circle")
        else:
            colour, shape = _VARIANTS[sum(one not in (first, first + AGAIN) for one in looks) % len(_VARIANTS)]
            looks[side] = Look(colour, colour, shape)
    return looks


# ---- every block's pair


@register("pairs")
def pairs(inputs: FigureInputs) -> Figure:
    """The deciding metric in every block: above its values side by side, below the change within the block."""
    blocks, first = figures_data.deciding(inputs), figures_data.baseline(inputs)
    ratios = {side: found for side in blocks.values if side != first and (found := blocks.ratios(side, first))}
    if not ratios:
        raise FigureUnavailable("no block has both a variant and the baseline")
    looks = _side_looks(list(blocks.values), first)
    own = [change for change in figures_data.changes(inputs) if change.primary]
    panels = (_values_panel(blocks, first, looks), _ratios_panel(blocks, ratios, first, looks, own))
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(fill="independent", stroke="independent", shape="independent")
    counts = [f"{side} in {sum(r > 1 for r in found.values())} of {len(found)}" for side, found in ratios.items()]
    sentence = f"Blocks in which {blocks.label} is higher than that of {first}: {', '.join(counts)}"
    subtitle = (
        "Above: each block's values, baseline and variant joined. Below: the change within each block, which no drift from block to "
        f"block can move; {first + AGAIN} is the A/A pair."
    )
    if any(change.low is not None for change in own):
        subtitle += " Dashed lines with a band: the estimates with their intervals."
    return Figure(sentence, chart.properties(title=chart_style.title(sentence, subtitle)), (TRIALS,), "Only blocks that count are drawn.")


def _block_axis(numbers: Sequence[int], title: str | None) -> alt.X:
    """Blocks side by side, the same in both panels."""
    low, high = min(numbers), max(numbers)
    axis = alt.Axis(title=title, grid=False, format="d", values=[at for at in chart_style.whole_ticks(high, most=16) if at >= low])
    return chart_style.x_axis([low - 0.6, high + 0.6], axis=axis)


def _shifts(sides: Sequence[str]) -> dict[str, float]:
    """Where in its block each side's mark stands, so that none hides another."""
    step = min(0.22, 0.7 / max(len(sides) - 1, 1))
    return {side: (index - (len(sides) - 1) / 2) * step for index, side in enumerate(sides)}


def _values_panel(blocks: BlockValues, first: str, looks: Mapping[str, Look]) -> alt.LayerChart | alt.FacetChart:
    """The values of each block, joined from the baseline to each other side."""
    shifts = _shifts(list(blocks.values))
    at = {side: dict(zip(blocks.numbers, values, strict=False)) for side, values in blocks.values.items()}
    rows: list[Row] = []
    joins: list[chart_style.Line] = []
    for side, by_block in at.items():
        for block, value in by_block.items():
            if value is None:
                continue
            rows.append({"x": block + shifts[side], "y": value, "side": side})
            base = at.get(first, {}).get(block)
            if side != first and base is not None:
                colour = _JOIN if side == first + AGAIN else looks[side].stroke
                joins.append(([(block + shifts[first], base), (block + shifts[side], value)], colour, 1.2, [1, 0]))
    domain = _padded([value for values in blocks.values.values() for value in values if value is not None])
    x = _block_axis(blocks.numbers, None)
    y = chart_style.y_axis(domain, title=_with_unit(blocks.label, blocks.unit))
    layers = [*chart_style.lines(joins, x, y), _dots(rows, x, y, "side", looks, legend="top", size=60)]
    return alt.layer(*layers, width=chart_style.plot_width(), height=210)


def _ratios_panel(
    blocks: BlockValues, ratios: Mapping[str, Mapping[int, float]], first: str, looks: Mapping[str, Look], own: Sequence[MetricChange]
) -> alt.LayerChart | alt.FacetChart:
    """The change of each block against its own baseline, with the estimates and their intervals."""
    shifts = _shifts(list(ratios))
    rows: list[Row] = [
        {"x": block + shifts[side], "y": (ratio - 1) * 100, "side": side}
        for side, found in ratios.items()
        for block, ratio in found.items()
    ]
    domain = _padded([0.0, *((ratio - 1) * 100 for found in ratios.values() for ratio in found.values())])
    x = _block_axis(blocks.numbers, "block")
    y = chart_style.y_axis(domain, title=f"change against {first}, %")
    ends = (min(blocks.numbers) - 0.6, max(blocks.numbers) + 0.6)
    layers: list[alt.Chart] = []
    for change in own:
        colour, at = looks[change.variant].stroke if change.variant in looks else MUTED, (change.value - 1) * 100
        if change.low is not None and change.high is not None:
            box = {"x": ends[0], "x2": ends[1], "y": max((change.low - 1) * 100, domain[0]), "y2": min((change.high - 1) * 100, domain[1])}
            band = alt.Chart(data([box])).mark_rect(color=colour, opacity=0.12)
            layers.append(band.encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q")))
        layers += chart_style.lines([([(ends[0], at), (ends[1], at)], colour, 1.4, [6, 3])], x, y) if domain[0] <= at <= domain[1] else []
    layers.append(chart_style.reference_line(y, 0, color=INK, strokeWidth=1.2))
    layers.append(_dots(rows, x, y, "side", {side: looks[side] for side in ratios}, size=60))
    return alt.layer(*layers, width=chart_style.plot_width(), height=170)


def _padded(values: Sequence[float]) -> list[float]:
    """An axis that holds all values with a little room; never of no height."""
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return [low - room, high + room]


def _with_unit(label: str, unit: str) -> str:
    return f"{label}, {unit}" if unit else label


# ---- the order of the trials


@register("order")
def order(inputs: FigureInputs) -> Figure:
    """The deciding metric of each trial in the order in which they ran, so that drift shows."""
    label, unit, found = figures_data.measured(inputs)
    if len(found) < 4:
        raise FigureUnavailable("fewer than four trials: too few to tell a drift")
    first, last = figures_data.baseline(inputs), round(found[-1].order)
    present = {one.side for one in found}
    known = [first, first + AGAIN, *figures_data.variants(figures_data.changes(inputs))]
    sides = [side for side in known if side in present] + sorted(present - set(known))
    relative = len({one.point for one in found}) > 1
    offs = _off_their_means(found)
    values = offs if relative else [one.value for one in found]
    axis = alt.Axis(title="order in which the trials ran", grid=False, format="d", values=chart_style.whole_ticks(last, least=1))
    x = chart_style.x_axis([0.5, last + 0.5], axis=axis)
    title = f"{label}, % off the mean of its variant and point" if relative else _with_unit(label, unit)
    y = alt.Y("y:Q", title=title, scale=alt.Scale(domain=_padded(values), nice=False))
    rows: list[Row] = [{"x": one.order, "y": value, "side": one.side} for one, value in zip(found, values, strict=True)]
    layers = [*_block_edges(found, x)]
    rings = [row for row, one in zip(rows, found, strict=True) if one.tainted]
    if rings:
        layers.append(alt.Chart(data(rings)).mark_point(size=230, stroke=VERMILLION, strokeWidth=1.6, opacity=1).encode(x=x, y=y))
    layers.append(_dots(rows, x, y, "side", _side_looks(sides, first), legend="top", size=60))
    # A tainted trial may be anywhere; the clean ones tell the drift.
    clean = [(one, off) for one, off in zip(found, offs, strict=True) if not one.tainted]
    slope = drift([(f"{one.arm} {one.point}", one.order, off) for one, off in clean], last)
    sentence = f"{label[0].upper()}{label[1:]} of each trial in the order in which they ran"
    subtitle = f"Each mark is a trial or its turns{', a ring marks a tainted one' if rings else ''}; faint lines part the blocks. "
    if slope is None:
        subtitle += "Too few clean trials to tell a drift."
    else:
        total, error, _ = slope
        drifted = abs(total) > error
        sentence = f"{label[0].upper()}{label[1:]} drifted by" if drifted else f"No drift of {label} beyond the scatter:"
        sentence += f" {total:+.1f} ± {error:.1f} % from the first trial to the last".replace("-", "−")
        subtitle += "Drift is the common slope within the variants, ± two standard errors of it."
        subtitle += " Pairing by block takes it out of the comparison." if drifted else ""
    chart = alt.layer(*layers, width=chart_style.plot_width(), height=240, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _off_their_means(found: Sequence[Measured]) -> list[float]:
    """Each trial in per cent off the mean of its arm and point; the A/A pair is one arm."""
    held: dict[tuple[str, str], list[float]] = {}
    for one in found:
        held.setdefault((one.arm, one.point), []).append(one.value)
    return [(one.value / statistics.fmean(held[one.arm, one.point]) - 1) * 100 for one in found]


def _block_edges(found: Sequence[Measured], x: alt.X) -> list[alt.Chart]:
    """Lines between the blocks."""
    begins: dict[int, float] = {}
    for one in found:
        begins[one.block] = min(begins.get(one.block, math.inf), one.order)
    edges = [{"x": at - 0.5} for at in sorted(begins.values())[1:]]
    return [alt.Chart(data(edges)).mark_rule(color=chart_style.FAINT, strokeWidth=1).encode(x=x)] if edges else []
