"""Critical values of repeated looks against the published tables, and against simulation where there are none."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from pytest import approx

from pgherd.analysis.paired import signed_rank_tail
from pgherd.analysis.spending import bounds, critical_values, crossing

NORMAL = statistics.NormalDist()


@pytest.mark.parametrize(
    ("looks", "pocock", "obrien_fleming"),
    # Jennison and Turnbull, Group Sequential Methods (2000), tables 2.1 and 2.3, two-sided 5 %
    [(1, 1.960, 1.960), (2, 2.178, 1.977), (3, 2.289, 2.004), (4, 2.361, 2.024), (5, 2.413, 2.040), (10, 2.555, 2.087)],
)
def test_pocock_and_obrien_fleming(looks: int, pocock: float, obrien_fleming: float) -> None:
    times = [k / looks for k in range(1, looks + 1)]
    assert crossing(times, [pocock] * looks) == approx(0.05, abs=2e-4)
    assert crossing(times, [obrien_fleming / math.sqrt(t) for t in times]) == approx(0.05, abs=2e-4)


@pytest.mark.parametrize(
    ("spending", "published"),
    # Five equal looks, two-sided 5 %: Lan and DeMets 1983, table 1, as Reboussin et al.'s programs print them
    [
        (lambda t: 4 * (1 - NORMAL.cdf(NORMAL.inv_cdf(1 - 0.0125) / math.sqrt(t))), (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)),
        (lambda t: 0.05 * math.log(1 + (math.e - 1) * t), (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)),
        (lambda t: 0.05 * t, (2.58, 2.49, 2.41, 2.34, 2.28)),
    ],
    ids=["O'Brien-Fleming", "Pocock", "linear"],
)
def test_lan_demets(spending, published) -> None:
    times = [k / 5 for k in range(1, 6)]
    digits = 5e-3 if published[0] == 2.58 else 5e-4
    assert critical_values(times, [spending(t) for t in times]) == approx(published, abs=digits)


def test_one_look_is_the_plain_test() -> None:
    (only,) = bounds((12,), (0.05,))
    assert only.z == approx(1.95996, abs=1e-4)
    assert only.level == approx(0.05) and only.rank == 14
    assert signed_rank_tail(only.rank - 1, 12) <= 0.025 < signed_rank_tail(only.rank, 12)


def test_a_look_that_cannot_reach_its_level_costs_nothing() -> None:
    early, last = bounds((5, 12), (0.04, 0.05))
    assert early.rank == 0
    assert last == bounds((12,), (0.05,))[0]


def test_what_rounding_leaves_goes_to_later_looks() -> None:
    rounded, normal = (bounds((8, 12, 20), (0.008, 0.018, 0.05), exact) for exact in (True, False))
    assert rounded[0].rank == normal[0].rank
    assert rounded[-1].level > normal[-1].level


@pytest.mark.parametrize("growing", [1.0, 2.0], ids=["even", "each block twice the one before"])
@pytest.mark.parametrize("looks", [(7, 12), (8, 12, 20), (11, 17, 26, 39, 60)])
def test_error_rate_whatever_the_sizes(looks: tuple[int, ...], growing: float, seed: int) -> None:
    """Signs are fair coins; sizes that grow are the least favourable case, for which the critical values are made."""
    rng = np.random.default_rng(seed)
    made = bounds(looks, tuple(0.05 * (n / looks[-1]) ** 2 for n in looks))
    values = rng.normal(0, 1, (20_000, looks[-1])) * growing ** np.arange(looks[-1])
    wrong = np.zeros(len(values), bool)
    for bound in made:
        seen = values[:, : bound.pairs]
        positive = ((np.abs(seen).argsort(1).argsort(1) + 1) * (seen > 0)).sum(1)
        total = bound.pairs * (bound.pairs + 1) // 2
        wrong |= (positive < bound.rank) | (total - positive < bound.rank)
    assert wrong.mean() < 0.05 + 5 * math.sqrt(0.05 * 0.95 / len(values))
    assert wrong.mean() > 0.03


@pytest.mark.parametrize(
    ("pairs", "spent"), [((5, 5), (0.01, 0.05)), ((8, 6), (0.01, 0.05)), ((8, 12), (0.05, 0.01)), ((8,), (0.01, 0.05))]
)
def test_nonsense(pairs: tuple[int, ...], spent: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        bounds(pairs, spent)
