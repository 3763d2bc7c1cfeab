"""Database size by scale factor: size = base_size + size_per_scale × scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.intervals import Estimate, student
from pgherd.analysis.scaling_model import Array
from pgherd.model.errors import UsageError

FAR_PREDICTION_FACTOR = 100.0
"""Factor beyond the largest measured scale from which a prediction has a note."""


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
