"""Next blocks of a comparison and its stopping rule. Pure. It imports no scientific library, because it runs between the trials.

Blocks form batches, and each batch depends only on the results of the earlier batches. The first batch is one block, which shows the
cost of its trials. Each further batch extends to the next interim analysis (pgherd.analysis.group_sequential). ``propose`` walks the
batches from the start and returns the missing trials of the first incomplete batch. So an interrupted run continues exactly as it would
have, also within a block.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from pgherd.analysis.block_ratios import no_ratio_reason
from pgherd.analysis.group_sequential import ALPHA, Decision, analysis_schedule, decide
from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import State, Trial
from pgherd.study.comparison import variants
from pgherd.study.comparison.blocks import Block, MetricSeries, complete_blocks, primary_series
from pgherd.study.comparison.options import CompareOptions

MIN_BLOCKS_TRIED = 2
"""Number of blocks after which the study stops if a variant has finished no trial, or no trial has the primary metric."""


def propose(options: CompareOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Deterministic in options and results."""
    blocks = {block.number: block for block in complete_blocks(options, results)}
    keys = {result.trial.key() for result in results}
    plan = _BlockPlan(options)
    while True:
        batch, stop = plan.next()
        if stop is not None:
            return Proposal(stop=stop, max_trials=sum(len(block.all) for block in plan.finished))
        missing = tuple(trial for trial in batch if trial.key() not in keys)
        if missing:
            return Proposal(trials=missing, max_trials=worst_case(options))
        plan.finished += [blocks[number] for number in sorted({trial.repeat for trial in batch})]


def worst_case(options: CompareOptions) -> int:
    """Return the maximum number of trials of a run."""
    trials = variants.block_trials(options, 0)
    seconds = max(sum(trial.seconds() for trial in trials), 1.0)
    return len(trials) * max(1, min(options.max_blocks + options.max_reruns, math.floor(options.time_budget / seconds)))


def alpha(options: CompareOptions) -> float:
    """Return the error rate of each variant's comparison with the baseline. All comparisons share one error rate (Bonferroni)."""
    return ALPHA / len(options.other_variants)


def decisions(options: CompareOptions, primary: MetricSeries, *, last: bool = False) -> dict[str, Decision | None]:
    """Return the decision on each variant by the primary metric. None if it has no ratio."""
    decided: dict[str, Decision | None] = {}
    for variant in options.other_variants:
        values, baseline = primary.pair(options, variant)
        decided[variant] = (
            decide(
                values,
                baseline,
                max_blocks=options.max_blocks,
                precision=options.precision,
                equivalence_margin=options.equivalence_margin,
                alpha=alpha(options),
                last=last,
            )
            if no_ratio_reason(values, baseline) is None
            else None
        )
    return decided


@dataclass
class _BlockPlan:
    """Sequence of batches. ``finished`` holds the blocks of the complete ones, ``reruns`` counts blocks that replace tainted ones."""

    options: CompareOptions
    finished: list[Block] = field(default_factory=list)
    reruns: int = 0

    def next(self) -> tuple[tuple[Trial, ...], str | None]:
        """Return the next batch of blocks, or the reason to stop."""
        options, clean = self.options, [block for block in self.finished if block.clean]
        if not self.finished:
            return variants.block_trials(options, 0), None
        stop = (
            self._failing_variant() or (self._unusable_metric() if len(self.finished) == MIN_BLOCKS_TRIED else None) or self._settled(clean)
        )
        if stop:
            return (), stop
        tainted = [block for block in self.finished if not block.clean]
        to_rerun = tainted[self.reruns : options.max_reruns]
        planned = options.max_blocks - (len(self.finished) - self.reruns)
        count = min(self._next_look(len(clean)) - len(clean), len(to_rerun) + planned)
        if len(self.finished) < MIN_BLOCKS_TRIED and (not self.finished[0].finished or self._unusable_metric()):
            count = min(count, 1)  # one block is enough to check whether the failure was chance
        if count < 1:
            return (), f"{len(self.finished)} blocks were run, {self.reruns} of them as reruns, and {len(tainted)} are tainted"
        count = min(count, self._fitting())
        if count < 1:
            return (
                (),
                f"the budget of {options.time_budget:g} s is used up; {len(self.finished)} blocks were run{_tainted_text(len(tainted))}",
            )
        batch: list[Trial] = []
        for index in range(count):
            reason = f"rerun of block {to_rerun[index].number}: {to_rerun[index].faults}" if index < len(to_rerun) else "planned"
            batch += variants.block_trials(options, len(self.finished) + index, reason)
        self.reruns += min(count, len(to_rerun))
        return tuple(batch), None

    def _next_look(self, clean: int) -> int:
        return next(count for count in analysis_schedule(self.options.max_blocks, alpha(self.options)) if count > clean)

    def _fitting(self) -> int:
        """Return the number of further blocks that fit into the rest of the time budget.

        The overhead of each trial (transition, start and stop of drivers) is that of finished trials with the same start state.
        """
        results = [result for block in self.finished for result in block.all]
        overheads = {state: _overhead(results, state) for state in get_args(State)}
        remaining = self.options.time_budget - sum(max(result.ended - result.started, 0.0) for result in results)
        count = 0
        while count < self.options.max_blocks + self.options.max_reruns:
            remaining -= sum(
                trial.seconds() + overheads[trial.state] for trial in variants.block_trials(self.options, len(self.finished) + count)
            )
            if remaining < 0:
                break
            count += 1
        return count

    def _failing_variant(self) -> str | None:
        """Return a stop reason if a variant has finished no trial in enough blocks."""
        if len(self.finished) < MIN_BLOCKS_TRIED:
            return None
        for variant in self.options.block_variants:
            failed = [[result for result in block.results[variant] if result.error is not None] for block in self.finished]
            if all(failed):
                name = "all variants (interleaved)" if self.options.in_slices else variant
                return f"{name} did not finish a trial in any of {len(self.finished)} blocks: {failed[-1][-1].error}"
        return None

    def _unusable_metric(self) -> str | None:
        """Return a stop reason if no finished block has the primary metric."""
        finished = [block for block in self.finished if block.finished]
        if not finished:
            return None
        try:
            primary = primary_series(self.options, finished)
        except KeyError as error:
            return str(error.args[0])
        reason = primary.unusable_reason(self.options)
        return f"{primary.metric.label} cannot be compared: {reason}" if reason else None

    def _settled(self, clean: Sequence[Block]) -> str | None:
        """Return a stop reason if every variant's comparison may stop at this interim analysis."""
        if len(clean) not in analysis_schedule(self.options.max_blocks, alpha(self.options)):
            return None
        try:
            primary = primary_series(self.options, clean)
        except KeyError as error:
            return str(error.args[0])
        decided = decisions(self.options, primary)
        if not all(decision is None or decision.stop for decision in decided.values()):
            return None
        reasons = [f"{variant}: {_why(decision, primary, self.options)}" for variant, decision in decided.items()]
        extent = "all planned" if len(clean) >= self.options.max_blocks else "enough for a conclusion"
        return f"{len(clean)} blocks, {extent}; " + "; ".join(reasons)


def _overhead(results: Sequence[TrialResult], state: State) -> float:
    """Return the median time of finished trials beyond their planned time, in seconds.

    Uses trials with this start state, or all trials if there are none.
    """
    extra = [(result.trial.state, result.ended - result.started - result.trial.seconds()) for result in results if result.error is None]
    overheads = [seconds for start_state, seconds in extra if start_state == state] or [seconds for _, seconds in extra]
    return max(statistics.median(overheads), 0.0) if overheads else 0.0


def _why(decision: Decision | None, primary: MetricSeries, options: CompareOptions) -> str:
    if decision is not None:
        return decision.reason
    return primary.unusable_reason(options) or f"its {primary.metric.label} has no ratio"


def _tainted_text(tainted: int) -> str:
    return f", {tainted} of them tainted" if tainted else ""
