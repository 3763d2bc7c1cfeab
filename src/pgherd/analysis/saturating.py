"""The hinge: linear up to a knee, then a second slope.

X(N) = aN for N ≤ k and ak + b(N−k) beyond, continuous, with b ≤ a; b may be negative (retrograde). It has as many
parameters as the Universal Scalability Law and suits hosts where nothing bends the curve until a resource is full.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from pgherd.analysis.fit import Array


class Hinge:
    """The linear-then-second-slope model; k lies within the measured loads."""

    name = "hinge"
    title = "hinge"
    parameters: tuple[str, ...] = ("a", "b", "k")

    def curve(self, parameters: Array, loads: Array) -> Array:
        """Throughput at the loads."""
        a, b, k = parameters
        return np.asarray(a * np.minimum(loads, k) + b * np.maximum(loads - k, 0), dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        """Derivatives by a, b and k."""
        a, b, k = parameters
        return np.column_stack([np.minimum(loads, k), np.maximum(loads - k, 0), (a - b) * (loads > k)])

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Exact least squares. For each split of the loads the left part gives a and the right part a line; where the
        two meet between the split's neighbours that is the solution, else it lies with k on a measured load. The best
        of all candidates is taken; all rows are solved at once."""
        rows = throughputs.shape[0]
        weights = 1 / scale**2
        distinct = np.unique(loads)
        slope = (weights * throughputs) @ loads / (weights @ loads**2)
        # The straight line: b = a, where k has no meaning; it is put at the largest load.
        candidates = [np.column_stack([slope, slope, np.full(rows, distinct[-1])])]
        for at, following in itertools.pairwise(distinct):
            candidates.append(self._fixed_knee(loads, throughputs, weights, at))
            right = loads > at
            if np.sum(distinct > at) >= 2:
                candidates.append(self._split(loads, throughputs, weights, right, at, following))
        stacked = np.stack(candidates)  # (candidates, rows, 3)
        rss = np.stack([self._rss(each, loads, throughputs, weights) for each in stacked])
        # A straight line must not lose to a knee that fits better only by rounding.
        rss[0] *= 1 - 1e-9
        return np.asarray(stacked[np.argmin(rss, axis=0), np.arange(rows)], dtype=float)

    def _rss(self, parameters: Array, loads: Array, y: Array, weights: Array) -> Array:
        a, b, k = (parameters[:, i, None] for i in range(3))
        fitted = a * np.minimum(loads, k) + b * np.maximum(loads - k, 0)
        rss = np.sum(weights * (y - fitted) ** 2, axis=1)
        feasible = np.all(np.isfinite(parameters), axis=1) & (parameters[:, 1] <= parameters[:, 0]) & (parameters[:, 0] > 0)
        return np.where(feasible, rss, np.inf)

    def _fixed_knee(self, loads: Array, y: Array, weights: Array, k: float) -> Array:
        """a and b by linear least squares with the knee given."""
        left, right = np.minimum(loads, k), np.maximum(loads - k, 0)
        ll, lr, rr = weights @ left**2, weights @ (left * right), weights @ right**2
        ly, ry = (weights * y) @ left, (weights * y) @ right
        determinant = ll * rr - lr**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.column_stack([(rr * ly - lr * ry) / determinant, (ll * ry - lr * ly) / determinant, np.full(len(y), k)])

    def _split(self, loads: Array, y: Array, weights: Array, right: NDArray[np.bool_], at: float, following: float) -> Array:
        """a from the left part, the line c + bN from the right; infeasible (NaN) where they meet outside the gap."""
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
        """The knee where the second slope is negative; None where the curve goes on rising."""
        _, b, k = parameters
        return float(k) if b < 0 else None

    def knee(self, parameters: Array) -> float | None:
        """k; None where both slopes are the same."""
        a, b, k = parameters
        return float(k) if b < a else None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        """No knee at all, or one that the loads cannot place."""
        a, b, k = parameters
        distinct = np.unique(loads)
        if b >= a:
            return ["the second slope is at its bound, the first: no knee within the data"]
        found = []
        if np.sum(distinct > k * (1 + 1e-9)) == 1:  # rounding puts a knee on a load just beside it
            found.append(
                f"only one load ({distinct[-1]:g}) lies beyond the knee: it lies somewhere between {distinct[-2]:g} and {distinct[-1]:g}, "
                "and the second slope is not known"
            )
        if np.sum(distinct <= k * (1 + 1e-9)) == 1:
            found.append(f"only one load ({distinct[0]:g}) lies before the knee: the first slope rests on it alone")
        return found


HINGE = Hinge()
