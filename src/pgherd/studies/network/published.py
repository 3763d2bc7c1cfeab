"""What E14 published: throughput by parallel TCP streams (reference: Gary Little, n0derunner.com)."""

from __future__ import annotations

SOURCE = "E14, Gary Little, n0derunner.com"

STREAMS = (1, 2, 4, 8)
CLOUD = (4.8, 9.0, 18.0, 23.0)
"""Gbit/s between racks of a cloud: latency makes one stream unable to fill the link."""
PREMISES = (21.4, 22.0, 22.5, 23.0)
"""Gbit/s on premises."""

SERIES = {"E14: cloud": CLOUD, "E14: on premises": PREMISES}


def beside(streams: int) -> str | None:
    """Both figures for so many streams; None where E14 has none."""
    if streams not in STREAMS:
        return None
    at = STREAMS.index(streams)
    return f"{CLOUD[at]:g} Gbit/s (cloud), {PREMISES[at]:g} Gbit/s (on premises) ({SOURCE})"
