"""Database size by scale factor: size = base_size + size_per_scale × scale.

The line goes through the measured sizes and predicts others. Failed trials give warnings, not errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgherd.analysis.intervals import Estimate, student
from pgherd.analysis.scaling_model import Array
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.database_size.options import DatabaseSizeOptions
from pgherd.study.findings import as_finding

MB = 2**20
"""PostgreSQL's megabyte, the unit of all sizes."""

MAX_RELATIVE_ERROR = 0.01
"""Above this relative error of the fit (root mean square), the sizes do not form a line. PostgreSQL 15 to 18 stay below 0.001."""

SOURCE = "E10, Gary Little, n0derunner.com"
PUBLISHED = {1: "23 MB", 10: "157 MB", 100: "1.7 GB", 1000: "15 GB", 2500: "37 GB", 5000: "74 GB", 10000: "147 GB"}
"""Scale → size that E10 published (SOURCE). The article calls it the working set. Its units are PostgreSQL's."""
_MB_PER_UNIT = {"MB": 1.0, "GB": 1024.0}

_PARTS = {"tables": "tables with their TOAST, free space and visibility maps", "indexes": "indexes", "other": "catalogs"}

Row = dict[str, Finding | str | int | float | None]

FAR_PREDICTION_FACTOR = 100.0
"""Factor beyond the largest measured scale from which a prediction has a note."""


def analyse(options: DatabaseSizeOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the line (``base_size`` and ``size_per_scale``), a prediction for each requested scale, and the table of all sizes."""
    measured = {
        int(result.trial.point["scale"]): result.probe for result in results if result.error is None and "database_bytes" in result.probe
    }
    warnings = [f"Scale {result.trial.point['scale']} could not be measured: {result.error}" for result in results if result.error]
    tried = {result.trial.point["scale"] for result in results}
    if left := [str(scale) for scale in options.scales if scale not in tried]:
        warnings.append(f"Not measured, because the run ended before: scale {', '.join(left)}")
    sizes = {scale: probe["database_bytes"] for scale, probe in sorted(measured.items())}
    model = fit_sizes(list(sizes), list(sizes.values())) if len(sizes) >= 2 else None
    predicted = {} if model is None else {scale: model.predict(scale) for scale in options.predict}
    findings = {} if model is None else _line_findings(model)
    findings |= {
        f"predicted_size.{scale}": as_finding(estimate.scaled(1 / MB), "MB", **_published_fields(scale))
        for scale, estimate in predicted.items()
    }
    warnings += _warnings(model, predicted)
    return Analysis(
        answer=_answer(options, sizes, model, predicted),
        grade=_grade(options, sizes, model),
        findings=findings,
        tables={"sizes": _rows(measured, findings)} if measured else {},
        warnings=warnings,
        figures={"line": _figure_data(options, model)},
    )


def published_megabytes(scale: int) -> float | None:
    """Return E10's size of a scale in MB, or None."""
    if scale not in PUBLISHED:
        return None
    number, unit = PUBLISHED[scale].split()
    return float(number) * _MB_PER_UNIT[unit]


def _published_fields(scale: int) -> dict[str, Any]:
    return {"experiment": "E10", "published": PUBLISHED[scale]} if scale in PUBLISHED else {}


def _line_findings(model: SizeModel) -> dict[str, Finding]:
    method = f"least squares over {model.n} scales, weighted by 1/size²"
    no_interval = "no interval: see those of the predicted sizes"
    return {
        "size_per_scale": Finding(
            value=model.size_per_scale / MB, unit="MB", n=model.n, method=method, note=f"per unit of scale; {no_interval}"
        ),
        "base_size": Finding(
            value=model.base_size / MB, unit="MB", n=model.n, method=method, note=f"catalogs and empty tables; {no_interval}"
        ),
        "relative_error": Finding(
            value=100 * model.relative_error, unit="%", n=model.n, method="root mean square of (measured − fitted) / fitted"
        ),
    }


def _rows(measured: Mapping[int, Mapping[str, float]], findings: Mapping[str, Finding]) -> list[Row]:
    """Return all scales in ascending order. A measured size has precedence over a predicted one."""
    predicted = {
        int(name.removeprefix("predicted_size.")): finding for name, finding in findings.items() if name.startswith("predicted_size.")
    }
    rows: list[Row] = []
    for scale in sorted({*measured, *predicted}):
        probe = measured.get(scale, {})
        row: Row = {"scale": scale, "source": "measured" if probe else "predicted"}
        row["size"] = _size_finding(probe["database_bytes"], "pg_database_size", _published_fields(scale)) if probe else predicted[scale]
        for part, description in _PARTS.items():
            row[part] = _size_finding(probe[f"{part}_bytes"], description, {}) if f"{part}_bytes" in probe else None
        row["published"] = PUBLISHED.get(scale)
        rows.append(row)
    return rows


def _size_finding(size: float, method: str, published: Mapping[str, Any]) -> Finding:
    note = "no interval: a newly loaded database always has this size"
    return Finding(value=size / MB, unit="MB", method=method, note=note, **published)


def _warnings(model: SizeModel | None, predicted: Mapping[int, Estimate]) -> list[str]:
    if model is None:
        return []
    warnings = []
    if model.relative_error > MAX_RELATIVE_ERROR:
        warnings.append(
            f"Sizes do not form a line: its relative error is {model.relative_error:.1%}. Predictions far from measured scales are unsafe"
        )
    if model.n < 4:
        warnings.append(f"Predictions have no interval: {model.n} scales were measured, and an interval needs at least 4")
    if distant := [str(scale) for scale, estimate in predicted.items() if "times beyond" in estimate.note]:
        warnings.append(
            f"Predictions for scale {', '.join(distant)} are uncertain: over 100 times the largest measured ({model.largest:g})"
        )
    warnings.append("Sizes are those of a newly loaded database; writes make it grow, by dead rows and fuller indexes")
    return warnings


def _grade(options: DatabaseSizeOptions, sizes: Mapping[int, float], model: SizeModel | None) -> Grade:
    """Return the grade. A: every scale was measured, at least 4, and they form a line. C: there is no line."""
    if model is None:
        return "C"
    return "A" if len(sizes) == len(options.scales) and model.n >= 4 and model.relative_error <= MAX_RELATIVE_ERROR else "B"


def _answer(options: DatabaseSizeOptions, sizes: Mapping[int, float], model: SizeModel | None, predicted: Mapping[int, Estimate]) -> str:
    if model is None:
        if not sizes:
            return "No result: no size was measured."
        scale, size = next(iter(sizes.items()))
        return f"A database of scale {scale} takes {format_bytes(size)} on PostgreSQL {options.pg_version}; one size gives no line."
    text = f"On PostgreSQL {options.pg_version} a pgbench database takes {format_bytes(model.size_per_scale)} per unit of scale plus "
    text += format_bytes(model.base_size)
    # The answer names the best known of E10's scales.
    chosen = 1000 if 1000 in predicted else max(predicted, default=None)
    if chosen is not None and chosen not in sizes:
        estimate = predicted[chosen]
        text += f": scale {chosen} would take {format_bytes(estimate.value)}"
        if estimate.low is not None and estimate.high is not None:
            low, high = format_bytes(estimate.low), format_bytes(estimate.high)
            text += f" ({low} to {high})" if low != high else ""
    return text + "."


def _figure_data(options: DatabaseSizeOptions, model: SizeModel | None) -> dict[str, Any]:
    """Return the fitted line in MB and E10's sizes, which the figure needs in addition to the table."""
    published = [{"scale": scale, "size": published_megabytes(scale), "source": SOURCE} for scale in PUBLISHED]
    if model is None:
        return {"points": [], "published": published}
    scales = sorted({*options.scales, *options.predict})
    return {"points": [{"scale": scale, "size": model.predict(scale).value / MB} for scale in scales], "published": published}


@dataclass(frozen=True)
class SizeModel:
    """Fitted line. ``base_size`` is in bytes, ``size_per_scale`` in bytes per unit of scale.

    ``relative_error`` is the root mean square of (measured − fitted) / fitted. ``covariance`` is that of (base_size, size_per_scale),
    None with too few sizes.
    """

    base_size: float
    size_per_scale: float
    n: int
    smallest: float
    largest: float
    relative_error: float
    variance: float | None
    covariance: tuple[tuple[float, float], tuple[float, float]] | None

    def predict(self, scale: float, confidence: float = 0.95) -> Estimate:
        """Predict the size in bytes of one new database of this scale, with a prediction interval.

        Deviations are assumed proportional to the size. The interval covers only the spread around the line. It requires at
        least four measured sizes.
        """
        value = self.base_size + self.size_per_scale * scale
        notes = []
        if scale > FAR_PREDICTION_FACTOR * self.largest:
            notes.append(f"scale {scale:g} is {scale / self.largest:.0f} times beyond the largest measured ({self.largest:g})")
        if self.covariance is None or self.variance is None:
            notes.insert(0, f"no interval: {self.n} measured sizes; at least four are needed")
            return Estimate(value, None, None, None, self.n, "linear in scale", "; ".join(notes))
        row = np.array([1.0, scale])
        variance = self.variance * value**2 + float(row @ np.array(self.covariance) @ row)
        half = student(confidence, self.n - 2) * math.sqrt(variance)
        return Estimate(
            value, max(value - half, 0.0), value + half, confidence, self.n, "linear in scale, prediction interval", "; ".join(notes)
        )


def fit_sizes(scales: Sequence[float], sizes: Sequence[float]) -> SizeModel:
    """Fit the line by least squares weighted by 1/size², so that small and large databases have equal weight.

    The weights are those of the fitted sizes, found by iterative reweighting. ``base_size`` (catalogs, and pages of empty tables)
    is at least zero.

    Raises:
        UsageError: fewer than two distinct scales, or values that are not above zero.
    """
    x, y = np.asarray(scales, dtype=float), np.asarray(sizes, dtype=float)
    if x.shape != y.shape or not np.all(np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)):
        raise UsageError(f"{len(scales)} scales and {len(sizes)} sizes: give one size above zero for each scale above zero")
    if len(np.unique(x)) < 2:
        raise UsageError(f"sizes at {len(np.unique(x))} distinct scale do not determine a line; measure at least two")
    design = np.column_stack([np.ones_like(x), x])
    weights, solution = 1 / y, np.zeros(2)
    for _ in range(5):
        solution = _non_negative(design, y, weights)
        weights = 1 / (design @ solution)
    fitted = design @ solution
    relative = (y - fitted) / fitted
    variance = covariance = None
    if len(x) >= 4:
        variance = float(relative @ relative) / (len(x) - 2)
        inverse = np.linalg.inv((design * weights[:, None]).T @ (design * weights[:, None])) * variance
        covariance = ((float(inverse[0, 0]), float(inverse[0, 1])), (float(inverse[1, 0]), float(inverse[1, 1])))
    return SizeModel(
        base_size=float(solution[0]),
        size_per_scale=float(solution[1]),
        n=len(x),
        smallest=float(x.min()),
        largest=float(x.max()),
        relative_error=float(np.sqrt(np.mean(relative**2))),
        variance=variance,
        covariance=covariance,
    )


def _non_negative(design: Array, y: Array, weights: Array) -> Array:
    from scipy.optimize import nnls

    units = np.array([float(y.min()), float((y / design[:, 1]).max())])  # scale both columns to about 1
    return np.asarray(nnls(design * units * weights[:, None], y * weights)[0] * units, dtype=float)
