"""What all scaling models share: a fit, its standard errors and its warnings.

A scaling model gives the throughput X of N equal loads (databases, clients, processors). Fitting is least squares over
single observations; several observations at one load are repeats. Weights are 'relative' (each residual divided by the
measured throughput, so that every load counts alike) or 'equal' (plain residuals, as the CRAN package ``usl`` does).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pgherd.model.errors import UsageError

Array = NDArray[np.float64]
Weights = Literal["relative", "equal"]

_CORRELATED = 0.95


class ScalingModel(Protocol):
    """One family of curves. Parameter arrays end in an axis of length ``len(parameters)``."""

    name: str
    title: str
    parameters: tuple[str, ...]

    def curve(self, parameters: Array, loads: Array) -> Array:
        """Throughput at the loads."""
        ...

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        """Derivative of the curve by each parameter, shape (loads, parameters)."""
        ...

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Least-squares parameters for each row of ``throughputs`` (rows, loads); residuals are divided by ``scale``,
        of the same shape."""
        ...

    def peak(self, parameters: Array) -> float | None:
        """The load at which the curve is highest; None: it has no highest point."""
        ...

    def knee(self, parameters: Array) -> float | None:
        """The load at which the slope changes; None: it changes nowhere, or everywhere."""
        ...

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        """What this model must say of itself: parameters at their bounds, a knee that the data cannot place."""
        ...


@dataclass(frozen=True)
class Fit:
    """A scaling model fitted to (load, throughput) observations.

    ``rss`` is the weighted residual sum of squares; ``relative_error`` the root mean square of (measured − fitted) /
    measured; ``aicc`` None where the observations are too few for it. ``peak`` is the load of the model's highest
    point, wherever it lies; ``peak_in_data`` says whether it lies within the measured loads (else it is not to be
    claimed). ``intervals`` holds (low, high) by parameter, and of 'knee' and 'peak', once they are bootstrapped.
    """

    model: ScalingModel
    parameters: dict[str, float]
    standard_errors: dict[str, float | None]
    correlations: dict[tuple[str, str], float]
    weights: Weights
    n: int
    distinct: int
    largest: float
    rss: float
    aicc: float | None
    relative_error: float
    knee: float | None
    peak: float | None
    warnings: tuple[str, ...] = ()
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def vector(self) -> Array:
        """The parameters in the model's own order."""
        return np.array([self.parameters[name] for name in self.model.parameters])

    @property
    def peak_in_data(self) -> bool:
        """Whether the model has a peak, and that within the measured loads."""
        return self.peak is not None and self.peak <= self.largest

    def predict(self, loads: Sequence[float]) -> list[float]:
        """Throughput that the fitted curve gives at the loads."""
        curve = self.model.curve(self.vector, np.asarray(loads, dtype=float))
        return [float(x) for x in curve]


def observations(loads: Sequence[float], throughputs: Sequence[float]) -> tuple[Array, Array]:
    """Check and sort (load, throughput) observations.

    Raises:
        UsageError: the two differ in length, or a value is not finite and above zero.
    """
    if len(loads) != len(throughputs):
        raise UsageError(f"{len(loads)} loads but {len(throughputs)} throughputs; give one throughput for each load")
    x, y = np.asarray(loads, dtype=float), np.asarray(throughputs, dtype=float)
    for name, values in (("load", x), ("throughput", y)):
        bad = values[~(np.isfinite(values) & (values > 0))]
        if bad.size:
            raise UsageError(f"a {name} of {bad[0]:g} cannot be fitted; loads and throughputs must be finite and above zero")
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def aicc(rss: float, n: int, parameters: int) -> float | None:
    """Akaike's information criterion for least squares with the small-sample correction (Hurvich and Tsai 1989).

    n ln(RSS/n) + 2K + 2K(K+1)/(n−K−1), where K counts the parameters and the residual variance. None where n ≤ K + 1,
    which is n < parameters + 3. Comparable only between fits to the same observations with the same weights.
    """
    k = parameters + 1
    if n <= k + 1:
        return None
    # Data without noise would give −∞; the floor is the square of double precision's rounding, relative to 1.
    return n * math.log(max(rss, n * 1e-30) / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def fit(model: ScalingModel, loads: Sequence[float], throughputs: Sequence[float], weights: Weights = "relative") -> Fit:
    """Fit one model.

    Raises:
        UsageError: unusable observations, or fewer distinct loads than the model has parameters.
    """
    x, y = observations(loads, throughputs)
    distinct = len(np.unique(x))
    count = len(model.parameters)
    if distinct < count:
        raise UsageError(f"the {model.title} has {count} parameters, but there are {distinct} distinct loads; measure {count + 1} or more")
    # Residuals under equal weights are divided by the mean, which changes no estimate and keeps numbers near 1.
    scale = y if weights == "relative" else np.full_like(y, y.mean())
    vector = model.estimate(x, y[None, :], scale[None, :])[0]
    residuals = (y - model.curve(vector, x)) / scale
    rss = float(residuals @ residuals)
    errors, correlations = _uncertainty(model, vector, x, scale, rss)
    peak = model.peak(vector)
    criterion = aicc(rss, len(x), count)
    warnings = list(model.cautions(vector, x))
    if criterion is None:
        warnings.append(
            f"{len(x)} observations are fewer than {count + 3}, the {count} parameters of the {model.title} + 3: AICc is undefined "
            "and the fit is not compared"
        )
    elif distinct <= count:
        warnings.append(
            f"the {model.title} has as many parameters as there are distinct loads ({distinct}): it passes through all their means"
        )
    warnings += [
        f"{a} and {b} are not separately identifiable from these data (correlation {value:+.2f}): trust the curve, not the single values"
        for (a, b), value in correlations.items()
        if abs(value) > _CORRELATED
    ]
    if peak is not None and peak > x[-1]:
        warnings.append(f"the model's peak at N={peak:.3g} lies beyond the largest load measured ({x[-1]:g}) and is not claimed")
    return Fit(
        model=model,
        parameters=dict(zip(model.parameters, map(float, vector), strict=True)),
        standard_errors=errors,
        correlations=correlations,
        weights=weights,
        n=len(x),
        distinct=distinct,
        largest=float(x[-1]),
        rss=rss,
        aicc=criterion,
        relative_error=float(np.sqrt(np.mean(((y - model.curve(vector, x)) / y) ** 2))),
        knee=model.knee(vector),
        peak=peak,
        warnings=tuple(warnings),
    )


def _uncertainty(
    model: ScalingModel, vector: Array, x: Array, scale: Array, rss: float
) -> tuple[dict[str, float | None], dict[tuple[str, str], float]]:
    """Standard errors and correlations from the Jacobian at the solution; None and absent where it is singular."""
    names = model.parameters
    jacobian = model.jacobian(vector, x) / scale[:, None]
    norms = np.linalg.norm(jacobian, axis=0)
    nothing: dict[str, float | None] = dict.fromkeys(names)
    if not np.all(norms > 0):
        return nothing, {}
    unit = jacobian / norms  # columns differ by many orders of magnitude; without this the inverse loses its digits
    gram = unit.T @ unit
    if np.linalg.cond(gram) > 1e12:
        return nothing, {}
    inverse = np.linalg.inv(gram)
    deviations = np.sqrt(np.diag(inverse))
    free = len(x) - len(names)
    errors = dict(nothing)
    if free > 0:
        errors.update(zip(names, map(float, deviations / norms * math.sqrt(rss / free)), strict=True))
    correlations = {
        (names[i], names[j]): float(inverse[i, j] / (deviations[i] * deviations[j]))
        for i in range(len(names))
        for j in range(i + 1, len(names))
    }
    return errors, correlations
