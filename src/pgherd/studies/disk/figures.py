"""The figures of a disk run: each test's figure with its interval, and whether the volumes were steady."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import altair as alt

from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, clean, finite
from pgherd.studies.disk.access import TESTS

STUDY = "disk"
_STEP = 26
"""Height of a bar's row, in px."""
_COLUMNS = 3
_PANELS = {"iops": "I/Os per second", "bandwidth": "MB/s", "latency": "ms, mean of one I/O at a time"}
_COLOURS = {
    "device": BLUE,
    "queue depth": GREEN,
    "latency": SKY,
    "rate": PURPLE,
    "cache": VERMILLION,
    "sharing": ORANGE,
    "host CPU": ORANGE,
    "fio's CPU": ORANGE,
    "unknown": "#999999",
}

Bar = dict[str, object]


@register("disk")
def disk(inputs: FigureInputs) -> Figure:
    """Bars with intervals, a panel for each unit; a bar's colour says what limited it."""
    rows = inputs.analysis.tables.get(STUDY, [])
    several = len({str(row.get("volume")) for row in rows}) > 1
    panels = {figure: _bars(rows, figure, several=several) for figure in _PANELS}
    shown = {figure: bars for figure, bars in panels.items() if bars}
    if not shown:
        raise FigureUnavailable("no test has a figure")
    limits = list(dict.fromkeys(str(bar["limit"]) for bars in shown.values() for bar in bars))
    colour = alt.Scale(domain=limits, range=[_COLOURS.get(limit, "#999999") for limit in limits])
    figure, bars = next(iter(shown.items()))
    told = "; ".join(f"{bar['name']}: {brief(finite(bar['x']))}" for bar in bars[:3])
    sentence = f"{told} {_PANELS[figure]}"
    subtitle = "Thin lines are intervals over the repeats (none for fewer than three). Colours say what kept a figure from being better."
    many = len({str(row.get("host")) for row in inputs.analysis.tables.get("hosts", [])})
    subtitle += f" All {many} hosts together, at the same time; of latencies the mean over all I/Os." if many > 1 else ""
    chart = alt.vconcat(
        *(_panel(bars, _PANELS[figure], colour) for figure, bars in shown.items()),
        spacing=18,
        title=chart_style.title(sentence, subtitle),
    )
    return Figure(sentence, chart, (TRIALS,))


def _bars(rows: Sequence[Mapping[str, object]], figure: str, *, several: bool) -> list[Bar]:
    bars: list[Bar] = []
    for row in rows:
        cell = row.get(figure)
        value = finite(cell)
        if row.get("figure") == figure and isinstance(cell, Finding) and value is not None:
            name = clean(row.get("test")) + (f", {clean(row.get('volume'))}" if several else "")
            bars.append({"name": name, "x": value, "low": cell.low, "high": cell.high, "limit": clean(row.get("limited_by"))})
    return bars


def _panel(bars: Sequence[Bar], words: str, colour: alt.Scale) -> alt.LayerChart | alt.FacetChart:
    ends = [end for bar in bars for end in (finite(bar["x"]), finite(bar["high"])) if end is not None]
    x = chart_style.x_axis([0, 1.12 * max(ends)], title=words)
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240, minExtent=220, maxExtent=220))
    layers = [
        alt.Chart(data(bars))
        .mark_bar(height=13)
        .encode(x=x, y=y, color=alt.Color("limit:N", scale=colour, legend=alt.Legend(title="limited by")))
    ]
    from_zero = [bar if bar["low"] is None else {**bar, "low": max(finite(bar["low"]) or 0.0, 0.0)} for bar in bars]
    layers += chart_style.interval_bars(from_zero, x, y, horizontal=True, mark={"color": INK, "strokeWidth": 1.5})
    return alt.layer(*layers, width=chart_style.WIDTH - 220 - 110, height=_STEP * len(bars))


@register("steadiness")
def steadiness(inputs: FigureInputs) -> Figure:
    """I/Os of every second relative to the trial's mean, a panel for each test: a line that falls shows a cache filling up."""
    lines = [line for result in inputs.results if (line := _line(result)) is not None]
    if not lines:
        raise FigureUnavailable("no trial lasted two seconds")
    tests = [name for name in TESTS if any(test == name for test, _ in lines)]
    top = max(value for _, values in lines for value in values)
    unsteady, judged = _count(inputs)
    sentence = f"{judged - unsteady} of {judged} trials were steady" if judged else "No trial was long enough to say whether it was steady"
    subtitle = (
        f"I/Os of each second, % of the trial's mean; one line is one trial. The rule: in {ROUNDS} parts of a trial a range of at most "
        f"{RANGE:.0%} and a slope of at most {SLOPE:.0%} of the mean (SNIA's performance test specification)."
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
        y = chart_style.y_axis([0, 1.05 * top], title=None)
        x = alt.X("second:Q", title="second", axis=alt.Axis(tickMinStep=1, format="d"))
        marks = alt.Chart(data(points)).mark_line(color=BLUE, opacity=0.55, strokeWidth=1.4).encode(x=x, y=y, detail="line:N")
        level = chart_style.reference_line(y, 100, color=INK, strokeDash=[2, 3])
        panels.append(
            alt.layer(level, marks, width=width, height=110, title=alt.TitleParams(text=TESTS[name].label, fontSize=12, offset=4))
        )
    rows = [alt.hconcat(*panels[at : at + _COLUMNS], spacing=30) for at in range(0, len(panels), _COLUMNS)]
    return Figure(sentence, alt.vconcat(*rows, spacing=16, title=chart_style.title(sentence, subtitle)), (TRIALS,))


def _line(result: TrialResult) -> tuple[str, list[float]] | None:
    """A trial's test, and I/Os of each second in percent of their mean."""
    test = str(result.trial.point.get("test", ""))
    if result.error is not None or test not in TESTS or not result.phases or "depth" in result.trial.point:
        return None
    series = [sum(each) for each in zip(*(target.per_second for target in result.phases[0].targets), strict=False)]
    mean = statistics.fmean(series) if series else 0.0
    if len(series) < 2 or mean <= 0:
        return None
    return test, [100 * value / mean for value in series]


def _count(inputs: FigureInputs) -> tuple[int, int]:
    """Unsteady and judged trials, from the table's column ``steady``: ``2 of 3``."""
    steady = judged = 0
    for row in inputs.analysis.tables.get(STUDY, []):
        words = str(row.get("steady", "")).split(" of ")
        if len(words) == 2 and all(word.isdigit() for word in words):
            steady, judged = steady + int(words[0]), judged + int(words[1])
    return judged - steady, judged
