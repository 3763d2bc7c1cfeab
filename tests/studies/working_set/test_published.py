"""What E7 published."""

from __future__ import annotations

from pgherd.studies.working_set import published
from pgherd.studies.working_set.options import Curve


def test_beside_the_same_loads_only():
    assert published.working_set(Curve("memory", 30)).startswith("1376 MB")
    assert published.working_set(Curve("buffers", 2)).startswith("524 MB")
    assert published.working_set(Curve("memory", 8)) is None
    assert published.headroom((2, 30)).startswith("5664 MB of 2 × 4096 MB")
    assert published.rate((30,)) is None


def test_said_to_be_of_another_machine():
    for text in (published.working_set(Curve("memory", 2)), published.headroom((30, 2)), published.rate((30, 2)), published.dip()):
        assert "another machine" in text


def test_its_own_numbers_agree():
    sizes = published.SIZES["memory"]
    assert 2 * published.CONFIGURED - sum(sizes.values()) == published.HEADROOM
    assert round(published.HEADROOM / (2 * published.CONFIGURED), 2) == published.RATE
