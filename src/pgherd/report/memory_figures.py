"""Figures of a host's memory over time: memory by container, swap, compression and memory pressure.

For any study whose run has private swap, or trials with less memory than the run. Other runs have no such figure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import altair as alt

from pgherd.analysis import memory_accounting
from pgherd.metrics.cgroup import LOCKED, RUN_CGROUP
from pgherd.metrics.processes import PAGE
from pgherd.metrics.procfs import SWAP_OURS
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.model.units import MB_PER_SECOND, format_bytes
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, MUTED, ORANGE, PURPLE, SERIES, SKY, VERMILLION, data
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import point_text, share
from pgherd.store.samples import read_samples

Series = list[tuple[float, float]]
"""(seconds since the start of the first phase's window, value), in order of time."""

_MIN_INTERVAL = 0.5

CONTAINER, SERVER = "container:", "server:"
SHARED, CACHE, PRIVATE, REST = "shared memory", "page cache", "private memory", "kernel and other"
KINDS = (SHARED, CACHE, PRIVATE, REST)
"""Kinds of memory of a container. Shared buffers are shared memory, which the kernel counts as part of the page cache."""
SWAPPED_IN, SWAPPED_OUT, COMPRESSED, TAKEN, IN_SWAP = (
    "swapped in",
    "swapped out",
    "swapped out, before compression",
    "compressed size",
    "in the run's swap",
)


@dataclass(frozen=True)
class MemorySeries:
    """Memory of one trial: sizes in bytes, rates in bytes per second, stalls as shares of the time, by container or server name.

    ``borders`` has (name, start, end) of the phases. ``budget`` is the memory of all containers together. ``host`` has values of the
    whole host
    by name.
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
        """Bytes before compression ÷ compressed bytes, at the time of most compressed data. None without compressed data."""
        pairs = list(zip(self.host.get(COMPRESSED, []), self.host.get(TAKEN, []), strict=False))
        largest = max(pairs, key=lambda pair: pair[0][1], default=None)
        return None if largest is None else memory_accounting.compression_ratio(largest[0][1], largest[1][1])


def read(directory: Path, result: TrialResult, page: int = PAGE) -> MemorySeries | None:
    """Return the series of one trial, or None without a run cgroup or a finished phase. Cached, because several figures read the same
    trial. ``page`` is the page size of the measured host in bytes.
    """
    if not result.phases:
        return None
    phases = tuple((phase.phase, phase.start, phase.end) for phase in result.phases)
    return _read_series(directory / "trials" / result.id, phases, result.trial.phases[0].warmup, page)


@lru_cache(maxsize=8)
def _read_series(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float, page: int) -> MemorySeries | None:
    zero, end = phases[0][1], phases[-1][2]
    first = zero - ramp

    def series(sampler: str, metric: str, prefix: str) -> dict[str, Series]:
        by_name: dict[str, Series] = {}
        for t, entity, value in read_samples(trial, sampler, metric):
            if entity.startswith(prefix) and first <= t <= end:
                by_name.setdefault(entity.removeprefix(prefix), []).append((t - zero, value))
        return by_name

    memory = {name: series("cgroup_memory", f"memory.{name}", CONTAINER) for name in ("usage", "anon", "file", "shmem")}
    charged, limit = (series("cgroup_memory", f"memory.{name}", RUN_CGROUP).get("", []) for name in ("usage", "limit"))
    if not charged or not limit or not memory["usage"]:
        return None
    budget = max(value for _, value in limit)
    zram = {name: next(iter(series("zram", f"zram.{name}", "zram:").values()), []) for name in ("orig_data", "mem_used")}
    if not zram["mem_used"]:
        host = {name: series("memory", f"memory.{name}", "host").get("", []) for name in ("zswapped", "zswap")}
        zram = {"orig_data": host["zswapped"], "mem_used": host["zswap"]} if any(value for _, value in host["zswap"]) else zram
    return MemorySeries(
        borders=[(name, begin - zero, stop - zero) for name, begin, stop in phases],
        budget=budget,
        parts={name: _memory_by_kind(name, memory) for name in sorted(memory["usage"])},
        unallocated=[(t, max(budget - value, 0.0)) for t, value in charged],
        swapped=series("cgroup_memory", "memory.swap", CONTAINER),
        refaults=_refaults(
            series("cgroup_memory", "memory.refaults_anon", CONTAINER), series("cgroup_memory", "memory.refaults_file", CONTAINER), page
        ),
        ballooned=series("balloon", "balloon.bytes", SERVER),
        stalled={
            kind: {name: rates(stall) for name, stall in series("pressure", f"psi.{kind}.some", CONTAINER).items()}
            for kind in ("memory", "io")
        },
        host={
            SWAPPED_IN: scaled(rates(series("vmstat", "vm.pswpin", "host").get("", [])), page),
            SWAPPED_OUT: scaled(rates(series("vmstat", "vm.pswpout", "host").get("", [])), page),
            COMPRESSED: zram["orig_data"],
            TAKEN: zram["mem_used"],
            IN_SWAP: series("swap", "swap.used", SWAP_OURS).get("", []),
        },
    )


def rates(counter: Series) -> Series:
    """Return a counter as its rate per second at the end of each interval. A decrease gives no rate.

    Readings at phase borders closely follow regular ones. They form no interval, because a few milliseconds would count as a second.
    """
    readings = counter[:1]
    for reading in counter[1:]:
        if reading[0] - readings[-1][0] >= _MIN_INTERVAL:
            readings.append(reading)
    return [(t1, (after - before) / (t1 - t0)) for (t0, before), (t1, after) in pairwise(readings) if after >= before]


def scaled(series: Series, factor: float) -> Series:
    """Return every value times a factor."""
    return [(t, value * factor) for t, value in series]


def thinned(series: Series, limit: int) -> Series:
    """Return at most ``limit`` points: means of neighbours at their mean time."""
    step = -(-len(series) // limit) if limit > 0 else 1
    if step <= 1:
        return series
    groups = [series[i : i + step] for i in range(0, len(series), step)]
    return [(sum(t for t, _ in group) / len(group), sum(value for _, value in group) / len(group)) for group in groups]


def _memory_by_kind(name: str, memory: Mapping[str, Mapping[str, Series]]) -> dict[str, Series]:
    """Return a container's usage by kind of memory, at the times of its usage readings."""
    by_kind: dict[str, Series] = {kind: [] for kind in KINDS}
    for t, usage in memory["usage"][name]:
        anon, file, shmem = (_nearest(memory[field].get(name, []), t) for field in ("anon", "file", "shmem"))
        # The three are read a millisecond after the total and are limited to it.
        parts = [min(shmem, usage), max(file - shmem, 0.0), anon]
        scale = min(1.0, usage / total) if (total := sum(parts)) > 0 else 1.0
        for kind, value in zip((SHARED, CACHE, PRIVATE), parts, strict=True):
            by_kind[kind].append((t, value * scale))
        by_kind[REST].append((t, max(usage - total * scale, 0.0)))
    return by_kind


def _nearest(series: Series, at: float) -> float:
    index = bisect_left(series, (at, float("-inf")))
    neighbours = [series[i] for i in (index - 1, index) if 0 <= i < len(series)]
    return min(neighbours, key=lambda reading: abs(reading[0] - at))[1] if neighbours else 0.0


def _refaults(anonymous: Mapping[str, Series], files: Mapping[str, Series], page: int) -> dict[str, Series]:
    """Return bytes per second that were read again after eviction, of both kinds."""
    refaults: dict[str, Series] = {}
    for name, series in anonymous.items():
        other = rates(files.get(name, []))
        refaults[name] = [(t, (value + _nearest(other, t)) * page) for t, value in rates(series)]
    return refaults


TRIALS_SHOWN = 4
KINDS_SHOWN = 3
"""Maximum number of containers shown with kinds of memory. With more, each is one band."""
POINTS = 240
"""Maximum number of points of a series. Longer ones are averaged."""
Panel = alt.LayerChart | alt.FacetChart
_MB = 2**20
_GREY = "#8c959f"
PANEL_TITLE = {"frame": "group", "offset": 4, "color": MUTED}
_OPACITY = {SHARED: 0.9, CACHE: 0.6, PRIVATE: 0.4, REST: 0.2}


@register("memory")
def memory(inputs: FigureInputs) -> Figure:
    """Each container's memory stacked over time with phase borders, and swapped memory below it."""
    trials = _chosen(inputs)
    panels = [panel for result, series in trials for panel in _memory_panels(result, series)]
    largest = max((max((v for _, v in swapped), default=0.0) for _, series in trials for swapped in series.swapped.values()), default=0.0)
    budgets = sorted({result.trial.deployment.memory or series.budget for result, series in trials})
    sentence = (
        f"Containers share {' or '.join(format_bytes(budget) for budget in budgets)}; one has up to {format_bytes(largest)} swapped out"
    )
    subtitle = (
        "Stacked: memory charged to each container, dark to pale: shared memory (shared buffers), page cache, private memory, kernel "
        "and other. White is unallocated. Dashed lines: start of a phase. "
        "Below: swapped memory of each container. Memory in a database balloon is not part of its container's shared memory."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,), _accounted(trials))


@register("swapping")
def swapping(inputs: FigureInputs) -> Figure:
    """Contents of the host's swap before and after compression, and rates of swapping in and out."""
    trials = [(result, series) for result, series in _chosen(inputs) if any(series.host.get(name) for name in (IN_SWAP, COMPRESSED))]
    if not trials:
        raise FigureUnavailable("the run had no private swap")
    panels = []
    moves = {SWAPPED_IN: BLUE, SWAPPED_OUT: VERMILLION}
    for result, series in trials:
        sizes = {name: series.host[name] for name in (COMPRESSED, TAKEN, IN_SWAP) if series.host.get(name)}
        if series.host.get(COMPRESSED):
            sizes.pop(IN_SWAP, None)
        colours = {COMPRESSED: PURPLE, TAKEN: ORANGE, IN_SWAP: PURPLE}
        panels.append(_lines(f"{trial_name(result)}: contents", sizes, series, "MB", _MB, colours, last=False))
        moved = {name: series.host.get(name, []) for name in (SWAPPED_IN, SWAPPED_OUT)}
        panels.append(_lines(f"{trial_name(result)}: rates", moved, series, "MB/s", MB_PER_SECOND, moves, last=True))
    ratios = [ratio for _, series in trials if (ratio := series.ratio) is not None]
    contents = [series.host.get(COMPRESSED) or series.host.get(IN_SWAP, []) for _, series in trials]
    largest = max((value for sizes in contents for _, value in sizes), default=0.0)
    sentence = f"The run's swap holds up to {format_bytes(largest)}"
    sentence += f", compressed {max(ratios):.1f} times at its largest" if ratios else ""
    subtitle = (
        "Swap serves the whole host and may contain pages of other programs. Compressed pages use memory of the host outside the run "
        "cgroup."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,))


@register("memory_pressure")
def memory_pressure(inputs: FigureInputs) -> Figure:
    """Share of time in which a task of each container waited for memory or I/O, and refaults."""
    trials = _chosen(inputs)
    panels: list[Panel] = []
    worst = (0.0, "", "")
    for result, series in trials:
        colours, name = _colours(series), trial_name(result)
        stalls = {f"{name}: {label} pressure": series.stalled.get(kind, {}) for kind, label in _RESOURCES.items()}
        shown = {label: (stalled, "% of time", 0.01) for label, stalled in stalls.items() if stalled}
        if any(v for refaults in series.refaults.values() for _, v in refaults):
            shown[f"{name}: refaults"] = (series.refaults, "MB/s", MB_PER_SECOND)
        for number, (label, (lines, unit, divisor)) in enumerate(shown.items(), 1):
            panels.append(_lines(label, lines, series, unit, divisor, colours, last=number == len(shown)))
        waited = series.stalled.get("memory", {})
        worst = max([worst, *((max((v for _, v in stalled), default=0.0), container, name) for container, stalled in waited.items())])
    if not panels:
        raise FigureUnavailable("the kernel reports no pressure of these containers, and counted no refaults")
    sentence = "No memory pressure"
    if worst[0] > 0:
        sentence = f"Tasks of {worst[1]} wait for memory up to {share(worst[0])} of a second: {worst[2]}"
    subtitle = (
        "Pressure stall information: the share of each second in which at least one task of the container waited. "
        "Refaults are file pages read again, and private or shared pages swapped in again."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,))


_RESOURCES = {"memory": "memory", "io": "I/O"}


def _chosen(inputs: FigureInputs) -> list[tuple[TrialResult, MemorySeries]]:
    """Return finished trials with the least memory, one per point, clean ones first.

    Raises FigureUnavailable if memory was neither limited nor swapped.
    """
    environment = inputs.record.environment
    if environment is None or inputs.directory is None:
        raise FigureUnavailable
    deployed = [result for result in inputs.results if result.trial.deployment.hosts]
    budgets = {result.id: result.trial.deployment.memory or environment.memory for result in deployed}
    if (environment.swap is None or environment.swap.kind == "none") and not any(
        memory < environment.memory for memory in budgets.values()
    ):
        raise FigureUnavailable
    finished = [result for result in inputs.results if result.phases and result.id in budgets]
    if not finished:
        raise FigureUnavailable("no finished trial")
    smallest = min(budgets[result.id] for result in finished)
    points: dict[str, TrialResult] = {}
    for result in sorted(finished, key=lambda result: (result.tainted, result.started)):
        if budgets[result.id] == smallest:
            points.setdefault(point_text(result.trial.point), result)
    candidates = [points[name] for name in sorted(points)]
    candidates = [result for result in candidates if _other_coordinates(result) == _other_coordinates(candidates[-1])]
    page = next((facts.page_size for facts in inputs.record.hosts.values() if facts.page_size is not None), PAGE)
    trials = [(result, series) for result in candidates[-TRIALS_SHOWN:] if (series := read(inputs.directory, result, page)) is not None]
    if not trials:
        raise FigureUnavailable("the containers had no run cgroup that limits and measures their total memory")
    return trials


def _other_coordinates(result: TrialResult) -> tuple[object, ...]:
    """Return a point without its first coordinate. Trials with an equal value are shown next to each other."""
    return tuple(result.trial.point.values())[1:]


def _memory_panels(result: TrialResult, series: MemorySeries) -> list[Panel]:
    colours = _colours(series)
    rows: list[dict[str, object]] = []
    bands: dict[str, str] = {}
    instants = thinned(series.unallocated, POINTS)
    for name, colour in colours.items():
        for band, sizes, opacity in _bands(name, series.parts[name], len(colours)):
            for (at, _), (_, value) in zip(instants, thinned(sizes, POINTS), strict=False):
                rows.append({"x": at, "y": value / _MB, "band": band, "order": len(bands)})
            bands[band] = _mixed(colour, opacity)
    x = time_axis(min((t for t, _ in series.unallocated), default=0.0), series.borders[-1][2], labels=False)
    y = chart_style.y_axis([0, series.budget / _MB], title="MB")
    scale = alt.Scale(domain=list(bands), range=list(bands.values()))
    legend = alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0, labelLimit=220)
    area = alt.Chart(data(rows)).mark_area(interpolate="linear", clip=True)
    layers = [
        area.encode(
            x=x,
            y=chart_style.y_axis([0, series.budget / _MB], title="MB", stack="zero"),
            color=alt.Color("band:N", scale=scale, legend=legend),
            order=alt.Order("order:Q"),
        ),
        *phase_borders(series.borders, x, y, series.budget / _MB, named=True),
    ]
    upper = alt.layer(
        *layers,
        width=_width(),
        height=190,
        title=chart_style.panel_title(f"{trial_name(result)}: {format_bytes(series.budget)} in total", **PANEL_TITLE),
    )
    below = {f"{name}: swapped": sizes for name, sizes in series.swapped.items() if name != LOCKED}
    below |= {f"{name}: in its balloon": sizes for name, sizes in series.ballooned.items()}
    lines = {f"{name}: swapped": colour for name, colour in colours.items()}
    lines |= {f"{name}: in its balloon": (SKY, GREEN, ORANGE)[i % 3] for i, name in enumerate(series.ballooned)}
    text = "swapped out, and in the databases' balloons" if series.ballooned else "swapped out"
    return [upper, _lines(text, below, series, "MB", _MB, lines, last=True)]


def _colours(series: MemorySeries) -> dict[str, str]:
    """Return a colour for each container in stacking order. The locked one, if any, is on top and grey."""
    names = sorted(series.parts, key=lambda name: (name == LOCKED, name))
    return {name: _GREY if name == LOCKED else SERIES[i % len(SERIES)] for i, name in enumerate(names)}


def _bands(name: str, parts: Mapping[str, Series], containers: int) -> list[tuple[str, Series, float]]:
    """Return (name, series, opacity) of a container: its kinds of memory, or one band with many containers or the locked one."""
    if name == LOCKED or containers > KINDS_SHOWN + 1:
        total = [(t, sum(parts[kind][i][1] for kind in KINDS)) for i, (t, _) in enumerate(parts[SHARED])]
        return [("withheld (locked)" if name == LOCKED else name, total, 0.75)]
    return [(f"{name}: {kind}", parts[kind], _OPACITY[kind]) for kind in KINDS]


def _lines(
    text: str, lines: Mapping[str, Series], series: MemorySeries, unit: str, divisor: float, colours: Mapping[str, str], *, last: bool
) -> Panel:
    """Return a low panel of lines. The last panel of a trial has the labels of the time axis."""
    names = [name for name in sorted(lines) if name != LOCKED]
    rows = [{"x": t, "y": value / divisor, "line": name} for name in names for t, value in thinned(lines[name], POINTS)]
    top = chart_style.nice_ceiling(max((float(str(row["y"])) for row in rows), default=0.0) or 1.0)
    x = time_axis(min((t for t, _ in series.unallocated), default=0.0), series.borders[-1][2], labels=last)
    y = chart_style.y_axis([0, top], title=unit, axis=alt.Axis(tickCount=3))
    scale = alt.Scale(domain=names, range=[colours.get(name, SERIES[i % len(SERIES)]) for i, name in enumerate(names)])
    legend = alt.Legend(title=None, symbolType="stroke", labelLimit=220)
    chart = alt.Chart(data(rows)).mark_line(strokeWidth=1.8, clip=True)
    layers = [
        chart.encode(x=x, y=y, color=alt.Color("line:N", scale=scale, legend=legend)),
        *phase_borders(series.borders, x, y, top, named=False),
    ]
    return alt.layer(*layers, width=_width(), height=70, title=chart_style.panel_title(text, **PANEL_TITLE))


def phase_borders(borders: Sequence[tuple[str, float, float]], x: alt.X, y: alt.Y, top: float, *, named: bool) -> list[alt.Chart]:
    """Return a dashed line at the start of each phase's window, with its name on request."""
    rows = [{"x": begin, "y": top, "text": name} for name, begin, _ in borders]
    lines = alt.Chart(data(rows)).mark_rule(color="#59636e", strokeDash=[4, 3]).encode(x=x)
    texts = alt.Chart(data(rows)).encode(x=x, y=y, text=alt.Text("text:N"))
    named = named and len(rows) <= 12
    return [lines, *(chart_style.haloed(texts, align="left", baseline="top", dx=3, dy=3, fontSize=11, color=MUTED) if named else [])]


def time_axis(first: float, last: float, *, labels: bool) -> alt.X:
    """Return the time axis of a panel. Only the lowest panel of a trial has labels."""
    axis = alt.Axis(title="seconds since the first phase" if labels else None, labels=labels, ticks=labels, grid=False, format="d")
    return chart_style.x_axis([math.floor(first), last], axis=axis)


def _mixed(colour: str, opacity: float) -> str:
    """Return a colour mixed with white."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - channel) * opacity):02x}" for channel in channels)


def trial_name(result: TrialResult) -> str:
    return clean(point_text(result.trial.point)) + (" (tainted)" if result.tainted else "")


def _width() -> int:
    return chart_style.plot_width() - 190  # without the legend at the right


def _accounted(trials: Iterable[tuple[TrialResult, MemorySeries]]) -> str:
    """Return the caption about the memory balance of these trials."""
    results = [result for result, _ in trials]
    residuals: Sequence[float] = [abs(phase.memory.worst) for result in results for phase in result.phases if phase.memory is not None]
    sentences = (
        [f"Containers and unallocated memory add up to the budget within {share(max(residuals), 2)} in every second."] if residuals else []
    )
    if any(capabilities_of(container.runtime).own_kernel for result in results for _, container in result.trial.deployment.containers()):
        sentences.append("For a guest it is the memory of its hypervisor. The figure of guest memory shows its parts.")
    return " ".join(sentences)
