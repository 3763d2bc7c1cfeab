"""All sides of a comparison in one trial, whose loads take turns; and such a trial's result as one of each side. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.model.deployment import Deployment
from pgherd.model.load import Load, Phase, Turns
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.comparison.options import CompareOptions

VARIANT = "variant"
"""The coordinate that a comparison adds to a trial's point."""
ALL_VARIANTS = "all by turns"
"""Its value where a trial has all sides; no variant can have this name."""
QUOTA_PERIOD_S = 0.01
"""Seconds in which a side's CPU quota is given out anew, if it has one: a turn is to hold several of these periods."""
COUNTED_S = 3 * QUOTA_PERIOD_S
"""Seconds at the end of a turn that count for throughput: whole periods, so that each holds as much of the quota as any other, wherever
a period begins. What comes before is as long: a control group that was idle has quota to spare, a period's and what its CPUs had fetched
and not used, and has not used that up before the first whole period ends."""
SLICE_S = 0.063
"""Of a turn, about: the shorter turns are, the more of them fit into a minute, and neighbours differ as much. It is no multiple of the
quota's period, so that turns begin anywhere in it."""
MIN_VCPUS = 0.001 / QUOTA_PERIOD_S
"""Of a quota given out so often: the kernel takes no less than a millisecond of CPU per period."""


def interleave(
    everything: Deployment, of_sides: Sequence[Trial], containers: Mapping[str, str], options: CompareOptions
) -> tuple[Trial, ...]:
    """The trials of a block's sides as one for each of their points; the first restarts all servers.

    ``everything`` is the deployment of all sides, ``containers`` maps a side to its container there. Each side makes load for as long as
    its own trial would have been measured.
    """
    points: dict[str, list[Trial]] = {}
    for trial in of_sides:
        points.setdefault(str([(name, value) for name, value in trial.point.items() if name != VARIANT]), []).append(trial)
    made: list[Trial] = []
    for sides in points.values():
        first = sides[0]
        seed = f"{options.seed} {first.repeat} {len(made)}"
        phases = tuple(
            _phase([one.phases[number] for one in sides], sides, containers, f"{seed} {number}") for number in range(len(first.phases))
        )
        point = {**first.point, VARIANT: ALL_VARIANTS}
        state = "warm" if made else "restarted"
        made.append(first.model_copy(update={"point": point, "deployment": everything, "phases": phases, "state": state}))
    return tuple(made)


def _phase(own: Sequence[Phase], sides: Sequence[Trial], containers: Mapping[str, str], seed: str) -> Phase:
    """One phase of all sides: each as long as it was."""
    loads: dict[str, Load] = {}
    for phase, trial in zip(own, sides, strict=True):
        side = str(trial.point[VARIANT])
        loads |= {_moved(target, containers[side]): load for target, load in phase.loads.items()}
    seconds = max(phase.seconds for phase in own)
    each = seconds / max(1, round(seconds / SLICE_S))
    of = {str(trial.point[VARIANT]): containers[str(trial.point[VARIANT])] for trial in sides}
    turns = Turns(of=of, seconds=each, counted=min(COUNTED_S, max(each - QUOTA_PERIOD_S, each / 2)), seed=seed)
    return own[0].model_copy(update={"loads": loads, "seconds": seconds * len(own), "turns": turns})


def _moved(target: str, container: str) -> str:
    """The address of the same database in the container of this name."""
    host, _, server, database = target.split("/")
    return f"{host}/{container}/{server}/{database}"


def split_variants(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The same results, with one for each side where a trial had them all."""
    return [one for result in results for one in _apart(result)]


def _apart(result: TrialResult) -> list[TrialResult]:
    sides = variants_of(result.trial)
    return [_of_side(result, side) for side in sides] if sides else [result]


def variants_of(trial: Trial) -> tuple[str, ...]:
    """The sides of a trial that has several, whose loads take turns; none where it is of one."""
    return tuple(dict.fromkeys(side for phase in trial.phases if phase.turns is not None for side in phase.turns.of))


def _of_side(result: TrialResult, side: str) -> TrialResult:
    planned, measured = [], []
    for number, phase in enumerate(result.trial.phases):
        targets = phase.turns.targets(side, phase.loads) if phase.turns is not None else ()
        planned.append(phase.model_copy(update={"loads": {target: phase.loads[target] for target in targets}, "turns": None}))
        if number < len(result.phases):
            measured.append(_measured(result.phases[number], phase.loads, targets))
    trial = result.trial.model_copy(update={"point": {**result.trial.point, VARIANT: side}, "phases": tuple(planned)})
    return result.model_copy(update={"trial": trial, "phases": measured})


def _measured(phase: PhaseResult, loads: Mapping[str, Load], targets: Sequence[str]) -> PhaseResult:
    """A side's part of a phase's result. What is the whole host's is no side's, but for the context switches of its turns."""
    own = [target for target in phase.targets if target.target in targets]
    names = {target.split("/")[1] for target in targets}
    metrics = {entity: values for entity, values in phase.metrics.items() if _of(entity, names, targets)}
    switches = _switches(own)
    if switches is not None and all(loads[target].host is None for target in targets):  # else they are those of the clients' host
        metrics["host"] = {"ctxt": switches / phase.seconds}
    alone = [target.model_copy(update={"turns": []}) for target in own]  # as if it had been loaded by itself
    return phase.model_copy(update={"targets": alone, "metrics": metrics, "io": None})


def _of(entity: str, containers: set[str], targets: Sequence[str]) -> bool:
    """Whether an entity's metrics are of these containers or drivers alone."""
    kind, _, name = entity.partition(":")
    return (kind in ("container", "server", "backend") and name.partition("/")[0] in containers) or (kind == "driver" and name in targets)


def _switches(targets: Sequence[TargetResult]) -> float | None:
    """The host's context switches in these targets' turns, which they have in common; None where they were not seen in each."""
    seen = [turn.switches for target in targets[:1] for turn in target.turns]
    return None if not seen or None in seen else float(sum(one for one in seen if one is not None))
