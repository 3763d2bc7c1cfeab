"""Figure of the I/O profile: latency during and between checkpoints. With several variants the comparison's figures are drawn too.

``pgherd.report.io_figures`` draws the devices' activity by second, and the sizes and latencies of requests.
"""

from __future__ import annotations

import altair as alt

from pgherd.analysis import histogram
from pgherd.model.result import clean_or_all
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.report.chart_style import BLUE, VERMILLION, data
from pgherd.report.drawing import TRIALS, Figure, FigureInputs, FigureUnavailable, register
from pgherd.studies.compare import figures
from pgherd.studies.io_profile.external_server import LOG
from pgherd.studies.io_profile.trial_profile import is_external
from pgherd.study.comparison.options import AA_SUFFIX
from pgherd.study.comparison.time_slices import VARIANT

_DURING, _BETWEEN = "during checkpoints", "between checkpoints"
MIN_TRANSACTIONS = 100
"""Logged transactions that a curve needs."""


@register("latency")
def latency(inputs: FigureInputs) -> Figure:
    """Draw the distribution of latency during and between checkpoints, in one panel for each variant."""
    if inputs.results and all(is_external(result) for result in inputs.results):
        raise FigureUnavailable(LOG)
    curves: dict[str, list[dict[str, object]]] = {}
    texts = []
    for variant in dict.fromkeys(_variant(result.trial.point) for result in inputs.results):
        of_variant = [result for result in inputs.results if _variant(result.trial.point) == variant and result.error is None]
        latencies = [phase.io.latency for result in clean_or_all(of_variant) for phase in result.phases if phase.io is not None]
        rows: list[dict[str, object]] = []
        p95 = []
        for name, key in ((_DURING, "inside"), (_BETWEEN, "outside")):
            counts = histogram.merged(by_key.get(key, {}) for by_key in latencies)  # type: ignore[call-overload]
            total, cumulative = sum(counts.values()), 0
            if total < MIN_TRANSACTIONS:
                continue
            for index, count in sorted(counts.items()):
                cumulative += count
                rows.append({"x": max(histogram.bounds(index)[1], 1) / 1000, "y": 100 * cumulative / total, "line": name})
            value = histogram.quantile(counts, 0.95)
            p95.append(f"{'unknown (too few)' if value is None else f'{value / 1000:.3g} ms'} {name}")
        if rows:
            curves[variant] = rows
            texts.append(f"{f'with {clean(variant)} ' if variant else ''}{', '.join(p95)}")
    if not curves:
        raise FigureUnavailable(f"fewer than {MIN_TRANSACTIONS} transactions were logged")
    ends = [float(str(row["x"])) for rows in curves.values() for row in rows]
    panels = [_panel(variant, rows, (min(ends), max(ends)), last=variant == list(curves)[-1]) for variant, rows in curves.items()]
    title = f"p95 latency: {'; '.join(texts)}"
    subtitle = "Logged transactions of the clean trials, or of all if none is clean. During: the transaction overlaps a checkpoint."
    chart = alt.vconcat(*panels, spacing=12).properties(title=chart_style.title(title, subtitle))
    return Figure(title, chart, (TRIALS, "trials/*/drivers"))


def _variant(point: dict[str, int | float | str]) -> str:
    return str(point.get(VARIANT, "")).removesuffix(AA_SUFFIX)


def _panel(variant: str, rows: list[dict[str, object]], reach: tuple[float, float], *, last: bool) -> alt.Chart:
    """Return one variant's curves. All panels share the axis of latency, and the last panel has its title."""
    names = [name for name in (_DURING, _BETWEEN) if any(row["line"] == name for row in rows)]
    colours = {_DURING: VERMILLION, _BETWEEN: BLUE}
    scale = alt.Scale(type="log", domain=[reach[0] / 1.1, reach[1] * 1.1], nice=False)
    x = alt.X("x:Q", title="latency of a transaction, ms" if last else None, scale=scale)
    y = alt.Y("y:Q", title="% of transactions", scale=alt.Scale(domain=[0, 100]))
    colour = alt.Color(
        "line:N", scale=alt.Scale(domain=names, range=[colours[name] for name in names]), legend=alt.Legend(title=None, orient="top-left")
    )
    line = alt.Chart(data(rows)).mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, color=colour)
    head = alt.TitleParams(clean(variant), fontSize=12, fontWeight="normal", anchor="start", offset=4)
    panel: alt.Chart = line.properties(width=chart_style.plot_width(), height=170, **({"title": head} if variant else {}))
    return panel


@register("forest")
def forest(inputs: FigureInputs) -> Figure:
    """Draw the comparison's forest plot if the run has a comparison."""
    return figures.forest(_with_comparison(inputs))


@register("pairs")
def pairs(inputs: FigureInputs) -> Figure:
    """Draw the comparison's pairs if the run has a comparison."""
    return figures.pairs(_with_comparison(inputs))


def _with_comparison(inputs: FigureInputs) -> FigureInputs:
    """Return the inputs. Without a comparison the figure is omitted without a reason, because it is not expected."""
    if "comparison" not in inputs.analysis.tables:
        raise FigureUnavailable("")
    return inputs
