"""Figures of an isolation run: who suffered, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import altair as alt

from pgherd.drivers.pgbench_output import read_progress
from pgherd.model.analysis import Finding
from pgherd.model.errors import PgherdError
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.node.files import read_below
from pgherd.report import chart_style
from pgherd.report.chart_style import DASHES, INK, SERIES, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite
from pgherd.studies.isolation.analyse import by_block
from pgherd.studies.isolation.options import AGGRESSORS, ALONE, SCHEMES
from pgherd.studies.isolation.propose import addresses

STUDY = "isolation"
_ROW_HEIGHT = 64
"""Height of an aggressor's row, in px."""
_PANEL_HEIGHT = 150
_TAINTED = " (tainted)"
_COLOURS = dict(zip(("alone", *AGGRESSORS), (INK, *SERIES[:-1], "#8c6d31", "#9467bd", "#8c959f"), strict=True))
"""Colours of the victim alone and next to each aggressor. The last one of SERIES is too close to that alone."""


@register("isolation")
def who(inputs: FigureInputs) -> Figure:
    """Draw the ratio of the victim's p99 next to each aggressor, with its interval, by scheme."""
    points, unknown = [], []
    for row in inputs.analysis.tables.get(STUDY, []):
        cell = row.get("p99_ratio")
        value = finite(cell)
        if isinstance(cell, Finding) and value is not None:
            low, high = finite(cell.low), finite(cell.high)
            points.append({"aggressor": clean(row["aggressor"]), "scheme": clean(row["scheme"]), "x": value, "low": low, "high": high})
        else:
            unknown.append(f"{clean(row['scheme'])}/{clean(row['aggressor'])}")
    if not points:
        raise FigureUnavailable("no p99 ratio is known")
    schemes = [scheme for scheme in SCHEMES if any(point["scheme"] == scheme for point in points)]
    x = alt.X("x:Q", scale=alt.Scale(type="log"), title="p99 next to the aggressor ÷ p99 alone", axis=alt.Axis(format="~g", tickCount=8))
    y = alt.Y("aggressor:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False))
    offset = alt.YOffset("scheme:N", scale=alt.Scale(domain=schemes))
    scale = alt.Scale(domain=schemes, range=list(SERIES[: len(schemes)]))
    colour = alt.Color("scheme:N", scale=scale, legend=alt.Legend(title=None))
    layers: list[alt.Chart] = [alt.Chart(data([{"x": 1}])).mark_rule(color=INK, strokeWidth=1.2).encode(x=x)]
    layers += chart_style.interval_bars(points, x, y, horizontal=True, mark={"strokeWidth": 2}, yOffset=offset, color=colour)
    layers.append(alt.Chart(data(points)).mark_point(size=80, filled=True, opacity=1).encode(x=x, y=y, yOffset=offset, color=colour))
    chart = alt.layer(
        *layers,
        width=chart_style.plot_width(["checkpoint"]),
        height=_ROW_HEIGHT * len({point["aggressor"] for point in points}),
        title=chart_style.title(inputs.analysis.answer, "Bars are 95 % intervals over the blocks, each ratio by itself. 1: no effect."),
    )
    caption = f"No p99 is known for {', '.join(unknown)}." if unknown else ""
    return Figure(inputs.analysis.answer, chart, (TRIALS,), caption)


@register("victim_over_time")
def when(inputs: FigureInputs) -> Figure:
    """Draw the victim's latency by second, alone and next to each aggressor, one panel per scheme. Lines of tainted trials are dashed."""
    if inputs.directory is None:
        raise FigureUnavailable("")
    cells = {(scheme, name): by_block(inputs.results, scheme, name) for scheme in SCHEMES for name in (ALONE, *AGGRESSORS)}
    first = min((block for trials in cells.values() for block in trials), default=0)
    rows: dict[str, list[dict[str, object]]] = {}
    for (scheme, aggressor), trials in cells.items():
        if first in trials:
            name = ("alone" if aggressor == ALONE else aggressor) + (_TAINTED if trials[first].tainted else "")
            rows.setdefault(scheme, []).extend(
                {"second": second, "latency": latency, "next to": name} for second, latency in _by_second(trials[first], inputs.directory)
            )
    measured = {scheme: part for scheme, part in rows.items() if part}
    if not measured:
        raise FigureUnavailable("the victim's progress is not part of the run directory")
    drawn = {row["next to"] for part in measured.values() for row in part}
    names = [name + end for name in _COLOURS for end in ("", _TAINTED) if name + end in drawn]
    colours = [_COLOURS[name.removesuffix(_TAINTED)] for name in names]
    dashes = [DASHES[name.endswith(_TAINTED)] for name in names]
    legend = alt.Legend(title="next to")
    latencies = [float(str(row["latency"])) for part in measured.values() for row in part]
    y_scale = alt.Scale(type="log", domain=[min(latencies), max(latencies)], nice=False)
    charts = [
        alt.Chart(data(part))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("second:Q", title="seconds from the start of the measured period", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("latency:Q", title="mean latency, ms", scale=y_scale, axis=alt.Axis(format="~g", tickCount=4)),
            color=alt.Color("next to:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            strokeDash=alt.StrokeDash("next to:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        )
        .properties(width=chart_style.plot_width(names), height=_PANEL_HEIGHT, title=chart_style.panel_title(scheme))
        for scheme, part in measured.items()
    ]
    sentence = "The victim's latency alone and next to each aggressor"
    chart = chart_style.panels(
        charts, sentence, "Mean of each second in the first block, from the scheduled start of each transaction.", spacing=14
    )
    return Figure(sentence, chart, ("trials/*/drivers/*/*/stderr",))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Replace the general figure: victim and aggressor have different loads, so their throughputs cannot be compared."""
    raise FigureUnavailable("")


def _by_second(result: TrialResult, directory: Path) -> Iterator[tuple[float, float]]:
    """Yield the end of each second of the measured period with the mean latency (ms) of the victim in it."""
    phase = result.phases[0]
    victim, _ = addresses(next(scheme for scheme in SCHEMES if scheme == result.trial.point["scheme"]))
    target = next(target for target in phase.targets if target.target == victim)
    stderr = next((name for name in target.raw if name.endswith("/stderr")), None)
    try:
        text = "" if stderr is None else read_below(directory, f"trials/{result.id}/{stderr}").decode(errors="replace")
    except (OSError, PgherdError):
        text = ""
    for line in read_progress(text):
        if phase.start < line.at <= phase.end and line.latency > 0:
            yield line.at - phase.start, line.latency
