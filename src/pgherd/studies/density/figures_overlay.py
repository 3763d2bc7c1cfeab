"""Curves of several density runs over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from pgherd.model.run import RunRecord
from pgherd.report import chart_style
from pgherd.report.chart_style import HEIGHT, SERIES, end_labels
from pgherd.report.data_files import Row
from pgherd.report.drawing import TRIALS, Figure, FigureUnavailable
from pgherd.report.formatting import bounds, clean, compact, finite, percent
from pgherd.studies.density.figures import BAR_NOTE, databases_axis
from pgherd.studies.density.figures_data import at_full, databases, numbers, reach, rows_with, share_point

_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
LABEL = 28
"""Longest label beside a curve; longer names are cut in the middle."""


@dataclass(frozen=True)
class Curve:
    """One run's rows with its name, colour and point shape."""

    name: str
    rows: list[Row]
    colour: str
    shape: str


def curves(runs: Sequence[tuple[str, RunRecord]], column: str) -> list[Curve]:
    """The runs that have this column at two points or more.

    Raises:
        FigureUnavailable: no run has one.
    """
    found = []
    for index, (name, record) in enumerate(runs):
        rows = rows_with(record.analysis, "density", column) if record.analysis else []
        if len(rows) > 1:
            found.append(Curve(short(name), rows, SERIES[index % len(SERIES)], _SHAPES[index % len(_SHAPES)]))
    if not found:
        raise FigureUnavailable("no run has two numbers of databases with a number to draw")
    return found


def short(name: str, most: int = LABEL) -> str:
    """A name where there is room for few letters: both its ends."""
    name = clean(name)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def throughput(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Measured throughput of all runs against databases."""
    drawn = curves(runs, "throughput")
    highest = max(value for curve in drawn for value in numbers(curve.rows, "throughput"))
    unit, scale = ("thousand transactions/s", 1e3) if highest >= 2e4 else ("transactions/s", 1.0)
    top = chart_style.nice_ceiling(highest / scale * 1.02)
    right = max(databases(curve.rows[-1]) for curve in drawn) * 1.02
    x = databases_axis(right)
    y = chart_style.y_axis([0, top], title=unit)
    layers: list[alt.Chart] = []
    labels = []
    for curve in drawn:
        part = []
        for row in curve.rows:
            low, high = (None if bound is None else bound / scale for bound in bounds(row["throughput"]))
            part.append({"x": databases(row), "y": (finite(row["throughput"]) or 0.0) / scale, "low": low, "high": high})
        layers += chart_style.line_with_bars(part, x, y, curve.colour, curve.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, curve.name, curve.colour))
    layers += end_labels(labels, x, y, (0, top))
    said = [f"{curve.name} {compact(finite(at_full(curve.rows)['throughput']))} tps" for curve in drawn]
    sentence = "At the largest point within the cores: " + ", ".join(said)
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([text for *_, text, _ in labels]),
        height=HEIGHT,
        title=chart_style.title(sentence, f"Throughput of all databases of a run together. {BAR_NOTE}"),
    )
    return Figure(sentence, chart, (TRIALS,))


def efficiency(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Efficiency in throughput of all runs against the fraction of their own cores."""
    against = "Each run against its own one-database value and its own cores."
    return _efficiency(runs, "efficiency", "throughput, % of one database × N", "Of one database × N", against)


def efficiency_cpu(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Efficiency in CPU time per transaction of all runs: what tells them apart where quotas make throughput straight."""
    against = "CPU time per transaction of one database ÷ that of N: each run against its own, by the fraction of its own cores."
    return _efficiency(runs, "efficiency_cpu", "CPU/tx of one database ÷ CPU/tx of N, %", "In CPU per transaction", against)


def _efficiency(runs: Sequence[tuple[str, RunRecord]], column: str, axis_title: str, of_what: str, against: str) -> Figure:
    drawn = [curve for curve in curves(runs, column) if all(finite(row.get("fraction")) is not None for row in curve.rows)]
    if not drawn:
        raise FigureUnavailable("no run says which fraction of its cores a point is")
    parts = {
        curve.name: [{**share_point(row, column), "x": (finite(row["fraction"]) or 0.0) * 100} for row in curve.rows] for curve in drawn
    }
    low, high = reach([point for part in parts.values() for point in part])
    right = max(part[-1]["x"] or 0.0 for part in parts.values()) * 1.02
    axis = alt.Axis(title="fraction of the run's cores given to databases, %", grid=False)
    x = chart_style.x_axis([0, right], axis=axis)
    y = chart_style.y_axis([low, high], title=axis_title)
    layers = chart_style.level(100, "perfect", right, x, y)
    labels = []
    for curve in drawn:
        part = parts[curve.name]
        layers += chart_style.line_with_bars(part, x, y, curve.colour, curve.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, curve.name, curve.colour))
    layers += end_labels(labels, x, y, (low, high))
    full = [at_full(curve.rows) for curve in drawn]
    said = [
        f"{curve.name} keeps {percent(row.get(column))} at {percent(row.get('fraction'), decimals=0)}"
        for curve, row in zip(drawn, full, strict=True)
    ]
    sentence = f"{of_what}, {', '.join(said)} of its cores"
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width([text for *_, text, _ in labels]),
        height=HEIGHT,
        title=chart_style.title(sentence, f"{against} {BAR_NOTE} The axis starts at {low:g} %."),
    )
    return Figure(sentence, chart, (TRIALS,))


OVERLAYS = {"efficiency": efficiency, "efficiency_cpu": efficiency_cpu, "throughput": throughput}
"""Figures of several runs, by file name."""
