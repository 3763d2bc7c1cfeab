from __future__ import annotations

import json

import altair as alt
import pytest

from pgherd.model.analysis import Finding
from pgherd.report import chart_style, throughput_charts
from pgherd.report.drawing import FigureInputs
from pgherd.report.throughput_charts import STORAGE, TAINTED, UNKNOWN, limited_by_host, limited_points


def with_models(run, models) -> FigureInputs:
    analysis = run[0].analysis.model_copy(update={"figures": {"models": models}})
    return FigureInputs(run[0], analysis, run[1])


MODELS = {"usl": {"n": [0, 4, 9, 30], "x": [0, 400, 700, 900]}, "piecewise-linear": {"n": [0, 8], "x": [0, 800]}, "best": "usl"}


def test_a_curve_has_a_point_where_the_data_end_and_none_far_beyond(run8):
    result = dict(throughput_charts.model_curves(with_models(run8, MODELS), 8.0))
    assert result["usl"] == [(0, 0), (4, 400), (8.0, 640.0), (9, 700)]
    assert result["piecewise-linear"] == [(0, 0), (8, 800)]


def test_the_chosen_model_stands_out(run8):
    inputs = with_models(run8, MODELS)
    assert throughput_charts.best_model(inputs) == "usl"
    lines, labels = throughput_charts.curve_lines(inputs, throughput_charts.model_curves(inputs, 8.0), 8.0, 100.0)
    assert labels[0] == (7.0, "best fit: USL", chart_style.GREEN)
    assert labels[1][1] == "piecewise linear"
    assert [(dash, points[0], points[-1]) for points, _, _, dash in lines[:2]] == [
        ([1, 0], (0, 0.0), (8.0, 6.4)),
        ([4, 4], (8.0, 6.4), (9, 7.0)),
    ]


@pytest.mark.parametrize(("compared", "label", "width"), [(1, "USL", 1.4), (2, "best fit: USL", 2.2)])
def test_a_model_that_was_compared_with_none_is_not_the_best_fit(run8, compared, label, width):
    """With few trials only one model has an AICc, and warnings say that the others are not compared."""
    inputs = with_models(run8, {**MODELS, "compared": compared})
    lines, labels = throughput_charts.curve_lines(inputs, throughput_charts.model_curves(inputs, 8.0), 8.0, 100.0)
    assert labels[0][1] == label and lines[0][2] == width


def test_variants_have_models_of_their_own(run8):
    analysis = run8[0].analysis.model_copy(
        update={"figures": {"variant_models": {"old": MODELS, "new": {**MODELS, "best": "piecewise-linear"}}}}
    )
    inputs = FigureInputs(run8[0], analysis, run8[1])
    assert [throughput_charts.best_model(inputs, name) for name in ("old", "new", "other", "")] == ["usl", "piecewise-linear", None, None]
    assert throughput_charts.best_curve(inputs, 8.0, "new") == [(0, 0), (8, 800)]
    assert throughput_charts.best_curve(inputs, 8.0, "other") == []
    _, labels = throughput_charts.curve_lines(inputs, throughput_charts.model_curves(inputs, 8.0, "new"), 8.0, 1.0, "new")
    assert [text for _, text, _ in labels] == ["USL", "best fit: piecewise linear"]


def test_without_models_there_is_nothing(run8):
    for models in (None, [], {"best": None}, {"usl": "x"}):
        inputs = with_models(run8, models)
        assert throughput_charts.best_model(inputs) is None
        assert throughput_charts.model_curves(inputs, 8.0) == []


LOOKS = {"host": limited_by_host("all cores are busy"), "storage": STORAGE}


def layers(rows):
    legend = alt.Legend(title=None)
    return [chart.to_dict() for chart in limited_points(rows, lambda row: row["n"], LOOKS, 1000.0, alt.X("x:Q"), alt.Y("y:Q"), legend)]


def row(n, tps, limit, **extra):
    return {"n": n, "throughput": tps, "bottleneck": limit, **extra}


def rows_of(layer):
    return json.loads(layer["datasets"][layer["data"]["name"]])


def test_the_legend_names_what_is_there_only():
    (marks,) = layers([row(1, 5000.0, "host"), row(2, 9000.0, "what nobody foresaw")])
    assert [(mark["x"], mark["y"]) for mark in rows_of(marks)] == [(1, 5.0), (2, 9.0)]
    assert marks["encoding"]["shape"]["scale"]["domain"] == ["all cores are busy", UNKNOWN[0]]


def test_a_bar_where_there_is_an_interval_and_a_ring_where_trials_are_tainted():
    finding = Finding(value=9000.0, unit="transactions/s", low=8000.0, high=9500.0, n=3)
    bars, marks, rings = layers([row(1, 5000.0, "storage", tainted_trials=0), row(2, finding, "host", tainted_trials=2)])
    assert rows_of(bars) == [{"x": 2, "low": 8.0, "high": 9.5}]
    assert [mark["kind"] for mark in rows_of(marks)] == [STORAGE[0], "all cores are busy"]
    assert [(ring["x"], ring["kind"]) for ring in rows_of(rings)] == [(2, TAINTED[0])]


def test_the_stack_adds_up_to_the_host_and_counts_named_parts_once(run8):
    rows = run8[0].analysis.tables["cpu"]
    order = throughput_charts._stack_order(rows, 2.0, "databases")
    assert [column for column, *_ in order] == [
        *("databases_cpu", "clients_cpu", "platform_cpu.controller", "platform_cpu", "pgherd_cpu", "iowait", "steal", "idle"),
    ]
    for row in rows:
        segments = throughput_charts._segments(1.0, row, order, 2.0)
        assert segments[-1][2] == pytest.approx(2.0, rel=0.05)
        held = {name: high - low for _, low, high, name, _ in segments}
        assert held["platform, other"] + held["platform: controller"] == pytest.approx(row["platform_cpu"].value)


def test_bars_stand_at_their_loads_and_are_named_as_asked(run8):
    rows = run8[0].analysis.tables["cpu"][:2]
    chart = throughput_charts.cpu_stack([(3, rows[0]), (5, rows[1])], 2.0, "clients", "A sentence", "server").to_dict()
    values = [row for dataset in chart["datasets"].values() for row in json.loads(dataset)]
    assert {row["x"] for row in values if "x" in row} == {"3", "5"}
    assert "server" in {row.get("name") for row in values} and "databases" not in {row.get("name") for row in values}
    assert "Tracked parts of the platform" in " ".join(chart["title"]["subtitle"])
