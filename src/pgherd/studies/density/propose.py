"""Which trials a density run consists of, and in which order. Pure; imports no scientific library, since it runs between
the trials.

The run is a sequence of batches, each decided from the results of the batches before it alone: blocks of planned trials,
then reruns of tainted ones, then further repeats of the least certain points while the budget lasts. ``propose`` walks
that sequence from the start and returns what is missing of the first batch that is not complete, so that an interrupted
run goes on exactly as it would have.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pgherd.model.deployment import Deployment
from pgherd.model.finding import Proposal
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Intent, Trial
from pgherd.studies.density.options import DensityOptions, deployment, names

_HOPELESS = 2
"""A point whose last so many reruns were all tainted is not rerun again."""
_TRANSITION = 1.0
"""Seconds that a warm transition and the end of the drivers are taken to need at most."""


def propose(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    by_key: dict[str, TrialResult] = {}
    for result in results:
        by_key.setdefault(result.trial.key(), result)
    plan = _Plan(options)
    while True:
        batch, stop = plan.next()
        if stop is not None:
            return Proposal(stop=stop, worst_case=len(plan.done))
        missing = tuple(trial for trial in batch if trial.key() not in by_key)
        if missing:
            return Proposal(trials=missing, worst_case=worst_case(options))
        plan.done += [by_key[trial.key()] for trial in batch]


def planned(options: DensityOptions) -> tuple[Trial, ...]:
    """All trials that a run plans before anything is known: what fits no budget is among them."""
    return tuple(trial for block in _blocks(options) for trial in block)


def worst_case(options: DensityOptions) -> int:
    """How many trials a run has at most."""
    plan = len(planned(options))
    if options.soak_seconds:
        return plan
    if options.budget_seconds is None:
        return plan + options.max_reruns
    return max(len(_blocks(options)[0]), math.ceil(options.budget_seconds / (options.ramp + options.seconds)))


class _Plan:
    """The batches in their order; ``done`` holds the results of those that are complete."""

    def __init__(self, options: DensityOptions) -> None:
        self.options = options
        self.done: list[TrialResult] = []
        self.blocks = _blocks(options)
        self.reruns = 0
        self.short = False

    def next(self) -> tuple[tuple[Trial, ...], str | None]:
        """The next batch, or why there is none."""
        if self.options.soak_seconds:
            if self.blocks:
                return self.blocks.pop(0), None
            return (), "the soak is over"
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
        batch = self._fitting(self._least_certain())
        return (batch, None) if batch else ((), self._reason())

    def _surely_fits(self) -> bool:
        """Whether the whole plan fits the budget with a second to spare for each trial's transition. Transitions of
        trials that restart or restore servers are not known beforehand, so these are decided block by block."""
        if self.options.budget_seconds is None:
            return True
        needed = sum(trial.seconds() + _TRANSITION for block in self.blocks for trial in block)
        return self.options.state == "warm" and needed <= self.options.budget_seconds

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

    def _at(self, databases: int) -> list[TrialResult]:
        return [result for result in self.done if result.trial.point["databases"] == databases]

    def _again(self, databases: int, reason: str) -> Trial:
        taken = [result.trial.repeat for result in self._at(databases)]
        highest = max(taken, default=-1)
        # Repeat numbers of planned trials that did not fit the budget stay theirs: a key names one trial only.
        reserved = max(self.options.repeats, self.options.repeats_one) if databases == 1 else self.options.repeats
        return _trial(self.options, databases, max(highest + 1, reserved), reason)

    def _tainted(self) -> list[Trial]:
        """One rerun for each point that has more tainted than rerun trials, those without any clean trial first."""
        left = self.options.max_reruns - self.reruns
        wanted = []
        for databases in self.options.points:
            trials = self._at(databases)
            reruns = [result for result in trials if result.trial.reason.startswith("rerun")]
            tainted = [result for result in trials if result.tainted]
            clean_reruns = sum(not result.tainted for result in reruns)
            planned_tainted = [result for result in tainted if result not in reruns]
            hopeless = len(reruns) >= _HOPELESS and all(result.tainted for result in reruns[-_HOPELESS:])
            if clean_reruns >= len(planned_tainted) or hopeless or self._systematic(trials):
                continue
            origin = planned_tainted[clean_reruns]
            clean = len(trials) - len(tainted)
            wanted.append((clean, databases, self._again(databases, f"rerun of tainted {origin.trial.key()}: {_why(origin)}")))
        return [trial for _, _, trial in sorted(wanted, key=lambda each: each[:2])][: max(left, 0)]

    def _systematic(self, trials: Sequence[TrialResult]) -> bool:
        """Whether the same intent failed in every trial of a point, two or more: repeating would not change it."""
        failed = [
            {v.check for v in result.verdicts if v.result == "fail" and v.severity == "taint" and v.kind == "intent"}
            if result.error is None
            else set()
            for result in trials
        ]
        return len(failed) > 1 and bool(set.intersection(*failed))

    def _least_certain(self) -> list[Trial]:
        """One more repeat where the relative standard error is largest; only a budget that is left allows it."""
        if self.options.budget_seconds is None or self.short:
            return []
        ranked = []
        for databases in self.options.points:
            trials = self._at(databases)
            values = [_throughput(result) for result in trials if not result.tainted]
            if len(trials) >= 3 * max(self.options.repeats, 3) or not values:
                continue  # enough of this point, or nothing clean to make more certain
            error = math.inf
            if len(values) > 1 and statistics.fmean(values) > 0:
                error = statistics.stdev(values) / math.sqrt(len(values)) / statistics.fmean(values)
            if error > self.options.precision or len(values) < 3:
                ranked.append((-error if math.isfinite(error) else -1e9 + len(values), databases))
        return [self._again(databases, "adaptive repeat: its interval is the widest") for _, databases in sorted(ranked)[:1]]

    def _reason(self) -> str:
        tainted = sum(result.tainted for result in self.done)
        if self.short:
            wanted = len(planned(self.options))
            return f"the budget of {self.options.budget_seconds:g} s is used up; {len(self.done)} of {wanted} planned trials were run"
        rest = f"; {tainted} trials are tainted" if tainted else ""
        if self.options.budget_seconds is not None and self._left() < self.options.seconds + self.options.ramp:
            return f"all planned trials are done and the budget of {self.options.budget_seconds:g} s is used up{rest}"
        return f"all planned trials are done{rest}"


def _why(result: TrialResult) -> str:
    if result.error is not None:
        return "it did not finish"
    return "failed " + ", ".join(v.check for v in result.verdicts if v.result == "fail" and v.severity == "taint")


def _throughput(result: TrialResult) -> float:
    seconds = sum(phase.seconds for phase in result.phases)
    return sum(phase.throughput * phase.seconds for phase in result.phases) / seconds if seconds > 0 else 0.0


def _blocks(options: DensityOptions) -> list[tuple[Trial, ...]]:
    """The planned trials. Each block holds every point once, shuffled, so that drift of the host does not pose as
    scaling; the further repeats of one database stand at the start of the first block, at the end of the last, and
    spread over the others."""
    if options.soak_seconds:
        return [(_soak(options),)]
    rng = random.Random(f"order {options.seed}")
    order = []
    for _ in range(options.repeats):
        block = list(options.points)
        rng.shuffle(block)
        order.append(block)
    extra = max(options.repeats_one - options.repeats, 0) if 1 in options.points else 0
    for index, (block, place) in enumerate(_spread(order, extra)):
        if index == 0 and order[0][0] == 1 and len(order[0]) > 1:
            order[0].append(order[0].pop(0))  # two trials of one database in a row would say little more than one
        block.insert(0 if place == "start" else len(block), 1)
    counts = dict.fromkeys(options.points, 0)
    blocks = []
    for block in order:
        trials = []
        for databases in block:
            trials.append(_trial(options, databases, counts[databases], "planned"))
            counts[databases] += 1
        blocks.append(tuple(trials))
    return blocks


def _spread(order: list[list[int]], extra: int) -> Iterator[tuple[list[int], str]]:
    """Where the further repeats of one database go: (block, 'start' or 'end')."""
    for i in range(extra):
        if i == 0:
            yield order[0], "start"
        elif i == 1:
            yield order[-1], "end"
        else:
            yield order[(i - 1) % len(order)], "end"


def _intents(options: DensityOptions) -> tuple[Intent, ...]:
    if options.intent == "io-bound":
        return ("io-bound",)
    return ("rate-met" if options.rate else "cpu-bound", "cached", "not-client-bound")


def _loads(options: DensityOptions, databases: int, repeat: int) -> dict[str, Load]:
    """Which databases are loaded: the containers stand in a ring, shuffled once per point; each repeat takes the next
    ones, so that an odd container, or its place on the host, meets all repeats of a point alike rather than always the same."""
    ring = names(options)
    random.Random(f"containers {options.seed} {databases}").shuffle(ring)
    chosen = sorted(ring[(repeat * databases + i) % len(ring)] for i in range(databases))
    load = Load(
        driver="pgbench",
        clients=options.clients,
        threads=options.threads,
        rate=options.rate,
        scripts=options.scripts,
        protocol=options.protocol,
        place=options.client_place,
        sampling=options.sampling,
    )
    return {f"local/{name}/pg/bench": load for name in chosen}


@lru_cache(maxsize=4)
def _cached_deployment(text: str) -> Deployment:
    return deployment(DensityOptions.model_validate_json(text))


def _deployment(options: DensityOptions) -> Deployment:
    # Hundreds of trials share one deployment; building it anew for each would cost more than the rest.
    return _cached_deployment(options.model_dump_json())


def _trial(options: DensityOptions, databases: int, repeat: int, reason: str) -> Trial:
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads=_loads(options, databases, repeat))
    return _build(options, databases, repeat, reason, (phase,))


def _soak(options: DensityOptions) -> Trial:
    """One trial of many windows; their drivers follow each other, with a short ramp that is not counted."""
    total = options.soak_seconds or options.soak_window
    window = min(options.soak_window, total)
    loads = _loads(options, options.soak_point, 0)
    count = max(1, round(total / window))
    phases = tuple(
        Phase(name=f"w{i:04d}", ramp=options.ramp if i == 0 else min(options.ramp, 1.0), seconds=window, loads=loads) for i in range(count)
    )
    return _build(options, options.soak_point, 0, "planned", phases)


def _build(options: DensityOptions, databases: int, repeat: int, reason: str, phases: tuple[Phase, ...]) -> Trial:
    return Trial(
        point={"databases": databases},
        repeat=repeat,
        reason=reason,
        deployment=_deployment(options),
        state=options.state,
        phases=phases,
        intents=_intents(options),
    )
