"""Figure of a run with a changing memory limit: throughput of each pool by second, with the changes."""

from __future__ import annotations

import math
from itertools import accumulate

import altair as alt

from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.studies.balloon_limits.analyse import MB, series, trials_of
from pgherd.studies.balloon_limits.options import POOLS, BalloonLimitsOptions

_HEIGHT = 260
_LIMIT_HEIGHT = 70


@register("limit_changes")
def over_time(inputs: FigureInputs) -> Figure:
    """Draw the mean throughput of each pool's trials by second, above the limit."""
    options = BalloonLimitsOptions.model_validate(inputs.record.options)
    rows: list[dict[str, object]] = []
    starts = list(accumulate([options.duration] * len(options.limits), initial=0.0))
    for pool in options.pools:
        used = trials_of(inputs.results, pool).used
        for number, start in enumerate(starts[:-1]):
            values = [series(result.phases[number]) for result in used]
            for second in range(min(map(len, values), default=0)):
                each = [value[second] for value in values]
                mean = math.fsum(each) / len(each)
                rows.append({"second": start + second + 0.5, "tps": mean, "low": min(each), "high": max(each), "pool": clean(pool)})
    if not rows:
        raise FigureUnavailable("no trial finished")
    limits = [{"second": start, "limit": options.limit(min(number, len(options.limits) - 1)) / MB} for number, start in enumerate(starts)]
    names = [pool for pool in POOLS if pool in options.pools]
    x = alt.X("second:Q", title="seconds from the start of the measured period")
    colour = alt.Color("pool:N", scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=alt.Legend(title="pool"))
    width = chart_style.plot_width(["throughput"])
    base = alt.Chart(data(rows)).encode(x=x, color=colour)
    y = alt.Y("tps:Q", title="throughput, tps")
    lines = alt.layer(
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="throughput, tps"), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=y),
        width=width,
        height=_HEIGHT,
    )
    steps = (
        alt.Chart(data(limits))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1.5)
        .encode(x=x, y=alt.Y("limit:Q", title="limit, MB", scale=alt.Scale(domainMin=0)))
        .properties(width=width, height=_LIMIT_HEIGHT)
    )
    caption = "Mean and range of the trials by second. Each change of the limit also starts new connections."
    chart = chart_style.panels([lines, steps], inputs.analysis.answer, caption, spacing=10)
    return Figure(inputs.analysis.answer, chart, (TRIALS,))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Replace the general figure: there is one database."""
    raise FigureUnavailable("")
