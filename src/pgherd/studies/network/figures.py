"""The figures of a network run: throughput by streams, its shape beside the published ones, round trip times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, HEIGHT, MUTED, ORANGE, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, finite
from pgherd.studies.network import published

STUDY = "network"
MOST_LINKS = 4
"""Links that are drawn beside each other: with E14's two series there are colours enough for them."""


@register("order")
@register("seconds")
def untold(inputs: FigureInputs) -> Figure:
    """The general figures of transactions are not meant for bytes on a link."""
    raise FigureUnavailable


@register("streams")
def streams(inputs: FigureInputs) -> Figure:
    """Throughput of each link by its parallel streams, with intervals."""
    points, chosen = _chosen(_points(inputs, "throughput"))
    if len({point["x"] for point in points}) < 2:
        raise FigureUnavailable("fewer than two numbers of streams were measured")
    small = max(point["y"] for point in points) < 1
    for point in points if small else ():
        point |= {name: 1000 * point[name] for name in ("y", "low", "high") if point[name] is not None}
    unit = "Mbit/s" if small else "Gbit/s"
    sentence = inputs.analysis.answer.rstrip(".")
    subtitle = f"Mean over the trials; bars are its intervals, which may run out of the plot. Streams are on a logarithmic axis.{chosen}"
    chart = _curves(points, f"throughput, {unit}", sentence, subtitle)
    return Figure(sentence, chart, (TRIALS,))


@register("shape")
def shape(inputs: FigureInputs) -> Figure:
    """The same as shares of the best, beside E14's two shapes."""
    own, chosen = _chosen(_points(inputs, "throughput"))
    if len({point["x"] for point in own}) < 2:
        raise FigureUnavailable  # the figure of throughput says so
    points = [dict(point) for point in own]
    for link in {point["link"] for point in points}:
        best = max(point["y"] for point in points if point["link"] == link)
        for point in points:
            if point["link"] == link:
                point |= {name: 100 * point[name] / best for name in ("y", "low", "high") if point[name] is not None}
    for name, values in published.SERIES.items():
        points += [
            {"link": name, "x": x, "y": 100 * y / max(values), "low": None, "high": None}
            for x, y in zip(published.STREAMS, values, strict=True)
        ]
    known_links = {point["link"] for point in own}
    bounds = {link: known for link, known in inputs.analysis.figures.get("limits", {}).items() if clean(link) in known_links}
    said = {"latency": "like the cloud's", "bandwidth": "like that on premises"}
    sentences = [f"{clean(link)}: {said.get(known.get('bound'), 'like neither')}" for link, known in bounds.items()]
    sentence = f"The shape beside E14's: {'; '.join(sentences) or 'not told'}"
    subtitle = "Each series as a share of its own best. A stream bound by latency leaves room for more; one bound by bandwidth does not."
    subtitle += chosen
    return Figure(sentence, _curves(points, "throughput, % of the series' best", sentence, subtitle), (TRIALS,))


@register("rtt")
def rtt(inputs: FigureInputs) -> Figure:
    """Round trip times by streams, idle on the left."""
    points, chosen = _chosen(_points(inputs, "rtt", idle=True))
    if not any(point["x"] > 0 for point in points):
        raise FigureUnavailable("round trip times are known to the sender only")
    order = ["idle", *map(str, sorted({int(point["x"]) for point in points if point["x"] > 0}))]
    for point in points:
        point["at"] = "idle" if point["x"] == 0 else str(int(point["x"]))
    links = list(dict.fromkeys(point["link"] for point in points))
    x = alt.X("at:O", sort=order, title="parallel streams", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[0, _top(points)], nice=False)
    y = alt.Y("y:Q", title="round trip time, ms", scale=scale)
    colour = alt.Color("link:N", scale=alt.Scale(domain=links, range=list(SERIES[: len(links)])), legend=_legend(links))
    layers = [alt.Chart(data(points)).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, color=colour)]
    layers += chart_style.interval_bars(points, x, y, mark={"strokeWidth": 1.8, "clip": True}, color=colour)
    lowest, highest = (pick(points, key=lambda point: point["y"]) for pick in (min, max))
    sentence = f"A round trip takes {lowest['y']:.3g} ms ({lowest['at']}) to {highest['y']:.3g} ms ({highest['at']} streams)"
    subtitle = "The kernel's smoothed round trip time of each stream, mean over streams and seconds; what queues at the link adds to it."
    subtitle += chosen
    chart = alt.layer(*layers, width=chart_style.plot_width(links), height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _points(inputs: FigureInputs, column: str, *, idle: bool = False) -> list[dict[str, Any]]:
    found = []
    for row in inputs.analysis.tables.get(STUDY, []):
        cell, at = row.get(column), row.get("streams")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None and (isinstance(at, int) or idle):
            link = clean(row.get("link") or next(iter(inputs.analysis.figures.get("limits", {})), "the link"))
            x = at if isinstance(at, int) else 0
            found.append({"link": link, "x": x, "y": value, "low": finite(cell.low), "high": finite(cell.high)})
    return found


def _chosen(points: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Of more links than can be told apart those with the least, the middle and the greatest highest value; and words that say so."""
    highest: dict[str, float] = {}
    for point in points:
        highest[point["link"]] = max(point["y"], highest.get(point["link"], 0.0))
    if len(highest) <= MOST_LINKS:
        return points, ""
    ranked = sorted(highest, key=lambda link: highest[link])
    kept = {ranked[0], ranked[len(ranked) // 2], ranked[-1]}
    return [point for point in points if point["link"] in kept], f" Of {len(ranked)} links the lowest, the middle and the highest."


def _curves(points: Sequence[dict[str, Any]], title: str, sentence: str, subtitle: str) -> alt.TopLevelMixin:
    links = list(dict.fromkeys(point["link"] for point in points))
    own = [link for link in links if link not in published.SERIES]
    colours = {link: SERIES[index % len(SERIES)] if len(own) > 1 else BLUE for index, link in enumerate(own)}
    colours |= dict(zip(published.SERIES, (ORANGE, MUTED), strict=True))
    numbers = sorted({int(point["x"]) for point in points})
    scale = alt.Scale(type="log", base=2, domain=[numbers[0] * 0.9, numbers[-1] * 1.1], nice=False)
    x = alt.X("x:Q", scale=scale, title="parallel streams", axis=alt.Axis(values=numbers, format="d"))
    y = chart_style.y_axis([0, _top(points)], title=title)
    domain = alt.Scale(domain=links, range=[colours[link] for link in links])
    colour = alt.Color("link:N", scale=domain, legend=_legend(links))
    source = alt.Chart(data(points))
    layers = [
        source.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
        source.mark_point(size=55, filled=True, opacity=1).encode(x=x, y=y, color=colour),
    ]
    layers += chart_style.interval_bars(points, x, y, mark={"strokeWidth": 1.8, "clip": True}, color=colour)
    chart: alt.TopLevelMixin = alt.layer(
        *layers, width=chart_style.plot_width(links), height=HEIGHT, title=chart_style.title(sentence, subtitle)
    )
    return chart


def _top(points: Sequence[dict[str, Any]]) -> float:
    """Where the axis ends: a wide interval of few trials may run out of the plot, the values may not."""
    highest = max(float(point["y"]) for point in points)
    return chart_style.nice_ceiling(min(max(float(point["high"] or point["y"]) for point in points), 1.4 * highest) or 1.0)


def _legend(links: Sequence[str]) -> alt.Legend | None:
    return alt.Legend(title=None) if len(links) > 1 else None
