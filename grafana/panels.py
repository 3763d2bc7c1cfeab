"""Dashboards in few words, and as Grafana reads them.

Grafana's classic dashboard model, which every version since 9 imports. Queries look back by the variable ``window`` only, never by
Prometheus' five minutes: what a trial told must not be seen in the next. So they show an export just as they show a live run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the name of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, in which unit (of Grafana), and what to look at."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    says: str = ""
    kind: str = "timeseries"
    stacked: bool = False
    width: int = 12
    right: str = ""
    """Legend of the series that has an axis of its own on the right."""
    columns: tuple[str, ...] = ()
    """Of a table: the labels to be shown, in order; the value comes last."""
    value: str = ""
    """Of a table: the heading of the value; '' hides it."""


@dataclass(frozen=True)
class Row:
    """A heading with the panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard; ``variables`` are those beside run, host and window: name → (label, query)."""

    name: str
    title: str
    says: str
    rows: tuple[Row, ...]
    variables: tuple[tuple[str, str, str], ...] = ()


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": f"pgherd-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.says,
        "tags": ["pgherd", "postgresql"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "timepicker": {"refresh_intervals": ["1s", "5s", "10s", "30s", "1m"]},
        "links": [
            {
                "type": "dashboards",
                "title": "pgherd",
                "tags": ["pgherd"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": [_phases()]},
        "panels": list(_panels(dashboard.rows)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1, "hide": 0}
    yield _choice("run", "Run", "label_values(pgherd_run_info, run)", many=False)
    yield _choice("host", "Host", 'label_values(pgherd_run_info{run="$run"}, host)')
    for name, label, query in dashboard.variables:
        yield _choice(name, label, query)
    windows = ("5s", "10s", "30s", "1m", "5m")
    yield {
        "name": "window",
        "type": "custom",
        "label": "Window (at least 4 scrapes)",
        "query": ",".join(windows),
        "options": [{"text": one, "value": one, "selected": one == "10s"} for one in windows],
        "current": {"text": "10s", "value": "10s"},
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def _choice(name: str, label: str, query: str, *, many: bool = True) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes: other runs are in it
        "sort": 1 if many else 2,  # the newest run first: a run's name begins with its time
        "hide": 0,
        "multi": many,
        "includeAll": many,
    }
    return {**choice, "allValue": ".*", "current": {"text": "All", "value": "$__all"}} if many else choice


def _phases() -> dict[str, Any]:
    """Measured periods as shaded regions."""
    return {
        "name": "Measured periods",
        "datasource": _SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "rgba(128, 128, 128, 0.6)",
        "expr": 'last_over_time(pgherd_phase_info{run="$run", part="measured"}[$window])',
        "step": "1s",
        "titleFormat": "Trial {{trial}}, {{phase}}",
        "textFormat": "{{point}}: {{load}}",
        "tagKeys": "",
        "useValueForTime": False,
    }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": _place(0, y, WIDTH, 1), "panels": []}
        x, y = 0, y + 1
        height = 0
        for panel in row.panels:
            tall = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            yield {"id": number, "gridPos": _place(x, y, panel.width, tall), **_panel(panel)}
            x, height = x + panel.width, max(height, tall)
        y += height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": table,
            "range": not table,
            "interval": "" if table else "1s",
            **({"format": "table"} if table else {}),
        }
        for i, query in enumerate(panel.queries)
    ]
    about = {"type": panel.kind, "title": panel.title, "description": panel.says, "datasource": _SOURCE, "targets": targets}
    return {**about, **{"timeseries": _series, "stat": _stat, "table": _table}[panel.kind](panel)}


def _series(panel: Panel) -> dict[str, Any]:
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 60 if panel.stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    right = {
        "matcher": {"id": "byName", "options": panel.right},
        "properties": [
            {"id": "custom.axisPlacement", "value": "right"},
            {"id": "unit", "value": "short"},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.lineWidth", "value": 2},
        ],
    }
    return {
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": [right] if panel.right else []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _stat(panel: Panel) -> dict[str, Any]:
    return {
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "none",
            "graphMode": "none",
            "textMode": "auto",
            "justifyMode": "auto",
            "orientation": "auto",
        },
    }


def _table(panel: Panel) -> dict[str, Any]:
    hidden = dict.fromkeys(("Time", "__name__", "instance", "job", *(() if panel.value else ("Value",))), True)
    order = {name: place for place, name in enumerate((*panel.columns, "Value"))}
    return {
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"align": "auto", "filterable": True}}, "overrides": []},
        "options": {"showHeader": True, "cellHeight": "sm", "sortBy": []},
        "transformations": [
            {"id": "filterFieldsByName", "options": {"include": {"names": [*panel.columns, *(("Value",) if panel.value else ())]}}},
            {
                "id": "organize",
                "options": {"excludeByName": hidden, "indexByName": order, "renameByName": {"Value": panel.value} if panel.value else {}},
            },
        ],
    }


def text(dashboard: Dashboard) -> str:
    """The text of the dashboard's file."""
    return json.dumps(document(dashboard), indent=2, ensure_ascii=False) + "\n"
