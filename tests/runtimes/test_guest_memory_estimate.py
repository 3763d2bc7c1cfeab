import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.runtimes import guest_memory_estimate as what
from pgherd.runtimes.guest_memory_estimate import BalloonRates, BalloonStats, GuestMemoryEstimate, estimate, rates, unseen

MB = 2**20
MEMORY = 4096 * MB


def told(available=1000, free=None, at=10.0) -> BalloonStats:
    return BalloonStats(at=at, available=available * MB, free=None if free is None else free * MB)


def after(before, statistics, moved=None, *, actual=4096, target=4096, contended=False, seconds=1.0) -> GuestMemoryEstimate:
    return estimate(before, MEMORY, actual * MB, statistics, moved or BalloonRates(), seconds, target=target * MB, contended=contended)


def test_what_is_not_available_is_used_and_a_tenth_more_is_needed() -> None:
    first = after(None, told(3096))
    assert first.used == 1000 * MB and first.working_set == pytest.approx(1100 * MB) and not first.wants


def test_a_jump_is_smoothed() -> None:
    first = after(None, told(3096))
    second = after(first, told(2096))
    assert second.used == pytest.approx((1000 + 1000 * (1 - math.exp(-0.5))) * MB)


def test_rates_over_the_time_between() -> None:
    before = BalloonStats(at=10, swap_in=0, swap_out=0, major_faults=100, reads=0)
    later = BalloonStats(at=12, swap_in=8 * MB, swap_out=2 * MB, major_faults=612, reads=4 * MB)
    assert rates(before, later) == BalloonRates(refill=4 * MB + 2 * MB, swap_out=1 * MB)
    faults = BalloonStats(at=12, swap_in=0, major_faults=612)
    assert rates(before, faults).refill == 256 * what.PAGE, "faults that read a program's pages"
    assert rates(None, later) == BalloonRates() and rates(later, later) == BalloonRates()
    assert rates(later, BalloonStats(at=13, swap_in=1, major_faults=1)) == BalloonRates(), "the guest was started anew"


def test_who_brings_pages_in_with_nothing_free_wants() -> None:
    refilling = BalloonRates(refill=50 * MB)
    assert after(None, told(500, free=50), refilling).wants
    assert not after(None, told(2000, free=2000), refilling).wants, "it has room for them"
    assert not after(None, told(500, free=50), BalloonRates(refill=2 * MB)).wants, "a few pages are always read"
    assert not after(None, told(0, free=0)).wants, "cold pages may fill it"
    low = after(None, told(0, free=0), actual=1000, target=1000)
    assert after(low, told(20, free=20), actual=1020, target=1000).wants, "it has taken pages back out of its balloon"
    assert not after(low, told(20, free=20), actual=1020, target=1030).wants, "it was given them"


def test_a_want_asks_for_what_comes_in_and_is_remembered() -> None:
    wanting = after(None, told(100, free=20), BalloonRates(refill=50 * MB), actual=1000)
    assert wanting.working_set == pytest.approx((1000 + 50 * what.AHEAD) * MB)
    calm = after(wanting, told(300, free=20), actual=1200, contended=True)
    assert calm.known == 1000 * MB and calm.working_set >= what.MARGIN * 1000 * MB


def test_a_content_guest_is_tried_only_while_another_wants() -> None:
    item = after(None, told(96, free=90))
    for _ in range(60):
        item = after(item, told(96, free=90))
    assert item.active == 1
    for _ in range(30):
        item = after(item, told(96, free=90), contended=True)
    assert item.active == pytest.approx(math.exp(-30 / what.TRIED))


def test_a_known_need_holds_longer_each_time_that_a_trial_confirms_it() -> None:
    def waits(element: GuestMemoryEstimate) -> tuple[GuestMemoryEstimate, int]:
        seconds = 0
        while element.known:
            element, seconds = after(element, told(500, free=50), actual=1300, contended=True), seconds + 1
        return element, seconds

    item = after(None, told(100, free=20), BalloonRates(refill=50 * MB), actual=1000)
    lengths = []
    for _ in range(4):
        item, seconds = waits(item)
        lengths.append(seconds)
        item = after(item, told(100, free=20), BalloonRates(refill=50 * MB), actual=1000)
    assert lengths == [what.HOLD, 2 * what.HOLD, 4 * what.HOLD, 8 * what.HOLD]
    item, _ = waits(item)
    item = after(item, told(100, free=20), BalloonRates(refill=50 * MB), actual=500)
    assert item.hold == what.HOLD, "another demand: begun anew"


def test_a_demand_that_has_ended_is_noticed() -> None:
    item = after(None, told(100, free=20), BalloonRates(refill=50 * MB), actual=1000)
    for _ in range(int(what.CALM) + 1):
        item = after(item, told(100, free=20), actual=1000)
    assert item.known == 0


def test_silence() -> None:
    item = after(None, told(3096))
    for _ in range(3):
        item = unseen(item, 2048 * MB, 1.0)
    assert item.working_set == pytest.approx(1100 * MB), "believed for a while"
    for _ in range(20):
        item = unseen(item, 2048 * MB, 1.0)
    assert item.working_set == 2048 * MB and not item.wants, "then it is taken to use what it has"
    back = after(item, told(1048), actual=2048)
    assert back.used == 1000 * MB, "and its past says nothing"
    assert unseen(None, 7, 1.0).working_set == 7


def test_a_guest_that_tells_little() -> None:
    assert after(None, BalloonStats(at=1)).used == MEMORY, "nothing that it could spare is known"
    assert after(None, BalloonStats(at=1, free=3000 * MB)).used == 1096 * MB


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.floats(0, 1e10), st.booleans(), st.integers(0, 4096), st.floats(0.01, 60)),
        max_size=30,
    )
)
def test_a_need_is_never_negative_nor_above_the_memory(rows) -> None:
    item = None
    for available, free, refill, contended, actual, seconds in rows:
        item = after(item, told(available, free), BalloonRates(refill=refill), actual=actual, contended=contended, seconds=seconds)
        assert 0 <= item.working_set <= MEMORY
        assert 0 <= item.active <= 1 and what.HOLD <= item.hold <= what.LONGEST_HOLD
