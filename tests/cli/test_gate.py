from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pgherd.cli.gate import parse_metric, regression
from pgherd.cli.main import run
from pgherd.model.errors import UsageError
from pgherd.report.gate_metrics import MetricLimit
from pgherd.store.run_directory import RunDirectory


@pytest.fixture
def two(runs, name, monkeypatch):
    """Directory with the run NAME and slower, equal ones beside it."""
    import sys

    synthetic = sys.modules["synthetic_runs"]
    for alone, seed, other in ((14_000.0, 3, "20260202-120000-density-5105"), (64_000.0, 5, "20260203-120000-density-e0a1")):
        record, results = synthetic.density_run(8, seed=seed, seconds=3, alone=alone, name=other)
        synthetic.write_run(runs / other, record, results)
    return runs


def test_worse_exits_1_and_writes_both_files(two, name, tmp_path, capsys):
    files = ["--junit", str(tmp_path / "out" / "gate.xml"), "--markdown", str(tmp_path / "gate.md")]
    assert run(["gate", name, "5105", "--runs-dir", str(two), *files]) == 1
    output = capsys.readouterr()
    assert output.out.startswith("Worse than allowed: throughput over all points −7") and "gate.xml" in output.out
    assert int(ElementTree.parse(tmp_path / "out" / "gate.xml").getroot()[0].get("failures")) >= 1
    assert (tmp_path / "gate.md").read_text().startswith("### pgherd gate: worse than allowed")


def test_equal_exits_0(two, name, capsys):
    assert run(["gate", name, "e0a1", "--runs-dir", str(two)]) == 0
    assert "worse than allowed: throughput over all points" in capsys.readouterr().out.replace("\n", " ")


def test_the_document_holds_every_comparison_as_findings(two, name, capsys):
    assert (
        run(["gate", name, "5105", "--runs-dir", str(two), "--metric", "p95:10%", "--metric", "efficiency_at_saturation:50%", "--json"])
        == 1
    )
    out = json.loads(capsys.readouterr().out)
    assert out["schema"] == "pgherd/gate/2" and out["failed"] is True and out["result"] == "regression"
    assert {row["metric"] for row in out["tables"]["comparison"]} == {"p95", "efficiency_at_saturation"}
    first = out["tables"]["comparison"][0]
    assert first["change"]["unit"] == "%" and first["change"]["low"] < first["change"]["value"] < first["change"]["high"]
    assert first["max_regression"] == 0.1 and first["better_direction"] == "lower" and first["result"] == "regression"
    assert out["tables"]["differences"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "last"], "no run 'nothing'"),
        (["last", "nothing"], "no run 'nothing'"),
        (["last", "last"], "are the same run"),
        (["5105", "e0a1", "--metric", "speed"], "'speed' is not in run"),
        (["5105", "e0a1", "--metric", "p95:lots%"], "'lots%' is no allowed regression"),
        (["5105", "e0a1", "--max-regression", "5"], "'5' is no allowed regression"),
        (["5105", "e0a1", "--metric", "p95", "--metric", "p95:2%"], "names p95 more than once"),
        (["5105", "e0a1", "--metric", ":5%"], "has no metric"),
        (["5105", "e0a1", "--junit", "{file}/x/gate.xml"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_2(two, name, capsys, arguments, message):
    file = two / name / "run.json"
    assert run(["gate", *(argument.format(file=file) for argument in arguments), "--runs-dir", str(two)]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_an_interrupted_run_is_refused(two, name, capsys):
    directory = RunDirectory(two / name)
    directory.save(directory.record().model_copy(update={"state": "interrupted"}))
    assert run(["gate", name, "e0a1", "--runs-dir", str(two)]) == 2
    assert f"run {name} is not finished (it is interrupted); let it end, or resume it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("throughput", MetricLimit("throughput", 0.05)),
        ("p95:10%", MetricLimit("p95", 0.1)),
        ("p95:.1", MetricLimit("p95", 0.1)),
        ("knee:2%:lower", MetricLimit("knee", 0.02, "lower")),
        ("knee:higher", MetricLimit("knee", 0.05, "higher")),
        ("ratio:big:throughput:3 %", MetricLimit("ratio:big:throughput", 0.03)),
        ("ratio:big:throughput", MetricLimit("ratio:big:throughput", 0.05)),
        ("throughput:0%", MetricLimit("throughput", 0.0)),
    ],
)
def test_what_is_wanted_is_read_from_the_right(text, expected):
    assert parse_metric(text, 0.05) == expected


@pytest.mark.parametrize("text", ["", "5", "100%", "-5%", "five", "5%%", "nan"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(UsageError, match="is no allowed regression"):
        regression(text)
