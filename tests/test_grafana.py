"""The dashboards and alert rules are valid and use only existing metrics and labels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pgherd.metrics.openmetrics import families
from pgherd.metrics.run_metrics import FAMILIES

HOME = Path(__file__).parent.parent
GRAFANA = HOME / "grafana"
SERVED = {family.sample: family for family in (*families(), *FAMILIES)}
NODE_EXPORTER = (HOME / "tests/fixtures/metrics/node_exporter.txt").read_text()
PROMQL = re.compile(r"\b(?:pgherd|node)_[a-z0-9_]+\b")
LABELS = re.compile(r"\b(pgherd_[a-z0-9_]+)\{([^}]*)\}")
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


BOARDS = sorted(GRAFANA.glob("*.json"))


def expressions(value):
    """Every query in a dashboard, those of variables and annotations included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


@pytest.mark.parametrize("file", [*BOARDS, GRAFANA / "alerts.yml"], ids=lambda file: file.name)
def test_every_metric_is_one_that_is_served(file):
    text = file.read_text()
    queries = (
        list(expressions(json.loads(text))) if file.suffix == ".json" else re.findall(r"expr:(.*?)(?=\n +(?:labels|for):)", text, re.DOTALL)
    )
    names = {name for query in queries for name in PROMQL.findall(query)}
    assert names
    unknown = {name for name in names if name.startswith("pgherd_")} - set(SERVED)
    assert not unknown
    for name in names - set(SERVED):
        assert re.search(rf"^{name}(\{{| )", NODE_EXPORTER, re.MULTILINE), f"node_exporter has no {name}"


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.name)
def test_every_label_is_one_that_the_metric_has(file):
    for query in expressions(json.loads(file.read_text())):
        for name, inside in LABELS.findall(query):
            expected = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
            assert expected <= {"run", "host", *SERVED[name].labels}, query


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.name)
def test_rates_are_of_counters_and_last_values_of_what_is_none(file):
    for query in expressions(json.loads(file.read_text())):
        for function, name in re.findall(r"\b(rate|increase|last_over_time|max_over_time)\((pgherd_\w+)", query):
            if function in ("rate", "increase"):
                assert SERVED[name].kind == "counter", query
            assert f"{name}{{" in query


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.name)
def test_panels_have_their_own_places_and_look_back_by_seconds_only(file):
    board = json.loads(file.read_text())
    taken = set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        gridPos = panel["gridPos"]
        cells = {(x, y) for x in range(gridPos["x"], gridPos["x"] + gridPos["w"]) for y in range(gridPos["y"], gridPos["y"] + gridPos["h"])}
        assert not taken & cells and gridPos["x"] + gridPos["w"] <= 24, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            bare = re.sub(r"\{[^}]*\}", "", target["expr"])
            assert re.search(r"\[\$(window|__range)\]", bare), "Prometheus would look back by five minutes"


def test_each_dashboard_has_a_uid_of_its_own_and_the_same_variables():
    boards = [json.loads(file.read_text()) for file in BOARDS]
    assert len({board["uid"] for board in boards}) == len(boards) == 4
    for board in boards:
        names = [variable["name"] for variable in board["templating"]["list"]]
        assert {"datasource", "run", "host", "window"} <= set(names)
        used = set(re.findall(r"\$(\w+)", " ".join(expressions(board))))
        assert used <= {*names, "__range"}


@promtool
def test_promtool_accepts_the_rules():
    finished = subprocess.run(["promtool", "check", "rules", "alerts.yml"], cwd=GRAFANA, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@promtool
def test_every_alert_fires_and_is_silent_where_it_should_be():
    finished = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=GRAFANA, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rules = set(re.findall(r"alert: (\w+)", (GRAFANA / "alerts.yml").read_text()))
    tested = re.findall(r"alertname: (\w+)", (GRAFANA / "alerts_test.yml").read_text())
    assert rules and all(tested.count(rule) == 2 for rule in rules)
