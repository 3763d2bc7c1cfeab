"""Samples page: one metric of containers, servers, disks or processes over a trial or a phase.

Its plots are Vega-Lite specifications, plain data that the browser draws. The page's script adds the colours that depend on the light or
dark theme.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.report.formatting import number
from pgherd.ui import sample_queries
from pgherd.ui.app_state import state_of
from pgherd.ui.runs_page import parse_integer
from pgherd.ui.sample_queries import MetricChoice, PlotSeries, TrialLine

_PREFERRED = ("container/cgroup_cpu/cpu.usage", "container/processes/cpu.usage", "host/cpu/cpu.user")
_KINDS = {
    "container": "containers",
    "server": "servers",
    "host": "the host",
    "disk": "disks",
    "driver": "load generators",
    "backend": "sampling backends",
    "pgherd": "pgherd",
    "run-cgroup": "all containers together",
    "platform": "parts of the platform",
}
_MAX_PHASE = 999_999


def explore(request: Request) -> Response:
    """Show the page, or only the plot and its form if the page's script sent the request."""
    state = state_of(request)
    directory = state.run(request)
    lines = sample_queries.trial_lines(directory)
    context: dict[str, Any] = {"run": directory.name, "lines": lines, "kinds": _KINDS, "views": VIEWS}
    if not lines:
        return state.page("explore.html.j2", **context, empty="This run has no finished trial yet, so there are no samples.")
    query = request.query_params
    line = sample_queries.trial_line(directory, query["trial"]) if query.get("trial") else _largest(lines)
    choices = sample_queries.choices(line.directory)
    if not choices and not any(sample_queries.files(other.directory) for other in lines):
        return state.page("explore.html.j2", **{**context, "lines": ()}, empty="No trial of this run has samples.")
    if not choices:
        return state.page("explore.html.j2", **context, line=line, empty=f"Trial {line.id} has no samples.")
    choice = _choice(choices, query.get("metric", ""))
    result = sample_queries.read_trial(line)
    bands = [PhaseBand(clean(phase.phase), phase.start, phase.end) for phase in result.phases]
    phase = _phase(bands, query.get("phase", ""))
    begin = bands[0].first if bands else result.started
    first, last = _time(query.get("from", ""), "from"), _time(query.get("to", ""), "to")
    if first is not None and last is not None and last <= first:
        raise UsageError(f"the time shown ends at {last:g} s, which is not after its start at {first:g} s")
    requested = set(query.getlist("entity"))
    chosen = [entity for entity in choice.entities if entity in requested]  # the form may name those of the previous metric or trial
    within = (bands[phase].first, bands[phase].last) if phase is not None else (None, None)
    series = sample_queries.series(
        line.directory,
        choice,
        chosen,
        within[0] if first is None else begin + first,
        within[1] if last is None else begin + last,
    )
    view = _view(query.get("view", ""), len(series.rows))
    spec = specification(choice, series, bands, begin, view) if series.points else None
    return state.page(
        "explore_part.html.j2" if request.headers.get("hx-target") == "explorer" else "explore.html.j2",
        **context,
        line=line,
        choices=_grouped(choices),
        choice=choice,
        bands=bands,
        phase=phase,
        view=view,
        chosen=chosen,
        series=series,
        first=first,
        last=last,
        rows=[(row, [_number(value) for value in (row.mean, row.minimum, row.median, row.maximum)]) for row in series.rows],
        spec=None if spec is None else _embedded(spec),
        empty="",
    )


def _largest(lines: Sequence[TrialLine]) -> TrialLine:
    """Return the trial to show first: the last one of the largest point that has samples."""
    sampled = [line for line in lines if sample_queries.files(line.directory)]
    return max(sampled or lines, key=lambda line: (line.size, line.id))


def _choice(choices: Sequence[MetricChoice], key: str) -> MetricChoice:
    by_key = {choice.key: choice for choice in choices}
    if key and key not in by_key:
        # Another trial may lack the metric of the previous one. Then the most similar one is shown.
        kind, _, rest = key.partition("/")
        name = rest.rpartition("/")[2]
        same_name = [choice for choice in choices if choice.name == name]
        similar = [choice for choice in same_name if choice.kind == kind] or same_name
        if not similar:
            raise UsageError(f"this trial has no samples of '{clean(key)[:80]}'; choose another metric")
        return similar[0]
    return by_key[key] if key else next((by_key[key] for key in _PREFERRED if key in by_key), choices[0])


def _phase(bands: Sequence[PhaseBand], text: str) -> int | None:
    """Return the index of the requested phase. None is the entire trial, also if the trial has fewer phases than the previous one."""
    number = parse_integer("phase", text, 0, 1, _MAX_PHASE)
    return number - 1 if 1 <= number <= len(bands) else None


def _time(text: str, name: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e9 or len(text) > 24:
        raise UsageError(f"'{name}' is a number of seconds, not '{clean(text)[:24]}'")
    return value


def _view(text: str, count: int) -> View:
    """Return the requested view. A single series has only one."""
    if text and text not in VIEWS:
        raise UsageError(f"view is one of {', '.join(VIEWS)}, not '{clean(text)[:20]}'")
    requested: View = next((view for view in VIEWS if view == text), "each")
    return requested if count > 1 else "each"


def _grouped(choices: Sequence[MetricChoice]) -> dict[str, list[MetricChoice]]:
    groups: dict[str, list[MetricChoice]] = {}
    for kind in (*_KINDS, *sorted({choice.kind for choice in choices} - set(_KINDS))):
        group = sorted((choice for choice in choices if choice.kind == kind), key=lambda choice: choice.name)
        if group:
            groups[kind] = group
    return groups


def _number(value: float) -> str:
    return number(value, abs(value) / 1000 or None)


def _embedded(spec: dict[str, Any]) -> str:
    """Return JSON that can be embedded in a page: no character in it can end the script element."""
    text = json.dumps(spec, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


View = Literal["each", "total", "spread"]
VIEWS: tuple[View, ...] = get_args(View)
POINT_LIMIT = 40
"""Maximum number of readings of a series to draw as points."""
MAX_COLOURS = 8
"""Maximum number of series to distinguish by colour. More are drawn in one colour."""

_ACCENT = "#0072B2"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8c6bb1", "#7f7f7f")

_BYTES = "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~g') + ' GB' : format(datum.value / 1048576, '.3~g') + ' MB'"
_RATE = "datum.value >= 1e9 ? format(datum.value / 1e9, '.3~g') + ' GB/s' : format(datum.value / 1e6, '.3~g') + ' MB/s'"


@dataclass(frozen=True)
class PhaseBand:
    """Measured window of a phase, in seconds since the epoch."""

    name: str
    first: float
    last: float


def specification(choice: MetricChoice, series: PlotSeries, bands: Sequence[PhaseBand], begin: float, view: View) -> dict[str, Any]:
    """Return the plot of one metric over seconds since ``begin``, the start of the trial's first phase."""
    rows = _rows(series, begin, view)
    axis: dict[str, Any] = {"title": f"{choice.name}, {choice.unit}" if choice.unit else choice.name, "grid": True, "tickCount": 6}
    if choice.unit.startswith("bytes"):
        axis |= {"labelExpr": _BYTES if choice.unit == "bytes" else _RATE, "title": choice.name}
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "seconds since the start of the first measured period",
        "axis": {"grid": False, "tickCount": 10},
        "scale": {"domain": [series.first - begin, series.last - begin], "nice": False},
    }
    y = {"field": "y", "type": "quantitative", "axis": axis, "scale": {"zero": True}}
    layers = [_bands(bands, series, begin), *_views(view, rows, x, y, choice.unit)]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",  # a name, never fetched
        "width": "container",
        "height": 340,
        "autosize": {"type": "fit", "contains": "padding"},
        "datasets": {"series": rows},
        "layer": [layer for layer in layers if layer],
    }


def _rows(series: PlotSeries, begin: float, view: View) -> list[dict[str, Any]]:
    if view == "each" and len(series.rows) > MAX_COLOURS:  # no shade for this many
        return [{"e": entity, "x": round(t - begin, 3), "y": _short(mean)} for entity, t, mean, _, _ in series.points]
    if view == "each":
        return [
            {"e": entity, "x": round(t - begin, 3), "y": _short(mean), "low": _short(low), "high": _short(high)}
            for entity, t, mean, low, high in series.points
        ]
    buckets: dict[int, list[tuple[float, float]]] = {}
    for _, t, mean, _, _ in series.points:
        buckets.setdefault(round((t - series.first) / series.width), []).append((t, mean))
    entities = len(series.rows)
    rows = []
    for _, readings in sorted(buckets.items()):
        x = round(sum(t for t, _ in readings) / len(readings) - begin, 3)
        values = sorted(value for _, value in readings)
        if view == "total":
            if len(readings) == entities:  # a sum without all entities would be too small
                rows.append({"x": x, "y": _short(sum(values))})
        else:
            quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
            rows.append(
                {
                    "x": x,
                    "y": _short(quarters[1]),
                    "q1": _short(quarters[0]),
                    "q3": _short(quarters[2]),
                    "low": _short(values[0]),
                    "high": _short(values[-1]),
                }
            )
    return rows


Channel = dict[str, Any]
Layer = dict[str, Any]
_DATA: Layer = {"name": "series"}


def _views(view: View, rows: Sequence[dict[str, Any]], x: Channel, y: Channel, unit: str) -> list[Layer]:
    tips = [{"field": "x", "title": "second", "format": ".1f"}, {"field": "y", "title": unit or "value", "format": ".4~g"}]
    if view == "total":
        area = {"type": "area", "color": _ACCENT, "opacity": 0.18, "line": {"color": _ACCENT, "strokeWidth": 1.8}}
        return [_layer(area, x=x, y=y), _hover(x=x, y=y, tooltip=tips)]
    if view == "spread":
        quantiles = [{"field": name, "title": title, "format": ".4~g"} for name, title in _SPREAD]
        return [
            _layer({"type": "area", "color": _ACCENT, "opacity": 0.14}, x=x, y={**y, "field": "low"}, y2={"field": "high"}),
            _layer({"type": "area", "color": _ACCENT, "opacity": 0.28}, x=x, y={**y, "field": "q1"}, y2={"field": "q3"}),
            _layer({"type": "line", "color": _ACCENT, "strokeWidth": 2}, x=x, y=y),
            _hover(x=x, y=y, tooltip=[tips[0], *quantiles]),
        ]
    tips = [{"field": "e", "title": "entity"}, *tips]
    entities = sorted({row["e"] for row in rows})
    if len(entities) > MAX_COLOURS:
        thin = {"type": "line", "color": _ACCENT, "strokeWidth": 0.9, "opacity": 0.35}
        return [_layer(thin, x=x, y=y, detail={"field": "e", "type": "nominal"}), _hover(x=x, y=y, tooltip=tips)]
    return _coloured(rows, entities, x, y, tips)


def _coloured(rows: Sequence[dict[str, Any]], entities: Sequence[str], x: Channel, y: Channel, tips: Sequence[Channel]) -> list[Layer]:
    """Draw each series as a line in a separate colour, with a shade if readings were thinned.

    The legend is above the plot, where narrow pages have room.
    """
    legend = {"orient": "top", "columns": 4, "symbolType": "stroke", "symbolOpacity": 1} if len(entities) > 1 else None
    scale = {"domain": list(entities), "range": list(_COLOURS[: len(entities)])}
    colour: Channel = {"field": "e", "type": "nominal", "title": None, "scale": scale, "legend": legend}
    line: Layer = {"type": "line", "strokeWidth": 1.6}
    if len(rows) <= POINT_LIMIT * len(entities):
        line["point"] = {"size": 26, "filled": True}  # few enough readings to see each
    layers = [_layer(line, x=x, y=y, color=colour), _hover(x=x, y=y, color=colour, tooltip=list(tips))]
    if any(row["low"] != row["high"] for row in rows):
        shade = {"type": "area", "opacity": 0.15}
        layers.insert(0, _layer(shade, x=x, y={**y, "field": "low"}, y2={"field": "high"}, color=colour))
    return layers


_SPREAD = (("y", "median"), ("q1", "lower quartile"), ("q3", "upper quartile"), ("low", "minimum"), ("high", "maximum"))


def _layer(mark: Layer, **encoding: Any) -> Layer:
    return {"data": _DATA, "mark": mark, "encoding": encoding}


def _hover(**encoding: Any) -> Layer:
    """Return invisible points that carry the tooltips."""
    return _layer({"type": "point", "filled": True, "size": 60, "opacity": 0, "color": _ACCENT}, **encoding)


def _bands(bands: Sequence[PhaseBand], series: PlotSeries, begin: float) -> dict[str, Any]:
    """Return the measured periods as a background shade, cut to the time shown."""
    rows = [
        {"from": max(band.first, series.first) - begin, "to": min(band.last, series.last) - begin, "name": band.name}
        for band in bands
        if band.last > series.first and band.first < series.last
    ]
    if not rows:
        return {}
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "opacity": 0.08, "color": "#7a8794"},
        "encoding": {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}},
    }


def _short(value: float) -> float:
    """Round to seven digits, which is enough for a plot."""
    return float(f"{value:.7g}")
