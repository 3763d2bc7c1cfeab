"""Curves of overcommitment (E5): what each scheme keeps of its own undercommitted throughput at each rate."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from pgherd.report import chart_style
from pgherd.report.chart_style import MUTED, data
from pgherd.report.data_files import Row
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import bounds, clean, finite
from pgherd.studies.consolidation.figures import COLOURS, SHAPES, STUDY, named, panels, stacked
from pgherd.studies.consolidation.words import ended_words

_HEIGHT = 260


@register("overcommitment")
def overcommitment(inputs: FigureInputs) -> Figure:
    """One curve per scheme over the rate, with intervals; a panel for each size of buffers. A cross: ended for want of memory."""
    rows = [row for row in inputs.analysis.tables.get(STUDY, []) if finite(row.get("rate")) is not None]
    over = [row for row in rows if (finite(row["rate"]) or 0.0) > 0]
    if not over:
        raise FigureUnavailable
    if not any(finite(row.get("normalised")) is not None or finite(row.get("killed")) for row in over):
        raise FigureUnavailable("no overcommitted trial has a number that could be held against its baseline")
    honest = finite(inputs.analysis.findings.get("honest_rate"))
    highest = [end for row in over for end in (finite(row["normalised"]), *bounds(row["normalised"])) if end is not None]
    top = chart_style.nice_ceiling(100 * max([1.0, *highest]) * 1.04)
    made = [_panel([row for row in rows if finite(row["buffers"]) == percent], percent, top, honest) for percent in panels(over)]
    sentence = _sentence(over)
    intervals = any(bounds(row["normalised"])[0] is not None for row in over)
    subtitle = "Throughput of all databases against the same scheme undercommitted. Rate: 1 − available ÷ configured memory. " + (
        "Bars are intervals over blocks." if intervals else "Too few blocks for intervals."
    )
    if any(_killed(row) for row in over):
        subtitle += " A cross: the kernel ended servers for want of memory."
    caption = "All containers share one kernel here: not judged against E5's published curve, which is of virtual machines."
    return Figure(
        sentence, stacked(made, sentence, subtitle), (TRIALS,), caption if inputs.record.options.get("runtime") == "cgroup" else ""
    )


def _killed(row: Row) -> bool:
    return bool(finite(row.get("killed"))) and finite(row.get("normalised")) is None


def _panel(rows: Sequence[Row], percent: float, top: float, honest: float | None) -> alt.TopLevelMixin:
    right = 100 * max(finite(row["rate"]) or 0.0 for row in rows)
    x = chart_style.x_axis([0, right * 1.03], title="overcommitment, %")
    y = chart_style.y_axis([0, top], title=f"of the own baseline, %; {percent:g} % buffers")
    layers: list[alt.Chart] = list(chart_style.level(100, "undercommitted", right * 1.03, x, y))
    labels, crosses = [], []
    found = sorted({int(finite(row["scheme"]) or 0) for row in rows})
    for index, scheme in enumerate(found):
        own = sorted((row for row in rows if finite(row["scheme"]) == scheme), key=lambda row: finite(row["rate"]) or 0.0)
        shift = (index - (len(found) - 1) / 2) * right * 0.006  # bars of one rate stand side by side
        part: list[dict[str, float | None]] = []
        for row in own:
            at = 100 * (finite(row["rate"]) or 0.0)
            value = 1.0 if at == 0 and finite(row.get("throughput")) is not None else finite(row["normalised"])
            if value is not None:
                low, high = (None if end is None else 100 * end for end in bounds(row["normalised"]))
                part.append({"x": at + (shift if at else 0.0), "y": 100 * value, "low": low, "high": high})
            elif _killed(row):
                crosses.append({"x": at + 2.5 * shift, "y": 0.02 * top, "colour": COLOURS[scheme]})
        if part:
            layers += chart_style.line_with_bars(part, x, y, COLOURS[scheme], SHAPES[scheme])
            labels.append((right * 1.03, part[-1]["y"] or 0.0, named(scheme), COLOURS[scheme]))
    if crosses:
        marks = alt.Chart(data(crosses)).mark_point(shape="cross", angle=45, size=110, filled=True, opacity=1)
        layers.append(marks.encode(x=x, y=y, color=alt.Color("colour:N", scale=None)))
    if honest is not None and 100 * honest <= right:
        layers += chart_style.rules([(100 * honest, "working sets fit up to here", MUTED)], x, y, (0, top), right, height=_HEIGHT)
    layers += chart_style.end_labels(labels, x, y, (0, top), height=_HEIGHT)
    return alt.layer(*layers, width=chart_style.plot_width([text for *_, text, _ in labels]), height=_HEIGHT)


def _sentence(rows: Sequence[Row]) -> str:
    """What is left at the highest rate, for each size of buffers."""
    parts = []
    for percent in panels(rows):
        every = [row for row in rows if finite(row["buffers"]) == percent]
        own, ended = [row for row in every if finite(row.get("normalised")) is not None], ended_words(every)
        if not own:
            parts.append(f"with {percent:g} % buffers " + (ended or "nothing finished"))
            continue
        rate = max(finite(row["rate"]) or 0.0 for row in own)
        kept = [(finite(row["normalised"]) or 0.0, clean(row["what"])) for row in own if finite(row["rate"]) == rate]
        told = ", ".join(f"{what} {100 * value:.0f} %" for value, what in sorted(kept, reverse=True))
        parts.append(f"at {100 * rate:g} % and {percent:g} % buffers {told}" + (f" ({ended})" if ended else ""))
    text = "; ".join(parts)
    return f"Left of the own baseline: {text}"
