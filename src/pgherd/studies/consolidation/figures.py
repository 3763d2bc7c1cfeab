"""Figures of a consolidation: throughput of databases and layouts, CPU over time, and the effect of overcommitment."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt

from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import FAINT, HEIGHT, MUTED, SERIES, data
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, compact, finite
from pgherd.store.samples import read_samples
from pgherd.studies.consolidation.analyse import oom_text
from pgherd.studies.consolidation.options import LAYOUTS

STUDY = "consolidation"
COLOURS: Mapping[str, str] = {layout: SERIES[index] for index, layout in enumerate(LAYOUTS)}
"""Layout → its colour in every figure."""
SHAPES: Mapping[str, str] = dict(zip(LAYOUTS, ("circle", "square", "triangle-up", "diamond", "triangle-down"), strict=True))
MAX_DATABASES = len(SERIES)
"""Number of separate databases in stacked bars. Further databases are drawn as one part."""
_BARS_HEIGHT = 250
_CPU_HEIGHT = round(HEIGHT * 0.7)
_CURVES_HEIGHT = 260


def buffer_sizes(rows: Sequence[Row]) -> list[float]:
    """Return the measured sizes of shared buffers in percent, ascending. Each has a panel."""
    return sorted({value for row in rows if (value := finite(row.get("shared_buffers_percent"))) is not None})


def _with_buffers(rows: Sequence[Row], percent: float) -> list[Row]:
    return [row for row in rows if finite(row["shared_buffers_percent"]) == percent]


def undercommitted_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that were not overcommitted and have a value."""
    return [row for row in rows if finite(row.get("overcommit")) == 0 and finite(row.get("throughput")) is not None]


def throughput_unit(rows: Sequence[Row]) -> str:
    return next((cell.unit for row in rows if isinstance(cell := row.get("throughput"), Finding)), "tps")


def stacked(panels: Sequence[Any], title: str, subtitle: str) -> alt.TopLevelMixin:
    """Return the panels below each other, under one title."""
    return alt.vconcat(*panels, spacing=20).properties(title=chart_style.title(title, subtitle))


# ---- databases and periods


@register("layouts")
def layouts(inputs: FigureInputs) -> Figure:
    """Draw each database's throughput in each period, stacked, with a group of bars per layout and a panel per size of buffers."""
    rows = undercommitted_rows(inputs.analysis.tables.get("periods", []))
    if not rows:
        raise FigureUnavailable("no undercommitted trial finished")
    totals: dict[tuple[float, str, float], float] = {}
    for row in rows:
        key = (finite(row["shared_buffers_percent"]) or 0.0, str(row["layout"]), finite(row["period"]) or 0.0)
        totals[key] = totals.get(key, 0.0) + (finite(row["throughput"]) or 0.0)
    top = chart_style.nice_ceiling(max(totals.values()))
    names = list(dict.fromkeys(str(row["database"]) for row in rows))
    shown = names if len(names) <= MAX_DATABASES else [*names[: MAX_DATABASES - 1], "the others"]
    panels = [_bars_panel(rows, percent, shown, top) for percent in buffer_sizes(rows)]
    title = _highest_title(inputs, rows)
    clients = "; ".join(f"{name} {_clients(rows, name)}" for name in names[:4])
    subtitle = f"Undercommitted; means over blocks. Clients of each database in periods 1, 2, …: {clients}{' …' if len(names) > 4 else ''}."
    caption = "The warm-up before each period is not counted."
    if any("vcpu_corrected_ratio" in row for row in inputs.analysis.tables.get(STUDY, [])):
        caption += (
            " With dedicated containers the databases have more vCPUs in all. The table has the ratios with E4's correction for that."
        )
    return Figure(title, stacked(panels, title, subtitle), (TRIALS,), caption)


def _bars_panel(rows: Sequence[Row], percent: float, names: Sequence[str], top: float) -> Any:
    panel_rows = _with_buffers(rows, percent)
    order = list(dict.fromkeys(clean(row["layout"]) for row in panel_rows))
    parts: dict[tuple[str, str, str], float] = {}
    for row in panel_rows:
        name = str(row["database"]) if str(row["database"]) in names else names[-1]
        key = (clean(row["layout"]), str(row["period"]), name)
        parts[key] = parts.get(key, 0.0) + (finite(row["throughput"]) or 0.0)
    values = []
    for (layout, period, name), value in parts.items():
        below = sum(parts.get((layout, period, lower), 0.0) for lower in names[: names.index(name)])
        values.append({"layout": layout, "period": int(period), "database": name, "low": below, "high": below + value})
    periods = len({value["period"] for value in values})
    width = max(12, round((chart_style.WIDTH - chart_style.AXIS - 90 - 14 * len(order)) / max(len(order), 1)))
    y_title = f"{percent:g} % buffers, {throughput_unit(panel_rows)}"
    return (
        alt.Chart(data(values), width=width, height=_BARS_HEIGHT)
        .mark_bar(stroke="#ffffff", strokeWidth=0.5)
        .encode(
            x=alt.X("period:O", title=None, axis=alt.Axis(labelAngle=0, labels=periods <= 12), scale=alt.Scale(paddingInner=0.15)),
            y=alt.Y("low:Q", title=y_title, scale=alt.Scale(domain=[0, top], nice=False)),
            y2=alt.Y2("high:Q"),
            color=alt.Color(
                "database:N",
                scale=alt.Scale(domain=list(names), range=list(SERIES[: len(names)])),
                legend=alt.Legend(title=None, orient="right"),
            ),
            column=alt.Column("layout:N", sort=order, title=None, spacing=14, header=alt.Header(labelOrient="bottom", labelPadding=4)),
        )
    )


def _clients(rows: Sequence[Row], name: str) -> str:
    """Return a database's clients in the first periods."""
    by_period: dict[float, str] = {}
    for row in rows:
        if row["database"] == name:
            by_period[finite(row["period"]) or 0.0] = clean(row["clients"])
    return ", ".join(by_period[period] for period in sorted(by_period)[:6]) + (" …" if len(by_period) > 6 else "")


def _highest_title(inputs: FigureInputs, rows: Sequence[Row]) -> str:
    """Return the layout with the highest throughput for each size of buffers."""
    measured = undercommitted_rows(inputs.analysis.tables.get(STUDY, []))
    if not measured:
        return "Throughput of each database in each period"
    parts = []
    for percent in buffer_sizes(measured):
        best = max(_with_buffers(measured, percent), key=lambda row: finite(row["throughput"]) or 0.0)
        parts.append(f"{clean(best['layout'])} with {percent:g} % buffers, {compact(finite(best['throughput']))} {throughput_unit(rows)}")
    return f"Highest throughput: {'; '.join(parts)}"


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Omit this figure of every study, because the databases' loads differ on purpose."""
    raise FigureUnavailable


# ---- throughput of the layouts


@register("number")
def number(inputs: FigureInputs) -> Figure:
    """Draw each layout's throughput averaged over the periods, with its interval, and the throughput with E4's correction."""
    rows = undercommitted_rows(inputs.analysis.tables.get(STUDY, []))
    if not rows:
        raise FigureUnavailable("no undercommitted trial finished")
    ends = [value for row in rows for cell in (row["throughput"], row["vcpu_corrected"]) for value in _values_and_ends(cell)]
    top = chart_style.nice_ceiling(max(ends) * 1.02)
    kinds = ["measured", "with E4's correction"]
    panels = []
    for percent in buffer_sizes(rows):
        panel_rows = _with_buffers(rows, percent)
        points = [
            {
                "layout": clean(row["layout"]),
                "kind": kind,
                "x": finite(row[name]),
                "low": _interval_end(row[name], 0),
                "high": _interval_end(row[name], 1),
            }
            for row in panel_rows
            for name, kind in zip(("throughput", "vcpu_corrected"), kinds, strict=True)
            if finite(row[name]) is not None
        ]
        order = [clean(row["layout"]) for row in panel_rows]
        x = alt.X("x:Q", title=f"{throughput_unit(panel_rows)}, {percent:g} % buffers", scale=alt.Scale(domain=[0, top], nice=False))
        y = alt.Y("layout:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False, grid=True))
        offset = alt.YOffset("kind:N", scale=alt.Scale(domain=kinds))
        colour = alt.Color(
            "kind:N", scale=alt.Scale(domain=kinds, range=[SERIES[0], MUTED]), legend=alt.Legend(title=None, orient="bottom")
        )
        shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "diamond"]))
        bars = [point for point in points if point["low"] is not None and point["high"] is not None]
        layers = []
        if bars:
            intervals = alt.Chart(data(bars)).mark_rule(strokeWidth=2)
            low = alt.X("low:Q", scale=x["scale"], title=x["title"])
            layers.append(intervals.encode(x=low, x2=alt.X2("high:Q"), y=y, yOffset=offset, color=colour))
        marks = alt.Chart(data(points)).mark_point(size=80, filled=True, opacity=1)
        layers.append(marks.encode(x=x, y=y, yOffset=offset, color=colour, shape=shape))
        panels.append(alt.layer(*layers, width=chart_style.plot_width() - 60, height=44 * len(panel_rows)))
    title = _ranking_title(rows)
    subtitle = "Sum of the databases, averaged over the periods. " + (
        "Bars are intervals over blocks. The ratios in the table pair layouts by block, and are narrower."
        if any(_interval_end(row["throughput"], 0) is not None for row in rows)
        else "Too few blocks for intervals."
    )
    caption = (
        "The correction counts the quiet databases' throughput twice in layouts that share one container's vCPUs, because in other layouts "
        "each database has dedicated vCPUs."
    )
    return Figure(title, stacked(panels, title, subtitle), (TRIALS,), caption)


def _ranking_title(rows: Sequence[Row]) -> str:
    """Return ``New orders/min: with 25 % buffers M/M/M 32.73k, 1/1/M 31.6k``."""
    parts = []
    for percent in buffer_sizes(rows):
        ranked = sorted(_with_buffers(rows, percent), key=lambda row: finite(row["throughput"]) or 0.0, reverse=True)
        values = ", ".join(f"{clean(row['layout'])} {compact(finite(row['throughput']))}" for row in ranked)
        parts.append(f"with {percent:g} % buffers {values}")
    unit = throughput_unit(rows)
    return f"{unit[0].upper()}{unit[1:]}: {'; '.join(parts)}"


def _values_and_ends(cell: object) -> list[float]:
    values = [finite(cell), _interval_end(cell, 0), _interval_end(cell, 1)]
    return [value for value in values if value is not None]


def _interval_end(cell: object, index: int) -> float | None:
    """Return the low (0) or the high (1) end of a finding's interval. None if the interval is not complete."""
    if not isinstance(cell, Finding) or finite(cell.low) is None or finite(cell.high) is None:
        return None
    return finite((cell.low, cell.high)[index])


# ---- CPU over time: 100 % is one core, as in E4

CpuSeries = list[tuple[float, float]]
"""(seconds since the start of the first measured period, percent of a core)."""


@register("cpu_over_time")
def cpu_over_time(inputs: FigureInputs) -> Figure:
    """Draw the CPU of all containers second by second, undercommitted: a line per layout, a panel per size of buffers."""
    chosen = undercommitted_trials(inputs.results)
    if not chosen:
        raise FigureUnavailable("no undercommitted trial finished")
    series = {point: line for point, result in chosen.items() if (line := _cpu_series(inputs.directory, result))}
    if not series:
        raise FigureUnavailable("the containers' CPU was not measured")
    top = chart_style.nice_ceiling(max(value for line in series.values() for _, value in line) * 1.02)
    panels = [
        _cpu_panel({layout: line for (size, layout), line in series.items() if size == percent}, _period_ends(chosen), percent, top)
        for percent in dict.fromkeys(size for size, _ in series)
    ]
    (percent, layout), highest = max(series.items(), key=lambda item: sum(value for _, value in item[1]) / len(item[1]))
    mean = sum(value for _, value in highest) / len(highest)
    tainted = sorted({layout for (_, layout), result in chosen.items() if result.tainted})
    title = f"{clean(layout)} used the most CPU, {mean:.0f} % of a core on average ({percent} % buffers)"
    subtitle = "Undercommitted; one trial of each layout. 100 % is one core. Clients outside the containers are not included."
    caption = "Dashed: all databases switch to the next period's load. The warm-up after it is drawn, but not counted."
    caption += f" Only tainted trials: {', '.join(tainted)}." if tainted else ""
    return Figure(title, stacked(panels, title, subtitle), (SAMPLES,), caption)


def undercommitted_trials(results: Sequence[TrialResult]) -> dict[tuple[int, str], TrialResult]:
    """Return (buffers in percent, layout) → its first finished undercommitted trial. Clean trials have precedence."""
    chosen: dict[tuple[int, str], TrialResult] = {}
    for result in sorted(results, key=lambda trial: (trial.tainted, trial.started)):
        point = result.trial.point
        if result.phases and finite(point.get("overcommit")) == 0:
            chosen.setdefault((int(point["shared_buffers_percent"]), str(point["layout"])), result)
    return dict(sorted(chosen.items(), key=lambda item: (item[0][0], LAYOUTS.index(item[0][1]))))


def _cpu_series(directory: Path | None, result: TrialResult) -> CpuSeries:
    """Return the CPU from the samples, or the means of the periods without samples."""
    counters: dict[str, CpuSeries] = {}
    start, end = result.phases[0].start, result.phases[-1].end
    if directory is not None:
        for t, entity, value in read_samples(directory / "trials" / result.id, "cgroup_cpu", "cpu.usage"):
            if entity.startswith("container:") and start <= t <= end:
                counters.setdefault(entity, []).append((t - start, value))
    series = cpu_rates(counters)
    return series if len(series) > 1 else _period_means(result)


def cpu_rates(counters: Mapping[str, CpuSeries]) -> CpuSeries:
    """Return the CPU of all containers in percent of a core in each second, from counters of CPU seconds."""
    totals: dict[int, float] = {}
    for readings in counters.values():
        # After a late reading, the middles of two intervals can be in the same second.
        by_second: dict[int, list[float]] = {}
        for (before, low), (after, high) in pairwise(readings):
            if after > before:
                second = round((before + after) / 2 - 0.5)
                by_second.setdefault(second, []).append(100 * (high - low) / (after - before))
        for second, values in by_second.items():
            totals[second] = totals.get(second, 0.0) + statistics.fmean(values)
    return [(second + 0.5, value) for second, value in sorted(totals.items())]


def _period_means(result: TrialResult) -> CpuSeries:
    series: CpuSeries = []
    for phase in result.phases:
        cores = [
            metrics["cpu.usage"] for entity, metrics in phase.metrics.items() if entity.startswith("container:") and "cpu.usage" in metrics
        ]
        if cores:
            series += [(t - result.phases[0].start, 100 * sum(cores)) for t in (phase.start, phase.end)]
    return series


def _period_ends(chosen: Mapping[tuple[int, str], TrialResult]) -> list[float]:
    """Return the planned ends of all periods but the last, in seconds since the start of the first. All trials share them."""
    phases = next(iter(chosen.values())).trial.phases
    ends, end = [], 0.0
    for phase in phases[:-1]:
        end += phase.seconds
        ends.append(end)
        end += phases[1].warmup
    return ends


def _cpu_panel(series: Mapping[str, CpuSeries], period_ends: Sequence[float], percent: int, top: float) -> alt.TopLevelMixin:
    end = max(line[-1][0] for line in series.values())
    x = alt.X("x:Q", title="time, s", scale=alt.Scale(domain=[0, end], nice=False))
    y = alt.Y("y:Q", title=f"CPU, % of a core; {percent} % buffers", scale=alt.Scale(domain=[0, top], nice=False))
    layers = []
    if period_ends:
        rules = alt.Chart(data([{"x": t} for t in period_ends]))
        layers.append(rules.mark_rule(color=FAINT, strokeDash=[4, 3], strokeWidth=1.5).encode(x=x))
    layers += chart_style.lines([(line, COLOURS[layout], 1.8, [1, 0]) for layout, line in series.items()], x, y)
    labels = [(end, line[-1][1], clean(layout), COLOURS[layout]) for layout, line in series.items()]
    layers += chart_style.end_labels(labels, x, y, (0, top), height=_CPU_HEIGHT)
    chart: alt.TopLevelMixin = alt.layer(*layers, width=chart_style.plot_width([text for *_, text, _ in labels]), height=_CPU_HEIGHT)
    return chart


# ---- overcommitment (E5)


@register("overcommitment")
def overcommitment(inputs: FigureInputs) -> Figure:
    """Draw the throughput relative to undercommitted over the overcommitment: a curve per layout, a panel per size of buffers.

    A cross marks OOM kills.
    """
    rows = [row for row in inputs.analysis.tables.get(STUDY, []) if finite(row.get("overcommit")) is not None]
    over = [row for row in rows if (finite(row["overcommit"]) or 0.0) > 0]
    if not over:
        raise FigureUnavailable
    if not any(finite(row.get("relative_to_undercommitted")) is not None or finite(row.get("trials_with_oom_kill")) for row in over):
        raise FigureUnavailable("no overcommitted trial has a value relative to undercommitted")
    safe_level = finite(inputs.analysis.findings.get("max_safe_overcommit"))
    retained = [row["relative_to_undercommitted"] for row in over]
    ends = [end for cell in retained for end in (finite(cell), *bounds(cell)) if end is not None]
    top = chart_style.nice_ceiling(100 * max([1.0, *ends]) * 1.04)
    panels = [_curves_panel(_with_buffers(rows, percent), percent, top, safe_level) for percent in buffer_sizes(over)]
    title = _retained_title(over)
    intervals = any(bounds(cell)[0] is not None for cell in retained)
    subtitle = "Throughput of all databases against the same layout undercommitted. Overcommitment: 1 − available ÷ configured memory. " + (
        "Bars are intervals over blocks." if intervals else "Too few blocks for intervals."
    )
    if any(_killed(row) for row in over):
        subtitle += " A cross: OOM kills of servers."
    caption = "All containers share one kernel here, so the result is not judged against E5's published curve of virtual machines."
    one_kernel = inputs.record.options.get("runtime") == "cgroup"
    return Figure(title, stacked(panels, title, subtitle), (TRIALS,), caption if one_kernel else "")


def _killed(row: Row) -> bool:
    return bool(finite(row.get("trials_with_oom_kill"))) and finite(row.get("relative_to_undercommitted")) is None


def _curves_panel(rows: Sequence[Row], percent: float, top: float, safe_level: float | None) -> alt.TopLevelMixin:
    right = 100 * max(finite(row["overcommit"]) or 0.0 for row in rows)
    x = alt.X("x:Q", title="overcommitment, %", scale=alt.Scale(domain=[0, right * 1.03], nice=False))
    y = alt.Y("y:Q", title=f"vs. undercommitted, %; {percent:g} % buffers", scale=alt.Scale(domain=[0, top], nice=False))
    layers: list[alt.Chart] = list(chart_style.level(100, "undercommitted", right * 1.03, x, y))
    labels, crosses = [], []
    present = [layout for layout in LAYOUTS if any(row["layout"] == layout for row in rows)]
    for index, layout in enumerate(present):
        of_layout = sorted((row for row in rows if row["layout"] == layout), key=lambda row: finite(row["overcommit"]) or 0.0)
        shift = (index - (len(present) - 1) / 2) * right * 0.006  # separates the bars of one level
        curve: list[dict[str, float | None]] = []
        for row in of_layout:
            level = 100 * (finite(row["overcommit"]) or 0.0)
            value = 1.0 if level == 0 and finite(row.get("throughput")) is not None else finite(row["relative_to_undercommitted"])
            if value is not None:
                low, high = (None if end is None else 100 * end for end in bounds(row["relative_to_undercommitted"]))
                curve.append({"x": level + (shift if level else 0.0), "y": 100 * value, "low": low, "high": high})
            elif _killed(row):
                crosses.append({"x": level + 2.5 * shift, "y": 0.02 * top, "colour": COLOURS[layout]})
        if curve:
            layers += chart_style.line_with_bars(curve, x, y, COLOURS[layout], SHAPES[layout])
            labels.append((right * 1.03, curve[-1]["y"] or 0.0, clean(layout), COLOURS[layout]))
    if crosses:
        marks = alt.Chart(data(crosses)).mark_point(shape="cross", angle=45, size=110, filled=True, opacity=1)
        layers.append(marks.encode(x=x, y=y, color=alt.Color("colour:N", scale=None)))
    if safe_level is not None and 100 * safe_level <= right:
        layers += chart_style.rules(
            [(100 * safe_level, "working sets fit up to here", MUTED)], x, y, (0, top), right, height=_CURVES_HEIGHT
        )
    layers += chart_style.end_labels(labels, x, y, (0, top), height=_CURVES_HEIGHT)
    return alt.layer(*layers, width=chart_style.plot_width([text for *_, text, _ in labels]), height=_CURVES_HEIGHT)


def _retained_title(rows: Sequence[Row]) -> str:
    """Return the throughput relative to undercommitted at the highest level, for each size of buffers."""
    parts = []
    for percent in buffer_sizes(rows):
        of_buffers = _with_buffers(rows, percent)
        measured, kills = [row for row in of_buffers if finite(row.get("relative_to_undercommitted")) is not None], oom_text(of_buffers)
        if not measured:
            parts.append(f"with {percent:g} % buffers " + (kills or "no trial finished"))
            continue
        level = max(finite(row["overcommit"]) or 0.0 for row in measured)
        of_level = [row for row in measured if finite(row["overcommit"]) == level]
        retained = [(finite(row["relative_to_undercommitted"]) or 0.0, clean(row["layout"])) for row in of_level]
        values = ", ".join(f"{layout} {100 * value:.0f} %" for value, layout in sorted(retained, reverse=True))
        parts.append(f"at {100 * level:g} % overcommitment with {percent:g} % buffers {values}" + (f" ({kills})" if kills else ""))
    return f"Throughput relative to undercommitted: {'; '.join(parts)}"
