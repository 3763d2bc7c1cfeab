"""The figure of guests' memory over time: resident, in the balloon, compressed, swapped and never touched.

The parts are those of pgherd.analysis.guest_memory_breakdown.

For any study. Runs without guests have no such figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import altair as alt

from pgherd.analysis import guest_memory_breakdown
from pgherd.analysis.guest_memory_breakdown import MemoryBreakdown
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, INK, ORANGE, PURPLE, VERMILLION, data
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import point_text, share
from pgherd.report.memory_figures import PANEL_TITLE, Series, phase_borders, time_axis, trial_name
from pgherd.store.samples import read_samples
from pgherd.study.guests import KSM_NOTE, uses_ksm

_GUEST, _CONTAINER, _SERVER = "guest:", "container:", "server:"
_MIN_SWAP = 2**20
"""Minimum bytes in swap for a compressed share."""


@dataclass(frozen=True)
class GuestMemorySeries:
    """Memory of one guest over time.

    ``parts`` are at seconds since the start of the first phase's window, ``target`` is the memory that the balloon should leave (bytes).
    ``by_process`` is True if the hypervisor's process was read, and False if its cgroup was.
    """

    name: str
    parts: Sequence[tuple[float, MemoryBreakdown]]
    target: Series
    by_process: bool = True


@dataclass(frozen=True)
class TrialGuestMemory:
    """Guest memory of one trial. ``borders`` has (name, start, end) of the phases, in seconds."""

    borders: Sequence[tuple[str, float, float]]
    guests: Mapping[str, GuestMemorySeries] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The largest residual as a share of a guest's memory, within the windows of the phases."""
        inside = (
            abs(parts.gap)
            for guest in self.guests.values()
            for t, parts in guest.parts
            if any(begin <= t <= end for _, begin, end in self.borders)
        )
        return max(inside, default=0.0)


def read(directory: Path, result: TrialResult) -> TrialGuestMemory | None:
    """Return the guest memory of one trial, or None without a finished phase or guests."""
    if not result.phases:
        return None
    phases = tuple((phase.phase, phase.start, phase.end) for phase in result.phases)
    return _read_series(directory / "trials" / result.id, phases, result.trial.phases[0].warmup)


@lru_cache(maxsize=8)
def _read_series(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float) -> TrialGuestMemory | None:
    zero, end = phases[0][1], phases[-1][2]

    def series(sampler: str, metric: str, prefix: str) -> dict[str, Series]:
        by_name: dict[str, Series] = {}
        for t, entity, value in read_samples(trial, sampler, metric):
            if (
                entity.startswith(prefix)
                and zero - ramp - guest_memory_breakdown.MAX_DISTANCE_S <= t <= end + guest_memory_breakdown.MAX_DISTANCE_S
            ):
                by_name.setdefault(entity.removeprefix(prefix), []).append((t - zero, value))
        return by_name

    actual = series("guest_balloon", "guest.memory_balloon_actual", _GUEST)
    if not actual:
        return None
    balloon = {name: series("guest_balloon", f"guest.{name}", _GUEST) for name in ("memory_configured", "target", "free")}
    process = {name: series("qemu_process", f"qemu.{name}", _GUEST) for name in ("anon", "shared", "overhead", "swapped")}
    group = {name: series("cgroup_memory", f"memory.{name}", _CONTAINER) for name in ("anon", "shmem", "swap", "zswapped")}
    balloons = series("balloon", "balloon.bytes", _SERVER)
    shares = _compressed_share(series("swap", "swap.used", "swap:"), series("zram", "zram.orig_data", "zram:"))
    guests = {}
    for name in sorted(actual):
        by_process = name in process["anon"]
        first, second = (process["anon"], process["shared"]) if by_process else (group["anon"], group["shmem"])
        read_as = {
            "configured": balloon["memory_configured"].get(name, []),
            "actual": actual[name],
            "hypervisor": _sum([first.get(name, []), second.get(name, [])]),
            "overhead": process["overhead"].get(name, []),
            "swapped": group["swap"].get(name) or process["swapped"].get(name, []),
            "compressed_share": shares or _zswap(group["zswapped"].get(name, []), group["swap"].get(name, [])),
            "free": balloon["free"].get(name, []),
            "pg_balloon": _sum([sizes for server, sizes in balloons.items() if server.partition("/")[0] == name]),
        }
        parts = [part for part in guest_memory_breakdown.over_time(read_as) if -ramp <= part[0] <= end - zero]
        if parts:
            target = [reading for reading in balloon["target"].get(name, []) if -ramp <= reading[0] <= end - zero]
            guests[name] = GuestMemorySeries(name, parts, target, by_process)
    return TrialGuestMemory([(name, begin - zero, stop - zero) for name, begin, stop in phases], guests) if guests else None


def _sum(all_of: Sequence[Series]) -> Series:
    """Return the sum of series at the times of the first one. A missing one adds nothing."""
    present = [series for series in all_of if series]
    if not present:
        return []
    return [(t, value + sum(guest_memory_breakdown.value_at(other, t) or 0.0 for other in present[1:])) for t, value in present[0]]


def _compressed_share(areas: Mapping[str, Series], devices: Mapping[str, Series]) -> Series:
    """Return the share of the host's swap on compressed devices over time, or nothing without such devices."""
    original = _sum(list(devices.values()))
    used = _sum(list(areas.values()))
    shares = []
    for t, before in original:
        total = guest_memory_breakdown.value_at(used, t) or 0.0
        if total >= _MIN_SWAP:
            shares.append((t, guest_memory_breakdown.compressed_share(total, before)))
    return shares or [(t, 1.0) for t, _ in original]


def _zswap(compressed: Series, out: Series) -> Series:
    """Return the share of a cgroup's swap in zswap."""
    shares = []
    for t, value in compressed:
        total = guest_memory_breakdown.value_at(out, t) or 0.0
        if total >= _MIN_SWAP:
            shares.append((t, min(value / total, 1.0)))
    return shares


TRIALS_SHOWN = 2
GUESTS_SHOWN = 6
POINTS = 240
Panel = alt.LayerChart | alt.FacetChart
_MB = 2**20
_PALE = "#e6e9ed"
_GREY = "#6e7781"
BANDS = {
    "in memory": BLUE,
    "balloon: kernel": ORANGE,
    "balloon: database": "#F5D080",
    "compressed": PURPLE,
    "swapped": VERMILLION,
    "never touched": _PALE,
    "unaccounted": _GREY,
}
"""Parts of a guest's memory from bottom to top, with colours. The two parts of the balloon have shades of one colour."""


def bands(parts: MemoryBreakdown) -> dict[str, float]:
    """Return bytes of each band. A negative residual (more than the guest has) is not stacked."""
    sizes = (
        parts.resident,
        parts.by_kernel,
        parts.by_pg_balloon,
        parts.compressed,
        parts.swapped,
        parts.never_touched,
        max(parts.unaccounted, 0.0),
    )
    return dict(zip(BANDS, sizes, strict=True))


@register("guest_memory")
def guest_memory(inputs: FigureInputs) -> Figure:
    """Each guest's memory stacked over time in a panel, with the target of its balloon."""
    trials = _chosen(inputs)
    shown = [(result, memories, name) for result, memories in trials for name in list(memories.guests)[:GUESTS_SHOWN]]
    panels = [
        _panel(f"{trial_name(result)}: {name}", memories.guests[name], memories, last=number == len(shown))
        for number, (result, memories, name) in enumerate(shown, 1)
    ]
    sentence = _finding(trials)
    subtitle = (
        "Stacked from below: guest memory in the host's memory, in the balloon of the guest's kernel (paler: released by its database, "
        "part of the same balloon), compressed and swapped by the host, and never touched. Black line: memory that the host leaves the "
        "guest. Dashed: start of a phase."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="shared")
    return Figure(sentence, chart, (SAMPLES,), _caption(trials))


def _finding(trials: Sequence[tuple[TrialResult, TrialGuestMemory]]) -> str:
    """Return the largest balloon and the database's part of it, or a statement about swap."""
    readings = [(parts, name) for _, memories in trials for name, guest in memories.guests.items() for _, parts in guest.parts]
    most, name = max(readings, key=lambda pair: pair[0].ballooned)
    out, swapped_guest = max(((parts.compressed + parts.swapped, name) for parts, name in readings), key=lambda pair: pair[0])
    if most.ballooned < _MB:
        sentence = "No guest releases memory by its balloon"
    else:
        sentence = f"{name} releases up to {format_bytes(most.ballooned)} of its {format_bytes(most.configured)} by its balloon"
        from_database = max(parts.by_pg_balloon for parts, guest in readings if guest == name)
        sentence += f", up to {format_bytes(from_database)} of it from a database" if from_database >= _MB else ""
    if out >= _MB:
        sentence += f"; the host compresses or swaps up to {format_bytes(out)}" + (
            f" of {swapped_guest}" if swapped_guest != name or most.ballooned < _MB else ""
        )
    return sentence


def _caption(trials: Sequence[tuple[TrialResult, TrialGuestMemory]]) -> str:
    worst = max(memories.worst for _, memories in trials)
    caption = (
        f"The parts add up to each guest's memory within {share(worst, 1)} in every second. The residual is larger while a balloon moves."
    )
    if any(not guest.by_process for _, memories in trials for guest in memories.guests.values()):
        caption += " Resident memory is that of the guest's cgroup, including its hypervisor."
    if uses_ksm(result for result, _ in trials):
        caption += f" {KSM_NOTE[0].upper()}{KSM_NOTE[1:]}."
    hidden = max(len(memories.guests) for _, memories in trials) - GUESTS_SHOWN
    return caption + (f" {hidden} more guests are not shown." if hidden > 0 else "")


def _chosen(inputs: FigureInputs) -> list[tuple[TrialResult, TrialGuestMemory]]:
    """Return the trials with guests and the least memory, clean ones first.

    Raises FigureUnavailable, without a message if no trial had guests.
    """
    if inputs.directory is None:
        raise FigureUnavailable
    guests = [
        result
        for result in inputs.results
        if any(capabilities_of(container.runtime).own_kernel for _, container in result.trial.deployment.containers())
    ]
    finished = sorted((result for result in guests if result.phases), key=lambda result: (result.tainted, _memory(result), result.started))
    points: dict[str, TrialResult] = {}
    for result in finished:
        points.setdefault(point_text(result.trial.point), result)
    chosen: list[tuple[TrialResult, TrialGuestMemory]] = []
    for result in points.values():
        if len(chosen) < TRIALS_SHOWN and (memories := read(inputs.directory, result)) is not None:
            chosen.append((result, memories))
    if chosen:
        return chosen
    raise FigureUnavailable("the guests' balloons were not measured" if finished else "")


def _memory(result: TrialResult) -> float:
    return min((host.memory for host in result.trial.deployment.hosts if host.memory is not None), default=math.inf)


def _panel(text: str, guest: GuestMemorySeries, memories: TrialGuestMemory, *, last: bool) -> Panel:
    parts = _thinned(guest.parts)
    rows = [
        {"x": t, "y": size / _MB, "band": band, "order": order}
        for t, breakdown in parts
        for order, (band, size) in enumerate(bands(breakdown).items())
    ]
    top = max(parts_of.configured for _, parts_of in guest.parts) / _MB
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
    targets = [{"x": t, "y": value / _MB} for t, value in guest.target]
    target = alt.Chart(data(targets)).mark_line(color=INK, strokeWidth=1.5, interpolate="step-after", clip=True).encode(x=x, y=y)
    borders = phase_borders(memories.borders, x, y, top, named=True)
    title = chart_style.panel_title(text, **PANEL_TITLE)
    return alt.layer(area, target, *borders, width=chart_style.plot_width() - 220, height=120, title=title)


def _thinned(parts: Sequence[tuple[float, MemoryBreakdown]]) -> list[tuple[float, MemoryBreakdown]]:
    """Return at most ``POINTS`` of them, evenly spaced. Means would not add up."""
    step = -(-len(parts) // POINTS)
    return list(parts[:: max(step, 1)])
