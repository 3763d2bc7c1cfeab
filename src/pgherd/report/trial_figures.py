"""Figures of any study: each target's share of its trial, throughput by second at two points, and trials in run order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain, groupby

import altair as alt

from pgherd.model.result import PhaseResult, TrialResult, clean_or_all
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, MUTED, VERMILLION, data, haloed
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite, point_text, share, trial_throughput

CELLS = 3000
"""Maximum number of cells of all strips. Longer series are averaged, so that a soak of hours fits a page."""

TRIALS_SHOWN = 3
TARGETS_SHOWN = 64


def _measured(inputs: FigureInputs) -> list[TrialResult]:
    """Return trials with a throughput in run order."""
    trials = [result for result in inputs.results if trial_throughput(result)]
    if not trials and any(result.trial.probe for result in inputs.results):
        raise FigureUnavailable  # a probe has no throughput
    if not trials:
        raise FigureUnavailable("no trial has a throughput")
    return sorted(trials, key=lambda result: result.started)


def _at_once(inputs: FigureInputs) -> list[TrialResult]:
    """Return the trials whose targets were loaded at the same time, not in time slices."""
    measured = _measured(inputs)
    simultaneous = [result for result in measured if all(phase.slices is None for phase in result.trial.phases)]
    if not simultaneous:
        raise FigureUnavailable
    return simultaneous


def _size(result: TrialResult) -> float:
    """Return the size of a trial's point: its first numeric coordinate, such as the number of databases."""
    return next((float(value) for value in result.trial.point.values() if isinstance(value, int | float)), 0.0)


def _name(result: TrialResult) -> str:
    point = result.trial.point
    if len(point) == 1:
        value = next(iter(point.values()))
        return f"{value:g}" if isinstance(value, int | float) else clean(value)
    return point_text(point)


def _axis_title(results: Sequence[TrialResult]) -> str:
    names = {tuple(result.trial.point) for result in results}
    only = next(iter(names)) if len(names) == 1 else ()
    return clean(only[0]).replace("_", " ") if len(only) == 1 else "point"


def _points(results: Sequence[TrialResult]) -> list[tuple[str, list[TrialResult]]]:
    """Return trials by point, smallest first, and in run order within a point."""
    ordered = sorted(results, key=lambda result: (_size(result), _name(result), result.started))
    return [(name, list(group)) for name, group in groupby(ordered, key=_name)]


def _shares(phase: PhaseResult) -> list[float]:
    """Return each target's throughput over the mean of all, or nothing with fewer than two targets."""
    values = [value for target in phase.targets if (value := finite(target.throughput)) is not None]
    mean = statistics.fmean(values) if values else 0.0
    return [value / mean for value in values] if len(values) > 1 and mean > 0 else []


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Each target's throughput over the mean of its trial: one tick per target, one column per trial."""
    results = _at_once(inputs)
    points = _points(results)
    ticks: list[dict[str, object]] = []
    heights = [90.0, 110.0]
    widest = (0.0, 1.0, 1.0, "")
    for name, group in points:
        for column, result in enumerate(group):
            shares = [part for phase in result.phases for part in _shares(phase)]
            ticks += [{"x": name, "column": column, "y": part * 100, "kind": _kind(result)} for part in shares]
            heights += [part * 100 for part in shares]
            if shares and max(shares) - min(shares) > widest[0]:
                widest = (max(shares) - min(shares), min(shares), max(shares), name)
    if not ticks:
        raise FigureUnavailable("no trial loads more than one target")
    columns = max(len(group) for _, group in points)
    low, top = math.floor(min(heights) / 10) * 10, math.ceil(max(heights) / 10) * 10
    x = alt.X("x:O", sort=None, axis=alt.Axis(title=f"{_axis_title(results)}, one column per trial", labelAngle=0))
    offset = alt.XOffset("column:O", scale=alt.Scale(domain=list(range(columns)), paddingInner=0.15))
    y = chart_style.y_axis([low, top], title="throughput, % of the trial's mean")
    equal = chart_style.reference_line(y, 100)
    width = chart_style.plot_width()
    size = max(2.0, min(14.0, width / (len(points) * columns) * 0.7))
    marks = alt.Chart(data(ticks)).mark_tick(opacity=0.6, thickness=1.6, size=size, orient="horizontal")
    layers = [equal, marks.encode(x=x, xOffset=offset, y=y, color=_kind_colour({str(tick["kind"]) for tick in ticks}))]
    sentence = (
        f"Least fair trial: one target at {share(widest[1])}, another at {share(widest[2])} of their mean ({_where(widest[3], results)})"
    )
    subtitle = "Each tick is one target's throughput over the whole window. All at 100 % is ideal."
    chart = alt.layer(*layers, width=width, height=260, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _kind(result: TrialResult) -> str:
    return "tainted" if result.tainted else "clean"


def _kind_colour(present: set[str]) -> alt.Color:
    """Return the colours of clean and tainted trials, without a legend if all are clean."""
    kinds = sorted(present)
    legend = alt.Legend(title=None, orient="top-left", offset=4, direction="horizontal", symbolType="circle", symbolOpacity=1)
    scale = alt.Scale(domain=kinds, range=[{"clean": BLUE, "tainted": VERMILLION}[kind] for kind in kinds])
    return alt.Color("kind:N", scale=scale, legend=legend if "tainted" in kinds else None)


def _where(name: str, results: Sequence[TrialResult]) -> str:
    """Return a point for a sentence: ``40 databases``, ``variant big``."""
    coordinate = _axis_title(results)
    if coordinate == "point":
        return name
    return f"{name} {coordinate}" if name.replace(".", "", 1).isdigit() else f"{coordinate} {name}"


@register("seconds")
def seconds(inputs: FigureInputs) -> Figure:
    """Each target's throughput by second as strips, at the largest point within the host's cores and at the last point."""
    results = _at_once(inputs)
    points = [
        (name, sorted(group, key=lambda result: (result.tainted, result.started))[:TRIALS_SHOWN])
        for name, group in _chosen_points(inputs, results)
    ]
    series = {result.id: _series(result) for _, group in points for result in group}
    rows, longest = sum(map(len, series.values())), max((len(values) for rows_of in series.values() for values in rows_of), default=0)
    if not rows or not longest:
        raise FigureUnavailable("no trial has a series by second")
    step = math.ceil(longest / max(CELLS // rows, 8))
    strips = [_strip(_where(name, results), group, series, step) for name, group in points]
    varied = [(name, value) for name, group in points if (value := _unsteadiness(group)) is not None]
    variation = " and ".join(f"{share(value, 1)} at {_where(name, results)}" for name, value in varied)
    sentence = f"Second by second, a target's throughput varies by {variation}" if variation else "Throughput of each target by second"
    subtitle = (
        f"Each row is a target (at most {TARGETS_SHOWN}), each column {'a second' if step == 1 else f'the mean of {step} seconds'}; "
        "colour is throughput relative to the mean of all in that trial. "
        f"The first {TRIALS_SHOWN} trials of each point, clean ones first."
    )
    if variation:
        subtitle += " The number is the median coefficient of variation."
    chart = alt.vconcat(*strips).properties(title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _series(result: TrialResult) -> list[list[float]]:
    """Return each target's series by second over all phases, with zeros while it was idle, or nothing without load."""
    by_target: dict[str, list[float]] = {}
    length = 0
    for phase in result.phases:
        for target in phase.targets:
            values = by_target.setdefault(target.target, [])
            values += [0.0] * (length - len(values)) + [finite(value) or 0.0 for value in target.per_second]
        length = max(map(len, by_target.values()), default=0)
    shown = [values + [0.0] * (length - len(values)) for values in by_target.values()][:TARGETS_SHOWN]
    return shown if sum(map(sum, shown)) > 0 else []


def _chosen_points(inputs: FigureInputs, results: Sequence[TrialResult]) -> list[tuple[str, list[TrialResult]]]:
    """Return the largest point within 100 % of the cores (by a table that has both) and the last point."""
    points = _points(results)
    within = {
        f"{databases:g}"
        for row in chain.from_iterable(inputs.analysis.tables.values())
        if (databases := finite(row.get("databases"))) is not None and (finite(row.get("allocated_share")) or math.inf) <= 1 + 1e-9
    }
    fitting = [point for point in points if point[0] in within]
    return [*fitting[-1:], points[-1]] if fitting and fitting[-1][0] != points[-1][0] else points[-1:]


def _unsteadiness(results: Sequence[TrialResult]) -> float | None:
    """Return the median over targets and trials of the coefficient of variation by second."""
    variations = []
    for result in results:
        for values in _series(result):
            if len(values) > 2 and statistics.fmean(values) > 0:
                variations.append(statistics.stdev(values) / statistics.fmean(values))
    return statistics.median(variations) if variations else None


def _strip(where: str, group: Sequence[TrialResult], series: Mapping[str, list[list[float]]], step: int) -> alt.HConcatChart:
    """Return the trials of one point next to each other."""
    legend = alt.Legend(title="% of mean", gradientLength=110, gradientThickness=12, values=[50, 75, 100, 125, 150])
    colour = alt.Color("v:Q", scale=alt.Scale(scheme="blueorange", domain=[50, 150], clamp=True, reverse=True), legend=legend)
    shown = [result for result in group if series[result.id]]
    height = max(60, min(200, 12 * max((len(series[result.id]) for result in shown), default=0)))
    panels = []
    for number, result in enumerate(shown):
        axis = alt.Axis(title=f"{where}", labels=False, ticks=False, grid=False) if number == 0 else None
        y = chart_style.y_axis([len(series[result.id]), 0], axis=axis)
        longest = max(map(len, series[result.id]))
        x_axis = alt.Axis(title="second of the window", grid=False, format="d", values=chart_style.whole_ticks(longest, most=6))
        x = alt.X("x:Q", scale=alt.Scale(nice=False), axis=x_axis)
        title = chart_style.panel_title(f"trial {result.id}{' (tainted)' if result.tainted else ''}", frame="group", offset=4, color=MUTED)
        rect = (
            alt.Chart(_cells(series[result.id], step))
            .mark_rect(stroke=None)
            .encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q"), color=colour)
        )
        panels.append(rect.properties(width=(chart_style.plot_width() - 60) / len(shown) - 14, height=height, title=title))
    return alt.hconcat(*panels, spacing=14)


def _cells(series: Sequence[Sequence[float]], step: int) -> alt.InlineData:
    """Return one rectangle per target and column, coloured by throughput in percent of the mean of all.

    The data are CSV text, because passing thousands of rows as objects takes longer than drawing them.
    """
    mean = statistics.fmean(value for values in series for value in values)
    lines = ["x,x2,y,y2,v"]
    for row, values in enumerate(series):
        for start in range(0, len(values), step):
            part = values[start : start + step]
            lines.append(f"{start},{start + len(part)},{row},{row + 1},{statistics.fmean(part) / mean * 100:.1f}")
    return alt.InlineData(
        values="\n".join(lines), format=alt.CsvDataFormat(type="csv", parse=dict.fromkeys(("x", "x2", "y", "y2", "v"), "number"))
    )


@register("order")
def order(inputs: FigureInputs) -> Figure:
    """Throughput of each trial relative to its point's mean in run order, which shows drift."""
    results = _measured(inputs)
    means = {name: _mean(group) for name, group in _points(results)}
    repeated = {name for name, group in _points(results) if len(group) > 1}
    repeated_trials = [(place, result) for place, result in enumerate(results, 1) if _name(result) in repeated]
    if len(repeated_trials) < 4:
        raise FigureUnavailable("fewer than four trials repeat a point, so drift and differences between points are not separable")
    trials = [
        (_name(result), float(place), ((trial_throughput(result) or 0.0) / means[_name(result)] - 1) * 100, _kind(result))
        for place, result in repeated_trials
    ]
    marks: list[dict[str, object]] = [
        {"x": place, "y": off, "kind": kind, "text": name if len(name) < 6 else ""} for name, place, off, kind in trials
    ]
    reach = chart_style.nice_ceiling(max(abs(off) for _, _, off, _ in trials) * 1.15 or 1.0)
    axis = alt.Axis(title="trials in run order", grid=False, values=chart_style.whole_ticks(len(results), least=1))
    x = chart_style.x_axis([0.5, len(results) + 0.5], axis=axis)
    y = chart_style.y_axis([-reach, reach], title="throughput, % off the mean of its point")
    layers = [chart_style.reference_line(y, 0, color="#8c959f")]
    clean_trials = [(name, place, off) for name, place, off, kind in trials if kind == "clean"]
    slope = drift(clean_trials, len(results))
    sentence = "Throughput of each trial against the mean of its point, in run order"
    subtitle = f"Each point is a trial{_labelled(marks, results)}. Points with only one trial are omitted. "
    if slope is None:
        subtitle += "Drift is unknown: there are too few clean trials, or they are too close to each other."
    else:
        total, error, middle = slope
        ends = [(place, total * (place - middle) / max(len(results) - 1, 1)) for _, place, _ in (clean_trials[0], clean_trials[-1])]
        layers += chart_style.lines([(ends, BLUE, 1.5, [5, 4])], x, y)
        drifted = "Throughput drifted by" if abs(total) > error else "No drift beyond the scatter:"
        sentence = f"{drifted} {total:+.1f} ± {error:.1f} % from the first trial to the last".replace("-", "−")
        subtitle += "The dashed line is the clean trials' common slope within their points; ± is two standard errors of it."
    points = alt.Chart(data(marks)).mark_point(filled=True, size=60, opacity=1)
    layers.append(points.encode(x=x, y=y, color=_kind_colour({str(mark["kind"]) for mark in marks})))
    layers += haloed(alt.Chart(data(marks)).encode(x=x, y=y, text=alt.Text("text:N")), dy=-11, fontSize=10, color=MUTED)
    chart = alt.layer(*layers, width=chart_style.plot_width(), height=240, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def drift(trials: Sequence[tuple[str, float, float]], count: int) -> tuple[float, float, float] | None:
    """Return (change from the first trial to the last in percent, twice its standard error, zero crossing of the line).

    The slope is the within estimator of panel regression (fixed effects of the points): position and deviation are both relative to their
    point's means, because deviations alone would flatten the slope. None with fewer than four degrees of freedom, or if the trials span
    less than
    half of the run.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for name, place, off in trials:
        groups.setdefault(name, []).append((place, off))
    within = [
        (place - statistics.fmean(p for p, _ in group), off - statistics.fmean(o for _, o in group))
        for group in groups.values()
        for place, off in group
    ]
    free = len(within) - len(groups) - 1
    spread = sum(dx * dx for dx, _ in within)
    if free < 4 or spread <= 0 or trials[-1][1] - trials[0][1] < (count - 1) / 2:
        return None
    slope = sum(dx * dy for dx, dy in within) / spread
    error = math.sqrt(sum((dy - slope * dx) ** 2 for dx, dy in within) / free / spread)
    return slope * (count - 1), 2 * error * (count - 1), statistics.fmean(place for _, place, _ in trials)


def _mean(group: Sequence[TrialResult]) -> float:
    """Return the mean throughput of a point's clean trials, or of all trials without clean ones."""
    return statistics.fmean(trial_throughput(result) or 0.0 for result in clean_or_all(group))


def _labelled(marks: Sequence[Mapping[str, object]], results: Sequence[TrialResult]) -> str:
    coordinate = _axis_title(results)
    return f", with its number of {coordinate}" if coordinate != "point" and all(mark["text"] for mark in marks) else ""
