"""What is said of the two values of perfect, and of more than perfect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density.curve import curve
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.perfect import perfect_warnings
from pgherd.studies.density.points import group
from pgherd.studies.density.propose import planned

Build = Callable[..., DensityOptions]


@pytest.fixture
def said(options: Build, simulate: Any) -> Callable[..., list[str]]:
    """The warnings on a simulated host that does so much more than its share at 8 databases, all its cores."""

    def of(more: float = 1.0, dearer: float = 1.0, points: tuple[int, ...] = (1, 2, 3, 5, 6, 8, 10), **host: Any) -> list[str]:
        class Better(simulate):
            def truth(self, n: int) -> float:
                return super().truth(n) * (more if n == 8 else 1.0)

        given = options(points=points)
        results = Better(given, **host).all(planned(given))
        for result in results:
            for entity, metrics in result.phases[0].metrics.items():
                if result.trial.point["databases"] == 8 and entity.startswith("container:"):
                    metrics["cpu.usage"] *= dearer
        return perfect_warnings(curve(given, group(given, results)))

    return of


def test_nothing_where_all_is_as_it_should_be(said: Any) -> None:
    assert said() == []
    assert said(more=1.04, noise=0) == [], "a little is no reason to speak"


def test_the_two_differ(said: Any) -> None:
    (slow,) = said(alone=0.85)
    assert "super-linear" in slow and "the machine's neighbours slowed it" in slow
    assert "the spread of its repeats" not in slow
    (fast,) = said(alone=1.15)
    assert "boosting clocks" in fast
    noisy = [text for seed in range(8) for text in said(alone=0.85, noise=0.12, seed=seed)]
    assert any("which the spread of its repeats explains too" in text for text in noisy)


def test_more_than_perfect_beyond_chance(said: Any) -> None:
    (text,) = said(more=1.15, noise=0.005)
    assert text.startswith("Efficiency lies above 100 %: 115 % at 8 databases. Transactions took less CPU time there than alone")
    assert "(efficiency in CPU/tx up to 115 %): a clock that rises with the load, an idle virtual host" in text
    assert "neighbours on the machine" in text
    assert text.endswith("all efficiencies flatter")


def test_more_than_perfect_that_the_spread_explains(said: Any) -> None:
    (text,) = said(more=1.15, noise=0.08)
    assert "at 8 databases, within the spread of the repeats." in text
    assert text.endswith("It may as well be chance: more repeats (--repeats) would tell")


def test_more_than_perfect_for_the_same_cpu_time(said: Any) -> None:
    (text,) = said(more=1.15, dearer=1.15, noise=0)
    assert "Transactions took no less CPU time there" in text
    assert "clock" not in text


def test_more_than_perfect_without_seeing_the_cpu(said: Any) -> None:
    (text,) = said(more=1.15, noise=0, metrics=False)
    assert "was not seen; usual causes are a clock" in text


def test_without_one_database_the_slope_is_perfect(said: Any) -> None:
    (text,) = said(more=1.15, noise=0, points=(2, 3, 5, 6, 8, 10))
    assert text.startswith("Efficiency lies above 100 %: 1")
    assert "than alone" not in text
    assert "One database alone was not measured, so CPU per transaction has nothing to be held against; usual causes are a clock" in text
