"""Trials of a command's run."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.studies.exec.options import ExecOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: ExecOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: ExecOptions) -> SchedulePlan:
    """Return one point with its repeats.

    A command that ends by itself gets more repeats while its duration is uncertain and the time budget allows them.
    """

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"hosts": len(options.hosts)}]
    blocks = [[build(points[0], repeat, "planned")] for repeat in range(options.repeats)]
    return SchedulePlan(blocks, points, build, lambda point: options.repeats, adaptive=options.duration is None)


def _trial(options: ExecOptions, point: Point, repeat: int, reason: str) -> Trial:
    loads = dict.fromkeys(options.hosts, options.load())
    if options.duration is None:
        phase = Phase(name="command", warmup=0, seconds=options.timeout, loads=loads, until="drivers")
    else:
        phase = Phase(name="command", warmup=options.warmup, seconds=options.duration, loads=loads)
    intents: tuple[ValidityCheck, ...] = ("exit-code", "values-extracted") if options.extract else ("exit-code",)
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=options.deployment(), phases=(phase,), validity_checks=intents)
