"""Where a guest's memory is (E6): in the host's memory, in its balloon, compressed, swapped, or never taken. Pure.

For every guest and second

    configured = resident + ballooned + compressed + swapped + untouched + residue

| part | what it is, and where it is read |
|---|---|
| configured | the memory that the guest was given |
| resident | of it, in the host's memory: private and shared memory of the hypervisor's process, less what that needs for itself |
| ballooned | in the balloon of the guest's kernel: configured less QEMU's ``query-balloon`` |
| – of it, by the database | what pg_balloon has given up, as far as it can be in there: min(its bytes, ballooned) |
| compressed | of what the host has swapped out (the container's control group), what lies in zram or zswap; bytes before that |
| swapped | the rest of that: on a disk |
| untouched | never touched, or reported as free and given back: at most what the guest calls free (``stat-free-memory``) |
| residue | what is left over |

**Database and kernel are never added.** What a database's balloon gives up becomes free memory of the guest, and after a while a part of
what the guest kernel's balloon holds. So it is shown as a part of that, and as nothing of its own.

**What the residue says.** Positive: memory that is not in the host's memory although the guest uses it, and nothing says where it is.
Negative: more than the guest has: pages in the balloon that the host still holds (guest memory on huge pages, a balloon that is just
growing), or pages in memory and in swap at once (the swap cache). Readings are taken at up to a second's distance, so that a balloon which
moves by 100 MB a second leaves up to that much. The identity binds since *untouched* is not free to be anything: it is at most what
the guest itself calls free. What it cannot find is an error below that.

Compression gains less than it holds: ``taken`` is the host memory that the compressed bytes still take, at the whole device's ratio.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

Series = Sequence[tuple[float, float]]
"""(instant in seconds, value), in order of time."""

APART = 2.5
"""Seconds: between two readings further apart than twice this nothing is interpolated, and none further away speaks for an instant."""


@dataclass(frozen=True)
class Sighting:
    """What was seen of a guest at one instant, bytes. ``held`` is private and shared memory of its hypervisor's process, of which
    ``overhead`` is not the guest's; ``swapped`` all that the host has swapped out of it, of which the share ``compressible`` (0 to 1)
    lies in compressed memory. ``free`` is what the guest calls free; None: it does not tell. ``database``: in its databases' balloons."""

    configured: float
    actual: float
    held: float
    overhead: float = 0.0
    swapped: float = 0.0
    compressible: float = 0.0
    free: float | None = None
    database: float = 0.0


@dataclass(frozen=True)
class Effects:
    """The parts of one guest's memory at one instant, bytes; see the module. ``by_kernel`` + ``by_database`` is what its balloon holds."""

    configured: float
    resident: float
    by_kernel: float
    by_database: float
    compressed: float
    swapped: float
    untouched: float
    residue: float

    @property
    def ballooned(self) -> float:
        """In the balloon of the guest's kernel, whoever gave it up."""
        return self.by_kernel + self.by_database

    @property
    def accounted(self) -> float:
        """The sum of all parts but the residue."""
        return self.resident + self.ballooned + self.compressed + self.swapped + self.untouched

    @property
    def gap(self) -> float:
        """The residue as a share of the configured memory."""
        return self.residue / self.configured if self.configured > 0 else 0.0


def effects(seen: Sighting) -> Effects:
    """The parts; they and the residue add up to the configured memory. Without the guest's word on what it has free, all that nothing
    else explains counts as untouched, and only what is too much is residue."""
    ballooned = min(max(seen.configured - seen.actual, 0.0), seen.configured)
    by_database = min(max(seen.database, 0.0), ballooned)
    resident = min(max(seen.held - seen.overhead, 0.0), seen.configured)
    out = max(seen.swapped, 0.0)
    compressed = out * min(max(seen.compressible, 0.0), 1.0)
    left = seen.configured - resident - ballooned - out
    most = max(left, 0.0) if seen.free is None else max(seen.free, 0.0)
    untouched = min(max(left, 0.0), most)
    return Effects(
        configured=seen.configured,
        resident=resident,
        by_kernel=ballooned - by_database,
        by_database=by_database,
        compressed=compressed,
        swapped=out - compressed,
        untouched=untouched,
        residue=left - untouched,
    )


def at(series: Series, instant: float) -> float | None:
    """The value at an instant: between two readings that are near enough a straight line, beyond them the nearest near one."""
    index = bisect_right(series, (instant, float("inf")))
    before = series[index - 1] if index else None
    after = series[index] if index < len(series) else None
    if before is not None and after is not None and after[0] - before[0] <= 2 * APART:
        return before[1] + (after[1] - before[1]) * (instant - before[0]) / (after[0] - before[0]) if after[0] > before[0] else before[1]
    near = [one for one in (before, after) if one is not None and abs(one[0] - instant) <= APART]
    return min(near, key=lambda one: abs(one[0] - instant))[1] if near else None


def last(series: Series, instant: float) -> float | None:
    """The last value until an instant, else the first one after it: of what changes slowly and is read seldom."""
    if not series:
        return None
    return series[max(bisect_right(series, (instant, float("inf"))) - 1, 0)][1]


def over_time(series: Mapping[str, Series]) -> list[tuple[float, Effects]]:
    """One guest's memory at each instant at which its hypervisor's process was read.

    ``series`` has readings by what they are: ``configured``, ``actual``, ``held``, and where they are known ``overhead``, ``swapped``,
    ``compressible``, ``free``, ``database``. An instant at which the balloon was not read is left out.
    """
    found = []
    for instant, held in series["held"]:
        actual = at(series["actual"], instant)
        configured = last(series["configured"], instant)
        if actual is None or configured is None:
            continue
        sighting = Sighting(
            configured=configured,
            actual=actual,
            held=held,
            overhead=last(series.get("overhead", ()), instant) or 0.0,
            swapped=at(series.get("swapped", ()), instant) or 0.0,
            compressible=last(series.get("compressible", ()), instant) or 0.0,
            free=at(series.get("free", ()), instant),
            database=at(series.get("database", ()), instant) or 0.0,
        )
        found.append((instant, effects(sighting)))
    return found


def mean(found: Iterable[Effects]) -> Effects | None:
    """The mean of each part, which adds up as each one does; None of nothing."""
    all_of = list(found)
    if not all_of:
        return None
    return Effects(**{one.name: fmean(getattr(each, one.name) for each in all_of) for one in fields(Effects)})


def compressible(swap_used: float, held_compressed: float) -> float:
    """The share of what the host has swapped that lies in compressed memory (bytes before compression ÷ all swap in use)."""
    return min(held_compressed / swap_used, 1.0) if swap_used > 0 else 0.0


def taken(compressed: float, ratio: float | None) -> float | None:
    """The memory that ``compressed`` bytes still take at a device's ``ratio`` (bytes before ÷ memory used); None: it is not known."""
    return compressed / ratio if ratio else None


def of_means(metrics: Mapping[str, Mapping[str, float]], guest: str) -> Effects | None:
    """One guest's parts over a phase, from the phase's means (entity → metric → mean); None where its balloon was not seen."""
    own, group = metrics.get(f"guest:{guest}", {}), metrics.get(f"container:{guest}", {})
    held = hypervisor(own.get("qemu.anon"), own.get("qemu.shared"), group.get("memory.anon"), group.get("memory.shmem"))
    if held is None or "guest.actual" not in own or "guest.memory" not in own:
        return None
    out = group.get("memory.swap", own.get("qemu.swapped", 0.0))
    areas = [values for entity, values in metrics.items() if entity.startswith("swap:")]
    devices = [values for entity, values in metrics.items() if entity.startswith("zram:")]
    used, before = sum(one.get("swap.used", 0.0) for one in areas), sum(one.get("zram.original", 0.0) for one in devices)
    share = group["memory.zswapped"] / out if "memory.zswapped" in group and out > 0 and not devices else compressible(used, before)
    servers = (values for entity, values in metrics.items() if entity.startswith(f"server:{guest}/"))
    return effects(
        Sighting(
            configured=own["guest.memory"],
            actual=own["guest.actual"],
            held=held,
            overhead=own.get("qemu.overhead", 0.0),
            swapped=out,
            compressible=share,
            free=own.get("guest.free"),
            database=sum(values.get("balloon.bytes", 0.0) for values in servers),
        )
    )


def hypervisor(anon: float | None, shared: float | None, group_anon: float | None, group_shared: float | None) -> float | None:
    """Private and shared memory of a guest's hypervisor: of its process where that was read, else of its control group."""
    if anon is not None:
        return anon + (shared or 0.0)
    return group_anon + (group_shared or 0.0) if group_anon is not None else None
