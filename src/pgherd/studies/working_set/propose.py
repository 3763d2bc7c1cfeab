"""Which trials a working-set run consists of, and in which order. Pure; imports no scientific library, since it runs between the trials.

The sweep of memory comes first, because that of shared buffers needs its outcome. Each begins with an even spread of sizes, all loads and
sizes in mixed order, and goes on near the knees until their intervals are narrow enough or its part of the budget is spent. A size at
which a server does not live is a result: it is not tried again, nor is any smaller one.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence

from pgherd.model.finding import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_seconds
from pgherd.studies.working_set.curves import Measured, difference_after
from pgherd.studies.working_set.narrowing import next_size
from pgherd.studies.working_set.options import CONTAINER, Curve, Sweep, WorkingSetOptions
from pgherd.study.database_options import target

FIRST_SHARE = 0.5
"""Share of the budget that the first of two sweeps may use."""
MOST_ADDED = 40
"""Further trials of one curve, at most."""
RESTART = 4.0
"""Seconds that a restart with cold caches and the warming are taken to need, before one has been seen."""

Batch = tuple[Trial, ...]


def propose(options: WorkingSetOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    course = _Course(options)
    for batch in course.batches():
        missing = tuple(trial for trial in batch if trial.key() not in by_key)
        if missing:
            return Proposal(trials=missing, worst_case=worst_case(options))
        course.done += [by_key[trial.key()] for trial in batch]
    return Proposal(stop=course.reason, worst_case=len(course.done))


def worst_case(options: WorkingSetOptions) -> int:
    """How many trials a run has at most."""
    planned = sum(len(options.sizes(sweep)) for sweep in options.sweeps) * len(options.clients) * options.repeats
    if options.budget_seconds is None:
        return planned + options.max_reruns + (MOST_ADDED * len(options.clients) * len(options.sweeps) if options.refine else 0)
    return max(1, math.ceil(options.budget_seconds / max(options.seconds + options.ramp, 1.0)))


def no_room(options: WorkingSetOptions) -> str:
    """Why not even the first trial fits into the budget; empty where it does."""
    budget, first = options.budget_seconds, options.ramp + options.seconds + RESTART
    if budget is None or budget >= first:
        return ""
    return f"the budget of {format_seconds(budget)} has no room for a trial, which is taken to need {format_seconds(first)}"


def trial_at(options: WorkingSetOptions, curve: Curve, size: int, beyond: int, repeat: int, reason: str) -> Trial:
    """One trial of a curve at a size in MB; ``beyond`` is the difference between memory and shared buffers while these are varied."""
    memory, buffers = (size, options.buffers) if curve.sweep == "memory" else (size + beyond, size)
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads={target(CONTAINER): options.load(curve.clients)})
    return Trial(
        point={"sweep": curve.sweep, "clients": curve.clients, "memory": memory, "buffers": buffers},
        repeat=repeat,
        reason=reason,
        deployment=options.deployment(memory, buffers),
        state=options.state,
        phases=(phase,),
        intents=("not-client-bound",),
        looks=("buffers",),
        may_die=True,
    )


class _Course:
    """The batches in their order; ``done`` holds the results of those that have been run."""

    def __init__(self, options: WorkingSetOptions) -> None:
        self.options = options
        self.done: list[TrialResult] = []
        self.reruns = 0
        self.short = False
        self._known: dict[Curve, Measured] = {}

    def batches(self) -> Iterator[Batch]:
        """Each batch depends on the results of those before it alone."""
        for number, sweep in enumerate(self.options.sweeps):
            last = number == len(self.options.sweeps) - 1
            share = 1.0 if last else FIRST_SHARE
            yield from self._planned(sweep)
            if not any(self._measured(curve).lived for curve in self.options.curves(sweep)):
                return  # nothing lives at any size: the other sweep has nothing to stand on
            yield from self._again(sweep, share)
            if self.options.refine:
                yield from self._near_knees(sweep, share)

    @property
    def reason(self) -> str:
        """Why there is no further batch."""
        if not self.done and (why := no_room(self.options)):
            return why
        for sweep in self.options.sweeps:
            curves = [self._measured(curve) for curve in self.options.curves(sweep)]
            if not any(measured.lived for measured in curves):
                return f"no server lived at any size of the sweep of {sweep}"
        open_ = [str(curve) for sweep in self.options.sweeps for curve in self.options.curves(sweep) if self._wanted(curve) is not None]
        if open_ and self.options.refine:
            why = (
                f"the budget of {self.options.budget_seconds:g} s is used up" if self.short else f"{MOST_ADDED} sizes were added to a curve"
            )
            return f"{why}; not as precise as asked for: {', '.join(open_)}"
        return "all planned trials are done" + (
            f", and all knees are known to ±{100 * self.options.precision:g} % or cannot be" if self.options.refine else ""
        )

    def _planned(self, sweep: Sweep) -> Iterator[Batch]:
        """The sizes to begin with, once for each repeat; a size that did not live is not tried again."""
        curves = self.options.curves(sweep)
        for repeat in range(self.options.repeats):
            wanted = [(curve, size) for curve in curves for size in self._sizes(curve) if size not in self._measured(curve).dead]
            random.Random(f"order {self.options.seed} {sweep} {repeat}").shuffle(wanted)
            yield from self._fit([self._trial(curve, size, repeat, "planned") for curve, size in wanted], 1.0)

    def _sizes(self, curve: Curve) -> list[int]:
        """Planned sizes that the host has the memory for, and of which a container can be made."""
        beyond = self._beyond(curve)
        return [size for size in self.options.sizes(curve.sweep) if self.options.least <= size + beyond <= self.options.most]

    def _again(self, sweep: Sweep, share: float) -> Iterator[Batch]:
        """One rerun of each size that has no clean trial, but for those that do not live; sizes that failed for unknown reasons first."""
        wanted = []
        for curve in self.options.curves(sweep):
            measured = self._measured(curve)
            for size in measured.sizes:
                trials = measured.at(size)
                if size in measured.dead or any(not trial.tainted for trial in trials):
                    continue
                failed = trials[0].error is not None
                why = f"rerun of tainted {trials[0].trial.key()}: {'it did not finish' if failed else 'no clean trial of this size'}"
                wanted.append((not failed, self._trial(curve, size, self._next_repeat(measured, size), why)))
        left = max(self.options.max_reruns - self.reruns, 0)
        chosen = [trial for _, trial in sorted(wanted, key=lambda each: each[0])][:left]
        self.reruns += len(chosen)
        yield from self._fit(chosen, share)

    def _near_knees(self, sweep: Sweep, share: float) -> Iterator[Batch]:
        for turn in range(MOST_ADDED):
            wanted = [(curve, size) for curve in self.options.curves(sweep) if (size := self._wanted(curve, turn)) is not None]
            random.Random(f"refine {self.options.seed} {sweep} {turn}").shuffle(wanted)
            trials = []
            for curve, size in wanted:
                measured = self._measured(curve)
                why = f"added: where the knee with {curve.clients} clients is least certain"
                trials.append(self._trial(curve, size, self._next_repeat(measured, size), why))
            fitting = list(self._fit(trials, share))
            if not fitting:
                return
            yield from fitting

    def _wanted(self, curve: Curve, turn: int = 0) -> int | None:
        measured = self._measured(curve)
        return next_size(self.options, measured, turn, self._beyond(curve))

    def _next_repeat(self, measured: Measured, size: int) -> int:
        """Repeat numbers of planned trials stay theirs, whether they were run or not."""
        highest = max((result.trial.repeat for result in measured.at(size)), default=-1)
        reserved = self.options.repeats if size in self.options.sizes(measured.curve.sweep) else 0
        return max(highest + 1, reserved)

    def _trial(self, curve: Curve, size: int, repeat: int, reason: str) -> Trial:
        return trial_at(self.options, curve, size, self._beyond(curve), repeat, reason)

    def _beyond(self, curve: Curve) -> int:
        """Of the sweep of memory alone: every later batch must see the same number."""
        if curve.sweep == "memory":
            return 0
        return difference_after(self.options, self._measured(Curve("memory", curve.clients)), curve.clients)[0]

    def _measured(self, curve: Curve) -> Measured:
        """What is known of a curve by now; worked out once for as many of its trials as there are."""
        found = Measured(curve, self.done)
        known = self._known.get(curve)
        if known is None or len(known.trials) != len(found.trials):
            self._known[curve] = known = found
        return known

    def _fit(self, trials: Sequence[Trial], share: float) -> Iterator[Batch]:
        """The trials that fit into this share of the budget, each taken to cost as much beyond its planned time as those that have run."""
        if self.options.budget_seconds is None:
            fitting = list(trials)
        else:
            extra = [result.ended - result.started - result.trial.seconds() for result in self.done if result.error is None]
            each = statistics.median(extra) if extra else RESTART
            left = self.options.budget_seconds * share - sum(max(result.ended - result.started, 0.0) for result in self.done)
            fitting = []
            for trial in trials:
                left -= trial.seconds() + max(each, 0.0)
                if left < 0:
                    self.short = True
                    break
                fitting.append(trial)
        if fitting:
            yield tuple(fitting)
