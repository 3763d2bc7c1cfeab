"""Figure of a search by latency objective: latency of the worst database against the size, with the objective."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, HEIGHT, MUTED, PURPLE, VERMILLION, data, end_labels
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, brief, finite, number

_COLOURS = (BLUE, PURPLE, GREEN)
_AXIS = {"databases": "databases under load", "rate": "rate, transactions/s"}


@register("objective")
def objective(inputs: FigureInputs) -> Figure:
    """Draw the percentile of the worst database at each size, the objective, and the largest size that keeps it."""
    search, rows = inputs.analysis.figures.get("objective"), inputs.analysis.tables.get("objective", [])
    if not isinstance(search, Mapping):
        raise FigureUnavailable
    column = str(search["size"])
    points: dict[str, list[dict[str, float | None]]] = {}
    limits: dict[str, float] = {}
    for given in search["objectives"]:
        name = f"p{float(given['percentile']):g}"
        limits[name] = float(given["limit_ms"])
        for row in rows:
            cell = row.get(name.replace(".", "_"))
            if (value := finite(cell)) is not None and value > 0:
                low, high = bounds(cell)
                points.setdefault(name, []).append({"x": finite(row[column]), "y": value, "low": low, "high": high})
    values = [value for part in points.values() for point in part for key in ("y", "low", "high") if (value := point[key])]
    if not values:
        raise FigureUnavailable("no size has enough sampled transactions for the percentile")
    low, high = min([*values, *limits.values()]) / 2, max([*values, *limits.values()]) * 1.5
    right = max(finite(row[column]) or 0.0 for row in rows) * 1.04
    axis = alt.Axis(title=_AXIS.get(column, column), grid=False, format="~s" if right > 1000 else "d")
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right], nice=False), axis=axis)
    y = alt.Y(
        "y:Q", scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=alt.Axis(title="latency, ms", tickCount=6, format="~g")
    )
    layers: list[alt.Chart] = []
    labels = []
    for index, (name, limit) in enumerate(limits.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        layers.append(alt.Chart(data([{"y": limit}])).mark_rule(color=VERMILLION, strokeDash=[5, 4], strokeWidth=1.4).encode(y=y))
        labels.append((right, limit, f"objective: {name} ≤ {limit:g} ms", VERMILLION))
        if part := points.get(name):
            layers += chart_style.line_with_bars(part, x, y, colour, "circle")
            labels.append((right, part[-1]["y"] or low, f"{name} {brief(part[-1]['y'])} ms", colour))
    capacity = finite(search.get("capacity"))
    finding = inputs.analysis.findings.get("capacity")
    known = finite(finding) is not None
    if capacity is not None:
        text = f"largest {'that keeps the objective' if known else 'measured, which keeps the objective'}: {number(capacity)}"
        layers += chart_style.rules([(capacity, text, MUTED)], x, y, (low, 3 * low), right)  # texts at the bottom of the logarithmic axis
    layers += end_labels(labels, x, y, (low, high), log=True)
    noun = "databases" if column == "databases" else "transactions/s"
    kept = " and ".join(f"{name} ≤ {limit:g} ms" for name, limit in limits.items())
    sentence = f"No size keeps {kept}" if capacity is None else f"{number(capacity)} {noun} keep {kept}"
    if capacity is not None and not known:
        sentence = f"At least {sentence}" if finding is not None and finding.low == capacity else f"{sentence}, the largest measured"
    subtitle = (
        "Worst database of each block, median of the blocks. Logarithmic axis. Bars are 95 % intervals of the median. A point without one "
        "has too few blocks."
    )
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))
