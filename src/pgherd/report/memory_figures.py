"""Figures of a host's memory over time (E6): memory by container, swap, compression and memory pressure."""

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
from pgherd.metrics.cgroup import BUDGET, LOCKED
from pgherd.metrics.processes import PAGE
from pgherd.metrics.swap import OURS
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, GREEN, MUTED, ORANGE, PURPLE, SERIES, SKY, VERMILLION, data
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean, point_text, share
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
    return _read_series(directory / "trials" / result.id, tuple((phase.phase, phase.start, phase.end) for phase in result.phases), ramp)


@lru_cache(maxsize=8)
def _read_series(trial: Path, phases: tuple[tuple[str, float, float], ...], ramp: float) -> MemorySeries | None:
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
        parts={name: _memory_by_kind(name, memory) for name in sorted(memory["usage"])},
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


def _memory_by_kind(name: str, memory: Mapping[str, Mapping[str, Series]]) -> dict[str, Series]:
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


TRIALS_SHOWN = 4
KINDS_SHOWN = 3
"""Up to so many containers are shown with what their memory consists of; more of them each as one band."""
POINTS = 240
"""Most instants of a series: longer ones are averaged."""
Panel = alt.LayerChart | alt.FacetChart
_MB = 2**20
_GREY = "#8c959f"
PANEL_TITLE = {"frame": "group", "offset": 4, "color": MUTED}
_OPACITY = {SHARED: 0.9, CACHE: 0.6, PRIVATE: 0.4, REST: 0.2}


@register("memory")
def memory(inputs: FigureInputs) -> Figure:
    """Each container's memory stacked over time with the phases' borders, and below it what is swapped out."""
    trials = _chosen(inputs)
    panels = [panel for result, series in trials for panel in _memory_panels(result, series)]
    at_most = max((max((v for _, v in one), default=0.0) for _, series in trials for one in series.swapped.values()), default=0.0)
    budgets = sorted({result.trial.deployment.memory or series.budget for result, series in trials})
    sentence = f"Containers share {' or '.join(format_bytes(one) for one in budgets)}; one has up to {format_bytes(at_most)} swapped out"
    subtitle = (
        "Stacked: what is charged to each container, dark to pale: shared memory (shared buffers), page cache, private memory, the "
        "kernel's and the rest; white is unallocated. Dashed lines: a phase begins. "
        "Below: swapped out of each container. What a database balloon gives up is missing from its container's shared memory, and is "
        "never to be added to it."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,), _accounted(trials))


@register("swapping")
def swapping(inputs: FigureInputs) -> Figure:
    """What the host's swap holds, before and after compression, and how fast pages go there and come back."""
    trials = [(result, series) for result, series in _chosen(inputs) if any(series.host.get(name) for name in (IN_SWAP, COMPRESSED))]
    if not trials:
        raise FigureUnavailable("the run had no swap of its own to look at")
    panels = []
    moves = {SWAPPED_IN: BLUE, SWAPPED_OUT: VERMILLION}
    for result, series in trials:
        sizes = {name: series.host[name] for name in (COMPRESSED, TAKEN, IN_SWAP) if series.host.get(name)}
        if series.host.get(COMPRESSED):
            sizes.pop(IN_SWAP, None)
        colours = {COMPRESSED: PURPLE, TAKEN: ORANGE, IN_SWAP: PURPLE}
        panels.append(_lines(f"{trial_name(result)}: held", sizes, series, "MB", _MB, colours, last=False))
        moved = {name: series.host.get(name, []) for name in (SWAPPED_IN, SWAPPED_OUT)}
        panels.append(_lines(f"{trial_name(result)}: moved", moved, series, "MB/s", _MB, moves, last=True))
    ratios = [one for _, series in trials if (one := series.ratio) is not None]
    held = [series.host.get(COMPRESSED) or series.host.get(IN_SWAP, []) for _, series in trials]
    largest = max((value for one in held for _, value in one), default=0.0)
    sentence = f"The run's swap holds up to {format_bytes(largest)}"
    sentence += f", compressed {max(ratios):.1f} times where it held most" if ratios else ""
    subtitle = (
        "Swap serves the whole host: other programs' pages may be among it. The memory that compressed pages take is the host's own, and "
        "no part of the containers' budget."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,))


@register("memory_pressure")
def memory_pressure(inputs: FigureInputs) -> Figure:
    """For how much of the time somebody in each container waited for memory or for I/O, and how much came back after eviction."""
    trials = _chosen(inputs)
    panels: list[Panel] = []
    worst = (0.0, "", "")
    for result, series in trials:
        colours, name = _colours(series), trial_name(result)
        stalls = {f"{name}: waiting for {words}": series.stalled.get(what, {}) for what, words in _WAITED.items()}
        shown = {words: (one, "% of time", 0.01) for words, one in stalls.items() if one}
        if any(v for one in series.refaults.values() for _, v in one):
            shown[f"{name}: came back after eviction"] = (series.refaults, "MB/s", float(_MB))
        for number, (words, (lines, unit, divisor)) in enumerate(shown.items(), 1):
            panels.append(_lines(words, lines, series, unit, divisor, colours, last=number == len(shown)))
        waited = series.stalled.get("memory", {})
        worst = max([worst, *((max((v for _, v in one), default=0.0), where, name) for where, one in waited.items())])
    if not panels:
        raise FigureUnavailable("the kernel tells no pressure of these containers' groups, and counted no page that came back")
    sentence = "Nobody waits for memory"
    if worst[0] > 0:
        sentence = f"Somebody in {worst[1]} waits for memory up to {share(worst[0])} of a second: {worst[2]}"
    subtitle = (
        "Pressure stall information: the share of each second in which at least one task of the container waited. "
        "Pages that came back are file pages read again and private or shared ones swapped in again."
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=10, color="independent")
    return Figure(sentence, chart, (SAMPLES,))


_WAITED = {"memory": "memory", "io": "I/O"}


def _chosen(inputs: FigureInputs) -> list[tuple[TrialResult, MemorySeries]]:
    """Finished trials of the least memory, clean ones first, one of each point; raises NotDrawn where memory was no matter."""
    around = inputs.record.surroundings
    if around is None or inputs.directory is None:
        raise FigureUnavailable
    deployed = [result for result in inputs.results if result.trial.deployment.hosts]
    budgets = {result.id: result.trial.deployment.memory or around.memory for result in deployed}
    if (around.swap is None or around.swap.kind == "none") and not any(memory < around.memory for memory in budgets.values()):
        raise FigureUnavailable
    finished = [result for result in inputs.results if result.phases and result.id in budgets]
    if not finished:
        raise FigureUnavailable("no trial was finished")
    least = min(budgets[result.id] for result in finished)
    points: dict[str, TrialResult] = {}
    for result in sorted(finished, key=lambda one: (one.tainted, one.started)):
        if budgets[result.id] == least:
            points.setdefault(point_text(result.trial.point), result)
    alike = [points[name] for name in sorted(points)]
    alike = [result for result in alike if _beside(result) == _beside(alike[-1])]
    chosen = alike[-TRIALS_SHOWN:]
    found = [(result, series) for result in chosen if (series := read(inputs.directory, result)) is not None]
    if not found:
        raise FigureUnavailable("no control group held the containers' memory together, so that nothing tells how they shared it")
    return found


def _beside(result: TrialResult) -> tuple[object, ...]:
    """A point without its first coordinate: trials that are alike in all else are shown beside each other."""
    return tuple(result.trial.point.values())[1:]


def _memory_panels(result: TrialResult, series: MemorySeries) -> list[Panel]:
    colours = _colours(series)
    rows: list[dict[str, object]] = []
    bands: dict[str, str] = {}
    instants = thinned(series.unallocated, POINTS)
    for name, colour in colours.items():
        for band, one, opacity in _bands(name, series.parts[name], len(colours)):
            for (at, _), (_, value) in zip(instants, thinned(one, POINTS), strict=False):
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
        *phase_borders(series.borders, x, y, series.budget / _MB, words=True),
    ]
    upper = alt.layer(
        *layers,
        width=_width(),
        height=190,
        title=chart_style.panel_title(f"{trial_name(result)}: {format_bytes(series.budget)} for all", **PANEL_TITLE),
    )
    below = {f"{name}: swapped": one for name, one in series.swapped.items() if name != LOCKED}
    below |= {f"{name}: in its balloon": one for name, one in series.ballooned.items()}
    lines = {f"{name}: swapped": colour for name, colour in colours.items()}
    lines |= {f"{name}: in its balloon": (SKY, GREEN, ORANGE)[i % 3] for i, name in enumerate(series.ballooned)}
    words = "swapped out, and in the databases' balloons" if series.ballooned else "swapped out"
    return [upper, _lines(words, below, series, "MB", _MB, lines, last=True)]


def _colours(series: MemorySeries) -> dict[str, str]:
    """A colour for each container, in the order in which they are stacked; the locked one, if any, on top and grey."""
    names = sorted(series.parts, key=lambda name: (name == LOCKED, name))
    return {name: _GREY if name == LOCKED else SERIES[i % len(SERIES)] for i, name in enumerate(names)}


def _bands(name: str, parts: Mapping[str, Series], containers: int) -> list[tuple[str, Series, float]]:
    """(name, series, opacity) of what a container's memory is shown as: its kinds, or one band where there are many or it is the dummy."""
    if name == LOCKED or containers > KINDS_SHOWN + 1:
        whole = [(t, sum(parts[kind][i][1] for kind in KINDS)) for i, (t, _) in enumerate(parts[SHARED])]
        return [("withheld (locked)" if name == LOCKED else name, whole, 0.75)]
    return [(f"{name}: {kind}", parts[kind], _OPACITY[kind]) for kind in KINDS]


def _lines(
    words: str, lines: Mapping[str, Series], series: MemorySeries, unit: str, divisor: float, colours: Mapping[str, str], *, last: bool
) -> Panel:
    """A low panel of lines; the ``last`` one of a trial has the words of the time axis."""
    names = [name for name in sorted(lines) if name != LOCKED]
    rows = [{"x": t, "y": value / divisor, "line": name} for name in names for t, value in thinned(lines[name], POINTS)]
    top = chart_style.nice_ceiling(max((float(str(row["y"])) for row in rows), default=0.0) or 1.0)
    x = time_axis(min((t for t, _ in series.unallocated), default=0.0), series.borders[-1][2], labels=last)
    y = chart_style.y_axis([0, top], title=unit, axis=alt.Axis(tickCount=3))
    scale = alt.Scale(domain=names, range=[colours.get(name, SERIES[i % len(SERIES)]) for i, name in enumerate(names)])
    legend = alt.Legend(title=None, symbolType="stroke", labelLimit=220)
    drawn = alt.Chart(data(rows)).mark_line(strokeWidth=1.8, clip=True)
    layers = [
        drawn.encode(x=x, y=y, color=alt.Color("line:N", scale=scale, legend=legend)),
        *phase_borders(series.borders, x, y, top, words=False),
    ]
    return alt.layer(*layers, width=_width(), height=70, title=chart_style.panel_title(words, **PANEL_TITLE))


def phase_borders(borders: Sequence[tuple[str, float, float]], x: alt.X, y: alt.Y, top: float, *, words: bool) -> list[alt.Chart]:
    """A dashed line where each phase's window begins, with its name if asked."""
    rows = [{"x": begin, "y": top, "text": name} for name, begin, _ in borders]
    lines = alt.Chart(data(rows)).mark_rule(color="#59636e", strokeDash=[4, 3]).encode(x=x)
    named = alt.Chart(data(rows)).encode(x=x, y=y, text=alt.Text("text:N"))
    shown = words and len(rows) <= 12
    return [lines, *(chart_style.haloed(named, align="left", baseline="top", dx=3, dy=3, fontSize=11, color=MUTED) if shown else [])]


def time_axis(first: float, last: float, *, labels: bool) -> alt.X:
    """Return the time axis of a panel. Only the lowest panel of a trial has labels."""
    axis = alt.Axis(title="seconds from the first phase on" if labels else None, labels=labels, ticks=labels, grid=False, format="d")
    return chart_style.x_axis([math.floor(first), last], axis=axis)


def _mixed(colour: str, opacity: float) -> str:
    """A colour mixed with white."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - channel) * opacity):02x}" for channel in channels)


def trial_name(result: TrialResult) -> str:
    return clean(point_text(result.trial.point)) + (" (tainted)" if result.tainted else "")


def _width() -> int:
    return chart_style.plot_width() - 190  # the legend stands beside it


def _accounted(trials: Iterable[tuple[TrialResult, MemorySeries]]) -> str:
    """What the accounting says of these trials, for the caption."""
    shown = [result for result, _ in trials]
    accounts: Sequence[float] = [abs(phase.memory.worst) for result in shown for phase in result.phases if phase.memory is not None]
    said = [f"Containers and unallocated add up to the budget within {share(max(accounts), 2)} in every second."] if accounts else []
    if any(container.runtime == "vm" for result in shown for _, container in result.trial.deployment.containers()):
        said.append("Of a guest it is its hypervisor's memory; what is in that, the figure of guests' memory shows.")
    return " ".join(said)
