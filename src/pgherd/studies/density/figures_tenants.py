"""Figures of a mix of tenants: what each class gets as tenants are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style, trial_figures
from pgherd.report.chart_style import HEIGHT, INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, finite
from pgherd.studies.density.figures import BAR_NOTE

TABLE = "tenants"
BAR = {"strokeWidth": 1.8, "opacity": 0.6}


@register(TABLE)
def tenants(inputs: FigureInputs) -> Figure:
    """Draw the throughput of a tenant relative to one alone, by class and number of tenants. Crosses are sizes at which a class fails."""
    points = [
        {
            "x": finite(row["tenants"]),
            "class": clean(row["class"]),
            "passes": "passes" if row["keeps"] == "yes" else "fails",
            **_percent(row["efficiency"], value),
        }
        for row in inputs.analysis.tables.get(TABLE, [])
        if (value := finite(row["efficiency"])) is not None
    ]
    if not points:
        raise FigureUnavailable("no tenant was measured in a mix" if TABLE in inputs.analysis.tables else "")
    names = list(dict.fromkeys(str(point["class"]) for point in points))
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=alt.Legend(title="class"))
    shape = alt.Shape("passes:N", scale=alt.Scale(domain=["passes", "fails"], range=["circle", "cross"]), legend=alt.Legend(title="result"))
    x = alt.X("x:Q", title="tenants", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("y:Q", title="throughput of a tenant, % of one alone", scale=alt.Scale(zero=True), axis=alt.Axis(format=".0f"))
    base = alt.Chart(data(points)).encode(x=x, y=y, color=colour)
    layers = [
        alt.Chart(data([{"y": 100}])).mark_rule(color=INK, strokeWidth=1.2).encode(y="y:Q"),
        base.mark_line(strokeWidth=1.8),
        *chart_style.interval_bars(points, x, y, mark=BAR, color=colour),
        base.mark_point(size=70, filled=True, opacity=1).encode(shape=shape),
    ]
    subtitle = f"Mean of the tenants of a class in a mix, relative to one of them alone. {BAR_NOTE}"
    title = chart_style.title(inputs.analysis.answer, subtitle)
    chart = alt.layer(*layers, width=chart_style.plot_width(), height=HEIGHT, title=title)
    return Figure(inputs.analysis.answer, chart, (TRIALS,))


@register("phases")
def phases(inputs: FigureInputs) -> Figure:
    """Draw who suffered, and when, at the largest size of the table.

    A class with an objective has the late transactions of its worst tenant by phase, another one the throughput of its slowest tenant.
    """
    rows = inputs.analysis.tables.get("phases", [])
    judged = {clean(row["class"]) for row in rows if finite(row["late_share"]) is not None}
    size = max((finite(row["tenants"]) or 0.0 for row in rows), default=0.0)
    names = list(dict.fromkeys(clean(row["class"]) for row in rows))
    panels = []
    for key, title, shown in (
        ("late_share", "late transactions of the worst tenant, %", [name for name in names if name in judged]),
        ("kept_share", "slowest tenant, % of its rate or of one alone", [name for name in names if name not in judged]),
    ):
        points = [
            {"phase": finite(row["phase"]), "class": clean(row["class"]), **_percent(row[key], value)}
            for row in rows
            if clean(row["class"]) in shown and finite(row["tenants"]) == size and (value := finite(row[key])) is not None
        ]
        if points:
            panels.append(_by_phase(points, names, title))
    if not panels:
        raise FigureUnavailable("no class has a load in a phase" if "phases" in inputs.analysis.tables else "")
    sentence = f"Who suffered, and when, with {size:g} tenants"
    text = f"Late transactions of classes with an objective, throughput of the others. Median of the blocks. {BAR_NOTE}"
    return Figure(sentence, chart_style.panels(panels, sentence, text, spacing=14), (TRIALS,))


def _by_phase(points: Sequence[Mapping[str, object]], names: Sequence[str], title: str) -> alt.LayerChart | alt.FacetChart:
    """Return one panel: a line for each class of the points, with intervals. ``names`` are all classes: each has one colour everywhere."""
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=alt.Legend(title="class"))
    x = alt.X("phase:Q", title="phase", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("y:Q", title=title, axis=alt.Axis(format="~r"), scale=alt.Scale(zero=True))
    line = alt.Chart(data(points)).mark_line(strokeWidth=1.8, point=True).encode(x=x, y=y, color=colour)
    bars = chart_style.interval_bars(points, x, y, mark=BAR, color=colour)
    return alt.layer(line, *bars, width=chart_style.plot_width(), height=HEIGHT)


def _percent(cell: object, value: float) -> dict[str, float | None]:
    """Return a value and its interval in percent, for a chart."""
    low, high = (None if end is None else 100 * end for end in bounds(cell))
    return {"y": 100 * value, "low": low, "high": high}


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Draw the general figure, but not for a mix: tenants of different classes have different throughputs."""
    if TABLE in inputs.analysis.tables or "idle_servers" in inputs.analysis.tables:
        raise FigureUnavailable("")
    return trial_figures.fairness(inputs)
