"""The curves of a density run: throughput against perfect, efficiency, and the published curve beside ours."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, MUTED, PURPLE, SKY, VERMILLION, end_labels
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, compact, finite, label, number, percent, percent_value, share
from pgherd.report.throughput_charts import STORAGE, limited_by_clients, limited_by_host, limited_points
from pgherd.studies.density.curve import tenths
from pgherd.studies.density.figures_data import at_full, databases, numbers, reach, rows_with, share_point

E1_SOURCE = "E1, n0derunner.com"
BAR_NOTE = "Bars are intervals; a point without one has too few repeats."

_LIMITS = {
    "quota": ("limited by its quota", "#ffffff", BLUE, "square"),
    "host": limited_by_host("limited by the host"),
    "rate": ("met its rate", SKY, BLUE, "diamond"),
    "storage": STORAGE,
    "clients": limited_by_clients("limited by the clients"),
}


def curve_rows(inputs: FigureInputs, column: str) -> list[Row]:
    """The density table's rows with a number in this column; a curve needs two."""
    rows = rows_with(inputs.analysis, "density", column)
    if len(rows) < 2:
        raise FigureUnavailable(
            f"a curve needs two numbers of databases with a number under '{label(column)}', and there {_are(len(rows))}"
        )
    return rows


def _are(count: int) -> str:
    return "is one" if count == 1 else "is none"


def databases_axis(right: float) -> alt.X:
    """The axis of all curves."""
    axis = alt.Axis(title="databases under load", grid=False, format="d", values=chart_style.whole_ticks(right))
    return chart_style.x_axis([0, right], axis=axis)


@register("throughput")
def throughput(inputs: FigureInputs) -> Figure:
    """Measured throughput against both perfects, with models, where the line bends, and what limited each point."""
    rows = curve_rows(inputs, "throughput")
    last = databases(rows[-1])
    curves = throughput_charts.model_curves(inputs, last)
    right = max([last * 1.02, *(n for _, points in curves for n, _ in points)])
    perfects = [
        (slope, name, dash)
        for name, column, dash in (("perfect (1 database × N)", "perfect", [1, 0]), ("perfect (linear slope)", "perfect_linear", [5, 4]))
        if (slope := _slope(rows, column)) is not None
    ]
    highest = max([*numbers(rows, "throughput"), *(slope * right for slope, *_ in perfects)])
    unit, scale = ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(highest / scale * 1.02)
    x = databases_axis(right)
    y = chart_style.y_axis([0, top], title=unit)
    lines: list[chart_style.Line] = []
    labels: list[tuple[float, float, str, str]] = []
    for slope, name, dash in perfects:
        lines.append(([(0, 0), (right, slope * right / scale)], "#8c959f", 1.5, dash))
        labels.append((right, slope * right / scale, name, MUTED))
    modelled, named = throughput_charts.curve_lines(inputs, curves, last, scale)
    lines += modelled
    labels += [(right, height, text, colour) for height, text, colour in named]
    layers = chart_style.lines(lines, x, y) + chart_style.rules(_marks(inputs, rows), x, y, (0, top), right, height=HEIGHT + 40)
    layers += limited_points(rows, databases, _LIMITS, scale, x, y, alt.Legend(title=None, orient="top-left", offset=8))
    layers += end_labels(labels, x, y, (0, top), height=HEIGHT + 40)
    sentence = _sentence(inputs, rows)
    subtitle = (
        f"Throughput of all databases together. {BAR_NOTE} Models are drawn solid within the data and dashed beyond. "
        "Where a quota limits, the curve is straight by construction."
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": HEIGHT + 40}
    chart = alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size)
    return Figure(sentence, chart, (TRIALS,))


def _sentence(inputs: FigureInputs, rows: Sequence[Row]) -> str:
    full = at_full(rows)
    text = f"{databases(full):g} databases make {compact(finite(full['throughput']))} transactions/s"
    one, slope = percent_value(full.get("efficiency")), percent_value(full.get("efficiency_linear"))
    if one is not None:
        text += f", {one:.1f} % of one database × N"
        if slope is not None and abs(one - slope) > 5:
            text += f" ({slope:.1f} % of the linear slope × N)"
    elif slope is not None:
        text += f", {slope:.1f} % of the linear slope × N"
    end = inputs.analysis.findings.get("end_of_linear")
    if end is not None and finite(end.value) is not None:
        text += f"; linear up to {number(end.value, most=1)}" + ("" if finite(end.high) is not None else ", the most measured")
    return text


def _slope(rows: Sequence[Row], column: str) -> float | None:
    """Perfect throughput per database: both perfects are straight lines through zero."""
    slopes = [value / databases(row) for row in rows if (value := finite(row.get(column))) is not None]
    return slopes[-1] if slopes else None


def _marks(inputs: FigureInputs, rows: Sequence[Row]) -> list[tuple[float, str, str]]:
    """Vertical lines within the data: all cores given out, end of the linear region, the hinge's knee, databases held."""
    findings = inputs.analysis.findings
    marks = []
    full = [databases(row) / fraction for row in rows if (fraction := finite(row.get("fraction")))]
    if full:
        marks.append((full[-1], "all cores are given out", MUTED))
    end = findings.get("end_of_linear")
    if end is not None and finite(end.value) is not None and finite(end.high) is not None:
        marks.append((finite(end.value) or 0.0, f"linear up to {number(end.value, most=1)}, no longer at {number(end.high, most=1)}", INK))
    knee = finite(findings.get("knee"))
    if knee is not None and throughput_charts.best_model(inputs) == "hinge":
        marks.append((knee, f"knee of the hinge: {number(knee, most=1)}", GREEN))
    held = finite(findings.get("databases_held"))
    if held is not None:
        marks.append((held, f"efficiency falls below {_wanted(inputs)} at {tenths(held)}", VERMILLION))
    return [mark for mark in marks if mark[0] <= databases(rows[-1])]


def _wanted(inputs: FigureInputs) -> str:
    at = finite(inputs.record.options.get("at"))
    return share(at) if at else "what was wanted"


@register("efficiency")
def efficiency(inputs: FigureInputs) -> Figure:
    """Efficiency in throughput (of both perfects) and in CPU per transaction, with intervals."""
    series = [
        ("efficiency", "of one database × N", BLUE, "circle"),
        ("efficiency_linear", "of the linear slope", VERMILLION, "square"),
        ("efficiency_cpu", "in CPU per transaction", GREEN, "triangle-up"),
    ]
    rows = rows_with(inputs.analysis, "density", *(name for name, *_ in series))
    if len(rows) < 2:
        raise FigureUnavailable(f"a curve needs two numbers of databases with an efficiency, and there {_are(len(rows))}")
    last = databases(rows[-1])
    shifts = {name: (index - 1) * last * 0.006 for index, (name, *_) in enumerate(series)}  # bars of one point stand side by side
    parts = {name: [share_point(row, name, shifts[name]) for row in rows if finite(row.get(name)) is not None] for name, *_ in series}
    low, high = reach([point for part in parts.values() for point in part])
    right = last * 1.02
    x = databases_axis(right)
    y = chart_style.y_axis([low, high], title="efficiency, %")
    at = finite(inputs.record.options.get("at"))
    layers = chart_style.level(100, "perfect", right, x, y)
    layers += chart_style.level(at * 100, "wanted", right, x, y, left=True) if at and low <= at * 100 <= high else []
    labels = []
    for column, name, colour, shape in series:
        if parts[column]:
            layers += chart_style.line_with_bars(parts[column], x, y, colour, shape)
            labels.append((right, parts[column][-1]["y"] or 0.0, name, colour))
    layers += end_labels(labels, x, y, (low, high))
    full = at_full(rows)
    known = [f"{percent(full.get(column))} {name}" for column, name, *_ in series if finite(full.get(column)) is not None and parts[column]]
    sentence = f"At {databases(full):g} databases, efficiency is {', '.join(known) or 'not known'}"
    subtitle = (
        "Throughput ÷ that of one database × N, or ÷ the linear region's slope × N; CPU time per transaction of one database ÷ that of N. "
        f"{BAR_NOTE} The axis starts at {low:g} %."
    )
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


@register("published")
def published(inputs: FigureInputs) -> Figure:
    """Efficiency against the fraction of cores, with E1's published curve."""
    rows = [row for row in curve_rows(inputs, "efficiency") if finite(row.get("fraction")) is not None]
    theirs, source = _published(inputs)
    if not rows or not theirs:
        raise FigureUnavailable("no point has a fraction of cores" if not rows else "the analysis holds no published curve")
    ours = [{**share_point(row, "efficiency"), "x": (finite(row["fraction"]) or 0) * 100} for row in rows]
    low, high = reach([*ours, *theirs])
    right = max(row["x"] or 0 for row in [*ours, *theirs]) * 1.02
    axis = alt.Axis(title="fraction of the host's cores given to databases, %", grid=False)
    x = chart_style.x_axis([0, right], axis=axis)
    y = chart_style.y_axis([low, high], title="throughput, % of one database × N")
    layers = chart_style.level(100, "perfect", right, x, y)
    layers += chart_style.line_with_bars(theirs, x, y, PURPLE, "diamond") + chart_style.line_with_bars(ours, x, y, BLUE, "circle")
    labels = [(part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, name, colour) for part, name, colour in _pair(ours, theirs)]
    layers += end_labels(labels, x, y, (low, high))
    at, end = at_full(rows), theirs[-1]
    sentence = (
        f"At {percent(at.get('fraction'), decimals=0)} of the cores this run keeps {percent(at.get('efficiency'))} of one database × N; "
        f"the published curve {end['y']:.1f} % at {end['x']:g} %"
    )
    subtitle = f"Published: {source} (4 hosts, 160 cores, PostgreSQL 9.3, SELECT-only). Hosts differ: compare shapes. {BAR_NOTE}"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), f"Published curve: {source}.")


def _pair(
    ours: list[dict[str, float | None]], theirs: list[dict[str, float | None]]
) -> list[tuple[list[dict[str, float | None]], str, str]]:
    return [(ours, "this run", BLUE), (theirs, "published (E1)", PURPLE)]


def _published(inputs: FigureInputs) -> tuple[list[dict[str, float | None]], str]:
    """E1's points in percent, and the source that the analysis names."""
    found: list[dict[str, float | None]] = []
    source = E1_SOURCE
    for row in inputs.analysis.figures.get("published") or []:
        fraction, kept = finite(row.get("fraction")), finite(row.get("efficiency"))
        if fraction is not None and kept is not None:
            found.append({"x": fraction * 100, "y": kept * 100})
            source = clean(row.get("source") or source)
    return sorted(found, key=lambda row: row["x"] or 0.0), source
