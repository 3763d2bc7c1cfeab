from __future__ import annotations

import pytest

from pgherd.model.finding import Analysis, Finding
from pgherd.studies.density import figures_data


def analysis(*rows):
    return Analysis(answer="", grade="A", tables={"density": list(rows)})


def row(databases, value, fraction=None, **more):
    return {"databases": databases, "fraction": fraction, "throughput": Finding(value=value, unit="tps"), **more}


def test_rows_are_sorted_and_need_a_number():
    found = figures_data.rows_with(analysis(row(8, 3.0), row(1, 1.0), row(4, None), row(None, 2.0)), "density", "throughput")
    assert [figures_data.databases(one) for one in found] == [1, 8]
    assert figures_data.rows_with(analysis(), "cpu", "idle") == []


def test_at_full_is_the_largest_point_within_the_cores():
    rows = [row(4, 1.0, 0.5), row(8, 2.0, 1.0), row(10, 2.1, 1.25)]
    assert figures_data.at_full(rows) is rows[1]
    assert figures_data.at_full([row(4, 1.0), row(8, 2.0)])["databases"] == 8
    assert figures_data.at_full([row(4, 1.0, 2.0)])["databases"] == 4


@pytest.mark.parametrize(("unit", "value"), [("ratio", 0.857), ("%", 85.7)])
def test_a_share_point_is_in_percent(unit, value):
    cell = Finding(value=value, unit=unit, low=value * 0.9, high=value * 1.1)
    point = figures_data.share_point({"databases": 40, "efficiency": cell}, "efficiency", 0.5)
    assert point == {"x": 40.5, "y": pytest.approx(85.7), "low": pytest.approx(77.13), "high": pytest.approx(94.27)}


def test_an_axis_reaches_over_all_intervals_and_super_linear_points():
    low, high = figures_data.reach([{"y": 118.0, "low": 60.5, "high": 123.4}, {"y": None}])
    assert low <= 60.5 and high >= 123.4 and low % 10 == 0
    assert figures_data.reach([]) == (80, 105)
