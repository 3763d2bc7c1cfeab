"""Figures of a mix of tenants: what each class gets as tenants are added."""

from __future__ import annotations

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style, trial_figures
from pgherd.report.chart_style import HEIGHT, INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite

TABLE = "tenants"


@register(TABLE)
def tenants(inputs: FigureInputs) -> Figure:
    """Draw the throughput of a tenant relative to one alone, by class and number of tenants. Crosses are sizes at which a class fails."""
    points = [
        {
            "x": finite(row["tenants"]),
            "y": 100 * value,
            "class": clean(row["class"]),
            "passes": "passes" if row["keeps"] == "yes" else "fails",
        }
        for row in inputs.analysis.tables.get(TABLE, [])
        if (value := finite(row["efficiency"])) is not None
    ]
    if not points:
        raise FigureUnavailable("no tenant was measured in a mix" if TABLE in inputs.analysis.tables else "")
    names = list(dict.fromkeys(str(point["class"]) for point in points))
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=alt.Legend(title="class"))
    shape = alt.Shape(
        "passes:N", scale=alt.Scale(domain=["passes", "fails"], range=["circle", "cross"]), legend=alt.Legend(title="what it has to keep")
    )
    x = alt.X("x:Q", title="tenants", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("y:Q", title="throughput of a tenant, % of one alone", scale=alt.Scale(zero=True), axis=alt.Axis(format=".0f"))
    base = alt.Chart(data(points)).encode(x=x, y=y, color=colour)
    layers = [
        alt.Chart(data([{"y": 100}])).mark_rule(color=INK, strokeWidth=1.2).encode(y="y:Q"),
        base.mark_line(strokeWidth=1.8),
        base.mark_point(size=70, filled=True, opacity=1).encode(shape=shape),
    ]
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width(),
        height=HEIGHT,
        title=chart_style.title(inputs.analysis.answer, "Mean of the tenants of a class in a mix, relative to one of them alone."),
    )
    return Figure(inputs.analysis.answer, chart, (TRIALS,))


@register("phases")
def phases(inputs: FigureInputs) -> Figure:
    """Draw the late transactions of the worst tenant of each class by phase, at the largest size of the table: who suffered, and when."""
    rows = [row for row in inputs.analysis.tables.get("phases", []) if finite(row["late_share"]) is not None]
    if not rows:
        raise FigureUnavailable("no class with phases has an objective" if "phases" in inputs.analysis.tables else "")
    size = max(finite(row["tenants"]) or 0.0 for row in rows)
    points = [
        {"phase": finite(row["phase"]), "late": 100 * (finite(row["late_share"]) or 0.0), "class": clean(row["class"])}
        for row in rows
        if finite(row["tenants"]) == size
    ]
    names = list(dict.fromkeys(str(point["class"]) for point in points))
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=alt.Legend(title="class"))
    chart = (
        alt.Chart(data(points))
        .mark_line(strokeWidth=1.8, point=True)
        .encode(
            x=alt.X("phase:Q", title="phase", axis=alt.Axis(tickMinStep=1, grid=False)),
            y=alt.Y("late:Q", title="late transactions of the worst tenant, %", axis=alt.Axis(format="~r")),
            color=colour,
        )
    )
    sentence = f"Late transactions by phase with {size:g} tenants"
    chart = chart.properties(
        width=chart_style.plot_width(), height=HEIGHT, title=chart_style.title(sentence, "Median of the blocks. Idle tenants have none.")
    )
    return Figure(sentence, chart, (TRIALS,))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Draw the general figure, but not for a mix: tenants of different classes have different throughputs."""
    if TABLE in inputs.analysis.tables:
        raise FigureUnavailable("")
    return trial_figures.fairness(inputs)
