"""Figures of device I/O, for every study of databases with measured devices.

They show I/O by second with checkpoints, and with traced requests also their sizes, response times and gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import altair as alt

from pgherd.analysis import histogram
from pgherd.model.device_io import DeviceView, Pattern
from pgherd.model.result import PhaseResult, TrialResult, clean_or_all
from pgherd.model.text import clean
from pgherd.model.units import MB_PER_SECOND
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, DASHES, FAINT, GREEN, ORANGE, PURPLE, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.study.comparison.options import AA_SUFFIX
from pgherd.study.device_io import point_name, role_text, series_numbers

POINTS_SHOWN = 2
"""Maximum number of drawn points: the first and the last."""
PANELS_SHOWN = 8
"""Maximum number of drawn devices of one trial. Many guests have many devices."""
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE)
WAITING_SHOWN = 4
"""Maximum number of devices with queue and response times."""
_HEIGHT = 110
_LOW = 75
"""Height of a panel of queues or response times, in px."""
_KB = 1024
MIN_REQUESTS = 100
"""Minimum number of traced requests for a line."""
_Labelled = tuple[str, list[tuple[float, float]], list[int]]
"""A line's label, its points and its dashes."""
_SOURCES = (TRIALS, "trials/*/block-trace.txt.gz")

_Drawn = TypeVar("_Drawn", tuple[TrialResult, PhaseResult], tuple[TrialResult, PhaseResult, str])


@register("io")
def io(inputs: FigureInputs) -> Figure:
    """Transactions and bytes by second of one trial per point, with checkpoints as bands."""
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
    qemu = ", in a guest those of the guest, followed by QEMU's counters," if any("(QEMU)" in name for name in names.values()) else ""
    which = f"{_trial(shown[0][0]).capitalize()}." if len(shown) == 1 else "One trial of each point, preferably a clean one."
    subtitle = (
        f"Bytes are those of /proc/diskstats{qemu} between two samples, about a second apart. Writes do not include flushes. Each "
        f"device has a separate scale{_hidden(shown)}. Grey bands are checkpoints. {which}"
    )
    chart = chart_style.panels(panels, sentence, subtitle, spacing=12)
    return Figure(sentence, chart, (TRIALS,), "Means of every device over all trials are in table 'io'.")


def _shown(inputs: FigureInputs) -> list[tuple[TrialResult, PhaseResult]]:
    """Return one trial per drawn point, with its first phase that measured a device with a role."""
    points: dict[str, tuple[TrialResult, PhaseResult]] = {}
    for result in sorted(inputs.results, key=lambda result: (result.tainted, result.started)):
        phase = next((p for p in result.phases if p.io is not None and any(view.series.at for view in _devices(p))), None)
        if phase is not None and result.error is None and not point_name(result).endswith(AA_SUFFIX):
            points.setdefault(point_name(result), (result, phase))
    return _ends(list(points.values()))


def _ends(trials: Sequence[_Drawn]) -> list[_Drawn]:
    """Return tuples that start with a trial in the order of their points: all, or the first and the last of too many."""
    ordered = sorted(trials, key=lambda trial: [str(value).zfill(9) for value in trial[0].trial.point.values()])
    return ordered if len(ordered) <= POINTS_SHOWN else [ordered[0], ordered[-1]]


def _trial(result: TrialResult) -> str:
    return f"trial {result.id}{' (tainted)' if result.tainted else ''}"


def _devices(phase: PhaseResult) -> list[DeviceView]:
    """Return the devices with roles, or all devices without any role."""
    views = phase.io.devices if phase.io is not None else []
    return [view for view in views if view.roles] or views


def _drawn(phase: PhaseResult) -> list[DeviceView]:
    """Return the drawn devices. A guest's device is followed by its hypervisor's view of the same drive."""
    by_number = {view.number: view for view in (phase.io.devices if phase.io is not None else [])}
    drawn: list[DeviceView] = []
    for view in _devices(phase):
        drawn += [view, *(by_number[number] for number in view.below if number.startswith("guest-drive:") and number in by_number)]
    return drawn[:PANELS_SHOWN]


def _names(views: Sequence[DeviceView]) -> dict[str, str]:
    """Return number of a device → its name with its roles."""
    by_number = {view.number: view for view in views}
    return {number: f"{clean(view.name)}: {role_text(view, by_number)}" for number, view in by_number.items()}


def _kinds(view: DeviceView) -> list[tuple[str, list[float], list[int]]]:
    """Return (direction, bytes per second, dashes) of a device: writes, and reads unless they are negligible."""
    written, read = view.series.write_bytes, view.series.read_bytes
    if not written:
        return []
    negligible = max(read) * 20 < max(written)
    return [("written", written, DASHES[0]), *([] if negligible else [("read", read, DASHES[1])])]


def _label(name: str, kind: str) -> str:
    """Return the label at the end of a line of bytes."""
    return f"{name}, read" if kind == "read" else name


def _panels(
    result: TrialResult, phase: PhaseResult, names: dict[str, str], width: int
) -> list[alt.Chart | alt.LayerChart | alt.FacetChart]:
    """Return panels of transactions, and of bytes of each device below."""
    x = chart_style.x_axis([0, phase.seconds], title="second of the window")
    bands = _checkpoint_bands(phase)
    panels: list[alt.Chart | alt.LayerChart | alt.FacetChart] = []
    rows = [{"x": i + 0.5, "y": sum(t.per_second[i] for t in phase.targets)} for i in range(_length(phase))]
    head = chart_style.panel_title(f"{point_name(result)}, {_trial(result)}", offset=4)
    if rows:
        title = "I/Os per second" if any(target.driver == "fio" for target in phase.targets) else "tps"
        y = alt.Y("y:Q", title=title, scale=alt.Scale(domainMin=0))
        line = alt.Chart(data(rows)).mark_line(color=chart_style.INK, strokeWidth=1.5).encode(x=x, y=y)
        panels.append(alt.layer(*_bands(bands, x), line, width=width, height=70, title=head))
    drawn = _drawn(phase)
    most = max((max(view.series.write_bytes + view.series.read_bytes, default=0.0) for view in drawn), default=0.0)
    for index, view in enumerate(drawn):
        colour = _COLOURS[index % len(_COLOURS)]
        marks: list[chart_style.Line] = []
        labels: list[tuple[float, float, str, str]] = []
        top = 0.0
        for kind, values, dash in _kinds(view):
            points = [
                (at - length / 2, value / MB_PER_SECOND)
                for at, length, value in zip(view.series.at, view.series.seconds, values, strict=True)
            ]
            marks.append((points, colour, 1.8, dash))
            top = max(top, *(value for _, value in points))
            labels.append((phase.seconds, points[-1][1], _label(names[view.number], kind), colour))
        if not marks:
            continue
        top = chart_style.nice_ceiling(top)
        y = chart_style.y_axis([0, top], title="MB/s", axis=alt.Axis(tickCount=4))
        lines = [*chart_style.lines(marks, x, y), *chart_style.end_labels(labels, x, y, (0, top), height=_HEIGHT)]
        height = _HEIGHT if top * MB_PER_SECOND * 3 > most else round(_HEIGHT * 0.7)
        panels.append(alt.layer(*_bands(bands, x), *lines, width=width, height=height, **({} if panels else {"title": head})))
    return panels


def _checkpoint_bands(phase: PhaseResult) -> list[dict[str, float]]:
    """Return start and end of each checkpoint within the window."""
    return [
        {"x": max(0.0, checkpoint.start), "x2": min(phase.seconds, phase.seconds if checkpoint.end is None else checkpoint.end)}
        for checkpoint in (phase.io.checkpoints if phase.io is not None else [])
    ]


def _bands(bands: Sequence[dict[str, float]], x: alt.X) -> list[alt.Chart]:
    if not bands:
        return []
    return [alt.Chart(data(bands)).mark_rect(color=FAINT, opacity=0.7).encode(x=x, x2=alt.X2("x2:Q"))]


def _hidden(shown: Sequence[tuple[TrialResult, PhaseResult]]) -> str:
    """Return a note about devices that are not drawn, if any."""
    count = max(len(_devices(phase)) for _, phase in shown)
    return f"; not all of {count} devices with data are drawn" if count > PANELS_SHOWN else ""


def _length(phase: PhaseResult) -> int:
    return min((len(target.per_second) for target in phase.targets), default=0)


def _sentence(shown: Sequence[tuple[TrialResult, PhaseResult]]) -> str:
    """Return the finding of the last trial."""
    result, phase = shown[-1]
    parts = []
    for view in _devices(phase):
        numbers = series_numbers(view.series)
        rate, read, peak = numbers.get("write_rate"), numbers.get("read_rate"), numbers.get("peak_to_mean")
        device = f"{clean(view.name)} ({role_text(view, {})})"
        if rate is not None and read is not None and read > rate:
            parts.append(f"{device} reads {three_digits(read)} MB/s")
        elif rate is not None:
            text = f"{device} writes {three_digits(rate)} MB/s"
            parts.append(text + (f", {peak:.1f} × that at the peak" if peak is not None else ""))
    if not parts:
        return "Device I/O by second"
    return (f"{clean(point_name(result))}: " if len(shown) > 1 else "") + "; ".join(parts)


def three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


WAIT_COLOURS = {
    "cpu": GREEN, "lock": VERMILLION, "lwlock": ORANGE, "io": BLUE, "ipc": PURPLE, "client": "#b8c0c8", "other": "#59636e"
}  # fmt: skip
"""Class of wait events → colour, in the order of the stack."""


@register("waits")
def waits(inputs: FigureInputs) -> Figure:
    """Active sessions of an external server by second, stacked by class of wait event, of one trial per point."""
    points: dict[str, tuple[TrialResult, PhaseResult, str]] = {}
    for result in sorted(inputs.results, key=lambda result: (result.tainted, result.started)):
        for phase in result.phases:
            if phase.waits and result.error is None:
                busiest = max(sorted(phase.waits), key=lambda server: sum(map(sum, phase.waits[server].values())))
                points.setdefault(point_name(result), (result, phase, busiest))
    shown = _ends(list(points.values()))
    if not shown:
        raise FigureUnavailable("")
    charts = []
    for result, phase, server in shown:
        series = phase.waits[server]
        rows = [
            {"x": second + 0.5, "y": value, "class": name, "order": order}
            for order, name in enumerate(WAIT_COLOURS)
            for second, value in enumerate(series[name])
        ]
        present = [name for name in WAIT_COLOURS if any(series[name])] or ["cpu"]
        colour = alt.Color(
            "class:N",
            title="waiting for",
            scale=alt.Scale(domain=present, range=[WAIT_COLOURS[name] for name in present]),
        )
        x = chart_style.x_axis([0, phase.seconds], title="second of the window")
        y = alt.Y("y:Q", stack="zero", title="active sessions")
        head = chart_style.panel_title(f"{point_name(result)}, {_trial(result)}, server {server}", offset=4)
        kept = [row for row in rows if row["class"] in present]
        area = alt.Chart(data(kept)).mark_area().encode(x=x, y=y, color=colour, order="order:Q")
        charts.append(area.properties(width=chart_style.plot_width(["waiting for lwlock"]), height=_HEIGHT, title=head))
    result, phase, server = shown[-1]
    totals = {name: sum(values) for name, values in phase.waits[server].items()}
    largest, total = max(totals, key=lambda name: totals[name]), sum(totals.values())
    what = "are on a CPU or ready to run" if largest == "cpu" else f"wait for {largest}"
    sentence = f"{100 * totals[largest] / total:.0f} % of the active sessions {what}" if total else "no session was active in a sample"
    where = [clean(point_name(result))] * (len(shown) > 1) + [f"server {server}"] * (len(phase.waits) > 1)
    sentence = f"{', '.join(where)}: {sentence}" if where else sentence[0].upper() + sentence[1:]
    subtitle = (
        "Means by second of pg_stat_activity, sampled several times a second. Idle sessions are left out, also those in a transaction. "
        "cpu: no wait event. One trial of each point."
    )
    chart = chart_style.panels(charts, sentence, subtitle, spacing=12, color="independent")
    return Figure(sentence, chart, (TRIALS,), "A class with half of the active sessions or more is the bottleneck, if no other is known.")


@register("io_waiting")
def io_waiting(inputs: FigureInputs) -> Figure:
    """Queue depth and response time of each device by second, for one trial of the last point, with checkpoints."""
    shown = _shown(inputs)
    if not shown:
        raise FigureUnavailable("")
    result, phase = shown[-1]
    drawn = _drawn(phase)[:WAITING_SHOWN]
    names = _names(drawn)
    device_panels = [(place, title, lines) for place, view in enumerate(drawn) for title, lines in _waiting(view, names[view.number])]
    width = chart_style.plot_width([label for *_, lines in device_panels for label, _, _ in lines] or [""])
    x = chart_style.x_axis([0, phase.seconds], title="second of the window")
    panels: list[alt.Chart | alt.LayerChart | alt.FacetChart] = []
    for place, title, lines in device_panels:
        colour = _COLOURS[place % len(_COLOURS)]
        top = chart_style.nice_ceiling(max(value for _, points, _ in lines for _, value in points))
        y = chart_style.y_axis([0, top], title=title, axis=alt.Axis(tickCount=3))
        ends = [(phase.seconds, points[-1][1], label, colour) for label, points, _ in lines]
        layers = [
            *chart_style.lines([(points, colour, 1.8, dash) for _, points, dash in lines], x, y),
            *chart_style.end_labels(ends, x, y, (0, top), height=_LOW),
        ]
        panels.append(alt.layer(*_bands(_checkpoint_bands(phase), x), *layers, width=width, height=_LOW))
    sentences = [sentence for view in drawn for sentence in _waits(view, names[view.number])]
    if not panels:
        raise FigureUnavailable("")
    sentence = (f"{clean(point_name(result))}: " if len(shown) > 1 else "") + ("; ".join(sentences) or "Queues of the devices")
    subtitle = (
        "Means over the intervals between two samples, about a second each: requests in flight, and time from issue to completion "
        f"(writes without flushes). Each panel has a separate scale. Grey bands are checkpoints. {_trial(result).capitalize()}."
    )
    return Figure(sentence, chart_style.panels(panels, sentence, subtitle, spacing=10), (TRIALS,))


def _waiting(view: DeviceView, name: str) -> list[tuple[str, list[_Labelled]]]:
    """Return the panels of a device with their axis titles: queue, and response times."""
    series = view.series
    panels = (
        ("in flight", [(name, series.queue, DASHES[0])]),
        ("ms", [(f"{name}, write", series.write_await, DASHES[0]), (f"{name}, read", series.read_await, DASHES[1])]),
    )
    filled = [
        (title, [(label, points, dash) for label, values, dash in lines if len(points := _points(view, values)) > 1])
        for title, lines in panels
    ]
    return [(title, lines) for title, lines in filled if lines]


def _points(view: DeviceView, values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return a series as points in the middle of its intervals, without missing values."""
    rows = zip(view.series.at, view.series.seconds, values, strict=True)
    return [(at - length / 2, value) for at, length, value in rows if value is not None]


def _waits(view: DeviceView, name: str) -> list[str]:
    """Return a device's queue and response time of writes as text."""
    numbers = series_numbers(view.series)
    queue, wait = numbers.get("queue_depth"), numbers.get("write_await")
    deepest = max((value for value in view.series.queue if value is not None), default=None)
    parts = [] if queue is None or deepest is None else [f"queue {three_digits(queue)}, at most {three_digits(deepest)}"]
    parts += [] if wait is None else [f"{three_digits(wait)} ms per write"]
    return [f"{name}: {', '.join(parts)}"] if parts else []


@register("io_sizes")
def io_sizes(inputs: FigureInputs) -> Figure:
    """Share of each request size by device and direction, for all traced trials of the last point."""
    traced = _traced(inputs)
    rows: list[dict[str, object]] = []
    for (name, kind), views in traced.items():
        counts: dict[int, int] = {}
        for view in views:
            for size, count in (view.trace or {})[kind].sizes.items():  # type: ignore[index]
                counts[size] = counts.get(size, 0) + count
        total = sum(counts.values())
        for size, count in sorted(counts.items()) if total >= MIN_REQUESTS else ():
            if count / total >= 0.005 and size:
                row = {"size": f"{size / _KB:g}", "order": size, "share": 100 * count / total, "panel": f"{name}, {kind}s", "count": count}
                rows.append(row)
    if not rows:
        raise FigureUnavailable("")
    order = [f"{size / _KB:g}" for size in sorted({int(str(row["order"])) for row in rows})]
    most = max(rows, key=lambda row: int(str(row["count"])))
    sentence = f"{most['panel']}: {float(str(most['share'])):.0f} % of the requests have {most['size']} kB"
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
        "Requests issued to the device, after merging, by block tracepoints. Sizes below 0.5 % of the requests are omitted, and lines "
        f"with fewer than {MIN_REQUESTS} requests."
    )
    return Figure(
        sentence,
        chart_style.panels(panels, sentence, subtitle, spacing=10),
        _SOURCES,
    )


@register("io_latency")
def io_latency(inputs: FigureInputs) -> Figure:
    """Share of requests completed within a time, by device and direction."""
    curves = _curves(
        {name: [pattern.latency for pattern in patterns] for name, patterns in _patterns(inputs, ("read", "write", "flush")).items()}
    )
    shares = [f"{name}: {100 * (histogram.share_below(counts, 1000.0) or 0.0):.1f} %" for name, counts in curves.items()]
    sentence = f"Requests completed in under 1 ms: {'; '.join(shares[:3])}"
    subtitle = "Traced requests of the last point's trials, in buckets of 3 %. The dashed line is 1 ms."
    chart = _cumulative(curves, ("time from issue to completion, ms", "% of requests completed"), mark=1.0)
    return Figure(sentence, chart.properties(title=chart_style.title(sentence, subtitle)), _SOURCES)


@register("io_gaps")
def io_gaps(inputs: FigureInputs) -> Figure:
    """Share of requests that follow the previous one within a time, by device."""
    curves = _curves({name: [pattern.gaps for pattern in patterns] for name, patterns in _patterns(inputs, ("all",)).items()})
    medians = [f"{name}: {(histogram.quantile(counts, 0.5) or 0.0) / 1000:.3g} ms" for name, counts in curves.items()]
    sentence = f"Half of the requests follow the previous one within: {'; '.join(medians[:3])}"
    subtitle = "Time between the issue of one read or write and the next, in buckets of 3 %."
    chart = _cumulative(curves, ("time since the previous request, ms", "% of requests"))
    return Figure(sentence, chart.properties(title=chart_style.title(sentence, subtitle)), _SOURCES)


def _patterns(inputs: FigureInputs, kinds: Sequence[str]) -> dict[str, list[Pattern]]:
    """Return label of device and direction → its traces."""
    plural = {"read": ", reads", "write": ", writes", "flush": ", flushes", "all": ""}
    return {
        name + plural[kind]: [view.trace[kind] for view in views if view.trace is not None]  # type: ignore[index]
        for (name, kind), views in _traced(inputs, kinds).items()
    }


def _curves(histograms: Mapping[str, Sequence[Mapping[int, int]]]) -> dict[str, dict[int, int]]:
    """Return each line's histogram of microseconds, of those with enough requests. Raises FigureUnavailable without any."""
    merged = {name: histogram.merged(parts) for name, parts in histograms.items()}
    enough = {name: counts for name, counts in merged.items() if sum(counts.values()) >= MIN_REQUESTS}
    if not enough:
        raise FigureUnavailable("")
    return enough


def _cumulative(
    curves: Mapping[str, Mapping[int, int]], titles: tuple[str, str], mark: float | None = None
) -> alt.LayerChart | alt.FacetChart:
    """Return the share of each line's values up to a time in ms, on a logarithmic axis. ``mark``: position of a dashed line."""
    rows: list[dict[str, object]] = []
    for name, counts in curves.items():
        total, below = sum(counts.values()), 0
        for index, count in sorted(counts.items()):
            below += count
            rows.append({"x": max(histogram.bounds(index)[1], 1) / 1000, "y": 100 * below / total, "line": name})
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
    """Return (device with roles, direction) → its traced views in the clean trials of the last point, or in all if none is clean."""
    shown = _shown(inputs)
    if not shown:
        return {}
    last = point_name(shown[-1][0])
    trials = [result for result in inputs.results if result.error is None and point_name(result) == last]
    views = [view for result in clean_or_all(trials) for phase in result.phases for view in _devices(phase) if view.trace]
    names = _names(views)
    traced: dict[tuple[str, str], list[DeviceView]] = {}
    for view in views:
        for kind in kinds:
            if view.trace is not None and kind in view.trace:
                traced.setdefault((names[view.number], kind), []).append(view)
    return traced
