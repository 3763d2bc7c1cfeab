"""Figures of a disk run: each test's figure with its interval, steadiness of the volumes, and differences between hosts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE
from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SERIES, SKY, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, finite
from pgherd.studies.disk.options import TESTS

STUDY = "disk"
_ROW_HEIGHT = 26
"""Height of a bar's row, in px."""
_COLUMNS = 3
_PANELS = {"iops": "I/Os per second", "bandwidth": "MB/s", "latency_mean": "ms, mean of one I/O at a time"}
_COLOURS = {
    "device": BLUE,
    "iodepth": GREEN,
    "latency": SKY,
    "rate-limit": PURPLE,
    "cache": VERMILLION,
    "contention": ORANGE,
    "host-cpu": ORANGE,
    "fio-cpu": ORANGE,
    "unknown": "#999999",
}
_LINE_HEIGHT, _ROW_GAP = 9, 12
"""Height of a host's line within a test's row, and the gap between rows, in px."""
OTHERS = "the others"
"""Label of the hosts without a colour."""

Bar = dict[str, object]


@register("disk")
def disk(inputs: FigureInputs) -> Figure:
    """Draw bars with intervals, one panel per unit. A bar's colour shows its bottleneck."""
    rows = inputs.analysis.tables.get(STUDY, [])
    several = len({str(row.get("volume")) for row in rows}) > 1
    bars_by_column = {column: _bars(rows, column, several=several) for column in _PANELS}
    panels = {column: bars for column, bars in bars_by_column.items() if bars}
    if not panels:
        raise FigureUnavailable("no test has a figure")
    bottlenecks = list(dict.fromkeys(str(bar["bottleneck"]) for bars in panels.values() for bar in bars))
    colour = alt.Scale(domain=bottlenecks, range=[_COLOURS.get(name, "#999999") for name in bottlenecks])
    column, bars = next(iter(panels.items()))
    results = "; ".join(f"{bar['name']}: {brief(finite(bar['x']))}" for bar in bars[:3])
    title = f"{results} {_PANELS[column]}"
    subtitle = "Thin lines are intervals over the repeats (none below three). Colours show the bottleneck."
    host_count = len({str(row.get("host")) for row in inputs.analysis.tables.get("hosts", [])})
    subtitle += f" All {host_count} hosts together, at the same time. Latencies are means over all I/Os." if host_count > 1 else ""
    chart = alt.vconcat(
        *(_panel(bars, _PANELS[column], colour) for column, bars in panels.items()),
        spacing=18,
        title=chart_style.title(title, subtitle),
    )
    return Figure(title, chart, (TRIALS,))


def _bars(rows: Sequence[Mapping[str, object]], column: str, *, several: bool) -> list[Bar]:
    bars: list[Bar] = []
    for row in rows:
        cell = row.get(column)
        value = finite(cell)
        if row.get("headline_column") == column and isinstance(cell, Finding) and value is not None:
            name = clean(row.get("test")) + (f", {clean(row.get('volume'))}" if several else "")
            bars.append({"name": name, "x": value, "low": cell.low, "high": cell.high, "bottleneck": clean(row.get("bottleneck"))})
    return bars


def _panel(bars: Sequence[Bar], title: str, colour: alt.Scale) -> alt.LayerChart | alt.FacetChart:
    ends = [end for bar in bars for end in (finite(bar["x"]), finite(bar["high"])) if end is not None]
    scale = alt.Scale(domain=[0, 1.12 * max(ends)], nice=False)
    x = alt.X("x:Q", title=title, scale=scale)
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240, minExtent=220, maxExtent=220))
    layers = [
        alt.Chart(data(bars))
        .mark_bar(height=13)
        .encode(x=x, y=y, color=alt.Color("bottleneck:N", scale=colour, legend=alt.Legend(title="bottleneck")))
    ]
    with_interval = [{**bar, "low": max(finite(bar["low"]) or 0.0, 0.0)} for bar in bars if bar["low"] is not None]
    if with_interval:
        rules = alt.Chart(data(with_interval)).mark_rule(color=INK, strokeWidth=1.5)
        layers.append(rules.encode(x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q"), y=y))
    return alt.layer(*layers, width=chart_style.WIDTH - 220 - 110, height=_ROW_HEIGHT * len(bars))


@register("steadiness")
def steadiness(inputs: FigureInputs) -> Figure:
    """Draw the I/Os of every second relative to the trial's mean, one panel per test. A falling line shows a cache filling up."""
    lines = [line for result in inputs.results if (line := _line(result)) is not None]
    if not lines:
        raise FigureUnavailable("no trial lasted two seconds")
    tests = [name for name in TESTS if any(test == name for test, _ in lines)]
    top = max(value for _, values in lines for value in values)
    unsteady, judged = _count_unsteady(inputs)
    title = f"{judged - unsteady} of {judged} trials were steady" if judged else "No trial was long enough to judge steadiness"
    subtitle = (
        f"I/Os of each second, % of the trial's mean; one line per trial. Steady: over {ROUNDS} parts of a trial, the range is at most "
        f"{RANGE:.0%} of the mean and the slope at most {SLOPE:.0%} (SNIA performance test specification)."
    )
    width = (chart_style.WIDTH - chart_style.AXIS - 30 * (_COLUMNS - 1)) // _COLUMNS
    panels = []
    for name in tests:
        points = [
            {"line": number, "second": second + 1, "y": value}
            for number, (test, values) in enumerate(lines)
            if test == name
            for second, value in enumerate(values)
        ]
        y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, 1.05 * top], nice=False))
        x = alt.X("second:Q", title="second", axis=alt.Axis(tickMinStep=1, format="d"))
        marks = alt.Chart(data(points)).mark_line(color=BLUE, opacity=0.55, strokeWidth=1.4).encode(x=x, y=y, detail="line:N")
        level = alt.Chart(data([{"y": 100}])).mark_rule(color=INK, strokeDash=[2, 3]).encode(y=y)
        panels.append(
            alt.layer(level, marks, width=width, height=110, title=alt.TitleParams(text=TESTS[name].label, fontSize=12, offset=4))
        )
    rows = [alt.hconcat(*panels[start : start + _COLUMNS], spacing=30) for start in range(0, len(panels), _COLUMNS)]
    return Figure(title, alt.vconcat(*rows, spacing=16, title=chart_style.title(title, subtitle)), (TRIALS,))


def _line(result: TrialResult) -> tuple[str, list[float]] | None:
    """Return a trial's test, and its I/Os of each second in percent of their mean."""
    test = str(result.trial.point.get("test", ""))
    if result.error is not None or test not in TESTS or not result.phases or "depth" in result.trial.point:
        return None
    series = [sum(second) for second in zip(*(target.per_second for target in result.phases[0].targets), strict=False)]
    mean = statistics.fmean(series) if series else 0.0
    if len(series) < 2 or mean <= 0:
        return None
    return test, [100 * value / mean for value in series]


def _count_unsteady(inputs: FigureInputs) -> tuple[int, int]:
    """Return the numbers of unsteady and judged trials, from the table's column ``steady_state``: ``2 of 3``."""
    steady = judged = 0
    for row in inputs.analysis.tables.get(STUDY, []):
        numbers = str(row.get("steady_state", "")).split(" of ")
        if len(numbers) == 2 and all(number.isdigit() for number in numbers):
            steady, judged = steady + int(numbers[0]), judged + int(numbers[1])
    return judged - steady, judged


@register("hosts")
def hosts(inputs: FigureInputs) -> Figure:
    """Draw a row per test with a dot per host: its I/Os relative to the hosts' mean, with intervals."""
    rows = inputs.analysis.tables.get("hosts", [])
    if not rows:
        raise FigureUnavailable  # a run on one host
    several = len({str(row.get("volume")) for row in rows}) > 1
    dots: list[dict[str, Any]] = []
    for row in rows:
        cell = row.get("relative_to_mean")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None:
            name = clean(row.get("test")) + (f", {clean(row.get('volume'))}" if several else "")
            interval = {end: None if (share := finite(getattr(cell, end))) is None else 100 * share for end in ("low", "high")}
            dots.append({"name": name, "host": clean(row.get("host")), "x": 100 * value, **interval})
    if not dots:
        raise FigureUnavailable("no clean trial had every host")
    coloured = _coloured_hosts(dots)
    for dot in dots:
        dot["series"] = dot["host"] if dot["host"] in coloured else OTHERS
    slowest, fastest = (pick(dots, key=lambda dot: dot["x"]) for pick in (min, max))
    ends = [f"{brief(dot['x'])} % ({dot['host']}, {dot['name']})" for dot in (slowest, fastest)]
    title = f"Hosts reach {ends[0]} to {ends[1]} of the hosts' mean"
    subtitle = "I/Os of each host, % of the hosts' mean in the same trial. Thin lines are intervals over the repeats, cut off at the edge."
    reach = max(10.0, 1.3 * max(abs(dot["x"] - 100) for dot in dots))
    scale = alt.Scale(domain=[max(0.0, 100 - reach), 100 + reach], nice=False)
    x = alt.X("x:Q", title="% of the hosts' mean", scale=scale)
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240, minExtent=220, maxExtent=220))
    labels = [*coloured, OTHERS] if any(dot["series"] == OTHERS for dot in dots) else coloured
    colours = alt.Scale(domain=labels, range=[MUTED if label == OTHERS else SERIES[number] for number, label in enumerate(labels)])
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(title="host"))
    offset = alt.YOffset("series:N", sort=labels)
    level = alt.Chart(data([{"x": 100}])).mark_rule(color=INK, strokeDash=[2, 3]).encode(x=x)
    marks = alt.Chart(data(dots)).mark_point(filled=True, size=45, opacity=1)
    layers = [level, marks.encode(x=x, y=y, yOffset=offset, color=colour)]
    with_interval = [dot for dot in dots if dot["low"] is not None and dot["high"] is not None]
    if with_interval:
        rules = alt.Chart(data(with_interval)).mark_rule(strokeWidth=1.4, clip=True)
        low = alt.X("low:Q", title="% of the hosts' mean", scale=scale)
        layers.append(rules.encode(x=low, x2=alt.X2("high:Q"), y=y, yOffset=offset, color=colour))
    height = (_ROW_GAP + _LINE_HEIGHT * len(labels)) * len({dot["name"] for dot in dots})
    chart = alt.layer(*layers, width=chart_style.WIDTH - 220 - 110, height=height, title=chart_style.title(title, subtitle))
    return Figure(title, chart, (TRIALS,))


def _coloured_hosts(dots: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hosts with a colour: all of them, or the slowest and the fastest by their mean if there are too few colours."""
    names = list(dict.fromkeys(str(dot["host"]) for dot in dots))
    if len(names) <= len(SERIES):
        return names
    mean = {name: statistics.fmean(dot["x"] for dot in dots if dot["host"] == name) for name in names}
    return [min(names, key=lambda name: mean[name]), max(names, key=lambda name: mean[name])]
