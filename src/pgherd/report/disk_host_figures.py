"""The figure of a disk run on several hosts: how they stand to each other in each test."""

from __future__ import annotations

from typing import Any

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import charts
from pgherd.report.charts import INK, SERIES, data
from pgherd.report.figures import TRIALS, Figure, Inputs, NotDrawn, register
from pgherd.report.wording import brief, clean, finite

STUDY = "disk"
_STEP = 26
"""Height of a test's row, in px."""


@register("hosts", STUDY)
def hosts(inputs: Inputs) -> Figure:
    """A row for each test, a dot for each host: its I/Os as a share of the hosts' mean, with intervals."""
    rows = inputs.analysis.tables.get("hosts", [])
    if not rows:
        raise NotDrawn  # it was one host
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
        raise NotDrawn("no clean trial had every host")
    names = list(dict.fromkeys(dot["host"] for dot in dots))
    least, most = (pick(dots, key=lambda dot: dot["x"]) for pick in (min, max))
    ends = [f"{brief(dot['x'])} % ({dot['host']}, {dot['name']})" for dot in (least, most)]
    sentence = f"From {ends[0]} to {ends[1]} of the hosts' mean"
    subtitle = (
        "I/Os of each host, % of the hosts' mean in the same trial; thin lines are intervals over the repeats, which may run out of it."
    )
    reach = max(10.0, 1.3 * max(abs(dot["x"] - 100) for dot in dots))
    scale = alt.Scale(domain=[max(0.0, 100 - reach), 100 + reach], nice=False)
    x = alt.X("x:Q", title="% of the hosts' mean", scale=scale)
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240, minExtent=220, maxExtent=220))
    colours = alt.Scale(domain=names, range=[SERIES[number % len(SERIES)] for number in range(len(names))])
    colour = alt.Color("host:N", scale=colours, legend=alt.Legend(title="host"))
    level = alt.Chart(data([{"x": 100}])).mark_rule(color=INK, strokeDash=[2, 3]).encode(x=x)
    layers = [level, alt.Chart(data(dots)).mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour)]
    known = [dot for dot in dots if dot["low"] is not None and dot["high"] is not None]
    if known:
        ruled = alt.Chart(data(known)).mark_rule(strokeWidth=1.4, clip=True)
        layers.append(ruled.encode(x=alt.X("low:Q", title="% of the hosts' mean", scale=scale), x2=alt.X2("high:Q"), y=y, color=colour))
    height = _STEP * len({dot["name"] for dot in dots})
    chart = alt.layer(*layers, width=charts.WIDTH - 220 - 110, height=height, title=charts.title(sentence, subtitle))
    return Figure(sentence, chart, (TRIALS,))
