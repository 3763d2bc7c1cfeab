"""What the servers of a run say that their settings are: once for all, or once for each variant."""

from __future__ import annotations

from typing import Protocol

from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.study.comparison.options import AGAIN_SUFFIX
from pgherd.study.comparison.time_slices import VARIANT


class SettingsSource(Protocol):
    """What is up, and can be asked; see ``runner.loop.Bench``."""

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings that differ from the default, as the server of a target, or the first server, says."""
        ...


def with_settings(record: RunRecord, trial: Trial, bench: SettingsSource) -> RunRecord:
    """The record with what the servers that are up for this trial say, where that is not known yet.

    ``settings`` then holds what all variants have in common, ``variant_settings`` all that each has.
    """
    if VARIANT not in trial.point:
        return record if record.settings else record.model_copy(update={"settings": bench.settings()})
    new = {variant: target for variant, target in _variants(trial).items() if variant not in record.variant_settings}
    said = {variant: bench.settings(target) for variant, target in new.items()}
    if not any(said.values()):
        return record
    every = {**record.variant_settings, **{variant: own for variant, own in said.items() if own}}
    first = next(iter(every.values()))
    common = {name: value for name, value in first.items() if all(one.get(name) == value for one in every.values())}
    return record.model_copy(update={"settings": common, "variant_settings": every})


def _variants(trial: Trial) -> dict[str, str | None]:
    """Each variant of a trial, and a database of its server (None: its load is on none)."""
    loaded = {side: phase.turns.targets(side, phase.loads) for phase in trial.phases if phase.turns is not None for side in phase.turns.of}
    loaded = loaded or {str(trial.point[VARIANT]): tuple(target for phase in trial.phases for target in phase.loads)}
    return {
        side.removesuffix(AGAIN_SUFFIX): next((target for target in targets if target.count("/") == 3), None) for side, targets in loaded.items()
    }
