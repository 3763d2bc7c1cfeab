"""Chart layers that density and scaling share: model curves, points by bottleneck, CPU stack. Imports altair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, FAINT, GREEN, HEIGHT, INK, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Line, data
from pgherd.report.data_files import Row
from pgherd.report.drawing import FigureInputs
from pgherd.report.formatting import bounds, finite


def best_model(inputs: FigureInputs, variant: str = "") -> str | None:
    """Return the name of the selected model, of one variant in a run with variants."""
    name = _models(inputs, variant).get("best")
    return str(name) if name else None


def best_curve(inputs: FigureInputs, last: float, variant: str = "") -> list[tuple[float, float]]:
    """Return the curve of the selected model as in ``model_curves``, or an empty list without one."""
    return dict(model_curves(inputs, last, variant)).get(best_model(inputs, variant) or "", [])


def _models(inputs: FigureInputs, variant: str) -> Mapping[str, Any]:
    figures = inputs.analysis.figures
    by_variant = figures.get("variant_models")
    models = figures.get("models") if not variant else by_variant.get(variant) if isinstance(by_variant, Mapping) else None
    return models if isinstance(models, Mapping) else {}


def model_curves(inputs: FigureInputs, last: float, variant: str = "") -> list[tuple[str, list[tuple[float, float]]]]:
    """Return each model's curve as (load, throughput), of one variant in a run with variants.

    Curves end at most a fifth beyond the last measured load, and have a point exactly there.
    """
    found = []
    for name, curve in _models(inputs, variant).items():
        if not isinstance(curve, Mapping):
            continue
        pairs = zip(curve.get("n", ()), curve.get("x", ()), strict=False)
        points = sorted((n, x) for a, b in pairs if (n := finite(a)) is not None and (x := finite(b)) is not None and n <= last * 1.2)
        ends = [(last, x0 + (x1 - x0) * (last - n0) / (n1 - n0)) for (n0, x0), (n1, x1) in pairwise(points) if n0 < last < n1]
        if len(points) > 1:
            found.append((str(name), sorted(points + ends)))
    return found


def curve_lines(
    inputs: FigureInputs, found: list[tuple[str, list[tuple[float, float]]]], last: float, scale: float, variant: str = ""
) -> tuple[list[Line], list[tuple[float, str, str]]]:
    """Return lines of the curves, solid within the data and dashed beyond, and their labels (height at the end, text, colour).

    ``scale`` divides throughputs. The selected model stands out as the best fit if it was compared with another.
    """
    compared = (finite(_models(inputs, variant).get("compared")) or 2) > 1
    chosen = best_model(inputs, variant) if compared else None
    lines: list[Line] = []
    labels = []
    for index, (name, points) in enumerate(found):
        colour, width = (GREEN, 2.2) if name == chosen else ((PURPLE, ORANGE, SKY)[index % 3], 1.4)
        scaled = [(n, value / scale) for n, value in points]
        lines.append(([point for point in scaled if point[0] <= last], colour, width, [1, 0]))
        lines.append(([point for point in scaled if point[0] >= last], colour, width, [4, 4]))
        labels.append((scaled[-1][1], f"{'best fit: ' if name == chosen else ''}{model_name(name)}", colour))
    return lines, labels


def model_name(name: str) -> str:
    """Return a model's name for a label."""
    return {"usl": "USL", "piecewise-linear": "piecewise linear"}.get(name, clean(name))


MarkerStyle = tuple[str, str, str, str]
"""Legend text, fill, stroke and shape."""

STORAGE: MarkerStyle = ("limited by storage", PURPLE, PURPLE, "triangle-up")
UNKNOWN: MarkerStyle = ("unknown", "#8c959f", "#59636e", "circle")
TAINTED: MarkerStyle = ("has tainted trials", "transparent", VERMILLION, "circle")


def limited_by_clients(label: str) -> MarkerStyle:
    """Return the style of points whose bottleneck is the load generator."""
    return (label, ORANGE, ORANGE, "triangle-down")


def limited_by_host(label: str) -> MarkerStyle:
    """Return the style of points whose bottleneck is the CPU of the host."""
    return (label, BLUE, BLUE, "circle")


def limited_points(
    rows: Sequence[Row],
    position: Callable[[Row], float],
    looks: Mapping[str, MarkerStyle],
    scale: float,
    x: alt.X,
    y: alt.Y,
    legend: alt.Legend,
) -> list[alt.Chart]:
    """Return points with interval bars, and a ring around points with tainted trials. The legend has only the present styles.

    Args:
        rows: table rows with ``throughput`` (transactions/s), ``bottleneck`` and ``tainted_trials``.
        position: function that returns the x position of a row.
        looks: ``bottleneck`` → style of the point.
        scale: transactions/s per unit of the y axis.
        x: x axis of a field ``x``.
        y: y axis of a field ``y``.
        legend: position of the legend.
    """
    marks, rings, bars = [], [], []
    for row in rows:
        at = {"x": position(row), "y": (finite(row["throughput"]) or 0.0) / scale}
        low, high = bounds(row["throughput"])
        if low is not None and high is not None:
            bars.append({"x": at["x"], "low": low / scale, "high": high / scale})
        marks.append({**at, "kind": looks.get(str(row.get("bottleneck")), UNKNOWN)[0]})
        if finite(row.get("tainted_trials")):
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

    intervals = chart_style.interval_bars(bars, x, y, mark={"color": INK, "strokeWidth": 2})
    return [*intervals, drawn(marks, 70), *([drawn(rings, 230)] if rings else [])]


_PARTS = {
    "databases_cpu": ("databases", BLUE),
    "clients_cpu": ("clients", SKY),
    "platform_cpu": ("platform", ORANGE),
    "": ("not separable", "#7f9db0"),
    "pgherd_cpu": ("pgherd", VERMILLION),
    "iowait": ("iowait", PURPLE),
    "steal": ("steal", INK),
    "idle": ("idle", FAINT),
}
"""Column → name and colour, from bottom to top. '' is CPU time in the host's total that no column contains."""


def cpu_stack(bars: Sequence[tuple[float, Row]], total: float | None, axis_title: str, sentence: str, what: str) -> alt.TopLevelMixin:
    """Return one bar per (load, row of cores). ``total`` is the host's number of CPUs, ``what`` the name of 'databases_cpu'."""
    rows = [row for _, row in bars]
    order = _stack_order(rows, total, what)
    stacked = [segment for load, row in bars for segment in _segments(load, row, order, total)]
    top = max(high for _, _, high, *_ in stacked)
    x = alt.X("x:O", sort=None, axis=alt.Axis(title=axis_title, labelAngle=0), scale=alt.Scale(paddingInner=0.25))
    y = alt.Y("low:Q", title="cores", scale=alt.Scale(domain=[0, top], nice=False))
    values = [{"x": f"{n:g}", "low": low, "high": high, "colour": colour} for n, low, high, _, colour in stacked]
    drawn = alt.Chart(data(values)).mark_bar(stroke="#ffffff", strokeWidth=0.5)
    last = stacked[-len(order) :]
    placed = chart_style.spread([(low + high) / 2 for _, low, high, *_ in last], 18 * top / HEIGHT, 0, top)
    keys = [{"y": at, "swatch": "■", "name": name, "colour": colour} for at, (*_, name, colour) in zip(placed, last, strict=True)]
    width = chart_style.plot_width(["  " + name for *_, name, _ in last])
    beside = alt.Chart(data(keys)).encode(x=alt.value(width + 6), y=chart_style.on(y, "y:Q"))
    layers = [
        drawn.encode(x=x, y=y, y2=alt.Y2("high:Q"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", fontSize=16).encode(text=alt.Text("swatch:N"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", dx=16, fontSize=12).encode(text=alt.Text("name:N")),
    ]
    subtitle = "Mean over the common window of each point's trials."
    if any(column.startswith("platform_cpu.") for column, *_ in order):
        subtitle += " Tracked parts of the platform are separate segments."
    if any(not column for column, *_ in order):
        subtitle += f" This runtime does not measure the CPU of containers, so {what} and platform are not separable."
    return alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))


def _stack_order(rows: Sequence[Row], total: float | None, what: str) -> list[tuple[str, str, str]]:
    """Return (column, name, colour) from bottom to top, of the columns that have a number."""
    named = sorted({name for row in rows for name in row if name.startswith("platform_cpu.")})
    order = []
    for column, (name, colour) in _PARTS.items():
        if column == "databases_cpu":
            name = what
        if column == "platform_cpu":
            order += [
                (part, f"platform: {clean(part.removeprefix('platform_cpu.'))}", (GREEN, YELLOW)[i % 2]) for i, part in enumerate(named)
            ]
            name = "platform, other" if named else name
        order.append((column, name, colour))
    missing = total is not None and any(finite(row.get("databases_cpu")) is None for row in rows)
    return [part for part in order if (any(finite(row.get(part[0])) is not None for row in rows) if part[0] else missing)]


def _segments(
    load: float, row: Row, order: Sequence[tuple[str, str, str]], total: float | None
) -> list[tuple[float, float, float, str, str]]:
    """Return (load, low, high, name, colour) of the segments of one bar, in cores."""
    cores_of = {column: max(finite(row.get(column)) or 0.0, 0.0) for column, *_ in order if column}
    # The platform's value includes its tracked parts, which are separate segments. The segment 'platform' is the remainder.
    parts = sum(cores for column, cores in cores_of.items() if column.startswith("platform_cpu."))
    if "platform_cpu" in cores_of:
        cores_of["platform_cpu"] = max(cores_of["platform_cpu"] - parts, 0.0)
    missing = finite(row.get("databases_cpu")) is None
    cores_of[""] = max((total or 0.0) - sum(cores_of.values()), 0.0) if missing else 0.0
    segments, below = [], 0.0
    for column, name, colour in order:
        segments.append((load, below, below + cores_of[column], name, colour))
        below += cores_of[column]
    return segments
