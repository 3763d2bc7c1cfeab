"""Style of all figures: colours, type, titles, axes, and labels next to what they name.

Imports altair, so only modules that draw import this one.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import altair as alt

from pgherd.model.text import clean

WIDTH = 700
"""Width of a whole figure, in px."""

AXIS = 64
"""Width of the vertical axis with its title, in px."""

HEIGHT = 320
TITLE_CHARACTERS = 68
SUBTITLE_CHARACTERS = 94
"""Characters of a line that fit into the width in DejaVu Sans, the widest of the usual fonts."""

# Eight colours that colour-blind readers can distinguish (Okabe & Ito, "Color Universal Design", jfly.uni-koeln.de/color).
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
INK, MUTED, FAINT, GREY = "#1f2328", "#59636e", "#d5dae0", "#8c959f"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Order of colours for series, without yellow, which is unreadable on white."""

_TEXT = {ORANGE: "#8a5f00", SKY: "#1f6f9f", GREEN: "#00694d", PURPLE: "#8f3f6d", VERMILLION: "#a84a00", BLUE: "#005a8e"}

DASHES = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3])

CONFIG: dict[str, Any] = {
    "background": "#ffffff",
    "font": "Helvetica, Arial, sans-serif",
    "aria": False,  # one description for the figure, because a label on every mark doubles the file
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "gridColor": "#eceff2",
        "domainColor": "#8c959f",
        "tickColor": "#8c959f",
    },
    "legend": {"labelColor": INK, "labelFontSize": 12, "titleFontSize": 12, "symbolStrokeWidth": 2},
    "header": {"labelColor": INK, "labelFontSize": 12, "titleFontSize": 12},
    "title": {
        "anchor": "start",
        "frame": "bounds",
        "color": INK,
        "fontSize": 15.5,
        "fontWeight": 600,
        "subtitleColor": MUTED,
        "subtitleFontSize": 12,
        "subtitlePadding": 5,
        "lineHeight": 19,
        "subtitleLineHeight": 16,
        "offset": 16,
    },
    "text": {"color": INK, "fontSize": 12},
    "concat": {"spacing": 24},
}


def text_colour(colour: str) -> str:
    """Return a darker shade for text. Colours of areas and lines are too pale for small text on white."""
    return _TEXT.get(colour, colour)


def plot_width(labels: Sequence[str] = ()) -> int:
    """Return the width of the plot: the figure's width without the axis and the longest label at its right side."""
    return WIDTH - AXIS - (16 + round(6.9 * max(map(len, labels), default=0)) if labels else 8)


def data(rows: Sequence[Mapping[str, object]]) -> alt.InlineData:
    """Return rows as inline data without control characters, with null for numbers that are not finite.

    The data are JSON text, because Altair copies a chart's data deeply at each step.
    """
    plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
    return alt.InlineData(values=json.dumps(plain), format=alt.JsonDataFormat(type="json"))


def title(sentence: str, subtitle: str) -> alt.TitleParams:
    """Return the figure's title, which states the finding with its number, and the subtitle, which explains the figure."""
    return alt.TitleParams(text=_lines(sentence, TITLE_CHARACTERS), subtitle=_lines(subtitle, SUBTITLE_CHARACTERS))


def _lines(text: str, characters: int) -> list[str]:
    """Wrap text to lines of at most ``characters``, and keep a percent sign with its number."""
    return textwrap.wrap(clean(text).replace(" %", "\N{NO-BREAK SPACE}%"), characters) or [""]


def nice_ceiling(value: float) -> float:
    """Return the next round number above: 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if step * power >= value * (1 - 1e-12)), 10 * power)


def whole_ticks(end: float, *, least: int = 0, most: int = 12) -> list[int]:
    """Return at most ``most`` evenly spaced whole numbers up to ``end``. Half a database is no tick."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if end // step <= most:
                return [least, *range(step if step > least else least + step, math.floor(end) + 1, step)]
        power *= 10


_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_FAR = (1.0, 0.5, 2.0, 0.1, 10.0, 0.01, 100.0)
"""Ticks of a wide axis of ratios, most important first."""
_ROOM = 36
"""Minimum distance of two ticks in px, so that their labels do not overlap."""


def ratio_ticks(domain: tuple[float, float], width: float) -> list[float]:
    """Return ticks of a logarithmic axis of ratios around 1, ``width`` px wide: even steps from 1, or a few round ratios on a wide
    domain.
    """
    reach = domain[1] - 1
    step = next((step for step in _STEPS if 2 * reach / step <= width / _ROOM), None)
    if step is not None:
        around = math.floor(reach / step)
        ticks = [1 + step * place for place in range(-around, around + 1)]
    else:
        ticks, apart = [], _ROOM / width * math.log(domain[1] / domain[0])
        for tick in _FAR:
            ticks += [tick] if all(abs(math.log(tick / other)) >= apart for other in ticks) else []
    return sorted(tick for tick in ticks if domain[0] <= tick <= domain[1])


Axis = TypeVar("Axis", alt.X, alt.Y)


def x_axis(domain: Sequence[float], **options: Any) -> alt.X:
    """Return a linear x axis of the field ``x`` over exactly this domain."""
    return alt.X("x:Q", scale=alt.Scale(domain=list(domain), nice=False), **options)


def y_axis(domain: Sequence[float], **options: Any) -> alt.Y:
    """Return a linear y axis of the field ``y`` over exactly this domain."""
    return alt.Y("y:Q", scale=alt.Scale(domain=list(domain), nice=False), **options)


def on(axis: Axis, field: str) -> Axis:
    """Return the axis for another field. Layers that share a scale must also share its title."""
    copied: Axis = axis.copy(deep=False)
    copied["shorthand"] = field
    return copied


def reference_line(axis: alt.X | alt.Y, value: float, **mark: Any) -> alt.Chart:
    """Return a line across the plot at a value of the axis, dashed grey by default."""
    field = "x" if isinstance(axis, alt.X) else "y"
    line = alt.Chart(data([{field: value}])).mark_rule(**(mark or {"color": GREY, "strokeDash": [5, 4]}))
    chart: alt.Chart = line.encode(**{field: axis})
    return chart


def interval_bars(
    rows: Sequence[Mapping[str, object]], x: alt.X, y: alt.Y, *, horizontal: bool = False, mark: Mapping[str, Any], **encoding: Any
) -> list[alt.Chart]:
    """Return lines from ``low`` to ``high`` of the rows that have both ends, as one layer or none. ``horizontal``: along the x axis."""
    bars = [row for row in rows if row["low"] is not None and row["high"] is not None]
    if not bars:
        return []
    ends = {"x": on(x, "low:Q"), "x2": alt.X2("high:Q"), "y": y} if horizontal else {"x": x, "y": on(y, "low:Q"), "y2": alt.Y2("high:Q")}
    return [alt.Chart(data(bars)).mark_rule(**mark).encode(**ends, **encoding)]


def panel_title(text: str, **options: Any) -> alt.TitleParams:
    """Return the small title of one panel of a figure."""
    return alt.TitleParams(clean(text), fontSize=12, fontWeight="normal", anchor="start", **options)


def panels(charts: Sequence[Any], sentence: str, subtitle: str, *, spacing: int, **scales: Any) -> alt.VConcatChart:
    """Return charts below each other under one title. ``scales``: how each scale is resolved, such as ``color="independent"``."""
    chart = alt.vconcat(*charts, spacing=spacing).properties(title=title(sentence, subtitle))
    stacked: alt.VConcatChart = chart.resolve_scale(**scales) if scales else chart
    return stacked


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions moved apart so that neighbours are at least ``gap`` apart, in unchanged order.

    All stay within ``low`` … ``high`` if they fit. Otherwise they are spaced evenly over it.
    """
    count = len(positions)
    if count == 0:
        return []
    gap = min(gap, (high - low) / max(count - 1, 1))
    order = sorted(range(count), key=lambda i: positions[i])
    placed = [min(max(positions[i], low), high) for i in order]
    for i in range(1, count):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    placed[-1] = min(placed[-1], high)
    for i in range(count - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - gap)
    result = [0.0] * count
    for position, i in zip(placed, order, strict=True):
        result[i] = position
    return result


def haloed(chart: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """Return text with a white edge, which stays readable above lines."""
    return [chart.mark_text(stroke="#ffffff", strokeWidth=4, strokeJoin="round", **mark), chart.mark_text(**mark)]


def end_labels(
    labels: Sequence[tuple[float, float, str, str]],
    x: alt.X,
    y: alt.Y,
    domain: tuple[float, float],
    *,
    log: bool = False,
    height: float = HEIGHT,
) -> list[alt.Chart]:
    """Return labels (x, y, text, colour) at the right end of lines, moved apart where they would overlap.

    ``domain`` is the y axis' domain in data units, ``height`` its length in px.
    """
    if not labels:
        return []
    scaled = [math.log10(item[1]) if log else item[1] for item in labels]
    low, high = (math.log10(domain[0]), math.log10(domain[1])) if log else domain
    placed = spread(scaled, 16 * (high - low) / height, low, high)
    rows = [
        {"x": item[0], "y": 10**at if log else at, "text": item[2], "colour": text_colour(item[3])}
        for item, at in zip(labels, placed, strict=True)
    ]
    text = alt.Chart(data(rows)).encode(x=x, y=y, text=alt.Text("text:N"), color=alt.Color("colour:N", scale=None))
    return haloed(text, align="left", dx=8, fontSize=12, fontWeight=600)


def rules(
    marks: Sequence[tuple[float, str, str]], x: alt.X, y: alt.Y, domain: tuple[float, float], right: float, *, height: float = HEIGHT
) -> list[alt.Chart]:
    """Return vertical lines (x, text, colour). Their texts are staggered above the x axis and turned inwards at the right.

    ``right`` is the end of the x axis, ``domain`` the y axis' domain and ``height`` its length in px.
    """
    step = 18 * (domain[1] - domain[0]) / height
    rows = [
        {
            "x": at,
            "y": domain[0] + step * (0.7 + index),
            "text": text,
            "colour": colour,
            "ink": text_colour(colour),
            "left": at <= right * 0.55,
        }
        for index, (at, text, colour) in enumerate(sorted(marks))
    ]
    lines = alt.Chart(data(rows)).mark_rule(strokeDash=[3, 3], strokeWidth=1.5)
    charts = [lines.encode(x=x, color=alt.Color("colour:N", scale=None))] if rows else []
    for left in (True, False):  # texts above all lines
        part = [row for row in rows if row["left"] == left]
        texts = alt.Chart(data(part)).encode(x=x, y=y, text=alt.Text("text:N"), color=alt.Color("ink:N", scale=None))
        charts += haloed(texts, align="left" if left else "right", dx=6 if left else -6, fontSize=12) if part else []
    return charts


Line = tuple[Sequence[tuple[float, float]], str, float, Sequence[float]]
"""(points, colour, width in px, dash pattern)."""


def lines(series: Sequence[Line], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return lines as one layer, clipped to the plot. A line of one point is left out."""
    rows = [
        {"x": at, "y": value, "line": index, "colour": colour, "width": width, "dash": list(dash)}
        for index, (points, colour, width, dash) in enumerate(series)
        if len(points) > 1
        for at, value in points
    ]
    if not rows:
        return []
    chart = alt.Chart(data(rows)).mark_line(clip=True)
    style = {
        "color": alt.Color("colour:N", scale=None),
        "strokeWidth": alt.StrokeWidth("width:Q", scale=None),
        "strokeDash": alt.StrokeDash("dash:N", scale=None),
    }
    return [chart.encode(x=x, y=y, detail=alt.Detail("line:N"), **style)]


def level(at: float, text: str, right: float, x: alt.X, y: alt.Y, *, left: bool = False) -> list[alt.Chart]:
    """Return a horizontal reference line with its label at the right or left end."""
    rule = alt.Chart(data([{"y": at, "text": text}])).mark_rule(color=GREY, strokeDash=[5, 4], strokeWidth=1.2).encode(y=y)
    label = alt.Chart(data([{"x": 0 if left else right, "y": at, "text": f"{text} ({at:g} %)"}])).encode(x=x, y=y, text=alt.Text("text:N"))
    return [
        rule,
        *haloed(label, align="left" if left else "right", baseline="bottom", dx=4 if left else -2, dy=-3, color=MUTED, fontSize=11),
    ]


def line_with_bars(part: Sequence[Mapping[str, object]], x: alt.X, y: alt.Y, colour: str, shape: str) -> list[alt.Chart]:
    """Return rows of x, y, low, high as a line with points, and bars for rows with both ends of the interval."""
    source = alt.Chart(data(part))
    bars = alt.Chart(data([row for row in part if row.get("low") is not None and row.get("high") is not None]))
    return [
        source.mark_line(color=colour, strokeWidth=1.8).encode(x=x, y=y),
        bars.mark_rule(color=colour, strokeWidth=1.8).encode(x=x, y=on(y, "low:Q"), y2=alt.Y2("high:Q")),
        source.mark_point(color=colour, fill=colour, shape=shape, size=45, opacity=1).encode(x=x, y=y),
    ]


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return clean(value) if isinstance(value, str) else value
