"""Bottleneck of a network link, from its throughput by number of parallel streams.

One TCP stream sends at most one window per round trip, so its throughput is at most window ÷ round-trip time. If that is below
the link's capacity, throughput grows in proportion to the streams until the link is full (E14: 4.8, 9, 18, 23 Gbit/s with 1, 2,
4, 8 streams). If one stream fills the link, more streams gain nothing (21.4, 22, 22.5, 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Bound = Literal["latency", "bandwidth", "cpu", "undecided"]

NEARLY = 0.9
"""Share of the best throughput from which a link counts as full."""
IN_PROPORTION = 0.7
"""Share of proportional growth from which one stream counts as limited by its round trips."""
BUSY = 0.9
"""Share of one CPU from which a thread of the tool counts as the bottleneck."""


@dataclass(frozen=True)
class Limit:
    """Bottleneck of one stream, with the reason.

    ``best`` is the best throughput in bits/s, with ``at`` streams. ``enough`` streams reach nearly as much.
    """

    best: float
    at: int
    enough: int
    bound: Bound
    why: str


def limit(throughput: Mapping[int, float], cpu: Mapping[int, float] | None = None) -> Limit:
    """Determine the bottleneck of one stream of a link.

    Args:
        throughput: streams → bits/s. It must include 1 stream.
        cpu: streams → share of its CPU that a thread at the busier end of the tool used.

    Raises:
        ValueError: one stream was not measured, or all throughputs are zero.
    """
    if 1 not in throughput or max(throughput.values()) <= 0:
        raise ValueError("the bottleneck of a stream requires the throughput of one stream")
    cpu = cpu or {}
    at = max(sorted(throughput), key=lambda streams: throughput[streams])
    best = throughput[at]
    enough = min(streams for streams, value in throughput.items() if value >= NEARLY * best)
    single, larger = throughput[1], sorted(streams for streams in throughput if streams > 1)
    if max(cpu.get(1, 0.0), cpu.get(at, 0.0)) >= BUSY:
        bound: Bound = "cpu"
        why = f"a thread of iperf3 used {max(cpu.get(1, 0.0), cpu.get(at, 0.0)):.0%} of a CPU and may be the bottleneck instead of the link"
    elif not larger:
        bound, why = "undecided", "only one stream was measured"
    elif single >= NEARLY * best:
        bound, why = "bandwidth", f"one stream reaches {single / best:.0%} of the best throughput"
    else:
        second = larger[0]
        growth = throughput[second] / single
        # If the second point fills the link, growth is below proportional even though one stream is limited by round trips.
        possible = min(float(second), best / single)
        if growth >= 1 + IN_PROPORTION * (possible - 1):
            bound, why = (
                "latency",
                f"{second} streams reach {growth:.2g} times the throughput of one: a stream is limited by its round trips",
            )
        else:
            bound, why = "undecided", f"{second} streams reach {growth:.2g} times the throughput of one, which fits neither case"
    return Limit(best=best, at=at, enough=enough, bound=bound, why=why)


def surely_enough(low: Mapping[int, float], high: Mapping[int, float]) -> Sequence[int]:
    """Return the numbers of streams that may be the fewest with nearly the best throughput, by their intervals (bits/s)."""
    top_low, top_high = max(low.values()), max(high.values())
    possible = [streams for streams in sorted(high) if high[streams] >= NEARLY * top_low]
    sure = [streams for streams in sorted(low) if low[streams] >= NEARLY * top_high]
    last = sure[0] if sure else max(high)
    return [streams for streams in possible if streams <= last]
