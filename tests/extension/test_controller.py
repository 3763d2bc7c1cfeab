"""What the control law of pg_balloon decides of one view, or of a few in a row."""

from __future__ import annotations

import ctypes
import math
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller_interface import (
    AT_LIMIT,
    BLOCK,
    CEILING,
    DEFLATE,
    EXHAUSTED,
    FLOOR,
    HOLD,
    IDLE,
    INFLATE,
    LIMIT_FELL,
    MB,
    MISSES,
    NO_MEMORY,
    ON_HOLD,
    PAGE,
    PINNED,
    POOL_NOT_FULL,
    POOL_SWAPPED,
    STEADY,
    WRITE_AHEAD,
    WRITEBACK,
    Controller,
    Decision,
    Input,
    State,
    limits_for,
)

RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def inputs(**different: float) -> Input:
    """A server of 1 GB on a machine of 2 GB with half of it available, its pool full and half of it idle, at peace."""
    pool = 1024 * MB // BLOCK
    usual: dict[str, float] = {
        "dt": 0.1, "pool": pool, "floor": pool // 16, "ceiling": pool * 9 // 10, "block": BLOCK, "page": PAGE, "hot": 0.5,
        "miss_cost": -1, "limit": 2048 * MB, "available": 1024 * MB, "reachable": 1024 * MB, "stall": -1,
    }  # fmt: skip
    given = usual | different
    given.setdefault("reachable_high", given["reachable"])
    return Input(**{name: int(value) if dict(Input._fields_)[name] is ctypes.c_int64 else value for name, value in given.items()})


def repeated(controller: Controller, item: Input, ticks: int = 20) -> Decision:
    """What it says after so many ticks of the same view."""
    state = State()
    for _ in range(ticks):
        decision = controller(limits_for(2048 * MB), item, state)
    return decision


def test_nothing_to_do_at_peace(controller):
    decision = repeated(controller, inputs())
    assert (decision.action, decision.reason) == (HOLD, STEADY)


def test_idle_memory_is_offered_before_anything_is_swapped(controller):
    decision = repeated(controller, inputs(available=100 * MB, swapping=0, refaults=0))
    assert (decision.action, decision.reason) == (INFLATE, IDLE)
    assert 0 < decision.buffers * BLOCK <= (0.08 * 2048 - 100) * MB + 256 * BLOCK, "not much more than is missing"
    assert decision.write, "after two seconds also dirty pages"
    first = next(v for v in _ticks(controller, inputs(available=100 * MB)) if v.action == INFLATE)
    assert not _ticks(controller, inputs(available=100 * MB))[0].action
    assert first.buffers <= decision.buffers


def _ticks(controller: Controller, item: Input, ticks: int = 20) -> list[Decision]:
    state = State()
    return [controller(limits_for(2048 * MB), item, state) for _ in range(ticks)]


def test_the_idler_a_pool_the_sooner_it_gives(controller):
    """One of which hardly anything is touched any more is idle beyond doubt; one that is half idle may be needed in a moment."""
    waits = [
        sum(not v.action for v in _ticks(controller, inputs(available=100 * MB, dt=0.02, hot=hot), ticks=60))
        for hot in (0.02, 0.15, 0.3, 0.5)
    ]
    assert waits[0] * 0.02 <= 0.06
    assert waits[0] < waits[1] < waits[2] == waits[3]
    assert waits[3] * 0.02 == pytest.approx(0.4, abs=0.03)


def test_who_has_just_been_woken_is_not_kept_from_growing_by_his_own_swapped_pages(controller):
    """All that it may give is in its balloon; what is left comes back from swap now, and somebody else has made room."""
    state, pool = State(), inputs().pool
    woken = {"ballooned": pool * 9 // 10, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    short = inputs(**woken, available=10 * MB, reachable=10 * MB, own_refaults=5000, refaults=5000)
    first = [controller(limits_for(2048 * MB), short, state) for _ in range(10)]
    assert {(v.action, v.reason) for v in first} == {(HOLD, NO_MEMORY)}
    assert controller(limits_for(2048 * MB), inputs(**woken, available=400 * MB, reachable=400 * MB), state).action == DEFLATE


def test_who_regrets_a_gift_waits_longer_before_the_next(controller):
    """By 0.1 s, 0.3 s, 0.7 s. From the second time on the need has to fade first, which takes as long each time."""
    needy = inputs(dt=0.02, ballooned=inputs().pool // 2, hot=1.0, misses=5000, miss_cost=2e-4)
    state, waits = State(), []
    for _ in range(4):
        waits.append(0.0)
        while controller(limits_for(2048 * MB), inputs(dt=0.02, available=100 * MB), state).action != INFLATE:
            waits[-1] += 0.02
        while controller(limits_for(2048 * MB), needy, state).action != DEFLATE:
            pass
    assert waits[0] == pytest.approx(0.4, abs=0.03)
    assert waits[1] > waits[0] + 0.1
    assert [after - before for before, after in pairwise(waits[1:])] == pytest.approx([0.2, 0.4], abs=0.05)


def test_who_gave_too_soon_learns_it_also_where_nothing_is_left_to_take_back(controller):
    """Somebody else has taken it."""
    poor = {"dt": 0.02, "available": 62 * MB, "reachable": 62 * MB}  # reserve_low, and a little
    needy = inputs(**poor, ballooned=inputs().pool // 2, hot=1.0, misses=5000, miss_cost=2e-4)
    state = State()
    for lesson in (0.1, 0.3, 0.7):
        while controller(limits_for(2048 * MB), inputs(**poor), state).action != INFLATE:
            pass
        assert {controller(limits_for(2048 * MB), needy, state).action for _ in range(60)} == {HOLD}
        assert state.extra_quiet_s == pytest.approx(lesson, rel=0.1)


def test_rates_are_kept_however_often_it_looks(controller):
    """Also those that allow less than a step in a tick."""
    needy = {"ballooned": inputs().pool // 2, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    for rate in (8, 100, 1024):
        limits = limits_for(2048 * MB)
        limits.max_inflate_rate = limits.max_deflate_rate = rate * MB
        for observed, action in ((inputs(dt=0.01, available=MB, reachable=MB, hot=0.0), INFLATE), (inputs(dt=0.01, **needy), DEFLATE)):
            state = State()
            actions = [controller(limits, observed, state) for _ in range(300)][100:]
            assert {v.action for v in actions} == {action}
            assert (
                sum(v.buffers for v in actions) * BLOCK == pytest.approx(2 * rate * MB, rel=0.25)
                and max(v.buffers for v in actions) * BLOCK <= 0.01 * rate * MB
            )


def test_what_comes_back_from_swap_is_answered_alike_however_often_it_looks(controller):
    """A group of pages in one tick is no reason to give what is in use."""
    requested = []
    for dt in (0.01, 0.1):
        swapped = inputs(dt=dt, available=10 * MB, hot=1.0, refaults=2000, own_refaults=2000)
        requested.append(sum(v.buffers for v in _ticks(controller, swapped, round(2 / dt))))
    assert requested[0] == pytest.approx(requested[1], rel=0.15)
    state = State()
    quiet, burst = (inputs(dt=0.01, available=50 * MB, hot=1.0, own_refaults=rate) for rate in (0, 400))
    for _ in range(20):
        assert controller(limits_for(2048 * MB), burst, state).action == HOLD
        for _ in range(20):
            assert controller(limits_for(2048 * MB), quiet, state).action == HOLD


def test_sessions_that_wait_show_what_a_miss_costs_now(controller):
    """When pages were last read back they were in the page cache; now each is a read of a millisecond, for one session."""
    slow = {"ballooned": inputs().pool // 2, "hot": 1.0, "misses": 900, "miss_cost": 6e-6}
    assert repeated(controller, inputs(**slow, waiting=0.9), ticks=30).action == DEFLATE
    assert repeated(controller, inputs(**slow, waiting=0.01), ticks=30).action == HOLD
    few = {"ballooned": inputs().pool // 2, "hot": 1.0, "misses": 5, "miss_cost": 6e-6}
    assert repeated(controller, inputs(**few, waiting=1), ticks=30).action == HOLD, "a scan with a ring of its own misses nothing"


def test_who_gave_is_not_given_to_for_a_moment(controller):
    """A second if its own pool was being swapped, less if it gave what was idle: what it gave would come straight back."""
    needy = {"dt": 0.02, "ballooned": inputs().pool // 2, "hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    swapped = inputs(**needy, available=10 * MB, reachable=10 * MB, refaults=5000, own_refaults=5000)
    for gift, reason, seconds in ((swapped, POOL_SWAPPED, 1.0), (inputs(dt=0.02, available=100 * MB), IDLE, 0.3)):
        state = State()
        while (decision := controller(limits_for(2048 * MB), gift, state)).action != INFLATE:
            pass
        assert decision.reason == reason
        after = [controller(limits_for(2048 * MB), inputs(**needy), state) for _ in range(60)]
        taken = next(number for number, v in enumerate(after) if v.action == DEFLATE)
        assert {(v.action, v.reason) for v in after[:taken]} <= {(HOLD, ON_HOLD), (HOLD, STEADY)}
        assert after[taken - 1].reason == ON_HOLD and (taken + 1) * 0.02 == pytest.approx(seconds, abs=0.05)


def test_pages_needed_again_while_there_is_memory_bring_an_eighth_of_their_volume(controller):
    """They may be of files that are read once."""
    for strain, volume in (({"refaults": 8000}, 8000 * 4096), ({"refaults": 500}, 500 * 4096), ({"swapping": 64 * MB}, 64 * MB)):
        for dt in (0.01, 0.1):
            decisions = _ticks(controller, inputs(dt=dt, hot=0.1, **strain), ticks=round(6 / dt))[round(2 / dt) :]
            requested = [v.buffers for v in decisions if v.action == INFLATE]
            assert {v.reason for v in decisions} <= {STEADY, IDLE} and min(requested) >= 16, "not bit by bit"
            assert sum(requested) * BLOCK == pytest.approx(4 * volume / 8, rel=0.1, abs=16 * BLOCK)
    assert repeated(controller, inputs(hot=0.1, refaults=290), ticks=60).action == HOLD, "so few are no sign of anything"


@pytest.mark.parametrize("block", [8192, 32768])
@pytest.mark.parametrize("page", [4096, 65536])
def test_volumes_count_and_not_numbers_of_pages(controller, page, block):
    """Pages of the operating system and buffers have different sizes: equal volumes lead to equal volumes."""
    pool = 1024 * MB // block
    usual = {"page": page, "block": block, "pool": pool, "floor": pool // 16, "ceiling": pool * 9 // 10}
    weak = _ticks(controller, inputs(**usual, hot=0.1, refaults=8 * MB / page), ticks=60)[20:]
    assert sum(v.buffers for v in weak) * block == pytest.approx(4 * 8 * MB / 8, rel=0.1)
    assert repeated(controller, inputs(**usual, hot=0.1, refaults=MB / page), ticks=60).action == HOLD
    least = _ticks(controller, inputs(**usual, hot=0.1, refaults=1.25 * MB / page), ticks=60)[20:]
    assert any(v.action == INFLATE for v in least), "the weakest shortage moves something with any size of buffers"
    swapped = inputs(**usual, dt=0.01, available=10 * MB, hot=1.0, refaults=32 * MB / page, own_refaults=32 * MB / page)
    given = [v for v in _ticks(controller, swapped, ticks=100) if v.action == INFLATE]
    assert {v.reason for v in given} == {POOL_SWAPPED}
    assert sum(v.buffers for v in given) * block == pytest.approx(32 * 1.15 * MB, rel=0.15), "in the first second, 1 to 2 times that"


def test_refaults_that_are_unknown_are_none(controller):
    unknown = inputs(available=10 * MB, hot=1.0, refaults=-1, own_refaults=-1)
    assert {v.reason for v in _ticks(controller, unknown, ticks=30)} == {STEADY, EXHAUSTED}, "not that its pool is swapped"
    assert repeated(controller, inputs(refaults=-1, own_refaults=-1)).reason == STEADY


def test_pages_needed_again_beside_unused_memory_are_others_own_affair(controller):
    """They come back into a group whose own limit is short, or after somebody had the kernel drop them: to give would help nobody."""
    reserve = limits_for(2048 * MB).high_watermark
    for strain in ({"refaults": 8000}, {"swapping": 64 * MB}):
        assert repeated(controller, inputs(hot=0.1, unclaimed=reserve - 1, **strain)).action == INFLATE
        assert repeated(controller, inputs(hot=0.1, unclaimed=reserve, **strain)).reason == STEADY
    assert repeated(controller, inputs(hot=0.1, unclaimed=reserve, available=100 * MB)).action == INFLATE, (
        "what is available counts in any case"
    )


def test_a_hot_pool_gives_nothing_while_it_is_not_swapped(controller):
    assert repeated(controller, inputs(available=40 * MB, hot=1.0)).action == HOLD


def test_a_busy_pool_makes_room_below_a_lower_limit(controller):
    """Until the high watermark, which is 164 MB here, has been available for three seconds. Later shortages do not count as that."""
    busy = {"hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    limits, state = limits_for(2048 * MB), State()

    def decide(**different: float) -> Decision:
        return controller(limits, inputs(**busy, **different), state)

    assert decide(available=40 * MB, limit_fall=512 * MB).action == HOLD, "others may have idle pages"
    assert decide(available=40 * MB).action == HOLD
    lowered = decide(available=40 * MB)
    assert (lowered.action, lowered.reason, lowered.write) == (INFLATE, LIMIT_FELL, True)
    later = decide(available=160 * MB)
    assert (later.action, later.reason) == (INFLATE, LIMIT_FELL)
    assert 0 < later.buffers * BLOCK <= 5 * MB, "what is missing"
    assert decide(available=170 * MB, dt=10).action == HOLD
    assert [decide(available=40 * MB).action for _ in range(5)] == [HOLD] * 5
    assert decide(available=200 * MB, limit_fall=512 * MB).action == HOLD, "it fits"


def test_room_for_a_lower_limit_that_is_used_at_once_is_made_again(controller):
    """Tried: sessions that just began used what was inflated, and the kernel refused the limit for 16 s."""
    busy = {"hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    limits, state = limits_for(2048 * MB), State()

    def actions(available: int, fell: int = 0) -> list[int]:
        return [controller(limits, inputs(**busy, available=available, limit_fall=fell), state).action for _ in range(3)]

    assert actions(40 * MB, fell=256 * MB)[-1] == INFLATE
    assert actions(170 * MB) == [HOLD] * 3
    assert actions(40 * MB)[-1] == INFLATE


def test_room_for_a_limit_that_falls_again_is_made_without_a_further_wait(controller):
    """Cgroup v1 keeps a limit that it refuses, so a manager lowers it step by step, as room is made."""
    busy = {"hot": 1.0, "misses": 5000, "miss_cost": 2e-4}
    limits, state = limits_for(2048 * MB), State()

    def action(available: int, fell: int = 0) -> int:
        return int(controller(limits, inputs(**busy, available=available, limit_fall=fell), state).action)

    assert action(40 * MB, fell=64 * MB) == HOLD, "others may have idle pages"
    assert [action(40 * MB), action(40 * MB)][-1] == INFLATE
    assert action(170 * MB) == HOLD
    for _ in range(5):
        assert action(40 * MB, fell=64 * MB) == INFLATE
        assert action(170 * MB) == HOLD
    assert [action(170 * MB) for _ in range(40)] == [HOLD] * 40
    assert action(40 * MB, fell=64 * MB) == HOLD, "the next one is a new one"


def test_a_swapped_pool_does_not_shorten_the_hold_of_a_lower_limit(controller):
    limits, state = limits_for(2048 * MB), State(hold_s=3.0)
    swapped = controller(limits, inputs(available=10 * MB, hot=1.0, refaults=50000, own_refaults=50000), state)
    assert (swapped.action, swapped.reason) == (INFLATE, POOL_SWAPPED)
    assert state.hold_s > 2


def test_a_limit_that_falls_a_little_moves_nothing(controller):
    """4 MB every second of 2 GB: the low watermark is what a busy server keeps."""
    state = State()
    for _ in range(100):
        trimmed = inputs(hot=1.0, available=80 * MB, reachable=80 * MB, misses=5000, miss_cost=2e-4, limit_fall=MB // 2)
        assert controller(limits_for(2048 * MB), trimmed, state).action == HOLD


def test_a_pool_that_can_give_no_more_does_not_make_room_for_ever(controller):
    """At its ceiling, with 100 MB available, it would give back and take again."""
    pool, state = inputs().pool, State()
    at_ceiling = {"hot": 1.0, "misses": 5000, "miss_cost": 2e-4, "ballooned": pool * 9 // 10, "available": 100 * MB, "reachable": 100 * MB}
    assert controller(limits_for(2048 * MB), inputs(**at_ceiling, limit_fall=512 * MB), state).action != INFLATE
    taken = inputs(**(at_ceiling | {"ballooned": pool * 8 // 10, "unused": 100 * MB // BLOCK}))
    assert all(controller(limits_for(2048 * MB), taken, state).action != INFLATE for _ in range(50))


def test_a_busy_pool_that_is_swapped_gives_a_little(controller):
    decisions = _ticks(controller, inputs(available=10 * MB, hot=1.0, refaults=5000, own_refaults=5000))
    assert {(v.action, v.reason) for v in decisions} == {(INFLATE, POOL_SWAPPED)}
    assert decisions[0].buffers <= 5000 * 0.1, "at first fewer than came back from swap"
    assert all(v.buffers <= inputs().pool / 8 for v in decisions)


def test_a_busy_pool_gives_slowly_when_nothing_is_left(controller):
    decisions = _ticks(controller, inputs(available=10 * MB, hot=1.0), ticks=60)
    requested = [v for v in decisions if v.action == INFLATE]
    assert {v.reason for v in requested} == {EXHAUSTED} and not any(v.action == INFLATE for v in decisions[:19])
    assert 3 <= len(requested) <= 5, "once a second, after two seconds"
    assert all(v.buffers <= inputs().pool / 64 + 1 for v in requested)


def test_time_in_which_another_rule_decided_is_no_reason_to_give_faster(controller):
    """For half a minute the pool was swapped. Then it gives a part each second, as usual."""
    state = State()
    limits = limits_for(2048 * MB)
    for _ in range(300):
        swapped = controller(limits, inputs(available=10 * MB, hot=1.0, own_refaults=50_000, refaults=50_000), state)
    assert swapped.reason == POOL_SWAPPED
    rest = [controller(limits, inputs(available=10 * MB, hot=1.0), state) for _ in range(100)]
    assert 3 <= sum(v.action == INFLATE and v.reason == EXHAUSTED for v in rest) <= 10, "ten seconds"


def test_a_needy_server_gives_nothing_though_no_page_is_seen_in_use(controller):
    """A large pool on slow storage: sessions wait for reads, and no sampled page is accessed."""
    decision = repeated(controller, inputs(available=100 * MB, hot=0.0, waiting=4, misses=500, miss_cost=5e-3))
    assert (decision.action, decision.reason) != (INFLATE, IDLE)


def test_need_takes_memory_back_and_stops_at_the_reserve(controller):
    half = inputs().pool // 2
    needy = {"ballooned": half, "unused": 0, "misses": 5000, "miss_cost": 2e-4, "hot": 1.0}
    assert (repeated(controller, inputs(**needy)).action, repeated(controller, inputs(**needy)).reason) == (DEFLATE, MISSES)
    assert repeated(controller, inputs(**needy)).prefetch
    poor = repeated(controller, inputs(**needy, available=66 * MB, reachable=66 * MB))
    assert poor.action == DEFLATE and poor.buffers * BLOCK <= 3.5 * MB, "three quarters of what is above the reserve"
    none = repeated(controller, inputs(**needy, available=60 * MB, reachable=60 * MB))
    assert (none.action, none.reason) == (HOLD, NO_MEMORY)


def test_growth_follows_what_a_miss_costs(controller):
    half = inputs().pool // 2
    cheap = repeated(controller, inputs(ballooned=half, misses=1000, miss_cost=6e-6, hot=1.0))
    dear = repeated(controller, inputs(ballooned=half, misses=1000, miss_cost=5e-4, hot=1.0))
    assert cheap.action == HOLD, "pages that the operating system has anyway are not worth memory"
    assert dear.action == DEFLATE
    stalled = repeated(controller, inputs(ballooned=half, misses=100, stall=0.8, hot=1.0))
    assert stalled.action == DEFLATE, "unknown cost: by the waiting"


def test_a_pool_of_seldom_touched_pages_grows_as_it_misses_and_leaves_others_alone(controller):
    """Its misses cost time, but what came back would lie idle: a few pages out of what is left over, and none while memory is short."""
    seldom = {"ballooned": inputs().pool // 2, "misses": 500, "miss_cost": 1e-3, "hot": 0.05}
    decision = repeated(controller, inputs(**seldom))
    assert (decision.action, decision.reason, decision.prefetch) == (DEFLATE, MISSES, False)
    assert decision.buffers <= 500 * 0.5 + 1, "what it misses in half a second"
    assert repeated(controller, inputs(**(seldom | {"hot": 1.0}))).buffers > decision.buffers
    short = repeated(controller, inputs(**seldom, available=100 * MB, reachable=100 * MB))
    assert (short.action, short.reason) == (INFLATE, IDLE), "between the reserves, where one that is hot would still grow"


def test_clients_that_wait_for_slow_reads_are_not_idle(controller):
    """They touch few pages, too few misses to be seen in a sample; but several of them wait all the time."""
    slow = {"ballooned": inputs().pool // 2, "hot": 0.02, "misses": 0, "miss_cost": 2e-2}
    assert repeated(controller, inputs(**slow, waiting=5), ticks=30).action == DEFLATE
    assert repeated(controller, inputs(**slow, waiting=5, available=100 * MB, reachable=100 * MB), ticks=30).action == DEFLATE, (
        "of what others are to give"
    )
    assert repeated(controller, inputs(**slow, waiting=1, available=100 * MB, reachable=100 * MB), ticks=30).action == INFLATE, (
        "one alone may be a report"
    )


def test_pages_that_it_reads_back_itself_are_no_room(controller):
    """Half a second's worth of free buffers is not enough while they are being filled, whoever fills them."""
    half = inputs().pool // 2
    needy = {"ballooned": half, "unused": half // 20, "misses": 2000, "miss_cost": 5e-4, "hot": 1.0}
    assert repeated(controller, inputs(**needy)).action == HOLD
    assert repeated(controller, inputs(**needy, filled=half // 5)).action == DEFLATE


def test_an_unused_buffer_is_no_need(controller):
    half = inputs().pool // 2
    assert repeated(controller, inputs(ballooned=half, unused=half // 4, misses=5000, miss_cost=1e-3)).action == HOLD


def test_an_empty_pool_is_left_alone(controller):
    pool = inputs().pool
    decision = repeated(controller, inputs(unused=pool * 99 // 100, available=MB, refaults=1e5, swapping=1e9, hot=0.0))
    assert (decision.action, decision.reason) == (HOLD, POOL_NOT_FULL)


def test_the_bands_overlap(controller):
    """Between the two reserves a needy server still grows while an idle one already gives."""
    between = {"available": 100 * MB, "reachable": 100 * MB}
    assert repeated(controller, inputs(**between)).action == INFLATE
    assert repeated(controller, inputs(**between, ballooned=inputs().pool // 2, misses=5000, miss_cost=2e-4, hot=1.0)).action == DEFLATE


def test_too_many_pins_bring_buffers_back(controller):
    decision = repeated(controller, inputs(ballooned=inputs().pool // 2, pinned=0.7, available=MB))
    assert (decision.action, decision.reason) == (DEFLATE, PINNED)


def test_below_the_floor_it_takes_up_to_it_before_anything_else(controller):
    """A setting or new sessions have raised it."""
    pool = inputs().pool
    decision = repeated(controller, inputs(ballooned=pool * 15 // 16 + 1000, ceiling=pool, available=MB, swapping=1e9), ticks=1)
    assert (decision.action, decision.reason, decision.buffers) == (DEFLATE, FLOOR, 1000)


def test_above_a_ceiling_that_was_lowered_it_takes_down_to_it(controller):
    pool = inputs().pool
    decision = repeated(controller, inputs(ballooned=pool // 2 + 1000, ceiling=pool // 2, available=MB, swapping=1e9), ticks=1)
    assert (decision.action, decision.reason, decision.buffers) == (DEFLATE, CEILING, 1000)


@RELAXED
@given(pins=st.integers(0, 4000), ballooned=st.integers(0, 130_000))
def test_pins_and_pressure_do_not_make_it_give_and_take_in_turns(controller, pins, ballooned):
    """Memory is short and stays so, and a part of the pool is pinned: it comes to rest, with no more than half of what is left pinned."""
    pool, state = inputs().pool, State()
    actions = []
    for _ in range(200):
        live = pool - ballooned
        pins = min(pins, live)
        share = pins / live
        item = inputs(ballooned=ballooned, floor=1024, ceiling=pool, available=20 * MB, reachable=20 * MB, pinned=share, hot=share)
        decision = controller(limits_for(2048 * MB), item, state)
        ballooned += {INFLATE: decision.buffers, DEFLATE: -decision.buffers}.get(decision.action, 0)
        actions.append(decision.action)
    moved = [action for action in actions if action in (INFLATE, DEFLATE)]
    turns = sum(element != other for element, other in pairwise(moved))
    assert turns <= 1, actions
    assert pins <= 0.5 * (pool - ballooned)


def test_nothing_is_given_beyond_floor_and_ceiling(controller):
    pool = inputs().pool
    decision = repeated(controller, inputs(ballooned=pool * 9 // 10, available=MB))
    assert (decision.action, decision.reason) == (HOLD, AT_LIMIT)


def test_dirty_pages_are_given_only_when_the_shortage_lasts(controller):
    ticks = [decision for decision in _ticks(controller, inputs(available=100 * MB, dt=0.05, hot=0.0)) if decision.action == INFLATE]
    assert ticks[-1].write
    state = State(idle_s=10)
    first = controller(limits_for(2048 * MB), inputs(available=100 * MB), state)
    assert first.action == INFLATE and not first.write, "a shortage that has just begun"


def test_dirty_pages_of_an_idle_pool_are_written_ahead(controller):
    decision = repeated(controller, inputs(dirty=0.8, hot=0.2), ticks=40)
    assert (decision.action, decision.reason) == (WRITEBACK, WRITE_AHEAD)
    assert decision.buffers * BLOCK <= 16 * MB * 0.1
    assert repeated(controller, inputs(dirty=0.8, hot=0.8), ticks=40).action == HOLD, "a busy one would make them dirty again"


def test_no_more_is_kept_clean_ahead_than_may_be_asked_for_at_once(controller):
    """Giving fills the reserve of 8 % up; what else is asked for is written then."""
    used, idle = inputs().pool, inputs().pool * (1 - 1.1 * 0.2)
    reserve = limits_for(2048 * MB).high_watermark // BLOCK
    assert reserve < idle, "the example is one"

    def ahead(clean: float) -> Decision:
        return repeated(controller, inputs(dirty=(idle - clean) / used, hot=0.2), ticks=40)

    assert ahead(reserve - 100).action == WRITEBACK and 98 <= ahead(reserve - 100).buffers <= 101, "as many as are missing"
    assert ahead(reserve + 100).action == HOLD
    assert ahead(-100).action == WRITEBACK, "more are dirty than look idle"
    state = State()
    decisions = [controller(limits_for(2048 * 100 * MB), inputs(dirty=0.3, hot=0.2, available=2048 * 99 * MB), state) for _ in range(40)]
    assert decisions[-1].action == WRITEBACK, "all that are idle, where the reserve is larger than the pool"


pages = st.integers(0, 10**7)
shares = st.floats(0, 1)
rates = st.floats(0, 1e9)
refaults = st.just(-1.0) | rates


@RELAXED
@given(data=st.data())
def test_no_view_makes_it_break_its_bounds(controller, data):
    """Whatever it sees, it moves no more than there is, never beyond floor or ceiling, and says why."""
    state = State()
    limits = limits_for(data.draw(st.integers(MB, 2**40)), *sorted((data.draw(shares), data.draw(shares))))
    for _ in range(5):
        pool = data.draw(st.integers(16, 10**8))
        ballooned = data.draw(st.integers(0, pool))
        observed = Input(
            dt=data.draw(st.floats(1e-3, 100)), pool=pool, ballooned=ballooned, unused=data.draw(st.integers(0, pool)),
            floor=data.draw(st.integers(0, pool)), ceiling=data.draw(st.integers(0, pool)), block=BLOCK, page=PAGE,
            hot=data.draw(shares),
            pinned=data.draw(shares), misses=data.draw(rates), filled=data.draw(rates), miss_cost=data.draw(st.floats(-1, 10)),
            waiting=data.draw(st.integers(0, 1000)), dirty=data.draw(shares),
            limit=data.draw(st.integers(0, 2**50)), available=data.draw(st.integers(-(2**40), 2**50)),
            reachable=data.draw(st.integers(-(2**40), 2**50)),
            reachable_high=data.draw(st.integers(-(2**40), 2**50)), unclaimed=data.draw(st.integers(-(2**40), 2**50)),
            refaults=data.draw(refaults), own_refaults=data.draw(refaults), swapping=data.draw(rates),
            stall=data.draw(st.floats(-1, 1)),
        )  # fmt: skip
        decision = controller(limits, observed, state)
        assert decision.buffers >= 0 and (decision.action != HOLD or decision.buffers == 0)
        if decision.action == INFLATE:
            assert decision.buffers <= pool - observed.floor - ballooned and decision.buffers <= observed.ceiling - ballooned
        if decision.action == DEFLATE:
            assert decision.buffers <= ballooned
        assert all(math.isfinite(getattr(state, name)) for name, _ in State._fields_)
