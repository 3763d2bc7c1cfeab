"""What density costs: where the host's CPU went, latency, and a soak's course."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, HEIGHT, INK, MUTED, PURPLE, SKY, VERMILLION, data, end_labels
from pgherd.report.data_files import Row
from pgherd.report.drawing import SAMPLES, TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, brief, finite, number
from pgherd.studies.density.figures import BAR_NOTE, databases_axis
from pgherd.studies.density.figures_data import at_full, databases, numbers, rows_with


@register("cpu")
def cpu(inputs: FigureInputs) -> Figure:
    """Where the host's cores went at each point, stacked."""
    rows = rows_with(inputs.analysis, "cpu", "databases_cpu", "idle")
    if not rows:
        raise FigureUnavailable("neither the containers' CPU nor the host's was seen")
    total = sum(float(facts.logical_cpus) for facts in inputs.record.hosts.values()) or None
    sentence = _cpu_sentence(
        at_full(rows), total or sum(finite(rows[-1].get(name)) or 0.0 for name in ("databases_cpu", "clients", "idle"))
    )
    chart = throughput_charts.cpu_stack([(databases(row), row) for row in rows], total, "databases under load", sentence, "databases")
    return Figure(sentence, chart, (SAMPLES,))


def _cpu_sentence(row: Row, total: float) -> str:
    """What the largest point within the cores used."""
    served, clients, idle = (finite(row.get(name)) for name in ("databases_cpu", "clients", "idle"))
    text = f"At {databases(row):g} databases, "
    if served is not None:
        text += f"{brief(served + (clients or 0.0))} of {number(total)} cores serve databases and clients"
    elif idle is not None:
        text += f"{brief(idle)} of {number(total)} cores are idle"
    taken = finite(row.get("platform"))
    return text + (f"; the platform takes {brief(taken)}" if taken is not None else "")


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """p50, p95 and p99 against databases; a logarithmic axis where they span more than a factor of eight."""
    names = [("p50", SKY, "circle"), ("p95", BLUE, "square"), ("p99", VERMILLION, "triangle-up")]
    rows = rows_with(inputs.analysis, "density", *(name for name, *_ in names))
    values = [value for value in numbers(rows, *(name for name, *_ in names)) if value > 0]
    if len(rows) < 2 or not values:
        raise FigureUnavailable("fewer than two numbers of databases have enough sampled transactions for a percentile")
    log = max(values) / min(values) > 8
    low, high = (min(values) / 1.3, max(values) * 1.3) if log else (0.0, chart_style.nice_ceiling(max(values) * 1.05))
    right = databases(rows[-1]) * 1.02
    x = databases_axis(right)
    scale = alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title="latency, ms", tickCount=6, format="~g"))
    layers: list[alt.Chart] = []
    labels = []
    for name, colour, shape in names:
        part: list[dict[str, float | None]] = []
        for row in rows:
            value = finite(row.get(name))
            if value is not None and value > 0:
                below, above = (None if bound is None else max(bound, low) for bound in bounds(row[name]))
                part.append({"x": databases(row), "y": value, "low": below, "high": above})
        if part:
            end = part[-1]["y"] or low
            layers += chart_style.line_with_bars(part, x, y, colour, shape)
            labels.append((right, end, f"{name} {brief(end)} ms", colour))
    layers += end_labels(labels, x, y, (low, high), log=log)
    full, first = at_full(rows), rows[0]
    known = [f"{name} is {brief(value)} ms" for name, *_ in names if (value := finite(full.get(name))) is not None]
    sentence = f"At {databases(full):g} databases, {' and '.join(known[-2:]) or 'no percentile is supported'}"
    if (before := finite(first.get("p95"))) and finite(full.get("p95")):
        sentence += f"; p95 was {brief(before)} ms at {databases(first):g}"
    subtitle = f"Median over the databases of each one's percentile, from a sampled log. {'Logarithmic axis. ' if log else ''}{BAR_NOTE}"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,), "A percentile is left out where fewer than ten sampled transactions lie beyond it.")


@register("soak")
def soak(inputs: FigureInputs) -> Figure:
    """Throughput of a soak's windows relative to their median, with the windows in which a checkpoint or a vacuum ran."""
    rows = inputs.analysis.tables.get("soak", [])
    if not rows:
        raise FigureUnavailable
    times, unit = (60.0, "minutes") if (finite(rows[-1].get("hours")) or 0.0) < 2 else (1.0, "hours")
    course = [
        (start * times, value * 100)
        for row in rows
        if (start := finite(row.get("hours"))) is not None and (value := finite(row.get("relative"))) is not None
    ]
    if len(course) < 2:
        raise FigureUnavailable("the soak has fewer than two windows with throughput")
    least, high = min(90.0, *(value for _, value in course)), max(110.0, *(value for _, value in course)) + 2
    low = least - 0.35 * (high - least)  # a strip for the marks, below whatever was measured
    width = chart_style.plot_width(["failed check"])
    x = alt.X("x:Q", title=f"{unit} since the start", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False))
    y = chart_style.y_axis([low, high], title="throughput, % of the median window")
    layers = [chart_style.reference_line(y, 100)]
    layers += chart_style.lines([(course, BLUE, 1.5, [1, 0])], x, y)
    marks = (
        ("failed_checks", "failed check", MUTED, 0.16),
        ("checkpoints", "checkpoint", VERMILLION, 0.09),
        ("vacuum_workers", "vacuum", PURPLE, 0.02),
    )
    for column, name, colour, height in marks:
        at = low + height * (high - low)
        starts = [(finite(row.get("hours")) or 0.0) * times for row in rows if finite(row.get(column)) or isinstance(row.get(column), str)]
        if starts:
            ticks = alt.Chart(data([{"x": start, "y": at} for start in starts])).mark_point(shape="triangle-up", filled=True, opacity=1)
            words = alt.Chart(data([{"y": at, "text": name}])).mark_text(align="left", color=chart_style.text_colour(colour), fontSize=11)
            layers += [
                ticks.encode(x=x, y=y, color=alt.value(colour), size=alt.value(40)),
                words.encode(x=alt.value(width + 6), y=y, text=alt.Text("text:N")),
            ]
    where, least = min(course, key=lambda point: point[1])
    worst = alt.Chart(data([{"x": where, "y": least, "text": f"worst window: {least:.0f} %"}]))
    layers.append(worst.mark_point(color=INK, size=70, opacity=1).encode(x=x, y=y))
    layers += chart_style.haloed(worst.encode(x=x, y=y, text=alt.Text("text:N")), dy=16, color=MUTED, fontSize=11)
    sentence = f"The worst window has {least:.0f} % of the median{_drifted(inputs)}"
    subtitle = "All databases together, window after window. Marks: windows in which a checkpoint or a vacuum ran, or a check failed."
    sentence = sentence.replace("-", "−")
    chart = alt.layer(*layers, width=width, height=260, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS, SAMPLES))


def _drifted(inputs: FigureInputs) -> str:
    """How throughput drifted; of less than an hour over that time, as in the answer: what it would make in an hour was not seen."""
    drift, soaked = finite(inputs.analysis.findings.get("soak_drift")), inputs.analysis.figures.get("soak")
    hours = finite(soaked.get("hours")) if isinstance(soaked, Mapping) else None
    if drift is None or hours is None:
        return ""
    return f"; throughput drifted by {100 * min(hours, 1.0) * drift:+.1f} % {'per hour' if hours >= 1 else 'over that time'}"
