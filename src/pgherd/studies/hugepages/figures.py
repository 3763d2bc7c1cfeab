"""Figure of the huge pages study: the gain of each page size and the published gain. The comparison's figures are drawn too."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, ORANGE, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite
from pgherd.studies.hugepages.analyse import SOURCE, published_gain
from pgherd.study.comparison.answers import as_change

STUDY = "hugepages"
_ROW_HEIGHT = 54
"""Height of a page size's row, in px."""
_MEASURED, _PUBLISHED = "measured here", "published (E9)"


@register("gain")
def gain(inputs: FigureInputs) -> Figure:
    """Draw the change in throughput of each page size with its interval, and the published change."""
    points: list[dict[str, object]] = []
    ends: list[float] = [0.0]
    for row in inputs.analysis.tables.get(STUDY, []):
        kind, cell = clean(row.get("pages")), row.get("gain")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None:
            low, high = finite(cell.low), finite(cell.high)
            points.append({"kind": kind, "x": value, "low": low, "high": high, "who": _MEASURED})
            ends += [end for end in (value, low, high) if end is not None]
        if isinstance(cell, Finding) and cell.published and (reference := published_gain(kind)) is not None:
            points.append({"kind": kind, "x": reference, "low": None, "high": None, "who": _PUBLISHED})
            ends.append(reference)
    if not any(point["who"] == _MEASURED for point in points):
        raise FigureUnavailable("no page size could be compared")
    margin = max(1.0, 0.06 * (max(ends) - min(ends)))
    scale = alt.Scale(domain=[min(ends) - margin, max(ends) + margin], nice=False)
    axis_title = f"change in throughput against {clean(inputs.analysis.tables[STUDY][0].get('pages'))}, %"
    x = alt.X("x:Q", scale=scale, title=axis_title)
    y = alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False))
    sources = [source for source in (_MEASURED, _PUBLISHED) if any(point["who"] == source for point in points)]
    colours, shapes = {_MEASURED: BLUE, _PUBLISHED: ORANGE}, {_MEASURED: "circle", _PUBLISHED: "diamond"}
    offset = alt.YOffset("who:N", scale=alt.Scale(domain=sources))
    layers: list[alt.Chart] = [alt.Chart(data([{"x": 0}])).mark_rule(color=INK, strokeWidth=1.2).encode(x=x)]
    layers += chart_style.interval_bars(points, x, y, horizontal=True, mark={"color": BLUE, "strokeWidth": 2}, yOffset=offset)
    marks = alt.Chart(data(points)).mark_point(size=90, filled=True, opacity=1)
    colour_scale = alt.Scale(domain=sources, range=[colours[source] for source in sources])
    shape_scale = alt.Scale(domain=sources, range=[shapes[source] for source in sources])
    layers.append(
        marks.encode(
            x=x,
            y=y,
            yOffset=offset,
            color=alt.Color("who:N", scale=colour_scale, legend=alt.Legend(title=None)),
            shape=alt.Shape("who:N", scale=shape_scale, legend=alt.Legend(title=None)),
        )
    )
    title = "; ".join(f"{point['kind']}: {_change_text(point)}" for point in points if point["who"] == _MEASURED)
    subtitle = f"Bars are intervals. {SOURCE}: PostgreSQL 11, shared_buffers 16 GB, one run of 600 s each, without intervals."
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([_PUBLISHED]),
        height=_ROW_HEIGHT * len({point["kind"] for point in points}),
        title=chart_style.title(title, subtitle),
    )
    return Figure(title, chart, (TRIALS,))


def _change_text(point: Mapping[str, object]) -> str:
    """Return ``+6.1 % (+4.0 … +8.2 %)``."""
    value, low, high = (None if (part := finite(point[name])) is None else 1 + part / 100 for name in ("x", "low", "high"))
    return as_change(value or 1.0, low, high) + (" (no interval)" if low is None or high is None else "")
