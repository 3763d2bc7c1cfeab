"""What is known of a curve: which sizes lived, how fast they were, where the knee is. Pure Python: it is asked between trials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from pgherd.analysis.knee import Knee, find_knee
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.options import Curve, WorkingSetOptions, least_beside
from pgherd.study.trial_schedule import throughput

OUT_OF_MEMORY = "memory limit"
"""What the error of a trial says of a container whose limit was why a process of it was ended."""


def out_of_memory(result: TrialResult) -> bool:
    """Whether a trial failed because the kernel ended a process for want of memory."""
    return bool(result.memory_kills) or OUT_OF_MEMORY in (result.error or "")


class Measured:
    """The trials of one curve, by size in MB (of the container, or of shared buffers)."""

    def __init__(self, curve: Curve, results: Sequence[TrialResult]) -> None:
        self.curve = curve
        self.trials = [r for r in results if r.trial.point.get("sweep") == curve.sweep and r.trial.point.get("clients") == curve.clients]

    def size(self, result: TrialResult) -> int:
        """The size that a trial measured."""
        return int(result.trial.point[self.curve.sweep])

    def at(self, size: int) -> list[TrialResult]:
        """All trials of a size."""
        return [result for result in self.trials if self.size(result) == size]

    @cached_property
    def sizes(self) -> list[int]:
        """All sizes tried, ascending."""
        return sorted({self.size(result) for result in self.trials})

    @cached_property
    def lived(self) -> list[int]:
        """Sizes with a throughput, ascending."""
        return sorted({self.size(result) for result in self.used})

    @cached_property
    def dead(self) -> list[int]:
        """Sizes at which the server did not live: no trial finished, and one was ended for memory or two failed; and all smaller ones."""
        known = [size for size in self.sizes if size not in self.lived and self.gave_up(size)]
        return [size for size in self.sizes if size not in self.lived and known and size <= known[-1]]

    def gave_up(self, size: int) -> bool:
        """Whether the failures of a size say that the server cannot live there."""
        failed = [result for result in self.at(size) if result.error is not None]
        return len(failed) > 1 or any(map(out_of_memory, failed))

    @cached_property
    def used(self) -> list[TrialResult]:
        """Trials whose throughput counts: the clean ones of a size, or where none is clean the tainted ones."""
        finished = [result for result in self.trials if result.error is None and throughput(result) > 0]
        clean = {self.size(result) for result in finished if not result.tainted}
        return [result for result in finished if not result.tainted or self.size(result) not in clean]

    @cached_property
    def knee(self) -> Knee:
        """The knee of what is used."""
        return _knee(tuple(float(self.size(r)) for r in self.used), tuple(throughput(r) for r in self.used), tuple(map(float, self.dead)))


@lru_cache(maxsize=4096)
def _knee(sizes: tuple[float, ...], throughputs: tuple[float, ...], dead: tuple[float, ...]) -> Knee:
    """Every proposal goes through all that were made before it, and would ask for their knees again."""
    return find_knee(sizes, throughputs, dead=dead)


def difference(options: WorkingSetOptions, results: Sequence[TrialResult], clients: int) -> tuple[int, str]:
    """What containers have beyond shared buffers while these are varied, in MB, and where the number comes from: the container's working
    set less its shared buffers, as in E7, or the nearest to that which the first sweep says."""
    return difference_after(options, Measured(Curve("memory", clients), results), clients)


def difference_after(options: WorkingSetOptions, measured: Measured, clients: int) -> tuple[int, str]:
    """The same from what is known of the load's sweep of memory."""
    if options.difference is not None:
        return options.difference, "as asked for"
    least = least_beside(clients, options.runtime)
    knee = measured.knee
    if knee.kind in ("knee", "cliff") and knee.at is not None:
        found = round(knee.at) - options.buffers
        if found >= least:
            return found, "container working set − its shared buffers, as in E7"
        return least, f"the least that a server lives with, where E7's rule gives {found} MB: a deviation"
    if not measured.lived or knee.kind == "unclear":
        return options.database + least, "the database's size and what a server needs beside, for want of a working set: a deviation"
    if knee.kind == "rising":
        return measured.lived[-1] - options.buffers, "largest container measured − its shared buffers, for want of a knee: a deviation"
    return max(least, measured.lived[0] - options.buffers), (
        "smallest container that lives − its shared buffers, since more memory brought nothing: a deviation"
    )
