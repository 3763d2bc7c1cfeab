"""E1's table as published."""

from __future__ import annotations

import pytest

from pgherd.studies.density import published


def test_efficiencies_as_the_article_says() -> None:
    assert published.efficiency(published.E1[-1]) == pytest.approx(0.857, abs=5e-4)
    assert published.efficiency(published.E1[5]) == pytest.approx(1957 / 2048)


@pytest.mark.parametrize(("fraction", "databases"), [(0.025, 1), (0.39, 16), (0.81, 32), (1.0, 40)])
def test_a_close_fraction_has_a_published_value(fraction: float, databases: int) -> None:
    row = next(row for row in published.E1 if row[0] == databases)
    assert published.efficiency_at(fraction) == published.efficiency(row)


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.9, 1.1])
def test_other_fractions_have_none(fraction: float) -> None:
    assert published.efficiency_at(fraction) is None


def test_the_figure_names_its_source() -> None:
    rows = published.figure()
    assert [row["fraction"] for row in rows] == [0.025, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert all("n0derunner.com" in row["source"] for row in rows)
