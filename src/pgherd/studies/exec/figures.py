"""Figures of a command's run: duration and extracted values of each trial, and CPU of the host."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.result import clean_or_all
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, HEIGHT, SERIES, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, finite

STUDY = "exec"
_MAX_VALUES = 6
_CPU_KINDS = ("the command", "everything else")
_SUBTITLE = "Each dot is a trial, in the order of the trials. The line is the mean of the clean trials, the band its interval."


@register("fairness")
@register("order")
@register("seconds")
def not_applicable(inputs: FigureInputs) -> Figure:
    """Leave out the general figures, which show transactions."""
    raise FigureUnavailable


@register("duration")
def duration(inputs: FigureInputs) -> Figure:
    """Draw the duration of each trial, in the order of the trials."""
    runs = inputs.analysis.figures.get("runs", [])
    points = [_point(run, number, run.get("duration")) for number, run in enumerate(runs, 1) if finite(run.get("duration")) is not None]
    if not points:
        raise FigureUnavailable  # the clock ended the command, and the answer shows it
    finding = inputs.analysis.findings.get("duration")
    sentence = inputs.analysis.answer.partition(";")[0].rstrip(".")
    return Figure(sentence, _dots(points, "duration, s", sentence, finding), (TRIALS,))


@register("values")
def values(inputs: FigureInputs) -> Figure:
    """Draw the values extracted from the output of each trial, one panel per value."""
    runs = inputs.analysis.figures.get("runs", [])
    names = list(dict.fromkeys(name for run in runs for name in run.get("values", {})))[:_MAX_VALUES]
    panels, texts = [], []
    for name in names:
        points = [
            _point(run, number, run["values"].get(name))
            for number, run in enumerate(runs, 1)
            if finite(run["values"].get(name)) is not None
        ]
        finding = inputs.analysis.findings.get(f"value_{name}") or inputs.analysis.findings.get(name)
        if not points:
            continue
        unit = f", {clean(finding.unit)}" if finding is not None and finding.unit else ""
        mean = finite(finding) if finding is not None else statistics.fmean(point["y"] for point in points)
        texts.append(f"{clean(name)} {brief(mean)}{unit.removeprefix(',')}")
        panels.append(_dots(points, f"{clean(name)}{unit}", "", finding))
    if not panels:
        raise FigureUnavailable if not names else FigureUnavailable("none of the values was found in the command's output")
    sentence = "; ".join(texts) + ": mean over the trials, from the command's output"
    chart = alt.vconcat(*panels).properties(title=chart_style.title(sentence, _SUBTITLE))
    return Figure(sentence, chart, (TRIALS,))


@register("host")
def host(inputs: FigureInputs) -> Figure:
    """Draw the CPU of the command and of the whole host by trial."""
    bars: list[dict[str, Any]] = []
    finished = [result for result in inputs.results if result.error is None]
    sampled = [result for result in finished if any(phase.busy_cores() is not None for phase in result.phases)]
    counted = {result.id for result in clean_or_all(sampled)}
    means: dict[str, list[float]] = {kind: [] for kind in _CPU_KINDS}
    for result in finished:
        for phase in result.phases:
            busy = phase.busy_cores()
            command = sum(target.client_cpu or 0.0 for target in phase.targets)
            if busy is not None:
                for kind, cores in zip(_CPU_KINDS, (min(command, busy), max(busy - command, 0.0)), strict=True):
                    bars.append({"x": f"{int(result.id)}{' (tainted)' if result.tainted else ''}", "kind": kind, "y": cores})
                    if result.id in counted:
                        means[kind].append(cores)
    if not bars:
        raise FigureUnavailable("the host's CPU was not sampled")
    command, others = (statistics.fmean(means[kind]) for kind in _CPU_KINDS)
    sentence = f"The host used {brief(command + others)} cores while the command ran, {brief(command)} of them for the command"
    subtitle = (
        "Mean over each trial, in the title over the clean ones if there are any. The command's CPU is the CPU time of its terminated "
        "processes ÷ its duration."
    )
    order = list(dict.fromkeys(bar["x"] for bar in bars))
    x = alt.X("x:O", sort=order, title="trial", axis=alt.Axis(labelAngle=0))
    y = alt.Y("y:Q", stack="zero", title="CPU in use, cores", scale=alt.Scale(nice=True, zero=True))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(_CPU_KINDS), range=[BLUE, SERIES[1]]), legend=alt.Legend(title=None))
    layout = chart_style.plot_width(list(_CPU_KINDS))
    chart = alt.Chart(data(bars)).mark_bar(size=min(40, max(3, int(layout / max(len(order), 1) * 0.6)))).encode(x=x, y=y, color=colour)
    return Figure(sentence, chart.properties(width=layout, height=HEIGHT, title=chart_style.title(sentence, subtitle)), (TRIALS,))


def _point(run: dict[str, Any], number: int, value: Any) -> dict[str, Any]:
    return {"x": number, "y": finite(value), "host": clean(run.get("host")), "kind": "tainted" if run.get("tainted") else "clean"}


def _dots(points: Sequence[dict[str, Any]], title: str, sentence: str, finding: Finding | None) -> alt.LayerChart | alt.FacetChart:
    kinds = sorted({point["kind"] for point in points})
    last = max(point["x"] for point in points)
    axis = alt.Axis(title="trial", grid=False, values=chart_style.whole_ticks(last, least=1))
    x = alt.X("x:Q", scale=alt.Scale(domain=[0.5, last + 0.5], nice=False), axis=axis)
    ends = [end for end in (finite(finding.low), finite(finding.high)) if end is not None] if finding is not None else []
    highest = max([*(point["y"] for point in points), *(end for end in ends if end <= 2 * max(point["y"] for point in points))])
    lowest = min(0.0, *(point["y"] for point in points)) if len(points) > 1 else min(0.0, points[0]["y"])
    y = alt.Y("y:Q", title=title, scale=alt.Scale(domain=[lowest, chart_style.nice_ceiling(highest) if highest > 0 else 1.0], nice=False))
    layers: list[alt.Chart] = []
    mean = finite(finding) if finding is not None else None
    if mean is not None and len(ends) == 2:
        band = alt.Chart(data([{"y": ends[0], "high": ends[1]}])).mark_rect(color=BLUE, opacity=0.15, clip=True)
        layers.append(band.encode(y=chart_style.on(y, "y:Q"), y2=alt.Y2("high:Q")))
    if mean is not None:
        layers.append(alt.Chart(data([{"y": mean}])).mark_rule(color=BLUE, strokeDash=[5, 4]).encode(y=chart_style.on(y, "y:Q")))
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=[{"clean": BLUE, "tainted": VERMILLION}[kind] for kind in kinds]),
        legend=alt.Legend(title=None) if len(kinds) > 1 else None,
    )
    layers.append(alt.Chart(data(points)).mark_point(filled=True, size=70, opacity=1).encode(x=x, y=y, color=colour))
    chart = alt.layer(*layers, width=chart_style.plot_width(kinds), height=HEIGHT if sentence else 160)
    return chart.properties(title=chart_style.title(sentence, _SUBTITLE)) if sentence else chart
