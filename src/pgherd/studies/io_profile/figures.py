"""The figures of a study of the storage: latency inside and outside of checkpoints, and those of every comparison. What the
devices did by second, sizes and latencies of requests: pgherd.report.io_figures."""

from __future__ import annotations

import altair as alt

from pgherd.analysis import histogram
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean
from pgherd.studies.compare import figures
from pgherd.study.comparison.time_slices import VARIANT

STUDY = "storage"
_INSIDE, _OUTSIDE = "inside of checkpoints", "outside"
LEAST = 100
"""Logged transactions below which no curve is drawn."""


def _compared(inputs: FigureInputs) -> FigureInputs:
    """For figures of a comparison: not missed where nothing was compared."""
    if "comparison" not in inputs.analysis.tables:
        raise FigureUnavailable("")
    return inputs


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """The share of transactions done within a time, inside and outside of checkpoints; one panel for each variant."""
    curves: dict[str, list[dict[str, object]]] = {}
    said = []
    for side in dict.fromkeys(_side(point) for point in (result.trial.point for result in inputs.results)):
        parts = [
            phase.io.latency
            for result in inputs.results
            if _side(result.trial.point) == side and result.error is None
            for phase in result.phases
            if phase.io is not None
        ]
        rows: list[dict[str, object]] = []
        p95 = []
        for name, key in ((_INSIDE, "inside"), (_OUTSIDE, "outside")):
            counts = histogram.merged(part.get(key, {}) for part in parts)  # type: ignore[call-overload]
            total, seen = sum(counts.values()), 0
            if total < LEAST:
                continue
            for index, count in sorted(counts.items()):
                seen += count
                rows.append({"x": max(histogram.bounds(index)[1], 1) / 1000, "y": 100 * seen / total, "line": name})
            value = histogram.quantile(counts, 0.95)
            p95.append(f"{name} {'too few to say' if value is None else f'{value / 1000:.3g} ms'}")
        if rows:
            curves[side] = rows
            said.append(f"{f'with {clean(side)} ' if side else ''}{', '.join(p95)}")
    if not curves:
        raise FigureUnavailable(f"fewer than {LEAST} transactions were logged")
    ends = [float(str(row["x"])) for rows in curves.values() for row in rows]
    panels = [_panel(side, rows, (min(ends), max(ends)), last=side == list(curves)[-1]) for side, rows in curves.items()]
    sentence = f"p95 of transactions: {'; '.join(said)}"
    subtitle = "Logged transactions of all trials. Inside: any part of the transaction lies between a checkpoint's start and its end."
    chart = chart_style.panels(panels, sentence, subtitle, spacing=12)
    return Figure(sentence, chart, (TRIALS, "trials/*/drivers"))


def _side(point: dict[str, int | float | str]) -> str:
    return str(point.get(VARIANT, "")).removesuffix(" again")


def _panel(side: str, rows: list[dict[str, object]], reach: tuple[float, float], *, last: bool) -> alt.Chart:
    """One variant's curves; all panels have the same times, which the last one names."""
    domain = [name for name in (_INSIDE, _OUTSIDE) if any(row["line"] == name for row in rows)]
    colours = {_INSIDE: VERMILLION, _OUTSIDE: BLUE}
    scale = alt.Scale(type="log", domain=[reach[0] / 1.1, reach[1] * 1.1], nice=False)
    x = alt.X("x:Q", title="latency of a transaction, ms" if last else None, scale=scale)
    y = alt.Y("y:Q", title="% done", scale=alt.Scale(domain=[0, 100]))
    colour = alt.Color(
        "line:N", scale=alt.Scale(domain=domain, range=[colours[name] for name in domain]), legend=alt.Legend(title=None, orient="top-left")
    )
    line = alt.Chart(data(rows)).mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, color=colour)
    head = chart_style.panel_title(side, offset=4)
    made: alt.Chart = line.properties(width=chart_style.plot_width(), height=170, **({"title": head} if side else {}))
    return made


@register("forest")
def forest(inputs: FigureInputs) -> Figure:
    """The comparison's own, where something was compared."""
    return figures.forest(_compared(inputs))


@register("pairs")
def pairs(inputs: FigureInputs) -> Figure:
    """The comparison's own, where something was compared."""
    return figures.pairs(_compared(inputs))
