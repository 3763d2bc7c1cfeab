"""Trials that interleave all variants of a comparison in time slices, and the split of their results by variant. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.model.deployment import Deployment
from pgherd.model.load import Load, Phase, TimeSlicing
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.comparison.options import ALL_VARIANTS, CompareOptions

VARIANT = "variant"
"""Coordinate that a comparison adds to a trial's point."""
QUOTA_PERIOD_S = 0.01
"""Period of a variant's CPU quota, in seconds. A slice has several periods."""
COUNTED_S = 3 * QUOTA_PERIOD_S
"""Time at the end of a slice that counts for throughput, in seconds.

It is a multiple of the quota period, so every slice gets the same quota. The time before is as long, because a cgroup that was idle has
unused quota: one period's, and the quota that its CPUs had fetched. It uses that up before the first full period ends.
"""
SLICE_S = 0.063
"""Approximate length of a slice, in seconds.

Shorter slices give more pairs per minute, and neighbouring slices differ as much as with longer ones. The length is no multiple of the
quota period, so slices start at any position in it.
"""
MIN_VCPUS = 0.001 / QUOTA_PERIOD_S
"""Minimum CPU quota of a variant, in cores. The kernel requires at least 1 ms of CPU per quota period."""


def interleave(
    deployment: Deployment, trials: Sequence[Trial], containers: Mapping[str, str], options: CompareOptions
) -> tuple[Trial, ...]:
    """Combine the trials of a block into one per point. The first trial restarts all servers.

    Each variant is loaded for as long as in its separate trial.

    Args:
        deployment: deployment with the containers of all variants.
        trials: trials of the block, each with one variant.
        containers: container in ``deployment`` by variant.
        options: options of the comparison.
    """
    points: dict[str, list[Trial]] = {}
    for trial in trials:
        points.setdefault(str([(name, value) for name, value in trial.point.items() if name != VARIANT]), []).append(trial)
    combined: list[Trial] = []
    for parts in points.values():
        first = parts[0]
        seed = f"{options.seed} {first.repeat} {len(combined)}"
        phases = tuple(
            _phase([trial.phases[number] for trial in parts], parts, containers, f"{seed} {number}") for number in range(len(first.phases))
        )
        point = {**first.point, VARIANT: ALL_VARIANTS}
        state = "warm" if combined else "restarted"
        combined.append(first.model_copy(update={"point": point, "deployment": deployment, "phases": phases, "state": state}))
    return tuple(combined)


def _phase(phases: Sequence[Phase], trials: Sequence[Trial], containers: Mapping[str, str], seed: str) -> Phase:
    """Return one phase with the loads of all variants. Each variant keeps its measured time."""
    loads: dict[str, Load] = {}
    for phase, trial in zip(phases, trials, strict=True):
        variant = str(trial.point[VARIANT])
        loads |= {_moved(target, containers[variant]): load for target, load in phase.loads.items()}
    seconds = max(phase.seconds for phase in phases)
    slice_s = seconds / max(1, round(seconds / SLICE_S))
    of = {str(trial.point[VARIANT]): containers[str(trial.point[VARIANT])] for trial in trials}
    turns = TimeSlicing(of=of, seconds=slice_s, counted=min(COUNTED_S, max(slice_s - QUOTA_PERIOD_S, slice_s / 2)), seed=seed)
    return phases[0].model_copy(update={"loads": loads, "seconds": seconds * len(phases), "slices": turns})


def _moved(target: str, container: str) -> str:
    """Return the address of the same database in another container."""
    host, _, server, database = target.split("/")
    return f"{host}/{container}/{server}/{database}"


def split_variants(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the results, with a trial of all variants replaced by one result per variant."""
    return [part for result in results for part in _split(result)]


def _split(result: TrialResult) -> list[TrialResult]:
    variants = variants_of(result.trial)
    return [_of_variant(result, variant) for variant in variants] if variants else [result]


def variants_of(trial: Trial) -> tuple[str, ...]:
    """Return the variants of a trial with time slices. Empty for a trial of one variant."""
    return tuple(dict.fromkeys(variant for phase in trial.phases if phase.slices is not None for variant in phase.slices.of))


def _of_variant(result: TrialResult, variant: str) -> TrialResult:
    planned, measured = [], []
    for number, phase in enumerate(result.trial.phases):
        targets = phase.slices.targets(variant, phase.loads) if phase.slices is not None else ()
        planned.append(phase.model_copy(update={"loads": {target: phase.loads[target] for target in targets}, "slices": None}))
        if number < len(result.phases):
            measured.append(_measured(result.phases[number], phase.loads, targets))
    trial = result.trial.model_copy(update={"point": {**result.trial.point, VARIANT: variant}, "phases": tuple(planned)})
    return result.model_copy(update={"trial": trial, "phases": measured})


def _measured(phase: PhaseResult, loads: Mapping[str, Load], targets: Sequence[str]) -> PhaseResult:
    """Return a variant's part of a phase's result. It has no host metrics except the context switches of the variant's slices."""
    measured = [target for target in phase.targets if target.target in targets]
    names = {target.split("/")[1] for target in targets}
    metrics = {entity: values for entity, values in phase.metrics.items() if _belongs_to(entity, names, targets)}
    switches = _switches(measured)
    if switches is not None and all(
        loads[target].host is None for target in targets
    ):  # otherwise these are the switches of the client host
        metrics["host"] = {"context_switches": switches / phase.seconds}
    unsliced = [target.model_copy(update={"slices": []}) for target in measured]  # like the result of a separate trial
    return phase.model_copy(update={"targets": unsliced, "metrics": metrics, "io": None})


def _belongs_to(entity: str, containers: set[str], targets: Sequence[str]) -> bool:
    """Return True if an entity is one of these containers or drivers, or part of one."""
    kind, _, name = entity.partition(":")
    return (kind in ("container", "server", "backend") and name.partition("/")[0] in containers) or (kind == "driver" and name in targets)


def _switches(targets: Sequence[TargetResult]) -> float | None:
    """Return the host's context switches in the slices that these targets share. None if one slice has no count."""
    counts = [turn.switches for target in targets[:1] for turn in target.slices]
    return None if not counts or None in counts else float(sum(count for count in counts if count is not None))
