"""Order of a run's trials: planned blocks, reruns of tainted trials, then further points and repeats within the time budget.

Pure. It imports no scientific library, because it runs between the trials.

A run is a sequence of batches. Each batch depends only on the results of the earlier batches. ``propose`` walks that sequence from the
start and returns the missing trials of the first incomplete batch. So an interrupted run continues exactly as it would have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial

MAX_TAINTED_RERUNS = 2
"""Number of consecutive tainted reruns after which a point is not rerun again."""
TRANSITION_S = 1.0
"""Assumed maximum of a warm transition and the drivers' exit, in seconds."""

Point = Mapping[str, int | float | str]

_RERUN = "rerun of tainted "
"""Start of the reason of a rerun. The key of the trial that it repeats follows."""


def repeats_trial(result: TrialResult, origin: TrialResult) -> bool:
    """Return True if a trial is a rerun of this tainted one."""
    return result.trial.reason.startswith(f"{_RERUN}{origin.trial.key()}:")


class MeasurementOptions(Protocol):
    """Options that limit the number of trials, see pgherd.study.database_options.DatabaseOptions."""

    @property
    def repeats(self) -> int:
        """Planned trials per point."""
        ...

    @property
    def fixed_repeats(self) -> bool:
        """Whether the user gave the number of repeats, so that only reruns of tainted trials are added."""
        ...

    @property
    def time_budget(self) -> float | None:
        """Maximum time of all trials, in seconds. None: no limit, and only planned trials and reruns."""
        ...

    @property
    def max_reruns(self) -> int:
        """Maximum number of reruns of tainted trials."""
        ...

    @property
    def precision(self) -> float:
        """Relative standard error of a point's mean below which it gets no further repeats."""
        ...


def _no_trials(results: Sequence[TrialResult]) -> Sequence[Trial]:
    return ()


@dataclass(frozen=True)
class SchedulePlan:
    """Planned trials of a study and rules for further ones.

    Attributes:
        blocks: planned trials. A block runs completely if the time budget allows.
        points: planned points, in the order that breaks ties.
        build: ``build(point, repeat, reason)`` returns a trial.
        reserved: ``reserved(point)`` is the first repeat number that reruns and further repeats may use.
        refine: ``refine(results)`` returns trials at further points, one batch at a time. Called after the reruns, with a time budget only.
        adaptive: spend the remaining time budget on the least certain points, unless the number of repeats is fixed. False for a study
            that pairs trials by block.
        focus: ``focus(results)`` returns the points that get these repeats. None: all.
    """

    blocks: Sequence[Sequence[Trial]]
    points: Sequence[Point]
    build: Callable[[Point, int, str], Trial]
    reserved: Callable[[Point], int]
    refine: Callable[[Sequence[TrialResult]], Sequence[Trial]] = _no_trials
    adaptive: bool = True
    focus: Callable[[Sequence[TrialResult]], Sequence[Point]] | None = None

    @property
    def planned(self) -> tuple[Trial, ...]:
        """All planned trials, including those that exceed the time budget."""
        return tuple(trial for block in self.blocks for trial in block)


def propose(options: MeasurementOptions, design: SchedulePlan, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Deterministic in options, design and results."""
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    plan = _BatchPlan(options, design)
    while True:
        batch, stop = plan.next()
        if stop is not None:
            return Proposal(stop=stop, max_trials=len(plan.finished))
        missing = tuple(trial for trial in batch if trial.key() not in by_key)
        if missing:
            return Proposal(trials=missing, max_trials=worst_case(options, design))
        plan.finished += [by_key[trial.key()] for trial in batch]


def worst_case(options: MeasurementOptions, design: SchedulePlan) -> int:
    """Return the maximum number of trials of a run."""
    if options.time_budget is None or (options.fixed_repeats and design.refine is _no_trials):
        return len(design.planned) + options.max_reruns
    shortest = min(trial.seconds() for trial in design.planned)
    return max(len(design.blocks[0]), math.ceil(options.time_budget / max(shortest, 1.0)))


def throughput(result: TrialResult) -> float:
    """Return a trial's mean throughput over its phases, in transactions per second."""
    seconds = sum(phase.seconds for phase in result.phases)
    return sum(phase.throughput * phase.seconds for phase in result.phases) / seconds if seconds > 0 else 0.0


class _BatchPlan:
    """Sequence of batches. ``finished`` holds the results of the complete ones, ``short`` is set once the budget cut a block."""

    def __init__(self, options: MeasurementOptions, design: SchedulePlan) -> None:
        self.options = options
        self.design = design
        self.finished: list[TrialResult] = []
        self.blocks = [tuple(block) for block in design.blocks]
        self.reruns = 0
        self.short = False

    def next(self) -> tuple[tuple[Trial, ...], str | None]:
        """Return the next batch, or the reason to stop."""
        if self.blocks and not self.finished and self._surely_fits():
            # The whole plan fits, so it is one batch, which a dry run shows.
            batch = tuple(trial for block in self.blocks for trial in block)
            self.blocks = []
            return batch, None
        while self.blocks:
            block = self.blocks.pop(0)
            fitting = block if not self.finished else self._fitting(block)
            self.short |= len(fitting) < len(block)
            if fitting:
                return fitting, None
        batch = self._fitting(self._tainted())
        if batch:
            self.reruns += len(batch)
            return batch, None
        if self.options.time_budget is not None and not self.short:
            adaptive = self.design.adaptive and not self.options.fixed_repeats
            batch = self._fitting(self.design.refine(self.finished)) or self._fitting(self._least_certain() if adaptive else ())
        return (batch, None) if batch else ((), self._reason())

    def _surely_fits(self) -> bool:
        """Return True if the plan fits the time budget, with a second for each trial's transition.

        Plans with unpredictable times are decided block by block: trials that restart or restore servers, or that end with their drivers.
        """
        if self.options.time_budget is None:
            return True
        required = sum(trial.seconds() + TRANSITION_S for trial in self.design.planned)
        predictable = all(trial.state == "warm" and not trial.open_ended for trial in self.design.planned)
        return predictable and required <= self.options.time_budget

    def _remaining(self) -> float:
        """Return the rest of the time budget, in seconds."""
        if self.options.time_budget is None:
            return math.inf
        return self.options.time_budget - sum(max(result.ended - result.started, 0.0) for result in self.finished)

    def _fitting(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Return the first trials that fit into the rest of the time budget.

        The overhead of each trial (transition, start and stop of drivers) is taken as the median of the finished trials.
        """
        extra = [result.ended - result.started - result.trial.seconds() for result in self.finished if result.error is None]
        overhead = max(statistics.median(extra), 0.0) if extra else 0.0
        remaining, fitting = self._remaining(), []
        for trial in trials:
            remaining -= trial.seconds() + overhead
            if remaining < 0:
                break
            fitting.append(trial)
        return tuple(fitting)

    def _at(self, point: Point) -> list[TrialResult]:
        return [result for result in self.finished if result.trial.point == point]

    def _repeat(self, point: Point, reason: str) -> Trial:
        highest = max((result.trial.repeat for result in self._at(point)), default=-1)
        # Planned trials that did not fit keep their repeat numbers, because a key must identify one trial.
        return self.design.build(point, max(highest + 1, self.design.reserved(point)), reason)

    def _points(self) -> list[Point]:
        """Return the planned points, then the added ones."""
        points = list(self.design.points)
        for result in self.finished:
            if result.trial.point not in points:
                points.append(result.trial.point)
        return points

    def _tainted(self) -> list[Trial]:
        """Return one rerun for each point with more tainted trials than clean reruns. Points without a clean trial are first."""
        remaining = self.options.max_reruns - self.reruns
        candidates = []
        for position, point in enumerate(self._points()):
            trials = self._at(point)
            reruns = [result for result in trials if result.trial.reason.startswith("rerun")]
            tainted = [result for result in trials if result.tainted]
            clean_reruns = sum(not result.tainted for result in reruns)
            # An OOM kill would happen again. It is the result of the trial.
            planned_tainted = [result for result in tainted if result not in reruns and not result.oom_kills]
            hopeless = len(reruns) >= MAX_TAINTED_RERUNS and all(result.tainted for result in reruns[-MAX_TAINTED_RERUNS:])
            if clean_reruns >= len(planned_tainted) or hopeless or _systematic(trials):
                continue
            origin = planned_tainted[clean_reruns]
            clean = len(trials) - len(tainted)
            candidates.append((clean, position, self._repeat(point, f"{_RERUN}{origin.trial.key()}: {_failure(origin)}")))
        return [trial for _, _, trial in sorted(candidates, key=lambda candidate: candidate[:2])][: max(remaining, 0)]

    def _least_certain(self) -> list[Trial]:
        """Return one more repeat of the point with the largest relative standard error."""
        ranked = []
        points = self._points() if self.design.focus is None else self.design.focus(self.finished)
        for position, point in enumerate(points):
            trials = self._at(point)
            values = [throughput(result) for result in trials if not result.tainted]
            if len(trials) >= 3 * max(self.options.repeats, 3) or not values:
                continue  # enough trials, or no clean trial to refine
            error = math.inf
            if len(values) > 1 and statistics.fmean(values) > 0:
                error = statistics.stdev(values) / math.sqrt(len(values)) / statistics.fmean(values)
            if error > self.options.precision or len(values) < 3:
                ranked.append((-error if math.isfinite(error) else -1e9 + len(values), position, point))
        best = sorted(ranked, key=lambda entry: entry[:2])[:1]
        return [self._repeat(point, "adaptive repeat: its interval is the widest") for _, _, point in best]

    def _reason(self) -> str:
        tainted = sum(result.tainted for result in self.finished)
        if self.short:
            planned = len(self.design.planned)
            return f"the budget of {self.options.time_budget:g} s is used up; {len(self.finished)} of {planned} planned trials were run"
        suffix = f"; {tainted} trials are tainted" if tainted else ""
        if self.options.time_budget is not None and self._remaining() < min(trial.seconds() for trial in self.design.planned):
            return f"all planned trials are done and the budget of {self.options.time_budget:g} s is used up{suffix}"
        return f"all planned trials are done{suffix}"


def _systematic(trials: Sequence[TrialResult]) -> bool:
    """Return True if the same validity check failed in all trials of a point (at least two), so that a rerun would not help."""
    failed = [{v.name for v in result.checks if v.taints and v.kind == "validity"} if result.error is None else set() for result in trials]
    return len(failed) > 1 and bool(set.intersection(*failed))


def _failure(result: TrialResult) -> str:
    if result.error is not None:
        return "it did not finish"
    return "failed " + ", ".join(v.name for v in result.checks if v.taints)


def propose_once(planned: Sequence[Trial], results: Sequence[TrialResult], budget_s: float | None, complete: str) -> Proposal:
    """Return the trials of a study of sizes without a result, or the reason to stop: ``complete`` after the last one.

    Sizes do not vary between trials, so there are no repeats and no reruns, and failed trials are not repeated. The time of a trial is
    that of loading and reading data, which is not known before it.

    With a time budget the first trial always runs. Another one runs if it would fit into the rest: as long as the longest so far, or
    longer in proportion to its scale.
    """
    finished = {result.trial.key() for result in results}
    remaining = tuple(trial for trial in planned if trial.key() not in finished)
    if not remaining:
        return Proposal(stop=complete, max_trials=len(planned))
    if budget_s is None:
        return Proposal(trials=remaining, max_trials=len(planned))
    times = [max(result.ended - result.started, 0.0) for result in results]
    if times and sum(times) + _expected_s(remaining[0], results) > budget_s:
        stop = f"the budget of {budget_s:g} s is used up; {len(results)} of {len(planned)} planned trials were run"
        return Proposal(stop=stop, max_trials=len(planned))
    return Proposal(trials=remaining[:1], max_trials=len(planned))


def _expected_s(trial: Trial, results: Sequence[TrialResult]) -> float:
    """Return the expected seconds of a trial: the longest so far, or more if its scale is larger than all so far.

    Only the largest scale so far is extrapolated: small ones take their time for the start of a server.
    """

    def scale(point: Mapping[str, int | float | str]) -> float:
        value = point.get("scale", 1)
        return float(value) if isinstance(value, int | float) and value > 0 else 1.0

    largest = max(results, key=lambda result: scale(result.trial.point))
    longest = max(max(result.ended - result.started, 0.0) for result in results)
    return max(longest, (largest.ended - largest.started) * scale(trial.point) / scale(largest.trial.point))
