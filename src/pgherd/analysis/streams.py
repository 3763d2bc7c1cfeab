"""What limits a link, from its throughput by the number of parallel streams. Numbers in, findings out.

One TCP stream sends at most one window of data in a round trip, so its throughput is window ÷ round trip time. Where that is less
than the link carries, more streams carry more, in proportion, until the link is full (E14: 4.8, 9, 18, 23 Gbit/s with 1, 2, 4, 8
streams). Where one stream fills the link, more gain nothing (21.4, 22, 22.5, 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Bound = Literal["latency", "bandwidth", "cpu", "undecided"]

NEARLY = 0.9
"""Share of the best throughput that counts as filling the link."""
IN_PROPORTION = 0.7
"""Part of the growth in proportion to the streams from which on a stream is said to be limited by itself."""
BUSY = 0.9
"""Share of one CPU from which on the tool's own thread is taken to be the limit."""


@dataclass(frozen=True)
class Limit:
    """``best`` bits/s and the number of streams that made it; ``enough`` streams make nearly as much; what bounds one stream, and why."""

    best: float
    at: int
    enough: int
    bound: Bound
    why: str


def limit(throughput: Mapping[int, float], cpu: Mapping[int, float] | None = None) -> Limit:
    """What bounds one stream of a link.

    Args:
        throughput: streams → bits/s, with 1 among the streams.
        cpu: streams → share of its CPU that a thread of the busier end of the tool used.

    Raises:
        ValueError: one stream was not measured, or nothing came through.
    """
    if 1 not in throughput or max(throughput.values()) <= 0:
        raise ValueError("what bounds a stream takes the throughput of one stream")
    cpu = cpu or {}
    at = max(sorted(throughput), key=lambda streams: throughput[streams])
    best = throughput[at]
    enough = min(streams for streams, value in throughput.items() if value >= NEARLY * best)
    alone, further = throughput[1], sorted(streams for streams in throughput if streams > 1)
    if max(cpu.get(1, 0.0), cpu.get(at, 0.0)) >= BUSY:
        bound: Bound = "cpu"
        why = f"a thread of iperf3 used {max(cpu.get(1, 0.0), cpu.get(at, 0.0)):.0%} of a CPU: it, not the link, may be the limit"
    elif not further:
        bound, why = "undecided", "only one stream was measured"
    elif alone >= NEARLY * best:
        bound, why = "bandwidth", f"one stream makes {alone / best:.0%} of the best: more gain little"
    else:
        second = further[0]
        growth = throughput[second] / alone
        # A second point that fills the link already grows less than in proportion, though a stream is limited by itself.
        possible = min(float(second), best / alone)
        if growth >= 1 + IN_PROPORTION * (possible - 1):
            bound, why = "latency", f"{second} streams make {growth:.2g} times what one makes: a stream waits for its round trips"
        else:
            bound, why = "undecided", f"{second} streams make {growth:.2g} times what one makes, which is neither"
    return Limit(best=best, at=at, enough=enough, bound=bound, why=why)


def surely_enough(low: Mapping[int, float], high: Mapping[int, float]) -> Sequence[int]:
    """Numbers of streams that, by their intervals (bits/s), may be the fewest with nearly the best throughput."""
    top_low, top_high = max(low.values()), max(high.values())
    possible = [streams for streams in sorted(high) if high[streams] >= NEARLY * top_low]
    sure = [streams for streams in sorted(low) if low[streams] >= NEARLY * top_high]
    last = sure[0] if sure else max(high)
    return [streams for streams in possible if streams <= last]
