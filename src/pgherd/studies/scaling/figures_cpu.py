"""CPU figures of scaling runs: CPU time per transaction of server and pgbench, and CPU use of the host."""

from __future__ import annotations

import altair as alt

from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, HEIGHT, INK, SKY, data, end_labels
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, finite, number, share
from pgherd.studies.scaling.figures import BAR_NOTE, VariantSeries, clients, clients_axis, last_clients, points, variant_series

MS_PER_US = 1e-3
"""Milliseconds per microsecond. A select-only transaction needs some tens of microseconds."""

FOREIGN_SHARE = 0.05
"""Share of the cores used by other processes above which the title reports it."""


@register("cpu_per_tx")
def cpu_per_tx(inputs: FigureInputs) -> Figure:
    """Draw CPU time per transaction of server and pgbench, stacked, or with variants the lines of the servers."""
    variants = variant_series(inputs.analysis, "scaling", "server_cpu_per_tx")
    if not variants:
        raise FigureUnavailable("CPU of server and pgbench was not measured separately; use a runtime with accounting (cgroup)")
    return _stacked(variants[0]) if len(variants) == 1 and not variants[0].name else _variant_lines(variants)


def _stacked(series: VariantSeries) -> Figure:
    bars: list[dict[str, object]] = []
    for row in series.rows:
        server, part = finite(row.get("server_cpu_per_tx")) or 0.0, finite(row.get("client_cpu_share"))
        pgbench = 0.0 if part is None or part >= 1 else server * part / (1 - part)
        at = f"{clients(row):g}"
        bars.append({"x": at, "low": 0.0, "high": server / MS_PER_US, "colour": BLUE})
        bars.append({"x": at, "low": server / MS_PER_US, "high": (server + pgbench) / MS_PER_US, "colour": SKY})
    whiskers = [
        {"x": f"{clients(row):g}", "low": point["low"], "high": point["high"]}
        for row in series.rows
        for point in points([row], "server_cpu_per_tx", MS_PER_US)
        if point["low"] is not None and point["high"] is not None
    ]
    ends = [value for bar in [*bars, *whiskers] if isinstance(value := bar["high"], float)]
    top = chart_style.nice_ceiling(max(ends) * 1.03)
    x = alt.X("x:O", sort=None, axis=alt.Axis(title="clients", labelAngle=0), scale=alt.Scale(paddingInner=0.25))
    y = alt.Y("low:Q", title="CPU time per transaction, µs", scale=alt.Scale(domain=[0, top], nice=False))
    width = chart_style.plot_width(["■ pgbench"])
    last_bars = bars[-2:]
    middles = [(float(str(bar["low"])) + float(str(bar["high"]))) / 2 for bar in last_bars]
    placed = chart_style.spread(middles, 18 * top / HEIGHT, 0, top)
    keys = [
        {"y": at, "name": name, "colour": bar["colour"]} for at, name, bar in zip(placed, ("server", "pgbench"), last_bars, strict=True)
    ]
    legend = alt.Chart(data(keys)).encode(x=alt.value(width + 6), y=chart_style.on(y, "y:Q"))
    layers = [
        alt.Chart(data(bars))
        .mark_bar(stroke="#ffffff", strokeWidth=0.5)
        .encode(x=x, y=y, y2=alt.Y2("high:Q"), color=alt.Color("colour:N", scale=None)),
        legend.mark_text(align="left", fontSize=16).encode(text=alt.value("■"), color=alt.Color("colour:N", scale=None)),
        legend.mark_text(align="left", dx=16, fontSize=12).encode(text=alt.Text("name:N")),
    ]
    if whiskers:
        layers.append(alt.Chart(data(whiskers)).mark_rule(color=INK, strokeWidth=2).encode(x=x, y=y, y2=alt.Y2("high:Q")))
    best = series.best
    part = finite(best.get("client_cpu_share"))
    cost = brief((finite(best["server_cpu_per_tx"]) or 0.0) / MS_PER_US)
    sentence = f"With {clients(best):g} client{'' if clients(best) == 1 else 's'} a transaction costs {cost} µs of server CPU"
    sentence += f"; pgbench uses {share(part)} of the CPU of both" if part is not None else ""
    subtitle = (
        "Mean over the trials. Black bars are intervals of the server's part. The increase with clients is due to contention and context "
        "switches."
    )
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (SAMPLES,))


def _variant_lines(variants: list[VariantSeries]) -> Figure:
    right = last_clients(variants) * 1.02
    parts = [(series, points(series.rows, "server_cpu_per_tx", MS_PER_US)) for series in variants]
    top = chart_style.nice_ceiling(
        max(value for _, part in parts for point in part for name in ("y", "high") if (value := point[name])) * 1.03
    )
    x, y = clients_axis(right), alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), title="server's CPU time per transaction, µs")
    layers: list[alt.Chart] = []
    for series, part in parts:
        layers += chart_style.line_with_bars(part, x, y, series.colour, series.shape)
    labels = [(right, part[-1]["y"] or 0.0, series.shown, series.colour) for series, part in parts]
    layers += end_labels(labels, x, y, (0, top))
    costs = [(series, value) for series in variants if (value := finite(series.best.get("server_cpu_per_tx"))) is not None]
    text = ", ".join(f"{brief(value / MS_PER_US)} µs for '{series.shown}'" for series, value in costs)
    sentence = f"At the peak a transaction costs {text} of server CPU" if text else "CPU time per transaction of the servers"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(
        *layers, width=width, height=HEIGHT, title=chart_style.title(sentence, f"Mean over the trials, without pgbench. {BAR_NOTE}")
    )
    return Figure(sentence, chart, (SAMPLES,))


@register("cpu")
def cpu(inputs: FigureInputs) -> Figure:
    """Draw CPU use of the host at each number of clients, stacked."""
    variants = variant_series(inputs.analysis, "cpu", "databases_cpu", "idle")
    if len(variants) > 1:
        raise FigureUnavailable  # stacks per variant add little to the table and the CPU time per transaction
    if not variants:
        raise FigureUnavailable("neither the CPU of the container nor of the host was measured")
    total = sum(float(facts.logical_cpus) for facts in inputs.record.hosts.values()) or None
    bars = [(clients(row), row) for row in variants[0].rows]
    full = [clients(row) for row in variants[0].rows if (idle := finite(row.get("idle"))) is not None and idle < 0.03 * (total or 1.0)]
    if full:
        sentence = f"From {full[0]:g} client{'' if full[0] == 1 else 's'} on, all of the {number(total)} cores are busy"
    else:
        idle_cores = min((value for row in variants[0].rows if (value := finite(row.get("idle"))) is not None), default=None)
        sentence = (
            "CPU use of the host"
            if idle_cores is None
            else f"At least {brief(idle_cores)} of {number(total)} cores are idle at every point"
        )
    foreign = max((value for row in variants[0].rows if (value := finite(row.get("platform_cpu"))) is not None), default=0.0)
    if total and foreign > FOREIGN_SHARE * total:
        sentence += f"; other processes use up to {brief(foreign)} of them" if full else ""
    return Figure(sentence, throughput_charts.cpu_stack(bars, total, "clients", sentence, "server"), (SAMPLES,))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """Omit this figure, since a single server shares with no other."""
    raise FigureUnavailable
