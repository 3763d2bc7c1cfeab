"""The double-buffering dip: whether throughput is low where shared buffers are about half of the memory.

There the same pages tend to lie in shared buffers and in the page cache at once, so that less of the database is cached than with either a
small or a large share. The fitted curve says what throughput a size should have; its ratio to what was measured is compared
between sizes within the published 45–55 % and all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis.intervals import ratio_of_means
from pgherd.model.finding import Finding
from pgherd.studies.working_set import published
from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.options import WorkingSetOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import throughput

WORTH = 0.03
"""A dip by less than this share is not worth avoiding."""
METHOD = "measured ÷ fitted throughput, sizes at 45–55 % over all others; ratio of means, log t interval (Welch)"


def dip(options: WorkingSetOptions, curves: Sequence[Measured]) -> Finding:
    """The ratio over all curves of one sweep, and what the data support."""
    low, high = published.DIP
    inside: list[float] = []
    outside: list[float] = []
    for measured in curves:
        for result in measured.used:
            fitted = measured.knee.throughput(measured.size(result))
            if fitted is None or fitted <= 0:
                continue
            share = int(result.trial.point["buffers"]) / int(result.trial.point["memory"])
            (inside if low <= share <= high else outside).append(throughput(result) / fitted)
    beside = {"experiment": "E7", "published": published.dip()}
    if not inside or not outside:
        where = f"no trial with shared buffers at {100 * low:.0f}–{100 * high:.0f} % of the container's memory and a fitted curve"
        return missing("ratio", where if not inside else "no trial outside of 45–55 %", method=METHOD, **beside)
    estimate = ratio_of_means(inside, outside)
    return as_finding(estimate, "ratio", _verdict(estimate.low, estimate.high), method=METHOD, **beside)


def _verdict(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "too few trials at 45–55 %: the data say nothing about a dip"
    if high < 1:
        return "a dip" if high < 1 - WORTH else f"lower, though perhaps by less than {100 * WORTH:.0f} %"
    if low > 1 - WORTH:
        return f"no dip of {100 * WORTH:.0f} % or more"
    return "the data support neither a dip nor that there is none"
