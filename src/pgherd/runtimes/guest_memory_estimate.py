"""Estimate of the memory that a guest really uses, from the statistics of its balloon driver. Pure.

A guest reports its free and available memory, swap traffic, and faults that needed I/O (virtio 1.2, section 5.5.6.4; Linux: MemFree,
MemAvailable, pswpin, pswpout, pgmajfault). It does not report how much of the used memory is *idle*. ESX measures that by tracking
sampled pages (Waldspurger 2002, section 5.3), which QEMU does not offer. Two bounds replace it here.

**Upper bound**: the memory in use. A is the memory that the guest has, i.e. its configured memory minus its balloon:

    used     u = A − available, smoothed over ``SMOOTHED`` seconds
    ceiling  c = min(memory, (1 + HEADROOM) · u)

**Lower bound, by trial** (as Senpai in Weiner et al., "TMO: Transparent Memory Offloading in Datacenters", ASPLOS 2022). A guest
*wants* memory while it has little free memory and reads pages in. It also wants memory when it has taken pages back out of its balloon
instead of killing a process:

    refill   r = max(swap-ins, major faults · page) + reads of its drives, bytes per second
    wants    ⇔ (r > REFILLING · memory per second and free < SPARE · A), or A has grown beyond its target

While **another** guest wants memory and this one does not, the active part g of its used memory shrinks with a time constant of
``TRIED`` seconds: its balloon grows, and its coldest pages are evicted. When the guest starts to want memory, its size at that moment is
its *known* need. Later trials stop 5 % above the known need:

    working set  w = min(memory, max(g · c, 1.05 · known))              while it wants nothing
                 w = min(memory, max(A + AHEAD · r, that))              while it wants

(A + AHEAD · r counts only up to 5 % above the previous known need, while the guest has less than that).

The known need expires, and the guest is tried again, after ``CALM`` seconds without want at no more than its known need, or after its
*hold* with more. The hold starts at ``HOLD`` seconds. It doubles up to ``LONGEST_HOLD`` each time a trial ends at the same size as
before, and is reset when a trial ends at least 10 % lower. A constant demand is therefore tried rarely, and the end of a demand is noticed
within seconds.

Limits of the method: a guest with cold pages keeps them while **no** other guest wants memory, at no cost to others. A guest that reads a
large table once looks as if it wanted memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

PAGE = 4096
"""Bytes of a balloon page (virtio 1.2, section 5.5.6). It does not depend on the machine's page size."""

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
"""Seconds after which statistics are too old to use."""
UNKNOWN_AFTER = 15.0
"""Seconds without statistics after which all memory of a guest counts as used."""
_CONTENDED = 5.0
"""Seconds for which a guest's want counts after it was last observed, because faults occur in bursts."""


@dataclass(frozen=True)
class BalloonStats:
    """Last statistics of a guest's balloon driver. Sizes in bytes. None: this guest does not report the value.

    ``at`` is the instant of arrival (seconds since the epoch, host's clock). ``swap_in``, ``swap_out`` (bytes), ``major_faults`` and
    ``minor_faults`` are counters since the guest's start. So is ``reads``, the bytes read from its drives as the host counts them.
    ``total`` is the memory that the guest's kernel manages.
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
class BalloonRates:
    """Rates between two statistics, bytes per second: data read into memory, and data written to the guest's swap."""

    refill: float = 0.0
    swap_out: float = 0.0


def rates(before: BalloonStats | None, after: BalloonStats) -> BalloonRates:
    """Return the rates between two statistics. They are 0 without former statistics, and where the guest was restarted in between."""
    if before is None or (seconds := after.at - before.at) <= 0:
        return BalloonRates()

    def rate(first: int | None, last: int | None) -> float:
        return (last - first) / seconds if first is not None and last is not None and last > first else 0.0

    # A swap-in is a major fault too, but read-ahead brings in more pages than there were faults.
    faulted = max(rate(before.swap_in, after.swap_in), rate(before.major_faults, after.major_faults) * PAGE)
    return BalloonRates(faulted + rate(before.reads, after.reads), rate(before.swap_out, after.swap_out))


@dataclass(frozen=True)
class GuestMemoryEstimate:
    """Estimate of one guest. Sizes in bytes, times in seconds.

    ``used`` is smoothed, and ``active`` is its active fraction. ``known`` is the size at which the guest last wanted more (0: not known),
    ``dropped`` the one before it, and ``hold`` the time for which ``known`` is valid. ``since_want`` is the time since the guest last
    wanted memory, ``unseen`` the time since the last statistics. ``actual`` and ``available`` were reported then. ``swaps``: the guest
    has swapped out, so it has swap space.
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
        """Whether the guest wanted more memory in its last statistics."""
        return self.since_want == 0.0 and self.unseen < STALE

    @property
    def contends(self) -> bool:
        """Whether the guest wanted memory within the last seconds, so that other guests are tried."""
        return self.since_want < _CONTENDED and self.unseen < STALE


def unseen(before: GuestMemoryEstimate | None, actual: int, seconds: float) -> GuestMemoryEstimate:
    """Return the estimate after ``seconds`` without statistics. It is kept for a while. After that all memory of the guest counts as
    used."""
    if before is None:
        return GuestMemoryEstimate(working_set=actual, used=actual, unseen=math.inf)
    elapsed = before.unseen + seconds
    later = replace(before, unseen=elapsed, since_want=before.since_want + seconds, swap_out=0.0)
    return replace(later, working_set=float(actual), active=1.0) if elapsed >= UNKNOWN_AFTER else later


def estimate(
    before: GuestMemoryEstimate | None,
    memory: int,
    actual: int,
    statistics: BalloonStats,
    moved: BalloonRates,
    seconds: float,
    *,
    target: int,
    contended: bool,
) -> GuestMemoryEstimate:
    """Return the estimate after new statistics.

    ``memory`` is the configured size of the guest, ``actual`` its present size, ``target`` its target, all in bytes. ``moved`` are the
    rates since the last statistics, ``seconds`` ago. ``contended``: another guest wants memory. All memory of a guest that does not
    report available memory counts as used.
    """
    available = statistics.available if statistics.available is not None else statistics.free or 0
    free = statistics.free if statistics.free is not None else available
    in_use = max(actual - available, 0)
    # After a long silence the former estimate is not valid.
    known_before = before is not None and before.unseen < UNKNOWN_AFTER
    used = before.used + (in_use - before.used) * -math.expm1(-seconds / SMOOTHED) if before is not None and known_before else float(in_use)
    took_back = before is not None and actual > max(target, before.actual) + _NOISE
    wants = took_back or (moved.refill > REFILLING * memory and free < SPARE * actual)
    reported: dict[str, Any] = {"swap_out": moved.swap_out, "actual": float(actual), "available": float(available)}
    reported["swaps"] = (before is not None and before.swaps) or bool(statistics.swap_out)
    ceiling = min(float(memory), (1 + HEADROOM) * used)
    last = before if before is not None else GuestMemoryEstimate(working_set=0.0, used=used)
    active, known = last.active, last.known
    if wants:
        hold = last.hold
        if not known and last.dropped:
            hold = min(2 * hold, LONGEST_HOLD) if actual >= _LOWER * last.dropped else HOLD
        known = max(known, float(actual))
        requested = actual + AHEAD * moved.refill
        if actual < last.dropped:  # grow to the former need first
            requested = min(requested, MARGIN * last.dropped)
        working_set = min(float(memory), max(MARGIN * known, requested, active * ceiling))
        if ceiling > 0:  # the next trial starts at this size
            active = min(1.0, max(active, working_set / ceiling))
        return GuestMemoryEstimate(working_set, used, active, known, last.dropped, hold, 0.0, 0.0, **reported)
    since_want, dropped = last.since_want + seconds, last.dropped
    if known and since_want >= (CALM if actual <= known else last.hold):
        known, dropped = 0.0, known
    if contended and active * ceiling > MARGIN * known:
        active *= math.exp(-seconds / TRIED)
    working_set = min(float(memory), max(active * ceiling, MARGIN * known))
    return GuestMemoryEstimate(working_set, used, active, known, dropped, last.hold, since_want, 0.0, **reported)
