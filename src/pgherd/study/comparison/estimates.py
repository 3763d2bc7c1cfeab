"""All numbers of a comparison, from which findings, tables and words are made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.sequential import Decision
from pgherd.study.comparison.blocks import MetricSeries
from pgherd.study.comparison.blocks import Block, MIN_CLEAN_BLOCKS
from pgherd.study.comparison.options import CompareOptions


@dataclass(frozen=True)
class ComparisonEstimates:
    """All numbers of a comparison. ``decided``: variant → what its primary metric says, None where it has no ratio; ``others``:
    variant → metric → ratio, with intervals that hold jointly; ``floor``: metric → the A/A pair's ratio."""

    options: CompareOptions
    blocks: Sequence[Block]
    used: Sequence[Block]
    primary: MetricSeries
    every: Mapping[str, MetricSeries]
    decided: Mapping[str, Decision | None]
    others: Mapping[str, Mapping[str, Estimate]]
    floor: Mapping[str, Estimate]

    @property
    def clean(self) -> bool:
        """Whether the numbers rest on clean blocks, enough of them."""
        return len(self.used) >= MIN_CLEAN_BLOCKS and all(block.clean for block in self.used)

    @property
    def compared(self) -> list[str]:
        """The metrics that can be compared, the one that decides first."""
        name = self.primary.metric.name
        return [name, *(one for one, series in self.every.items() if one != name and not series.why_not(self.options))]

    def ratio(self, variant: str, metric: str) -> Estimate | None:
        """A variant's ratio to the baseline; None where it has none."""
        if metric != self.primary.metric.name:
            return self.others.get(variant, {}).get(metric)
        decision = self.decided[variant]
        return None if decision is None else decision.estimate
