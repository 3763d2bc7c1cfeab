"""Compression ratios from a sample of segments, each compressed block by block.

A stratum is one relation or one part of a directory. Its segments are drawn at random without replacement. The overall ratio is
estimated from each stratum's share of compressed bytes, weighted by the stratum's full size.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate

MIN_SEGMENTS = 4
"""Minimum number of sampled segments of a stratum for a spread, unless the stratum has no more."""

RESAMPLES = 400


@dataclass(frozen=True)
class Stratum:
    """One part of the data.

    ``size`` is its full size in bytes and ``segments`` its total number of segments. ``raw`` and ``compressed`` are the bytes of
    each sampled segment before and after compression, in the same order.
    """

    name: str
    size: float
    segments: int
    raw: Sequence[float]
    compressed: Sequence[float]

    @property
    def census(self) -> bool:
        """Whether every segment was read, so that there is no sampling error."""
        return len(self.raw) >= self.segments

    @property
    def share(self) -> float:
        """Compressed bytes per byte over the sampled segments. A ratio estimator: longer segments have more weight."""
        return sum(self.compressed) / sum(self.raw)


def ratio(strata: Sequence[Stratum], confidence: float = 0.95, seed: int = 1) -> Estimate:
    """Estimate bytes before ÷ bytes after compression over all strata, with an interval over the sampled segments.

    The interval is a stratified cluster bootstrap. Within each stratum n−1 of its n segments are drawn with replacement (Rao
    and Wu 1988), which makes the variance correct for small n. A stratum that was read completely is not resampled. Blocks of
    one segment are similar, so they do not count as independent repeats. There is no finite population correction. Intervals
    are slightly too wide if much of a stratum was read. ``n`` is the number of segments.

    Raises:
        ValueError: there are no bytes.
    """
    nonempty = [stratum for stratum in strata if stratum.size > 0 and sum(stratum.raw) > 0]
    if not nonempty:
        raise ValueError("a compression ratio needs at least one segment with a byte in it")
    total = sum(stratum.size for stratum in nonempty)
    weights = [stratum.size / total for stratum in nonempty]
    n = sum(len(stratum.raw) for stratum in nonempty)
    value = 1 / sum(weight * stratum.share for weight, stratum in zip(weights, nonempty, strict=True))
    method = "bytes before ÷ after, strata weighted by size; cluster bootstrap over segments"
    if all(stratum.census for stratum in nonempty):
        return Estimate(value, value, value, confidence, n, method, "every segment was read: no sampling error")
    undersampled = [stratum.name for stratum in nonempty if not stratum.census and len(stratum.raw) < MIN_SEGMENTS]
    if undersampled:
        note = f"no interval: fewer than {MIN_SEGMENTS} segments of {', '.join(sorted(undersampled))} were read"
        return Estimate(value, None, None, None, n, method, note)
    rng = random.Random(seed)
    draws = sorted(
        1 / sum(weight * _resampled_share(stratum, rng) for weight, stratum in zip(weights, nonempty, strict=True))
        for _ in range(RESAMPLES)
    )
    tail = (1 - confidence) / 2
    low, high = draws[int(tail * (RESAMPLES - 1))], draws[-1 - int(tail * (RESAMPLES - 1))]
    return Estimate(value, min(low, value), max(high, value), confidence, n, method)


def _resampled_share(stratum: Stratum, rng: random.Random) -> float:
    if stratum.census:
        return stratum.share
    chosen = rng.choices(range(len(stratum.raw)), k=len(stratum.raw) - 1)
    raw = sum(stratum.raw[i] for i in chosen)
    return sum(stratum.compressed[i] for i in chosen) / raw if raw else stratum.share
