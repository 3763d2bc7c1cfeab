"""The figures of the I/O view, for every study of databases whose devices were seen: what each device did by second, with
the checkpoints; and, where requests were traced, their sizes, how long they took and how soon they followed each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from pgherd.analysis import histogram
from pgherd.model.io_view import DeviceView, Pattern
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, DASHES, FAINT, GREEN, ORANGE, PURPLE, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import clean
from pgherd.study.device_io import MB, point_name, role_words, series_numbers

POINTS_SHOWN = 2
"""Points of which a trial is drawn: the first and the last where there are more."""
PANELS_SHOWN = 8
"""Devices of one trial that are drawn, at most: many guests have many."""
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE)
WAITING_SHOWN = 4
"""Devices whose queue and response times are drawn, at most."""
_HEIGHT = 110
_LOW = 75
"""Height of a panel of queues or response times, px."""
_KB = 1024
LEAST = 100
"""Traced requests below which nothing is drawn of them."""
_Labelled = tuple[str, list[tuple[float, float]], list[int]]
"""A line's label, its points and its dashes."""
_SOURCES = (TRIALS, "trials/*/block-trace.txt.gz")


@register("io")
def io(inputs: FigureInputs) -> Figure:
    """Transactions and bytes by second of one trial of a point, with its checkpoints as bands."""
    shown = _shown(inputs)
    if not shown:
        raise FigureUnavailable("")
    names = _names([view for _, phase in shown for view in _drawn(phase)])
    labels = [_label(names[view.number], kind) for _, phase in shown for view in _drawn(phase) for kind, _, _ in _kinds(view)]
    width = chart_style.plot_width(labels or [""])
    panels: list[alt.Chart | alt.LayerChart | alt.FacetChart] = []
    for result, phase in shown:
        panels += _panels(result, phase, names, width)
    sentence = _sentence(shown)
    qemu = ", in a guest the guest's own, and below that QEMU's own count," if any("(QEMU)" in name for name in names.values()) else ""
    which = f"Trial {shown[0][0].id}." if len(shown) == 1 else "One trial of each point, a clean one where there is one."
    subtitle = (
        f"Bytes are those of /proc/diskstats{qemu} between two samples, about a second apart; flushes are not among the writes. Each "
        f"device has a scale of its own{_hidden(shown)}. Grey bands are checkpoints. {which}"
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=12)
    return Figure(sentence, chart, (TRIALS,), "The table 'io' has every device's means over all trials.")


def _shown(inputs: FigureInputs) -> list[tuple[TrialResult, PhaseResult]]:
    """A trial of each point that is drawn, with its first phase that has a view of a device with a role."""
    points: dict[str, tuple[TrialResult, PhaseResult]] = {}
    for result in sorted(inputs.results, key=lambda one: (one.tainted, one.started)):
        phase = next((p for p in result.phases if p.io is not None and any(view.series.at for view in _devices(p))), None)
        if phase is not None and result.error is None and not point_name(result).endswith(" again"):
            points.setdefault(point_name(result), (result, phase))
    found = sorted(points.values(), key=lambda one: [str(value).zfill(9) for value in one[0].trial.point.values()])
    return found if len(found) <= POINTS_SHOWN else [found[0], found[-1]]


def _devices(phase: PhaseResult) -> list[DeviceView]:
    """Those that hold something; where none does, all."""
    every = phase.io.devices if phase.io is not None else []
    return [view for view in every if view.roles] or every


def _drawn(phase: PhaseResult) -> list[DeviceView]:
    """The first of those; below each that is a guest's, the same drive as its hypervisor sees it."""
    every = {view.number: view for view in (phase.io.devices if phase.io is not None else [])}
    found: list[DeviceView] = []
    for view in _devices(phase):
        found += [view, *(every[number] for number in view.below if number.startswith("guest-drive:") and number in every)]
    return found[:PANELS_SHOWN]


def _names(views: Sequence[DeviceView]) -> dict[str, str]:
    """Number of a device → its name with its roles."""
    by_number = {view.number: view for view in views}
    return {number: f"{clean(view.name)}: {role_words(view, by_number)}" for number, view in by_number.items()}


def _kinds(view: DeviceView) -> list[tuple[str, list[float], list[int]]]:
    """What is drawn of a device, its bytes per second and its dashes: what was written, and what was read where that is not next to
    nothing beside it."""
    written, read = view.series.write_bytes, view.series.read_bytes
    if not written:
        return []
    few = max(read) * 20 < max(written)
    return [("written", written, DASHES[0]), *([] if few else [("read", read, DASHES[1])])]


def _label(name: str, kind: str) -> str:
    """What stands at the end of a line of bytes."""
    return f"{name}, read" if kind == "read" else name


def _panels(
    result: TrialResult, phase: PhaseResult, names: dict[str, str], width: int
) -> list[alt.Chart | alt.LayerChart | alt.FacetChart]:
    """Transactions above, bytes of each device below."""
    x = chart_style.x_axis([0, phase.seconds], title="second of the window")
    bands = _checkpoint_bands(phase)
    made: list[alt.Chart | alt.LayerChart | alt.FacetChart] = []
    rows = [{"x": i + 0.5, "y": sum(t.per_second[i] for t in phase.targets)} for i in range(_length(phase))]
    head = chart_style.panel_title(f"{point_name(result)}, trial {result.id}", offset=4)
    if rows:
        title = "I/Os per second" if any(target.driver == "fio" for target in phase.targets) else "tps"
        y = alt.Y("y:Q", title=title, scale=alt.Scale(domainMin=0))
        line = alt.Chart(data(rows)).mark_line(color=chart_style.INK, strokeWidth=1.5).encode(x=x, y=y)
        made.append(alt.layer(*_bands(bands, x), line, width=width, height=70, title=head))
    drawn = _drawn(phase)
    most = max((max(view.series.write_bytes + view.series.read_bytes, default=0.0) for view in drawn), default=0.0)
    for place, view in enumerate(drawn):
        colour = _COLOURS[place % len(_COLOURS)]
        marks: list[chart_style.Line] = []
        labels: list[tuple[float, float, str, str]] = []
        top = 0.0
        for kind, values, dash in _kinds(view):
            points = [(at - length / 2, value / MB) for at, length, value in zip(view.series.at, view.series.seconds, values, strict=True)]
            marks.append((points, colour, 1.8, dash))
            top = max(top, *(value for _, value in points))
            labels.append((phase.seconds, points[-1][1], _label(names[view.number], kind), colour))
        if not marks:
            continue
        top = chart_style.nice_ceiling(top)
        y = chart_style.y_axis([0, top], title="MB/s", axis=alt.Axis(tickCount=4))
        lines = [*chart_style.lines(marks, x, y), *chart_style.end_labels(labels, x, y, (0, top), height=_HEIGHT)]
        height = _HEIGHT if top * MB * 3 > most else round(_HEIGHT * 0.7)
        made.append(alt.layer(*_bands(bands, x), *lines, width=width, height=height, **({} if made else {"title": head})))
    return made


def _checkpoint_bands(phase: PhaseResult) -> list[dict[str, float]]:
    """From where to where each checkpoint lies in the window."""
    return [
        {"x": max(0.0, one.start), "x2": min(phase.seconds, phase.seconds if one.end is None else one.end)}
        for one in (phase.io.checkpoints if phase.io is not None else [])
    ]


def _bands(bands: Sequence[dict[str, float]], x: alt.X) -> list[alt.Chart]:
    if not bands:
        return []
    return [alt.Chart(data(bands)).mark_rect(color=FAINT, opacity=0.7).encode(x=x, x2=alt.X2("x2:Q"))]


def _hidden(shown: Sequence[tuple[TrialResult, PhaseResult]]) -> str:
    """That there are more devices than are drawn, if so."""
    many = max(len(_devices(phase)) for _, phase in shown)
    return f"; {many} devices hold data, and not all are drawn" if many > PANELS_SHOWN else ""


def _length(phase: PhaseResult) -> int:
    return min((len(target.per_second) for target in phase.targets), default=0)


def _sentence(shown: Sequence[tuple[TrialResult, PhaseResult]]) -> str:
    """What the last of the trials shows."""
    result, phase = shown[-1]
    parts = []
    for view in _devices(phase):
        found = series_numbers(view.series)
        rate, read, peak = found.get("write_rate"), found.get("read_rate"), found.get("peak_to_mean")
        who = f"{clean(view.name)} ({role_words(view, {})})"
        if rate is not None and read is not None and read > rate:
            parts.append(f"{who} gives {three_digits(read)} MB/s of reads")
        elif rate is not None:
            text = f"{who} takes {three_digits(rate)} MB/s of writes"
            parts.append(text + (f", {peak:.1f} × that at its peak" if peak is not None else ""))
    if not parts:
        return "What the devices did by second"
    return (f"{clean(point_name(result))}: " if len(shown) > 1 else "") + "; ".join(parts)


def three_digits(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


@register("io_waiting")
def io_waiting(inputs: FigureInputs) -> Figure:
    """How deep each device's queue was and how long requests took, by second of one trial of the last point, with its checkpoints."""
    shown = _shown(inputs)
    if not shown:
        raise FigureUnavailable("")
    result, phase = shown[-1]
    drawn = _drawn(phase)[:WAITING_SHOWN]
    names = _names(drawn)
    kept = [(place, title, lines) for place, view in enumerate(drawn) for title, lines in _waiting(view, names[view.number])]
    width = chart_style.plot_width([label for *_, lines in kept for label, _, _ in lines] or [""])
    x = chart_style.x_axis([0, phase.seconds], title="second of the window")
    panels: list[alt.Chart | alt.LayerChart | alt.FacetChart] = []
    for place, title, lines in kept:
        colour = _COLOURS[place % len(_COLOURS)]
        top = chart_style.nice_ceiling(max(value for _, points, _ in lines for _, value in points))
        y = chart_style.y_axis([0, top], title=title, axis=alt.Axis(tickCount=3))
        ends = [(phase.seconds, points[-1][1], label, colour) for label, points, _ in lines]
        layers = [
            *chart_style.lines([(points, colour, 1.8, dash) for _, points, dash in lines], x, y),
            *chart_style.end_labels(ends, x, y, (0, top), height=_LOW),
        ]
        panels.append(alt.layer(*_bands(_checkpoint_bands(phase), x), *layers, width=width, height=_LOW))
    said = [sentence for view in drawn for sentence in _waits(view, names[view.number])]
    if not panels:
        raise FigureUnavailable("")
    sentence = (f"{clean(point_name(result))}: " if len(shown) > 1 else "") + ("; ".join(said) or "how long the devices' queues were")
    subtitle = (
        "Means over the intervals between two samples, about a second each: requests in flight, and time from issue to completion (flushes "
        f"are not among the writes). Each panel has a scale of its own. Grey bands are checkpoints. Trial {result.id}."
    )
    return Figure(sentence, chart_style.panels(panels, sentence, subtitle, spacing=10), (TRIALS,))


def _waiting(view: DeviceView, name: str) -> list[tuple[str, list[_Labelled]]]:
    """The panels of a device, each with what its axis is called: its queue, and how long requests took."""
    series = view.series
    panels = (
        ("in flight", [(name, series.queue, DASHES[0])]),
        ("ms", [(f"{name}, a write", series.write_await, DASHES[0]), (f"{name}, a read", series.read_await, DASHES[1])]),
    )
    found = [
        (title, [(label, points, dash) for label, values, dash in lines if len(points := _points(view, values)) > 1])
        for title, lines in panels
    ]
    return [(title, lines) for title, lines in found if lines]


def _points(view: DeviceView, values: Sequence[float | None]) -> list[tuple[float, float]]:
    """A series as points in the middle of its intervals; those in which nothing was told are left out."""
    rows = zip(view.series.at, view.series.seconds, values, strict=True)
    return [(at - length / 2, value) for at, length, value in rows if value is not None]


def _waits(view: DeviceView, name: str) -> list[str]:
    """What a device's queue and its writes' response time come to, in words."""
    found = series_numbers(view.series)
    queue, wait = found.get("queue"), found.get("write_await")
    deepest = max((value for value in view.series.queue if value is not None), default=None)
    parts = [] if queue is None or deepest is None else [f"a queue of {three_digits(queue)}, {three_digits(deepest)} at most"]
    parts += [] if wait is None else [f"{three_digits(wait)} ms a write"]
    return [f"{name}: {', '.join(parts)}"] if parts else []


@register("io_sizes")
def io_sizes(inputs: FigureInputs) -> Figure:
    """The share of each request size, by device and direction, of all traced trials of the last point."""
    traced = _traced(inputs)
    rows: list[dict[str, object]] = []
    for (name, kind), views in traced.items():
        counts: dict[int, int] = {}
        for view in views:
            for size, count in (view.trace or {})[kind].sizes.items():  # type: ignore[index]
                counts[size] = counts.get(size, 0) + count
        total = sum(counts.values())
        for size, count in sorted(counts.items()) if total >= LEAST else ():
            if count / total >= 0.005 and size:
                row = {"size": f"{size / _KB:g}", "order": size, "share": 100 * count / total, "panel": f"{name}, {kind}s", "count": count}
                rows.append(row)
    if not rows:
        raise FigureUnavailable("")
    order = [f"{size / _KB:g}" for size in sorted({int(str(row["order"])) for row in rows})]
    most = max(rows, key=lambda row: int(str(row["count"])))
    sentence = f"{most['panel']}: {float(str(most['share'])):.0f} % of the requests are of {most['size']} kB"
    x = alt.X("size:O", scale=alt.Scale(domain=order), title="size of a request, kB", axis=alt.Axis(labelAngle=0))
    y = alt.Y("share:Q", title="% of requests", scale=alt.Scale(domain=[0, 100]))
    panels = [
        alt.Chart(data([row for row in rows if row["panel"] == panel]))
        .mark_bar(color=_COLOURS[place % len(_COLOURS)])
        .encode(x=x, y=y)
        .properties(width=chart_style.plot_width(), height=90, title=chart_style.panel_title(panel))
        for place, panel in enumerate(dict.fromkeys(str(row["panel"]) for row in rows))
    ]
    subtitle = (
        "Requests as the device got them, after merging, by block tracepoints. Sizes of less than 0.5 % of the requests are left out, and "
        f"so is what had fewer than {LEAST} of them."
    )
    return Figure(
        sentence,
        chart_style.panels(panels, sentence, subtitle, spacing=10),
        _SOURCES,
    )


@register("io_latency")
def io_latency(inputs: FigureInputs) -> Figure:
    """How long requests took: the share that was done within a time, by device and direction."""
    curves = _curves({name: [one.latency for one in found] for name, found in _patterns(inputs, ("read", "write", "flush")).items()})
    said = [f"{name}: {100 * (histogram.share_below(counts, 1000.0) or 0.0):.1f} %" for name, counts in curves.items()]
    sentence = f"Requests done in under 1 ms: {'; '.join(said[:3])}"
    subtitle = "Traced requests of the last point's trials; buckets of 3 % of their value. The dashed line is 1 ms."
    chart = _cumulative(curves, ("time from issue to completion, ms", "% of requests done"), mark=1.0)
    return Figure(sentence, chart.properties(title=chart_style.title(sentence, subtitle)), _SOURCES)


@register("io_gaps")
def io_gaps(inputs: FigureInputs) -> Figure:
    """How soon one request followed another: the share that did within a time, by device."""
    curves = _curves({name: [one.gaps for one in found] for name, found in _patterns(inputs, ("all",)).items()})
    said = [f"{name}: {(histogram.quantile(counts, 0.5) or 0.0) / 1000:.3g} ms" for name, counts in curves.items()]
    sentence = f"Half of the requests follow the one before within: {'; '.join(said[:3])}"
    subtitle = "Time from the issue of one read or write to that of the next; buckets of 3 % of their value."
    chart = _cumulative(curves, ("time since the request before, ms", "% of requests"))
    return Figure(sentence, chart.properties(title=chart_style.title(sentence, subtitle)), _SOURCES)


def _patterns(inputs: FigureInputs, kinds: Sequence[str]) -> dict[str, list[Pattern]]:
    """Device and direction in words → what was traced of it."""
    plural = {"read": ", reads", "write": ", writes", "flush": ", flushes", "all": ""}
    return {
        name + plural[kind]: [view.trace[kind] for view in views if view.trace is not None]  # type: ignore[index]
        for (name, kind), views in _traced(inputs, kinds).items()
    }


def _curves(histograms: Mapping[str, Sequence[Mapping[int, int]]]) -> dict[str, dict[int, int]]:
    """Each line's histogram of microseconds, of those with requests enough; raises NotDrawn where there is none."""
    found = {name: histogram.merged(parts) for name, parts in histograms.items()}
    enough = {name: counts for name, counts in found.items() if sum(counts.values()) >= LEAST}
    if not enough:
        raise FigureUnavailable("")
    return enough


def _cumulative(
    curves: Mapping[str, Mapping[int, int]], titles: tuple[str, str], mark: float | None = None
) -> alt.LayerChart | alt.FacetChart:
    """The share of each line's values up to a time in ms, on a logarithmic axis; ``mark``: where a dashed line stands."""
    rows: list[dict[str, object]] = []
    for name, counts in curves.items():
        total, seen = sum(counts.values()), 0
        for index, count in sorted(counts.items()):
            seen += count
            rows.append({"x": max(histogram.bounds(index)[1], 1) / 1000, "y": 100 * seen / total, "line": name})
    names = list(curves)
    x = alt.X("x:Q", title=titles[0], scale=alt.Scale(type="log"))
    y = alt.Y("y:Q", title=titles[1], scale=alt.Scale(domain=[0, 100]))
    colour = alt.Color(
        "line:N",
        scale=alt.Scale(domain=names, range=[chart_style.SERIES[i % len(chart_style.SERIES)] for i in range(len(names))]),
        legend=alt.Legend(title=None, orient="bottom", columns=2, labelLimit=320),
    )
    layers = [alt.Chart(data(rows)).mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, color=colour)]
    if mark is not None:
        layers.insert(0, chart_style.reference_line(x, mark))
    return alt.layer(*layers, width=chart_style.plot_width(), height=240)


def _traced(inputs: FigureInputs, kinds: Sequence[str] = ("read", "write")) -> dict[tuple[str, str], list[DeviceView]]:
    """(device with roles, direction) → its views in all finished trials of the last point, where it was traced."""
    shown = _shown(inputs)
    if not shown:
        return {}
    last = point_name(shown[-1][0])
    views = [
        view
        for result in inputs.results
        if result.error is None and point_name(result) == last
        for phase in result.phases
        for view in _devices(phase)
        if view.trace
    ]
    names = _names(views)
    found: dict[tuple[str, str], list[DeviceView]] = {}
    for view in views:
        for kind in kinds:
            if view.trace is not None and kind in view.trace:
                found.setdefault((names[view.number], kind), []).append(view)
    return found
