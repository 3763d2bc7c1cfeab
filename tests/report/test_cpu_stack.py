"""Stacked bars of CPU."""

from __future__ import annotations

import json

import pytest

from pgherd.report import cpu_stack


def test_the_stack_adds_up_to_the_host_and_counts_named_parts_once(run8):
    rows = run8[0].analysis.tables["cpu"]
    order = cpu_stack._order(rows, 2.0, "databases")
    assert [column for column, *_ in order] == [
        *("databases_cpu", "clients", "platform.controller", "platform", "pgherd", "iowait", "steal", "idle"),
    ]
    for row in rows:
        segments = cpu_stack._segments(1.0, row, order, 2.0)
        assert segments[-1][2] == pytest.approx(2.0, rel=0.05)
        held = {name: high - low for _, low, high, name, _ in segments}
        assert held["platform, the rest"] + held["platform: controller"] == pytest.approx(row["platform"].value)


def test_bars_stand_at_their_loads_and_are_named_as_asked(run8):
    rows = run8[0].analysis.tables["cpu"][:2]
    chart = cpu_stack.stack([(3, rows[0]), (5, rows[1])], 2.0, "clients", "A sentence", "server").to_dict()
    values = [row for held in chart["datasets"].values() for row in json.loads(held)]
    assert {row["x"] for row in values if "x" in row} == {"3", "5"}
    assert "server" in {row.get("name") for row in values} and "databases" not in {row.get("name") for row in values}
    assert "Named parts of the platform" in " ".join(chart["title"]["subtitle"])
