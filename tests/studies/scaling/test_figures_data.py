"""Reading the tables of a scaling analysis."""

from __future__ import annotations

from pgherd.model.finding import Analysis, Finding
from pgherd.studies.scaling.figures_data import LABEL, clients, last, points, series


def about(value: float | None, low: float | None = None, high: float | None = None) -> Finding:
    return Finding(value=value, unit="tps", low=low, high=high)


ROWS = [
    {"variant": "b", "clients": 4, "throughput": about(40, 38, 42)},
    {"variant": "b", "clients": 1, "throughput": about(10)},
    {"variant": "a" * 40, "clients": 2, "throughput": about(20)},
    {"variant": "c", "clients": 2, "throughput": about(None)},
    {"clients": None, "throughput": about(5)},
]
ANALYSIS = Analysis(answer="", grade="A", tables={"scaling": ROWS}, findings={"slope.b": about(3), "slope": about(7)})


def test_a_series_of_each_variant_in_ascending_order():
    found = series(ANALYSIS, "scaling", "throughput")
    assert [one.name for one in found] == ["b", "a" * 40]
    assert [clients(row) for row in found[0].rows] == [1, 4]
    assert clients(found[0].best) == 4
    assert last(found) == 4
    assert len({(one.colour, one.shape) for one in found}) == 2
    assert len(found[1].shown) == LABEL and found[1].shown.endswith("…")
    assert found[0].finding(ANALYSIS, "slope").value == 3
    assert series(ANALYSIS, "cpu", "idle") == []


def test_points_carry_their_intervals():
    (one, _) = series(ANALYSIS, "scaling", "throughput")
    assert points(one.rows, "throughput", 10) == [
        {"x": 1, "y": 1.0, "low": None, "high": None},
        {"x": 4, "y": 4.0, "low": 3.8, "high": 4.2},
    ]


def test_without_variants_the_findings_have_no_name_added():
    rows = [{"clients": 1, "throughput": about(10)}]
    (one,) = series(ANALYSIS.model_copy(update={"tables": {"scaling": rows}}), "scaling", "throughput")
    assert one.name == "" and one.finding(ANALYSIS, "slope").value == 7
