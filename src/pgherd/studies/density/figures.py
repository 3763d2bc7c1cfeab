"""Figures of density runs: throughput, efficiency, CPU, latency, soak, and several runs in one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, MUTED, PURPLE, SERIES, SKY, VERMILLION, data, end_labels
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, brief, compact, finite, label, number, percent, percent_value, share
from pgherd.report.throughput_charts import STORAGE, limited_by_clients, limited_by_host, limited_points
from pgherd.studies.density.curve import floor_tenths

E1_SOURCE = "E1, n0derunner.com"
BAR_NOTE = "Bars are intervals. A point without one has too few repeats."

_LIMITS = {
    "cpu-quota": ("limited by the CPU quota", "#ffffff", BLUE, "square"),
    "cpuset": ("limited by the CPU set", "#ffffff", BLUE, "square"),
    "vcpus": ("limited by the guest's vCPUs", "#ffffff", BLUE, "square"),
    "host-cpu": limited_by_host("limited by the host"),
    "rate-limit": ("met its rate", SKY, BLUE, "diamond"),
    "storage": STORAGE,
    "lock-waits": ("limited by locks", VERMILLION, VERMILLION, "triangle-down"),
    "lwlock-waits": ("limited by lightweight locks", "#ffffff", VERMILLION, "triangle-down"),
    "client-cpu": limited_by_clients("limited by the clients"),
}

_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
MAX_LABEL = 28
"""Longest label next to a curve, in characters. Longer names are cut in the middle."""


# ---- reading the tables


def rows_with(analysis: Analysis, table: str, *needed: str) -> list[Row]:
    """Return the rows with a number in any of these columns, sorted by number of databases."""
    rows = [row for row in analysis.tables.get(table, []) if finite(row.get("databases"))]
    return sorted((row for row in rows if any(finite(row.get(name)) is not None for name in needed)), key=databases)


def databases(row: Row) -> float:
    return finite(row["databases"]) or 0.0


def at_full(rows: Sequence[Row]) -> Row:
    """Return the row of the largest point within 100 % of the cores, or the last row if no row has a fraction."""
    within = [row for row in rows if (finite(row.get("allocated_share")) or math.inf) <= 1 + 1e-9]
    return within[-1] if within else rows[-1]


def numbers(rows: Sequence[Row], *names: str) -> list[float]:
    """Return all values and interval bounds in these columns."""
    return [x for row in rows for name in names for x in (finite(row.get(name)), *bounds(row.get(name))) if x is not None]


def share_point(row: Row, column: str, shift: float = 0.0) -> dict[str, float | None]:
    """Return a share as a point of a figure: x is the number of databases plus ``shift``; y, low and high are in percent."""
    cell = row[column]
    factor = 1.0 if isinstance(cell, Finding) and cell.unit == "%" else 100.0
    low, high = (None if bound is None else bound * factor for bound in bounds(cell))
    value = finite(cell)
    return {"x": databases(row) + shift, "y": None if value is None else value * factor, "low": low, "high": high}


def percent_range(points: Sequence[Mapping[str, float | None]], low: float = 80, high: float = 105) -> tuple[float, float]:
    """Return the range of an axis in percent that includes all values and intervals, and at least ``low`` to ``high``."""
    values = [value for point in points for name in ("y", "low", "high") if (value := point.get(name)) is not None]
    return math.floor(min([low, *values]) / 10) * 10, math.ceil(max([high, *values]) / 5) * 5


def curve_rows(inputs: FigureInputs, column: str) -> list[Row]:
    """Return the density table's rows with a number in this column.

    Raises:
        NotDrawn: fewer than two rows have one.
    """
    rows = rows_with(inputs.analysis, "density", column)
    if len(rows) < 2:
        raise FigureUnavailable(f"a curve needs two numbers of databases with '{label(column)}', and the run has {len(rows) or 'none'}")
    return rows


def databases_axis(right: float) -> alt.X:
    axis = alt.Axis(title="databases under load", grid=False, format="d", values=chart_style.whole_ticks(right))
    return alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)


@register("throughput")
def throughput(inputs: FigureInputs) -> Figure:
    """Draw measured and ideal throughput, fitted models, the end of the linear region, and the bottleneck of each point."""
    rows = curve_rows(inputs, "throughput")
    last = databases(rows[-1])
    curves = throughput_charts.model_curves(inputs, last)
    right = max([last * 1.02, *(n for _, points in curves for n, _ in points)])
    slope = _slope(rows)
    highest = max([*numbers(rows, "throughput"), (slope or 0.0) * right])
    unit, scale = ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(highest / scale * 1.02)
    x = databases_axis(right)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    lines: list[chart_style.Line] = []
    labels: list[tuple[float, float, str, str]] = []
    if slope is not None:
        lines.append(([(0, 0), (right, slope * right / scale)], "#8c959f", 1.5, [1, 0]))
        labels.append((right, slope * right / scale, "ideal", MUTED))
    modelled, named = throughput_charts.curve_lines(inputs, curves, last, scale)
    lines += modelled
    labels += [(right, height, text, colour) for height, text, colour in named]
    layers = chart_style.lines(lines, x, y) + chart_style.rules(_marks(inputs, rows), x, y, (0, top), right, height=HEIGHT + 40)
    layers += limited_points(rows, databases, _LIMITS, scale, x, y, alt.Legend(title=None, orient="top-left", offset=8))
    layers += end_labels(labels, x, y, (0, top), height=HEIGHT + 40)
    sentence = _sentence(inputs, rows)
    subtitle = f"Total throughput of all databases. {BAR_NOTE} Models are solid within the data and dashed beyond."
    if inputs.record.options.get("cpu_mode") == "quota":
        subtitle += " A CPU quota makes the curve linear by construction."
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": HEIGHT + 40}
    chart = alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size)
    return Figure(sentence, chart, (TRIALS,))


def _sentence(inputs: FigureInputs, rows: Sequence[Row]) -> str:
    full = at_full(rows)
    text = f"{databases(full):g} databases make {compact(finite(full['throughput']))} transactions/s"
    efficiency = percent_value(full.get("efficiency"))
    if efficiency is not None:
        text += f", {efficiency:.1f} % of ideal"
    end = inputs.analysis.findings.get("linear_range_end")
    if end is not None and finite(end.value) is not None:
        text += f"; linear up to {number(end.value, most=1)}" + ("" if finite(end.high) is not None else ", the largest number measured")
    return text


def _slope(rows: Sequence[Row]) -> float | None:
    """Return the ideal throughput per database. The ideal is a line through zero."""
    slopes = [value / databases(row) for row in rows if (value := finite(row.get("ideal"))) is not None]
    return slopes[-1] if slopes else None


def _marks(inputs: FigureInputs, rows: Sequence[Row]) -> list[tuple[float, str, str]]:
    """Vertical lines within the data: all cores allocated, end of the linear region, knee, capacity."""
    findings = inputs.analysis.findings
    marks = []
    full = [databases(row) / fraction for row in rows if (fraction := finite(row.get("allocated_share")))]
    if full:
        marks.append((full[-1], "all cores allocated", MUTED))
    end = findings.get("linear_range_end")
    if end is not None and finite(end.value) is not None and finite(end.high) is not None:
        marks.append((finite(end.value) or 0.0, f"linear up to {number(end.value, most=1)}, not at {number(end.high, most=1)}", INK))
    knee = finite(findings.get("knee"))
    if knee is not None and throughput_charts.best_model(inputs) == "piecewise-linear":
        marks.append((knee, f"knee of the piecewise linear model: {number(knee, most=1)}", GREEN))
    capacity = finite(findings.get("capacity"))
    if capacity is not None:
        marks.append((capacity, f"capacity at {_target(inputs)}: {floor_tenths(capacity)}", VERMILLION))
    return [mark for mark in marks if mark[0] <= databases(rows[-1])]


def _target(inputs: FigureInputs) -> str:
    at = finite(inputs.record.options.get("efficiency"))
    return share(at) if at else "the target"


@register("efficiency")
def efficiency(inputs: FigureInputs) -> Figure:
    """Draw efficiency and its two factors, CPU received and CPU per transaction, with intervals."""
    series = [
        ("efficiency", "throughput", BLUE, "circle"),
        ("cpu_share", "CPU received", VERMILLION, "square"),
        ("cpu_efficiency", "CPU per transaction", GREEN, "triangle-up"),
    ]
    rows = rows_with(inputs.analysis, "density", *(name for name, *_ in series))
    if len(rows) < 2:
        raise FigureUnavailable(f"a curve needs two numbers of databases with an efficiency, and the run has {len(rows) or 'none'}")
    last = databases(rows[-1])
    shifts = {name: (index - 1) * last * 0.006 for index, (name, *_) in enumerate(series)}  # so that bars of one point do not overlap
    parts = {name: [share_point(row, name, shifts[name]) for row in rows if finite(row.get(name)) is not None] for name, *_ in series}
    low, high = percent_range([point for part in parts.values() for point in part])
    right = last * 1.02
    x = databases_axis(right)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[low, high], nice=False), title="efficiency, %")
    at = finite(inputs.record.options.get("efficiency"))
    layers = chart_style.level(100, "ideal", right, x, y)
    layers += chart_style.level(at * 100, "target", right, x, y, left=True) if at and low <= at * 100 <= high else []
    labels = []
    for column, name, colour, shape in series:
        if parts[column]:
            layers += chart_style.line_with_bars(parts[column], x, y, colour, shape)
            labels.append((right, parts[column][-1]["y"] or 0.0, name, colour))
    layers += end_labels(labels, x, y, (low, high))
    full = at_full(rows)
    shares = [
        f"{percent(full.get(column))} {name}" for column, name, *_ in series if finite(full.get(column)) is not None and parts[column]
    ]
    sentence = f"At {databases(full):g} databases, efficiency is {', '.join(shares) or 'unknown'}"
    subtitle = (
        "Throughput ÷ (N × reference) is the product of CPU received ÷ allocated and CPU time per transaction of the reference ÷ that of "
        "N. "
        f"{BAR_NOTE} The axis starts at {low:g} %."
    )
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


@register("published")
def published(inputs: FigureInputs) -> Figure:
    """Draw efficiency against the fraction of the cores, with E1's published curve."""
    rows = [row for row in curve_rows(inputs, "efficiency_vs_single") if finite(row.get("allocated_share")) is not None]
    reference, source = _published(inputs)
    if not rows or not reference:
        raise FigureUnavailable("no point has a fraction of the cores" if not rows else "the analysis has no published curve")
    measured = [{**share_point(row, "efficiency_vs_single"), "x": (finite(row["allocated_share"]) or 0) * 100} for row in rows]
    low, high = percent_range([*measured, *reference])
    right = max(row["x"] or 0 for row in [*measured, *reference]) * 1.02
    axis = alt.Axis(title="host's cores allocated to databases, %", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[low, high], nice=False), title="throughput, % of N × single database")
    layers = chart_style.level(100, "ideal", right, x, y)
    layers += chart_style.line_with_bars(reference, x, y, PURPLE, "diamond") + chart_style.line_with_bars(measured, x, y, BLUE, "circle")
    parts = ((measured, "this run", BLUE), (reference, "published (E1)", PURPLE))
    labels = [(part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, name, colour) for part, name, colour in parts]
    layers += end_labels(labels, x, y, (low, high))
    full, end = at_full(rows), reference[-1]
    sentence = (
        f"At {percent(full.get('allocated_share'), decimals=0)} of the cores, efficiency is {percent(full.get('efficiency_vs_single'))}; "
        f"the published curve has {end['y']:.1f} % at {end['x']:g} %"
    )
    subtitle = f"Published: {source} (4 hosts, 160 cores, PostgreSQL 9.3, SELECT-only). Hosts differ: compare the shapes only. {BAR_NOTE}"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), f"Published curve: {source}.")


def _published(inputs: FigureInputs) -> tuple[list[dict[str, float | None]], str]:
    """Return E1's points in percent, and their source."""
    points: list[dict[str, float | None]] = []
    source = E1_SOURCE
    for row in inputs.analysis.figures.get("published") or []:
        fraction, ratio = finite(row.get("allocated_share")), finite(row.get("efficiency"))
        if fraction is not None and ratio is not None:
            points.append({"x": fraction * 100, "y": ratio * 100})
            source = clean(row.get("source") or source)
    return sorted(points, key=lambda row: row["x"] or 0.0), source


# ---- CPU, latency, soak


@register("cpu")
def cpu(inputs: FigureInputs) -> Figure:
    """Draw CPU use of the host at each point, stacked."""
    rows = rows_with(inputs.analysis, "cpu", "databases_cpu", "idle")
    if not rows:
        raise FigureUnavailable("neither the CPU of the containers nor of the host was measured")
    total = sum(float(facts.logical_cpus) for facts in inputs.record.hosts.values()) or None
    sentence = _cpu_sentence(
        at_full(rows), total or sum(finite(rows[-1].get(name)) or 0.0 for name in ("databases_cpu", "clients_cpu", "idle"))
    )
    chart = throughput_charts.cpu_stack([(databases(row), row) for row in rows], total, "databases under load", sentence, "databases")
    return Figure(sentence, chart, (SAMPLES,))


def _cpu_sentence(row: Row, total: float) -> str:
    served, clients, idle = (finite(row.get(name)) for name in ("databases_cpu", "clients_cpu", "idle"))
    text = f"At {databases(row):g} databases, "
    if served is not None:
        text += f"{brief(served + (clients or 0.0))} of {number(total)} cores serve databases and clients"
    elif idle is not None:
        text += f"{brief(idle)} of {number(total)} cores are idle"
    platform = finite(row.get("platform_cpu"))
    return text + (f"; platform overhead is {brief(platform)}" if platform is not None else "")


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """Draw p50, p95 and p99, on a logarithmic axis if they span more than a factor of eight."""
    names = [("p50", SKY, "circle"), ("p95", BLUE, "square"), ("p99", VERMILLION, "triangle-up")]
    rows = rows_with(inputs.analysis, "density", *(name for name, *_ in names))
    values = [value for value in numbers(rows, *(name for name, *_ in names)) if value > 0]
    if len(rows) < 2 or not values:
        raise FigureUnavailable("fewer than two numbers of databases have enough sampled transactions for a percentile")
    log = max(values) / min(values) > 8
    low, high = (min(values) / 1.3, max(values) * 1.3) if log else (0.0, chart_style.nice_ceiling(max(values) * 1.05))
    right = databases(rows[-1]) * 1.02
    x = databases_axis(right)
    scale = alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title="latency, ms", tickCount=6, format="~g"))
    layers: list[alt.Chart] = []
    labels = []
    for name, colour, shape in names:
        part: list[dict[str, float | None]] = []
        for row in rows:
            value = finite(row.get(name))
            if value is not None and value > 0:
                below, above = (None if bound is None else max(bound, low) for bound in bounds(row[name]))
                part.append({"x": databases(row), "y": value, "low": below, "high": above})
        if part:
            end = part[-1]["y"] or low
            layers += chart_style.line_with_bars(part, x, y, colour, shape)
            labels.append((right, end, f"{name} {brief(end)} ms", colour))
    layers += end_labels(labels, x, y, (low, high), log=log)
    full, first = at_full(rows), rows[0]
    texts = [f"{name} is {brief(value)} ms" for name, *_ in names if (value := finite(full.get(name))) is not None]
    sentence = f"At {databases(full):g} databases, {' and '.join(texts[-2:]) or 'no percentile has enough samples'}"
    if (before := finite(first.get("p95"))) and finite(full.get("p95")):
        sentence += f"; p95 was {brief(before)} ms at {databases(first):g}"
    subtitle = f"Median of the percentiles of all databases, from a sampled log. {'Logarithmic axis. ' if log else ''}{BAR_NOTE}"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), "A percentile is omitted if fewer than ten sampled transactions are above it.")


@register("modes")
def modes(inputs: FigureInputs) -> Figure:
    """Draw the throughput of the trials from 90 % of the cores on, by second, in the colours of their modes as in the table 'modes'."""
    seconds = inputs.analysis.figures.get("seconds")
    series: dict[str, list[tuple[float, float]]] = {}
    mode_of: dict[str, str] = {}
    for row in seconds if isinstance(seconds, list) else []:
        series.setdefault(str(row["trial"]), []).append((float(row["second"]) + 0.5, float(row["throughput"]) / 1e3))
        mode_of[str(row["trial"])] = str(row.get("mode", ""))
    series = {name: points for name, points in series.items() if len(points) > 2}
    if not series:
        raise FigureUnavailable("no trial from 90 % of the cores on has its throughput by second")
    means = {name: math.fsum(y for _, y in points) / len(points) for name, points in series.items()}
    low, high = min(means.values()), max(means.values())
    top = chart_style.nice_ceiling(max(y for points in series.values() for _, y in points) * 1.02)
    right = max(x for points in series.values() for x, _ in points) + 0.5
    axis = alt.Axis(title="seconds since the start of the measured period", format="d", values=chart_style.whole_ticks(right))
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)
    y = alt.Y("y:Q", title="thousand transactions/s", scale=alt.Scale(domain=[0, top], nice=False))
    lines: list[chart_style.Line] = [
        (points, VERMILLION if mode_of[name] == "slow" else BLUE, 1.2, [1, 0]) for name, points in series.items()
    ]
    sentence = f"At a full host, {len(series)} trials made {low:.3g} to {high:.3g} thousand transactions/s"
    slow = sum(mode_of[name] == "slow" for name in series)
    if any(mode_of.values()):
        sentence += f", in two modes: {slow} slow and {len(series) - slow} fast"
    told = "Blue is the fast mode, red the slow one, as in the table 'modes'."
    subtitle = "One line per trial with at least 90 % of the cores allocated. "
    subtitle += told if any(mode_of.values()) else "The trials show one level with noise."
    chart = alt.layer(
        *chart_style.lines(lines, x, y), width=chart_style.plot_width([""]), height=HEIGHT, title=chart_style.title(sentence, subtitle)
    )
    return Figure(sentence, chart, (TRIALS,))


@register("soak")
def soak(inputs: FigureInputs) -> Figure:
    """Draw the throughput of a soak's windows relative to their median, with checkpoints, vacuums and failed checks."""
    rows = inputs.analysis.tables.get("soak", [])
    if not rows:
        raise FigureUnavailable
    times, unit = (60.0, "minutes") if (finite(rows[-1].get("hours")) or 0.0) < 2 else (1.0, "hours")
    throughputs = [
        (start * times, value * 100)
        for row in rows
        if (start := finite(row.get("hours"))) is not None and (value := finite(row.get("relative_to_median"))) is not None
    ]
    if len(throughputs) < 2:
        raise FigureUnavailable("the soak has fewer than two windows with throughput")
    least, high = min(90.0, *(value for _, value in throughputs)), max(110.0, *(value for _, value in throughputs)) + 2
    low = least - 0.35 * (high - least)  # the marks are below all values
    width = chart_style.plot_width(["failed check"])
    x = alt.X("x:Q", title=f"{unit} since the start", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False))
    y = alt.Y("y:Q", title="throughput, % of the median window", scale=alt.Scale(domain=[low, high], nice=False))
    layers = [alt.Chart(data([{"y": 100}])).mark_rule(color="#8c959f", strokeDash=[5, 4]).encode(y=y)]
    layers += chart_style.lines([(throughputs, BLUE, 1.5, [1, 0])], x, y)
    marks = (
        ("failed_checks", "failed check", MUTED, 0.16),
        ("checkpoints", "checkpoint", VERMILLION, 0.09),
        ("vacuum_workers", "vacuum", PURPLE, 0.02),
    )
    for column, name, colour, height in marks:
        at = low + height * (high - low)
        starts = [(finite(row.get("hours")) or 0.0) * times for row in rows if finite(row.get(column)) or isinstance(row.get(column), str)]
        if starts:
            ticks = alt.Chart(data([{"x": start, "y": at} for start in starts])).mark_point(shape="triangle-up", filled=True, opacity=1)
            text = alt.Chart(data([{"y": at, "text": name}])).mark_text(align="left", color=chart_style.text_colour(colour), fontSize=11)
            layers += [
                ticks.encode(x=x, y=y, color=alt.value(colour), size=alt.value(40)),
                text.encode(x=alt.value(width + 6), y=y, text=alt.Text("text:N")),
            ]
    at_time, least = min(throughputs, key=lambda point: point[1])
    worst = alt.Chart(data([{"x": at_time, "y": least, "text": f"worst window: {least:.0f} %"}]))
    layers.append(worst.mark_point(color=INK, size=70, opacity=1).encode(x=x, y=y))
    layers += chart_style.haloed(worst.encode(x=x, y=y, text=alt.Text("text:N")), dy=16, color=MUTED, fontSize=11)
    sentence = f"The worst window has {least:.0f} % of the median{_drifted(inputs)}"
    subtitle = "Total of all databases, per window. Marks: windows with a checkpoint, a vacuum, or a check that failed."
    sentence = sentence.replace("-", "−")
    chart = alt.layer(*layers, width=width, height=260, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _drifted(inputs: FigureInputs) -> str:
    """Describe the drift per hour, or for a shorter soak over its whole time, as in the answer."""
    drift, soaked = finite(inputs.analysis.findings.get("soak_drift")), inputs.analysis.figures.get("soak")
    hours = finite(soaked.get("hours")) if isinstance(soaked, Mapping) else None
    if drift is None or hours is None:
        return ""
    return f"; throughput drifted by {100 * min(hours, 1.0) * drift:+.1f} % {'per hour' if hours >= 1 else 'over that time'}"


# ---- several runs in one figure


@dataclass(frozen=True)
class DensityOverlayLine:
    """Rows of one run, with its name, colour and point shape."""

    name: str
    rows: list[Row]
    colour: str
    shape: str


def overlay_lines(runs: Sequence[tuple[str, RunRecord]], column: str) -> list[DensityOverlayLine]:
    """Return the runs with this column at two points or more.

    Raises:
        NotDrawn: no run has them.
    """
    lines = []
    for index, (name, record) in enumerate(runs):
        rows = rows_with(record.analysis, "density", column) if record.analysis else []
        if len(rows) > 1:
            lines.append(DensityOverlayLine(short_name(name), rows, SERIES[index % len(SERIES)], _SHAPES[index % len(_SHAPES)]))
    if not lines:
        raise FigureUnavailable("no run has two numbers of databases to draw")
    return lines


def short_name(name: str, limit: int = MAX_LABEL) -> str:
    """Shorten a name to its start and end."""
    name = clean(name)
    return name if len(name) <= limit else f"{name[: limit // 2 - 1]}…{name[-(limit // 2) :]}"


def overlay_throughput(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    lines = overlay_lines(runs, "throughput")
    highest = max(value for line in lines for value in numbers(line.rows, "throughput"))
    unit, scale = ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(highest / scale * 1.02)
    right = max(databases(line.rows[-1]) for line in lines) * 1.02
    x = databases_axis(right)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    layers: list[alt.Chart] = []
    labels = []
    for line in lines:
        part = []
        for row in line.rows:
            low, high = (None if bound is None else bound / scale for bound in bounds(row["throughput"]))
            part.append({"x": databases(row), "y": (finite(row["throughput"]) or 0.0) / scale, "low": low, "high": high})
        layers += chart_style.line_with_bars(part, x, y, line.colour, line.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, line.name, line.colour))
    layers += end_labels(labels, x, y, (0, top))
    results = [f"{line.name} {compact(finite(at_full(line.rows)['throughput']))} tps" for line in lines]
    sentence = "At the largest point within the cores: " + ", ".join(results)
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([text for *_, text, _ in labels]),
        height=HEIGHT,
        title=chart_style.title(sentence, f"Total throughput of all databases of a run. {BAR_NOTE}"),
    )
    return Figure(sentence, chart, (TRIALS,))


def overlay_efficiency(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Draw the efficiency of all runs against the fraction of their cores."""
    reference = "Throughput of each run relative to its reference, by the fraction of its cores."
    return _overlay_efficiency_figure(runs, "efficiency", "throughput, % of N × reference", "Efficiency", reference)


def overlay_cpu_efficiency(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Draw the CPU efficiency of all runs. It shows differences where quotas make throughput linear."""
    reference = "CPU time per transaction of the reference ÷ that of N, per run, by the fraction of its cores."
    return _overlay_efficiency_figure(runs, "cpu_efficiency", "CPU/tx of the reference ÷ CPU/tx of N, %", "CPU efficiency", reference)


def _overlay_efficiency_figure(
    runs: Sequence[tuple[str, RunRecord]], column: str, axis_title: str, quantity: str, reference: str
) -> Figure:
    lines = [line for line in overlay_lines(runs, column) if all(finite(row.get("allocated_share")) is not None for row in line.rows)]
    if not lines:
        raise FigureUnavailable("no run has the fraction of the cores of its points")
    parts = {
        line.name: [{**share_point(row, column), "x": (finite(row["allocated_share"]) or 0.0) * 100} for row in line.rows] for line in lines
    }
    low, high = percent_range([point for part in parts.values() for point in part])
    right = max(part[-1]["x"] or 0.0 for part in parts.values()) * 1.02
    axis = alt.Axis(title="run's cores allocated to databases, %", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[low, high], nice=False), title=axis_title)
    layers = chart_style.level(100, "ideal", right, x, y)
    labels = []
    for line in lines:
        part = parts[line.name]
        layers += chart_style.line_with_bars(part, x, y, line.colour, line.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, line.name, line.colour))
    layers += end_labels(labels, x, y, (low, high))
    rows = [(line.name, at_full(line.rows)) for line in lines]
    results = [f"{name} {percent(row.get(column))} at {percent(row.get('allocated_share'), decimals=0)} of its cores" for name, row in rows]
    sentence = f"{quantity}: {', '.join(results)}"
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([text for *_, text, _ in labels]),
        height=HEIGHT,
        title=chart_style.title(sentence, f"{reference} {BAR_NOTE} The axis starts at {low:g} %."),
    )
    return Figure(sentence, chart, (TRIALS,))


OVERLAYS = {"efficiency": overlay_efficiency, "cpu_efficiency": overlay_cpu_efficiency, "throughput": overlay_throughput}
"""Figures of several runs, by file name."""
