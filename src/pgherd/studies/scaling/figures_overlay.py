"""Curves of several scaling runs over each other, each with the model that fits it best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from pgherd.model.run import RunRecord
from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import SERIES, end_labels
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable
from pgherd.report.formatting import clean, compact, finite
from pgherd.studies.density.figures_overlay import LABEL, short
from pgherd.studies.scaling.figures import BAR_NOTE, TALL, clients_axis, unit_of
from pgherd.studies.scaling.figures_data import SHAPES, Series, last, points, series


@dataclass(frozen=True)
class Curve:
    """One variant of one run (or the run itself): its name, rows, colour and shape, and the best model's curve (clients,
    transactions per second; empty where no model was chosen)."""

    name: str
    rows: Series
    model: tuple[tuple[float, float], ...] = ()


def curves(runs: Sequence[tuple[str, RunRecord]]) -> list[Curve]:
    """The curves of all runs that have two numbers of clients or more.

    Raises:
        FigureUnavailable: no run has one.
    """
    found: list[Curve] = []
    for name, record in runs:
        if record.analysis is None:
            continue
        for one in series(record.analysis, "scaling", "throughput"):
            if len(one.rows) < 2:
                continue
            place = len(found)
            coloured = Series(one.name, one.rows, SERIES[place % len(SERIES)], SHAPES[place % len(SHAPES)])
            model = throughput_charts.best_curve(FigureInputs(record, record.analysis, []), last([one]), one.name)
            found.append(Curve(_label(name, one.name), coloured, tuple(model)))
    if not found:
        raise FigureUnavailable("no run has two numbers of clients with a number to draw")
    return found


def _label(run: str, variant: str) -> str:
    """A curve's name; where there is no room for both, each of run and variant keeps its ends, by which names mostly differ."""
    if not variant:
        return short(run)
    whole = f"{clean(run)}: {clean(variant)}"
    return whole if len(whole) <= LABEL else f"{short(run, LABEL // 2)}: {short(variant, LABEL // 2)}"


def throughput(runs: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Measured throughput of all runs and their variants against clients, and each one's best model."""
    drawn = curves(runs)
    values = [value for one in drawn for point in points(one.rows.rows, "throughput") for name in ("y", "high") if (value := point[name])]
    unit, scale = unit_of(max(values))
    top = chart_style.nice_ceiling(max(values) / scale * 1.02)
    right = max([last([one.rows for one in drawn]) * 1.02, *(n for one in drawn for n, _ in one.model)])
    x, y = clients_axis(right), chart_style.y_axis([0, top], title=unit)
    layers: list[alt.Chart] = chart_style.lines(
        [([(n, min(value / scale, top)) for n, value in one.model], one.rows.colour, 1.4, [4, 4]) for one in drawn if one.model], x, y
    )
    labels = []
    for one in drawn:
        part = points(one.rows.rows, "throughput", scale)
        layers += chart_style.line_with_bars(part, x, y, one.rows.colour, one.rows.shape)
        labels.append((part[-1]["x"] or 0.0, part[-1]["y"] or 0.0, one.name, one.rows.colour))
    layers += end_labels(labels, x, y, (0, top), height=TALL)
    sentence = "At most, " + ", ".join(f"{one.name} {compact(finite(one.rows.best['throughput']))} tps" for one in drawn)
    modelled = " Dashed: the model that fits best." if any(one.model for one in drawn) else " No model was chosen for any of them."
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


OVERLAYS = {"clients": throughput}
"""Figures of several runs, by file name."""
