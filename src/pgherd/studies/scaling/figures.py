"""The figures of a scaling run: throughput against clients, ratios of variants, and latency against throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, MUTED, SKY, VERMILLION, data, end_labels
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, brief, clean, compact, finite, number
from pgherd.report.throughput_charts import STORAGE, limited_by_clients, limited_by_host, limited_points
from pgherd.studies.scaling.figures_data import Series, clients, last, points, series

BAR_NOTE = "Bars are intervals; a point without one has too few repeats."
TALL = HEIGHT + 40

_LIMITS = {
    "few clients": ("limited by the number of clients", "#ffffff", BLUE, "square"),
    "host": limited_by_host("limited by the host's cores"),
    "quota": ("limited by its CPU quota", SKY, BLUE, "diamond"),
    "storage": STORAGE,
    "clients": limited_by_clients("limited by pgbench"),
}
_RATIOS = (
    ("peak_ratio", "peak", "circle"),
    ("slope_ratio", "slope of the linear region", "square"),
    ("linear_ratio", "end of the linear region", "diamond"),
    ("cpu_ratio", "server's CPU per transaction", "triangle-up"),
)


def clients_axis(right: float) -> alt.X:
    """The axis of all curves."""
    axis = alt.Axis(title="clients", grid=False, format="d", values=chart_style.whole_ticks(right))
    return chart_style.x_axis([0, right], axis=axis)


def _curves(inputs: FigureInputs, *needed: str) -> list[Series]:
    found = series(inputs.analysis, "scaling", *needed)
    if not any(len(one.rows) > 1 for one in found):
        raise FigureUnavailable("a curve needs two numbers of clients with a number, and there are fewer")
    return found


@register("throughput")
def throughput(inputs: FigureInputs) -> Figure:
    """Throughput against clients: one curve with its models and what limited each point, or the variants' curves."""
    found = _curves(inputs, "throughput")
    return _one(inputs, found[0]) if len(found) == 1 else _several(inputs, found)


def _one(inputs: FigureInputs, line: Series) -> Figure:
    rows, end = line.rows, last([line])
    curves = throughput_charts.model_curves(inputs, end, line.name)
    right = max([end * 1.02, *(n for _, drawn in curves for n, _ in drawn)])
    values = points(rows, "throughput")
    highest = max(value for point in values for name in ("y", "high") if (value := point[name]) is not None)
    unit, scale = unit_of(highest)
    top = chart_style.nice_ceiling(highest / scale * 1.1)
    x, y = clients_axis(right), chart_style.y_axis([0, top], title=unit)
    lines, labels = throughput_charts.curve_lines(inputs, curves, end, scale, line.name)
    slope = finite(line.finding(inputs.analysis, "slope"))
    if slope:
        reach = min(right, top * scale / slope)
        lines.insert(0, ([(0, 0), (reach, slope * reach / scale)], "#8c959f", 1.5, [5, 4]))
    layers = chart_style.lines(lines, x, y) + chart_style.rules(_marks(inputs, line), x, y, (0, top), right, height=TALL)
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal", columns=3, labelLimit=260)
    layers += limited_points(rows, clients, _LIMITS, scale, x, y, legend)
    placed = [(right, min(max(height, 0.0), top), text, colour) for height, text, colour in labels]
    layers += end_labels(placed, x, y, (0, top), height=TALL)
    sentence = _sentence(inputs, line)
    subtitle = (
        f"Medians of the series. {BAR_NOTE} Models are drawn solid within the data and dashed beyond; the dashed grey line is the slope."
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in placed]), "height": TALL}
    return Figure(sentence, alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size), (TRIALS,))


def unit_of(highest: float) -> tuple[str, float]:
    """The unit of an axis that reaches so many transactions per second, and what divides the values for it."""
    return ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)


def _sentence(inputs: FigureInputs, line: Series) -> str:
    best = line.best
    made = f"{compact(finite(best['throughput']))} transactions/s with {_clients(clients(best))}"
    if finite(line.finding(inputs.analysis, "peak_clients")) is None:
        text = f"The most measured is {made}, and the peak lies beyond"
    elif best is line.rows[-1] and len(line.rows) > 1:
        text = f"The most measured is {made}, the largest number"
    else:
        text = f"Throughput peaks at {made}"
    end = line.finding(inputs.analysis, "end_of_linear")
    value = finite(end)
    if value is not None and end is not None:
        text += f"; it is linear up to {_clients(value)}" + ("" if finite(end.high) is not None else ", as far as is known")
    return text


def _clients(count: float) -> str:
    return f"{count:g} client{'' if count == 1 else 's'}"


def _marks(inputs: FigureInputs, line: Series) -> list[tuple[float, str, str]]:
    """Vertical lines within the data: as many clients as cores, the end of the linear region, saturation, the knee."""
    marks = []
    per_core = [clients(row) / share for row in line.rows if (share := finite(row.get("clients_per_core")))]
    if per_core:
        marks.append((per_core[0], "as many clients as cores", MUTED))
    end = line.finding(inputs.analysis, "end_of_linear")
    if end is not None and finite(end.value) is not None and finite(end.high) is not None:
        marks.append((finite(end.value) or 0.0, f"linear up to {number(end.value, most=1)}", INK))
    enough = finite(line.finding(inputs.analysis, "saturation"))
    if enough is not None:
        marks.append((enough, f"95 % of the peak from {enough:g} on", VERMILLION))
    knee = finite(line.finding(inputs.analysis, "knee"))
    if knee is not None and throughput_charts.best_model(inputs, line.name) == "hinge":
        marks.append((knee, f"knee of the hinge: {number(knee, most=1)}", GREEN))
    return [mark for mark in marks if mark[0] <= last([line])]


def _several(inputs: FigureInputs, found: Sequence[Series]) -> Figure:
    """The variants' curves over each other, each with the model that fits it best."""
    values = [value for one in found for point in points(one.rows, "throughput") for name in ("y", "high") if (value := point[name])]
    unit, scale = unit_of(max(values))
    top = chart_style.nice_ceiling(max(values) / scale * 1.02)
    end = last(found)
    right = end * 1.02
    x, y = clients_axis(right), chart_style.y_axis([0, top], title=unit)
    models = [(throughput_charts.best_curve(inputs, end, one.name), one.colour) for one in found]
    layers = chart_style.lines(
        [([(n, min(value / scale, top)) for n, value in model], colour, 1.2, [4, 4]) for model, colour in models], x, y
    )
    labels = []
    for index, one in enumerate(found):
        shift = (index - (len(found) - 1) / 2) * end * 0.006  # bars of one number of clients stand side by side
        part = [{**point, "x": (point["x"] or 0.0) + shift} for point in points(one.rows, "throughput", scale)]
        layers += chart_style.line_with_bars(part, x, y, one.colour, one.shape)
        labels.append((right, part[-1]["y"] or 0.0, one.shown, one.colour))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = _variants_sentence(inputs, found)
    subtitle = (
        f"Medians of the series. {BAR_NOTE} Points of one number of clients are moved apart a little, so that their bars can be seen."
        + (" Dashed: the model that fits a variant best." if any(model for model, _ in models) else "")
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": TALL}
    return Figure(sentence, alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size), (TRIALS,))


def _variants_sentence(inputs: FigureInputs, found: Sequence[Series]) -> str:
    base = found[0]
    parts = [f"'{base.shown}' peaks at {compact(finite(base.best['throughput']))} transactions/s"]
    for one in found[1:]:
        parts.append(
            f"'{one.shown}' at {compact(finite(one.best['throughput']))}{_times(inputs.analysis.findings.get(f'peak_ratio.{one.name}'))}"
        )
    return ", ".join(parts)


def _times(ratio: Finding | None) -> str:
    """`` (1.42 times, 1.38 to 1.47)``."""
    value = finite(ratio)
    if ratio is None or value is None:
        return ""
    low, high = bounds(ratio)
    return f" ({value:.2f} times)" if low is None or high is None else f" ({value:.2f} times, {low:.2f} to {high:.2f})"


@register("ratios")
def ratios(inputs: FigureInputs) -> Figure:
    """Each variant's ratios to the first, with their intervals."""
    table = inputs.analysis.tables.get("ratios", [])
    if not table:
        raise FigureUnavailable  # no variants
    rows: list[dict[str, object]] = []
    for row in table:
        for column, name, shape in _RATIOS:
            value = finite(row.get(column))
            if value is not None and value > 0:
                low, high = bounds(row[column])
                rows.append({"y": f"{clean(row['variant'])}: {name}", "x": value, "low": low, "high": high, "shape": shape, "kind": name})
    if not rows:
        raise FigureUnavailable("no variant has a ratio to the first")
    ends = [end for row in rows for name in ("x", "low", "high") if (end := finite(row[name])) is not None]
    least, most = min([*ends, 1.0]), max([*ends, 1.0])
    room = (most / least) ** 0.08
    domain = [least / max(room, 1.02), most * max(room, 1.02)]
    axis = alt.Axis(title=f"ratio to '{clean(table[0].get('to'))}' (logarithmic axis)", format="~g", tickCount=7)
    log = alt.Scale(type="log", domain=domain, nice=False)
    x = alt.X("x:Q", scale=log, axis=axis)
    y = alt.Y("y:N", sort=None, axis=alt.Axis(title=None, labelLimit=330, ticks=False, domain=False))
    shown = alt.Chart(data([{**row, "text": _ratio_text(row)} for row in rows]))
    kinds = [(name, shape) for _, name, shape in _RATIOS if any(row["kind"] == name for row in rows)]
    shapes = alt.Shape("kind:N", scale=alt.Scale(domain=[k for k, _ in kinds], range=[s for _, s in kinds]), legend=None)
    layers = [
        chart_style.reference_line(x, 1),
        *chart_style.interval_bars(rows, x, y, horizontal=True, mark={"color": BLUE, "strokeWidth": 2}),
        shown.mark_point(color=BLUE, fill=BLUE, size=70, opacity=1).encode(x=x, y=y, shape=shapes),
    ]
    layers += chart_style.haloed(shown.encode(x=x, y=y, text=alt.Text("text:N")), dy=-12, color=MUTED, fontSize=11)
    sentence = _ratio_sentence(inputs)
    subtitle = (
        "Bars are 95 % intervals from the spread of the repeats; one that crosses the dashed line at 1 says that the two cannot be told "
        "apart."
    )
    chart = alt.layer(*layers, width=chart_style.WIDTH - 290, height=max(90, 42 * len(rows)), title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _ratio_text(row: Mapping[str, object]) -> str:
    value, low, high = (finite(row[name]) for name in ("x", "low", "high"))
    if low is None or high is None:
        return f"{value or 0:.2f}"
    return f"{value or 0:.2f} ({low:.2f} to {high:.2f})"


def _ratio_sentence(inputs: FigureInputs) -> str:
    table = inputs.analysis.tables["ratios"]
    base = clean(table[0].get("to"))
    parts = []
    for row in table:
        ratio = row.get("peak_ratio")
        value = finite(ratio)
        if not isinstance(ratio, Finding) or value is None:
            continue
        low, high = bounds(ratio)
        alike = low is not None and high is not None and low <= 1 <= high
        parts.append(f"'{clean(row['variant'])}' {'cannot be told from that' if alike else f'has {value:.2f} times that'}")
    return f"Against the peak of '{base}': {', '.join(parts)}" if parts else f"Ratios to '{base}'"


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """Latency against throughput: past the knee more clients buy only waiting."""
    names = [("p50", SKY, "circle"), ("p95", BLUE, "square"), ("p99", VERMILLION, "triangle-up")]
    found = series(inputs.analysis, "scaling", *(name for name, *_ in names))
    if not any(len(one.rows) > 1 for one in found):
        raise FigureUnavailable("fewer than two numbers of clients have enough sampled transactions for a percentile")
    if len(found) > 1:
        parts = [(f"{one.shown}", one, "p95", one.colour, one.shape) for one in found]
    else:
        parts = [(name, found[0], name, colour, shape) for name, colour, shape in names]
    marked = [(text, _latency_points(one, column), colour, shape) for text, one, column, colour, shape in parts]
    marked = [part for part in marked if part[1]]
    highest = max(point["x"] for _, drawn, *_ in marked for point in drawn)
    values = [value for _, drawn, *_ in marked for point in drawn for name in ("y", "low", "high") if (value := point[name]) is not None]
    unit, scale = unit_of(highest)
    log = max(values) / min(value for value in values if value > 0) > 8
    low, high = (
        (min(value for value in values if value > 0) / 1.4, max(values) * 1.4)
        if log
        else (0.0, chart_style.nice_ceiling(max(values) * 1.1))
    )
    right = highest / scale * 1.06
    x = chart_style.x_axis([0, right], axis=alt.Axis(title=unit, grid=False))
    title = "latency, ms" if len(found) == 1 else "p95 of the latency, ms"
    axis = alt.Axis(title=title, tickCount=6, format="~g")
    y = alt.Y("y:Q", scale=alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False), axis=axis)
    layers: list[alt.Chart] = []
    labels = []
    for text, drawn, colour, shape in marked:
        scaled = [{**point, "x": point["x"] / scale, "low": _at_least(point["low"], low)} for point in drawn]
        layers += _path(scaled, x, y, colour, shape)
        labels.append((right, scaled[-1]["y"], text, colour))
    layers += _client_labels([{**point, "x": point["x"] / scale} for point in marked[0 if len(found) > 1 else -1][1]], x, y, high, log)
    layers += end_labels(labels, x, y, (low, high), log=log)
    sentence = _latency_sentence(found)
    subtitle = (
        f"Each path goes from fewer clients to more; the numbers are clients. {'Logarithmic axis. ' if log else ''}Percentiles of a "
        f"sampled log, averaged over the series. {BAR_NOTE}"
    )
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=TALL, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), "A percentile is left out where fewer than ten sampled transactions lie beyond it.")


def _latency_points(one: Series, column: str) -> list[dict[str, float]]:
    """x (tps), y, low, high (ms; those of an interval that is missing are the value's own) and clients, in their order."""
    found = []
    for row in one.rows:
        value, made = finite(row.get(column)), finite(row.get("throughput"))
        if value is not None and value > 0 and made is not None:
            low, high = bounds(row[column])
            found.append({"x": made, "y": value, "low": low or value, "high": high or value, "clients": clients(row)})
    return found


def _at_least(value: float, low: float) -> float:
    return max(value, low)


def _path(part: Sequence[Mapping[str, float]], x: alt.X, y: alt.Y, colour: str, shape: str) -> list[alt.Chart]:
    """A line through points in the order of their clients (not of x), with interval bars."""
    source = alt.Chart(data(part))
    return [
        source.mark_line(color=colour, strokeWidth=1.6).encode(x=x, y=y, order=alt.Order("clients:Q")),
        source.mark_rule(color=colour, strokeWidth=1.6).encode(x=x, y=chart_style.on(y, "low:Q"), y2=alt.Y2("high:Q")),
        source.mark_point(color=colour, fill=colour, shape=shape, size=45, opacity=1).encode(x=x, y=y),
    ]


def _client_labels(part: Sequence[Mapping[str, float]], x: alt.X, y: alt.Y, top: float, log: bool) -> list[alt.Chart]:
    """The numbers of clients above a path's points; those that would lie over the one before are left out."""
    kept: list[Mapping[str, float]] = []
    width = max((point["x"] for point in part), default=1.0)
    for point in part:
        near = (
            abs(point["x"] - other["x"]) < 0.03 * width
            and abs(math.log(point["y"] / other["y"]) if log else (point["y"] - other["y"]) / top) < (0.18 if log else 0.05)
            for other in kept
        )
        if not any(near):
            kept.append(point)
    rows = [{"x": point["x"], "y": point["high"], "text": f"{point['clients']:g}"} for point in kept]
    text = alt.Chart(data(rows)).encode(x=x, y=y, text=alt.Text("text:N"))
    return chart_style.haloed(text, dy=-10, fontSize=11, color=MUTED)


def _latency_sentence(found: Sequence[Series]) -> str:
    if len(found) > 1:
        parts = [f"{brief(finite(one.best.get('p95')))} ms for '{one.shown}'" for one in found if finite(one.best.get("p95")) is not None]
        return f"At the highest throughput p95 is {', '.join(parts)}" if parts else "Latency against throughput"
    one = found[0]
    best, end = one.best, one.rows[-1]
    known = [f"{name} is {brief(value)} ms" for name in ("p95", "p99") if (value := finite(best.get(name))) is not None]
    text = f"At the highest throughput, with {_clients(clients(best))}, {' and '.join(known) or 'no percentile is supported'}"
    after, before = finite(end.get("p95")), finite(best.get("p95"))
    if end is not best and after is not None and before is not None:
        text += f"; with {clients(end):g}, p95 is {brief(after)} ms for no more throughput" if after > before else ""
    return text
