"""The figure of guests' memory over time (E6): resident, in the balloon, compressed, swapped and untouched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import altair as alt

from pgherd.analysis import memory_effects
from pgherd.analysis.memory_effects import Effects
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, ORANGE, PURPLE, VERMILLION, data
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import point_text, share
from pgherd.report.memory_figures import PANEL_TITLE, Series, phase_borders, time_axis, trial_name
from pgherd.store.samples import read_samples
from pgherd.study.guest_memory import MERGED, merged

_GUEST, _CONTAINER, _SERVER = "guest:", "container:", "server:"
_LEAST_SWAP = 2**20
"""Bytes: of less than this in swap nobody asks which part is compressed."""


@dataclass(frozen=True)
class GuestMemorySeries:
    """One guest: its parts at each instant (seconds since the first phase's window began), what its balloon was asked for (bytes the
    guest is to keep), and whether its hypervisor's process itself was read (else its control group stands for that)."""

    name: str
    parts: Sequence[tuple[float, Effects]]
    target: Series
    by_process: bool = True


@dataclass(frozen=True)
class TrialGuestMemory:
    """One trial: ``borders`` are the phases' (name, begin, end), seconds."""

    borders: Sequence[tuple[str, float, float]]
    guests: Mapping[str, GuestMemorySeries] = field(default_factory=dict)

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


def read(directory: Path, result: TrialResult) -> TrialGuestMemory | None:
    """Those of one trial of a run; None where it has no finished phase or had no guests."""
    if not result.phases:
        return None
    phases = tuple((phase.phase, phase.start, phase.end) for phase in result.phases)
    return _read_series(directory / "trials" / result.id, phases, result.trial.phases[0].ramp)


@lru_cache(maxsize=8)
def _read_series(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float) -> TrialGuestMemory | None:
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
            guests[name] = GuestMemorySeries(name, parts, target, by_process)
    return TrialGuestMemory([(name, begin - zero, stop - zero) for name, begin, stop in phases], guests) if guests else None


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


TRIALS_SHOWN = 2
GUESTS_SHOWN = 6
POINTS = 240
Panel = alt.LayerChart | alt.FacetChart
_MB = 2**20
_PALE = "#e6e9ed"
_GREY = "#6e7781"
BANDS = {
    "in memory": BLUE,
    "balloon: the kernel's own": ORANGE,
    "balloon: given up by the database": "#F5D080",
    "compressed": PURPLE,
    "swapped": VERMILLION,
    "untouched": _PALE,
    "not accounted for": _GREY,
}
"""What a guest's memory is shown as, from below, with its colour. The balloon's two parts are shades of one: they are one balloon."""


def bands(one: Effects) -> dict[str, float]:
    """Bytes of each band; a negative residue (more than the guest has) is not to be stacked, and is told by the text below."""
    sizes = (one.resident, one.by_kernel, one.by_database, one.compressed, one.swapped, one.untouched, max(one.residue, 0.0))
    return dict(zip(BANDS, sizes, strict=True))


@register("guest_memory")
def guest_memory(inputs: FigureInputs) -> Figure:
    """Each guest's memory stacked over time, a panel each, with what its balloon was asked for."""
    trials = _chosen(inputs)
    shown = [(result, memories, name) for result, memories in trials for name in list(memories.guests)[:GUESTS_SHOWN]]
    panels = [
        _panel(f"{trial_name(result)}: {name}", memories.guests[name], memories, last=number == len(shown))
        for number, (result, memories, name) in enumerate(shown, 1)
    ]
    sentence = _finding(trials)
    subtitle = (
        "Stacked from below: what of a guest's memory is in the host's memory, in the balloon of its kernel (paler: given up by its "
        "database, a part of the same balloon), compressed and swapped by the host, and untouched. Black line: what the host lets the "
        "guest keep. Dashed: a phase begins."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="shared")
    return Figure(sentence, chart, (SAMPLES,), _caption(trials))


def _finding(trials: Sequence[tuple[TrialResult, TrialGuestMemory]]) -> str:
    """The most that any balloon held, and how much of that came from a database; or what there was instead of balloons."""
    seen = [(one, name) for _, memories in trials for name, guest in memories.guests.items() for _, one in guest.parts]
    most, name = max(seen, key=lambda pair: pair[0].ballooned)
    out, loser = max(((one.compressed + one.swapped, name) for one, name in seen), key=lambda pair: pair[0])
    if most.ballooned < _MB:
        said = "No guest gives up memory by its balloon"
    else:
        said = f"{name} gives up to {format_bytes(most.ballooned)} of its {format_bytes(most.configured)} by its balloon"
        from_database = max(one.by_database for one, _ in seen)
        said += f", up to {format_bytes(from_database)} of it from a database" if from_database >= _MB else ""
    if out >= _MB:
        said += f"; the host compresses or swaps up to {format_bytes(out)}" + (
            f" of {loser}" if loser != name or most.ballooned < _MB else ""
        )
    return said


def _caption(trials: Sequence[tuple[TrialResult, TrialGuestMemory]]) -> str:
    worst = max(memories.worst for _, memories in trials)
    said = f"The parts add up to each guest's memory within {share(worst, 1)} in every second; a balloon that moves leaves more."
    if any(not guest.by_process for _, memories in trials for guest in memories.guests.values()):
        said += " What is in memory is of the guest's control group, its hypervisor's own memory included."
    if merged(result for result, _ in trials):
        said += f" {MERGED[0].upper()}{MERGED[1:]}."
    hidden = max(len(memories.guests) for _, memories in trials) - GUESTS_SHOWN
    return said + (f" {hidden} more guests are not shown." if hidden > 0 else "")


def _chosen(inputs: FigureInputs) -> list[tuple[TrialResult, TrialGuestMemory]]:
    """The trials that had guests and least memory for them, clean ones first; raises NotDrawn, without a word where none had guests."""
    if inputs.directory is None:
        raise FigureUnavailable
    guests = [
        result for result in inputs.results if any(container.runtime == "vm" for _, container in result.trial.deployment.containers())
    ]
    finished = sorted((result for result in guests if result.phases), key=lambda one: (one.tainted, _memory(one), one.started))
    points: dict[str, TrialResult] = {}
    for result in finished:
        points.setdefault(point_text(result.trial.point), result)
    found: list[tuple[TrialResult, TrialGuestMemory]] = []
    for result in points.values():
        if len(found) < TRIALS_SHOWN and (memories := read(inputs.directory, result)) is not None:
            found.append((result, memories))
    if found:
        return found
    raise FigureUnavailable("the guests' balloons were not seen" if finished else "")


def _memory(result: TrialResult) -> float:
    return min((host.memory for host in result.trial.deployment.hosts if host.memory is not None), default=math.inf)


def _panel(words: str, guest: GuestMemorySeries, memories: TrialGuestMemory, *, last: bool) -> Panel:
    parts = _thinned(guest.parts)
    rows = [
        {"x": t, "y": size / _MB, "band": band, "order": order} for t, one in parts for order, (band, size) in enumerate(bands(one).items())
    ]
    top = max(one.configured for _, one in guest.parts) / _MB
    first = min(t for t, _ in guest.parts)
    x = time_axis(first, memories.borders[-1][2], labels=last)
    scale = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("y:Q", title="MB", scale=scale, axis=alt.Axis(tickCount=4))
    colour = alt.Color(
        "band:N",
        scale=alt.Scale(domain=list(BANDS), range=list(BANDS.values())),
        legend=alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0, labelLimit=220),
    )
    stacked = alt.Y("y:Q", title="MB", stack="zero", scale=scale, axis=alt.Axis(tickCount=4))
    area = alt.Chart(data(rows)).mark_area(clip=True).encode(x=x, y=stacked, color=colour, order=alt.Order("order:Q"))
    kept = [{"x": t, "y": value / _MB} for t, value in guest.target]
    target = alt.Chart(data(kept)).mark_line(color=INK, strokeWidth=1.5, interpolate="step-after", clip=True).encode(x=x, y=y)
    borders = phase_borders(memories.borders, x, y, top, words=True)
    title = chart_style.panel_title(words, **PANEL_TITLE)
    return alt.layer(area, target, *borders, width=chart_style.plot_width() - 220, height=120, title=title)


def _thinned(parts: Sequence[tuple[float, Effects]]) -> list[tuple[float, Effects]]:
    """At most ``POINTS`` of them, evenly chosen: each one adds up by itself, which means of neighbours would, too."""
    step = -(-len(parts) // POINTS)
    return list(parts[:: max(step, 1)])
