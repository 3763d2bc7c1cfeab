from __future__ import annotations

import html
import json

import numpy as np
import pytest

from pgherd.analysis.database_moves import PlacedFleet
from pgherd.analysis.demand import fold
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, Rule, as_document, make_plan
from pgherd.report.plan_page import write_plan

MARKUP = "<img src=x onerror=alert(1)>\"'"


@pytest.fixture
def plan(runs):
    """A plan of three databases, of which one has markup as its name, on two hosts of which one is spare."""
    needs = np.array([[[6, 1]], [[1, 6]], [[2, 2]]], np.float32)
    demand = fold(["a", "b", MARKUP], ["cpu_cores"], needs, [0, 1], 2)
    classes = [HostClass.model_validate({"name": "h", "capacity": {"cpu_cores": 10}})]
    rules, options = [Rule("a", 2, pin="h-1")], PlanOptions(lost_hosts=1)
    found = make_plan(demand, classes, rules, options)
    write_plan(runs / "fleet", found, PlacedFleet.of(found, demand, classes, rules, options), as_document(found, demand))
    return runs / "fleet"


def moved(client, *moves):
    query = [(name, value) for move in moves for name, value in zip(("database", "host"), move, strict=True)]
    return client.get("/placement/fleet", params=query)


def test_plans_are_listed(client, plan, runs, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "input.json").write_text("{}")
    (runs / "link").symlink_to(tmp_path / "other")
    text = client.get("/placement").text
    assert text.count('href="/placement/') == 1 and 'href="/placement/fleet"' in text
    assert client.get("/placement/link").status_code == client.get("/placement/%2e%2e").status_code == 404
    (plan / "input.json").unlink()
    assert "There are no plans in" in client.get("/placement").text


def test_a_plan_has_its_hosts_and_files(client, plan):
    text = client.get("/placement/fleet").text
    assert html.escape(json.loads((plan / "plan.json").read_text())["answer"]) in text
    assert "No broken constraints" in text and "2 hosts as planned" in text and ">h-1<" in text and "data:image/svg+xml;base64," in text
    assert MARKUP not in text and str(html.escape(MARKUP)) in text.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")


def test_a_move_has_an_effect_and_changes_no_file(client, plan):
    before = {path.name: path.read_bytes() for path in plan.iterdir()}
    text = moved(client, ("a", "h-2")).text
    assert "a: h-1 → h-2" in text and "2 broken constraints" in text
    assert "database a is pinned to h-1." in text and "h-2 is a spare host for the loss of another." in text
    assert "2 hosts before the moves: no host exceeds its capacity; the highest use is 90 %" in text
    assert "2 hosts after the moves: no host exceeds its capacity; the highest use is 80 %" in text
    assert {path.name: path.read_bytes() for path in plan.iterdir()} == before


def test_further_moves_add_up(client, plan):
    text = moved(client, ("a", "h-2"), (MARKUP, "h-2")).text
    assert text.count('type="hidden" name="database"') == 2 and "3 broken" not in text and MARKUP not in text
    assert "the highest use is 80 %" in text, "6 + 2 of 10 cores on h-2, and 6 on h-1"


@pytest.mark.parametrize(
    "query, message",
    [
        ("database=x&host=h-1", "no database of this name"),
        ("database=a&host=x", "no host of this name"),
        ("database=a&host=h-1", "Database a is on h-1 already"),
        ("database=a", "each a database and a host"),
        ("&".join(["database=a&host=h-2"] * 21), "up to 20 moves"),
    ],
)
def test_bad_moves(client, plan, query, message):
    answer = client.get(f"/placement/fleet?{query}")
    assert answer.status_code == 400 and message in answer.text


def test_files_are_served_in_a_sandbox(client, plan, tmp_path):
    answer = client.get("/placement/fleet/files/plan.html")
    assert answer.status_code == 200 and answer.headers["content-security-policy"].startswith(
        "sandbox allow-same-origin; default-src 'none'"
    )
    (plan / "hosts.csv").unlink()
    (plan / "hosts.csv").symlink_to(tmp_path)
    for name in ("hosts.csv", "input.json", "..%2frun.json", "demand.npy"):
        assert client.get(f"/placement/fleet/files/{name}").status_code == 404


def test_a_plan_is_read_again_when_it_has_changed(client, plan):
    assert "A new answer" not in client.get("/placement/fleet").text
    document = json.loads((plan / "plan.json").read_text())
    (plan / "plan.json").write_text(json.dumps({**document, "answer": "A new answer"}))
    assert "A new answer" in client.get("/placement/fleet").text


@pytest.mark.parametrize(
    "name, text", [("input.json", "{}"), ("plan.json", '{"answer": "", "warnings": [], "hosts": [], "placement": {}}')]
)
def test_a_damaged_plan(client, plan, name, text):
    (plan / name).write_text(text)
    answer = client.get("/placement/fleet")
    assert answer.status_code == 409 and "The plan cannot be read" in answer.text


def test_no_page_without_the_token(client, plan):
    client.cookies.clear()
    assert client.get("/placement/fleet").status_code == client.get("/placement").status_code == 303
