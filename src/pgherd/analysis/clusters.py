"""Groups in a set of measurements: clusters of points, and two levels of values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_ITERATIONS = 50

MIN_VALUES = 6
"""Minimum number of values for which two levels can be told from noise."""
MIN_RATIO = 1.2
"""Minimum ratio of the two levels."""


def clusters(points: Sequence[Sequence[float]], radius: float, most: int) -> list[int]:
    """Return the cluster of each point, by number from 0. Clusters are numbered by their smallest point.

    Their number is the smallest one with which every point is within ``radius`` of the centre of its cluster, and at most ``most``. k-means
    starts with the points that are farthest from each other (Gonzalez, Theoretical Computer Science 38, 1985), so that a distant group is a
    cluster, even if it is small. The result depends neither on chance nor on the order of the points.
    """
    values = np.asarray(points, dtype=np.float64)
    order = np.lexsort(values.T[::-1])
    ordered = values[order]
    labels = np.zeros(len(ordered), dtype=np.int64)
    for number in range(1, min(most, len(np.unique(ordered, axis=0))) + 1):
        labels = _k_means(ordered, number)
        if _largest_distance(ordered, labels) <= radius:
            break
    found = np.empty_like(labels)
    found[order] = labels
    return [int(label) for label in found]


def _k_means(points: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Return the labels of this number of clusters, numbered by their first point."""
    from scipy.cluster.vq import kmeans2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty cluster is no cluster
        _, labels = kmeans2(points, _farthest(points, number), iter=_ITERATIONS, minit="matrix")
    _, first, renumbered = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[renumbered]


def _farthest(points: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Return the point farthest from the mean, then those farthest from all before."""
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < number:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return points[chosen]


def _largest_distance(points: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    centres = np.array([points[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)])
    return float(np.linalg.norm(points - centres[labels], axis=1).max())


@dataclass(frozen=True)
class Levels:
    """Two levels of positive values. ``split`` is the geometric mean of the levels, ``high_share`` the share of values above it."""

    low: float
    high: float
    split: float
    high_share: float

    def mode(self, value: float) -> Literal["slow", "fast"]:
        """Return the level of a rate."""
        return "fast" if value > self.split else "slow"


def two_levels(values: Sequence[float]) -> Levels | None:
    """Return the two levels of these values, or None if one level with noise explains them.

    The logarithms are split where the distance of the two means, in units of the standard deviation within the parts, is largest, with at
    least a fifth of the values on each side, so that a few outliers are no level. Of normal noise this distance exceeds 3 + 27/n in at most
    1 % of samples of 8 to 30 values, by simulation. Levels that differ by less than 20 % do not count.

    Raises:
        ValueError: a value is not above zero.
    """
    if any(value <= 0 for value in values):
        raise ValueError(f"levels need values above zero, not {min(values):g}")
    logs = sorted(map(math.log, values))
    if len(logs) < MIN_VALUES:
        return None
    least = max(2, math.ceil(len(logs) / 5))
    separation, split = max((_separation(logs[:i], logs[i:]), i) for i in range(least, len(logs) - least + 1))
    low, high = (math.exp(math.fsum(part) / len(part)) for part in (logs[:split], logs[split:]))
    if separation < 3 + 27 / len(logs) or high < MIN_RATIO * low:
        return None
    return Levels(low, high, math.sqrt(low * high), 1 - split / len(logs))


def _separation(below: Sequence[float], above: Sequence[float]) -> float:
    """Return the distance of two means in units of the pooled standard deviation within (infinite without any)."""
    means = [math.fsum(part) / len(part) for part in (below, above)]
    squares = math.fsum((value - mean) ** 2 for part, mean in zip((below, above), means, strict=True) for value in part)
    deviation = math.sqrt(squares / (len(below) + len(above) - 2))
    return (means[1] - means[0]) / deviation if deviation > 0 else math.inf * (means[1] > means[0])
