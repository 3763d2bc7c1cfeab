"""What a transaction costs in a scaling run: CPU time of server and pgbench, and where the host's CPU went."""

from __future__ import annotations

import altair as alt

from pgherd.report import chart_style, throughput_charts
from pgherd.report.chart_style import BLUE, HEIGHT, INK, SKY, data, end_labels
from pgherd.report.drawing import SAMPLES, Figure, FigureInputs, FigureUnavailable, register
from pgherd.report.formatting import brief, finite, number, share
from pgherd.studies.scaling.figures import BAR_NOTE, clients_axis
from pgherd.studies.scaling.figures_data import Series, clients, last, points, series

MICRO = 1e-3
"""Milliseconds per microsecond: a transaction of select-only costs some tens of these."""

FOREIGN = 0.05
"""Share of the cores from which on what others use is said in the title."""


@register("cpu_per_tx")
def cpu_per_tx(inputs: FigureInputs) -> Figure:
    """CPU time per transaction: the server's and pgbench's, one upon the other; of variants the servers' alone."""
    found = series(inputs.analysis, "scaling", "server_cpu_per_tx")
    if not found:
        raise FigureUnavailable("the CPU of the server and of pgbench was not seen apart; a runtime with accounting (cgroup) shows it")
    return _stacked(found[0]) if len(found) == 1 and not found[0].name else _lines(found)


def _stacked(one: Series) -> Figure:
    bars: list[dict[str, object]] = []
    for row in one.rows:
        server, part = finite(row.get("server_cpu_per_tx")) or 0.0, finite(row.get("client_share"))
        pgbench = 0.0 if part is None or part >= 1 else server * part / (1 - part)
        at = f"{clients(row):g}"
        bars.append({"x": at, "low": 0.0, "high": server / MICRO, "colour": BLUE})
        bars.append({"x": at, "low": server / MICRO, "high": (server + pgbench) / MICRO, "colour": SKY})
    whiskers = [
        {"x": f"{clients(row):g}", "low": point["low"], "high": point["high"]}
        for row in one.rows
        for point in points([row], "server_cpu_per_tx", MICRO)
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
    beside = alt.Chart(data(keys)).encode(x=alt.value(width + 6), y=chart_style.on(y, "y:Q"))
    layers = [
        alt.Chart(data(bars))
        .mark_bar(stroke="#ffffff", strokeWidth=0.5)
        .encode(x=x, y=y, y2=alt.Y2("high:Q"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", fontSize=16).encode(text=alt.value("■"), color=alt.Color("colour:N", scale=None)),
        beside.mark_text(align="left", dx=16, fontSize=12).encode(text=alt.Text("name:N")),
    ]
    if whiskers:
        layers.append(alt.Chart(data(whiskers)).mark_rule(color=INK, strokeWidth=2).encode(x=x, y=y, y2=alt.Y2("high:Q")))
    best = one.best
    part = finite(best.get("client_share"))
    cost = brief((finite(best["server_cpu_per_tx"]) or 0.0) / MICRO)
    sentence = f"With {clients(best):g} client{'' if clients(best) == 1 else 's'} a transaction costs the server {cost} µs of CPU"
    sentence += f"; {share(part)} of the CPU of both is pgbench's" if part is not None else ""
    subtitle = (
        "Mean over the trials; black bars are intervals of the server's part. What rises with the clients is contention, and "
        "switching between them."
    )
    chart = alt.layer(*layers, width=width, height=HEIGHT, title=chart_style.title(sentence, subtitle))
    return Figure(sentence, chart, (SAMPLES,))


def _lines(found: list[Series]) -> Figure:
    right = last(found) * 1.02
    parts = [(one, points(one.rows, "server_cpu_per_tx", MICRO)) for one in found]
    top = chart_style.nice_ceiling(
        max(value for _, part in parts for point in part for name in ("y", "high") if (value := point[name])) * 1.03
    )
    x, y = clients_axis(right), chart_style.y_axis([0, top], title="server's CPU time per transaction, µs")
    layers: list[alt.Chart] = []
    for one, part in parts:
        layers += chart_style.line_with_bars(part, x, y, one.colour, one.shape)
    labels = [(right, part[-1]["y"] or 0.0, one.shown, one.colour) for one, part in parts]
    layers += end_labels(labels, x, y, (0, top))
    costs = [(one, value) for one in found if (value := finite(one.best.get("server_cpu_per_tx"))) is not None]
    words = ", ".join(f"{brief(value / MICRO)} µs for '{one.shown}'" for one, value in costs)
    sentence = f"At its peak a transaction costs the server {words}" if words else "The servers' CPU time per transaction"
    width = chart_style.plot_width([text for *_, text, _ in labels])
    chart = alt.layer(
        *layers, width=width, height=HEIGHT, title=chart_style.title(sentence, f"Mean over the trials, without pgbench's. {BAR_NOTE}")
    )
    return Figure(sentence, chart, (SAMPLES,))


@register("cpu")
def cpu(inputs: FigureInputs) -> Figure:
    """Where the host's cores went at each number of clients, stacked."""
    found = series(inputs.analysis, "cpu", "databases_cpu", "idle")
    if len(found) > 1:
        raise FigureUnavailable  # the table has it; a stack for each variant says little more than the costs do
    if not found:
        raise FigureUnavailable("neither the container's CPU nor the host's was seen")
    total = sum(float(facts.logical_cpus) for facts in inputs.record.hosts.values()) or None
    # In a table of clients their CPU has another name, since the first one is taken.
    bars = [(clients(row), {**row, "clients": row.get("clients_cpu")}) for row in found[0].rows]
    full = [clients(row) for row in found[0].rows if (idle := finite(row.get("idle"))) is not None and idle < 0.03 * (total or 1.0)]
    if full:
        sentence = f"From {full[0]:g} client{'' if full[0] == 1 else 's'} on, all of the {number(total)} cores are busy"
    else:
        least = min((value for row in found[0].rows if (value := finite(row.get("idle"))) is not None), default=None)
        sentence = (
            "Where the host's CPU went"
            if least is None
            else f"The cores are never all busy: at least {brief(least)} of {number(total)} are idle"
        )
    others = max((value for row in found[0].rows if (value := finite(row.get("platform"))) is not None), default=0.0)
    if total and others > FOREIGN * total:
        sentence += f"; up to {brief(others)} of them by others than server and clients" if full else ""
    return Figure(sentence, throughput_charts.cpu_stack(bars, total, "clients", sentence, "server"), (SAMPLES,))


@register("fairness")
def fairness(inputs: FigureInputs) -> Figure:
    """One server has nothing to share with others."""
    raise FigureUnavailable
