"""A plan of a fleet as files: HTML page, JSON document, CSV of the placement, a YAML document for each host, and its input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pgherd.model.analysis import Finding
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.node import files
from pgherd.report import data_files, formatting, html_model, stored_plan, write_report

if TYPE_CHECKING:
    from pgherd.analysis.database_moves import PlacedFleet
    from pgherd.analysis.demand import Array, Demand
    from pgherd.analysis.host_class import HostClass
    from pgherd.analysis.host_plan import Plan
    from pgherd.analysis.host_prediction import Row
    from pgherd.report.drawing import Figure

_MAX_ROWS, _MAX_COLUMNS = 48, 96
"""Most hosts and slots of a heat map. More are joined, and show the highest use."""
_MAX_LABEL, _LEGEND = 150, 90
"""Width of the longest name of a host, and of the legend with its margins, in pixels."""
MAX_TABLE = 200
"""Most rows of a table on the page."""
_CAPTIONS = {
    "refusals": ("Not placed", "The smallest change that admits each database"),
    "hosts": (
        "Hosts",
        "Highest use of each host, with its bottleneck and the slot of the day. Small print: interval. Hover for the method.",
    ),
    "moves": ("Moves", "Moves from the present placement, in order"),
    "purchases": ("Purchases", "Lower bound if every host had 10 % more of a resource"),
    "findings": ("Findings", "All findings of the plan"),
    "unknown": ("Unknown values", "Each counts as its upper bound"),
}


def write_plan(directory: Path, plan: Plan, fleet: PlacedFleet, document: Mapping[str, Any]) -> list[Path]:
    """Write ``plan.html``, ``plan.json``, ``placement.csv``, ``hosts.csv``, ``hosts.yaml`` and the input, and return their paths.

    Raises:
        UsageError: the directory is not writable.
    """
    texts = {
        "plan.html": page(plan, fleet.demand),
        "plan.json": json.dumps(document, default=_plain, ensure_ascii=False, indent=1) + "\n",
        "placement.csv": data_files.csv_text([{"database": name, "host": host} for name, host in plan.placement.items()]),
        "hosts.csv": data_files.csv_text(plan.hosts),
        "hosts.yaml": host_documents(plan, fleet.classes),
    }
    contents = {name: text.encode() for name, text in texts.items()} | stored_plan.input_files(fleet)
    try:
        for name, data in contents.items():
            files.write_file(directory / name, data)
    except OSError as error:
        raise UsageError(f"cannot write {directory}: {error.strerror}; choose another directory with --output") from None
    return [directory / name for name in contents]


def _plain(value: object) -> object:
    if isinstance(value, Model):
        return value.model_dump(mode="json")
    return str(value)


def host_documents(plan: Plan, classes: Sequence[HostClass]) -> str:
    """Return one YAML document for each host: its class, labels and databases."""
    labels = {host.name: host.labels for host in classes}
    databases: dict[str, list[str]] = {str(row["host"]): [] for row in plan.hosts}
    for database, host in plan.placement.items():
        databases[host].append(database)
    documents = [
        {"host": row["host"], "class": row["class"], "labels": dict(labels[str(row["class"])]), "databases": databases[str(row["host"])]}
        for row in plan.hosts
    ]
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def page(plan: Plan, demand: Demand) -> str:
    """Return the page as text."""
    from pgherd.report import drawing  # imports altair, which is slow

    hosts = [str(row["host"]) for row in plan.hosts]
    figures = {"after": heat_map(plan.use, hosts, demand.slots, "as planned")}
    if len(plan.before):
        figures["before"] = heat_map(plan.before, [f"host {n + 1}" for n in range(len(plan.before))], demand.slots, plan.before_name)
    drawn = [drawing.RenderedFigure(name, figure, drawing.svg(figure, prefix=name)) for name, figure in figures.items()]
    rows: dict[str, Sequence[Row]] = {
        "refusals": plan.refusals,
        "hosts": plan.hosts,
        "moves": plan.moves,
        "purchases": plan.purchases,
        "unknown": [dict(vars(one)) for one in demand.unknown],
    }
    tables = []
    for name, found in rows.items():
        heading, caption = _CAPTIONS[name]
        if len(found) > MAX_TABLE:
            caption += f". The first {MAX_TABLE} of {len(found)}: the files have all of them"
        if found:
            tables.append((heading, table(name, found[:MAX_TABLE]), caption))
    heading, caption = _CAPTIONS["findings"]
    tables.append((heading, html_model.findings_table(plan.findings), caption))
    days = f"the demand of {demand.days} days" if demand.days > 1 else "the demand of one day"
    return (
        write_report.environment()
        .get_template("placement.html.j2")
        .render(
            answer=clean(plan.answer),
            databases=len(demand.names),
            slots=len(demand.slots),
            days=days,
            warnings=[clean(text) for text in plan.warnings],
            figures=[(one.name, one.figure.title, one.figure.caption, write_report.inline(one)) for one in drawn],
            tables=tables,
        )
    )


def table(name: str, rows: Sequence[Row]) -> html_model.Table:
    """Return rows as a table, with shares in percent."""
    return html_model.table(name, [{column: _percent(cell) for column, cell in row.items()} for row in rows])


def _percent(cell: formatting.Cell) -> formatting.Cell:
    return formatting.as_percent(cell) if isinstance(cell, Finding) and cell.unit == "fraction" else cell


def heat_map(use: Array, hosts: Sequence[str], slots: Sequence[str], name: str) -> Figure:
    """Draw the highest use of each host and slot. Hosts and slots that do not fit are joined, and show the highest use of those joined."""
    import altair as alt
    import numpy as np

    from pgherd.report import chart_style
    from pgherd.report.drawing import Figure

    row_of, column_of = (np.arange(many) * min(many, most) // many for many, most in zip(use.shape, (_MAX_ROWS, _MAX_COLUMNS), strict=True))
    joined = np.zeros((row_of[-1] + 1, column_of[-1] + 1), np.float32)
    np.maximum.at(joined, (row_of[:, None], column_of[None, :]), use)
    firsts = [int(np.argmax(row_of == row)) for row in range(len(joined))]
    labels = [hosts[first] if len(hosts) <= _MAX_ROWS else f"{hosts[first]} …" for first in firsts]
    hours = [float(np.argmax(column_of == column)) * 24 / len(slots) for column in range(joined.shape[1])]
    ends = [*hours[1:], 24.0]  # columns may join different numbers of slots
    cells = [
        {"x": hours[column], "x2": ends[column], "host": labels[row], "use": round(100 * float(value), 1)}
        for (row, column), value in np.ndenumerate(joined)
    ]
    over = int((use > 1 + 1e-5).any(axis=1).sum())
    above = (
        f"{over} of {len(use)} hosts exceed their capacity"
        if over
        else f"no host exceeds its capacity; the highest use is {100 * use.max():.0f} %"
    )
    sentence = f"{len(use)} hosts {name}: {above}"
    subtitle = "Highest use of the resources in each slot, in % of the usable capacity." + (
        " Several hosts or slots share a row or column, which shows the highest." if joined.size < use.size else ""
    )
    scale = alt.Scale(
        domain=[0, 50, 100, 100.1, 150],
        range=["#ffffff", chart_style.SKY, chart_style.BLUE, chart_style.ORANGE, chart_style.VERMILLION],
        clamp=True,
        interpolate="rgb",
    )
    legend = alt.Legend(title="use, %", gradientLength=130, gradientThickness=12, values=[0, 50, 100, 150])
    height = max(40, min(18 * len(joined), 620))
    names = min(_MAX_LABEL, round(6.9 * max(map(len, labels))))
    chart = (
        alt.Chart(chart_style.data(cells))
        .mark_rect(stroke=None)
        .encode(
            x=alt.X(
                "x:Q",
                scale=alt.Scale(domain=[0, 24], nice=False),
                axis=alt.Axis(title="hour of the day", values=list(range(0, 25, 3)), grid=False),
            ),
            x2=alt.X2("x2:Q"),
            y=alt.Y("host:N", sort=labels, axis=alt.Axis(title=None, labelLimit=_MAX_LABEL, ticks=False)),
            color=alt.Color("use:Q", scale=scale, legend=legend),
        )
        .properties(width=chart_style.WIDTH - _LEGEND - names, height=height, title=chart_style.title(sentence, subtitle))
    )
    return Figure(sentence, chart, ("hosts.csv",))
