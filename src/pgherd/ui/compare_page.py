"""Page that compares runs, with the statistics of ``pgherd gate`` and ``pgherd report RUN RUN``."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.report import gate_metrics
from pgherd.report.formatting import MISSING, finding_value
from pgherd.report.gate import NOTE, Comparison, Gate, change_text, gate, remedy, result_text
from pgherd.report.gate_metrics import GateRun, MetricLimit
from pgherd.report.overlay import content
from pgherd.ui.app_state import state_of
from pgherd.ui.shown_runs import LoadedRun

MAX_RUNS = 6
_MAX_CHOICES = 200
"""Most runs to choose from, without older ones that are already chosen."""
_METRICS = ("throughput", "cpu_per_tx", "p95")
_REGRESSIONS = (1, 2, 5, 10)
"""Choices for the allowed regression, in percent."""


@dataclass(frozen=True)
class GateRow:
    """Run compared with the baseline: the gate, or the reason why there is none."""

    run: str
    gate: Gate | None
    reason: str
    rows: tuple[tuple[str, ...], ...]


def compare(request: Request) -> Response:
    """Compare runs with the one named as the baseline, by default the oldest."""
    state = state_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(names) > MAX_RUNS:
        raise UsageError(f"{len(names)} runs are too many to compare; choose at most {MAX_RUNS}")
    allowed = _allowed(request.query_params.get("allowed", ""))
    runs = []
    for name in names:
        directory = state.index.directory(name)
        if directory is None:
            raise HTTPException(404, "One of these runs does not exist.")
        runs.append(state.cache.read(directory))
    if len(runs) < 2:
        known = [run for run in state.index.runs() if run.grade or run.run in names]
        shown = [run for place, run in enumerate(known) if place < _MAX_CHOICES or run.run in names]
        return state.page("compare_choose.html.j2", chosen=names, runs=shown, count=len(known), maximum=MAX_RUNS)
    runs.sort(key=lambda run: (run.record.started, run.name))
    named = request.query_params.get("baseline", "")
    baseline = next((run for run in runs if run.name == named), runs[0])
    others = [run for run in runs if run is not baseline]
    return state.page(
        "compare.html.j2",
        **_overlay((baseline, *others)),
        names=[run.name for run in runs],
        baseline=baseline.name,
        gates=[_gate_row(baseline, other, allowed / 100) for other in others],
        allowed=allowed,
        regressions=_REGRESSIONS,
        note=NOTE,
        picture=picture,
    )


@lru_cache(maxsize=16)
def _overlay(runs: tuple[LoadedRun, ...]) -> dict[str, Any]:
    """Return the overlay's figures and tables. Rendering takes a second, so the latest results are cached."""
    return content([(run.name, run.record, run.results) for run in runs])


def picture(svg: str) -> str:
    """Return a figure as a data URL. As an image it is one object for a screen reader, and its content cannot run scripts."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _allowed(text: str) -> int:
    if not text:
        return round(gate_metrics.MAX_REGRESSION * 100)
    if text not in map(str, _REGRESSIONS):
        raise UsageError(f"the allowed regression is one of {', '.join(map(str, _REGRESSIONS))} %, not '{clean(text)[:20]}'")
    return int(text)


def _gate_row(baseline: LoadedRun, other: LoadedRun, allowed: float) -> GateRow:
    """Compare a run with the baseline by all metrics of this page that both have."""
    old, new = (GateRun(run.name, run.record, run.results) for run in (baseline, other))
    try:
        result = gate(old, new, [MetricLimit(name, allowed) for name in _common(old, new)])
    except UsageError as error:
        text = clean(error)
        return GateRow(other.name, None, f"{text[:1].upper()}{text[1:]}.", ())
    return GateRow(other.name, result, "", tuple(map(_row, result.comparisons)))


def _common(old: GateRun, new: GateRun) -> list[str]:
    """Return the study's default metric if it is not throughput, else the metrics of this page that both runs have, or throughput."""
    default = gate_metrics.default_metric(new.record)
    if default != "throughput":
        return [default]
    names = []
    for name in _METRICS:
        try:
            gate_metrics.compared(old, new, name)
        except UsageError:
            continue
        names.append(name)
    return names or [default]


def _row(comparison: Comparison) -> tuple[str, ...]:
    """Return metric, point, both values, change, limit, result, advice for an inconclusive result, and kind of result."""
    unit = next((finding.unit for finding in (comparison.new, comparison.old) if finding is not None and finding.unit), "")
    label = f"{comparison.label}, {unit}" if unit and not comparison.label.endswith(unit) else comparison.label
    advice = remedy(comparison) if comparison.result == "inconclusive" else ""
    kind = {"regression": "fail", "improvement": "pass", "pass": "pass"}.get(comparison.result, "unknown")
    values = (_value(comparison.old), _value(comparison.new), change_text(comparison.change), comparison.limit)
    return (label, comparison.point, *values, result_text(comparison), advice, kind)


def _value(finding: Finding | None) -> str:
    return MISSING if finding is None else finding_value(finding)
