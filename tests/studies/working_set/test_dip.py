"""The dip is looked for at 45–55 %, and only said where the data say so."""

from __future__ import annotations

import pytest

from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.dip import dip
from pgherd.studies.working_set.options import Curve
from pgherd.studies.working_set.propose import trial_at

SIZES = (100, 122, 128, 134, 170, 200, 230, 260, 300, 350)  # 64 MB of buffers are 48–52 % of three of them


@pytest.fixture
def looked(server, options):
    def found(sizes=SIZES, repeats=3, **more):
        own = options()
        curve = Curve("memory", 30)
        trials = [trial_at(own, curve, size, 0, repeat, "planned") for size in sizes for repeat in range(repeats)]
        return dip(own, [Measured(curve, server(own, **more).all(trials))])

    return found


def test_a_dip(looked):
    finding = looked(dip=0.2)
    assert finding.high < 0.97 and finding.note.startswith("a dip")
    assert finding.experiment == "E7" and "45–55 %" in finding.published


def test_none(looked):
    finding = looked(noise=0.003)
    assert finding.low > 0.97 and finding.note.startswith("no dip of 3 %")


def test_noise_supports_neither(looked):
    assert looked(noise=0.12, repeats=1).note.startswith("the data support neither")


def test_too_few(looked):
    finding = looked(sizes=(100, 128, 170, 200, 260, 300, 350), repeats=1)
    assert finding.value is not None and finding.low is None
    assert "too few trials" in finding.note


def test_no_size_there(looked):
    finding = looked(sizes=(150, 170, 200, 260, 300, 350))
    assert finding.value is None and "no trial with shared buffers at 45–55 %" in finding.note
