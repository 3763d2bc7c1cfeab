"""The figure of a network run between all pairs of a cluster's hosts: a matrix of what each pair carries."""

from __future__ import annotations

from typing import Any

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, clean, finite

STUDY = "network"
_CELL = 64
"""Width of a cell where there is room for it, in px; half as high."""


@register("matrix")
def matrix(inputs: FigureInputs) -> Figure:
    """Senders down, receivers across; a cell says what the pair carries, and its shade how that stands to the fastest."""
    cells: list[dict[str, Any]] = [
        {"from": clean(row["from"]), "to": clean(name.removeprefix("to ")), "y": value}
        for row in inputs.analysis.tables.get("matrix", [])
        for name, found in row.items()
        if isinstance(found, Finding) and (value := finite(found)) is not None
    ]
    if not cells:
        raise FigureUnavailable  # it was not between the hosts of a cluster
    values = [cell["y"] for cell in cells]
    top = max(values)
    small = top < 1
    scale, unit = (1000, "Mbit/s") if small else (1, "Gbit/s")
    for cell in cells:
        cell |= {"text": brief(scale * cell["y"]), "share": cell["y"] / top, "dark": cell["y"] > 0.75 * top}
    hosts = list(dict.fromkeys([*(cell["from"] for cell in cells), *(cell["to"] for cell in cells)]))
    slow, fast = (pick(cells, key=lambda cell: cell["y"]) for pick in (min, max))
    sentence = (
        f"{slow['from']} → {slow['to']} carries least, {slow['text']} {unit}; {fast['from']} → {fast['to']} most, {fast['text']} {unit}"
    )
    subtitle = f"{unit} from the host at the left to the one above, with the pair's best number of streams; each pair was measured alone."
    size = min(_CELL, (chart_style.WIDTH - 160) // len(hosts))
    x = alt.X("to:N", sort=hosts, title="to", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False))
    y = alt.Y("from:N", sort=hosts, title="from", axis=alt.Axis(ticks=False, domain=False))
    shade = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=["#ffffff", BLUE]), legend=None)
    tiles = alt.Chart(data(cells)).mark_rect(stroke="#ffffff", strokeWidth=2).encode(x=x, y=y, color=shade)
    layers = [tiles]
    if size >= 30:
        ink = alt.condition("datum.dark", alt.value("#ffffff"), alt.value(INK))
        layers.append(alt.Chart(data(cells)).mark_text(fontSize=12).encode(x=x, y=y, text="text:N", color=ink))
    chart = alt.layer(*layers, width=size * len(hosts), height=max(24, size // 2) * len(hosts), title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))
