"""What the control law of pg_balloon decides of one view, or of a few in a row."""

from __future__ import annotations

import ctypes
import math
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_interface import (
    BLOCK,
    BOTTOM,
    CALM,
    CEILING,
    CLEAN,
    EMPTY,
    EXHAUSTED,
    FLOOR,
    GIVE,
    HELD,
    IDLE,
    MB,
    NEED,
    NO_MEMORY,
    PINNED,
    STAY,
    SWAPPED,
    TAKE,
    TIDY,
    Law,
    Mind,
    Verdict,
    View,
    tuning_for,
)

RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def view(**different: float) -> View:
    """A server of 1 GB on a machine of 2 GB with half of it available, its pool full and half of it idle, at peace."""
    pool = 1024 * MB // BLOCK
    usual: dict[str, float] = {
        "dt": 0.1, "pool": pool, "floor": pool // 16, "ceiling": pool * 9 // 10, "block": BLOCK, "hot": 0.5, "miss_cost": -1,
        "limit": 2048 * MB, "available": 1024 * MB, "reachable": 1024 * MB, "stall": -1,
    }  # fmt: skip
    return View(
        **{name: int(value) if dict(View._fields_)[name] is ctypes.c_int64 else value for name, value in (usual | different).items()}
    )


def repeated(law: Law, one: View, ticks: int = 20) -> Verdict:
    """What it says after so many ticks of the same view."""
    mind = Mind()
    for _ in range(ticks):
        verdict = law(tuning_for(2048 * MB), one, mind)
    return verdict


def test_nothing_to_do_at_peace(law):
    verdict = repeated(law, view())
    assert (verdict.act, verdict.why) == (STAY, CALM)


def test_idle_memory_is_offered_before_anything_is_swapped(law):
    verdict = repeated(law, view(available=100 * MB, swapping=0, refaults=0))
    assert (verdict.act, verdict.why) == (GIVE, IDLE)
    assert 0 < verdict.buffers * BLOCK <= (0.08 * 2048 - 100) * MB + 256 * BLOCK, "not much more than is missing"
    assert verdict.write, "after two seconds also dirty pages"
    first = next(v for v in _ticks(law, view(available=100 * MB)) if v.act == GIVE)
    assert not _ticks(law, view(available=100 * MB))[0].act
    assert first.buffers <= verdict.buffers


def _ticks(law: Law, one: View, ticks: int = 20) -> list[Verdict]:
    mind = Mind()
    return [law(tuning_for(2048 * MB), one, mind) for _ in range(ticks)]


def test_the_idler_a_pool_the_sooner_it_gives(law):
    """One of which hardly anything is touched any more is idle beyond doubt; one that is half idle may be needed in a moment."""
    waits = [sum(not v.act for v in _ticks(law, view(available=100 * MB, dt=0.02, hot=hot), ticks=60)) for hot in (0.02, 0.15, 0.3, 0.5)]
    assert waits[0] * 0.02 <= 0.06
    assert waits[0] < waits[1] < waits[2] == waits[3]
    assert waits[3] * 0.02 == pytest.approx(0.4, abs=0.03)


def test_who_has_just_been_woken_is_not_kept_from_growing_by_his_own_swapped_pages(law):
    """All that it may give is in its balloon; what is left comes back from swap now, and somebody else has made room."""
    mind, pool = Mind(), view().pool
    woken = {"ballooned": pool * 9 // 10, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    short = view(**woken, available=10 * MB, reachable=10 * MB, own_refaults=5000, refaults=5000)
    first = [law(tuning_for(2048 * MB), short, mind) for _ in range(10)]
    assert {(v.act, v.why) for v in first} == {(STAY, NO_MEMORY)}
    assert law(tuning_for(2048 * MB), view(**woken, available=400 * MB, reachable=400 * MB), mind).act == TAKE


def test_who_regrets_a_gift_waits_longer_before_the_next(law):
    """By 0.1 s, 0.3 s, 0.7 s. From the second time on the need has to fade first, which takes as long each time."""
    needy = view(dt=0.02, ballooned=view().pool // 2, hot=1.0, misses=5000, miss_cost=2e-4)
    mind, waits = Mind(), []
    for _ in range(4):
        waits.append(0.0)
        while law(tuning_for(2048 * MB), view(dt=0.02, available=100 * MB), mind).act != GIVE:
            waits[-1] += 0.02
        while law(tuning_for(2048 * MB), needy, mind).act != TAKE:
            pass
    assert waits[0] == pytest.approx(0.4, abs=0.03)
    assert waits[1] > waits[0] + 0.1
    assert [after - before for before, after in pairwise(waits[1:])] == pytest.approx([0.2, 0.4], abs=0.05)


def test_who_gave_too_soon_learns_it_also_where_nothing_is_left_to_take_back(law):
    """Somebody else has taken it."""
    poor = {"dt": 0.02, "available": 62 * MB, "reachable": 62 * MB}  # reserve_low, and a little
    needy = view(**poor, ballooned=view().pool // 2, hot=1.0, misses=5000, miss_cost=2e-4)
    mind = Mind()
    for lesson in (0.1, 0.3, 0.7):
        while law(tuning_for(2048 * MB), view(**poor), mind).act != GIVE:
            pass
        assert {law(tuning_for(2048 * MB), needy, mind).act for _ in range(60)} == {STAY}
        assert mind.patience == pytest.approx(lesson, rel=0.1)


def test_rates_are_kept_however_often_it_looks(law):
    """Also those that allow less than a step in a tick."""
    needy = {"ballooned": view().pool // 2, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    for rate in (8, 100, 1024):
        tuning = tuning_for(2048 * MB)
        tuning.yield_rate = tuning.growth_rate = rate * MB
        for seen, act in ((view(dt=0.01, available=MB, reachable=MB, hot=0.0), GIVE), (view(dt=0.01, **needy), TAKE)):
            mind = Mind()
            acts = [law(tuning, seen, mind) for _ in range(300)][100:]
            assert {v.act for v in acts} == {act}
            assert (
                sum(v.buffers for v in acts) * BLOCK == pytest.approx(2 * rate * MB, rel=0.25)
                and max(v.buffers for v in acts) * BLOCK <= 0.01 * rate * MB
            )


def test_what_comes_back_from_swap_is_answered_alike_however_often_it_looks(law):
    """A group of pages in one tick is no reason to give what is in use."""
    given = []
    for dt in (0.01, 0.1):
        swapped = view(dt=dt, available=10 * MB, hot=1.0, refaults=2000, own_refaults=2000)
        given.append(sum(v.buffers for v in _ticks(law, swapped, round(2 / dt))))
    assert given[0] == pytest.approx(given[1], rel=0.15)
    mind = Mind()
    quiet, burst = (view(dt=0.01, available=50 * MB, hot=1.0, own_refaults=rate) for rate in (0, 400))
    for _ in range(20):
        assert law(tuning_for(2048 * MB), burst, mind).act == STAY
        for _ in range(20):
            assert law(tuning_for(2048 * MB), quiet, mind).act == STAY


def test_sessions_that_wait_show_what_a_miss_costs_now(law):
    """When pages were last read back they were in the page cache; now each is a read of a millisecond, for one session."""
    slow = {"ballooned": view().pool // 2, "hot": 1.0, "misses": 900, "miss_cost": 6e-6}
    assert repeated(law, view(**slow, waiting=0.9), ticks=30).act == TAKE
    assert repeated(law, view(**slow, waiting=0.01), ticks=30).act == STAY
    few = {"ballooned": view().pool // 2, "hot": 1.0, "misses": 5, "miss_cost": 6e-6}
    assert repeated(law, view(**few, waiting=1), ticks=30).act == STAY, "a scan with a ring of its own misses nothing"


def test_who_gave_is_not_given_to_for_a_moment(law):
    """A second if its own pool was being swapped, less if it gave what was idle: what it gave would come straight back."""
    needy = {"dt": 0.02, "ballooned": view().pool // 2, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    swapped = view(**needy, available=10 * MB, reachable=10 * MB, refaults=5000, own_refaults=5000)
    for gift, why, seconds in ((swapped, SWAPPED, 1.0), (view(dt=0.02, available=100 * MB), IDLE, 0.3)):
        mind = Mind()
        while (verdict := law(tuning_for(2048 * MB), gift, mind)).act != GIVE:
            pass
        assert verdict.why == why
        after = [law(tuning_for(2048 * MB), view(**needy), mind) for _ in range(60)]
        taken = next(number for number, v in enumerate(after) if v.act == TAKE)
        assert {(v.act, v.why) for v in after[:taken]} <= {(STAY, HELD), (STAY, CALM)}
        assert after[taken - 1].why == HELD and (taken + 1) * 0.02 == pytest.approx(seconds, abs=0.05)


def test_pages_needed_again_while_there_is_memory_bring_an_eighth_of_their_volume(law):
    """They may be of files that are read once."""
    for strain, volume in (({"refaults": 8000}, 8000 * 4096), ({"refaults": 500}, 500 * 4096), ({"swapping": 64 * MB}, 64 * MB)):
        for dt in (0.01, 0.1):
            verdicts = _ticks(law, view(dt=dt, hot=0.1, **strain), ticks=round(6 / dt))[round(2 / dt) :]
            given = [v.buffers for v in verdicts if v.act == GIVE]
            assert {v.why for v in verdicts} <= {CALM, IDLE} and min(given) >= 16, "not bit by bit"
            assert sum(given) * BLOCK == pytest.approx(4 * volume / 8, rel=0.1)
    assert repeated(law, view(hot=0.1, refaults=290), ticks=60).act == STAY, "so few are no sign of anything"


def test_pages_needed_again_beside_unused_memory_are_others_own_affair(law):
    """They come back into a group whose own limit is short, or after somebody had the kernel drop them: to give would help nobody."""
    reserve = tuning_for(2048 * MB).reserve_high
    for strain in ({"refaults": 8000}, {"swapping": 64 * MB}):
        assert repeated(law, view(hot=0.1, unclaimed=reserve - 1, **strain)).act == GIVE
        assert repeated(law, view(hot=0.1, unclaimed=reserve, **strain)).why == CALM
    assert repeated(law, view(hot=0.1, unclaimed=reserve, available=100 * MB)).act == GIVE, "what is available counts in any case"


def test_a_hot_pool_gives_nothing_while_it_is_not_swapped(law):
    assert repeated(law, view(available=40 * MB, hot=1.0)).act == STAY


def test_a_busy_pool_that_is_swapped_gives_a_little(law):
    verdicts = _ticks(law, view(available=10 * MB, hot=1.0, refaults=5000, own_refaults=5000))
    assert {(v.act, v.why) for v in verdicts} == {(GIVE, SWAPPED)}
    assert verdicts[0].buffers <= 5000 * 0.1, "at first fewer than came back from swap"
    assert all(v.buffers <= view().pool / 8 for v in verdicts)


def test_a_busy_pool_gives_slowly_when_nothing_is_left(law):
    verdicts = _ticks(law, view(available=10 * MB, hot=1.0), ticks=60)
    given = [v for v in verdicts if v.act == GIVE]
    assert {v.why for v in given} == {EXHAUSTED} and not any(v.act == GIVE for v in verdicts[:19])
    assert 3 <= len(given) <= 5, "once a second, after two seconds"
    assert all(v.buffers <= view().pool / 64 + 1 for v in given)


def test_need_takes_memory_back_and_stops_at_the_reserve(law):
    half = view().pool // 2
    needy = {"ballooned": half, "unused": 0, "misses": 5000, "miss_cost": 2e-4, "hot": 1.0}
    assert (repeated(law, view(**needy)).act, repeated(law, view(**needy)).why) == (TAKE, NEED)
    assert repeated(law, view(**needy)).prefetch
    poor = repeated(law, view(**needy, available=66 * MB, reachable=66 * MB))
    assert poor.act == TAKE and poor.buffers * BLOCK <= 3.5 * MB, "three quarters of what is above the reserve"
    none = repeated(law, view(**needy, available=60 * MB, reachable=60 * MB))
    assert (none.act, none.why) == (STAY, NO_MEMORY)


def test_growth_follows_what_a_miss_costs(law):
    half = view().pool // 2
    cheap = repeated(law, view(ballooned=half, misses=1000, miss_cost=6e-6, hot=1.0))
    dear = repeated(law, view(ballooned=half, misses=1000, miss_cost=5e-4, hot=1.0))
    assert cheap.act == STAY, "pages that the operating system has anyway are not worth memory"
    assert dear.act == TAKE
    stalled = repeated(law, view(ballooned=half, misses=100, stall=0.8, hot=1.0))
    assert stalled.act == TAKE, "unknown cost: by the waiting"


def test_a_pool_of_seldom_touched_pages_grows_as_it_misses_and_leaves_others_alone(law):
    """Its misses cost time, but what came back would lie idle: a few pages out of what is left over, and none while memory is short."""
    seldom = {"ballooned": view().pool // 2, "misses": 500, "miss_cost": 1e-3, "hot": 0.05}
    verdict = repeated(law, view(**seldom))
    assert (verdict.act, verdict.why, verdict.prefetch) == (TAKE, NEED, False)
    assert verdict.buffers <= 500 * 0.5 + 1, "what it misses in half a second"
    assert repeated(law, view(**(seldom | {"hot": 1.0}))).buffers > verdict.buffers
    short = repeated(law, view(**seldom, available=100 * MB, reachable=100 * MB))
    assert (short.act, short.why) == (GIVE, IDLE), "between the reserves, where one that is hot would still grow"


def test_clients_that_wait_for_slow_reads_are_not_idle(law):
    """They touch few pages, too few misses to be seen in a sample; but several of them wait all the time."""
    slow = {"ballooned": view().pool // 2, "hot": 0.02, "misses": 0, "miss_cost": 2e-2}
    assert repeated(law, view(**slow, waiting=5), ticks=30).act == TAKE
    assert repeated(law, view(**slow, waiting=5, available=100 * MB, reachable=100 * MB), ticks=30).act == TAKE, (
        "of what others are to give"
    )
    assert repeated(law, view(**slow, waiting=1, available=100 * MB, reachable=100 * MB), ticks=30).act == GIVE, "one alone may be a report"


def test_pages_that_it_reads_back_itself_are_no_room(law):
    """Half a second's worth of free buffers is not enough while they are being filled, whoever fills them."""
    half = view().pool // 2
    needy = {"ballooned": half, "unused": half // 20, "misses": 2000, "miss_cost": 5e-4, "hot": 1.0}
    assert repeated(law, view(**needy)).act == STAY
    assert repeated(law, view(**needy, filled=half // 5)).act == TAKE


def test_an_unused_buffer_is_no_need(law):
    half = view().pool // 2
    assert repeated(law, view(ballooned=half, unused=half // 4, misses=5000, miss_cost=1e-3)).act == STAY


def test_an_empty_pool_is_left_alone(law):
    pool = view().pool
    verdict = repeated(law, view(unused=pool * 99 // 100, available=MB, refaults=1e5, swapping=1e9, hot=0.0))
    assert (verdict.act, verdict.why) == (STAY, EMPTY)


def test_the_bands_overlap(law):
    """Between the two reserves a needy server still grows while an idle one already gives."""
    between = {"available": 100 * MB, "reachable": 100 * MB}
    assert repeated(law, view(**between)).act == GIVE
    assert repeated(law, view(**between, ballooned=view().pool // 2, misses=5000, miss_cost=2e-4, hot=1.0)).act == TAKE


def test_too_many_pins_bring_buffers_back(law):
    verdict = repeated(law, view(ballooned=view().pool // 2, pinned=0.7, available=MB))
    assert (verdict.act, verdict.why) == (TAKE, PINNED)


def test_below_the_floor_it_takes_up_to_it_before_anything_else(law):
    """A setting or new sessions have raised it."""
    pool = view().pool
    verdict = repeated(law, view(ballooned=pool * 15 // 16 + 1000, ceiling=pool, available=MB, swapping=1e9), ticks=1)
    assert (verdict.act, verdict.why, verdict.buffers) == (TAKE, FLOOR, 1000)


def test_above_a_ceiling_that_was_lowered_it_takes_down_to_it(law):
    pool = view().pool
    verdict = repeated(law, view(ballooned=pool // 2 + 1000, ceiling=pool // 2, available=MB, swapping=1e9), ticks=1)
    assert (verdict.act, verdict.why, verdict.buffers) == (TAKE, CEILING, 1000)


@RELAXED
@given(pins=st.integers(0, 4000), ballooned=st.integers(0, 130_000))
def test_pins_and_pressure_do_not_make_it_give_and_take_in_turns(law, pins, ballooned):
    """Memory is short and stays so, and a part of the pool is pinned: it comes to rest, with no more than half of what is left pinned."""
    pool, mind = view().pool, Mind()
    acts = []
    for _ in range(200):
        live = pool - ballooned
        pins = min(pins, live)
        share = pins / live
        one = view(ballooned=ballooned, floor=1024, ceiling=pool, available=20 * MB, reachable=20 * MB, pinned=share, hot=share)
        verdict = law(tuning_for(2048 * MB), one, mind)
        ballooned += {GIVE: verdict.buffers, TAKE: -verdict.buffers}.get(verdict.act, 0)
        acts.append(verdict.act)
    moved = [act for act in acts if act in (GIVE, TAKE)]
    turns = sum(one != other for one, other in pairwise(moved))
    assert turns <= 1, acts
    assert pins <= 0.5 * (pool - ballooned)


def test_nothing_is_given_beyond_floor_and_ceiling(law):
    pool = view().pool
    verdict = repeated(law, view(ballooned=pool * 9 // 10, available=MB))
    assert (verdict.act, verdict.why) == (STAY, BOTTOM)


def test_dirty_pages_are_given_only_when_the_shortage_lasts(law):
    given = [verdict for verdict in _ticks(law, view(available=100 * MB, dt=0.05, hot=0.0)) if verdict.act == GIVE]
    assert given[-1].write
    mind = Mind(quiet=10)
    first = law(tuning_for(2048 * MB), view(available=100 * MB), mind)
    assert first.act == GIVE and not first.write, "a shortage that has just begun"


def test_dirty_pages_of_an_idle_pool_are_written_ahead(law):
    verdict = repeated(law, view(dirty=0.8, hot=0.2), ticks=40)
    assert (verdict.act, verdict.why) == (CLEAN, TIDY)
    assert verdict.buffers * BLOCK <= 16 * MB * 0.1
    assert repeated(law, view(dirty=0.8, hot=0.8), ticks=40).act == STAY, "a busy one would make them dirty again"


def test_no_more_is_kept_clean_ahead_than_may_be_asked_for_at_once(law):
    """Giving fills the reserve of 8 % up; what else is asked for is written then."""
    used, idle = view().pool, view().pool * (1 - 1.1 * 0.2)
    reserve = tuning_for(2048 * MB).reserve_high // BLOCK
    assert reserve < idle, "the example is one"

    def ahead(clean: float) -> Verdict:
        return repeated(law, view(dirty=(idle - clean) / used, hot=0.2), ticks=40)

    assert ahead(reserve - 100).act == CLEAN and 98 <= ahead(reserve - 100).buffers <= 101, "as many as are missing"
    assert ahead(reserve + 100).act == STAY
    assert ahead(-100).act == CLEAN, "more are dirty than look idle"
    mind = Mind()
    verdicts = [law(tuning_for(2048 * 100 * MB), view(dirty=0.3, hot=0.2, available=2048 * 99 * MB), mind) for _ in range(40)]
    assert verdicts[-1].act == CLEAN, "all that are idle, where the reserve is larger than the pool"


pages = st.integers(0, 10**7)
shares = st.floats(0, 1)
rates = st.floats(0, 1e9)


@RELAXED
@given(data=st.data())
def test_no_view_makes_it_break_its_bounds(law, data):
    """Whatever it sees, it moves no more than there is, never beyond floor or ceiling, and says why."""
    mind = Mind()
    tuning = tuning_for(data.draw(st.integers(MB, 2**40)), *sorted((data.draw(shares), data.draw(shares))))
    for _ in range(5):
        pool = data.draw(st.integers(16, 10**8))
        ballooned = data.draw(st.integers(0, pool))
        seen = View(
            dt=data.draw(st.floats(1e-3, 100)), pool=pool, ballooned=ballooned, unused=data.draw(st.integers(0, pool)),
            floor=data.draw(st.integers(0, pool)), ceiling=data.draw(st.integers(0, pool)), block=BLOCK, hot=data.draw(shares),
            pinned=data.draw(shares), misses=data.draw(rates), filled=data.draw(rates), miss_cost=data.draw(st.floats(-1, 10)),
            waiting=data.draw(st.integers(0, 1000)), dirty=data.draw(shares),
            limit=data.draw(st.integers(0, 2**50)), available=data.draw(st.integers(-(2**40), 2**50)),
            reachable=data.draw(st.integers(-(2**40), 2**50)), unclaimed=data.draw(st.integers(-(2**40), 2**50)),
            refaults=data.draw(rates), own_refaults=data.draw(rates), swapping=data.draw(rates),
            stall=data.draw(st.floats(-1, 1)),
        )  # fmt: skip
        verdict = law(tuning, seen, mind)
        assert verdict.buffers >= 0 and (verdict.act != STAY or verdict.buffers == 0)
        if verdict.act == GIVE:
            assert verdict.buffers <= pool - seen.floor - ballooned and verdict.buffers <= seen.ceiling - ballooned
        if verdict.act == TAKE:
            assert verdict.buffers <= ballooned
        assert all(math.isfinite(getattr(mind, name)) for name, _ in Mind._fields_)
