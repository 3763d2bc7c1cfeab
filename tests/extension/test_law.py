"""The control law of pg_balloon: what it decides of one view, and what many servers that obey it do together.

The simulation is a plain one: pages touched at random in a working set, a pool, one memory for all, and swapping of the
pages touched least once that is full. It is no model of a machine's speed; it shows whether the law settles.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STAY, GIVE, TAKE, CLEAN = range(4)
CALM, EMPTY, FLOOR, PINNED, IDLE, SWAPPED, EXHAUSTED, NEED, NO_MEMORY, HELD, TIDY, BOTTOM = range(12)
CEILING = 15
BLOCK = 8192
MB = 1024 * 1024
RESERVES = (0.02, 0.06)
"""The defaults; where one view is asked about, there is more between them."""
LOOKS = 0.1
"""Seconds between two looks of a server that moved nothing at the last; one that did looks again at the next tick."""
SAFE = 4
"""Times as long where nothing is in its balloon and so much is available that FASTEST would not use it up meanwhile."""
FASTEST = 2 * 8 * 1024 * MB
"""Bytes per second that two CPUs may use up."""
RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class View(ctypes.Structure):
    _fields_ = [
        ("dt", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("pool", "ballooned", "unused", "floor", "ceiling", "block")),
        *((name, ctypes.c_double) for name in ("hot", "pinned", "misses", "filled", "miss_cost", "waiting", "dirty")),
        *((name, ctypes.c_int64) for name in ("limit", "available", "reachable")),
        *((name, ctypes.c_double) for name in ("refaults", "own_refaults", "swapping", "stall")),
    ]


class Tuning(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("reserve_low", "reserve_high", "yield_rate", "growth_rate", "clean_rate")]


class Mind(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("pressed", "need", "waiting", "needed", "hold", "exhausted", "quiet")),
        *((name, ctypes.c_double) for name in ("refaults", "own_refaults", "strain", "since_given", "patience")),
        ("gave", ctypes.c_bool),
    ]


class Verdict(ctypes.Structure):
    _fields_ = [
        ("act", ctypes.c_int),
        ("why", ctypes.c_int),
        ("buffers", ctypes.c_int64),
        ("write", ctypes.c_bool),
        ("prefetch", ctypes.c_bool),
    ]


Law = Callable[[Tuning, View, Mind], Verdict]


@pytest.fixture(scope="session")
def law(pure: ctypes.CDLL) -> Law:
    pure.balloon_law.restype = None
    pure.balloon_law.argtypes = [ctypes.POINTER(kind) for kind in (Tuning, View, Mind, Verdict)]

    def ask(tuning: Tuning, view: View, mind: Mind) -> Verdict:
        verdict = Verdict()
        pure.balloon_law(tuning, view, mind, verdict)
        return verdict

    return ask


def tuning_for(limit: int, low: float = 0.03, high: float = 0.08) -> Tuning:
    return Tuning(int(limit * low), int(limit * high), 2048 * MB, 1024 * MB, 16 * MB)


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
    verdict = repeated(law, view(dirty=0.3, hot=0.2), ticks=40)
    assert (verdict.act, verdict.why) == (CLEAN, TIDY)
    assert verdict.buffers * BLOCK <= 16 * MB * 0.1
    assert repeated(law, view(dirty=0.3, hot=0.8), ticks=40).act == STAY, "a busy one would make them dirty again"


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
            reachable=data.draw(st.integers(-(2**40), 2**50)), refaults=data.draw(rates), own_refaults=data.draw(rates),
            swapping=data.draw(rates), stall=data.draw(st.floats(-1, 1)),
        )  # fmt: skip
        verdict = law(tuning, seen, mind)
        assert verdict.buffers >= 0 and (verdict.act != STAY or verdict.buffers == 0)
        if verdict.act == GIVE:
            assert verdict.buffers <= pool - seen.floor - ballooned and verdict.buffers <= seen.ceiling - ballooned
        if verdict.act == TAKE:
            assert verdict.buffers <= ballooned
        assert all(math.isfinite(getattr(mind, name)) for name, _ in Mind._fields_)


# The simulation.


@dataclass
class Server:
    """A pool of pages: those of the working set (hot), others (cold), unused ones, and the balloon."""

    pool: int
    floor: int
    working_set: int
    rate: float = 0.0  # touches per second that its clients would make without misses
    hot: float = 0.0
    cold: float = 0.0
    ballooned: int = 0
    misses: float = 0.0
    waiting: float = 0.0
    refaults: float = 0.0
    touched: float = 0.0  # share of used pages touched within five seconds
    waited: float = 0.0  # seconds since it looked
    pause: float = LOOKS  # seconds until it looks again
    swapped: float = 0.0
    moved: int = 0
    moving: bool = False
    mind: Mind = field(default_factory=Mind)

    @property
    def used(self) -> float:
        return self.hot + self.cold

    @property
    def unused(self) -> float:
        return self.pool - self.ballooned - self.used

    def fill(self) -> None:
        self.hot = min(self.working_set, self.pool)
        self.cold = self.pool - self.hot

    @property
    def missing(self) -> float:
        return 1 - self.hot / self.working_set

    @property
    def away(self) -> float:
        return min(1.0, self.swapped / self.used) if self.used else 0.0

    def throughput(self, cost: float, clients: int = 4) -> float:
        """Touches per second, when each one that misses, or finds its page in swap, makes one of the clients wait."""
        return self.rate / (1 + self.rate * (self.missing + self.away) * cost / clients)

    def work(self, dt: float, cost: float) -> None:
        """Clients touch pages of the working set at random."""
        rate, missing, away = self.throughput(cost), self.missing, self.away
        self.misses, self.refaults = rate * missing, rate * away
        self.waiting = self.misses * cost
        new = min(self.misses * dt, self.working_set - self.hot)
        unused = min(new, max(0.0, self.unused))
        replaced = min(new - unused, self.cold)
        self.hot += unused + replaced
        self.cold -= replaced
        within = 1 - math.exp(-rate * 5 / self.working_set)
        self.touched = self.hot * within / self.used if self.used else 0.0

    def obey(self, verdict: Verdict) -> None:
        if verdict.act == TAKE:
            self.ballooned -= verdict.buffers
        elif verdict.act == GIVE:
            room = min(self.pool * 9 // 10, self.pool - self.floor) - self.ballooned
            along = min(max(0.0, self.unused), room)  # they hold no memory, go first and do not count
            left = min(float(verdict.buffers), self.used, room - along)
            cold = min(left, self.cold)
            self.cold -= cold
            self.hot = max(0.0, self.hot - (left - cold))
            self.ballooned += int(left + along)
        self.moving = verdict.act in (GIVE, TAKE)
        if self.moving:
            self.moved += verdict.buffers


@dataclass
class Machine:
    """One memory for several servers, and for something else (``other``, in bytes)."""

    law: Law
    limit: int
    servers: list[Server]
    other: float = 0.0
    cost: float = 2e-4
    dt: float = 0.1
    swapped: float = 0.0
    most_swapped: float = 0.0
    available: float = 0.0

    def run(self, seconds: float, each: Callable[[int], None] = lambda _: None) -> None:
        for number in range(round(seconds / self.dt)):
            self.tick()
            each(number)

    def tick(self) -> None:
        for server in self.servers:
            server.work(self.dt, self.cost)
        total = sum(server.used for server in self.servers) * BLOCK + self.other
        over = max(0.0, total - self.limit)
        growth, self.swapped = max(0.0, over - self.swapped), over
        self.most_swapped = max(self.most_swapped, over)
        left = over / BLOCK
        for server in sorted(self.servers, key=lambda one: one.rate * one.touched):  # what is touched least goes first
            server.swapped = min(left, server.used)
            left -= server.swapped
        available = self.available = self.limit - total
        refaults = sum(server.refaults for server in self.servers)
        for server in self.servers:
            server.waited += self.dt
            if server.waited < server.pause * 0.999 and not server.moving:
                continue
            since, server.waited = server.waited, 0.0
            seen = View(
                dt=since, pool=server.pool, ballooned=server.ballooned, unused=int(max(0, server.unused)), floor=server.floor,
                ceiling=server.pool * 9 // 10, block=BLOCK, hot=server.touched, misses=server.misses, filled=server.misses,
                miss_cost=self.cost,
                limit=self.limit, available=int(available), reachable=int(available), refaults=refaults,
                waiting=server.waiting, own_refaults=server.refaults, swapping=growth / self.dt, stall=-1,
            )  # fmt: skip
            verdict = self.law(tuning_for(self.limit, *RESERVES), seen, server.mind)
            server.obey(verdict)
            peace = verdict.act == STAY and not server.ballooned
            safe = (available - 2 * RESERVES[1] * self.limit) / FASTEST if peace else 0.0
            server.pause = max(LOOKS, min(SAFE * LOOKS, safe))
            assert server.pool - server.ballooned >= min(server.floor, server.pool)
            assert 0 <= server.ballooned <= server.pool * 9 // 10


def servers(count: int, pool: int, working_set: int) -> list[Server]:
    made = [Server(pool // BLOCK, pool // BLOCK // 16, working_set // BLOCK) for _ in range(count)]
    for one in made:
        one.fill()
    return made


def test_two_with_opposite_rhythms_trade_memory(law):
    """384 MB of pool each, 310 MB of data each, 460 MB for both: the busy one has what it needs within two seconds."""
    pair = servers(2, 384 * MB, 310 * MB)
    machine = Machine(law, 460 * MB, pair, dt=LOOKS / 4)
    for phase in range(6):
        busy, idle = pair[phase % 2], pair[1 - phase % 2]
        busy.rate, idle.rate = 50_000, 20
        machine.run(2)
        assert busy.throughput(machine.cost) >= 0.5 * busy.rate, f"phase {phase}"
        machine.run(6)
        assert busy.hot >= 0.98 * busy.working_set, f"phase {phase}"
        assert machine.swapped == 0


def test_slowly_growing_pressure_never_becomes_swapping(law):
    (idle,) = servers(1, 1024 * MB, 512 * MB)
    idle.rate = 5
    machine = Machine(law, 2048 * MB, [idle], other=700 * MB)

    def grow(_: int) -> None:
        machine.other = min(1800 * MB, machine.other + 20 * MB)

    machine.run(12, grow)
    assert machine.most_swapped == 0
    assert idle.ballooned * BLOCK >= 500 * MB


def test_who_pauses_longer_looks_before_memory_can_be_short(law):
    """Most of 32 GB is available, until others use it up as fast as CPUs can: it looks while the reserve is there, and gives in time."""
    (idle,) = servers(1, 4 * 1024 * MB, 2 * 1024 * MB)
    idle.rate = 5
    machine = Machine(law, 32 * 1024 * MB, [idle], dt=LOOKS / 4)
    reserve_high = RESERVES[1] * machine.limit
    looks: list[tuple[float, float]] = []

    def look(_: int) -> None:
        if idle.waited == 0:
            looks.append((machine.available, idle.pause))

    def grow(number: int) -> None:
        look(number)
        machine.other += machine.dt * (FASTEST if machine.available > reserve_high else 1536 * MB)

    machine.run(5, look)
    assert max(pause for _, pause in looks) == pytest.approx(SAFE * LOOKS)
    assert not idle.moved
    machine.run(4, grow)
    assert next(available for available, _ in looks if available < 2 * reserve_high) > reserve_high
    assert machine.most_swapped == 0 and idle.ballooned


def test_nothing_moves_when_there_is_enough(law):
    several = servers(4, 256 * MB, 200 * MB)
    machine = Machine(law, 2048 * MB, several)
    for one in several:
        one.rate = 10_000
    machine.run(30)
    assert [one.moved for one in several] == [0, 0, 0, 0]


def test_memory_that_comes_back_is_used_again(law):
    (one,) = servers(1, 1024 * MB, 900 * MB)
    one.rate = 5
    machine = Machine(law, 1200 * MB, [one])
    machine.other = 900 * MB
    machine.run(10)
    assert one.ballooned * BLOCK > 600 * MB
    machine.other, one.rate = 0, 50_000
    machine.run(10)
    assert one.throughput(machine.cost) >= 0.5 * one.rate and one.hot >= 0.9 * one.working_set


@RELAXED
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), short=st.floats(0.2, 1.2))
def test_many_servers_settle_within_the_budget(law, seed, count, short):
    """Any number of servers, sizes and rhythms: after ninety seconds they fit, none below its floor, and little moves any more.

    Up to 80 % overcommitted. (Servers whose pages are touched seldom once kept them because their misses cost time; seven of them stayed
    12 % above a budget of a quarter of their pools.)
    """
    rng = random.Random(seed)
    several = []
    for _ in range(count):
        pool = rng.randrange(64, 2048) * MB // BLOCK
        one = Server(pool, pool // 16, max(1, int(pool * rng.uniform(0.05, 1.5))), rate=rng.choice([0, 5, 500, 5_000, 50_000]))
        one.fill()
        several.append(one)
    everything = sum(one.pool for one in several)
    machine = Machine(law, int(short * everything) * BLOCK, several, cost=rng.choice([1e-5, 1e-4, 1e-3]))
    machine.run(90)
    assert sum(one.used for one in several) * BLOCK <= machine.limit * 1.01
    assert machine.swapped <= 0.01 * machine.limit
    before = [one.moved for one in several]
    machine.run(10)
    moved = sum(one.moved - was for one, was in zip(several, before, strict=True))
    assert moved <= 0.10 * everything, "in ten seconds of an unchanged load"
