"""Compression ratios from a sample of segments, each compressed block by block.

A stratum is one relation (or one part of a directory). Its segments are drawn at random without repetition; the ratio of a
whole is estimated from each stratum's share of compressed bytes, weighted by the stratum's full size.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate

LEAST = 4
"""Segments of a stratum below which its spread is not known, unless they are all that it has."""

RESAMPLES = 400


@dataclass(frozen=True)
class Stratum:
    """One part of the data: its full ``size`` (bytes), how many ``segments`` it has in all, and of each sampled segment its
    bytes before (``raw``) and after compression (``packed``), in the same order."""

    name: str
    size: float
    segments: int
    raw: Sequence[float]
    packed: Sequence[float]

    @property
    def census(self) -> bool:
        """Whether every segment was read, so that nothing is left to chance."""
        return len(self.raw) >= self.segments

    @property
    def share(self) -> float:
        """Compressed bytes per byte, over the sampled segments (a ratio estimator: long segments count for more)."""
        return sum(self.packed) / sum(self.raw)


def ratio(strata: Sequence[Stratum], confidence: float = 0.95, seed: int = 1) -> Estimate:
    """Bytes before ÷ bytes after compression, of all strata together, with an interval over the sampled segments.

    A stratified cluster bootstrap: within each stratum n−1 of its n segments are drawn with repetition (Rao and Wu 1988,
    which makes the variance right for small n); segments that are all there is are not drawn. Blocks of one segment are
    alike, so they never count as repeats of each other. The finite population is left out of account: intervals are
    a little too wide where much of a stratum was read. ``n`` is the number of segments.

    Raises:
        ValueError: there are no bytes.
    """
    kept = [one for one in strata if one.size > 0 and sum(one.raw) > 0]
    if not kept:
        raise ValueError("a compression ratio needs at least one segment with a byte in it")
    whole = sum(one.size for one in kept)
    weights = [one.size / whole for one in kept]
    n = sum(len(one.raw) for one in kept)
    value = 1 / sum(weight * one.share for weight, one in zip(weights, kept, strict=True))
    method = "bytes before ÷ after, strata weighted by size; cluster bootstrap over segments"
    if all(one.census for one in kept):
        return Estimate(value, value, value, confidence, n, method, "every segment was read: nothing is left to chance")
    few = [one.name for one in kept if not one.census and len(one.raw) < LEAST]
    if few:
        why = f"no interval: fewer than {LEAST} segments of {', '.join(sorted(few))} were read"
        return Estimate(value, None, None, None, n, method, why)
    rng = random.Random(seed)
    draws = sorted(1 / sum(w * _drawn(one, rng) for w, one in zip(weights, kept, strict=True)) for _ in range(RESAMPLES))
    tail = (1 - confidence) / 2
    low, high = draws[int(tail * (RESAMPLES - 1))], draws[-1 - int(tail * (RESAMPLES - 1))]
    return Estimate(value, min(low, value), max(high, value), confidence, n, method)


def _drawn(one: Stratum, rng: random.Random) -> float:
    if one.census:
        return one.share
    chosen = rng.choices(range(len(one.raw)), k=len(one.raw) - 1)
    raw = sum(one.raw[i] for i in chosen)
    return sum(one.packed[i] for i in chosen) / raw if raw else one.share
