from __future__ import annotations

import json

import pytest

from pgherd.ui.plots import VIEWS, PhaseBand, specification
from pgherd.ui.sample_queries import EntitySummary, MetricChoice, PlotSeries

CPU = MetricChoice("cgroup_cpu", "container", "cpu.usage", 2)
BANDS = [PhaseBand("steady", 101.0, 103.0), PhaseBand("later", 110.0, 120.0)]


def made(entities: int, seconds: int = 4, short: str = "") -> PlotSeries:
    names = [f"container:c{i}" for i in range(entities)]
    points = [(name, 100.0 + t, i + t / 10, i + 0.0, i + 1.0) for i, name in enumerate(names) for t in range(seconds) if name != short or t]
    rows = tuple(EntitySummary(name, seconds, 1.0, 0.0, 1.0, 2.0) for name in names)
    return PlotSeries(tuple(points), rows, 100.0, 100.0 + seconds - 1, 1.0)


def rows_of(spec: dict) -> list[dict]:
    return spec["datasets"]["series"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("entities", [1, 3, 40])
def test_is_what_vega_lite_takes(view, entities):
    import altair

    spec = specification(CPU, made(entities), BANDS, 101.0, view)
    json.dumps(spec, allow_nan=False)
    altair.Chart.from_dict(spec)  # checks it against Vega-Lite's schema


def test_each_for_itself():
    spec = specification(CPU, made(3), BANDS, 101.0, "each")
    assert len(rows_of(spec)) == 12 and rows_of(spec)[0] == {"e": "container:c0", "x": -1.0, "y": 0.0, "low": 0.0, "high": 1.0}
    assert spec["layer"][1]["encoding"]["y"]["axis"]["title"] == "cpu.usage, cores" if "axis" in spec["layer"][1]["encoding"]["y"] else True


def test_the_sum_leaves_out_instants_at_which_somebody_is_missing():
    total = rows_of(specification(CPU, made(3), [], 100.0, "total"))
    assert [(row["x"], row["y"]) for row in total] == [(0, 3.0), (1, 3.3), (2, 3.6), (3, 3.9)]
    assert [row["x"] for row in rows_of(specification(CPU, made(3, short="container:c1"), [], 100.0, "total"))] == [1, 2, 3]


def test_median_and_spread():
    first = rows_of(specification(CPU, made(5), [], 100.0, "spread"))[0]
    assert first == {"x": 0.0, "y": 2.0, "q1": 1.0, "q3": 3.0, "low": 0.0, "high": 4.0}


def test_only_phases_in_the_time_shown_are_shaded():
    spec = specification(CPU, made(1), BANDS, 101.0, "each")
    assert spec["layer"][0]["data"]["values"] == [{"from": 0.0, "to": 2.0, "name": "steady"}]
    assert all("values" not in layer["data"] for layer in specification(CPU, made(1), [], 101.0, "each")["layer"])


def test_bytes_are_written_as_people_read_them():
    spec = specification(MetricChoice("cgroup_memory", "container", "memory.usage", 1), made(1), [], 100.0, "each")
    axes = [layer["encoding"]["y"]["axis"] for layer in spec["layer"] if "y" in layer["encoding"]]
    assert all("GB" in axis["labelExpr"] for axis in axes)
