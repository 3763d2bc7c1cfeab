"""Figure of a verification: predicted and measured CPU by host and slot."""

from __future__ import annotations

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite

STUDY = "place-verify"
_PANEL_HEIGHT = 150


@register("predicted_and_measured")
def predicted_and_measured(inputs: FigureInputs) -> Figure:
    """Draw the predicted CPU of each slot with its interval, and the measured CPU, one panel per host."""
    rows: dict[str, list[dict[str, object]]] = {}
    for row in inputs.analysis.tables.get("slots", []):
        predicted, measured = row.get("predicted_cpu"), finite(row.get("measured_cpu"))
        if isinstance(predicted, Finding) and measured is not None:
            points = rows.setdefault(clean(row["planned_host"]), [])
            points.append(
                {
                    "slot": clean(row["slot"]),
                    "predicted": predicted.value,
                    "low": predicted.low,
                    "high": predicted.high,
                    "measured": measured,
                }
            )
    if not rows:
        raise FigureUnavailable("no slot was measured")
    charts = []
    for host, points in rows.items():
        base = alt.Chart(data(points)).encode(x=alt.X("slot:N", sort=None, title="slot", axis=alt.Axis(labelAngle=0, labelOverlap=True)))
        y = alt.Y("low:Q", title="CPU, cores", scale=alt.Scale(zero=True), axis=alt.Axis(format="~g", tickCount=4))
        layers = alt.layer(
            base.mark_bar(width={"band": 0.7}, opacity=0.35, color=SERIES[0]).encode(y=y, y2="high:Q"),
            base.mark_tick(color=SERIES[0], thickness=2, width={"band": 0.7}).encode(y="predicted:Q"),
            base.mark_point(color=INK, filled=True, size=42, opacity=1).encode(y="measured:Q"),
        )
        charts.append(layers.properties(width=chart_style.plot_width(), height=_PANEL_HEIGHT, title=chart_style.panel_title(host)))
    subtitle = "Bars are 95 % prediction intervals around the prediction, and dots are the measurement. CPU as scaled down."
    chart = chart_style.panels(charts, inputs.analysis.answer, subtitle, spacing=14)
    return Figure(inputs.analysis.answer, chart, (TRIALS,))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Replace the general figure: databases have different rates, so their throughputs cannot be compared."""
    raise FigureUnavailable("")
