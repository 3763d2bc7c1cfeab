"""Which size comes next."""

from __future__ import annotations

import pytest

from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.narrowing import next_size
from pgherd.studies.working_set.options import Curve
from pgherd.studies.working_set.propose import trial_at

CURVE = Curve("memory", 30)


@pytest.fixture
def after(server, options):
    """The next size after these, each measured once in their order."""

    def found(sizes, *, turn=0, curve=CURVE, beyond=0, own=None, **more):
        own = own or options()
        trials = [trial_at(own, curve, size, beyond, number, "planned") for number, size in enumerate(sizes)]
        return next_size(own, Measured(curve, server(own, **more).all(trials)), turn, beyond)

    return found


SIZES = (100, 150, 200, 250, 300, 350)


def test_within_the_interval(after):
    size = after(SIZES, noise=0.05)
    assert 150 < size < 350 and size not in SIZES


def test_every_third_turn_repeats_a_size(after):
    assert after(SIZES, noise=0.05, turn=2) in SIZES


def test_a_few_lucky_trials_are_not_enough(after):
    assert after(SIZES, noise=0.0) is not None
    assert after(SIZES * 2, noise=0.0) is None


def test_beyond_the_largest_as_far_as_the_host_goes(after, options):
    assert after(SIZES, memory={30: 900.0}) == round(350 * 1.35)
    assert after(SIZES, memory={30: 900.0}, own=options(most=380)) == 380
    assert after(SIZES, memory={30: 900.0}, own=options(most=352)) is None


def test_below_the_smallest_down_to_the_shared_buffers(after):
    assert after(SIZES, memory={30: 1.0}, noise=0.0) == 75
    assert after((65, *SIZES), memory={30: 1.0}, noise=0.0) is None
    assert after((16, 32, 64, 96), curve=Curve("buffers", 30), beyond=100, buffers={30: 1.0}, noise=0.0) == 12


def test_both_ends_once_more_where_noise_hides_the_knee(after):
    assert after((100, 100, 150, 200, 250, 300, 350), memory={30: 1.0}, noise=0.5) == 350
    assert after((100, 150, 200, 250, 300, 350, 350), memory={30: 1.0}, noise=0.5) == 100


def test_between_what_lives_and_what_does_not(after):
    assert after(SIZES, memory={30: 1.0}, noise=0.0, lives=120.0) == 125
    assert after((100, 140, 145, 150, 200, 250, 300), memory={30: 1.0}, noise=0.0, lives=142.0) is None


def test_too_few_sizes(after):
    assert after((100, 300)) == 200


def test_nothing_lives(after):
    assert after(SIZES, lives=1000.0) is None
