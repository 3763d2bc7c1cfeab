"""Trials of one sweep curve: sizes with throughput, sizes where the server ran out of memory, and the knee.

Pure Python, because it runs between the trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from pgherd.analysis.knee import Knee, find_knee
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.options import SweepCurve, WorkingSetOptions, coordinate_of, min_extra_memory
from pgherd.study.trial_schedule import throughput

OUT_OF_MEMORY = "memory limit"
"""Part of a trial's error if a process was killed because of the container's memory limit."""


def out_of_memory(result: TrialResult) -> bool:
    """True if the trial failed because of an OOM kill."""
    return bool(result.oom_kills) or OUT_OF_MEMORY in (result.error or "")


class SweepTrials:
    """The trials of one curve, by size in MB (of the container, or of shared buffers)."""

    def __init__(self, curve: SweepCurve, results: Sequence[TrialResult]) -> None:
        self.curve = curve
        self.trials = [r for r in results if r.trial.point.get("sweep") == curve.sweep and r.trial.point.get("clients") == curve.clients]

    def size(self, result: TrialResult) -> int:
        """The size that a trial measured."""
        return int(result.trial.point[coordinate_of(self.curve.sweep)])

    def at(self, size: int) -> list[TrialResult]:
        """All trials of a size."""
        return [result for result in self.trials if self.size(result) == size]

    @cached_property
    def sizes(self) -> list[int]:
        """All sizes tried, ascending."""
        return sorted({self.size(result) for result in self.trials})

    @cached_property
    def measured_sizes(self) -> list[int]:
        """Sizes with a throughput, ascending."""
        return sorted({self.size(result) for result in self.used})

    @cached_property
    def out_of_memory_sizes(self) -> list[int]:
        """Sizes too small for the server, and all smaller ones: no trial finished, and there was an OOM kill or two failures."""
        failed = [size for size in self.sizes if size not in self.measured_sizes and self.gave_up(size)]
        return [size for size in self.sizes if size not in self.measured_sizes and failed and size <= failed[-1]]

    def gave_up(self, size: int) -> bool:
        """True if the failures of a size show that it is too small for the server."""
        failed = [result for result in self.at(size) if result.error is not None]
        return len(failed) > 1 or any(map(out_of_memory, failed))

    @cached_property
    def used(self) -> list[TrialResult]:
        """Trials whose throughput counts: the clean ones of a size, or the tainted ones if none is clean."""
        finished = [result for result in self.trials if result.error is None and throughput(result) > 0]
        clean = {self.size(result) for result in finished if not result.tainted}
        return [result for result in finished if not result.tainted or self.size(result) not in clean]

    @cached_property
    def knee(self) -> Knee:
        """The knee of the used trials."""
        sizes, throughputs = tuple(float(self.size(result)) for result in self.used), tuple(throughput(result) for result in self.used)
        return _knee(sizes, throughputs, tuple(map(float, self.out_of_memory_sizes)))


@lru_cache(maxsize=4096)
def _knee(sizes: tuple[float, ...], throughputs: tuple[float, ...], dead: tuple[float, ...]) -> Knee:
    """Cached, because every proposal replays all earlier ones and needs their knees again."""
    return find_knee(sizes, throughputs, dead=dead)


def extra_memory(options: WorkingSetOptions, results: Sequence[TrialResult], clients: int) -> tuple[int, str]:
    """Return the container memory beyond shared buffers while these are varied, in MB, and its origin.

    As in E7 it is the container's working set less its shared buffers, or else the closest value from the first sweep.
    """
    return extra_memory_after(options, SweepTrials(SweepCurve("memory", clients), results), clients)


def extra_memory_after(options: WorkingSetOptions, trials: SweepTrials, clients: int) -> tuple[int, str]:
    """Return the same from the trials of the memory sweep with this number of clients."""
    if options.extra_memory is not None:
        return options.extra_memory, "as requested"
    minimum = min_extra_memory(clients, options.runtime)
    knee = trials.knee
    if knee.kind in ("knee", "cliff") and knee.at is not None:
        container, origin = round(knee.at), "container working set − its shared buffers, as in E7"
    elif not trials.measured_sizes or knee.kind == "unclear":
        return (
            options.database_size + minimum,
            "database size + the minimum that a server needs, since there is no working set: a deviation",
        )
    elif knee.kind == "rising":
        container = trials.measured_sizes[-1]
        origin = "largest container measured − its shared buffers, since there is no knee: a deviation"
    else:
        container = trials.measured_sizes[0]
        origin = "smallest container with enough memory − its shared buffers, since more memory had no effect: a deviation"
    extra = container - options.shared_buffers
    if extra < minimum:
        return minimum, f"the minimum that a server needs, since E7's rule gives {extra} MB: a deviation"
    return extra, origin
