"""The slowest and the fastest of several links, with intervals that hold although the link and its number of streams were chosen.

The lowest of noisy values is too low and the highest too high, the more so the more links there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pgherd.analysis.best_load import best_load
from pgherd.analysis.bootstrap import draw_means
from pgherd.analysis.intervals import Estimate

MOST_COMPARED = 50
"""Maximum number of links that are compared at once. Of more, the most extreme ones: the others are far from the choice."""


@dataclass(frozen=True)
class LinkChoice:
    """The slowest or fastest link.

    ``links`` are the targets that cannot be told from the most extreme one, which is the first. Empty if the spread is unknown.
    """

    value: Estimate
    links: tuple[str, ...]


def extreme_link(throughputs: Mapping[str, Sequence[Sequence[float]]], end: Literal["slowest", "fastest"]) -> LinkChoice:
    """Return the slowest or fastest link by the throughput with its best number of streams.

    Args:
        throughputs: link → throughputs of the trials of each number of streams.
        end: which one.

    Raises:
        ValueError: no links, or a throughput that is not above zero.
    """
    trials = sum(len(values) for of_link in throughputs.values() for values in of_link)
    drawn = draw_means([values for of_link in throughputs.values() for values in of_link])
    peaks, columns, first = [], [], 0
    for of_link in throughputs.values():
        part = None if drawn is None else drawn[:, first : first + len(of_link)]
        first += len(of_link)
        peaks.append(best_load([sum(values) / len(values) for values in of_link], part, trials).value.value)
        if part is not None:
            highest = part.max(axis=1)
            columns.append(np.maximum(highest - highest.mean() + peaks[-1], 1e-3 * peaks[-1]))
    if min(peaks) <= 0:
        raise ValueError(f"the extreme of links needs throughputs above zero, not {min(peaks):g}")
    power = 1.0 if end == "fastest" else -1.0
    order = sorted(range(len(peaks)), key=lambda i: peaks[i] ** power, reverse=True)[:MOST_COMPARED]
    draws = None if drawn is None else np.column_stack([columns[i] for i in order]) ** power
    best = best_load([peaks[i] ** power for i in order], draws, trials)
    names = list(throughputs)
    links = tuple(names[order[i]] for i in best.candidates)
    ends = sorted(value**power for value in (best.value.low, best.value.high) if value is not None)
    low, high = ends or (None, None)
    method = f"{end} of the links at their best numbers of streams, corrected for the choice"
    return LinkChoice(replace(best.value, value=best.value.value**power, low=low, high=high, method=method), links)
