"""The figures of a comparison of pages: what each kind gains beside what was published, and those of every comparison."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, ORANGE, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, finite
from pgherd.studies.hugepages import published
from pgherd.study.comparison.answers import as_change

STUDY = "hugepages"
_STEP = 54
"""Height of a kind's row, in px."""
_OURS, _THEIRS = "measured here", "published (E9)"


@register("gain")
def gain(inputs: FigureInputs) -> Figure:
    """The change in throughput on each kind of pages with its interval, and the published one."""
    points: list[dict[str, object]] = []
    ends: list[float] = [0.0]
    for row in inputs.analysis.tables.get(STUDY, []):
        kind, cell = clean(row.get("pages")), row.get("gain")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None:
            low, high = finite(cell.low), finite(cell.high)
            points.append({"kind": kind, "x": value, "low": low, "high": high, "who": _OURS})
            ends += [end for end in (value, low, high) if end is not None]
        if isinstance(cell, Finding) and cell.published and (beside := published.gain(kind)) is not None:
            points.append({"kind": kind, "x": beside, "low": None, "high": None, "who": _THEIRS})
            ends.append(beside)
    if not any(point["who"] == _OURS for point in points):
        raise FigureUnavailable("no kind of pages could be compared")
    margin = max(1.0, 0.06 * (max(ends) - min(ends)))
    domain_x = [min(ends) - margin, max(ends) + margin]
    words = f"change in throughput against {clean(inputs.analysis.tables[STUDY][0].get('pages'))}, %"
    x = chart_style.x_axis(domain_x, title=words)
    y = alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False))
    domain = [who for who in (_OURS, _THEIRS) if any(point["who"] == who for point in points)]
    colours, shapes = {_OURS: BLUE, _THEIRS: ORANGE}, {_OURS: "circle", _THEIRS: "diamond"}
    offset = alt.YOffset("who:N", scale=alt.Scale(domain=domain))
    layers: list[alt.Chart] = [chart_style.reference_line(x, 0, color=INK, strokeWidth=1.2)]
    layers += chart_style.interval_bars(points, x, y, horizontal=True, mark={"color": BLUE, "strokeWidth": 2}, yOffset=offset)
    marks = alt.Chart(data(points)).mark_point(size=90, filled=True, opacity=1)
    layers.append(
        marks.encode(
            x=x,
            y=y,
            yOffset=offset,
            color=alt.Color("who:N", scale=alt.Scale(domain=domain, range=[colours[who] for who in domain]), legend=alt.Legend(title=None)),
            shape=alt.Shape("who:N", scale=alt.Scale(domain=domain, range=[shapes[who] for who in domain]), legend=alt.Legend(title=None)),
        )
    )
    sentence = "; ".join(f"{point['kind']}: {_told(point)}" for point in points if point["who"] == _OURS)
    subtitle = f"Bars are intervals. {published.SOURCE}: PostgreSQL 11, shared_buffers 16 GB, one run of 600 s each, without intervals."
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([_THEIRS]),
        height=_STEP * len({point["kind"] for point in points}),
        title=chart_style.title(sentence, subtitle),
    )
    return Figure(sentence, chart, (TRIALS,))


def _told(point: Mapping[str, object]) -> str:
    """``+6.1 % (+4.0 … +8.2 %)``."""
    value, low, high = (None if (part := finite(point[name])) is None else 1 + part / 100 for name in ("x", "low", "high"))
    return as_change(value or 1.0, low, high) + (" (no interval)" if low is None or high is None else "")
