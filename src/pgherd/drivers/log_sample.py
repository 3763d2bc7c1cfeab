"""What a sample of logged transactions tells of all: percentiles of their latency. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from pgherd.model.result import Latency

BEYOND = 10
"""So many sampled transactions must lie beyond a percentile for it to be given."""


def latency(values: Sequence[float], mean: float | None) -> Latency:
    """The latency of a target: percentiles and maximum of the sampled ones (ms), and the ``mean`` of all, which is known otherwise."""
    ordered = sorted(values)
    return Latency(
        mean=mean,
        p50=percentile(ordered, 0.5),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        maximum=ordered[-1] if ordered else None,
        sampled=len(ordered),
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The quantile of ordered values, linear between neighbours (Hyndman and Fan's type 7); None where fewer than ten
    values lie beyond it: a p99 needs 1000 of them."""
    if len(ordered) * (1 - share) < BEYOND - 1e-9:
        return None
    position = (len(ordered) - 1) * share
    low = floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
