"""Trials of the variants of a comparison, and their order in a block. Pure. It imports the variants' study, but no scientific library.

Variants are interleaved in one of two ways. Trial by trial: each trial starts its variant's server. In time slices: the servers of all
variants run simultaneously, each in a container, and one trial loads them in slices of a fraction of a second
(``pgherd.study.comparison.time_slices``). Two equal servers may differ by their memory placement in the kernel. So the A/A pair has two
servers too, and all servers are restarted before each block. This redraws the placement, which makes its effect noise of the block.
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
from pgherd.study.comparison import time_slices
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.shared_options import PIN
from pgherd.study.study import study_of

KEPT_CHECKS = ("not-client-bound",)
"""Validity checks that trials of a comparison keep.

Variants may differ in their bottleneck, so checks of the bottleneck are dropped. The load generator must never be the bottleneck.
"""


def study_with_options(variant: Variant) -> tuple[RunnableStudy[Any], Model]:
    """Return a variant's study and its options."""
    return _prepared(variant.study, json.dumps(variant.options))


def planned_trials(variant: Variant) -> tuple[Trial, ...]:
    """Return the trials that the variant's study plans, one per point."""
    return _trials(variant.study, json.dumps(variant.options))


@lru_cache(maxsize=32)
def _prepared(study: str, text: str) -> tuple[RunnableStudy[Any], Model]:
    variant_study = study_of(study)
    return variant_study, variant_study.options.model_validate_json(text)


@lru_cache(maxsize=32)
def _trials(study: str, text: str) -> tuple[Trial, ...]:
    variant_study, options = _prepared(study, text)
    planned: dict[str, Trial] = {}
    for trial in variant_study.propose(options, []).trials:
        if trial.repeat == 0:
            planned.setdefault(trial.key(), trial)
    return tuple(planned.values())


def block_trials(options: CompareOptions, number: int, reason: str = "planned") -> tuple[Trial, ...]:
    """Return the trials of a block in their order. With several hosts in turn, the block runs on one of them.

    Seed and block number determine the random order. If all variants have the same points, they alternate at each point, so that pairs
    are close in time. Otherwise each variant runs all its points in a row. In time slices, one trial per point has all variants.
    """
    ordered = variant_trials(options, number, reason)
    if options.in_slices:
        deployment = _joint_deployment(options.model_dump_json(include={"variants", "baseline"}))
        ordered = time_slices.interleave(deployment, ordered, container_names(options), options)
    return tuple(_on_host(trial, options.hosts[number % len(options.hosts)]) for trial in ordered) if options.hosts else ordered


def variant_trials(options: CompareOptions, number: int, reason: str = "planned") -> tuple[Trial, ...]:
    """Return the trials of a block in their order, each with one variant at one point."""
    rng = random.Random(f"block {options.seed} {number}")
    names = list(options.block_variants)
    by_variant = {name: {point_text(trial): trial for trial in planned_trials(options.variant(name))} for name in names}
    rng.shuffle(names)
    points = list(by_variant[options.baseline])
    if any(set(by_point) != set(points) for by_point in by_variant.values()):
        order = [(name, point) for name in names for point in by_variant[name]]
    else:
        order = []
        rng.shuffle(points)
        for point in points:
            order += [(name, point) for name in names]
            rng.shuffle(names)
    single_point = all(len(by_point) == 1 for by_point in by_variant.values())
    return tuple(_block_trial(by_variant[name][point], name, number, reason, single_point) for name, point in order)


def _on_host(trial: Trial, name: str) -> Trial:
    """Return the trial, pinned to one host of the run's cluster."""
    hosts = tuple(host.model_copy(update={"labels": {**host.labels, PIN: name}}) for host in trial.deployment.hosts)
    return trial.model_copy(update={"deployment": trial.deployment.model_copy(update={"hosts": hosts})})


def container_names(options: CompareOptions) -> dict[str, str]:
    """Return the container name of each variant in a block, for time slices."""
    names: dict[str, str] = {}
    for variant in options.block_variants:
        plain = re.sub(r"[^a-z0-9_-]+", "-", variant.lower())[:36].strip("-_") or "variant"
        taken = set(names.values())
        names[variant] = next(name for name in (plain, *(f"{plain}-{n}" for n in range(2, 999))) if name not in taken)
    return names


@lru_cache(maxsize=8)
def _joint_deployment(text: str) -> Deployment:
    """Return one deployment with the containers of all variants. Each variant has one host with one container, as prepared."""
    options = CompareOptions.model_validate_json(text)
    deployments = {name: planned_trials(options.variant(name))[0].deployment for name in options.block_variants}
    names = container_names(options)
    members = tuple(
        deployment.hosts[0].containers[0].model_copy(update={"name": names[name], "cpu_period": time_slices.QUOTA_PERIOD_S})
        for name, deployment in deployments.items()
    )
    volumes = tuple({volume.name: volume for deployment in deployments.values() for volume in deployment.volumes}.values())
    first = deployments[options.baseline]
    return first.model_copy(update={"hosts": (first.hosts[0].model_copy(update={"containers": members}),), "volumes": volumes})


def common_points(options: CompareOptions) -> frozenset[str] | None:
    """Return the points that all variants have, as texts. None if all have the same points, or if each has a single one."""
    points = [frozenset(map(point_text, planned_trials(variant))) for variant in options.variants]
    if len(set(points)) == 1 or all(len(one) == 1 for one in points):
        return None
    return frozenset.intersection(*points)


def point_text(trial: Trial) -> str:
    """Return a trial's point without the variant as text, which pairs the trials of several variants."""
    return ",".join(f"{name}={value}" for name, value in sorted(trial.point.items()) if name != VARIANT)


def _block_trial(trial: Trial, name: str, number: int, reason: str, single_point: bool) -> Trial:
    """Return a variant's trial as a trial of a block. With a single point, its coordinates are omitted."""
    intents = tuple(intent for intent in trial.validity_checks if intent in KEPT_CHECKS)
    point = {VARIANT: name, **({} if single_point else trial.point)}
    return trial.model_copy(update={"point": point, "repeat": number, "reason": reason, "validity_checks": intents})


def as_study_results(variant: Variant, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the results of one variant in one block, in the form that its study expects."""
    default = planned_trials(variant)[0].point
    points = [point_of(result) or default for result in results]
    return [
        result.model_copy(update={"trial": result.trial.model_copy(update={"point": point, "repeat": 0, "reason": "planned"})})
        for point, result in zip(points, results, strict=True)
    ]


def point_of(result: TrialResult) -> dict[str, int | float | str]:
    """Return a trial's point without the variant. Empty if the variant has a single point."""
    return {name: value for name, value in result.trial.point.items() if name != VARIANT}
