"""Scaling models and their fit: standard errors, correlations and warnings.

A scaling model gives the throughput X of N equal loads (databases, clients, processors). Fitting is least squares over single
observations. Several observations at one load are repeats. Weights are 'relative' (each residual divided by the measured
throughput, so that all loads count equally) or 'equal' (plain residuals, as in the CRAN package ``usl``).

Models: linear, piecewise linear with two segments, and the Universal Scalability Law (USL).
"""

from __future__ import annotations

import itertools
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
        """Return the throughput at the loads."""
        ...

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        """Return the derivative of the curve by each parameter, shape (loads, parameters)."""
        ...

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Return the least-squares parameters for each row of ``throughputs`` (rows, loads).

        Residuals are divided by ``scale``, which has the same shape.
        """
        ...

    def peak(self, parameters: Array) -> float | None:
        """Return the load at which the curve is highest, or None."""
        ...

    def knee(self, parameters: Array) -> float | None:
        """Return the load at which the slope changes. None if it changes nowhere, or everywhere."""
        ...

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        """Return warnings of this model: parameters at their bounds, a knee that the data cannot locate."""
        ...


@dataclass(frozen=True)
class Fit:
    """Scaling model fitted to (load, throughput) observations.

    ``rss`` is the weighted residual sum of squares. ``relative_error`` is the root mean square of (measured − fitted) /
    measured. ``aicc`` is None with too few observations. ``peak`` is the load of the model's highest point at any load.
    ``peak_in_data`` is whether it is within the measured loads. Otherwise it must not be reported as a result. ``intervals``
    holds (low, high) by parameter, and of 'knee' and 'peak', after a bootstrap.
    """

    model: ScalingModel
    parameters: dict[str, float]
    standard_errors: dict[str, float | None]
    correlations: dict[tuple[str, str], float]
    weights: Weights
    n: int
    distinct: int
    smallest: float
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
        """Parameters in the model's order."""
        return np.array([self.parameters[name] for name in self.model.parameters])

    @property
    def peak_in_data(self) -> bool:
        """Whether the model has a peak within the measured loads."""
        return self.peak is not None and self.smallest <= self.peak <= self.largest

    def predict(self, loads: Sequence[float]) -> list[float]:
        """Return the fitted throughput at the loads."""
        curve = self.model.curve(self.vector, np.asarray(loads, dtype=float))
        return [float(x) for x in curve]


def observations(loads: Sequence[float], throughputs: Sequence[float]) -> tuple[Array, Array]:
    """Check and sort (load, throughput) observations.

    Raises:
        UsageError: the lengths differ, or a value is not finite and above zero.
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
    """Return Akaike's information criterion for least squares with the small-sample correction (Hurvich and Tsai 1989).

    n ln(RSS/n) + 2K + 2K(K+1)/(n−K−1), where K counts the parameters and the residual variance. None if n ≤ K + 1, which is n <
    parameters + 3. Comparable only between fits to the same observations with the same weights.
    """
    k = parameters + 1
    if n <= k + 1:
        return None
    # Data without noise would give −∞. The floor is the square of the rounding error of doubles, relative to 1.
    return n * math.log(max(rss, n * 1e-30) / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def fit(model: ScalingModel, loads: Sequence[float], throughputs: Sequence[float], weights: Weights = "relative") -> Fit:
    """Fit one model.

    Raises:
        UsageError: invalid observations, or fewer distinct loads than the model has parameters.
    """
    x, y = observations(loads, throughputs)
    distinct = len(np.unique(x))
    count = len(model.parameters)
    if distinct < count:
        raise UsageError(
            f"the {model.title} model has {count} parameters, but the number of distinct loads is {distinct}; measure {count + 1} or more"
        )
    # With equal weights residuals are divided by the mean, which keeps numbers near 1 and does not change estimates.
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
            f"{len(x)} observations are fewer than {count + 3}, the number of parameters of the {model.title} model + 3: AICc is "
            "undefined and the fit is not compared"
        )
    elif distinct <= count:
        warnings.append(
            f"the {model.title} model has as many parameters as there are distinct loads ({distinct}): it fits all their means exactly"
        )
    warnings += [
        f"{a} and {b} are not separately identifiable from these data (correlation {value:+.2f}): use the curve, not the single values"
        for (a, b), value in correlations.items()
        if abs(value) > _CORRELATED
    ]
    if peak is not None and peak > x[-1]:
        warnings.append(f"the model's peak at N={peak:.3g} is beyond the largest load measured ({x[-1]:g}) and is not reported")
    elif peak is not None and peak < x[0]:
        warnings.append(f"the model's peak at N={peak:.3g} is below the smallest load measured ({x[0]:g}) and is not reported")
    return Fit(
        model=model,
        parameters=dict(zip(model.parameters, map(float, vector), strict=True)),
        standard_errors=errors,
        correlations=correlations,
        weights=weights,
        n=len(x),
        distinct=distinct,
        smallest=float(x[0]),
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
    """Return standard errors and correlations from the Jacobian at the solution. None and empty if it is singular."""
    names = model.parameters
    jacobian = model.jacobian(vector, x) / scale[:, None]
    norms = np.linalg.norm(jacobian, axis=0)
    unknown: dict[str, float | None] = dict.fromkeys(names)
    if not np.all(norms > 0):
        return unknown, {}
    unit = jacobian / norms  # columns differ by orders of magnitude, which would make the inverse inaccurate
    gram = unit.T @ unit
    if np.linalg.cond(gram) > 1e12:
        return unknown, {}
    inverse = np.linalg.inv(gram)
    deviations = np.sqrt(np.diag(inverse))
    free = len(x) - len(names)
    errors = dict(unknown)
    if free > 0:
        errors.update(zip(names, map(float, deviations / norms * math.sqrt(rss / free)), strict=True))
    correlations = {
        (names[i], names[j]): float(inverse[i, j] / (deviations[i] * deviations[j]))
        for i in range(len(names))
        for j in range(i + 1, len(names))
    }
    return errors, correlations


class LinearModel:
    """X(N) = aN: the model without a knee."""

    name = "linear"
    title = "linear"
    parameters: tuple[str, ...] = ("a",)

    def curve(self, parameters: Array, loads: Array) -> Array:
        return np.asarray(parameters[0] * loads, dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        return loads[:, None]

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Least squares through the origin, row by row."""
        weights = 1 / scale**2
        return np.asarray(((weights * throughputs) @ loads / (weights @ loads**2))[:, None], dtype=float)

    def peak(self, parameters: Array) -> float | None:
        return None

    def knee(self, parameters: Array) -> float | None:
        return None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        return []


LINE = LinearModel()


class PiecewiseLinear:
    """Piecewise linear model with two segments.

    X(N) = aN for N ≤ k and ak + b(N−k) beyond, continuous, with b ≤ a. b may be negative (retrograde), and k is within the
    measured loads. It has as many parameters as the Universal Scalability Law. It suits hosts on which the curve is straight
    until a resource is exhausted.
    """

    name = "piecewise-linear"
    title = "piecewise linear"
    parameters: tuple[str, ...] = ("a", "b", "k")

    def curve(self, parameters: Array, loads: Array) -> Array:
        a, b, k = parameters
        return np.asarray(a * np.minimum(loads, k) + b * np.maximum(loads - k, 0), dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        a, b, k = parameters
        return np.column_stack([np.minimum(loads, k), np.maximum(loads - k, 0), (a - b) * (loads > k)])

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Exact least squares, all rows at once.

        For each split of the loads the left part gives a, and the right part a line. If they intersect between the two loads of
        the split, that is the solution of the split. Otherwise k is a measured load. The best of all candidates is returned.
        """
        rows = throughputs.shape[0]
        weights = 1 / scale**2
        distinct = np.unique(loads)
        slope = (weights * throughputs) @ loads / (weights @ loads**2)
        # The linear model: b = a. k has no meaning there and is set to the largest load.
        candidates = [np.column_stack([slope, slope, np.full(rows, distinct[-1])])]
        for at, following in itertools.pairwise(distinct):
            candidates.append(self._fixed_knee(loads, throughputs, weights, at))
            right = loads > at
            if np.sum(distinct > at) >= 2:
                candidates.append(self._split(loads, throughputs, weights, right, at, following))
        stacked = np.stack(candidates)  # (candidates, rows, 3)
        rss = np.stack([self._rss(parameters, loads, throughputs, weights) for parameters in stacked])
        # Prefer the linear model to a knee that fits better only by rounding.
        rss[0] *= 1 - 1e-9
        return np.asarray(stacked[np.argmin(rss, axis=0), np.arange(rows)], dtype=float)

    def _rss(self, parameters: Array, loads: Array, y: Array, weights: Array) -> Array:
        a, b, k = (parameters[:, i, None] for i in range(3))
        fitted = a * np.minimum(loads, k) + b * np.maximum(loads - k, 0)
        rss = np.sum(weights * (y - fitted) ** 2, axis=1)
        feasible = np.all(np.isfinite(parameters), axis=1) & (parameters[:, 1] <= parameters[:, 0]) & (parameters[:, 0] > 0)
        return np.where(feasible, rss, np.inf)

    def _fixed_knee(self, loads: Array, y: Array, weights: Array, k: float) -> Array:
        """Return a and b by linear least squares for a given knee."""
        left, right = np.minimum(loads, k), np.maximum(loads - k, 0)
        ll, lr, rr = weights @ left**2, weights @ (left * right), weights @ right**2
        ly, ry = (weights * y) @ left, (weights * y) @ right
        determinant = ll * rr - lr**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.column_stack([(rr * ly - lr * ry) / determinant, (ll * ry - lr * ly) / determinant, np.full(len(y), k)])

    def _split(self, loads: Array, y: Array, weights: Array, right: NDArray[np.bool_], at: float, following: float) -> Array:
        """Fit a to the left part and the line c + bN to the right. NaN if they intersect outside the gap."""
        lw, rw, ln, rn = weights[:, ~right], weights[:, right], loads[~right], loads[right]
        a = (lw * y[:, ~right]) @ ln / (lw @ ln**2)
        total, mean = rw.sum(axis=1), (rw @ rn) / rw.sum(axis=1)
        centre = (rw * y[:, right]).sum(axis=1) / total
        deviation = rn - mean[:, None]
        b = np.sum(rw * deviation * (y[:, right] - centre[:, None]), axis=1) / np.sum(rw * deviation**2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = (centre - b * mean) / (a - b)
        k = np.where((k >= at) & (k <= following), k, np.nan)
        return np.column_stack([a, b, k])

    def peak(self, parameters: Array) -> float | None:
        """Return the knee if the second slope is negative."""
        _, b, k = parameters
        return float(k) if b < 0 else None

    def knee(self, parameters: Array) -> float | None:
        """Return k, or None if both slopes are equal."""
        a, b, k = parameters
        return float(k) if b < a else None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        a, b, k = parameters
        distinct = np.unique(loads)
        if b >= a:
            return ["the second slope is at its bound, the first: no knee within the data"]
        found = []
        if np.sum(distinct > k * (1 + 1e-9)) == 1:  # rounding can move a knee slightly off a load
            found.append(
                f"only one load ({distinct[-1]:g}) is beyond the knee: the knee is between {distinct[-2]:g} and {distinct[-1]:g}, "
                "and the second slope is not known"
            )
        if np.sum(distinct <= k * (1 + 1e-9)) == 1:
            found.append(f"only one load ({distinct[0]:g}) is below the knee: the first slope depends on it only")
        return found


HINGE = PiecewiseLinear()


class UniversalScalabilityLaw:
    """Universal Scalability Law, X(N) = λN / (1 + σ(N−1) + κN(N−1)).

    λ is the throughput of one load, σ ≥ 0 the cost of contention, κ ≥ 0 that of coherency (N. J. Gunther, Guerrilla Capacity
    Planning, Springer 2007). The peak is at N = √((1−σ)/κ).
    """

    name = "usl"
    title = "Universal Scalability Law"
    parameters: tuple[str, ...] = ("lambda", "sigma", "kappa")

    def curve(self, parameters: Array, loads: Array) -> Array:
        rate, sigma, kappa = parameters
        return np.asarray(rate * loads / (1 + sigma * (loads - 1) + kappa * loads * (loads - 1)), dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        rate, sigma, kappa = parameters
        denominator = 1 + sigma * (loads - 1) + kappa * loads * (loads - 1)
        by_rate = loads / denominator
        by_sigma = -rate * loads * (loads - 1) / denominator**2
        return np.column_stack([by_rate, by_sigma, by_sigma * loads])

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Bounded least squares, row by row.

        The result is the unbounded solution if feasible, otherwise the best with σ, κ or both fixed at zero. A parameter at its
        bound is therefore exactly zero.
        """
        return np.array([self._estimate(loads, y, s) for y, s in zip(throughputs, scale, strict=True)])

    def _estimate(self, loads: Array, y: Array, scale: Array) -> Array:
        from scipy.optimize import nnls

        # N/X is linear in 1/λ, σ/λ and κ/λ with the relative error of X. This start has no local minima.
        columns = np.column_stack([np.ones_like(loads), loads - 1, loads * (loads - 1)])
        spread = np.maximum(columns.max(axis=0), 1e-300)
        solution = nnls(columns / spread * (y / loads)[:, None], np.ones_like(y))[0] / spread
        if solution[0] > 0:
            start = np.array([1 / solution[0], solution[1] / solution[0], solution[2] / solution[0]])
        else:
            start = np.array([float(np.max(y / loads)), 0.0, 0.0])
        best, lowest_rss = None, math.inf
        for free in ((0, 1, 2), (0, 1), (0, 2), (0,)):
            vector = self._solve(loads, y, scale, start, free)
            if vector is None or vector.min() < 0 or vector[0] <= 0:
                continue
            residuals = (y - self.curve(vector, loads)) / scale
            rss = float(residuals @ residuals)
            if rss < lowest_rss:
                best, lowest_rss = vector, rss
            if free == (0, 1, 2):
                break  # feasible without bounds, so no bounded solution is better
        return start if best is None else best

    def _solve(self, loads: Array, y: Array, scale: Array, start: Array, free: tuple[int, ...]) -> Array | None:
        """Levenberg–Marquardt over the free parameters, each scaled to about 1. The others are zero."""
        from scipy.optimize import least_squares

        top = float(loads.max())
        units = np.array([start[0], 1 / max(top - 1, 1.0), 1 / max(top * (top - 1), 1.0)])
        chosen = list(free)

        def full(p: Array) -> Array:
            vector = np.zeros(3)
            vector[chosen] = p * units[chosen]
            return vector

        def residuals(p: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                r = (self.curve(full(p), loads) - y) / scale
            return np.where(np.isfinite(r), r, 1e6)

        def jacobian(p: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                j = self.jacobian(full(p), loads)[:, chosen] * units[chosen] / scale[:, None]
            return np.where(np.isfinite(j), j, 0.0)

        if len(y) < len(chosen):
            return None
        solution = least_squares(residuals, start[chosen] / units[chosen], jac=jacobian, method="lm", xtol=1e-10, ftol=1e-12, gtol=1e-12)
        return full(solution.x)

    def peak(self, parameters: Array) -> float | None:
        """Return √((1−σ)/κ). None if κ = 0 (no peak) or σ ≥ 1 (no gain from the first load on)."""
        _, sigma, kappa = parameters
        return math.sqrt((1 - sigma) / kappa) if kappa > 0 and sigma < 1 else None

    def knee(self, parameters: Array) -> float | None:
        """Return None, because the slope changes everywhere."""
        return None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        names = [name for name, value in zip(self.parameters[1:], parameters[1:], strict=True) if value == 0]
        return [f"{name} is at its bound, 0: the data show no such term, or cannot separate it from the other" for name in names]


USL = UniversalScalabilityLaw()
