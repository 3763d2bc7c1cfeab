"""The Universal Scalability Law, X(N) = λN / (1 + σ(N−1) + κN(N−1)).

λ is the throughput of one, σ ≥ 0 the cost of contention, κ ≥ 0 that of coherency (N. J. Gunther, Guerrilla Capacity
Planning, Springer 2007). The peak lies at N = √((1−σ)/κ).
"""

from __future__ import annotations

import math

import numpy as np

from pgherd.analysis.fit import Array


class UniversalScalabilityLaw:
    """The Universal Scalability Law with σ and κ bounded below by zero."""

    name = "usl"
    title = "Universal Scalability Law"
    parameters: tuple[str, ...] = ("lambda", "sigma", "kappa")

    def curve(self, parameters: Array, loads: Array) -> Array:
        """Throughput at the loads."""
        rate, sigma, kappa = parameters
        return np.asarray(rate * loads / (1 + sigma * (loads - 1) + kappa * loads * (loads - 1)), dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        """Derivatives by λ, σ and κ."""
        rate, sigma, kappa = parameters
        denominator = 1 + sigma * (loads - 1) + kappa * loads * (loads - 1)
        by_rate = loads / denominator
        by_sigma = -rate * loads * (loads - 1) / denominator**2
        return np.column_stack([by_rate, by_sigma, by_sigma * loads])

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Bounded least squares, row by row: the unbounded solution where it is feasible, else the best with one or
        both of σ and κ fixed at zero, so that a parameter at its bound is exactly there."""
        return np.array([self._estimate(loads, y, s) for y, s in zip(throughputs, scale, strict=True)])

    def _estimate(self, loads: Array, y: Array, scale: Array) -> Array:
        from scipy.optimize import nnls

        # N/X is linear in 1/λ, σ/λ and κ/λ, and its relative error is that of X: a start without local minima.
        columns = np.column_stack([np.ones_like(loads), loads - 1, loads * (loads - 1)])
        spread = np.maximum(columns.max(axis=0), 1e-300)
        solution = nnls(columns / spread * (y / loads)[:, None], np.ones_like(y))[0] / spread
        if solution[0] > 0:
            start = np.array([1 / solution[0], solution[1] / solution[0], solution[2] / solution[0]])
        else:
            start = np.array([float(np.max(y / loads)), 0.0, 0.0])
        best, least = None, math.inf
        for free in ((0, 1, 2), (0, 1), (0, 2), (0,)):
            vector = self._solve(loads, y, scale, start, free)
            if vector is None or vector.min() < 0 or vector[0] <= 0:
                continue
            residuals = (y - self.curve(vector, loads)) / scale
            rss = float(residuals @ residuals)
            if rss < least:
                best, least = vector, rss
            if free == (0, 1, 2):
                break  # feasible without bounds: no bounded solution is better
        return start if best is None else best

    def _solve(self, loads: Array, y: Array, scale: Array, start: Array, free: tuple[int, ...]) -> Array | None:
        """Levenberg–Marquardt over the free parameters, each in units that bring it near 1; the others are zero."""
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
        """√((1−σ)/κ); None where κ = 0 (no peak) or σ ≥ 1 (no gain from the first load on)."""
        _, sigma, kappa = parameters
        return math.sqrt((1 - sigma) / kappa) if kappa > 0 and sigma < 1 else None

    def knee(self, parameters: Array) -> float | None:
        """None: the law bends everywhere."""
        return None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        """Parameters at their bound."""
        names = [name for name, value in zip(self.parameters[1:], parameters[1:], strict=True) if value == 0]
        return [f"{name} is at its bound, 0: the data show no such term, or cannot separate it from the other" for name in names]


USL = UniversalScalabilityLaw()
