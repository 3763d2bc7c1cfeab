"""Trials of a working-set run, their order, and additional sizes near the knees.

Pure. Imports no scientific library, because it runs between the trials.

The memory sweep is first, because the sweep of shared buffers needs its result. Each starts with evenly spread sizes, with all loads and
sizes in random order. It then adds sizes near the knees until their intervals are narrow enough, or its part of the time budget is used.
A size where the server runs out of memory is a result: neither it nor any smaller one is tried again.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pgherd.analysis.knee import Knee
from pgherd.model.analysis import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_seconds
from pgherd.studies.working_set.curves import SweepTrials, extra_memory_after
from pgherd.studies.working_set.options import CONTAINER, MIN_SHARED_BUFFERS_MB, Sweep, SweepCurve, WorkingSetOptions
from pgherd.study.database_options import target

FIRST_SWEEP_SHARE = 0.5
"""Share of the time budget that the first of two sweeps may use."""
MAX_ADDED = 40
"""Maximum number of additional trials per curve."""
RESTART_S = 4.0
"""Estimated seconds of a restart with cold caches and prewarming, before one was measured."""
GROW, SHRINK = 1.35, 0.75
"""Factors from the largest and the smallest size to the next one, if the knee is beyond them."""
MIN_MEASUREMENTS = 9
"""Measurements below which a narrow interval does not end the search: a few can be close to a line by chance."""
MIN_STEP = 0.02
"""Sizes closer together than this share of the knee count as one size, which needs no further measurement."""

Batch = tuple[Trial, ...]


def propose(options: WorkingSetOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The result depends on the arguments only."""
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    plan = _SweepPlan(options)
    for batch in plan.batches():
        missing = tuple(trial for trial in batch if trial.key() not in by_key)
        if missing:
            return Proposal(trials=missing, max_trials=worst_case(options))
        plan.finished += [by_key[trial.key()] for trial in batch]
    return Proposal(stop=plan.reason, max_trials=len(plan.finished))


def worst_case(options: WorkingSetOptions) -> int:
    """Return the maximum number of trials."""
    planned = sum(len(options.sizes(sweep)) for sweep in options.vary) * len(options.clients) * options.repeats
    if options.time_budget is None:
        return planned + options.max_reruns + (MAX_ADDED * len(options.clients) * len(options.vary) if options.refine else 0)
    return max(1, math.ceil(options.time_budget / max(options.duration + options.warmup, 1.0)))


def no_room(options: WorkingSetOptions) -> str:
    """Explain that not even the first trial fits into the time budget. Empty if it does."""
    budget, first = options.time_budget, options.warmup + options.duration + RESTART_S
    if budget is None or budget >= first:
        return ""
    return f"the time budget of {format_seconds(budget)} is too short for one trial, which needs about {format_seconds(first)}"


def trial_at(options: WorkingSetOptions, curve: SweepCurve, size: int, extra: int, repeat: int, reason: str) -> Trial:
    """Build a trial of a curve at a size in MB. ``extra`` is memory less shared buffers while these are varied."""
    memory, buffers = (size, options.shared_buffers) if curve.sweep == "memory" else (size + extra, size)
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads={target(CONTAINER): options.load(curve.clients)})
    return Trial(
        point={"sweep": curve.sweep, "clients": curve.clients, "memory": memory, "shared_buffers": buffers},
        repeat=repeat,
        reason=reason,
        deployment=options.deployment(memory, buffers),
        state=options.start_state,
        phases=(phase,),
        validity_checks=("not-client-bound",),
        final_readings=("buffers",),
        failure_expected=True,
    )


class _SweepPlan:
    """The batches in order. ``finished`` has the results of those that were run."""

    def __init__(self, options: WorkingSetOptions) -> None:
        self.options = options
        self.finished: list[TrialResult] = []
        self.reruns = 0
        self.budget_used = False
        self._trials_of: dict[SweepCurve, SweepTrials] = {}

    def batches(self) -> Iterator[Batch]:
        """Yield the batches. Each depends on the results of earlier ones only."""
        for number, sweep in enumerate(self.options.vary):
            last = number == len(self.options.vary) - 1
            share = 1.0 if last else FIRST_SWEEP_SHARE
            yield from self._planned(sweep)
            if not any(self._measured(curve).measured_sizes for curve in self.options.curves(sweep)):
                return  # without a result at any size, the other sweep has no memory size to use
            yield from self._reruns(sweep, share)
            if self.options.refine:
                yield from self._near_knees(sweep, share)

    @property
    def reason(self) -> str:
        """The reason why there is no further batch."""
        if not self.finished and (reason := no_room(self.options)):
            return reason
        for sweep in self.options.vary:
            if not any(self._measured(curve).measured_sizes for curve in self.options.curves(sweep)):
                return f"no trial finished at any size of the sweep of {sweep}"
        curves = [curve for sweep in self.options.vary for curve in self.options.curves(sweep)]
        imprecise = [str(curve) for curve in curves if self._next_size(curve) is not None]
        if imprecise and self.options.refine:
            cause = (
                f"the time budget of {self.options.time_budget:g} s is used up"
                if self.budget_used
                else f"{MAX_ADDED} sizes were added to a curve"
            )
            return f"{cause}; less precise than requested: {', '.join(imprecise)}"
        if self.options.refine and self.options.fixed_repeats:
            return "all planned trials are done, and no further size is needed or allowed by the number of repeats"
        precision = f", and all knees are known to ±{100 * self.options.precision:g} %, or cannot be"
        return "all planned trials are done" + (precision if self.options.refine else "")

    def _planned(self, sweep: Sweep) -> Iterator[Batch]:
        """Yield the initial sizes, once per repeat. A size that ran out of memory is not tried again."""
        curves = self.options.curves(sweep)
        for repeat in range(self.options.repeats):
            sizes = [
                (curve, size) for curve in curves for size in self._sizes(curve) if size not in self._measured(curve).out_of_memory_sizes
            ]
            random.Random(f"order {self.options.seed} {sweep} {repeat}").shuffle(sizes)
            yield from self._fit([self._trial(curve, size, repeat, "planned") for curve, size in sizes], 1.0)

    def _sizes(self, curve: SweepCurve) -> list[int]:
        """Return the planned sizes for which a container is possible on this host."""
        extra = self._extra_memory(curve)
        return [size for size in self.options.sizes(curve.sweep) if self.options.fits(size, extra)]

    def _reruns(self, sweep: Sweep, share: float) -> Iterator[Batch]:
        """Yield one rerun of each size without a clean trial, sizes that failed first. Sizes out of memory are left out."""
        candidates = []
        for curve in self.options.curves(sweep):
            measured = self._measured(curve)
            for size in measured.sizes:
                trials = measured.at(size)
                if size in measured.out_of_memory_sizes or any(not trial.tainted for trial in trials):
                    continue
                failed = trials[0].error is not None
                reason = f"rerun of tainted {trials[0].trial.key()}: {'it did not finish' if failed else 'no clean trial of this size'}"
                candidates.append((not failed, self._trial(curve, size, self._next_repeat(measured, size), reason)))
        limit = max(self.options.max_reruns - self.reruns, 0)
        chosen = [trial for _, trial in sorted(candidates, key=lambda candidate: candidate[0])][:limit]
        self.reruns += len(chosen)
        yield from self._fit(chosen, share)

    def _near_knees(self, sweep: Sweep, share: float) -> Iterator[Batch]:
        for turn in range(MAX_ADDED):
            sizes = [(curve, size) for curve in self.options.curves(sweep) if (size := self._next_size(curve, turn)) is not None]
            random.Random(f"refine {self.options.seed} {sweep} {turn}").shuffle(sizes)
            trials = []
            for curve, size in sizes:
                repeat = self._next_repeat(self._measured(curve), size)
                trials.append(self._trial(curve, size, repeat, f"added: where the knee with {curve.clients} clients is least certain"))
            fitting = list(self._fit(trials, share))
            if not fitting:
                return
            yield from fitting

    def _next_size(self, curve: SweepCurve, turn: int = 0) -> int | None:
        """Return the next size for a curve. A measured size is repeated only if the number of repeats is not fixed."""
        measured = self._measured(curve)
        size = next_size(self.options, measured, turn, self._extra_memory(curve))
        return None if self.options.fixed_repeats and size in measured.sizes else size

    def _next_repeat(self, measured: SweepTrials, size: int) -> int:
        """Return an unused repeat number. Those of planned trials are reserved even if they were not run."""
        highest = max((result.trial.repeat for result in measured.at(size)), default=-1)
        reserved = self.options.repeats if size in self.options.sizes(measured.curve.sweep) else 0
        return max(highest + 1, reserved)

    def _trial(self, curve: SweepCurve, size: int, repeat: int, reason: str) -> Trial:
        return trial_at(self.options, curve, size, self._extra_memory(curve), repeat, reason)

    def _extra_memory(self, curve: SweepCurve) -> int:
        """Return container memory beyond shared buffers. It uses the memory sweep only, so that all later batches get the same number."""
        if curve.sweep == "memory":
            return 0
        return extra_memory_after(self.options, self._measured(SweepCurve("memory", curve.clients)), curve.clients)[0]

    def _measured(self, curve: SweepCurve) -> SweepTrials:
        """Return the finished trials of a curve. Cached until the curve has new ones."""
        current = SweepTrials(curve, self.finished)
        cached = self._trials_of.get(curve)
        if cached is None or len(cached.trials) != len(current.trials):
            self._trials_of[curve] = cached = current
        return cached

    def _fit(self, trials: Sequence[Trial], share: float) -> Iterator[Batch]:
        """Yield the trials that fit into this share of the time budget, with the median overhead of finished trials."""
        if self.options.time_budget is None:
            fitting = list(trials)
        else:
            overheads = [result.ended - result.started - result.trial.seconds() for result in self.finished if result.error is None]
            overhead = statistics.median(overheads) if overheads else RESTART_S
            remaining = self.options.time_budget * share - sum(max(result.ended - result.started, 0.0) for result in self.finished)
            fitting = []
            for trial in trials:
                remaining -= trial.seconds() + max(overhead, 0.0)
                if remaining < 0:
                    self.budget_used = True
                    break
                fitting.append(trial)
        if fitting:
            yield tuple(fitting)


# ---- additional sizes


def next_size(options: WorkingSetOptions, trials: SweepTrials, turn: int, extra: int) -> int | None:
    """Return the next size in MB. None if the knee is precise enough, or no possible size would make it more precise.

    Args:
        options: of the run.
        trials: finished trials of the curve.
        turn: number of earlier calls for the curve; new sizes and repeats alternate.
        extra: container memory beyond shared buffers while these are varied.
    """
    knee, sizes = trials.knee, trials.measured_sizes
    if not sizes:
        return None
    if knee.kind == "cliff" or (trials.out_of_memory_sizes and knee.kind in ("flat", "unknown")):
        return _between(trials.out_of_memory_sizes[-1], sizes[0], options.precision)
    if knee.kind == "rising":
        top = options.max_container - extra
        larger = min(top, max(sizes[-1] + 1, round(sizes[-1] * GROW)))
        return larger if larger > sizes[-1] * (1 + MIN_STEP) else None
    if knee.kind == "flat":
        minimum = max(MIN_SHARED_BUFFERS_MB, options.min_container - extra)
        if trials.curve.sweep == "memory":
            minimum = max(options.shared_buffers, options.min_container)
        smaller = max(minimum, round(sizes[0] * SHRINK))
        return smaller if smaller < sizes[0] * (1 - MIN_STEP) else None
    if knee.kind == "unclear":
        # Alternate between both ends. If they differ, there is a knee between them.
        return min((sizes[0], sizes[-1]), key=lambda size: len(trials.at(size)))
    if knee.kind == "unknown":
        return _widest(sizes, sizes[0], sizes[-1], sizes[-1])
    if knee.half_width is not None and knee.half_width <= options.precision and knee.n >= MIN_MEASUREMENTS:
        return None
    return _near(trials, knee, turn)


def _between(too_small: int, large_enough: int, precision: float) -> int | None:
    """Bisect between the largest size out of memory and the smallest one with a throughput."""
    if large_enough - too_small <= max(1, 2 * precision * large_enough):
        return None
    return (too_small + large_enough) // 2


def _near(trials: SweepTrials, knee: Knee, turn: int) -> int:
    """Alternate between a new size in the widest gap of the interval, and a repeat of a size next to it.

    The new size locates the knee, and the repeat improves the two fitted lines.
    """
    sizes = trials.measured_sizes
    at = knee.at or 0.0
    low = max(knee.low or 0.0, sizes[0])
    high = min(knee.high or float("inf"), sizes[-1])
    adjacent = [max((s for s in sizes if s <= low), default=sizes[0]), min((s for s in sizes if s >= high), default=sizes[-1])]
    if knee.high is None:
        adjacent.reverse()
    if turn % 3 == 2:
        return min(adjacent, key=lambda size: len(trials.at(size)))
    new = _widest(sizes, low, high, at)
    if new is not None:
        return new
    return min([size for size in sizes if low <= size <= high] or adjacent, key=lambda size: (len(trials.at(size)), abs(size - at)))


def _widest(sizes: Sequence[int], low: float, high: float, at: float) -> int | None:
    """Return the middle of the widest gap between sizes within ``low`` … ``high``. None if all gaps are too small."""
    gaps = [(min(b, high) - max(a, low), round((max(a, low) + min(b, high)) / 2)) for a, b in pairwise(sizes) if b > low and a < high]
    new = [(width, middle) for width, middle in gaps if middle not in sizes and width > max(1.0, MIN_STEP * at)]
    return max(new)[1] if new else None
