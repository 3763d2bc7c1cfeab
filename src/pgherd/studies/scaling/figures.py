"""Figures of scaling runs: throughput, ratios of variants, latency, and several runs in one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, INK, MUTED, SERIES, SKY, VERMILLION, data, end_labels
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, brief, compact, finite, number
from pgherd.report.throughput_charts import STORAGE, limited_by_clients, limited_by_host, limited_points
from pgherd.studies.density.figures import MAX_LABEL, short_name
from pgherd.studies.scaling.curve import NO_PEAK

BAR_NOTE = "Bars are intervals. A point without one has too few repeats."
TALL = HEIGHT + 40

_LIMITS = {
    "too-few-clients": ("limited by the number of clients", "#ffffff", BLUE, "square"),
    "host-cpu": limited_by_host("limited by the host's cores"),
    "cpu-quota": ("limited by the CPU quota", SKY, BLUE, "diamond"),
    "cpuset": ("limited by the CPU set", SKY, BLUE, "diamond"),
    "vcpus": ("limited by the guest's vCPUs", SKY, BLUE, "diamond"),
    "storage": STORAGE,
    "lock-waits": ("limited by locks", VERMILLION, VERMILLION, "triangle-down"),
    "lwlock-waits": ("limited by lightweight locks", "#ffffff", VERMILLION, "triangle-down"),
    "client-cpu": limited_by_clients("limited by pgbench"),
}
_RATIOS = (
    ("peak_ratio", "peak", "circle"),
    ("slope_ratio", "slope of the linear region", "square"),
    ("linear_range_ratio", "end of the linear region", "diamond"),
    ("server_cpu_per_tx_ratio", "server CPU per transaction", "triangle-up"),
)

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "circle")
MAX_VARIANT_LABEL = 24
"""Longest name next to a curve, in characters. Longer names are cut."""


# ---- reading the tables


@dataclass(frozen=True)
class VariantSeries:
    """Rows of one variant, ascending by clients, with its colour and point shape. ``name`` is empty in a run without variants."""

    name: str
    rows: tuple[Row, ...]
    colour: str
    shape: str

    def finding(self, analysis: Analysis, name: str) -> Finding | None:
        return analysis.findings.get(f"{name}.{self.name}" if self.name else name)

    @property
    def shown(self) -> str:
        name = clean(self.name)
        return name if len(name) <= MAX_VARIANT_LABEL else f"{name[: MAX_VARIANT_LABEL - 1]}…"

    @property
    def best(self) -> Row:
        """The row with the highest throughput."""
        return max(self.rows, key=lambda row: finite(row.get("throughput")) or 0.0)


def variant_series(analysis: Analysis, table: str, *needed: str) -> list[VariantSeries]:
    """Return the rows of each variant with a number in any of these columns. Variants without such rows are left out."""
    rows = [row for row in analysis.tables.get(table, []) if finite(row.get("clients")) is not None]
    names = list(dict.fromkeys(str(row.get("variant", "")) for row in rows))
    variants = []
    for index, name in enumerate(names):
        selected = [row for row in rows if row.get("variant", "") == name and any(finite(row.get(column)) is not None for column in needed)]
        if selected:
            style = index % len(SERIES)
            variants.append(VariantSeries(name, tuple(sorted(selected, key=clients)), SERIES[style], SHAPES[style]))
    return variants


def clients(row: Row) -> float:
    return finite(row["clients"]) or 0.0


def last_clients(variants: Sequence[VariantSeries]) -> float:
    return max(clients(row) for series in variants for row in series.rows)


def points(rows: Sequence[Row], column: str, scale: float = 1.0) -> list[dict[str, float | None]]:
    """Return x (clients), y, low and high of the rows with a number in this column; values are divided by ``scale``."""
    rows_drawn: list[dict[str, float | None]] = []
    for row in rows:
        value = finite(row.get(column))
        if value is not None:
            low, high = (None if bound is None else bound / scale for bound in bounds(row[column]))
            rows_drawn.append({"x": clients(row), "y": value / scale, "low": low, "high": high})
    return rows_drawn


# ---- one run


def clients_axis(right: float) -> alt.X:
    axis = alt.Axis(title="clients", grid=False, format="d", values=chart_style.whole_ticks(right))
    return alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)


def _curves(inputs: FigureInputs, *needed: str) -> list[VariantSeries]:
    variants = variant_series(inputs.analysis, "scaling", *needed)
    if not any(len(series.rows) > 1 for series in variants):
        raise FigureUnavailable("a curve needs results with two numbers of clients, and the run has fewer")
    return variants


@register("throughput")
def throughput(inputs: FigureInputs) -> Figure:
    """Draw throughput against clients: one curve with models and bottlenecks, or the curves of all variants."""
    variants = _curves(inputs, "throughput")
    return _single_throughput(inputs, variants[0]) if len(variants) == 1 else _variants_throughput(inputs, variants)


def _single_throughput(inputs: FigureInputs, line: VariantSeries) -> Figure:
    rows, end = line.rows, last_clients([line])
    curves = throughput_charts.model_curves(inputs, end, line.name)
    right = max([end * 1.02, *(n for _, curve in curves for n, _ in curve)])
    values = points(rows, "throughput")
    highest = max(value for point in values for name in ("y", "high") if (value := point[name]) is not None)
    unit, scale = unit_of(highest)
    top = chart_style.nice_ceiling(highest / scale * 1.1)
    x, y = clients_axis(right), alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    lines, labels = throughput_charts.curve_lines(inputs, curves, end, scale, line.name)
    slope = finite(line.finding(inputs.analysis, "linear_slope"))
    if slope:
        reach = min(right, top * scale / slope)
        lines.insert(0, ([(0, 0), (reach, slope * reach / scale)], "#8c959f", 1.5, [5, 4]))
    layers = chart_style.lines(lines, x, y) + chart_style.rules(_marks(inputs, line), x, y, (0, top), right, height=TALL)
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal", columns=3, labelLimit=260)
    layers += limited_points(rows, clients, _LIMITS, scale, x, y, legend)
    placed = [(right, min(max(height, 0.0), top), text, colour) for height, text, colour in labels]
    layers += end_labels(placed, x, y, (0, top), height=TALL)
    sentence = _sentence(inputs, line)
    subtitle = f"Medians of the series. {BAR_NOTE} Models are solid within the data and dashed beyond. The dashed grey line is the slope."
    size = {"width": chart_style.plot_width([text for *_, text, _ in placed]), "height": TALL}
    return Figure(sentence, alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size), (TRIALS,))


def unit_of(highest: float) -> tuple[str, float]:
    """Return the unit of an axis up to this many transactions per second, and the divisor for its values."""
    return ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)


def _sentence(inputs: FigureInputs, line: VariantSeries) -> str:
    best = line.best
    peak = f"{compact(finite(best['throughput']))} transactions/s with {_clients(clients(best))}"
    found = line.finding(inputs.analysis, "peak_clients")
    if found is not None and found.note == NO_PEAK:
        text = f"The highest measured throughput is {peak}; too few trials name no peak"
    elif finite(found) is None:
        text = f"The highest measured throughput is {peak}, and the peak is at more clients"
    elif best is line.rows[-1] and len(line.rows) > 1:
        text = f"The highest measured throughput is {peak}, the largest number measured"
    else:
        text = f"Throughput peaks at {peak}"
    end = line.finding(inputs.analysis, "linear_range_end")
    value = finite(end)
    if value is not None and end is not None:
        text += f"; it is linear up to {_clients(value)}" + ("" if finite(end.high) is not None else ", the end of the data")
    return text


def _clients(count: float) -> str:
    return f"{count:g} client{'' if count == 1 else 's'}"


def _marks(inputs: FigureInputs, line: VariantSeries) -> list[tuple[float, str, str]]:
    """Vertical lines within the data: one client per core, end of the linear region, saturation, knee."""
    marks = []
    per_core = [clients(row) / share for row in line.rows if (share := finite(row.get("clients_per_core")))]
    if per_core:
        marks.append((per_core[0], "one client per core", MUTED))
    end = line.finding(inputs.analysis, "linear_range_end")
    if end is not None and finite(end.value) is not None and finite(end.high) is not None:
        marks.append((finite(end.value) or 0.0, f"linear up to {number(end.value, most=1)}", INK))
    saturated = finite(line.finding(inputs.analysis, "saturation_point"))
    if saturated is not None:
        marks.append((saturated, f"95 % of the peak from {saturated:g} on", VERMILLION))
    knee = finite(line.finding(inputs.analysis, "knee"))
    if knee is not None and throughput_charts.best_model(inputs, line.name) == "piecewise-linear":
        marks.append((knee, f"knee of the piecewise linear model: {number(knee, most=1)}", GREEN))
    return [mark for mark in marks if mark[0] <= last_clients([line])]


def _variants_throughput(inputs: FigureInputs, variants: Sequence[VariantSeries]) -> Figure:
    """Draw the curves of all variants, each with its best model."""
    values = [
        value for series in variants for point in points(series.rows, "throughput") for name in ("y", "high") if (value := point[name])
    ]
    unit, scale = unit_of(max(values))
    top = chart_style.nice_ceiling(max(values) / scale * 1.02)
    end = last_clients(variants)
    right = end * 1.02
    x, y = clients_axis(right), alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    models = [(throughput_charts.best_curve(inputs, end, series.name), series.colour) for series in variants]
    layers = chart_style.lines(
        [([(n, min(value / scale, top)) for n, value in model], colour, 1.2, [4, 4]) for model, colour in models], x, y
    )
    labels = []
    for index, series in enumerate(variants):
        shift = (index - (len(variants) - 1) / 2) * end * 0.006  # so that bars at one number of clients do not overlap
        part = [{**point, "x": (point["x"] or 0.0) + shift} for point in points(series.rows, "throughput", scale)]
        layers += chart_style.line_with_bars(part, x, y, series.colour, series.shape)
        labels.append((right, part[-1]["y"] or 0.0, series.shown, series.colour))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = _variants_sentence(inputs, variants)
    subtitle = f"Medians of the series. {BAR_NOTE} Points at one number of clients are shifted, so that their bars do not overlap." + (
        " Dashed: the best model of each variant." if any(model for model, _ in models) else ""
    )
    size = {"width": chart_style.plot_width([text for *_, text, _ in labels]), "height": TALL}
    return Figure(sentence, alt.layer(*layers, title=chart_style.title(sentence, subtitle), **size), (TRIALS,))


def _variants_sentence(inputs: FigureInputs, variants: Sequence[VariantSeries]) -> str:
    base = variants[0]
    parts = [f"'{base.shown}' peaks at {compact(finite(base.best['throughput']))} transactions/s"]
    for series in variants[1:]:
        ratio = _times(inputs.analysis.findings.get(f"peak_ratio.{series.name}"))
        parts.append(f"'{series.shown}' at {compact(finite(series.best['throughput']))}{ratio}")
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
    """Draw the ratios of each variant to the first, with intervals."""
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
    lowest, highest = min([*ends, 1.0]), max([*ends, 1.0])
    margin = max((highest / lowest) ** 0.08, 1.02)
    domain = [lowest / margin, highest * margin]
    axis = alt.Axis(title=f"ratio to '{clean(table[0].get('baseline'))}' (logarithmic axis)", format="~g", tickCount=7)
    log = alt.Scale(type="log", domain=domain, nice=False)
    x = alt.X("x:Q", scale=log, axis=axis)
    y = alt.Y("y:N", sort=None, axis=alt.Axis(title=None, labelLimit=330, ticks=False, domain=False))
    shown = alt.Chart(data([{**row, "text": _ratio_text(row)} for row in rows]))
    with_bars = alt.Chart(data([row for row in rows if row["low"] is not None and row["high"] is not None]))
    kinds = [(name, shape) for _, name, shape in _RATIOS if any(row["kind"] == name for row in rows)]
    shapes = alt.Shape("kind:N", scale=alt.Scale(domain=[k for k, _ in kinds], range=[s for _, s in kinds]), legend=None)
    layers = [
        alt.Chart(data([{"x": 1}])).mark_rule(color="#8c959f", strokeDash=[5, 4]).encode(x=x),
        with_bars.mark_rule(color=BLUE, strokeWidth=2).encode(x=alt.X("low:Q", scale=log, axis=axis), x2=alt.X2("high:Q"), y=y),
        shown.mark_point(color=BLUE, fill=BLUE, size=70, opacity=1).encode(x=x, y=y, shape=shapes),
    ]
    layers += chart_style.haloed(shown.encode(x=x, y=y, text=alt.Text("text:N")), dy=-12, color=MUTED, fontSize=11)
    sentence = _ratio_sentence(inputs)
    subtitle = (
        "Bars are 95 % intervals from the spread of the repeats. A bar that crosses the dashed line at 1 means no significant difference."
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
    base = clean(table[0].get("baseline"))
    parts = []
    for row in table:
        ratio = row.get("peak_ratio")
        value = finite(ratio)
        if not isinstance(ratio, Finding) or value is None:
            continue
        low, high = bounds(ratio)
        inconclusive = low is not None and high is not None and low <= 1 <= high
        parts.append(f"'{clean(row['variant'])}' {'has no significant difference' if inconclusive else f'has {value:.2f} times that'}")
    return f"Relative to the peak of '{base}': {', '.join(parts)}" if parts else f"Ratios to '{base}'"


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """Draw latency against throughput: past the knee, more clients only add latency."""
    names = [("p50", SKY, "circle"), ("p95", BLUE, "square"), ("p99", VERMILLION, "triangle-up")]
    variants = variant_series(inputs.analysis, "scaling", *(name for name, *_ in names))
    if not any(len(series.rows) > 1 for series in variants):
        raise FigureUnavailable("fewer than two numbers of clients have enough sampled transactions for a percentile")
    if len(variants) > 1:
        parts = [(series.shown, series, "p95", series.colour, series.shape) for series in variants]
    else:
        parts = [(name, variants[0], name, colour, shape) for name, colour, shape in names]
    marked = [(text, _latency_points(series, column), colour, shape) for text, series, column, colour, shape in parts]
    marked = [part for part in marked if part[1]]
    highest = max(point["x"] for _, latencies, *_ in marked for point in latencies)
    values = [
        value for _, latencies, *_ in marked for point in latencies for name in ("y", "low", "high") if (value := point[name]) is not None
    ]
    unit, scale = unit_of(highest)
    log = max(values) / min(value for value in values if value > 0) > 8
    low, high = (
        (min(value for value in values if value > 0) / 1.4, max(values) * 1.4)
        if log
        else (0.0, chart_style.nice_ceiling(max(values) * 1.1))
    )
    right = highest / scale * 1.06
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=alt.Axis(title=unit, grid=False))
    title = "latency, ms" if len(variants) == 1 else "p95 latency, ms"
    axis = alt.Axis(title=title, tickCount=6, format="~g")
    y = alt.Y("y:Q", scale=alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False), axis=axis)
    layers: list[alt.Chart] = []
    labels = []
    for text, latencies, colour, shape in marked:
        scaled = [{**point, "x": point["x"] / scale, "low": max(point["low"], low)} for point in latencies]
        layers += _path(scaled, x, y, colour, shape)
        labels.append((right, scaled[-1]["y"], text, colour))
    layers += _client_labels([{**point, "x": point["x"] / scale} for point in marked[0 if len(variants) > 1 else -1][1]], x, y, high, log)
    layers += end_labels(labels, x, y, (low, high), log=log)
    sentence = _latency_sentence(variants)
    subtitle = (
        f"Each line connects points in order of clients, which the numbers show. {'Logarithmic axis. ' if log else ''}Percentiles of a "
        f"sampled log, averaged over the series. {BAR_NOTE}"
    )
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=TALL, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), "A percentile is omitted if fewer than ten sampled transactions are above it.")


def _latency_points(series: VariantSeries, column: str) -> list[dict[str, float]]:
    """Return x (tps), y, low, high (ms) and clients. Without an interval, low and high are the value."""
    latencies = []
    for row in series.rows:
        value, tps = finite(row.get(column)), finite(row.get("throughput"))
        if value is not None and value > 0 and tps is not None:
            low, high = bounds(row[column])
            latencies.append({"x": tps, "y": value, "low": low or value, "high": high or value, "clients": clients(row)})
    return latencies


def _path(part: Sequence[Mapping[str, float]], x: alt.X, y: alt.Y, colour: str, shape: str) -> list[alt.Chart]:
    """Draw a line through points in order of clients, not of x, with interval bars."""
    source = alt.Chart(data(part))
    return [
        source.mark_line(color=colour, strokeWidth=1.6).encode(x=x, y=y, order=alt.Order("clients:Q")),
        source.mark_rule(color=colour, strokeWidth=1.6).encode(x=x, y=chart_style.on(y, "low:Q"), y2=alt.Y2("high:Q")),
        source.mark_point(color=colour, fill=colour, shape=shape, size=45, opacity=1).encode(x=x, y=y),
    ]


def _client_labels(part: Sequence[Mapping[str, float]], x: alt.X, y: alt.Y, top: float, log: bool) -> list[alt.Chart]:
    """Label points with their number of clients. Labels that would overlap an earlier one are left out."""
    labelled: list[Mapping[str, float]] = []
    width = max((point["x"] for point in part), default=1.0)
    for point in part:
        near = (
            abs(point["x"] - other["x"]) < 0.03 * width
            and abs(math.log(point["y"] / other["y"]) if log else (point["y"] - other["y"]) / top) < (0.18 if log else 0.05)
            for other in labelled
        )
        if not any(near):
            labelled.append(point)
    rows = [{"x": point["x"], "y": point["high"], "text": f"{point['clients']:g}"} for point in labelled]
    text = alt.Chart(data(rows)).encode(x=x, y=y, text=alt.Text("text:N"))
    return chart_style.haloed(text, dy=-10, fontSize=11, color=MUTED)


def _latency_sentence(variants: Sequence[VariantSeries]) -> str:
    if len(variants) > 1:
        parts = [
            f"{brief(finite(series.best.get('p95')))} ms for '{series.shown}'"
            for series in variants
            if finite(series.best.get("p95")) is not None
        ]
        return f"At the highest throughput p95 is {', '.join(parts)}" if parts else "Latency against throughput"
    series = variants[0]
    best, end = series.best, series.rows[-1]
    percentiles = [f"{name} is {brief(value)} ms" for name in ("p95", "p99") if (value := finite(best.get(name))) is not None]
    text = f"At the highest throughput, with {_clients(clients(best))}, {' and '.join(percentiles) or 'no percentile has enough samples'}"
    after, before = finite(end.get("p95")), finite(best.get("p95"))
    if end is not best and after is not None and before is not None:
        text += f"; with {clients(end):g}, p95 is {brief(after)} ms for no more throughput" if after > before else ""
    return text


# ---- several runs in one figure


@dataclass(frozen=True)
class ScalingOverlayLine:
    """One variant of one run: name, rows and style, and the curve of its best model.

    ``model`` has (clients, transactions per second), and is empty if no model was selected.
    """

    name: str
    rows: VariantSeries
    model: tuple[tuple[float, float], ...] = ()


def overlay_lines(runs: Sequence[tuple[str, RunRecord]]) -> list[ScalingOverlayLine]:
    """Return the curves of all runs with at least two numbers of clients.

    Raises:
        NotDrawn: no run has them.
    """
    lines: list[ScalingOverlayLine] = []
    for name, record in runs:
        if record.analysis is None:
            continue
        for series in variant_series(record.analysis, "scaling", "throughput"):
            if len(series.rows) < 2:
                continue
            style = len(lines)
            coloured = VariantSeries(series.name, series.rows, SERIES[style % len(SERIES)], SHAPES[style % len(SHAPES)])
            model = throughput_charts.best_curve(FigureInputs(record, record.analysis, []), last_clients([series]), series.name)
            lines.append(ScalingOverlayLine(_overlay_label(name, series.name), coloured, tuple(model)))
    if not lines:
        raise FigureUnavailable("no run has two numbers of clients to draw")
    return lines


def _overlay_label(run: str, variant: str) -> str:
    """Return the name of a curve. Long names keep the start and end of both run and variant, where names mostly differ."""
    if not variant:
        return short_name(run)
    full = f"{clean(run)}: {clean(variant)}"
    return full if len(full) <= MAX_LABEL else f"{short_name(run, MAX_LABEL // 2)}: {short_name(variant, MAX_LABEL // 2)}"


def overlay_throughput(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Draw throughput of all runs and their variants against clients, with their best models."""
    overlay = overlay_lines(runs)
    values = [
        value for line in overlay for point in points(line.rows.rows, "throughput") for name in ("y", "high") if (value := point[name])
    ]
    unit, scale = unit_of(max(values))
    top = chart_style.nice_ceiling(max(values) / scale * 1.02)
    right = max([last_clients([line.rows for line in overlay]) * 1.02, *(n for line in overlay for n, _ in line.model)])
    x, y = clients_axis(right), alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title=unit)
    layers: list[alt.Chart] = chart_style.lines(
        [([(n, min(value / scale, top)) for n, value in line.model], line.rows.colour, 1.4, [4, 4]) for line in overlay if line.model], x, y
    )
    labels = []
    for line in overlay:
        part = points(line.rows.rows, "throughput", scale)
        layers += chart_style.line_with_bars(part, x, y, line.rows.colour, line.rows.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, line.name, line.rows.colour))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = "Highest throughput: " + ", ".join(f"{line.name} {compact(finite(line.rows.best['throughput']))} tps" for line in overlay)
    modelled = " Dashed: the best model." if any(line.model for line in overlay) else " No model was selected."
    return Figure(
        sentence,
        alt.layer(
            *layers,
            width=chart_style.plot_width([text for *_, text, _ in labels]),
            height=TALL,
            title=chart_style.title(sentence, f"Medians of the series. {BAR_NOTE}{modelled}"),
        ),
        (TRIALS,),
    )


OVERLAYS = {"clients": overlay_throughput}
"""Figures of several runs, by file name."""
