"""Which blocks a comparison runs, and when it stops. Pure; imports no scientific library, since it runs between the trials.

Blocks come in batches, each decided from the results of the batches before it alone: the first is one block, which shows what
its trials cost, and each further one leads to the next number of clean blocks at which the data may be looked at
(pgherd.analysis.sequential). ``propose`` walks the batches from the start and returns what is missing of the first that is not
complete, so that an interrupted run goes on exactly as it would have, in the middle of a block too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from pgherd.analysis.paired import why_no_ratio
from pgherd.analysis.sequential import ALPHA, Decision, decide, looks
from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import State, Trial
from pgherd.study.comparison import variants
from pgherd.study.comparison.blocks import Block, MetricSeries, complete_blocks, primary_series
from pgherd.study.comparison.options import CompareOptions

MIN_BLOCKS_TRIED = 2
"""Blocks after which an arm that never finished a trial ends the study, and a metric that no trial has: a pair needs both sides."""


def propose(options: CompareOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    found = {block.number: block for block in complete_blocks(options, results)}
    keys = {result.trial.key() for result in results}
    walk = _Walk(options)
    while True:
        batch, stop = walk.next()
        if stop is not None:
            return Proposal(stop=stop, worst_case=sum(len(block.all) for block in walk.done))
        missing = tuple(trial for trial in batch if trial.key() not in keys)
        if missing:
            return Proposal(trials=missing, worst_case=worst_case(options))
        walk.done += [found[number] for number in sorted({trial.repeat for trial in batch})]


def worst_case(options: CompareOptions) -> int:
    """How many trials a run has at most."""
    trials = variants.block_trials(options, 0)
    seconds = max(sum(trial.seconds() for trial in trials), 1.0)
    return len(trials) * max(1, min(options.most + options.max_reruns, math.floor(options.budget_seconds / seconds)))


def alpha(options: CompareOptions) -> float:
    """The error rate of each variant's comparison with the baseline: all of them share one (Bonferroni)."""
    return ALPHA / len(options.variants)


def decisions(options: CompareOptions, primary: MetricSeries, *, last: bool = False) -> dict[str, Decision | None]:
    """Variant → what the data say of it by the metric that decides; None where it has no ratio."""
    found: dict[str, Decision | None] = {}
    for side in options.variants:
        values, baseline = primary.pair(options, side)
        found[side] = (
            decide(
                values,
                baseline,
                most=options.most,
                precision=options.precision,
                equivalence=options.equivalence,
                alpha=alpha(options),
                last=last,
            )
            if why_no_ratio(values, baseline) is None
            else None
        )
    return found


@dataclass
class _Walk:
    """The batches in their order; ``done`` holds the blocks of those that are complete."""

    options: CompareOptions
    done: list[Block] = field(default_factory=list)
    reruns: int = 0

    def next(self) -> tuple[tuple[Trial, ...], str | None]:
        """The next batch of blocks, or why there is none."""
        options, clean = self.options, [block for block in self.done if block.clean]
        if not self.done:
            return variants.block_trials(options, 0), None
        stop = self._hopeless() or (self._unseen() if len(self.done) == MIN_BLOCKS_TRIED else None) or self._settled(clean)
        if stop:
            return (), stop
        tainted = [block for block in self.done if not block.clean]
        again = tainted[self.reruns : options.max_reruns]
        planned = options.most - (len(self.done) - self.reruns)
        wanted = min(self._next_look(len(clean)) - len(clean), len(again) + planned)
        if len(self.done) < MIN_BLOCKS_TRIED and (not self.done[0].finished or self._unseen()):
            wanted = min(wanted, 1)  # whether that was chance should not cost many blocks to find out
        if wanted < 1:
            return (), f"{len(self.done)} blocks were run, {self.reruns} of them as reruns, and {len(tainted)} are tainted"
        count = min(wanted, self._fitting())
        if count < 1:
            return (), f"the budget of {options.budget_seconds:g} s is used up; {len(self.done)} blocks were run{_rest(len(tainted))}"
        batch: list[Trial] = []
        for place in range(count):
            reason = f"rerun of block {again[place].number}: {again[place].faults}" if place < len(again) else "planned"
            batch += variants.block_trials(options, len(self.done) + place, reason)
        self.reruns += min(count, len(again))
        return tuple(batch), None

    def _next_look(self, clean: int) -> int:
        return next(count for count in looks(self.options.most, alpha(self.options)) if count > clean)

    def _fitting(self) -> int:
        """How many further blocks fit into the rest of the budget, each trial taken to cost as much beyond its planned time as
        those that have begun in the same state (transitions, starting and ending drivers)."""
        results = [result for block in self.done for result in block.all]
        beyond = {state: _beyond(results, state) for state in get_args(State)}
        left = self.options.budget_seconds - sum(max(result.ended - result.started, 0.0) for result in results)
        count = 0
        while count < self.options.most + self.options.max_reruns:
            left -= sum(trial.seconds() + beyond[trial.state] for trial in variants.block_trials(self.options, len(self.done) + count))
            if left < 0:
                break
            count += 1
        return count

    def _hopeless(self) -> str | None:
        """That an arm never finished a trial, when that has been tried often enough."""
        if len(self.done) < MIN_BLOCKS_TRIED:
            return None
        for side in self.options.sides:
            failed = [[result for result in block.results[side] if result.error is not None] for block in self.done]
            if all(failed):
                who = "all variants by turns" if self.options.side_by_side else side
                return f"{who} did not finish a trial in any of {len(self.done)} blocks: {failed[-1][-1].error}"
        return None

    def _unseen(self) -> str | None:
        """That the metric which is to decide was seen in no block so far; None while a block has it, or none has finished."""
        finished = [block for block in self.done if block.finished]
        if not finished:
            return None
        try:
            primary = primary_series(self.options, finished)
        except KeyError as error:
            return str(error.args[0])
        why = primary.why_not(self.options)
        return f"{primary.metric.label} cannot be compared: {why}" if why else None

    def _settled(self, clean: Sequence[Block]) -> str | None:
        """That every variant's comparison may stop, at a number of blocks at which one may look."""
        if len(clean) not in looks(self.options.most, alpha(self.options)):
            return None
        try:
            primary = primary_series(self.options, clean)
        except KeyError as error:
            return str(error.args[0])
        found = decisions(self.options, primary)
        if not all(decision is None or decision.stop for decision in found.values()):
            return None
        said = [f"{side}: {_why(decision, primary, self.options)}" for side, decision in found.items()]
        enough = "as many as planned were run" if len(clean) >= self.options.most else "enough is known"
        return f"{len(clean)} blocks, and {enough}; " + "; ".join(said)


def _beyond(results: Sequence[TrialResult], state: State) -> float:
    """The median of the seconds that finished trials took beyond their planned time: of those that began in this state, or of all."""
    extra = [(result.trial.state, result.ended - result.started - result.trial.seconds()) for result in results if result.error is None]
    alike = [seconds for began, seconds in extra if began == state] or [seconds for _, seconds in extra]
    return max(statistics.median(alike), 0.0) if alike else 0.0


def _why(decision: Decision | None, primary: MetricSeries, options: CompareOptions) -> str:
    if decision is not None:
        return decision.why
    return primary.why_not(options) or f"its {primary.metric.label} has no ratio"


def _rest(tainted: int) -> str:
    return f", {tainted} of them tainted" if tainted else ""
