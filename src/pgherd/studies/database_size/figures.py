"""The figure of a sizes run: size by scale factor, measured, predicted and published."""

from __future__ import annotations

from typing import Any

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, ORANGE, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, finite

_KINDS = {"measured": (BLUE, "circle"), "predicted": (GREEN, "square"), "published (E10)": (ORANGE, "cross")}


@register("sizes")
def sizes(inputs: FigureInputs) -> Figure:
    """Sizes over scale factors, both axes logarithmic: a line that bends here is the fixed part of a small database."""
    found = [
        {"x": finite(row.get("scale")), "y": finite(row.get("size")), "kind": clean(row.get("how"))}
        for row in inputs.analysis.tables.get("sizes", [])
    ]
    line = inputs.analysis.figures.get("line", {})
    if len(found) < 2 or not line.get("points"):
        raise FigureUnavailable("fewer than two sizes were measured")
    beside = [{"x": one["scale"], "y": one["size"], "kind": "published (E10)"} for one in line.get("published", [])]
    points = [row for row in [*found, *beside] if row["x"] and row["y"]]
    scales, megabytes = ([float(row[name]) for row in points] for name in ("x", "y"))
    x = alt.X("x:Q", **_logarithmic("pgbench scale factor", scales))
    y = alt.Y("y:Q", **_logarithmic("size of the database, MB", megabytes))
    fitted = [(one["scale"], one["size"]) for one in line["points"]]
    kinds = list(_KINDS)
    marks = (
        alt.Chart(data(points))
        .mark_point(size=90, filled=True, opacity=0.9, stroke="#ffffff", strokeWidth=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "kind:N", scale=alt.Scale(domain=kinds, range=[_KINDS[kind][0] for kind in kinds]), legend=alt.Legend(title=None)
            ),
            shape=alt.Shape(
                "kind:N", scale=alt.Scale(domain=kinds, range=[_KINDS[kind][1] for kind in kinds]), legend=alt.Legend(title=None)
            ),
        )
    )
    sentence = inputs.analysis.answer.rstrip(".")
    subtitle = (
        "Both axes are logarithmic; 1 MB is 2^20 bytes. The line is the fit. The article that E10 comes from says working set, not size."
    )
    chart = alt.layer(
        *chart_style.lines([(fitted, INK, 1.2, [1, 0])], x, y),
        marks,
        width=chart_style.plot_width(["published (E10)"]),
        height=HEIGHT,
        title=chart_style.title(sentence, subtitle),
    )
    return Figure(sentence, chart, (TRIALS,))


def _logarithmic(title: str, values: list[float]) -> dict[str, Any]:
    scale = alt.Scale(type="log", domain=[min(values) / 1.5, max(values) * 1.5], nice=False)
    return {"scale": scale, "axis": alt.Axis(title=title, format="~s", tickCount=6)}
