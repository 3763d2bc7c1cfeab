from __future__ import annotations

import json

import altair as alt

from pgherd.model.finding import Finding
from pgherd.report.throughput_charts import STORAGE, TAINTED, UNKNOWN, limited_by_host, limited_points

LOOKS = {"host": limited_by_host("all cores are busy"), "storage": STORAGE}


def layers(rows):
    legend = alt.Legend(title=None)
    return [chart.to_dict() for chart in limited_points(rows, lambda row: row["n"], LOOKS, 1000.0, alt.X("x:Q"), alt.Y("y:Q"), legend)]


def row(n, tps, limit, **more):
    return {"n": n, "throughput": tps, "limited_by": limit, **more}


def rows_of(layer):
    return json.loads(layer["datasets"][layer["data"]["name"]])


def test_the_legend_names_what_is_there_only():
    (marks,) = layers([row(1, 5000.0, "host"), row(2, 9000.0, "what nobody foresaw")])
    assert [(mark["x"], mark["y"]) for mark in rows_of(marks)] == [(1, 5.0), (2, 9.0)]
    assert marks["encoding"]["shape"]["scale"]["domain"] == ["all cores are busy", UNKNOWN[0]]


def test_a_bar_where_there_is_an_interval_and_a_ring_where_trials_are_tainted():
    found = Finding(value=9000.0, unit="transactions/s", low=8000.0, high=9500.0, n=3)
    bars, marks, rings = layers([row(1, 5000.0, "storage", tainted=0), row(2, found, "host", tainted=2)])
    assert rows_of(bars) == [{"x": 2, "low": 8.0, "high": 9.5}]
    assert [mark["kind"] for mark in rows_of(marks)] == [STORAGE[0], "all cores are busy"]
    assert [(ring["x"], ring["kind"]) for ring in rows_of(rings)] == [(2, TAINTED[0])]
