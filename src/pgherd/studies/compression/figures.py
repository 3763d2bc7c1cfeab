"""Figures of a compression run: ratio by kind of data and codec, and by block size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.model.units import format_bytes
from pgherd.report import chart_style
from pgherd.report.chart_style import HEIGHT, INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite

STUDY = "compression"
_MARK_HEIGHT = 18
"""Height of one codec's mark, in px."""


@register("kinds")
def kinds(inputs: FigureInputs) -> Figure:
    """Draw the ratio of each kind of data by codec, at one block size, with E15's 2:1 as a line."""
    headline = inputs.analysis.figures.get("headline", {})
    codecs = inputs.record.options.get("codecs", [])
    points: list[dict[str, Any]] = []
    for row in inputs.analysis.tables.get(STUDY, []):
        label = clean(row.get("data")) + ("" if row.get("form") == "plain" else ", encrypted first")
        for codec in codecs:
            cell = row.get(codec)
            value = finite(cell)
            if isinstance(cell, Finding) and value:
                points.append({"kind": label, "codec": clean(codec), "x": value, "low": finite(cell.low), "high": finite(cell.high)})
    if not points:
        raise FigureUnavailable("no data was compressed")
    published = float(headline.get("published", 2.0))
    ends = [published, *(point[name] for point in points for name in ("x", "low", "high") if point[name])]
    scale = alt.Scale(type="log", domain=[min(0.9, min(ends)), max(ends) * 1.15], nice=False)
    x = alt.X("x:Q", scale=scale, title="bytes before ÷ bytes after (logarithmic)", axis=alt.Axis(values=_ticks(max(ends)), format="~g"))
    y = alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False))
    order = list(dict.fromkeys(point["codec"] for point in points))
    offset = alt.YOffset("codec:N", scale=alt.Scale(domain=order))
    colour = alt.Color("codec:N", scale=alt.Scale(domain=order, range=_colours(order)), legend=alt.Legend(title=None))
    bars = [point for point in points if point["low"] and point["high"]]
    layers: list[alt.Chart] = [
        alt.Chart(data([{"x": published}])).mark_rule(color="#8c959f", strokeDash=[5, 4], strokeWidth=1.2).encode(x=x),
        alt.Chart(data([{"x": 1.0}])).mark_rule(color=INK, strokeWidth=1).encode(x=x),
    ]
    if bars:
        rules = alt.Chart(data(bars)).mark_rule(strokeWidth=2)
        layers.append(rules.encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"), y=y, yOffset=offset, color=colour))
    layers.append(alt.Chart(data(points)).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, yOffset=offset, color=colour))
    rows = len({point["kind"] for point in points})
    subtitle = (
        f"Blocks of {format_bytes(headline.get('block', 0))}, each compressed separately. Dashed: E15's published 2:1 with LZ4. "
        "Intervals over the sampled segments are mostly smaller than the marks."
    )
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width(["realistic, encrypted"]),
        height=max(_MARK_HEIGHT * len(order), 40) * rows,
        title=chart_style.title(inputs.analysis.answer.rstrip("."), subtitle),
    )
    return Figure(inputs.analysis.answer.rstrip("."), chart, (TRIALS,))


@register("blocks")
def blocks(inputs: FigureInputs) -> Figure:
    """Draw the ratio by block size at the headline codec, by kind. Dashed lines include rounding up to 4 kB sectors."""
    codec = inputs.analysis.figures.get("headline", {}).get("codec", "")
    sizes = [int(size) for size in inputs.record.options.get("block_sizes", [])]
    rows = [row for row in inputs.analysis.tables.get("ratios", []) if row.get("codec") == codec and row.get("form") == "plain"]
    names = list(dict.fromkeys(clean(row.get("data")) for row in rows))
    if len(sizes) < 2 or not rows:
        raise FigureUnavailable("fewer than two block sizes were compressed")
    labels = [format_bytes(size) for size in sizes]
    points: list[dict[str, Any]] = []
    for row in rows:
        for series, cell in (("codec", row.get("ratio")), ("sectors", row.get("ratio_4k"))):
            value = finite(cell)
            if value:
                points.append({"kind": clean(row.get("data")), "block": clean(row.get("block")), "y": value, "series": series})
    top, least = max(float(point["y"]) for point in points), min(float(point["y"]) for point in points)
    x = alt.X("block:O", sort=labels, title="block size", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(type="log", domain=[min(0.9, least / 1.1), top * 1.15], nice=False)
    y = alt.Y("y:Q", scale=scale, title="bytes before ÷ after (logarithmic)", axis=alt.Axis(values=_ticks(top), format="~g"))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=names, range=_colours(names)), legend=alt.Legend(title=None))
    legend = alt.Legend(title=None, labelExpr="datum.label == 'codec' ? 'as compressed' : 'stored in 4 kB sectors'")
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=["codec", "sectors"], range=[[1, 0], [4, 3]]), legend=legend)
    source = alt.Chart(data(points))
    sentence = f"{clean(codec)}: larger blocks compress better, and small ones gain little if storage is allocated in sectors"
    if not _grows(points, labels):
        sentence = f"{clean(codec)}: ratio by block size"
    chart = alt.layer(
        source.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, strokeDash=dash),
        source.mark_point(size=45, filled=True, opacity=1).encode(x=x, y=y, color=colour),
        width=chart_style.plot_width(["stored in 4 kB sectors"]),
        height=HEIGHT,
        title=chart_style.title(sentence, "Each block is compressed separately. A block must shrink by a whole sector to save space."),
    )
    return Figure(sentence, chart, (TRIALS,))


def _grows(points: Sequence[dict[str, Any]], labels: Sequence[str]) -> bool:
    """Return True if every kind compresses better in the largest block than in the smallest, and sectors cost the smallest some."""
    ratios = {(point["kind"], point["series"], point["block"]): float(point["y"]) for point in points}
    names = {point["kind"] for point in points}
    first, last = labels[0], labels[-1]
    try:
        grown = all(ratios[name, "codec", last] > ratios[name, "codec", first] for name in names)
        return grown and all(ratios[name, "sectors", first] <= ratios[name, "codec", first] for name in names)
    except KeyError:
        return False


def _colours(names: Sequence[str]) -> list[str]:
    return [SERIES[index % len(SERIES)] for index in range(len(names))]


def _ticks(top: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 … up to the top."""
    decades = range(math.ceil(math.log10(max(top, 1))) + 1)
    return [step * 10.0**decade for decade in decades for step in (1, 2, 5) if step * 10.0**decade <= top * 1.15]
