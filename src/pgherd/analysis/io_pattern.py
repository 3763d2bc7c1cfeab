"""The pattern in a stream of block requests: sequential or random, sizes, gaps, bursts. Pure; the rules are published with
every number that they give.

**Sequential by adjacency**: a request that starts exactly where the one before it, of the same device and direction, ended.

**Sequential by window**: a request that starts at most ``WINDOW`` bytes from where one of the ``LOOK_BEHIND`` requests before
it ended. Streams that take turns, and requests that overtake each other in a queue, are sequential by this rule and not by
the first. (After the windowed seek distance of Ahmad, "Easy and Efficient Disk I/O Workload Characterization in VMware ESX
Server", IISWC 2007, which looks behind by 16 requests.)

**Bursts**: runs of intervals whose rate is above ``BURST`` times the mean of all.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.analysis.histogram import histogram
from pgherd.model.io_view import BlockRequest, Direction, Pattern

WINDOW = 64 * 1024
"""Bytes."""
LOOK_BEHIND = 16
SEQUENTIAL = 0.7
RANDOM = 0.3
"""From a share of SEQUENTIAL on a device is called sequential, up to one of RANDOM random, between them mixed."""
BURST = 2.0
SIZES = 40
"""Most sizes that are counted each for itself."""

Label = Literal["sequential", "random", "mixed", "too few requests"]
RULE = (
    f"starts within {WINDOW // 1024} KiB of where one of the {LOOK_BEHIND} requests before it ended; sequential from "
    f"{100 * SEQUENTIAL:.0f} % of the requests on, random up to {100 * RANDOM:.0f} %"
)
"""The window rule and the labels, in words."""
ENOUGH = 50
"""Requests below which a stream gets no label."""


@dataclass(frozen=True)
class Burst:
    """Intervals ``first`` to ``last`` (both included) of a series above the rule's rate; ``amount`` is what they hold in all,
    ``peak`` the highest rate."""

    first: int
    last: int
    amount: float
    peak: float


@dataclass(frozen=True)
class Burstiness:
    """``peak_to_mean`` of the rates, their coefficient of variation, and the bursts; ``burst_rate`` is the mean rate within
    them, None without any."""

    mean: float
    peak_to_mean: float
    variation: float
    bursts: tuple[Burst, ...]
    burst_rate: float | None


def adjacent_share(requests: Sequence[BlockRequest]) -> float | None:
    """Share of the requests (but the first) that are sequential by adjacency; None with fewer than two."""
    if len(requests) < 2:
        return None
    before, hits = requests[0], 0
    for request in requests[1:]:
        hits += request.offset == before.offset + before.size
        before = request
    return hits / (len(requests) - 1)


def window_share(requests: Sequence[BlockRequest], window: int = WINDOW, behind: int = LOOK_BEHIND) -> float | None:
    """Share of the requests (but the first) that are sequential by window; None with fewer than two."""
    if len(requests) < 2:
        return None
    ends: deque[int] = deque([requests[0].offset + requests[0].size], maxlen=behind)
    hits = 0
    for request in requests[1:]:
        hits += any(abs(request.offset - end) <= window for end in ends)
        ends.append(request.offset + request.size)
    return hits / (len(requests) - 1)


def label(share: float | None, requests: int) -> Label:
    """What a device is called by its share of sequential requests."""
    if share is None or requests < ENOUGH:
        return "too few requests"
    return "sequential" if share >= SEQUENTIAL else "random" if share <= RANDOM else "mixed"


def sizes(requests: Iterable[BlockRequest], most: int = SIZES) -> dict[int, int]:
    """Size in bytes → requests, the smallest first; what is not among the ``most`` frequent sizes is counted under 0."""
    counts = Counter(request.size for request in requests)
    kept = dict(counts.most_common(most))
    rest = sum(counts.values()) - sum(kept.values())
    return dict(sorted((kept | ({0: rest} if rest else {})).items()))


def pattern(requests: Sequence[BlockRequest]) -> Pattern:
    """All that is said of the requests of one device and direction, in the order in which they were issued."""
    issued = [request.issued for request in requests]
    return Pattern(
        requests=len(requests),
        bytes=sum(request.size for request in requests),
        window_share=window_share(requests),
        adjacent_share=adjacent_share(requests),
        sizes=sizes(requests),
        latency=histogram(1e6 * (r.completed - r.issued) for r in requests if r.completed is not None),
        gaps=histogram(1e6 * (b - a) for a, b in itertools.pairwise(issued)),
    )


def patterns(requests: Sequence[BlockRequest]) -> dict[Direction | Literal["all"], Pattern]:
    """The pattern of each direction that one device saw, and of reads and writes together (``all``)."""
    ordered = sorted(requests, key=lambda request: request.issued)
    found: dict[Direction | Literal["all"], Pattern] = {}
    directions: tuple[Direction, ...] = ("read", "write", "flush", "discard")
    for direction in directions:
        own = [request for request in ordered if request.direction == direction]
        if own:
            found[direction] = pattern(own)
    both = [request for request in ordered if request.direction in ("read", "write")]
    if both:
        found["all"] = pattern(both)
    return found


def burstiness(rates: Sequence[float], seconds: Sequence[float] | None = None) -> Burstiness | None:
    """How bursty a series of rates is; ``seconds`` are the intervals' lengths (absent: all alike).

    The mean is that over time. None with fewer than three intervals, or where nothing happened.
    """
    if len(rates) < 3:
        return None
    lengths = list(seconds) if seconds is not None else [1.0] * len(rates)
    total = math.fsum(lengths)
    mean = math.fsum(rate * length for rate, length in zip(rates, lengths, strict=True)) / total
    if mean <= 0:
        return None
    bursts: list[Burst] = []
    inside: list[int] = []
    for place in range(len(rates) + 1):
        if place < len(rates) and rates[place] > BURST * mean:
            inside.append(place)
        elif inside:
            amount = math.fsum(rates[i] * lengths[i] for i in inside)
            bursts.append(Burst(inside[0], inside[-1], amount, max(rates[i] for i in inside)))
            inside = []
    spent = math.fsum(lengths[i] for burst in bursts for i in range(burst.first, burst.last + 1))
    return Burstiness(
        mean=mean,
        peak_to_mean=max(rates) / mean,
        variation=statistics.pstdev(rates) / statistics.fmean(rates),
        bursts=tuple(bursts),
        burst_rate=math.fsum(burst.amount for burst in bursts) / spent if spent else None,
    )
