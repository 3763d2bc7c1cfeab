"""The measured points of a throughput curve, told apart by what limited them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, ORANGE, PURPLE, VERMILLION, data
from pgherd.report.data_files import Row
from pgherd.report.formatting import bounds, finite

Look = tuple[str, str, str, str]
"""Words of the legend, fill, stroke and shape."""

STORAGE: Look = ("limited by storage", PURPLE, PURPLE, "triangle-up")
UNKNOWN: Look = ("limit not seen", "#8c959f", "#59636e", "circle")
TAINTED: Look = ("has tainted trials", "transparent", VERMILLION, "circle")


def by_clients(words: str) -> Look:
    """How points look that the load generator limited."""
    return (words, ORANGE, ORANGE, "triangle-down")


def by_host(words: str) -> Look:
    """How points look that all of the host's cores limited."""
    return (words, BLUE, BLUE, "circle")


def limited_points(
    rows: Sequence[Row],
    position: Callable[[Row], float],
    looks: Mapping[str, Look],
    scale: float,
    x: alt.X,
    y: alt.Y,
    legend: alt.Legend,
) -> list[alt.Chart]:
    """Points with interval bars; a ring marks a point with tainted trials. The legend names only what is there.

    Args:
        rows: of a table with ``throughput`` (transactions/s), ``limited_by`` and ``tainted``.
        position: where a row's point lies on the x axis.
        looks: what a point looks like by its ``limited_by``.
        scale: transactions/s of one unit of the y axis.
        x: the x axis, of a field ``x``.
        y: the y axis, of a field ``y``.
        legend: where the words stand.
    """
    marks, rings, bars = [], [], []
    for row in rows:
        at = {"x": position(row), "y": (finite(row["throughput"]) or 0.0) / scale}
        low, high = bounds(row["throughput"])
        if low is not None and high is not None:
            bars.append({"x": at["x"], "low": low / scale, "high": high / scale})
        marks.append({**at, "kind": looks.get(str(row.get("limited_by")), UNKNOWN)[0]})
        if finite(row.get("tainted")):
            rings.append({**at, "kind": TAINTED[0]})
    present = [look for look in (*looks.values(), UNKNOWN, TAINTED) if any(mark["kind"] == look[0] for mark in marks + rings)]

    def scaled(part: int) -> alt.Scale:
        return alt.Scale(domain=[look[0] for look in present], range=[look[part] for look in present])

    def drawn(some: Sequence[Mapping[str, object]], size: float) -> alt.Chart:
        chart: alt.Chart = (
            alt.Chart(data(some))
            .mark_point(opacity=1, strokeWidth=2, size=size)
            .encode(
                x=x,
                y=y,
                fill=alt.Fill("kind:N", scale=scaled(1), legend=legend),
                stroke=alt.Stroke("kind:N", scale=scaled(2), legend=legend),
                shape=alt.Shape("kind:N", scale=scaled(3), legend=legend),
            )
        )
        return chart

    bar = alt.Chart(data(bars)).mark_rule(color=INK, strokeWidth=2).encode(x=x, y=chart_style.on(y, "low:Q"), y2=alt.Y2("high:Q"))
    return [*([bar] if bars else []), drawn(marks, 70), *([drawn(rings, 230)] if rings else [])]
