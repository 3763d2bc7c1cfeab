"""A comparison whose blocks took turns on several hosts: each variant's ratio on each host, and whether the hosts disagree. Pure.

The ratio that decides is over the blocks of all hosts: each block is a pair on one host, so that a slower host slows both of its halves.
What may differ from host to host is the ratio itself. The intervals here are of each host's own blocks, for themselves alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.paired import paired_ratio, why_no_ratio
from pgherd.analysis.two_sample import joint
from pgherd.model.finding import Finding
from pgherd.study.comparison.tables import ComparisonEstimates
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]


def host_rows(found: ComparisonEstimates) -> list[Row]:
    """One row per host and variant: the number of blocks that count, and the ratio of the deciding metric to the baseline."""
    made: list[Row] = []
    for host in found.options.hosts:
        for side in found.options.variants:
            estimate, blocks = _ratio(found, host, side)
            ratio = missing("", "no block of this host has a ratio") if estimate is None else as_finding(estimate, "", f"on host {host}")
            made.append({"host": host, "variant": side, "metric": found.primary.metric.name, "blocks": blocks, "ratio": ratio})
    return made


def host_warnings(found: ComparisonEstimates) -> list[str]:
    """A sentence for each variant of which two hosts disagree for certain: of intervals that all hold jointly at 95 %, theirs have nothing
    in common."""
    # If two intervals of those that hold jointly have nothing in common, then one does not hold, or they are of different things.
    confidence = joint(len(found.options.hosts) * len(found.options.variants))
    return [said for side in found.options.variants if (said := _disagreement(found, side, confidence)) is not None]


def disjoint_intervals(bounds: Mapping[str, tuple[float, float]]) -> tuple[str, str] | None:
    """Two of these intervals that have nothing in common, the lower one first; None where all of them overlap."""
    return next(((one, other) for one, other in itertools.permutations(bounds, 2) if bounds[one][1] < bounds[other][0]), None)


def _disagreement(found: ComparisonEstimates, side: str, confidence: float) -> str | None:
    bounds = {}
    for host in found.options.hosts:
        estimate, _ = _ratio(found, host, side, confidence)
        if estimate is not None and estimate.low is not None and estimate.high is not None:
            bounds[host] = (estimate.low, estimate.high)
    hosts = disjoint_intervals(bounds)
    if hosts is None:
        return None
    (low, high), (from_, to) = (bounds[host] for host in hosts)
    return (
        f"The hosts disagree on {side}: its {found.primary.metric.label} is {low:.3g} to {high:.3g} × the baseline's on {hosts[0]}, but "
        f"{from_:.3g} to {to:.3g} × on {hosts[1]}; what is said of all hosts holds for neither "
        f"(intervals of {100 * confidence:.4g} % each, jointly 95 %)."
    )


def _ratio(found: ComparisonEstimates, host: str, side: str, confidence: float = 0.95) -> tuple[Estimate | None, int]:
    """The ratio over one host's blocks, None where they have none; and how many they are."""
    own = [number for number, block in enumerate(found.used) if block.host == host]
    values, baseline = found.primary.pair(found.options, side)
    pair = [values[number] for number in own], [baseline[number] for number in own]
    return (None if why_no_ratio(*pair) is not None else paired_ratio(*pair, confidence)), len(own)
