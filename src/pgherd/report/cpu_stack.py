"""Where the host's CPU went, as stacked bars: shared by the studies that have a table of it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, FAINT, GREEN, HEIGHT, INK, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, data
from pgherd.report.data_files import Row
from pgherd.report.formatting import clean, finite

_PARTS = {
    "databases_cpu": ("databases", BLUE),
    "clients": ("clients", SKY),
    "platform": ("platform", ORANGE),
    "": ("not told apart", "#7f9db0"),
    "pgherd": ("pgherd", VERMILLION),
    "iowait": ("iowait", PURPLE),
    "steal": ("steal", INK),
    "idle": ("idle", FAINT),
}
"""Column → name and colour, from the bottom of the stack to its top; '' is what only the host's total shows."""


def stack(bars: Sequence[tuple[float, Row]], total: float | None, axis_title: str, sentence: str, what: str) -> alt.TopLevelMixin:
    """One bar for each (load, row of cores), at least one; ``total`` is the host's CPUs, ``what`` names 'databases_cpu'."""
    rows = [row for _, row in bars]
    order = _order(rows, total, what)
    stacked = [segment for load, row in bars for segment in _segments(load, row, order, total)]
    top = max(high for _, _, high, *_ in stacked)
    x = alt.X("x:O", sort=None, axis=alt.Axis(title=axis_title, labelAngle=0), scale=alt.Scale(paddingInner=0.25))
    y = alt.Y("low:Q", title="cores", scale=alt.Scale(domain=[0, top], nice=False))
    values = [{"x": f"{n:g}", "low": low, "high": high, "colour": colour} for n, low, high, _, colour in stacked]
    drawn = alt.Chart(data(values)).mark_bar(stroke="#ffffff", strokeWidth=0.5)
    last = stacked[-len(order) :]
    placed = chart_style.spread([(low + high) / 2 for _, low, high, *_ in last], 18 * top / HEIGHT, 0, top)
    keys = [{"y": at, "swatch": "■", "name": name, "colour": colour} for at, (*_, name, colour) in zip(placed, last, strict=True)]
    width = chart_style.plot_width(["  " + name for *_, name, _ in last])
    beside = alt.Chart(data(keys)).encode(x=alt.value(width + 6), y=chart_style.on(y, "y:Q"))
    layers = [
        drawn.encode(x=x, y=y, y2=alt.Y2("high:Q"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", fontSize=16).encode(text=alt.Text("swatch:N"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", dx=16, fontSize=12).encode(text=alt.Text("name:N")),
    ]
    subtitle = "Mean over the common window of each point's trials."
    if any(column.startswith("platform.") for column, *_ in order):
        subtitle += " Named parts of the platform are drawn apart from its rest."
    if any(not column for column, *_ in order):
        subtitle += f" This runtime does not show the containers' CPU: {what} and platform are not told apart."
    return alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))


def _order(rows: Sequence[Row], total: float | None, what: str) -> list[tuple[str, str, str]]:
    """(column, name, colour) from the bottom to the top, of the columns that have a number."""
    named = sorted({name for row in rows for name in row if name.startswith("platform.")})
    order = []
    for column, (name, colour) in _PARTS.items():
        if column == "databases_cpu":
            name = what
        if column == "platform":
            order += [(part, f"platform: {clean(part.removeprefix('platform.'))}", (GREEN, YELLOW)[i % 2]) for i, part in enumerate(named)]
            name = "platform, the rest" if named else name
        order.append((column, name, colour))
    unseen = total is not None and any(finite(row.get("databases_cpu")) is None for row in rows)
    return [part for part in order if (any(finite(row.get(part[0])) is not None for row in rows) if part[0] else unseen)]


def _segments(
    load: float, row: Row, order: Sequence[tuple[str, str, str]], total: float | None
) -> list[tuple[float, float, float, str, str]]:
    """(load, low, high, name, colour) of one bar, in cores."""
    held = {column: max(finite(row.get(column)) or 0.0, 0.0) for column, *_ in order if column}
    # Named parts are contained in the platform's figure, and drawn beside it: only the rest of it is drawn under its own name.
    parts = sum(cores for column, cores in held.items() if column.startswith("platform."))
    if "platform" in held:
        held["platform"] = max(held["platform"] - parts, 0.0)
    unseen = finite(row.get("databases_cpu")) is None
    held[""] = max((total or 0.0) - sum(held.values()), 0.0) if unseen else 0.0
    segments, below = [], 0.0
    for column, name, colour in order:
        segments.append((load, below, below + held[column], name, colour))
        below += held[column]
    return segments
