"""CPU of all containers over the time of a trial, second by second, for each scheme: 100 % is one core, as E4 draws it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import altair as alt

from pgherd.model.result import TrialResult
from pgherd.report import chart_style
from pgherd.report.chart_style import FAINT, HEIGHT, data
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import finite
from pgherd.store.samples import read_samples
from pgherd.studies.consolidation.figures import COLOURS, named, stacked

_TALL = round(HEIGHT * 0.7)
Series = list[tuple[float, float]]
"""(seconds since the first measured period began, per cent of a core)."""


@register("cpu_over_time")
def cpu_over_time(inputs: FigureInputs) -> Figure:
    """One line per scheme, undercommitted; a panel for each size of buffers."""
    chosen = trials(inputs.results)
    if not chosen:
        raise FigureUnavailable("no undercommitted trial finished")
    series = {point: found for point, result in chosen.items() if (found := _series(inputs.directory, result))}
    if not series:
        raise FigureUnavailable("the containers' CPU was not seen")
    top = chart_style.nice_ceiling(max(value for found in series.values() for _, value in found) * 1.02)
    made = [
        _panel({scheme: found for (size, scheme), found in series.items() if size == percent}, _borders(chosen), percent, top)
        for percent in sorted({size for size, _ in series})
    ]
    (percent, scheme), most = max(series.items(), key=lambda item: sum(value for _, value in item[1]) / len(item[1]))
    mean = sum(value for _, value in most) / len(most)
    sentence = f"{named(scheme)} used the most CPU, {mean:.0f} % of a core on average ({percent} % buffers)"
    subtitle = "Undercommitted; one trial of each scheme. 100 % is one core; clients outside the containers are not in it."
    caption = "Dashed: all databases take up the next period's load; the ramp-up after it is drawn, but not counted."
    return Figure(sentence, stacked(made, sentence, subtitle), (SAMPLES,), caption)


def trials(results: Sequence[TrialResult]) -> dict[tuple[int, int], TrialResult]:
    """(buffers in per cent, scheme) → the first undercommitted trial that finished, clean ones before others."""
    found: dict[tuple[int, int], TrialResult] = {}
    for result in sorted(results, key=lambda one: (one.tainted, one.started)):
        point = result.trial.point
        if result.phases and finite(point.get("rate")) == 0:
            found.setdefault((int(point["buffers"]), int(point["scheme"])), result)
    return dict(sorted(found.items()))


def _series(directory: Path | None, result: TrialResult) -> Series:
    """From the samples where they are there, else the mean of each period."""
    counters: dict[str, Series] = {}
    zero, end = result.phases[0].start, result.phases[-1].end
    if directory is not None:
        for t, entity, value in read_samples(directory / "trials" / result.id, "cgroup_cpu", "cpu.usage"):
            if entity.startswith("container:") and zero <= t <= end:
                counters.setdefault(entity, []).append((t - zero, value))
    found = rates(counters)
    return found if len(found) > 1 else _means(result)


def rates(counters: Mapping[str, Series]) -> Series:
    """Counters of CPU seconds, by container, as per cent of a core used by all together in each second."""
    used: dict[int, float] = {}
    for readings in counters.values():
        own: dict[int, list[float]] = {}  # a late reading and the next one may have their middles in one second
        for (before, low), (after, high) in pairwise(readings):
            if after > before:
                second = round((before + after) / 2 - 0.5)
                own.setdefault(second, []).append(100 * (high - low) / (after - before))
        for second, values in own.items():
            used[second] = used.get(second, 0.0) + statistics.fmean(values)
    return [(second + 0.5, value) for second, value in sorted(used.items())]


def _means(result: TrialResult) -> Series:
    found: Series = []
    for phase in result.phases:
        cores = [
            metrics["cpu.usage"] for entity, metrics in phase.metrics.items() if entity.startswith("container:") and "cpu.usage" in metrics
        ]
        if cores:
            found += [(at - result.phases[0].start, 100 * sum(cores)) for at in (phase.start, phase.end)]
    return found


def _borders(chosen: Mapping[tuple[int, int], TrialResult]) -> list[float]:
    """When periods end, in seconds since the first began: planned, the same for all."""
    phases = next(iter(chosen.values())).trial.phases
    ends, at = [], 0.0
    for phase in phases[:-1]:
        at += phase.seconds
        ends.append(at)
        at += phases[1].ramp
    return ends


def _panel(series: Mapping[int, Series], borders: Sequence[float], percent: int, top: float) -> alt.TopLevelMixin:
    end = max(found[-1][0] for found in series.values())
    x = chart_style.x_axis([0, end], title="time, s")
    y = chart_style.y_axis([0, top], title=f"CPU, % of a core; {percent} % buffers")
    layers = []
    if borders:
        layers.append(alt.Chart(data([{"x": at} for at in borders])).mark_rule(color=FAINT, strokeDash=[4, 3], strokeWidth=1.5).encode(x=x))
    layers += chart_style.lines([(found, COLOURS[scheme], 1.8, [1, 0]) for scheme, found in series.items()], x, y)
    labels = [(end, found[-1][1], named(scheme), COLOURS[scheme]) for scheme, found in series.items()]
    layers += chart_style.end_labels(labels, x, y, (0, top), height=_TALL)
    chart: alt.TopLevelMixin = alt.layer(*layers, width=chart_style.plot_width([text for *_, text, _ in labels]), height=_TALL)
    return chart
