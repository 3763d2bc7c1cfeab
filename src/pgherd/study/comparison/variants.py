"""What an arm measures, and the order of a block's trials. Pure; imports the arms' study, and no scientific library.

Arms stand one at a time (each trial brings its arm's server up) or side by side: the servers of all arms are up at once, each in
a container of its own, and one trial loads them all, by turns of a fraction of a second (`pgherd.study.comparison.time_slices`). Two equal
servers may still differ by where the kernel has put their memory; so side by side the A/A pair has two servers too, and all are
restarted before each block, which deals these places anew: what a server's place does to it is then noise of the block like any
other, and not a difference of the variants.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pgherd.model.base import Model
from pgherd.model.deployment import Deployment
from pgherd.model.result import TrialResult
from pgherd.model.study import RunnableStudy
from pgherd.model.trial import Trial
from pgherd.study.cluster_options import PIN
from pgherd.study.comparison import time_slices
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.registry import study_of

KEPT_CHECKS = ("not-client-bound",)
"""Intents that an arm's trials keep. What limits a server is what its variants may differ in; that it is the server, and not the
load generator, must hold for all."""


def study_with_options(arm: Variant) -> tuple[RunnableStudy[Any], Model]:
    """An arm's study and its options."""
    return _prepared(arm.study, json.dumps(arm.options))


def planned_trials(arm: Variant) -> tuple[Trial, ...]:
    """What the arm's study plans, once at each of its points."""
    return _trials(arm.study, json.dumps(arm.options))


@lru_cache(maxsize=32)
def _prepared(study: str, text: str) -> tuple[RunnableStudy[Any], Model]:
    found = study_of(study)
    return found, found.options.model_validate_json(text)


@lru_cache(maxsize=32)
def _trials(study: str, text: str) -> tuple[Trial, ...]:
    found, options = _prepared(study, text)
    planned: dict[str, Trial] = {}
    for trial in found.propose(options, []).trials:
        if trial.repeat == 0:
            planned.setdefault(trial.key(), trial)
    return tuple(planned.values())


def block_trials(options: CompareOptions, number: int, reason: str = "planned") -> tuple[Trial, ...]:
    """The trials of a block in the order in which they run. Where there are hosts to take turns, the whole block runs on one of them.

    Shuffled by the seed and the block's number. Arms that measure the same points take turns at each of them, so that a
    pair lies close together in time; else each arm measures its own points in a row. Side by side one trial has all sides of a point.
    """
    made = variant_trials(options, number, reason)
    if options.side_by_side:
        made = time_slices.interleave(
            _together(options.model_dump_json(include={"arms", "baseline"})), made, container_names(options), options
        )
    return tuple(_on_host(trial, options.hosts[number % len(options.hosts)]) for trial in made) if options.hosts else made


def variant_trials(options: CompareOptions, number: int, reason: str = "planned") -> tuple[Trial, ...]:
    """The trials of a block, each of one side at one point, in their order."""
    rng = random.Random(f"block {options.seed} {number}")
    sides = list(options.sides)
    by_side = {side: {_place(trial): trial for trial in planned_trials(options.arm(side))} for side in sides}
    rng.shuffle(sides)
    places = list(by_side[options.baseline])
    if any(set(of) != set(places) for of in by_side.values()):
        order = [(side, place) for side in sides for place in by_side[side]]
    else:
        order = []
        rng.shuffle(places)
        for place in places:
            order += [(side, place) for side in sides]
            rng.shuffle(sides)
    alone = all(len(of) == 1 for of in by_side.values())
    return tuple(_stand_in(by_side[side][place], side, number, reason, alone) for side, place in order)


def _on_host(trial: Trial, name: str) -> Trial:
    """The trial on one host of the run's cluster."""
    hosts = tuple(host.model_copy(update={"labels": {**host.labels, PIN: name}}) for host in trial.deployment.hosts)
    return trial.model_copy(update={"deployment": trial.deployment.model_copy(update={"hosts": hosts})})


def container_names(options: CompareOptions) -> dict[str, str]:
    """Side → the name of its container, where all stand side by side."""
    found: dict[str, str] = {}
    for side in options.sides:
        plain = re.sub(r"[^a-z0-9_-]+", "-", side.lower())[:36].strip("-_") or "arm"
        taken = set(found.values())
        found[side] = next(name for name in (plain, *(f"{plain}-{n}" for n in range(2, 999))) if name not in taken)
    return found


@lru_cache(maxsize=8)
def _together(text: str) -> Deployment:
    """The deployments of all sides in one; each has one host with one container, as ``runner.side_by_side`` insists."""
    options = CompareOptions.model_validate_json(text)
    own = {side: planned_trials(options.arm(side))[0].deployment for side in options.sides}
    names = container_names(options)
    side_containers = tuple(
        one.model_copy(update={"name": names[side], "cpu_period": time_slices.QUOTA_PERIOD_S})
        for side, one in ((side, own[side].hosts[0].containers[0]) for side in options.sides)
    )
    volumes = tuple({volume.name: volume for deployment in own.values() for volume in deployment.volumes}.values())
    first = own[options.baseline]
    return first.model_copy(update={"hosts": (first.hosts[0].model_copy(update={"containers": side_containers}),), "volumes": volumes})


def _place(trial: Trial) -> str:
    """A trial's point as text: what pairs the trials of several arms."""
    return trial.key().rpartition("#")[0]


def _stand_in(trial: Trial, side: str, number: int, reason: str, alone: bool) -> Trial:
    """An arm's trial as one of a block; its own coordinates are left out where it has no other point."""
    intents = tuple(intent for intent in trial.intents if intent in KEPT_CHECKS)
    point = {VARIANT: side, **({} if alone else trial.point)}
    return trial.model_copy(update={"point": point, "repeat": number, "reason": reason, "intents": intents})


def as_study_results(arm: Variant, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Results of one arm in one block as its own study would have them."""
    only = planned_trials(arm)[0].point
    points = [point_of(result) or only for result in results]
    return [
        result.model_copy(update={"trial": result.trial.model_copy(update={"point": point, "repeat": 0, "reason": "planned"})})
        for point, result in zip(points, results, strict=True)
    ]


def point_of(result: TrialResult) -> dict[str, int | float | str]:
    """A trial's point without the variant: the arm's own coordinates, where it has several points."""
    return {name: value for name, value in result.trial.point.items() if name != VARIANT}
