"""Every benchmark in its quick form: it runs, and what it writes is well-formed. No timing makes a test fail."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def quick(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    file = directory / f"{name}.json"
    command = [sys.executable, str(HOME / f"{name}.py"), "--quick", "--seed", "7", "--out", str(file), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(file.read_text())
    assert document["schema"] == "pgherd/benchmark/1"
    assert document["benchmark"] == name
    assert document["quick"] is True
    assert document["raw"]
    assert document["machine"]
    assert 0 <= document["noise"]["steal share"] <= 1
    for figure in document["figures"]:
        assert math.isfinite(figure["value"]) and figure["value"] >= 0, figure
        assert (figure["low"] is None) == (figure["high"] is None), figure
        assert figure["low"] is None or figure["low"] <= figure["value"] <= figure["high"], figure
        assert figure["met"] is None or figure["goal"], figure
        assert figure["name"] in done.stdout
    return document


def test_presence(tmp_path):
    document = quick("presence", tmp_path)
    assert len(document["raw"]) == 6
    assert all(pair["present"] > 0 and pair["absent"] > 0 for pair in document["raw"])
    worked, stopped = (sum(pair[f"pgherd CPU {side}"] for pair in document["raw"]) for side in ("present", "absent"))
    assert worked > stopped, "pgherd is not stopped where it is said to be"


def test_throughput(tmp_path):
    document = quick("throughput", tmp_path)
    assert len(document["raw"]) == 2
    assert all(pair[side]["transactions"] > 0 for pair in document["raw"] for side in ("plain", "pgherd"))


def test_sampling(tmp_path):
    document = quick("sampling", tmp_path, "--databases", "2", "3")
    assert {row["databases"] for row in document["raw"]} == {2, 3}
    assert all(row["pgherd by clock"] > 0 and row["backends by clock"] > 0 for row in document["raw"])


def test_metrics_cost(tmp_path):
    document = quick("metrics_cost", tmp_path, "--databases", "2", "3")
    assert {row["databases"] for row in document["raw"]} == {2, 3}
    assert all(row["CPU ms"] > 0 and row["ms"] > 0 and row["samples"] > 50 for row in document["raw"])


def test_provision(tmp_path):
    for pair in quick("provision", tmp_path, "--databases", "2")["raw"]:
        for side in pair.values():
            assert sum(side[name] for name in ("containers", "copies", "starts") if name in side) == pytest.approx(side["ready"], abs=1e-3)


def test_orders(tmp_path):
    document = quick("orders", tmp_path)
    assert {row["what"] for row in document["raw"]} == {"loading", "new orders", "the whole mix"}
    assert all(side["server"] > 0 for row in document["raw"] for side in row.values() if isinstance(side, dict))


def test_startup(tmp_path):
    assert len(quick("startup", tmp_path)["raw"]) == 10


@pytest.mark.parametrize("study", ["density", "scaling", "compare", "compare, one at a time", "hugepages"])
def test_measuring(tmp_path, study):
    document = quick("measuring", tmp_path, "--study", study)
    assert {figure["name"].partition(": ")[0] for figure in document["figures"]} == {study}
    for row in document["raw"]:
        assert row["study"] == study and 0 < row["share by run.json"] <= 1
        assert row["share by its trials"] == pytest.approx(row["share by run.json"], abs=0.05)
        assert row["measured s"] < row["total s"]


def test_report(tmp_path):
    document = quick("report", tmp_path)
    assert document["settings"]["databases in the largest trial"] >= 40
    assert next(figure["met"] for figure in document["figures"] if figure["name"] == "report.html")


def test_known_truth(tmp_path):
    document = quick("known_truth", tmp_path)
    tries = [row for row in document["raw"] if row["series"] != "calibration"]
    assert sorted(row["series"] for row in tries) == ["quota", "same", "work"]
    assert all(row["ratio"][0] > 0 and row["blocks"] >= 1 for row in tries)
    assert {row["truth"] for row in tries} >= {0.95, 1.0}, "one series' truth is measured"
    assert all(row["commit"] is not None and row["noise"]["steal share"] >= 0 and len(row["cores"]) == 2 for row in tries)


def test_guests(tmp_path):
    document = quick("guests", tmp_path)
    row = document["raw"][0]
    assert 0 < row["touched"] < 512 and row["beyond"] > 0 and row["image"] > 0
    assert row["seconds"]["ready"] > row["seconds"]["booting"] > 0
    watched = document["raw"][-1]
    assert watched["manager"] > 0 and watched["both"] > 0


def test_false_positives(tmp_path):
    document = quick("false_positives", tmp_path)
    assert {row["part"] for row in document["raw"]} >= {"equal", "covers", "power", "equivalence", "others", "places", "hosts"}
    assert all(row["false"] <= row["studies"] for row in document["raw"] if row["part"] == "equal")
    # A few hundred studies prove nothing about a bound, but they show a rule that is badly wrong.
    assert not any(figure["met"] is False for figure in document["figures"])


def test_ui(tmp_path):
    pytest.importorskip("starlette")
    document = quick("ui", tmp_path)
    assert document["settings"]["databases in the largest trial"] >= 40
    assert any("first plot" in figure["name"] and figure["goal"] for figure in document["figures"])


def test_cluster(tmp_path):
    pytest.importorskip("distributed")
    document = quick("cluster", tmp_path)
    measured = {"start", "idle, no driver", "idle, held", "skew", "measuring", "killed", "hanging", "cut", "clean"}
    assert {row["what"] for row in document["raw"]} == measured


def test_cluster_hundred(tmp_path):
    pytest.importorskip("distributed")
    assert {row["hosts"] for row in quick("cluster_hundred", tmp_path)["raw"]} == {4, 10}
