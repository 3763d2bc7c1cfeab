"""The figures of a consolidation: what each database did in each period, each scheme's one number, CPU over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report import chart_style
from pgherd.report.chart_style import MUTED, SERIES, data
from pgherd.report.data_files import Row
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, compact, finite
from pgherd.studies.consolidation.options import SCHEMES

STUDY = "consolidation"
COLOURS = {scheme: SERIES[place] for place, scheme in enumerate(SCHEMES)}
"""Scheme → its colour in every figure."""
SHAPES = dict(zip(SCHEMES, ("circle", "square", "triangle-up", "diamond"), strict=True))
MOST_DATABASES = len(SERIES)
"""Databases that are told apart in stacked bars; of more, the rest is one part."""
_PANEL = 250
"""Height of a panel, in px."""


def named(scheme: object) -> str:
    """``3: M/M/M``."""
    return f"{clean(scheme)}: {SCHEMES.get(int(finite(scheme) or 0), '')}"


def panels(rows: Sequence[Row]) -> list[float]:
    """The sizes of shared buffers (%) that rows were measured with, ascending."""
    return sorted({value for row in rows if (value := finite(row.get("buffers"))) is not None})


def baseline(rows: Sequence[Row]) -> list[Row]:
    """Rows that were not overcommitted and have a number."""
    return [row for row in rows if finite(row.get("rate")) == 0 and finite(row.get("throughput")) is not None]


def unit(rows: Sequence[Row]) -> str:
    """Of throughput."""
    return next((cell.unit for row in rows if isinstance(cell := row.get("throughput"), Finding)), "tps")


def stacked(parts: Sequence[Any], sentence: str, subtitle: str) -> alt.TopLevelMixin:
    """Panels below each other, under one title."""
    return chart_style.panels(parts, sentence, subtitle, spacing=20)


# ---- databases and periods


@register("schemes")
def schemes(inputs: FigureInputs) -> Figure:
    """Each database's throughput in each period, stacked, one group of bars per scheme; a panel for each size of buffers."""
    rows = baseline(inputs.analysis.tables.get("periods", []))
    if not rows:
        raise FigureUnavailable("no undercommitted trial finished")
    totals: dict[tuple[float, float, float], float] = {}
    for row in rows:
        key = (finite(row["buffers"]) or 0.0, finite(row["scheme"]) or 0.0, finite(row["period"]) or 0.0)
        totals[key] = totals.get(key, 0.0) + (finite(row["throughput"]) or 0.0)
    top = chart_style.nice_ceiling(max(totals.values()))
    names = list(dict.fromkeys(str(row["database"]) for row in rows))
    shown = names if len(names) <= MOST_DATABASES else [*names[: MOST_DATABASES - 1], "the others"]
    made = [_panel(rows, percent, shown, top) for percent in panels(rows)]
    sentence = _sentence(inputs, rows)
    busy = "; ".join(f"{name} {_clients(rows, name)}" for name in names[:4])
    subtitle = f"Undercommitted; means over blocks. Clients of each database in periods 1, 2, …: {busy}{' …' if len(names) > 4 else ''}."
    caption = "Ramp-ups before each period are not counted."
    if any("corrected_ratio" in row for row in inputs.analysis.tables.get(STUDY, [])):
        caption += " With a container each the databases have more vCPUs in all; E4's correction for that stands beside the sums."
    return Figure(sentence, stacked(made, sentence, subtitle), (TRIALS,), caption)


def _panel(rows: Sequence[Row], percent: float, names: Sequence[str], top: float) -> Any:
    own = [row for row in rows if finite(row["buffers"]) == percent]
    order = list(dict.fromkeys(named(row["scheme"]) for row in own))
    parts: dict[tuple[str, str, str], float] = {}
    for row in own:
        name = str(row["database"]) if str(row["database"]) in names else names[-1]
        key = (named(row["scheme"]), str(row["period"]), name)
        parts[key] = parts.get(key, 0.0) + (finite(row["throughput"]) or 0.0)
    values = []
    for (scheme, period, name), value in parts.items():
        below = sum(parts.get((scheme, period, one), 0.0) for one in names[: names.index(name)])
        values.append({"scheme": scheme, "period": int(period), "database": name, "low": below, "high": below + value})
    periods = len({value["period"] for value in values})
    width = max(12, round((chart_style.WIDTH - chart_style.AXIS - 90 - 14 * len(order)) / max(len(order), 1)))
    title = f"{percent:g} % buffers, {unit(own)}"
    return (
        alt.Chart(data(values), width=width, height=_PANEL)
        .mark_bar(stroke="#ffffff", strokeWidth=0.5)
        .encode(
            x=alt.X("period:O", title=None, axis=alt.Axis(labelAngle=0, labels=periods <= 12), scale=alt.Scale(paddingInner=0.15)),
            y=alt.Y("low:Q", title=title, scale=alt.Scale(domain=[0, top], nice=False)),
            y2=alt.Y2("high:Q"),
            color=alt.Color(
                "database:N",
                scale=alt.Scale(domain=list(names), range=list(SERIES[: len(names)])),
                legend=alt.Legend(title=None, orient="right"),
            ),
            column=alt.Column("scheme:N", sort=order, title=None, spacing=14, header=alt.Header(labelOrient="bottom", labelPadding=4)),
        )
    )


def _clients(rows: Sequence[Row], name: str) -> str:
    own: dict[float, str] = {}
    for row in rows:
        if row["database"] == name:
            own[finite(row["period"]) or 0.0] = clean(row["clients"])
    return ", ".join(own[period] for period in sorted(own)[:6]) + (" …" if len(own) > 6 else "")


def _sentence(inputs: FigureInputs, rows: Sequence[Row]) -> str:
    measured = baseline(inputs.analysis.tables.get(STUDY, []))
    if not measured:
        return "Throughput of each database in each period"
    parts = []
    for percent in panels(measured):
        best = max((row for row in measured if finite(row["buffers"]) == percent), key=lambda row: finite(row["throughput"]) or 0.0)
        parts.append(
            f"with {percent:g} % buffers {clean(best['what'])} came to the most, {compact(finite(best['throughput']))} {unit(rows)}"
        )
    text = "; ".join(parts)
    return text[0].upper() + text[1:]


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Not drawn: databases differ because their loads do, on purpose."""
    raise FigureUnavailable


# ---- the one number


@register("number")
def number(inputs: FigureInputs) -> Figure:
    """Each scheme's throughput averaged over the periods, with its interval, and with E4's correction beside it."""
    rows = baseline(inputs.analysis.tables.get(STUDY, []))
    if not rows:
        raise FigureUnavailable("no undercommitted trial finished")
    ends = [value for row in rows for cell in (row["throughput"], row["corrected"]) for value in _ends(cell)]
    top = chart_style.nice_ceiling(max(ends) * 1.02)
    kinds = ["measured", "with E4's correction"]
    made = []
    for percent in panels(rows):
        own = [row for row in rows if finite(row["buffers"]) == percent]
        points = [
            {"scheme": named(row["scheme"]), "kind": kind, "x": finite(row[name]), "low": _end(row[name], 0), "high": _end(row[name], 1)}
            for row in own
            for name, kind in zip(("throughput", "corrected"), kinds, strict=True)
            if finite(row[name]) is not None
        ]
        x = chart_style.x_axis([0, top], title=f"{unit(own)}, {percent:g} % buffers")
        y = alt.Y("scheme:N", sort=[named(row["scheme"]) for row in own], title=None, axis=alt.Axis(ticks=False, domain=False, grid=True))
        offset = alt.YOffset("kind:N", scale=alt.Scale(domain=kinds))
        colour = alt.Color(
            "kind:N", scale=alt.Scale(domain=kinds, range=[SERIES[0], MUTED]), legend=alt.Legend(title=None, orient="bottom")
        )
        shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "diamond"]))
        layers = chart_style.interval_bars(points, x, y, horizontal=True, mark={"strokeWidth": 2}, yOffset=offset, color=colour)
        marks = alt.Chart(data(points)).mark_point(size=80, filled=True, opacity=1)
        layers.append(marks.encode(x=x, y=y, yOffset=offset, color=colour, shape=shape))
        made.append(alt.layer(*layers, width=chart_style.plot_width() - 60, height=44 * len(own)))
    sentence = _ranking(rows)
    subtitle = "Sum of the databases, averaged over the periods. " + (
        "Bars are intervals over blocks; the ratios in the table pair schemes by block, and are narrower."
        if any(_end(row["throughput"], 0) is not None for row in rows)
        else "Too few blocks for intervals."
    )
    caption = (
        "The correction adds what the quiet databases attained once more, for schemes whose databases share one container's vCPUs where "
        "others have vCPUs of their own."
    )
    return Figure(sentence, stacked(made, sentence, subtitle), (TRIALS,), caption)


def _ranking(rows: Sequence[Row]) -> str:
    """``New orders/min with 25 % buffers: M/M/M 32.73k, 1/1/M 31.6k``."""
    parts = []
    for percent in panels(rows):
        own = sorted(
            (row for row in rows if finite(row["buffers"]) == percent), key=lambda row: finite(row["throughput"]) or 0.0, reverse=True
        )
        parts.append(
            f"with {percent:g} % buffers " + ", ".join(f"{clean(row['what'])} {compact(finite(row['throughput']))}" for row in own)
        )
    what = unit(rows)
    return f"{what[0].upper()}{what[1:]}: {'; '.join(parts)}"


def _ends(cell: object) -> list[float]:
    values = [finite(cell), _end(cell, 0), _end(cell, 1)]
    return [value for value in values if value is not None]


def _end(cell: object, side: int) -> float | None:
    if not isinstance(cell, Finding) or finite(cell.low) is None or finite(cell.high) is None:
        return None
    return finite((cell.low, cell.high)[side])
