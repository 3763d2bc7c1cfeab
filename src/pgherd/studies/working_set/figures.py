"""Figures of working-set runs: throughput against memory and shared buffers, refaults and pressure, and all estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, HEIGHT, INK, MUTED, ORANGE, SERIES, VERMILLION, data, end_labels, text_colour
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, finite
from pgherd.studies.working_set.analyse import FINDING_NAMES, VARIED
from pgherd.studies.working_set.findings import PUBLISHED_SIZES
from pgherd.studies.working_set.options import coordinate_of

STUDY = "working-set"
TALL = HEIGHT + 20
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_ESTIMATES = (
    ("working_set", "knee of throughput", BLUE, "circle"),
    ("from_misses", "from misses", VERMILLION, "square"),
    ("from_memory_in_use", "memory in use", "#009E73", "diamond"),
    ("from_psi", "pressure-free from", "#8c959f", "triangle-up"),
)


@register("memory")
def memory(inputs: FigureInputs) -> Figure:
    """Draw throughput against the container's memory, with fixed shared buffers."""
    return _sweep(inputs, "memory")


@register("shared_buffers")
def shared_buffers(inputs: FigureInputs) -> Figure:
    """Draw throughput against shared buffers, with a fixed difference to the container's memory."""
    return _sweep(inputs, "shared-buffers")


def _curves(inputs: FigureInputs, sweep: str) -> list[tuple[Mapping[str, Any], list[Row]]]:
    """Return the figure data of each curve of a sweep, with its rows that have a throughput."""
    curves = [curve for curve in inputs.analysis.figures.get("curves", []) if curve.get("sweep") == sweep]
    rows = [row for row in inputs.analysis.tables.get("sweep", []) if row.get("varied") == VARIED[sweep]]
    selected = [
        (curve, [row for row in rows if row.get("clients") == curve["clients"] and finite(row.get("throughput"))]) for curve in curves
    ]
    return [(curve, curve_rows) for curve, curve_rows in selected if curve_rows]


def _size(row: Row, sweep: str) -> float:
    return finite(row.get(coordinate_of(sweep))) or 0.0


def _sweep(inputs: FigureInputs, sweep: str) -> Figure:
    curves = _curves(inputs, sweep)
    if not curves:
        if any(curve.get("sweep") == sweep for curve in inputs.analysis.figures.get("curves", [])):
            raise FigureUnavailable("no trial finished at any size of this sweep")
        raise FigureUnavailable
    ends = [_size(row, sweep) for _, rows in curves for row in rows]
    ends += [float(size) for curve, _ in curves for size in curve["out_of_memory_sizes"]]
    heights = [value for _, rows in curves for row in rows for value in (finite(row["throughput"]), *bounds(row["throughput"])) if value]
    unit, scale = ("thousand transactions/s", 1e3) if max(heights) >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(max(heights) / scale * 1.05)
    margin = (max(ends) - min(ends)) * 0.04 or 1.0
    left, right = max(0.0, min(ends) - margin), max(ends) + margin
    x = alt.X(
        "x:Q", scale=alt.Scale(domain=[left, right], nice=False), axis=alt.Axis(title=f"{VARIED[sweep]}, MB", grid=False, tickCount=8)
    )
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    layers: list[alt.Chart] = _published(curves, sweep, x, y, top, (left, right))
    labels = []
    for index, (curve, rows) in enumerate(curves):
        layers += _curve(curve, rows, sweep, scale, top, x, y, index)
        last = max(rows, key=lambda row: _size(row, sweep))
        labels.append((right, (finite(last["throughput"]) or 0.0) / scale, _clients(curve["clients"]), SERIES[index % len(SERIES)]))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = _sentence(inputs, sweep, curves)
    subtitle = (
        "Points are means of the trials of a size. Bars are intervals of three or more trials. The line is the fitted knee, and the shaded "
        "band its interval. A cross is a size out of memory."
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": TALL}
    chart = alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size)
    caption = "The fit uses the time per transaction, which decreases linearly with the reads saved. The figure shows its inverse."
    return Figure(sentence, chart, (TRIALS,), caption)


def _curve(
    curve: Mapping[str, Any], rows: Sequence[Row], sweep: str, scale: float, top: float, x: alt.X, y: alt.Y, position: int
) -> list[alt.Chart]:
    """Draw one load: knee with its band, fitted curve, points with bars, and crosses for sizes out of memory."""
    colour, shape = SERIES[position % len(SERIES)], SHAPES[position % len(SHAPES)]
    layers: list[alt.Chart] = []
    low, high, knee = (finite(curve.get(name)) for name in ("low", "high", "knee"))
    if low is not None and high is not None and high > low:
        band = alt.Chart(data([{"x": low, "end": high, "y": 0, "top": top}])).mark_rect(color=colour, opacity=0.13)
        layers.append(band.encode(x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("top:Q")))
    if knee is not None:
        layers.append(alt.Chart(data([{"x": knee}])).mark_rule(color=colour, strokeDash=[4, 3], strokeWidth=1.4).encode(x=x))
    fitted = [(at, value / scale) for at, value in curve["line"]]
    layers += chart_style.lines([(fitted, colour, 1.6, [1, 0])], x, y)
    points = []
    for row in rows:
        ends = bounds(row["throughput"])
        at = {"x": _size(row, sweep), "y": (finite(row["throughput"]) or 0.0) / scale}
        points.append({**at, **{name: end and end / scale for name, end in zip(("low", "high"), ends, strict=True)}})
    layers += chart_style.interval_bars(points, x, y, mark={"color": colour, "strokeWidth": 1.6, "clip": True})
    layers.append(alt.Chart(data(points)).mark_point(color=colour, fill=colour, shape=shape, size=48, opacity=0.9).encode(x=x, y=y))
    if curve["out_of_memory_sizes"]:
        crosses = alt.Chart(data([{"x": size, "y": top * (0.03 + 0.04 * position)} for size in curve["out_of_memory_sizes"]]))
        layers.append(crosses.mark_point(color=colour, shape="cross", angle=45, size=90, opacity=1, filled=True).encode(x=x, y=y))
    return layers


def _published(
    curves: Sequence[tuple[Mapping[str, Any], list[Row]]], sweep: str, x: alt.X, y: alt.Y, top: float, ends: tuple[float, float]
) -> list[alt.Chart]:
    """Draw E7's knees if they are within the figure, which is rare since they are from another machine and database."""
    marks = []
    for curve, _ in curves:
        size = PUBLISHED_SIZES[sweep].get(curve["clients"])
        if size is not None and ends[0] <= size <= ends[1]:
            marks.append((float(size), f"E7, another machine: {size} MB", ORANGE))
    return chart_style.rules(marks, x, y, (0, top), ends[1], height=TALL)


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


def _sentence(inputs: FigureInputs, sweep: str, curves: Sequence[tuple[Mapping[str, Any], list[Row]]]) -> str:
    parts = []
    for curve, _ in curves:
        finding = inputs.analysis.findings.get(f"{FINDING_NAMES[sweep]}.{curve['clients']}")
        value = finite(finding)
        load = _clients(curve["clients"])
        if finding is None or value is None:
            parts.append(f"no knee with {load}")
            continue
        low, high = bounds(finding)
        parts.append(f"{value:.0f} MB{'' if low is None or high is None else f' ({low:.0f}–{high:.0f})'} with {load}")
    head = "Container memory is sufficient from" if sweep == "memory" else "Shared buffers are sufficient from"
    if all(part.startswith("no knee") for part in parts):
        return f"{VARIED[sweep].capitalize()}: {', '.join(parts)}"
    return f"{head} {', '.join(parts)}"


@register("misses")
def misses(inputs: FigureInputs) -> Figure:
    """Draw refaults and memory or I/O pressure against the container's memory."""
    curves = [(curve, [row for row in rows if finite(row.get("refaults")) is not None]) for curve, rows in _curves(inputs, "memory")]
    curves = [(curve, rows) for curve, rows in curves if len(rows) > 1]
    if not curves:
        raise FigureUnavailable("refaults were not measured at two sizes or more")
    refaults = _panel(curves, "refaults", "refaults per transaction", 1.0)
    pressure = _panel(curves, "memory_or_io_pressure", "waiting for memory or I/O, % of time", 100.0)
    panels = [panel for panel in (refaults, pressure) if panel is not None]
    sentence = "Memory is sufficient where refaults and memory or I/O pressure are near zero"
    subtitle = "Means of the trials of each size. A refault is an evicted page that is read again."
    chart = alt.hconcat(*panels, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _panel(curves: Sequence[tuple[Mapping[str, Any], list[Row]]], column: str, title: str, factor: float) -> Any | None:
    rows: list[dict[str, object]] = []
    for curve, curve_rows in curves:
        for row in curve_rows:
            value = finite(row.get(column))
            if value is not None:
                rows.append({"x": _size(row, "memory"), "y": value * factor, "load": _clients(curve["clients"])})
    if not rows:
        return None
    loads = [_clients(curve["clients"]) for curve, _ in curves]
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
    """Draw the knee and the indirect estimates, one row per curve and estimate."""
    rows: list[dict[str, object]] = []
    for row in inputs.analysis.tables.get(STUDY, []):
        load = f"{clean(row.get('varied'))}, {_clients(int(finite(row.get('clients')) or 0))}"
        for column, kind, _, _ in _ESTIMATES:
            value = finite(row.get(column))
            if value is not None:
                low, high = bounds(row.get(column))
                rows.append({"load": load, "kind": kind, "x": value, "low": low, "high": high, "text": _value_text(value, low, high)})
    if not any(row["kind"] == _ESTIMATES[0][1] for row in rows):
        raise FigureUnavailable("no curve has a knee to compare with the indirect estimates")
    kinds = [estimate for estimate in _ESTIMATES if any(row["kind"] == estimate[1] for row in rows)]
    ends = [end for row in rows for name in ("x", "low", "high") if (end := finite(row[name])) is not None]
    scale = alt.Scale(domain=[0, max(ends) * 1.25], nice=False)
    y = alt.Y("kind:N", sort=[name for _, name, _, _ in kinds], title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=200))
    colour = alt.Color(
        "kind:N", scale=alt.Scale(domain=[name for _, name, _, _ in kinds], range=[colour for _, _, colour, _ in kinds]), legend=None
    )
    shape = alt.Shape(
        "kind:N", scale=alt.Scale(domain=[name for _, name, _, _ in kinds], range=[shape for _, _, _, shape in kinds]), legend=None
    )
    panels = []
    loads = list(dict.fromkeys(str(row["load"]) for row in rows))
    for load in loads:
        axis = alt.Axis(title="MB" if load == loads[-1] else None, tickCount=8)
        x = alt.X("x:Q", scale=scale, axis=axis)
        load_rows = [row for row in rows if row["load"] == load]
        layers = chart_style.interval_bars(load_rows, x, y, horizontal=True, mark={"strokeWidth": 2}, color=colour)
        source = alt.Chart(data(load_rows))
        layers.append(source.mark_point(filled=True, size=85, opacity=1).encode(x=x, y=y, color=colour, shape=shape))
        layers += chart_style.haloed(source.encode(x=x, y=y, text=alt.Text("text:N")), dy=-11, color=MUTED, fontSize=11)
        title = alt.TitleParams(text=load, anchor="start", fontSize=12.5, color=text_colour(INK), offset=4)
        panels.append(alt.layer(*layers, width=chart_style.WIDTH - 230, height=max(46, 34 * len(load_rows)), title=title))
    sentence = _estimates_sentence(inputs)
    subtitle = (
        "The knee has its interval. Memory in use is from the largest size. The other two are measured sizes, with bars down to the next "
        "smaller size. E7's values are in the table of findings, since they are from another machine."
    )
    chart = alt.vconcat(*panels, title=chart_style.title(sentence, subtitle), spacing=14)
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _value_text(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.0f}" if low is None or high is None else f"{value:.0f} ({low:.0f}–{high:.0f})"


def _estimates_sentence(inputs: FigureInputs) -> str:
    rows = inputs.analysis.tables.get(STUDY, [])
    varied = next((row.get("varied") for row in rows if finite(row.get("working_set")) is not None), None)
    parts = []
    for row in rows:
        knee, misses = finite(row.get("working_set")), finite(row.get("from_misses"))
        if row.get("varied") == varied and knee is not None:
            from_misses = "" if misses is None else f", {misses:.0f} MB from misses"
            parts.append(f"{knee:.0f} MB from throughput{from_misses} with {_clients(int(finite(row.get('clients')) or 0))}")
    return f"{clean(varied).capitalize()}: {'; '.join(parts)}"
