"""The slowest and the fastest of links whose throughput is known."""

from __future__ import annotations

import random
import statistics

import pytest

from pgherd.studies.network.pair_extremes import extreme_link


def links(truth, noise, repeats=3, streams=2, seed=1):
    """Trials of each link, whose throughput is the same with each number of streams."""
    rng = random.Random(seed)
    return {
        f"link{number}": [[speed * rng.gauss(1, noise) for _ in range(repeats)] for _ in range(streams)]
        for number, speed in enumerate(truth)
    }


@pytest.mark.parametrize("end", ["slowest", "fastest"])
def test_of_equal_links_chance_makes_none_slow_or_fast(end):
    """The lowest mean of twelve links with 5 % noise is 5 % too low."""
    found = [extreme_link(links([10.0] * 12, 0.05, seed=seed), end) for seed in range(60)]
    assert statistics.fmean(choice.value.value for choice in found) == pytest.approx(10, rel=0.02)
    assert sum(choice.value.low <= 10 <= choice.value.high for choice in found) >= 54
    assert statistics.fmean(len(choice.links) for choice in found) > 8


@pytest.mark.parametrize(("end", "truth"), [("slowest", 4.0), ("fastest", 20.0)])
def test_a_link_that_differs_is_named(end, truth):
    found = extreme_link(links([10.0] * 6 + [truth], 0.02), end)
    assert found.links == ("link6",) and found.value.low < truth < found.value.high


def test_without_repeats_no_link_is_named():
    found = extreme_link(links([10.0, 4.0], 0.02, repeats=1), "slowest")
    assert found.links == () and found.value.low is None and found.value.value == pytest.approx(4, rel=0.1)


def test_of_many_links_the_extreme_ones_are_compared():
    found = extreme_link(links([10.0] * 200 + [5.0], 0.02, streams=1), "slowest")
    assert found.links == ("link200",)


def test_a_link_without_throughput_is_no_link():
    with pytest.raises(ValueError, match="above zero"):
        extreme_link({"a": [[0.0, 0.0]]}, "slowest")
