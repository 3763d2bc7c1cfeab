from __future__ import annotations

import json

import pytest

from pgherd.model.analysis import Finding
from pgherd.report.gate import change_text, gate
from pgherd.report.gate_metrics import GateRun, MetricLimit
from pgherd.store.run_directory import RunDirectory
from pgherd.ui import compare_page
from pgherd.ui.compare_page import _common

FIRST, SECOND = "20260131-120000-density-0001", "20260131-130000-density-0002"


def test_the_same_statistics_as_the_gate(client, runs):
    sides = [GateRun(name, RunDirectory(runs / name).record(), RunDirectory(runs / name).results()) for name in (FIRST, SECOND)]
    text = client.get(f"/compare?run={FIRST}&run={SECOND}&allowed=2").text
    expected = gate(*sides, [MetricLimit(name, 0.02) for name in ("throughput", "cpu_per_tx", "p95")])
    for comparison in expected.comparisons:
        assert change_text(comparison.change) in text
    assert expected.answer in text.replace("&#39;", "'") and "Differences" in text and "data:image/svg+xml;base64," in text


def test_a_study_with_another_default_metric_is_compared_by_it(runs):
    record = RunDirectory(runs / FIRST).record().model_copy(update={"study": "isolation"})
    side = GateRun(FIRST, record, RunDirectory(runs / FIRST).results())
    assert _common(side, side) == ["worst_p99_ratio"]


def test_the_oldest_is_the_baseline_unless_another_is_named(client):
    assert f"{SECOND} vs. {FIRST}" in client.get(f"/compare?run={SECOND}&run={FIRST}").text
    assert f"{FIRST} vs. {SECOND}" in client.get(f"/compare?run={FIRST}&run={SECOND}&baseline={SECOND}").text
    assert f"{SECOND} vs. {FIRST}" in client.get(f"/compare?run={FIRST}&run={SECOND}&baseline=../x").text


def test_the_same_run_twice_is_one(client):
    assert "Compare selected runs" in client.get(f"/compare?run={FIRST}&run={FIRST}").text


@pytest.mark.parametrize("query", ["", f"?run={FIRST}"])
def test_fewer_than_two_are_asked_for(client, query):
    text = client.get(f"/compare{query}").text
    assert "Compare selected runs" in text and text.count('name="run"') == 2 and text.count("checked") == bool(query)


def test_an_old_run_that_is_chosen_is_among_the_choices(client, monkeypatch):
    monkeypatch.setattr(compare_page, "_MAX_CHOICES", 1)
    text = client.get("/compare").text
    assert "1 of 2 runs are shown" in text and SECOND in text and FIRST not in text
    text = client.get(f"/compare?run={FIRST}").text
    assert "runs are shown" not in text and text.count('name="run"') == 2 and f'value="{FIRST}" aria-label="Choose {FIRST}" checked' in text


def test_a_chosen_run_without_a_grade_is_among_the_choices(client, runs):
    record = runs / FIRST / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"state": "interrupted", "analysis": None}))
    assert FIRST not in client.get("/compare").text
    assert f'aria-label="Choose {FIRST}" checked' in client.get(f"/compare?run={FIRST}").text


def test_a_value_beyond_the_measured_range_is_its_lower_bound():
    assert compare_page._value(Finding(value=None, unit="databases", low=4.0)) == "at least 4 (95 %)"
    assert compare_page._value(Finding(value=None, unit="databases")) == compare_page._value(None) == "–"


def test_what_cannot_be_held_against_each_other_says_why(client, runs, synthetic):
    record, results = synthetic.other_study()
    record = record.model_copy(update={"run": "20260131-140000-hugepages-0003"})
    synthetic.write_run(runs / record.run, record, results)
    text = client.get(f"/compare?run={FIRST}&run={record.run}").text
    assert "The runs are of different studies" in text and "These runs are of different studies" in text


def test_a_run_whose_process_was_killed_was_interrupted(client, runs):
    record = runs / SECOND / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"state": "running", "analysis": None, "ended": None}))
    text = client.get(f"/compare?run={FIRST}&run={SECOND}").text
    assert "No answer: this run is interrupted: its process was killed." in text, "in the overlay"
    assert f"Run {SECOND} is not finished (it is interrupted)" in text, "in the gate"


@pytest.mark.parametrize("query, code", [("run=a&run=b", 404), ("run=../x&run=y", 404), ("&".join(f"run={i}" for i in range(9)), 400)])
def test_wrong_runs(client, query, code):
    assert client.get(f"/compare?{query}").status_code == code


@pytest.mark.parametrize("allowed", ["0", "5%", "-1", "x", "1e3"])
def test_a_wrong_allowance(client, allowed):
    assert client.get("/compare", params={"run": [FIRST, SECOND], "allowed": allowed}).status_code == 400
