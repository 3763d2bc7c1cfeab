"""Two runs and more side by side, by the same statistics as ``pgherd gate`` and ``pgherd report RUN RUN``."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.errors import UsageError
from pgherd.model.finding import Finding
from pgherd.report import gate_metrics
from pgherd.report.formatting import MISSING, clean, half_width, number
from pgherd.report.gate import NOTE, Comparison, Gate, change_text, gate, remedy, verdict_text
from pgherd.report.gate_metrics import MetricLimit, Run
from pgherd.report.overlay import content
from pgherd.ui.reading import Whole
from pgherd.ui.site import site_of

MOST = 6
_METRICS = ("throughput", "cpu_per_tx", "p95")
_ALLOWED = (1, 2, 5, 10)
"""Per cent that may be lost, to choose from."""


@dataclass(frozen=True)
class Held:
    """A run held against the baseline: the gate, or why there is none."""

    run: str
    gate: Gate | None
    why: str
    rows: tuple[tuple[str, ...], ...]


def compare(request: Request) -> Response:
    """The runs that the address names, held against the oldest of them or the one that is named as the baseline."""
    site = site_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(names) > MOST:
        raise UsageError(f"{len(names)} runs are more than a reader can hold against each other; choose at most {MOST}")
    allowed = _allowed(request.query_params.get("allowed", ""))
    found = []
    for name in names:
        directory = site.index.directory(name)
        if directory is None:
            raise HTTPException(404, "One of these runs is not here.")
        found.append(site.reader.read(directory))
    if len(found) < 2:
        return site.page("compare_choose.html.j2", chosen=names, runs=site.index.runs()[:200], most=MOST)
    found.sort(key=lambda whole: (whole.record.started, whole.name))
    named = request.query_params.get("baseline", "")
    baseline = next((whole for whole in found if whole.name == named), found[0])
    others = [whole for whole in found if whole is not baseline]
    return site.page(
        "compare.html.j2",
        **_drawn((baseline, *others)),
        names=[whole.name for whole in found],
        baseline=baseline.name,
        held=[_held(baseline, other, allowed / 100) for other in others],
        allowed=allowed,
        allowances=_ALLOWED,
        note=NOTE,
        picture=picture,
    )


@lru_cache(maxsize=16)
def _drawn(runs: tuple[Whole, ...]) -> dict[str, Any]:
    """The overlay's figures and tables; drawing takes a second, so the last few are kept."""
    return content([(whole.name, whole.record, whole.results) for whole in runs])


def picture(svg: str) -> str:
    """A figure as an address of itself: as a picture it is one thing for a screen reader, and nothing in it can run."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _allowed(text: str) -> int:
    if not text:
        return round(gate_metrics.ALLOWED * 100)
    if text not in map(str, _ALLOWED):
        raise UsageError(f"what may be lost is one of {', '.join(map(str, _ALLOWED))} per cent, not '{clean(text)[:20]}'")
    return int(text)


def _held(baseline: Whole, other: Whole, allowed: float) -> Held:
    """One run against the baseline, by every metric of ours that both have."""
    old, new = (Run(whole.name, whole.record, whole.results) for whole in (baseline, other))
    try:
        found = gate(old, new, [MetricLimit(name, allowed) for name in _common(old, new)])
    except UsageError as error:
        text = clean(error)
        return Held(other.name, None, f"{text[:1].upper()}{text[1:]}.", ())
    return Held(other.name, found, "", tuple(map(_row, found.comparisons)))


def _common(old: Run, new: Run) -> list[str]:
    """The metrics that both runs have; the study's own where none of them is there."""
    names = []
    for name in _METRICS:
        try:
            gate_metrics.compared(old, new, name)
        except UsageError:
            continue
        names.append(name)
    return names or [gate_metrics.default_metric(new.record)]


def _row(one: Comparison) -> tuple[str, ...]:
    """Metric, point, both values, change, what is allowed, verdict, what would make it sure, kind of verdict."""
    unit = next((side.unit for side in (one.new, one.old) if side is not None and side.unit), "")
    label = f"{one.label}, {unit}" if unit and not one.label.endswith(unit) else one.label
    more = remedy(one) if one.verdict == "cannot tell" else ""
    kind = {"worse": "fail", "better": "pass", "within": "pass"}.get(one.verdict, "unknown")
    return (label, one.point, _value(one.old), _value(one.new), change_text(one.change), one.limit, verdict_text(one), more, kind)


def _value(side: Finding | None) -> str:
    return MISSING if side is None else number(side.value, half_width(side) or None)
