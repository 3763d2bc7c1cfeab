"""Clusters of known points, and what holds for any points; two levels and noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pgherd.analysis.clusters import clusters, two_levels

COORDINATE = some.floats(-50, 50, allow_nan=False).map(lambda value: round(value, 3))
POINTS = some.lists(some.tuples(COORDINATE, COORDINATE, COORDINATE), min_size=1, max_size=40)


def distances(points: list[tuple[float, ...]], labels: list[int]) -> float:
    """The largest distance of a point from the centre of its cluster."""
    values = np.array(points)
    of = np.array(labels)
    return max(float(np.linalg.norm(values[of == label] - values[of == label].mean(axis=0), axis=1).max()) for label in set(labels))


@given(some.integers(1, 6), some.lists(some.integers(1, 30), min_size=6, max_size=6), some.integers(0, 10_000))
@settings(deadline=None)
def test_separate_groups_are_found_whatever_their_sizes(groups, sizes, seed):
    """Groups of radius 1 whose centres are 8 apart or more."""
    random = np.random.default_rng(seed)
    centres = [(8.0 * (number % 3), 9.0 * (number // 3), 0.0) for number in range(groups)]
    truth = [number for number in range(groups) for _ in range(sizes[number])]
    offsets = random.normal(size=(len(truth), 3))
    offsets *= random.random((len(truth), 1)) / np.linalg.norm(offsets, axis=1, keepdims=True)
    points = [tuple(np.array(centres[number]) + offset) for number, offset in zip(truth, offsets, strict=True)]
    order = random.permutation(len(truth))
    found = clusters([points[i] for i in order], 2.1, 8)
    assert len(set(found)) == groups
    assert len({(truth[i], label) for i, label in zip(order, found, strict=True)}) == groups, "one cluster for each group"


@given(POINTS, some.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_points_does_not_matter(points, random):
    order = list(range(len(points)))
    random.shuffle(order)
    shuffled = clusters([points[i] for i in order], 5.0, 4)
    labels = clusters(points, 5.0, 4)
    assert [labels[i] for i in order] == shuffled


@given(POINTS, some.integers(1, 5))
@settings(deadline=None)
def test_there_are_no_more_than_the_most_and_as_many_as_needed(points, most):
    labels = clusters(points, 3.0, most)
    assert set(labels) == set(range(max(labels) + 1)) and len(set(labels)) <= most
    if len(set(points)) <= most:
        assert distances(points, labels) <= 3.0
    if distances(points, [0] * len(points)) <= 3.0:
        assert set(labels) == {0}, "one is enough"


def test_a_few_distant_points_are_a_cluster_although_k_means_would_split_the_many():
    random = np.random.default_rng(1)
    many = [tuple(point) for point in random.normal(size=(2000, 2)) * 2]
    labels = clusters([*many, (30.0, 30.0), (31.0, 30.0)], 1.0, 2)
    assert labels[-2:] == [1, 1] and set(labels[:-2]) == {0}


def test_clusters_are_numbered_by_their_smallest_point():
    assert clusters([(9.0,), (1.0,), (5.0,), (9.1,)], 0.5, 3) == [2, 0, 1, 2]
    assert math.isclose(distances([(9.0,), (9.1,)], [0, 0]), 0.05)


@pytest.mark.parametrize("count", [8, 12, 16, 24])
def test_noise_is_one_level(count: int) -> None:
    """About 1 % of normal samples look like two levels. Of 500 at most 4 % may, far beyond chance."""
    rng = np.random.default_rng(count)
    found = [two_levels(np.exp(rng.normal(10, 0.15, count)).tolist()) for _ in range(500)]
    assert sum(levels is not None for levels in found) <= 20


@pytest.mark.parametrize(("count", "noise", "least"), [(12, 0.03, 0.9), (15, 0.08, 0.8)])
def test_two_levels_are_found_where_they_are(count: int, noise: float, least: float) -> None:
    rng = np.random.default_rng(3)
    found, both = 0, 0
    for _ in range(300):
        fast = rng.random(count) < 0.5
        if not 2 <= fast.sum() <= count - 2:
            continue
        both += 1
        levels = two_levels((np.where(fast, 75_000, 45_000) * np.exp(rng.normal(0, noise, count))).tolist())
        if levels is not None:
            found += 1
            assert levels.low == pytest.approx(45_000, rel=0.25) and levels.high == pytest.approx(75_000, rel=0.25)
            assert levels.low < levels.split < levels.high and 0 < levels.high_share < 1
    assert found >= least * both


def test_levels_by_hand() -> None:
    levels = two_levels([10.0, 10.0, 10.0, 40.0, 40.0, 40.0, 40.0, 40.0])
    assert levels is not None
    assert (levels.low, levels.high, levels.split) == (pytest.approx(10), pytest.approx(40), pytest.approx(20))
    assert levels.high_share == pytest.approx(5 / 8)


def test_what_is_too_little_or_too_close_is_one_level() -> None:
    assert two_levels([1.0, 1.0, 2.0, 2.0, 2.0]) is None, "too few values"
    assert two_levels([1.0] * 8 + [3.0]) is None, "one value is no level"
    assert two_levels([1.0] * 5 + [1.1] * 5) is None, "less than 20 % apart"
    assert two_levels([5.0] * 10) is None
    with pytest.raises(ValueError, match="above zero"):
        two_levels([1.0, 0.0, 2.0])
