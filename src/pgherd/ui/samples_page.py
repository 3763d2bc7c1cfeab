"""Samples page: one metric of containers, servers, disks or processes over a trial or a phase."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.report.formatting import number
from pgherd.ui import plots, sample_queries
from pgherd.ui.app_state import state_of
from pgherd.ui.plots import PhaseBand
from pgherd.ui.sample_queries import MetricChoice, TrialLine

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
_MAX_ENTITIES = 200


def explore(request: Request) -> Response:
    """Show the page, or only the plot and its form if the page's script sent the request."""
    state = state_of(request)
    directory = state.run(request)
    lines = sample_queries.trial_lines(directory)
    context: dict[str, Any] = {"run": directory.name, "lines": lines, "kinds": _KINDS, "views": plots.VIEWS}
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
    entities = [entity[:300] for entity in query.getlist("entity") if entity][:_MAX_ENTITIES]
    within = (bands[phase].first, bands[phase].last) if phase is not None else (None, None)
    series = sample_queries.series(
        line.directory,
        choice,
        entities,
        within[0] if first is None else begin + first,
        within[1] if last is None else begin + last,
    )
    view = _view(query.get("view", ""), len(series.rows))
    spec = plots.specification(choice, series, bands, begin, view) if series.points else None
    return state.page(
        "explore_part.html.j2" if request.headers.get("hx-target") == "explorer" else "explore.html.j2",
        **context,
        line=line,
        choices=_grouped(choices),
        choice=choice,
        bands=bands,
        phase=phase,
        view=view,
        entities=_entities(result, choice, series.rows),
        chosen=entities,
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
    """Return the index of the requested phase, or None for the entire trial."""
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 6 or not 1 <= int(text) <= len(bands):
        raise UsageError(f"the trial has {len(bands)} phases; there is no phase '{clean(text)[:20]}'")
    return int(text) - 1


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


def _view(text: str, count: int) -> plots.View:
    """Return the requested view. A single series has only one."""
    if text and text not in plots.VIEWS:
        raise UsageError(f"view is one of {', '.join(plots.VIEWS)}, not '{clean(text)[:20]}'")
    requested: plots.View = next((view for view in plots.VIEWS if view == text), "each")
    return requested if count > 1 else "each"


def _grouped(choices: Sequence[MetricChoice]) -> dict[str, list[MetricChoice]]:
    groups: dict[str, list[MetricChoice]] = {}
    for kind in (*_KINDS, *sorted({choice.kind for choice in choices} - set(_KINDS))):
        group = sorted((choice for choice in choices if choice.kind == kind), key=lambda choice: choice.name)
        if group:
            groups[kind] = group
    return groups


def _entities(result: TrialResult, choice: MetricChoice, rows: Sequence[sample_queries.EntitySummary]) -> list[str]:
    """Return all entities of the kind: those with metrics in the trial's result, and those of the plot."""
    named = {entity for phase in result.phases for entity in phase.metrics if entity.partition(":")[0] == choice.kind}
    return sorted(named | {row.entity for row in rows})


def _number(value: float) -> str:
    return number(value, abs(value) / 1000 or None)


def _embedded(spec: dict[str, Any]) -> str:
    """Return JSON that can be embedded in a page: no character in it can end the script element."""
    text = json.dumps(spec, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
