"""Where the memory of a trial's guests is, second by second, read from its samples (pgherd.analysis.memory_effects)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pgherd.analysis import memory_effects
from pgherd.analysis.memory_effects import Effects
from pgherd.model.result import TrialResult
from pgherd.report.memory_figures import Series
from pgherd.store.samples import read_samples

_GUEST, _CONTAINER, _SERVER = "guest:", "container:", "server:"
_LEAST_SWAP = 2**20
"""Bytes: of less than this in swap nobody asks which part is compressed."""


@dataclass(frozen=True)
class GuestMemory:
    """One guest: its parts at each instant (seconds since the first phase's window began), what its balloon was asked for (bytes the
    guest is to keep), and whether its hypervisor's process itself was read (else its control group stands for that)."""

    name: str
    parts: Sequence[tuple[float, Effects]]
    target: Series
    by_process: bool = True


@dataclass(frozen=True)
class GuestMemories:
    """One trial: ``borders`` are the phases' (name, begin, end), seconds."""

    borders: Sequence[tuple[str, float, float]]
    guests: Mapping[str, GuestMemory] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The largest residue as a share of a guest's memory, in the windows of the phases."""
        inside = (
            abs(one.gap)
            for guest in self.guests.values()
            for t, one in guest.parts
            if any(begin <= t <= end for _, begin, end in self.borders)
        )
        return max(inside, default=0.0)


def read(directory: Path, result: TrialResult) -> GuestMemories | None:
    """Those of one trial of a run; None where it has no finished phase or had no guests."""
    if not result.phases:
        return None
    phases = tuple((phase.phase, phase.start, phase.end) for phase in result.phases)
    return _read(directory / "trials" / result.id, phases, result.trial.phases[0].ramp)


@lru_cache(maxsize=8)
def _read(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float) -> GuestMemories | None:
    zero, end = phases[0][1], phases[-1][2]

    def series(sampler: str, metric: str, prefix: str) -> dict[str, Series]:
        found: dict[str, Series] = {}
        for t, entity, value in read_samples(trial, sampler, metric):
            if entity.startswith(prefix) and zero - ramp - memory_effects.APART <= t <= end + memory_effects.APART:
                found.setdefault(entity.removeprefix(prefix), []).append((t - zero, value))
        return found

    actual = series("guest_balloon", "guest.actual", _GUEST)
    if not actual:
        return None
    told = {name: series("guest_balloon", f"guest.{name}", _GUEST) for name in ("memory", "target", "free")}
    process = {name: series("qemu_process", f"qemu.{name}", _GUEST) for name in ("anon", "shared", "overhead", "swapped")}
    group = {name: series("cgroup_memory", f"memory.{name}", _CONTAINER) for name in ("anon", "shmem", "swap", "zswapped")}
    balloons = series("balloon", "balloon.bytes", _SERVER)
    shares = _compressible(series("swap", "swap.used", "swap:"), series("zram", "zram.original", "zram:"))
    guests = {}
    for name in sorted(actual):
        by_process = name in process["anon"]
        first, second = (process["anon"], process["shared"]) if by_process else (group["anon"], group["shmem"])
        read_as = {
            "configured": told["memory"].get(name, []),
            "actual": actual[name],
            "held": _sum([first.get(name, []), second.get(name, [])]),
            "overhead": process["overhead"].get(name, []),
            "swapped": group["swap"].get(name) or process["swapped"].get(name, []),
            "compressible": shares or _zswap(group["zswapped"].get(name, []), group["swap"].get(name, [])),
            "free": told["free"].get(name, []),
            "database": _sum([one for server, one in balloons.items() if server.partition("/")[0] == name]),
        }
        parts = [one for one in memory_effects.over_time(read_as) if -ramp <= one[0] <= end - zero]
        if parts:
            target = [one for one in told["target"].get(name, []) if -ramp <= one[0] <= end - zero]
            guests[name] = GuestMemory(name, parts, target, by_process)
    return GuestMemories([(name, begin - zero, stop - zero) for name, begin, stop in phases], guests) if guests else None


def _sum(all_of: Sequence[Series]) -> Series:
    """The sum of series at the instants of the first; one that is not there adds nothing."""
    some = [one for one in all_of if one]
    if not some:
        return []
    return [(t, value + sum(memory_effects.at(other, t) or 0.0 for other in some[1:])) for t, value in some[0]]


def _compressible(areas: Mapping[str, Series], devices: Mapping[str, Series]) -> Series:
    """The share of the host's swap that lies in compressed devices, over time; empty where there are none."""
    original = _sum(list(devices.values()))
    used = _sum(list(areas.values()))
    found = []
    for t, before in original:
        whole = memory_effects.at(used, t) or 0.0
        if whole >= _LEAST_SWAP:
            found.append((t, memory_effects.compressible(whole, before)))
    return found or [(t, 1.0) for t, _ in original]


def _zswap(compressed: Series, out: Series) -> Series:
    """The share of a control group's swap that lies in the compressed swap cache."""
    found = []
    for t, value in compressed:
        whole = memory_effects.at(out, t) or 0.0
        if whole >= _LEAST_SWAP:
            found.append((t, min(value / whole, 1.0)))
    return found
