from __future__ import annotations

import json

import pytest

from pgherd.ui.sample_queries import EntitySummary, MetricChoice, PlotSeries
from pgherd.ui.samples_page import VIEWS, PhaseBand, specification

FIRST = "20260131-120000-density-0001"
PAGE = f"/runs/{FIRST}/explore"


def test_the_first_look_shows_the_containers_cpu(client, spec_of):
    text = client.get(f"{PAGE}?trial=0001").text
    assert "cpu.usage of containers in trial 0001" in text
    assert {row["y"] for row in spec_of(text)["datasets"]["series"]} == {0.5}


def test_another_metric(client, spec_of):
    text = client.get(PAGE, params={"trial": "0001", "metric": "host/cpu/cpu.user"}).text
    assert "cpu.user of the host" in text and spec_of(text)["datasets"]["series"][0]["y"] == 0.7


def test_what_another_trial_lacks_is_replaced_by_the_like(client):
    text = client.get(PAGE, params={"trial": "0001", "metric": "container/processes/cpu.usage"}).text
    assert "cpu.usage of containers" in text


def test_a_phase_and_a_time(client, spec_of):
    rows = spec_of(client.get(PAGE, params={"trial": "0001", "phase": "1"}).text)["datasets"]["series"]
    assert rows and all(row["x"] >= 0 for row in rows)
    rows = spec_of(client.get(PAGE, params={"trial": "0001", "from": "0.5", "to": "1.5"}).text)["datasets"]["series"]
    assert {row["x"] for row in rows} == {1.0}


@pytest.fixture
def many(runs):
    """A trial of four databases."""
    files = sorted((runs / FIRST / "trials").glob("*/trial.json"))
    return next(file.parent.name for file in files if '"databases":4' in file.read_text().replace(" ", ""))


def test_some_containers(client, many, spec_of):
    text = client.get(PAGE, params={"trial": many, "entity": "container:c02"}).text
    assert {row["e"] for row in spec_of(text)["datasets"]["series"]} == {"container:c02"} and "1 of 4 containers" in text
    assert "sum</option>" in client.get(PAGE, params={"trial": many, "view": "total"}).text


ALL = {"container:c01", "container:c02", "container:c03", "container:c04"}


@pytest.mark.parametrize(
    "metric, entities, shown",
    [
        ("host/cpu/cpu.user", ["container:c02"], {"host"}),
        ("container/cgroup_memory/memory.usage", ["host"], ALL),
        ("container/cgroup_cpu/cpu.usage", ["container:c77"], ALL),
        ("container/cgroup_cpu/cpu.usage", ["container:c02", "container:c77"], {"container:c02"}),
        ("container/cgroup_cpu/cpu.usage", ["container:x' OR 1=1"] * 150, ALL),
    ],
)
def test_entities_that_this_metric_or_trial_lacks_are_not_chosen(client, many, spec_of, metric, entities, shown):
    text = client.get(PAGE, params={"trial": many, "metric": metric, "entity": entities}).text
    assert {row["e"] for row in spec_of(text)["datasets"]["series"]} == shown and text.count(" checked>") == len(shown & set(entities))


def test_a_phase_that_this_trial_lacks_is_the_entire_trial(client, spec_of):
    query = {"trial": "0001", "metric": "container/cgroup_memory/memory.usage"}
    specs = [spec_of(client.get(PAGE, params={**query, "phase": phase}).text) for phase in ("", "2", "999999", "1")]
    assert specs[0] == specs[1] == specs[2] != specs[3]


def test_its_script_gets_the_part_alone(client):
    text = client.get(f"{PAGE}?trial=0001", headers={"HX-Request": "true", "HX-Target": "explorer"}).text
    assert text.startswith('<div id="explorer">') and "plot-spec" in text


def test_nothing_in_the_time_shown(client):
    text = client.get(PAGE, params={"trial": "0001", "from": "5000"}).text
    assert "There are no readings in the time shown" in text and "plot-spec" not in text


def test_a_trial_that_was_not_watched(client, runs):
    last = sorted(path.name for path in (runs / FIRST / "trials").iterdir())[-1]  # it did not finish
    text = client.get(PAGE, params={"trial": last}).text
    assert "has no samples" in text and 'name="trial"' in text


def test_a_run_that_was_not_watched_offers_no_trial(client, runs):
    for file in (runs / FIRST / "trials").glob("*/samples/*"):
        file.unlink()
    text = client.get(PAGE).text
    assert "No trial of this run has samples" in text and 'name="trial"' not in text


def test_begins_with_the_largest_point(client):
    assert "databases 5" in client.get(PAGE).text.partition('class="plot-title"')[2].partition("</h2>")[0]


@pytest.mark.parametrize(
    "query",
    [
        {"trial": "../0001"},
        {"trial": "9999"},
        {"metric": "x"},
        {"metric": "../cpu.nothing"},
        {"metric": "container/cgroup_cpu/'; DROP TABLE x"},
        {"phase": "0"},
        {"phase": "-1"},
        {"phase": "1000000"},
        {"phase": "²"},
        {"from": "soon"},
        {"from": "nan"},
        {"to": "1e999"},
        {"from": "2", "to": "1"},
        {"view": "pie"},
    ],
)
def test_what_is_not_there_is_refused(client, query):
    answer = client.get(PAGE, params={"trial": "0001", **query})
    assert answer.status_code == 400 and 'role="alert"' in answer.text


CPU = MetricChoice("cgroup_cpu", "container", "cpu.usage", ())
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
    assert spec["layer"][1]["encoding"]["y"]["axis"]["title"] == "cpu.usage, cores"


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
    spec = specification(MetricChoice("cgroup_memory", "container", "memory.usage", ()), made(1), [], 100.0, "each")
    axes = [layer["encoding"]["y"]["axis"] for layer in spec["layer"] if "y" in layer["encoding"]]
    assert all("GB" in axis["labelExpr"] and "/s" not in axis["labelExpr"] for axis in axes)


def test_rates_are_in_powers_of_1000():
    spec = specification(MetricChoice("disk", "disk", "read_bytes", ()), made(1), [], 100.0, "each")
    axes = [layer["encoding"]["y"]["axis"] for layer in spec["layer"] if "y" in layer["encoding"]]
    assert all("datum.value / 1e6, '.3~g') + ' MB/s'" in axis["labelExpr"] and axis["title"] == "read_bytes" for axis in axes)
