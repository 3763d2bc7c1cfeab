"""What every report on a workload, or on such a run, must say, whatever else it says."""

from __future__ import annotations

from pgherd.model.run import RunRecord
from pgherd.workloads.shipped import NOTICES


def notices(record: RunRecord) -> list[str]:
    """The notices of all workloads that the run's options name, of its arms too, each once; and on which other host it was resumed."""
    found = dict.fromkeys(_workloads(record.options))
    return [*(NOTICES[name] for name in found if name in NOTICES), *record.resumed]


def _workloads(options: object) -> list[str]:
    if isinstance(options, dict):
        own = [options["workload"]] if isinstance(options.get("workload"), str) else []
        return own + [name for value in options.values() for name in _workloads(value)]
    return [name for value in options for name in _workloads(value)] if isinstance(options, list | tuple) else []
