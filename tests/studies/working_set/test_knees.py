"""Knees and headroom as findings."""

from __future__ import annotations

import pytest
from pytest import approx

from pgherd.model.finding import Finding
from pgherd.studies.working_set.knees import headroom, room_findings


def known(value, low=None, high=None):
    return Finding(value=value, unit="MB", low=low, high=high, confidence=0.95 if low else None, n=9)


def test_e7(options):
    own = options(configured=4096)
    found = room_findings(own, {30: known(1376.0), 2: known(1152.0)})
    assert found["configured"].value == 8192
    assert found["headroom"].value == 5664
    assert found["honest_rate"].value == approx(0.69, abs=0.005)
    assert found["headroom"].published.startswith("5664 MB") and found["honest_rate"].published.startswith("69 %")


def test_intervals_come_from_the_ends(options):
    found = room_findings(options(configured=400), {30: known(250.0, 240.0, 270.0), 2: known(200.0, 190.0, 205.0)})
    assert (found["headroom"].low, found["headroom"].value, found["headroom"].high) == (325, 350, 370)
    assert found["honest_rate"].low == approx(325 / 800) and found["honest_rate"].high == approx(370 / 800)
    assert found["headroom"].n == 18


def test_no_interval_where_one_has_none(options):
    found = room_findings(options(), {30: known(250.0, 240.0, 270.0), 2: known(200.0)})
    assert found["headroom"].low is None and "no interval" in found["headroom"].note


def test_no_headroom_without_all_working_sets(options):
    found = room_findings(options(), {30: known(None), 2: known(200.0)})
    assert found["headroom"].value is None and found["headroom"].note == "no working set with 30 clients"


@pytest.mark.parametrize(
    ("configured", "sets", "wanted"), [(8192, [1376, 1152], (5664, 0.69)), (100, [100], (0, 0)), (100, [150], (-50, 0))]
)
def test_headroom(configured, sets, wanted):
    room, rate = headroom(configured, sets)
    assert room == wanted[0] and rate == approx(wanted[1], abs=0.005)
