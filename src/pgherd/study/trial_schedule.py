"""The order of a run's trials: planned blocks, reruns of tainted trials, further points and repeats while the budget lasts.

Pure; imports no scientific library, since it runs between the trials.

A run is a sequence of batches, each decided from the results of the batches before it alone. ``propose`` walks that
sequence from the start and returns what is missing of the first batch that is not complete, so that an interrupted run
goes on exactly as it would have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial

MAX_TAINTED_RERUNS = 2
"""A point whose last so many reruns were all tainted is not rerun again."""
TRANSITION_S = 1.0
"""Seconds that a warm transition and the end of the drivers are taken to need at most."""

Point = Mapping[str, int | float | str]


class MeasurementOptions(Protocol):
    """What of a study's options decides how much is measured; see pgherd.study.database_options.DatabaseOptions."""

    @property
    def repeats(self) -> int:
        """Planned trials per point."""
        ...

    @property
    def budget_seconds(self) -> float | None:
        """Bound on the time of all trials; None: no bound, and no repeats beyond the planned ones and reruns."""
        ...

    @property
    def max_reruns(self) -> int:
        """Bound on the reruns of tainted trials."""
        ...

    @property
    def precision(self) -> float:
        """Relative standard error of a point's mean at which it gets no further repeats."""
        ...


def _nothing(done: Sequence[TrialResult]) -> Sequence[Trial]:
    return ()


@dataclass(frozen=True)
class SchedulePlan:
    """What a study plans, and how it goes on.

    ``blocks`` are the planned trials; a block is run as a whole where the budget allows. ``points`` stand in the order
    in which ties are broken. ``build(point, repeat, reason)`` makes a trial; repeats of a point from ``reserved(point)``
    on are free for reruns and further repeats. ``refine(results)`` may want trials at points of its own, one batch at a
    time; it is asked once no rerun is left to do, and only while there is a budget. ``adaptive``: what is left of the budget then
    goes to further repeats of the least certain points; not for a study that pairs trials by block.
    """

    blocks: Sequence[Sequence[Trial]]
    points: Sequence[Point]
    build: Callable[[Point, int, str], Trial]
    reserved: Callable[[Point], int]
    refine: Callable[[Sequence[TrialResult]], Sequence[Trial]] = _nothing
    adaptive: bool = True

    @property
    def planned(self) -> tuple[Trial, ...]:
        """All planned trials: what fits no budget is among them."""
        return tuple(trial for block in self.blocks for trial in block)


def propose(options: MeasurementOptions, design: SchedulePlan, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options, design and results always give the same proposal."""
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    walk = _Walk(options, design)
    while True:
        batch, stop = walk.next()
        if stop is not None:
            return Proposal(stop=stop, worst_case=len(walk.done))
        missing = tuple(trial for trial in batch if trial.key() not in by_key)
        if missing:
            return Proposal(trials=missing, worst_case=worst_case(options, design))
        walk.done += [by_key[trial.key()] for trial in batch]


def worst_case(options: MeasurementOptions, design: SchedulePlan) -> int:
    """How many trials a run has at most."""
    if options.budget_seconds is None:
        return len(design.planned) + options.max_reruns
    shortest = min(trial.seconds() for trial in design.planned)
    return max(len(design.blocks[0]), math.ceil(options.budget_seconds / max(shortest, 1.0)))


def throughput(result: TrialResult) -> float:
    """A trial's throughput over all its phases, transactions per second."""
    seconds = sum(phase.seconds for phase in result.phases)
    return sum(phase.throughput * phase.seconds for phase in result.phases) / seconds if seconds > 0 else 0.0


class _Walk:
    """The batches in their order; ``done`` holds the results of those that are complete."""

    def __init__(self, options: MeasurementOptions, design: SchedulePlan) -> None:
        self.options = options
        self.design = design
        self.done: list[TrialResult] = []
        self.blocks = [tuple(block) for block in design.blocks]
        self.reruns = 0
        self.short = False

    def next(self) -> tuple[tuple[Trial, ...], str | None]:
        """The next batch, or why there is none."""
        if self.blocks and not self.done and self._surely_fits():
            # No need to decide block by block: all of the plan is one batch, which a dry run shows.
            whole = tuple(trial for block in self.blocks for trial in block)
            self.blocks = []
            return whole, None
        while self.blocks:
            block = self.blocks.pop(0)
            fitting = block if not self.done else self._fitting(block)
            self.short |= len(fitting) < len(block)
            if fitting:
                return fitting, None
        batch = self._fitting(self._tainted())
        if batch:
            self.reruns += len(batch)
            return batch, None
        if self.options.budget_seconds is not None and not self.short:
            batch = self._fitting(self.design.refine(self.done)) or self._fitting(self._least_certain() if self.design.adaptive else ())
        return (batch, None) if batch else ((), self._reason())

    def _surely_fits(self) -> bool:
        """Whether the whole plan fits the budget with a second to spare for each trial's transition. Transitions of
        trials that restart or restore servers are not known beforehand, nor is how long a trial takes that ends with its drivers,
        so these are decided block by block."""
        if self.options.budget_seconds is None:
            return True
        needed = sum(trial.seconds() + TRANSITION_S for trial in self.design.planned)
        known = all(trial.state == "warm" and not trial.open_ended for trial in self.design.planned)
        return known and needed <= self.options.budget_seconds

    def _left(self) -> float:
        """Seconds left of the budget."""
        if self.options.budget_seconds is None:
            return math.inf
        return self.options.budget_seconds - sum(max(result.ended - result.started, 0.0) for result in self.done)

    def _fitting(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """The first trials that fit into the rest of the budget, each taken to cost as much beyond its planned time as
        those that have run (transitions, starting and ending drivers)."""
        extra = [result.ended - result.started - result.trial.seconds() for result in self.done if result.error is None]
        beyond = max(statistics.median(extra), 0.0) if extra else 0.0
        left, fitting = self._left(), []
        for trial in trials:
            left -= trial.seconds() + beyond
            if left < 0:
                break
            fitting.append(trial)
        return tuple(fitting)

    def _at(self, point: Point) -> list[TrialResult]:
        return [result for result in self.done if result.trial.point == point]

    def _again(self, point: Point, reason: str) -> Trial:
        highest = max((result.trial.repeat for result in self._at(point)), default=-1)
        # Repeat numbers of planned trials that did not fit the budget stay theirs: a key names one trial only.
        return self.design.build(point, max(highest + 1, self.design.reserved(point)), reason)

    def _points(self) -> list[Point]:
        """The planned points, then those that were added."""
        points = list(self.design.points)
        for result in self.done:
            if result.trial.point not in points:
                points.append(result.trial.point)
        return points

    def _tainted(self) -> list[Trial]:
        """One rerun for each point that has more tainted than rerun trials, those without any clean trial first."""
        left = self.options.max_reruns - self.reruns
        wanted = []
        for place, point in enumerate(self._points()):
            trials = self._at(point)
            reruns = [result for result in trials if result.trial.reason.startswith("rerun")]
            tainted = [result for result in trials if result.tainted]
            clean_reruns = sum(not result.tainted for result in reruns)
            # What the kernel ended for want of memory would be ended again: that is what the trial found.
            planned_tainted = [result for result in tainted if result not in reruns and not result.memory_kills]
            hopeless = len(reruns) >= MAX_TAINTED_RERUNS and all(result.tainted for result in reruns[-MAX_TAINTED_RERUNS:])
            if clean_reruns >= len(planned_tainted) or hopeless or _systematic(trials):
                continue
            origin = planned_tainted[clean_reruns]
            clean = len(trials) - len(tainted)
            wanted.append((clean, place, self._again(point, f"rerun of tainted {origin.trial.key()}: {_why(origin)}")))
        return [trial for _, _, trial in sorted(wanted, key=lambda each: each[:2])][: max(left, 0)]

    def _least_certain(self) -> list[Trial]:
        """One more repeat where the relative standard error is largest."""
        ranked = []
        for place, point in enumerate(self._points()):
            trials = self._at(point)
            values = [throughput(result) for result in trials if not result.tainted]
            if len(trials) >= 3 * max(self.options.repeats, 3) or not values:
                continue  # enough of this point, or nothing clean to make more certain
            error = math.inf
            if len(values) > 1 and statistics.fmean(values) > 0:
                error = statistics.stdev(values) / math.sqrt(len(values)) / statistics.fmean(values)
            if error > self.options.precision or len(values) < 3:
                ranked.append((-error if math.isfinite(error) else -1e9 + len(values), place, point))
        best = sorted(ranked, key=lambda each: each[:2])[:1]
        return [self._again(point, "adaptive repeat: its interval is the widest") for _, _, point in best]

    def _reason(self) -> str:
        tainted = sum(result.tainted for result in self.done)
        if self.short:
            wanted = len(self.design.planned)
            return f"the budget of {self.options.budget_seconds:g} s is used up; {len(self.done)} of {wanted} planned trials were run"
        rest = f"; {tainted} trials are tainted" if tainted else ""
        if self.options.budget_seconds is not None and self._left() < min(trial.seconds() for trial in self.design.planned):
            return f"all planned trials are done and the budget of {self.options.budget_seconds:g} s is used up{rest}"
        return f"all planned trials are done{rest}"


def _systematic(trials: Sequence[TrialResult]) -> bool:
    """Whether the same intent failed in every trial of a point, two or more: repeating would not change it."""
    failed = [{v.check for v in result.verdicts if v.taints and v.kind == "intent"} if result.error is None else set() for result in trials]
    return len(failed) > 1 and bool(set.intersection(*failed))


def _why(result: TrialResult) -> str:
    if result.error is not None:
        return "it did not finish"
    return "failed " + ", ".join(v.check for v in result.verdicts if v.taints)
