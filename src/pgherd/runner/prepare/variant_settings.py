"""What the servers of a run say that their settings are: once for all, or once for each variant."""

from __future__ import annotations

from typing import Protocol

from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.studies.compare.arms import VARIANT
from pgherd.studies.compare.options import AGAIN


class Asked(Protocol):
    """What is up, and can be asked; see ``runner.loop.Bench``."""

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings that differ from the default, as the server of a target, or the first server, says."""
        ...


def noted(record: RunRecord, trial: Trial, bench: Asked) -> RunRecord:
    """The record with what the servers that are up for this trial say, where that is not known yet.

    ``settings`` then holds what all variants have in common, ``variant_settings`` all that each has.
    """
    variant = str(trial.point.get(VARIANT, "")).removesuffix(AGAIN)
    if not variant:
        return record if record.settings else record.model_copy(update={"settings": bench.settings()})
    if variant in record.variant_settings:
        return record
    target = next((target for phase in trial.phases for target in phase.loads if target.count("/") == 3), None)
    said = bench.settings(target)
    if not said:
        return record
    every = {**record.variant_settings, variant: said}
    common = {name: value for name, value in said.items() if all(one.get(name) == value for one in every.values())}
    return record.model_copy(update={"settings": common, "variant_settings": every})
