"""Figures of a network run: matrix of all pairs of hosts, throughput by streams, its shape next to E14's, round-trip times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, HEIGHT, INK, MUTED, ORANGE, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, finite
from pgherd.studies.network.link_results import PUBLISHED_SERIES, PUBLISHED_STREAMS

STUDY = "network"
MAX_LINKS = 4
"""Maximum of links in one figure: with E14's two series, there are enough colours for them."""
_CELL_WIDTH = 64
"""Largest width of a matrix cell, in px. Its height is half of that."""


@register("matrix")
def matrix(inputs: FigureInputs) -> Figure:
    """Draw a cell per pair: rows are senders, columns receivers. Text is the throughput, shade its ratio to the fastest pair."""
    cells: list[dict[str, Any]] = [
        {"from": clean(row["from"]), "to": clean(name.removeprefix("to ")), "y": value}
        for row in inputs.analysis.tables.get("matrix", [])
        for name, cell in row.items()
        if isinstance(cell, Finding) and (value := finite(cell)) is not None
    ]
    if not cells:
        raise FigureUnavailable  # a run that is not between the hosts of a cluster
    values = [cell["y"] for cell in cells]
    top = max(values)
    small = top < 1
    scale, unit = (1000, "Mbit/s") if small else (1, "Gbit/s")
    for cell in cells:
        cell |= {"text": brief(scale * cell["y"]), "share": cell["y"] / top, "dark": cell["y"] > 0.75 * top}
    hosts = list(dict.fromkeys([*(cell["from"] for cell in cells), *(cell["to"] for cell in cells)]))
    slow, fast = (pick(cells, key=lambda cell: cell["y"]) for pick in (min, max))
    title = f"{slow['from']} → {slow['to']} carries least, {slow['text']} {unit}; {fast['from']} → {fast['to']} most, {fast['text']} {unit}"
    subtitle = f"{unit} from the host at the left to the host at the top, at the pair's best number of streams. Each pair alone."
    size = min(_CELL_WIDTH, (chart_style.WIDTH - 160) // len(hosts))
    x = alt.X("to:N", sort=hosts, title="to", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False))
    y = alt.Y("from:N", sort=hosts, title="from", axis=alt.Axis(ticks=False, domain=False))
    shade = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=["#ffffff", BLUE]), legend=None)
    tiles = alt.Chart(data(cells)).mark_rect(stroke="#ffffff", strokeWidth=2).encode(x=x, y=y, color=shade)
    layers = [tiles]
    if size >= 30:
        ink = alt.condition("datum.dark", alt.value("#ffffff"), alt.value(INK))
        layers.append(alt.Chart(data(cells)).mark_text(fontSize=12).encode(x=x, y=y, text="text:N", color=ink))
    chart = alt.layer(*layers, width=size * len(hosts), height=max(24, size // 2) * len(hosts), title=chart_style.title(title, subtitle))
    return Figure(title, chart, (TRIALS,))


@register("order")
@register("seconds")
def not_applicable(inputs: FigureInputs) -> Figure:
    """Leave out the general figures, which show transactions."""
    raise FigureUnavailable


@register("streams")
def streams(inputs: FigureInputs) -> Figure:
    """Draw the throughput of each link by its parallel streams, with intervals."""
    points, selection = _select_links(_points(inputs, "throughput"))
    if len({point["x"] for point in points}) < 2:
        raise FigureUnavailable("fewer than two numbers of streams were measured")
    small = max(point["y"] for point in points) < 1
    for point in points if small else ():
        point |= {name: 1000 * point[name] for name in ("y", "low", "high") if point[name] is not None}
    unit = "Mbit/s" if small else "Gbit/s"
    sentence = inputs.analysis.answer.rstrip(".")
    subtitle = f"Mean over the trials. Bars are intervals, cut off at the edge. The axis of streams is logarithmic.{selection}"
    chart = _curves(points, f"throughput, {unit}", sentence, subtitle)
    return Figure(sentence, chart, (TRIALS,))


@register("shape")
def shape(inputs: FigureInputs) -> Figure:
    """Draw the throughput as a share of the best, with E14's two shapes for comparison."""
    measured, selection = _select_links(_points(inputs, "throughput"))
    if len({point["x"] for point in measured}) < 2:
        raise FigureUnavailable  # the figure of throughput gives the reason
    points = [dict(point) for point in measured]
    for link in {point["link"] for point in points}:
        best = max(point["y"] for point in points if point["link"] == link)
        for point in points:
            if point["link"] == link:
                point |= {name: 100 * point[name] / best for name in ("y", "low", "high") if point[name] is not None}
    for name, values in PUBLISHED_SERIES.items():
        points += [
            {"link": name, "x": x, "y": 100 * y / max(values), "low": None, "high": None}
            for x, y in zip(PUBLISHED_STREAMS, values, strict=True)
        ]
    links = {point["link"] for point in measured}
    bottlenecks = {link: result for link, result in inputs.analysis.figures.get("bottlenecks", {}).items() if clean(link) in links}
    labels = {"latency": "like the cloud's", "bandwidth": "like that on premises"}
    shapes = [f"{clean(link)}: {labels.get(result.get('bottleneck'), 'like neither')}" for link, result in bottlenecks.items()]
    sentence = f"Shape compared with E14's: {'; '.join(shapes) or 'unknown'}"
    subtitle = "Each series as a share of its best. If latency limits a stream, more streams help. If bandwidth does, they do not."
    subtitle += selection
    return Figure(sentence, _curves(points, "throughput, % of the series' best", sentence, subtitle), (TRIALS,))


@register("rtt")
def rtt(inputs: FigureInputs) -> Figure:
    """Draw round-trip times by streams, with the idle link on the left."""
    points, selection = _select_links(_points(inputs, "rtt", idle=True))
    if not any(point["x"] > 0 for point in points):
        raise FigureUnavailable("round-trip times are known to the sender only")
    order = ["idle", *map(str, sorted({int(point["x"]) for point in points if point["x"] > 0}))]
    for point in points:
        point["at"] = "idle" if point["x"] == 0 else str(int(point["x"]))
    links = list(dict.fromkeys(point["link"] for point in points))
    x = alt.X("at:O", sort=order, title="parallel streams", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[0, _top(points)], nice=False)
    y = alt.Y("y:Q", title="round-trip time, ms", scale=scale)
    colour = alt.Color("link:N", scale=alt.Scale(domain=links, range=list(SERIES[: len(links)])), legend=_legend(links))
    layers = [alt.Chart(data(points)).mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, color=colour)]
    layers += chart_style.interval_bars(points, x, y, mark={"strokeWidth": 1.8, "clip": True}, color=colour)
    lowest, highest = (pick(points, key=lambda point: point["y"]) for pick in (min, max))
    sentence = f"A round trip takes {lowest['y']:.3g} ms ({lowest['at']}) to {highest['y']:.3g} ms ({highest['at']} streams)"
    subtitle = "The kernel's smoothed round-trip time, mean over streams and seconds. It includes queueing at the link."
    subtitle += selection
    chart = alt.layer(*layers, width=chart_style.plot_width(links), height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _points(inputs: FigureInputs, column: str, *, idle: bool = False) -> list[dict[str, Any]]:
    points = []
    for row in inputs.analysis.tables.get(STUDY, []):
        cell, streams = row.get(column), row.get("streams")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None and (isinstance(streams, int) or idle):
            link = clean(row.get("link") or next(iter(inputs.analysis.figures.get("bottlenecks", {})), "the link"))
            x = streams if isinstance(streams, int) else 0
            points.append({"link": link, "x": x, "y": value, "low": finite(cell.low), "high": finite(cell.high)})
    return points


def _select_links(points: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the points of at most MAX_LINKS links, and a sentence for the subtitle.

    Of more links, those with the lowest, the middle and the highest maximum are kept.
    """
    highest: dict[str, float] = {}
    for point in points:
        highest[point["link"]] = max(point["y"], highest.get(point["link"], 0.0))
    if len(highest) <= MAX_LINKS:
        return points, ""
    ranked = sorted(highest, key=lambda link: highest[link])
    selected = {ranked[0], ranked[len(ranked) // 2], ranked[-1]}
    return [point for point in points if point["link"] in selected], f" Of {len(ranked)} links the lowest, the middle and the highest."


def _curves(points: Sequence[dict[str, Any]], title: str, sentence: str, subtitle: str) -> alt.TopLevelMixin:
    links = list(dict.fromkeys(point["link"] for point in points))
    measured = [link for link in links if link not in PUBLISHED_SERIES]
    colours = {link: SERIES[index % len(SERIES)] if len(measured) > 1 else BLUE for index, link in enumerate(measured)}
    colours |= dict(zip(PUBLISHED_SERIES, (ORANGE, MUTED), strict=True))
    numbers = sorted({int(point["x"]) for point in points})
    scale = alt.Scale(type="log", base=2, domain=[numbers[0] * 0.9, numbers[-1] * 1.1], nice=False)
    x = alt.X("x:Q", scale=scale, title="parallel streams", axis=alt.Axis(values=numbers, format="d"))
    y = alt.Y("y:Q", title=title, scale=alt.Scale(domain=[0, _top(points)], nice=False))
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
    """Return the end of the axis. A wide interval of few trials may exceed it, a value may not."""
    highest = max(float(point["y"]) for point in points)
    return chart_style.nice_ceiling(min(max(float(point["high"] or point["y"]) for point in points), 1.4 * highest) or 1.0)


def _legend(links: Sequence[str]) -> alt.Legend | None:
    return alt.Legend(title=None) if len(links) > 1 else None
