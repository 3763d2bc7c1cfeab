"""The figures of a working-set run: throughput against memory and against shared buffers, misses and waiting beside it, and all
estimates side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, HEIGHT, INK, MUTED, ORANGE, SERIES, VERMILLION, data, end_labels, text_colour
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, clean, finite

STUDY = "working-set"
VARIED = {"memory": "container memory", "buffers": "shared buffers"}
NAMES = {"memory": "working_set", "buffers": "buffers"}
TALL = HEIGHT + 20
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_ESTIMATES = (
    ("working_set", "knee of throughput", BLUE, "circle"),
    ("by_misses", "no more misses", VERMILLION, "square"),
    ("by_use", "in use at the largest size", "#009E73", "diamond"),
    ("by_pressure", "no waiting from here on", "#8c959f", "triangle-up"),
)


@register("memory")
def memory(inputs: FigureInputs) -> Figure:
    """Throughput against the container's memory, with shared buffers fixed."""
    return _sweep(inputs, "memory")


@register("buffers")
def buffers(inputs: FigureInputs) -> Figure:
    """Throughput against shared buffers, with the difference to the container's memory fixed."""
    return _sweep(inputs, "buffers")


def _curves(inputs: FigureInputs, sweep: str) -> list[tuple[Mapping[str, Any], list[Row]]]:
    """What was drawn up for each curve of a sweep, with its rows that have a throughput."""
    known = [curve for curve in inputs.analysis.figures.get("curves", []) if curve.get("sweep") == sweep]
    rows = [row for row in inputs.analysis.tables.get("sweep", []) if row.get("varied") == VARIED[sweep]]
    found = [(curve, [row for row in rows if row.get("clients") == curve["clients"] and finite(row.get("throughput"))]) for curve in known]
    return [(curve, some) for curve, some in found if some]


def _size(row: Row, sweep: str) -> float:
    return finite(row.get(sweep)) or 0.0


def _sweep(inputs: FigureInputs, sweep: str) -> Figure:
    found = _curves(inputs, sweep)
    if not found:
        if any(curve.get("sweep") == sweep for curve in inputs.analysis.figures.get("curves", [])):
            raise FigureUnavailable("no server lived at any size of this sweep")
        raise FigureUnavailable
    ends = [_size(row, sweep) for _, rows in found for row in rows] + [float(size) for curve, _ in found for size in curve["dead"]]
    heights = [value for _, rows in found for row in rows for value in (finite(row["throughput"]), *bounds(row["throughput"])) if value]
    unit, scale = ("thousand transactions/s", 1e3) if max(heights) >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(max(heights) / scale * 1.05)
    margin = (max(ends) - min(ends)) * 0.04 or 1.0
    left, right = max(0.0, min(ends) - margin), max(ends) + margin
    x = alt.X(
        "x:Q", scale=alt.Scale(domain=[left, right], nice=False), axis=alt.Axis(title=f"{VARIED[sweep]}, MB", grid=False, tickCount=8)
    )
    y = chart_style.y_axis([0, top], title=unit)
    layers: list[alt.Chart] = _published(found, sweep, x, y, top, (left, right))
    labels = []
    for index, (curve, rows) in enumerate(found):
        layers += _curve(curve, rows, sweep, scale, top, x, y, index)
        last = max(rows, key=lambda row: _size(row, sweep))
        labels.append((right, (finite(last["throughput"]) or 0.0) / scale, _clients(curve["clients"]), SERIES[index % len(SERIES)]))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = _sentence(inputs, sweep, found)
    subtitle = (
        "Points are means of a size's trials, bars their intervals where there are three or more. The line is the fitted knee, the shaded "
        "band its interval; a cross stands at a size that does not live."
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": TALL}
    chart = alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size)
    caption = "The fit is of the time per transaction, which falls in a straight line where reads are saved: its inverse is drawn."
    return Figure(sentence, chart, (TRIALS,), caption)


def _curve(
    curve: Mapping[str, Any], rows: Sequence[Row], sweep: str, scale: float, top: float, x: alt.X, y: alt.Y, place: int
) -> list[alt.Chart]:
    """One load: the knee's band and line, the fitted curve, points with bars, crosses for sizes that do not live."""
    colour, shape = SERIES[place % len(SERIES)], SHAPES[place % len(SHAPES)]
    layers: list[alt.Chart] = []
    low, high, knee = (finite(curve.get(name)) for name in ("low", "high", "knee"))
    if low is not None and high is not None and high > low:
        band = alt.Chart(data([{"x": low, "end": high, "y": 0, "top": top}])).mark_rect(color=colour, opacity=0.13)
        layers.append(band.encode(x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("top:Q")))
    if knee is not None:
        layers.append(chart_style.reference_line(x, knee, color=colour, strokeDash=[4, 3], strokeWidth=1.4))
    fitted = [(at, value / scale) for at, value in curve["line"]]
    layers += chart_style.lines([(fitted, colour, 1.6, [1, 0])], x, y)
    points = []
    for row in rows:
        ends = bounds(row["throughput"])
        at = {"x": _size(row, sweep), "y": (finite(row["throughput"]) or 0.0) / scale}
        points.append({**at, **{name: end and end / scale for name, end in zip(("low", "high"), ends, strict=True)}})
    layers += chart_style.interval_bars(points, x, y, mark={"color": colour, "strokeWidth": 1.6, "clip": True})
    layers.append(alt.Chart(data(points)).mark_point(color=colour, fill=colour, shape=shape, size=48, opacity=0.9).encode(x=x, y=y))
    if curve["dead"]:
        dead = alt.Chart(data([{"x": size, "y": top * (0.03 + 0.04 * place)} for size in curve["dead"]]))
        layers.append(dead.mark_point(color=colour, shape="cross", angle=45, size=90, opacity=1, filled=True).encode(x=x, y=y))
    return layers


def _published(
    found: Sequence[tuple[Mapping[str, Any], list[Row]]], sweep: str, x: alt.X, y: alt.Y, top: float, ends: tuple[float, float]
) -> list[alt.Chart]:
    """E7's own knees, where they lie within the figure: on another machine and another database they seldom do."""
    from pgherd.studies.working_set.published import SIZES

    marks = []
    for curve, _ in found:
        size = SIZES[sweep].get(curve["clients"])
        if size is not None and ends[0] <= size <= ends[1]:
            marks.append((float(size), f"E7, another machine: {size} MB", ORANGE))
    return chart_style.rules(marks, x, y, (0, top), ends[1], height=TALL)


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


def _sentence(inputs: FigureInputs, sweep: str, found: Sequence[tuple[Mapping[str, Any], list[Row]]]) -> str:
    parts = []
    for curve, _ in found:
        finding = inputs.analysis.findings.get(f"{NAMES[sweep]}.{curve['clients']}")
        value = finite(finding)
        who = _clients(curve["clients"])
        if finding is None or value is None:
            parts.append(f"no knee with {who}")
            continue
        low, high = bounds(finding)
        parts.append(f"{value:.0f} MB{'' if low is None or high is None else f' ({low:.0f}–{high:.0f})'} with {who}")
    head = "Container memory is enough from" if sweep == "memory" else "Shared buffers are enough from"
    if all(part.startswith("no knee") for part in parts):
        return f"{VARIED[sweep].capitalize()}: {', '.join(parts)}"
    return f"{head} {', '.join(parts)}"


@register("misses")
def misses(inputs: FigureInputs) -> Figure:
    """What is read again, and how long tasks wait, against the container's memory."""
    found = _curves(inputs, "memory")
    found = [(curve, [row for row in rows if finite(row.get("refaults")) is not None]) for curve, rows in found]
    found = [(curve, rows) for curve, rows in found if len(rows) > 1]
    if not found:
        raise FigureUnavailable("file pages read again were not seen at two sizes or more")
    drawn = [
        _panel(found, "refaults", "pages read again /transaction", 1.0),
        _panel(found, "waiting", "waiting for memory or I/O, % of time", 100.0),
    ]
    panels = [panel for panel in drawn if panel is not None]
    sentence = "Seen from inside: pages that were evicted and read again, and the time in which tasks waited for them"
    subtitle = "Means of each size's trials. Where both are near zero the memory is enough, whatever limits the load then."
    chart = alt.hconcat(*panels, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _panel(found: Sequence[tuple[Mapping[str, Any], list[Row]]], column: str, title: str, factor: float) -> Any | None:
    rows: list[dict[str, object]] = []
    for curve, some in found:
        for row in some:
            value = finite(row.get(column))
            if value is not None:
                rows.append({"x": _size(row, "memory"), "y": value * factor, "load": _clients(curve["clients"])})
    if not rows:
        return None
    loads = [_clients(curve["clients"]) for curve, _ in found]
    colours = [SERIES[index % len(SERIES)] for index in range(len(loads))]
    colour = alt.Color("load:N", scale=alt.Scale(domain=loads, range=colours), legend=alt.Legend(title=None, orient="bottom"))
    x = alt.X("x:Q", title="container memory, MB", scale=alt.Scale(zero=False), axis=alt.Axis(grid=False, tickCount=5))
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=True))
    source = alt.Chart(data(rows))
    line = source.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour)
    marks = source.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour)
    return alt.layer(line, marks, width=260, height=220)


@register("estimates")
def estimates(inputs: FigureInputs) -> Figure:
    """The knee beside what is seen from inside, and what was published, one row for each curve and estimate."""
    rows: list[dict[str, object]] = []
    for row in inputs.analysis.tables.get(STUDY, []):
        who = f"{clean(row.get('varied'))}, {_clients(int(finite(row.get('clients')) or 0))}"
        for column, kind, _, _ in _ESTIMATES:
            value = finite(row.get(column))
            if value is not None:
                low, high = bounds(row.get(column))
                rows.append({"who": who, "kind": kind, "x": value, "low": low, "high": high, "text": _told(value, low, high)})
    if not any(row["kind"] == _ESTIMATES[0][1] for row in rows):
        raise FigureUnavailable("no curve has a knee to set beside what is seen from inside")
    kinds = [each for each in _ESTIMATES if any(row["kind"] == each[1] for row in rows)]
    ends = [end for row in rows for name in ("x", "low", "high") if (end := finite(row[name])) is not None]
    scale = alt.Scale(domain=[0, max(ends) * 1.25], nice=False)
    y = alt.Y("kind:N", sort=[each[1] for each in kinds], title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=200))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=[each[1] for each in kinds], range=[each[2] for each in kinds]), legend=None)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=[each[1] for each in kinds], range=[each[3] for each in kinds]), legend=None)
    panels = []
    everyone = list(dict.fromkeys(str(row["who"]) for row in rows))
    for who in everyone:
        axis = alt.Axis(title="MB" if who == everyone[-1] else None, tickCount=8)
        x = alt.X("x:Q", scale=scale, axis=axis)
        some = [row for row in rows if row["who"] == who]
        layers = chart_style.interval_bars(some, x, y, horizontal=True, mark={"strokeWidth": 2}, color=colour)
        source = alt.Chart(data(some))
        layers.append(source.mark_point(filled=True, size=85, opacity=1).encode(x=x, y=y, color=colour, shape=shape))
        layers += chart_style.haloed(source.encode(x=x, y=y, text=alt.Text("text:N")), dy=-11, color=MUTED, fontSize=11)
        title = alt.TitleParams(text=who, anchor="start", fontSize=12.5, color=text_colour(INK), offset=4)
        panels.append(alt.layer(*layers, width=chart_style.WIDTH - 230, height=max(46, 34 * len(some)), title=title))
    sentence = _estimates_sentence(inputs)
    subtitle = (
        "The knee has its interval; 'in use' is a reading at the largest size; the other two are measured sizes, their bars reach down "
        "to the next smaller one. E7's own values stand in the table of findings: they are of another machine."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=14)
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _told(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.0f}" if low is None or high is None else f"{value:.0f} ({low:.0f}–{high:.0f})"


def _estimates_sentence(inputs: FigureInputs) -> str:
    rows = inputs.analysis.tables.get(STUDY, [])
    varied = next((row.get("varied") for row in rows if finite(row.get("working_set")) is not None), None)
    parts = []
    for row in rows:
        own, other = finite(row.get("working_set")), finite(row.get("by_misses"))
        if row.get("varied") == varied and own is not None:
            seen = "" if other is None else f", {other:.0f} by misses"
            parts.append(f"{own:.0f} MB by throughput{seen} with {_clients(int(finite(row.get('clients')) or 0))}")
    return f"{clean(varied).capitalize()}: {'; '.join(parts)}"
