"""The sample explorer: any metric of any container, server, disk or process, of a trial and a phase, over time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.report.formatting import clean, number
from pgherd.ui import plots, sample_queries, trials
from pgherd.ui.app_state import site_of
from pgherd.ui.plots import PhaseBand
from pgherd.ui.sample_queries import MetricChoice
from pgherd.ui.trials import TrialLine

_FAVOURITES = ("container/cgroup_cpu/cpu.usage", "container/processes/cpu.usage", "host/cpu/cpu.user")
_KINDS = {
    "container": "containers",
    "server": "servers",
    "host": "the host",
    "disk": "disks",
    "driver": "load generators",
    "backend": "sampling backends",
    "pgherd": "pgherd itself",
    "budget": "all containers together",
    "platform": "parts of the platform",
}
_MOST_ENTITIES = 200


def explore(request: Request) -> Response:
    """The page; for a request of its own script only the plot and what can be chosen."""
    site = site_of(request)
    directory = site.run(request)
    lines = trials.trial_lines(directory)
    context: dict[str, Any] = {"run": directory.name, "lines": lines, "kinds": _KINDS, "views": plots.VIEWS}
    if not lines:
        return site.page("explore.html.j2", **context, empty="This run has no finished trial yet, so there are no samples to show.")
    asked = request.query_params
    line = trials.trial_line(directory, asked["trial"]) if asked.get("trial") else _largest(lines)
    offered = sample_queries.choices(line.directory)
    if not offered and not any(sample_queries.files(one.directory) for one in lines):
        return site.page("explore.html.j2", **{**context, "lines": ()}, empty="No trial of this run has samples: nothing was watched.")
    if not offered:
        return site.page("explore.html.j2", **context, line=line, empty=f"Trial {line.id} has no samples: nothing was watched in it.")
    choice = _choice(offered, asked.get("metric", ""))
    result = trials.read_trial(line)
    bands = [PhaseBand(clean(phase.phase), phase.start, phase.end) for phase in result.phases]
    phase = _phase(bands, asked.get("phase", ""))
    begin = bands[0].first if bands else result.started
    first, last = _time(asked.get("from", ""), "from"), _time(asked.get("to", ""), "to")
    if first is not None and last is not None and last <= first:
        raise UsageError(f"the time shown ends at {last:g} s, which is not after {first:g} s where it begins")
    entities = [entity[:300] for entity in asked.getlist("entity") if entity][:_MOST_ENTITIES]
    within = (bands[phase].first, bands[phase].last) if phase is not None else (None, None)
    found = sample_queries.series(
        line.directory,
        choice,
        entities,
        within[0] if first is None else begin + first,
        within[1] if last is None else begin + last,
    )
    view = _view(asked.get("view", ""), len(found.rows))
    spec = plots.specification(choice, found, bands, begin, view) if found.points else None
    return site.page(
        "explore_part.html.j2" if request.headers.get("hx-target") == "explorer" else "explore.html.j2",
        **context,
        line=line,
        offered=_grouped(offered),
        choice=choice,
        bands=bands,
        phase=phase,
        view=view,
        entities=_entities(result, choice, found.rows),
        chosen=entities,
        found=found,
        first=first,
        last=last,
        rows=[(row, [_number(value) for value in (row.mean, row.least, row.median, row.most)]) for row in found.rows],
        spec=None if spec is None else _embedded(spec),
        empty="",
    )


def _largest(lines: Sequence[TrialLine]) -> TrialLine:
    """The trial to begin with: of the largest point that was watched the last one."""
    watched = [line for line in lines if sample_queries.files(line.directory)]
    return max(watched or lines, key=lambda line: (line.size, line.id))


def _choice(offered: Sequence[MetricChoice], key: str) -> MetricChoice:
    by_key = {choice.key: choice for choice in offered}
    if key and key not in by_key:
        # Another trial may not have what was looked at in the one before: then what is most like it is shown.
        kind, _, rest = key.partition("/")
        name = rest.rpartition("/")[2]
        like = [one for one in offered if one.name == name and one.kind == kind] or [one for one in offered if one.name == name]
        if not like:
            raise UsageError(f"this trial has no samples of '{clean(key)[:80]}'; choose another metric")
        return like[0]
    return by_key[key] if key else next((by_key[one] for one in _FAVOURITES if one in by_key), offered[0])


def _phase(bands: Sequence[PhaseBand], asked: str) -> int | None:
    """The number of the phase that is asked for, from 0; None: the whole trial."""
    if not asked:
        return None
    if not asked.isascii() or not asked.isdecimal() or len(asked) > 6 or not 1 <= int(asked) <= len(bands):
        raise UsageError(f"the trial has {len(bands)} phases, and none of the number '{clean(asked)[:20]}'")
    return int(asked) - 1


def _time(text: str, what: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e9 or len(text) > 24:
        raise UsageError(f"'{what}' is a number of seconds, not '{clean(text)[:24]}'")
    return value


def _view(text: str, count: int) -> plots.View:
    """How several series are drawn; of one there is nothing but itself."""
    if text and text not in plots.VIEWS:
        raise UsageError(f"'{clean(text)[:20]}' is no way to draw them; there are {', '.join(plots.VIEWS)}")
    found: plots.View = next((view for view in plots.VIEWS if view == text), "each")
    return found if count > 1 else "each"


def _grouped(offered: Sequence[MetricChoice]) -> dict[str, list[MetricChoice]]:
    groups: dict[str, list[MetricChoice]] = {}
    for kind in (*_KINDS, *sorted({choice.kind for choice in offered} - set(_KINDS))):
        inside = sorted((choice for choice in offered if choice.kind == kind), key=lambda choice: choice.name)
        if inside:
            groups[kind] = inside
    return groups


def _entities(result: TrialResult, choice: MetricChoice, shown: Sequence[sample_queries.EntitySummary]) -> list[str]:
    """All entities of the kind: those that were sampled, as far as the trial tells, and those that are shown."""
    named = {entity for phase in result.phases for entity in phase.metrics if entity.partition(":")[0] == choice.kind}
    return sorted(named | {row.entity for row in shown})


def _number(value: float) -> str:
    return number(value, abs(value) / 1000 or None)


def _embedded(spec: dict[str, Any]) -> str:
    """JSON that may stand in a page: nothing in it ends its element."""
    text = json.dumps(spec, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
