"""How much of its memory a guest really uses, from what its balloon driver tells. Pure.

A guest says how much memory it has free and could make available, what it swaps, and how many faults needed I/O (virtio 1.2, section
5.5.6.4; Linux: MemFree, MemAvailable, pswpin, pswpout, pgmajfault). It cannot say which of the used memory is *idle*. ESX finds that
by tracking sampled pages (Waldspurger 2002, section 5.3), which QEMU does not offer. Here two bounds stand for it:

**From above**, what is used at all. With A the memory that the guest has (its configured memory less its balloon):

    used     u = A − available, smoothed over ``SMOOTHED`` seconds
    ceiling  c = min(memory, (1 + HEADROOM) · u)

**From below, by trying** (as Weiner et al., "TMO: Transparent Memory Offloading in Datacenters", ASPLOS 2022, do with their Senpai). A
guest *wants* memory while it has hardly any free and brings pages in, or when it has taken pages back out of its balloon rather than end a
process:

    refill   r = max(swap-ins, major faults · page) + reads of its drives, bytes per second
    wants    ⇔ (r > REFILLING · memory per second and free < SPARE · A), or A has grown beyond its target

As long as **another** guest wants memory and this one does not, the part g of its used memory that is taken for active shrinks with a
time constant of ``TRIED`` seconds: its balloon grows, and its coldest pages go. When it begins to want, the size at which that
happened is its *known* need, and it is tried no further than to 5 % above that:

    working set  w = min(memory, max(g · c, 1.05 · known))              while it wants nothing
                 w = min(memory, max(A + AHEAD · r, that))              while it wants

(of A + AHEAD · r only what leads to 5 % above the need that was known before, while it has less than that).

The knowledge is dropped, and the guest tried anew, once it has wanted nothing for ``CALM`` seconds with no more than its known need, or for
its *hold* with more. The hold begins at ``HOLD`` seconds, doubles up to ``LONGEST_HOLD`` each time a trial ends where the one before
did, and begins anew when one ends at least 10 % below. So a constant demand is tried a few times, less and less often, and one that
has ended is noticed within seconds.

What this cannot see: a guest that is content with cold pages while **nobody** else is in want keeps them, which costs nobody
anything. A guest that reads a large table once looks as if it wanted memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

PAGE = 4096
"""Bytes of the pages in which a balloon counts (virtio 1.2, section 5.5.6), whatever the machine's own."""

SMOOTHED = 2.0
HEADROOM = 0.1
REFILLING = 0.002
SPARE = 0.1
TRIED = 30.0
MARGIN = 1.05
CALM = 5.0
HOLD = 10.0
LONGEST_HOLD = 640.0
_LOWER = 0.9
_NOISE = 2**20
AHEAD = 4.0
STALE = 5.0
"""Seconds after which statistics are too old to be believed."""
UNKNOWN_AFTER = 15.0
"""Seconds without statistics after which a guest is taken to use all that it has."""
_CONTENDED = 5.0
"""Seconds for which a guest's want counts after it was last seen: faults come in bursts."""


@dataclass(frozen=True)
class Statistics:
    """What a guest's balloon driver said last. Sizes in bytes; None: this guest does not tell.

    ``at`` is the instant (seconds since the epoch, of the host) at which it came in. ``swap_in``, ``swap_out`` (bytes),
    ``major_faults`` and ``minor_faults`` grow since the guest's start; so does ``reads``, the bytes read from its drives as the
    host sees them. ``total`` is the memory that its kernel manages.
    """

    at: float
    free: int | None = None
    available: int | None = None
    total: int | None = None
    caches: int | None = None
    swap_in: int | None = None
    swap_out: int | None = None
    major_faults: int | None = None
    minor_faults: int | None = None
    reads: int | None = None


@dataclass(frozen=True)
class Rates:
    """Between two statistics, bytes per second: what came in that was not in memory, and what went out to the guest's swap."""

    refill: float = 0.0
    swap_out: float = 0.0


def rates(before: Statistics | None, after: Statistics) -> Rates:
    """What happened between two statistics; nothing where there is no former one, or where the guest was started anew between."""
    if before is None or (seconds := after.at - before.at) <= 0:
        return Rates()

    def rate(first: int | None, last: int | None) -> float:
        return (last - first) / seconds if first is not None and last is not None and last > first else 0.0

    # A page that is swapped in is a major fault too, but read-ahead brings more pages than there were faults.
    faulted = max(rate(before.swap_in, after.swap_in), rate(before.major_faults, after.major_faults) * PAGE)
    return Rates(faulted + rate(before.reads, after.reads), rate(before.swap_out, after.swap_out))


@dataclass(frozen=True)
class Estimate:
    """What is believed of a guest. Sizes in bytes, times in seconds.

    ``used`` is smoothed; ``active`` is the part of it that is taken for active; ``known`` the size at which it was last seen to want
    more (0: not known), ``dropped`` the one before that; ``hold`` for how long the present one holds; ``since_want`` is since it last
    wanted anything, ``unseen`` since statistics last came. ``actual`` and ``available`` are what it had and could spare then; ``swaps``:
    it has been seen to swap out, and so has somewhere to do it.
    """

    working_set: float
    used: float
    active: float = 1.0
    known: float = 0.0
    dropped: float = 0.0
    hold: float = HOLD
    since_want: float = math.inf
    unseen: float = 0.0
    swap_out: float = 0.0
    actual: float = 0.0
    available: float = 0.0
    swaps: bool = False

    @property
    def wants(self) -> bool:
        """Whether it wanted more memory when it was last seen."""
        return self.since_want == 0.0 and self.unseen < STALE

    @property
    def contends(self) -> bool:
        """Whether it wanted memory in the last few seconds, so that others are asked to spare some."""
        return self.since_want < _CONTENDED and self.unseen < STALE


def unseen(before: Estimate | None, actual: int, seconds: float) -> Estimate:
    """The estimate after ``seconds`` without statistics: what was believed stays for a while, then all that it has counts as used."""
    if before is None:
        return Estimate(working_set=actual, used=actual, unseen=math.inf)
    gone = before.unseen + seconds
    later = replace(before, unseen=gone, since_want=before.since_want + seconds, swap_out=0.0)
    return replace(later, working_set=float(actual), active=1.0) if gone >= UNKNOWN_AFTER else later


def estimate(
    before: Estimate | None, memory: int, actual: int, statistics: Statistics, moved: Rates, seconds: float, *, target: int, contended: bool
) -> Estimate:
    """The estimate after new statistics.

    ``memory`` is what the guest was configured with, ``actual`` what it has, and ``target`` what it was asked to keep, bytes; ``moved``
    what happened since the last statistics, ``seconds`` ago; ``contended``: another guest wants memory. A guest that does not tell what
    is available is taken to use all that it has.
    """
    available = statistics.available if statistics.available is not None else statistics.free or 0
    free = statistics.free if statistics.free is not None else available
    now = max(actual - available, 0)
    # After a long silence its past says nothing.
    known_before = before is not None and before.unseen < UNKNOWN_AFTER
    used = before.used + (now - before.used) * -math.expm1(-seconds / SMOOTHED) if before is not None and known_before else float(now)
    took_back = before is not None and actual > max(target, before.actual) + _NOISE
    wants = took_back or (moved.refill > REFILLING * memory and free < SPARE * actual)
    told: dict[str, Any] = {"swap_out": moved.swap_out, "actual": float(actual), "available": float(available)}
    told["swaps"] = (before is not None and before.swaps) or bool(statistics.swap_out)
    ceiling = min(float(memory), (1 + HEADROOM) * used)
    last = before if before is not None else Estimate(working_set=0.0, used=used)
    active, known = last.active, last.known
    if wants:
        hold = last.hold
        if not known and last.dropped:
            hold = min(2 * hold, LONGEST_HOLD) if actual >= _LOWER * last.dropped else HOLD
        known = max(known, float(actual))
        asked = actual + AHEAD * moved.refill
        if actual < last.dropped:  # what it needed before is asked for first
            asked = min(asked, MARGIN * last.dropped)
        working_set = min(float(memory), max(MARGIN * known, asked, active * ceiling))
        if ceiling > 0:  # when the want is over, it is tried from here on
            active = min(1.0, max(active, working_set / ceiling))
        return Estimate(working_set, used, active, known, last.dropped, hold, 0.0, 0.0, **told)
    since_want, dropped = last.since_want + seconds, last.dropped
    if known and since_want >= (CALM if actual <= known else last.hold):
        known, dropped = 0.0, known
    if contended and active * ceiling > MARGIN * known:
        active *= math.exp(-seconds / TRIED)
    working_set = min(float(memory), max(active * ceiling, MARGIN * known))
    return Estimate(working_set, used, active, known, dropped, last.hold, since_want, 0.0, **told)
