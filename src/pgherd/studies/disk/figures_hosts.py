"""The figure of a disk run on several hosts: how they stand to each other in each test."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style
from pgherd.report.chart_style import INK, MUTED, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, clean, finite

STUDY = "disk"
_STEP, _BETWEEN = 9, 12
"""Height of a host's line within a test's row, and of what is left free between rows, in px."""
OTHERS = "the others"
"""Stands for hosts that have no colour of their own."""


@register("hosts")
def hosts(inputs: FigureInputs) -> Figure:
    """A row for each test, a dot for each host: its I/Os as a share of the hosts' mean, with intervals."""
    rows = inputs.analysis.tables.get("hosts", [])
    if not rows:
        raise FigureUnavailable  # it was one host
    several = len({str(row.get("volume")) for row in rows}) > 1
    dots: list[dict[str, Any]] = []
    for row in rows:
        cell = row.get("relative")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None:
            name = clean(row.get("test")) + (f", {clean(row.get('volume'))}" if several else "")
            interval = {end: None if (at := finite(getattr(cell, end))) is None else 100 * at for end in ("low", "high")}
            dots.append({"name": name, "host": clean(row.get("host")), "x": 100 * value, **interval})
    if not dots:
        raise FigureUnavailable("no clean trial had every host")
    shown = _told_apart(dots)
    for dot in dots:
        dot["who"] = dot["host"] if dot["host"] in shown else OTHERS
    least, most = (pick(dots, key=lambda dot: dot["x"]) for pick in (min, max))
    ends = [f"{brief(dot['x'])} % ({dot['host']}, {dot['name']})" for dot in (least, most)]
    sentence = f"From {ends[0]} to {ends[1]} of the hosts' mean"
    subtitle = (
        "I/Os of each host, % of the hosts' mean in the same trial; thin lines are intervals over the repeats, which may run out of it."
    )
    reach = max(10.0, 1.3 * max(abs(dot["x"] - 100) for dot in dots))
    x = chart_style.x_axis([max(0.0, 100 - reach), 100 + reach], title="% of the hosts' mean")
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240, minExtent=220, maxExtent=220))
    who = [*shown, OTHERS] if any(dot["who"] == OTHERS for dot in dots) else shown
    colours = alt.Scale(domain=who, range=[MUTED if name == OTHERS else SERIES[number] for number, name in enumerate(who)])
    colour = alt.Color("who:N", scale=colours, legend=alt.Legend(title="host"))
    beside = alt.YOffset("who:N", sort=who)
    level = chart_style.reference_line(x, 100, color=INK, strokeDash=[2, 3])
    dotted = alt.Chart(data(dots)).mark_point(filled=True, size=45, opacity=1)
    layers = [level, dotted.encode(x=x, y=y, yOffset=beside, color=colour)]
    layers += chart_style.interval_bars(dots, x, y, horizontal=True, mark={"strokeWidth": 1.4, "clip": True}, yOffset=beside, color=colour)
    height = (_BETWEEN + _STEP * len(who)) * len({dot["name"] for dot in dots})
    chart = alt.layer(*layers, width=chart_style.WIDTH - 220 - 110, height=height, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))


def _told_apart(dots: Sequence[Mapping[str, Any]]) -> list[str]:
    """The hosts that get a colour: all, or of more than there are colours the slowest and the fastest by their mean over the tests."""
    names = list(dict.fromkeys(str(dot["host"]) for dot in dots))
    if len(names) <= len(SERIES):
        return names
    mean = {name: statistics.fmean(dot["x"] for dot in dots if dot["host"] == name) for name in names}
    return [min(names, key=lambda name: mean[name]), max(names, key=lambda name: mean[name])]
