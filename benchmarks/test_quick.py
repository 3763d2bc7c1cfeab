"""Every benchmark in its quick form: it runs, and what it writes is well-formed. No timing makes a test fail."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_presence(quick):
    document = quick("presence")
    assert len(document["raw"]) == 6
    assert all(pair["present"] > 0 and pair["absent"] > 0 for pair in document["raw"])
    worked, stopped = (sum(pair[f"pgherd CPU {side}"] for pair in document["raw"]) for side in ("present", "absent"))
    assert worked > stopped, "pgherd is not stopped where it is said to be"


def test_throughput(quick):
    document = quick("throughput")
    assert len(document["raw"]) == 2
    assert all(pair[side]["transactions"] > 0 for pair in document["raw"] for side in ("plain", "pgherd"))


def test_scheduler(quick):
    document = quick("scheduler", "--variant", "batch", "--variant", "cpuset")
    (block,) = document["raw"]
    assert set(block) == {"default", "batch", "cpuset"}
    assert all(row["throughput"] > 0 and 0 < row["CPU share received"] <= 110 and row["by second"] for row in block.values())


def test_placement(quick):
    document = quick("placement")
    (row,) = document["raw"]
    assert row["lower_bound"] <= row["hosts"] < row["hosts_by_peaks"]


def test_plan_truth(quick):
    (plan,) = quick("plan_truth", "--cores", "0.6")["raw"]
    assert len(plan["slots"]) == 6 and all(slot["measured"] > 0 and slot["low"] < slot["value"] for slot in plan["slots"])


def test_tenants(quick):
    rows = quick("tenants")["raw"]
    assert [row["part"] for row in rows] == ["apart"] * 2 + ["quota"] * 2 + ["phases"]
    assert all(set(row["both"]) == {"small", "large"} and row["small"]["small"] > 0 for row in rows[:2])
    assert all(set(row["both"]) == {"first", "second"} and min(row["both"].values()) > 0 for row in rows[2:4])
    assert all(len(row["phases"]) == 8 and {phase["tenants"] for phase in row["phases"]} == {4} for row in rows[4:])
    assert all(phase["done"] > 0 and phase["own CPU"] > 0 for row in rows[4:] for phase in row["phases"])


def test_isolation(quick):
    rows = quick("isolation")["raw"]
    assert sorted({row["part"] for row in rows}) == ["apart", "at a rate", "quota"] and len(rows) == 6
    assert all(row["victim tps"] > 0 and (row["aggressor"] == "none") == (row["aggressor tps"] is None) for row in rows)


def test_log_cost(quick):
    document = quick("log_cost")
    assert len(document["raw"]) == 2
    assert all(side["transactions"] > 0 for block in document["raw"] for side in block.values())


def test_repeated(quick):
    document = quick("repeated")
    assert len(document["raw"]) == 2
    assert all(rate > 0 for pair in document["raw"] for rate in pair.values())


def test_settling(quick):
    rows = quick("settling")["raw"]
    assert rows and all(row["databases"] == 2 and len(row["by second"]) > 20 and min(row["by second"]) > 0 for row in rows)


def test_limit_changes(quick):
    rows = quick("limit_changes")["raw"]
    assert [row["pool"] for row in rows] == ["balloon"]
    assert rows[0]["killed"] or (all(phase["tps"] > 0 for phase in rows[0]["phases"]) and len(rows[0]["phases"]) == 10)


def test_controller_constants(quick):
    rows = quick("controller_constants")["raw"]
    shipped = [row["scenario"] for row in rows if row["constant"] == "as shipped"]
    assert len(shipped) == len(set(shipped)) == 6 and len(rows) > 6, "a change shows"
    assert all(0 < value <= 1 for row in rows for value in row["throughput"] if value is not None)


def test_repeatability(quick):
    rows = quick("repeatability")["raw"]
    assert len(rows) == 2 and all(row["range"] for row in rows)


@pytest.mark.parametrize("name", ["coverage", "coverage_models", "steal_pairs"])
def test_simulated_studies(quick, name):
    document = quick(name)
    assert len(document["figures"]) > 3 and not any(figure["met"] is False and figure["n"] >= 100 for figure in document["figures"])


def test_balloon_oracle(quick):
    assert quick("balloon_grid", "--oracle")["raw"]


def test_sampling(quick):
    document = quick("sampling", "--databases", "2", "3")
    assert {row["databases"] for row in document["raw"]} == {2, 3}
    assert all(row["pgherd by clock"] > 0 and row["backends by clock"] > 0 for row in document["raw"])


def test_metrics_cost(quick):
    document = quick("metrics_cost", "--databases", "2", "3")
    assert {row["databases"] for row in document["raw"]} == {2, 3}
    assert all(row["CPU ms"] > 0 and row["ms"] > 0 and row["samples"] > 50 for row in document["raw"])


def test_fleet_cost(quick):
    rows = {row["part"]: row for row in quick("fleet_cost")["raw"]}
    assert set(rows) == {"sampling", "capture", "prometheus", "end"}
    assert rows["sampling"]["backends %"] > 0 and rows["capture"]["backend CPU s"] > 0
    assert rows["prometheus"]["samples"] > 50 and rows["end"]["s"] > 0


def test_slo_truth(quick):
    document = quick("slo_truth")
    assert {row["series"] for row in document["raw"]} == {"databases", "rate", "every"}
    assert all(row["blocks"] > 2 and row["truth"] > 0 for row in document["raw"])


def test_slo_repeatability(quick):
    rows = quick("slo_repeatability")["raw"]
    assert len(rows) == 2 and all(row["trials"] > 1 and row["answer"] for row in rows)


def test_provision(quick):
    began = time.monotonic()
    pairs = quick("provision", "--databases", "2")["raw"]
    sides = [side for pair in pairs for side in pair.values()]
    assert sides and sum(side["ready"] for side in sides) < time.monotonic() - began
    assert all(side[name] > 0 for side in sides for name in ("containers", "copies", "starts") if name in side)


def test_orders(quick):
    document = quick("orders")
    assert {row["what"] for row in document["raw"]} == {"loading", "new orders", "the whole mix"}
    assert all(side["server"] > 0 for row in document["raw"] for side in row.values() if isinstance(side, dict))


def test_startup(quick):
    assert len(quick("startup")["raw"]) == 10


def test_first_use(quick):
    assert all(seconds > 0 for row in quick("first_use")["raw"] for seconds in row.values())


@pytest.mark.parametrize("study", ["density", "scaling", "compare", "compare, one at a time", "hugepages"])
def test_measuring(quick, study):
    document = quick("measuring", "--study", study)
    assert {figure["name"].partition(": ")[0] for figure in document["figures"]} == {study}
    for row in document["raw"]:
        assert row["study"] == study and 0 < row["share by run.json"] <= 1
        assert row["share by its trials"] == pytest.approx(row["share by run.json"], abs=0.05)
        assert row["measured s"] < row["total s"]


def test_report(quick):
    document = quick("report")
    assert document["settings"]["databases in the largest trial"] >= 40
    assert next(figure["met"] for figure in document["figures"] if figure["name"] == "report.html")


def test_known_truth(quick):
    document = quick("known_truth")
    tries = [row for row in document["raw"] if row["series"] != "calibration"]
    assert sorted(row["series"] for row in tries) == ["quota", "same", "work"]
    assert all(row["ratio"][0] > 0 and row["blocks"] >= 1 for row in tries)
    assert {row["truth"] for row in tries} >= {0.95, 1.0}, "one series' truth is measured"
    assert all(row["commit"] is not None and row["noise"]["steal share"] >= 0 and len(row["cores"]) == 2 for row in tries)


def test_guests(quick):
    document = quick("guests")
    row = document["raw"][0]
    assert 0 < row["touched"] < 512 and row["beyond"] > 0 and row["image"] > 0
    assert row["seconds"]["ready"] > row["seconds"]["booting"] > 0
    watched = document["raw"][-1]
    assert watched["manager"] > 0 and watched["both"] > 0


def test_false_positives(quick):
    document = quick("false_positives")
    assert {row["part"] for row in document["raw"]} >= {"equal", "covers", "power", "equivalence", "others", "places", "hosts"}
    assert all(row["false"] <= row["studies"] for row in document["raw"] if row["part"] == "equal")
    # A few hundred studies prove nothing about a bound, but they show a rule that is badly wrong.
    assert not any(figure["met"] is False for figure in document["figures"])


def test_gate_alarms(quick):
    document = quick("gate_alarms")
    assert all(row["alarms"] <= row["studies"] == 100 for row in document["raw"]) and len(document["raw"]) == 12
    assert not any(figure["met"] is False for figure in document["figures"])


def test_ui(quick):
    pytest.importorskip("starlette")
    document = quick("ui")
    assert document["settings"]["databases in the largest trial"] >= 40
    assert any("first plot" in figure["name"] and figure["goal"] for figure in document["figures"])


def test_cluster(quick):
    pytest.importorskip("distributed")
    document = quick("cluster")
    measured = {"start", "idle, no driver", "idle, held", "skew", "measuring", "killed", "hanging", "cut", "clean"}
    assert {row["what"] for row in document["raw"]} == measured


def test_cluster_hundred(quick):
    pytest.importorskip("distributed")
    assert {row["hosts"] for row in quick("cluster_hundred")["raw"]} == {4, 10}
