"""Figure of a database-size run: size by scale factor, measured, predicted and published."""

from __future__ import annotations

from typing import Any

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, ORANGE, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite

_KINDS = {"measured": (BLUE, "circle"), "predicted": (GREEN, "square"), "published (E10)": (ORANGE, "cross")}


@register("sizes")
def sizes(inputs: FigureInputs) -> Figure:
    """Draw sizes by scale factor on logarithmic axes. The bend at small scales is the base size of a database."""
    rows = [
        {"x": finite(row.get("scale")), "y": finite(row.get("size")), "kind": clean(row.get("source"))}
        for row in inputs.analysis.tables.get("sizes", [])
    ]
    line = inputs.analysis.figures.get("line", {})
    if len(rows) < 2 or not line.get("points"):
        raise FigureUnavailable("fewer than two sizes were measured")
    published = [{"x": point["scale"], "y": point["size"], "kind": "published (E10)"} for point in line.get("published", [])]
    points = [point for point in [*rows, *published] if point["x"] and point["y"]]
    scales, megabytes = ([float(point[name]) for point in points] for name in ("x", "y"))
    x = alt.X("x:Q", **_logarithmic("pgbench scale factor", scales))
    y = alt.Y("y:Q", **_logarithmic("size of the database, MB", megabytes))
    fitted = [(point["scale"], point["size"]) for point in line["points"]]
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
    subtitle = "Both axes are logarithmic. 1 MB is 2^20 bytes. The line is the fit. The article behind E10 calls these sizes working sets."
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
