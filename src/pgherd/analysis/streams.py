"""Bottleneck of a network link, from its throughput by number of parallel streams.

One TCP stream sends at most one window per round trip, so its throughput is at most window ÷ round-trip time. If that is below
the link's capacity, throughput grows in proportion to the streams until the link is full (E14: 4.8, 9, 18, 23 Gbit/s with 1, 2,
4, 8 streams). If one stream fills the link, more streams gain nothing (21.4, 22, 22.5, 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

BottleneckKind = Literal["latency", "bandwidth", "cpu", "unknown"]

NEAR_PEAK_SHARE = 0.9
"""Share of the peak throughput from which a link counts as full."""
PROPORTIONAL_SHARE = 0.7
"""Share of proportional growth from which one stream counts as limited by its round trips."""
FULL_THREAD_SHARE = 0.9
"""Share of one CPU from which a thread of the tool counts as the bottleneck."""


@dataclass(frozen=True)
class LinkBottleneck:
    """Bottleneck of one stream, with the reason.

    ``peak_throughput`` is in bits/s, with ``peak_streams`` streams. ``streams_for_90pct`` is the fewest streams with 90 % of it.
    """

    peak_throughput: float
    peak_streams: int
    streams_for_90pct: int
    kind: BottleneckKind
    reason: str


def find_bottleneck(throughput: Mapping[int, float], cpu: Mapping[int, float] | None = None) -> LinkBottleneck:
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
    peak_streams = max(sorted(throughput), key=lambda streams: throughput[streams])
    peak = throughput[peak_streams]
    streams_for_90pct = min(streams for streams, value in throughput.items() if value >= NEAR_PEAK_SHARE * peak)
    single, larger = throughput[1], sorted(streams for streams in throughput if streams > 1)
    thread_share = max(cpu.get(1, 0.0), cpu.get(peak_streams, 0.0))
    if thread_share >= FULL_THREAD_SHARE:
        kind: BottleneckKind = "cpu"
        reason = f"a thread of iperf3 used {thread_share:.0%} of a CPU and may be the bottleneck instead of the link"
    elif not larger:
        kind, reason = "unknown", "only one stream was measured"
    elif single >= NEAR_PEAK_SHARE * peak:
        kind, reason = "bandwidth", f"one stream reaches {single / peak:.0%} of the peak throughput"
    else:
        second = larger[0]
        growth = throughput[second] / single
        # If the second point fills the link, growth is below proportional even though one stream is limited by round trips.
        possible = min(float(second), peak / single)
        if growth >= 1 + PROPORTIONAL_SHARE * (possible - 1):
            kind, reason = (
                "latency",
                f"{second} streams reach {growth:.2g} times the throughput of one: a stream is limited by its round trips",
            )
        else:
            kind, reason = "unknown", f"{second} streams reach {growth:.2g} times the throughput of one, which fits neither case"
    return LinkBottleneck(peak_throughput=peak, peak_streams=peak_streams, streams_for_90pct=streams_for_90pct, kind=kind, reason=reason)


def possible_streams(low: Mapping[int, float], high: Mapping[int, float]) -> Sequence[int]:
    """Return the numbers of streams that may be the fewest with 90 % of the peak throughput, by their intervals (bits/s)."""
    top_low, top_high = max(low.values()), max(high.values())
    possible = [streams for streams in sorted(high) if high[streams] >= NEAR_PEAK_SHARE * top_low]
    sure = [streams for streams in sorted(low) if low[streams] >= NEAR_PEAK_SHARE * top_high]
    last = sure[0] if sure else max(high)
    return [streams for streams in possible if streams <= last]
