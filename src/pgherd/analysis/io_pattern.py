"""Patterns in a stream of block requests: sequential or random, sizes, gaps, bursts. The rules are published with each result.

**Sequential by adjacency**: the request starts exactly at the end of the previous one of the same device and direction.

**Sequential by window**: the request starts at most ``WINDOW_BYTES`` bytes from the end of one of the ``LOOK_BEHIND`` previous
requests. Interleaved streams and reordered requests are sequential by this rule only. (After the windowed seek distance of
Ahmad, "Easy and Efficient Disk I/O Workload Characterization in VMware ESX Server", IISWC 2007, with 16 requests.)

**Bursts**: runs of intervals with a rate above ``BURST_FACTOR`` times the overall mean.
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
from pgherd.model.device_io import BlockRequest, Direction, Pattern

WINDOW_BYTES = 64 * 1024
LOOK_BEHIND = 16
SEQUENTIAL_SHARE = 0.7
RANDOM_SHARE = 0.3
"""A device is sequential from a share of SEQUENTIAL_SHARE, random up to RANDOM_SHARE, and mixed in between."""
BURST_FACTOR = 2.0
MAX_SIZES = 40
"""Maximum number of sizes that are counted separately."""

Label = Literal["sequential", "random", "mixed", "too few requests"]
RULE = (
    f"starts within {WINDOW_BYTES // 1024} KiB of the end of one of the {LOOK_BEHIND} previous requests; sequential from "
    f"{100 * SEQUENTIAL_SHARE:.0f} % of the requests on, random up to {100 * RANDOM_SHARE:.0f} %"
)
"""Text of the window rule and the labels."""
MIN_REQUESTS = 50
"""Minimum number of requests for a label."""


@dataclass(frozen=True)
class Burst:
    """Intervals ``first`` to ``last`` (both inclusive) of a series above the burst rate.

    ``amount`` is their total, ``peak`` the highest rate.
    """

    first: int
    last: int
    amount: float
    peak: float


@dataclass(frozen=True)
class Burstiness:
    """Peak-to-mean ratio of the rates, coefficient of variation, and bursts.

    ``burst_rate`` is the mean rate within the bursts, None without any.
    """

    mean: float
    peak_to_mean: float
    rate_cv: float
    bursts: tuple[Burst, ...]
    burst_rate: float | None


def adjacent_share(requests: Sequence[BlockRequest]) -> float | None:
    """Return the share of requests after the first that are sequential by adjacency. None with fewer than two."""
    if len(requests) < 2:
        return None
    before, hits = requests[0], 0
    for request in requests[1:]:
        hits += request.offset == before.offset + before.size
        before = request
    return hits / (len(requests) - 1)


def window_share(requests: Sequence[BlockRequest], window: int = WINDOW_BYTES, behind: int = LOOK_BEHIND) -> float | None:
    """Return the share of requests after the first that are sequential by window. None with fewer than two."""
    if len(requests) < 2:
        return None
    ends: deque[int] = deque([requests[0].offset + requests[0].size], maxlen=behind)
    hits = 0
    for request in requests[1:]:
        hits += any(abs(request.offset - end) <= window for end in ends)
        ends.append(request.offset + request.size)
    return hits / (len(requests) - 1)


def label(share: float | None, requests: int) -> Label:
    """Classify a device by its share of sequential requests."""
    if share is None or requests < MIN_REQUESTS:
        return "too few requests"
    return "sequential" if share >= SEQUENTIAL_SHARE else "random" if share <= RANDOM_SHARE else "mixed"


def sizes(requests: Iterable[BlockRequest], limit: int = MAX_SIZES) -> dict[int, int]:
    """Count requests by size in bytes, in order of size.

    Sizes that are not among the ``limit`` most frequent are counted under 0.
    """
    counts = Counter(request.size for request in requests)
    frequent = dict(counts.most_common(limit))
    others = sum(counts.values()) - sum(frequent.values())
    return dict(sorted((frequent | ({0: others} if others else {})).items()))


def pattern(requests: Sequence[BlockRequest]) -> Pattern:
    """Describe the requests of one device and direction, given in order of issue."""
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
    """Describe each direction of one device, and reads and writes together (``all``)."""
    ordered = sorted(requests, key=lambda request: request.issued)
    by_direction: dict[Direction | Literal["all"], Pattern] = {}
    directions: tuple[Direction, ...] = ("read", "write", "flush", "discard")
    for direction in directions:
        of_direction = [request for request in ordered if request.direction == direction]
        if of_direction:
            by_direction[direction] = pattern(of_direction)
    both = [request for request in ordered if request.direction in ("read", "write")]
    if both:
        by_direction["all"] = pattern(both)
    return by_direction


def burstiness(rates: Sequence[float], seconds: Sequence[float] | None = None) -> Burstiness | None:
    """Describe the burstiness of a series of rates. None with fewer than three intervals, or without activity.

    Args:
        rates: rate in each interval. The mean is taken over time.
        seconds: lengths of the intervals. None: all equal.
    """
    if len(rates) < 3:
        return None
    lengths = list(seconds) if seconds is not None else [1.0] * len(rates)
    total = math.fsum(lengths)
    mean = math.fsum(rate * length for rate, length in zip(rates, lengths, strict=True)) / total
    if mean <= 0:
        return None
    bursts: list[Burst] = []
    members: list[int] = []
    for index in range(len(rates) + 1):
        if index < len(rates) and rates[index] > BURST_FACTOR * mean:
            members.append(index)
        elif members:
            amount = math.fsum(rates[i] * lengths[i] for i in members)
            bursts.append(Burst(members[0], members[-1], amount, max(rates[i] for i in members)))
            members = []
    burst_seconds = math.fsum(lengths[i] for burst in bursts for i in range(burst.first, burst.last + 1))
    return Burstiness(
        mean=mean,
        peak_to_mean=max(rates) / mean,
        rate_cv=statistics.pstdev(rates) / statistics.fmean(rates),
        bursts=tuple(bursts),
        burst_rate=math.fsum(burst.amount for burst in bursts) / burst_seconds if burst_seconds else None,
    )
