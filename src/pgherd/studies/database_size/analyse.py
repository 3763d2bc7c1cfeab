"""From measured sizes to a line, and from the line to sizes that were not measured. Pure; never raises for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.sizes import SizeModel, fit_sizes
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.database_size import published
from pgherd.studies.database_size.options import SizesOptions
from pgherd.study.findings import as_finding

MB = 2**20
"""PostgreSQL's megabyte; all sizes are given in it."""

STRAIGHT = 0.01
"""Above this relative error of the fit (root mean square) sizes are not taken to lie on a line. On PostgreSQL 15 to 18
it is below 0.001."""

_PARTS = {"tables": "tables with their TOAST, free space and visibility maps", "indexes": "indexes", "rest": "catalogues"}

Row = dict[str, Finding | str | int | float | None]


def analyse(options: SizesOptions, results: Sequence[TrialResult]) -> Analysis:
    """The line (``fixed`` and ``per_scale``), a prediction for each scale asked for, and the table of all sizes."""
    measured = {
        int(result.trial.point["scale"]): result.probe for result in results if result.error is None and "database_bytes" in result.probe
    }
    warnings = [f"Scale {result.trial.point['scale']} could not be measured: {result.error}" for result in results if result.error]
    sizes = {scale: probe["database_bytes"] for scale, probe in sorted(measured.items())}
    model = fit_sizes(list(sizes), list(sizes.values())) if len(sizes) >= 2 else None
    predicted = {} if model is None else {scale: model.predict(scale) for scale in options.predict}
    findings = {} if model is None else _line(model)
    findings |= {f"size_{scale}": as_finding(estimate.scaled(1 / MB), "MB", **_beside(scale)) for scale, estimate in predicted.items()}
    warnings += _warnings(model, predicted)
    return Analysis(
        answer=_answer(options, sizes, model, predicted),
        grade=_grade(options, sizes, model),
        findings=findings,
        tables={"sizes": _rows(measured, findings)} if measured else {},
        warnings=warnings,
        figures={"line": _figure(options, model)},
    )


def _line(model: SizeModel) -> dict[str, Finding]:
    how = f"least squares over {model.n} scales, weighted by 1/size²"
    none = "no interval: see those of the predicted sizes"
    return {
        "per_scale": Finding(value=model.per_scale / MB, unit="MB", n=model.n, method=how, note=f"per unit of scale; {none}"),
        "fixed": Finding(value=model.fixed / MB, unit="MB", n=model.n, method=how, note=f"catalogues and empty tables; {none}"),
        "relative_error": Finding(
            value=100 * model.relative_error, unit="%", n=model.n, method="root mean square of (measured − fitted) / fitted"
        ),
    }


def _beside(scale: int) -> dict[str, Any]:
    return {"experiment": "E10", "published": published.PUBLISHED[scale]} if scale in published.PUBLISHED else {}


def _rows(measured: dict[int, dict[str, float]], findings: dict[str, Finding]) -> list[Row]:
    """All scales, smallest first: a measured size stands for itself, even where it was to be predicted."""
    predicted = {int(name.removeprefix("size_")): finding for name, finding in findings.items() if name.startswith("size_")}
    rows: list[Row] = []
    for scale in sorted({*measured, *predicted}):
        probe = measured.get(scale, {})
        row: Row = {"scale": scale, "how": "measured" if probe else "predicted"}
        row["size"] = _measured(probe["database_bytes"], "pg_database_size", _beside(scale)) if probe else predicted[scale]
        for part, what in _PARTS.items():
            row[part] = _measured(probe[f"{part}_bytes"], what, {}) if f"{part}_bytes" in probe else None
        row["published"] = published.PUBLISHED.get(scale)
        rows.append(row)
    return rows


def _measured(size: float, how: str, beside: dict[str, Any]) -> Finding:
    return Finding(value=size / MB, unit="MB", method=how, note="no interval: a freshly loaded database always has this size", **beside)


def _warnings(model: SizeModel | None, predicted: dict[int, Estimate]) -> list[str]:
    if model is None:
        return []
    found = []
    if model.relative_error > STRAIGHT:
        found.append(
            f"Sizes do not lie on a line: its relative error is {model.relative_error:.1%}; trust no prediction far from a measured scale"
        )
    if model.n < 4:
        found.append(f"Predictions have no interval: {model.n} scales were measured, and a line needs four or more to show its spread")
    if far := [str(scale) for scale, estimate in predicted.items() if "times beyond" in estimate.note]:
        found.append(f"Scale {', '.join(far)} lies more than 100 times beyond the largest that was measured ({model.largest:g})")
    found.append("These are sizes of a freshly loaded database; one that is written to grows, with its dead rows and fuller indexes")
    return found


def _grade(options: SizesOptions, sizes: dict[int, float], model: SizeModel | None) -> Grade:
    """A: every scale was measured, there are four or more, and they lie on a line. C: there is no line."""
    if model is None:
        return "C"
    return "A" if len(sizes) == len(options.scales) and model.n >= 4 and model.relative_error <= STRAIGHT else "B"


def _answer(options: SizesOptions, sizes: dict[int, float], model: SizeModel | None, predicted: dict[int, Estimate]) -> str:
    if model is None:
        if not sizes:
            return "Nothing can be said: no size was measured."
        scale, size = next(iter(sizes.items()))
        return f"A database of scale {scale} takes {format_bytes(size)} on PostgreSQL {options.pg_version}; one size gives no line."
    text = f"On PostgreSQL {options.pg_version} a pgbench database takes {format_bytes(model.per_scale)} per unit of scale and "
    text += f"{format_bytes(model.fixed)} besides"
    # Of E10's scales, the one that readers know best stands in the sentence.
    chosen = 1000 if 1000 in predicted else max(predicted, default=None)
    if chosen is not None and chosen not in sizes:
        estimate = predicted[chosen]
        text += f": scale {chosen} would take {format_bytes(estimate.value)}"
        if estimate.low is not None and estimate.high is not None:
            low, high = format_bytes(estimate.low), format_bytes(estimate.high)
            text += f" ({low} to {high})" if low != high else ""
    return text + "."


def _figure(options: SizesOptions, model: SizeModel | None) -> dict[str, Any]:
    """What the figure needs beyond the table: the fitted line in MB, and E10's sizes."""
    beside = [{"scale": scale, "size": published.published_megabytes(scale), "source": published.SOURCE} for scale in published.PUBLISHED]
    if model is None:
        return {"points": [], "published": beside}
    scales = sorted({*options.scales, *options.predict})
    return {"points": [{"scale": scale, "size": model.predict(scale).value / MB} for scale in scales], "published": beside}
