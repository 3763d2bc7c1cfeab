"""A trial's memory over time, read from its samples: what each container has, what nobody has, what is swapped and compressed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pgherd.analysis import memory_accounting
from pgherd.metrics.cgroup import BUDGET
from pgherd.metrics.processes import PAGE
from pgherd.metrics.swap import OURS
from pgherd.model.result import TrialResult
from pgherd.store.samples import read_samples

Series = list[tuple[float, float]]
"""(seconds since the first phase's window began, value), in order of time."""

_LEAST_INTERVAL = 0.5

CONTAINER, SERVER = "container:", "server:"
SHARED, CACHE, PRIVATE, REST = "shared memory", "page cache", "private memory", "kernel's and rest"
KINDS = (SHARED, CACHE, PRIVATE, REST)
"""What a container's usage consists of. Shared buffers are shared memory, which the kernel counts within the page cache."""
SWAPPED_IN, SWAPPED_OUT, COMPRESSED, TAKEN, IN_SWAP = (
    "swapped in",
    "swapped out",
    "swapped out, before compression",
    "memory that it takes compressed",
    "in the run's swap",
)


@dataclass(frozen=True)
class MemorySeries:
    """One trial. Sizes in bytes, rates in bytes per second, stalls as shares of the time; by container or server name.

    ``borders`` are the phases' (name, begin, end); ``budget`` is the memory that all containers had together. ``host`` holds what
    is known of the whole host only, by name.
    """

    borders: Sequence[tuple[str, float, float]]
    budget: float
    parts: Mapping[str, Mapping[str, Series]]
    unallocated: Series
    swapped: Mapping[str, Series] = field(default_factory=dict)
    refaults: Mapping[str, Series] = field(default_factory=dict)
    ballooned: Mapping[str, Series] = field(default_factory=dict)
    stalled: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)
    host: Mapping[str, Series] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Bytes before compression ÷ bytes of memory that they took, where most was compressed; None where nothing was."""
        pairs = list(zip(self.host.get(COMPRESSED, []), self.host.get(TAKEN, []), strict=False))
        most = max(pairs, key=lambda pair: pair[0][1], default=None)
        return None if most is None else memory_accounting.ratio(most[0][1], most[1][1])


def read(directory: Path, result: TrialResult) -> MemorySeries | None:
    """The series of one trial of a run; None where no group held its budget, or it has no finished phase. Several figures read the
    same trial: it is kept for a while."""
    if not result.phases:
        return None
    ramp = result.trial.phases[0].ramp
    return _read(directory / "trials" / result.id, tuple((phase.phase, phase.start, phase.end) for phase in result.phases), ramp)


@lru_cache(maxsize=8)
def _read(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float) -> MemorySeries | None:
    zero, end = phases[0][1], phases[-1][2]
    first = zero - ramp

    def series(sampler: str, metric: str, prefix: str) -> dict[str, Series]:
        found: dict[str, Series] = {}
        for t, entity, value in read_samples(trial, sampler, metric):
            if entity.startswith(prefix) and first <= t <= end:
                found.setdefault(entity.removeprefix(prefix), []).append((t - zero, value))
        return found

    memory = {name: series("cgroup_memory", f"memory.{name}", CONTAINER) for name in ("usage", "anon", "file", "shmem")}
    charged, limit = (series("cgroup_memory", f"memory.{name}", BUDGET).get("", []) for name in ("usage", "limit"))
    if not charged or not limit or not memory["usage"]:
        return None
    budget = max(value for _, value in limit)
    zram = {name: next(iter(series("zram", f"zram.{name}", "zram:").values()), []) for name in ("original", "used")}
    if not zram["used"]:
        host = {name: series("memory", f"memory.{name}", "host").get("", []) for name in ("zswapped", "zswap")}
        zram = {"original": host["zswapped"], "used": host["zswap"]} if any(value for _, value in host["zswap"]) else zram
    return MemorySeries(
        borders=[(name, begin - zero, stop - zero) for name, begin, stop in phases],
        budget=budget,
        parts={name: _parts(name, memory) for name in sorted(memory["usage"])},
        unallocated=[(t, max(budget - value, 0.0)) for t, value in charged],
        swapped=series("cgroup_memory", "memory.swap", CONTAINER),
        refaults=_refaults(*(series("cgroup_memory", f"memory.refault_{kind}", CONTAINER) for kind in ("anon", "file"))),
        ballooned=series("balloon", "balloon.bytes", SERVER),
        stalled={
            what: {name: rates(one) for name, one in series("pressure", f"psi.{what}.some", CONTAINER).items()} for what in ("memory", "io")
        },
        host={
            SWAPPED_IN: scaled(rates(series("vmstat", "vm.pswpin", "host").get("", [])), PAGE),
            SWAPPED_OUT: scaled(rates(series("vmstat", "vm.pswpout", "host").get("", [])), PAGE),
            COMPRESSED: zram["original"],
            TAKEN: zram["used"],
            IN_SWAP: series("swap", "swap.used", OURS).get("", []),
        },
    )


def rates(counter: Series) -> Series:
    """A growing counter as its rate per second, at the end of each interval; one that falls gives nothing there.

    Readings that follow each other closely (a phase's border has one of its own) make no interval: what happened in a few
    milliseconds would be taken for a second's worth.
    """
    apart = counter[:1]
    for reading in counter[1:]:
        if reading[0] - apart[-1][0] >= _LEAST_INTERVAL:
            apart.append(reading)
    return [(t1, (after - before) / (t1 - t0)) for (t0, before), (t1, after) in pairwise(apart) if after >= before]


def scaled(series: Series, factor: float) -> Series:
    """Every value times a factor."""
    return [(t, value * factor) for t, value in series]


def thinned(series: Series, most: int) -> Series:
    """At most so many points: means of neighbours, each at their mean instant."""
    step = -(-len(series) // most) if most > 0 else 1
    if step <= 1:
        return series
    groups = [series[i : i + step] for i in range(0, len(series), step)]
    return [(sum(t for t, _ in one) / len(one), sum(value for _, value in one) / len(one)) for one in groups]


def _parts(name: str, memory: Mapping[str, Mapping[str, Series]]) -> dict[str, Series]:
    """What a container's usage consists of, at the instants at which its usage was read."""
    found: dict[str, Series] = {kind: [] for kind in KINDS}
    for t, usage in memory["usage"][name]:
        anon, file, shmem = (_near(memory[what].get(name, []), t) for what in ("anon", "file", "shmem"))
        # The three are read a millisecond after the sum, and must not come to more than it.
        parts = [min(shmem, usage), max(file - shmem, 0.0), anon]
        scale = min(1.0, usage / total) if (total := sum(parts)) > 0 else 1.0
        for kind, value in zip((SHARED, CACHE, PRIVATE), parts, strict=True):
            found[kind].append((t, value * scale))
        found[REST].append((t, max(usage - total * scale, 0.0)))
    return found


def _near(series: Series, at: float) -> float:
    index = bisect_left(series, (at, float("-inf")))
    around = [series[i] for i in (index - 1, index) if 0 <= i < len(series)]
    return min(around, key=lambda one: abs(one[0] - at))[1] if around else 0.0


def _refaults(anonymous: Mapping[str, Series], files: Mapping[str, Series]) -> dict[str, Series]:
    """Bytes per second that came back after they had been evicted, of both kinds."""
    found: dict[str, Series] = {}
    for name, series in anonymous.items():
        other = rates(files.get(name, []))
        found[name] = [(t, (value + _near(other, t)) * PAGE) for t, value in rates(series)]
    return found
