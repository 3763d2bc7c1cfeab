from __future__ import annotations

import csv
import io
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.analysis import Analysis, Finding
from pgherd.report import data_files
from pgherd.report.data_files import document, document_text, notices
from pgherd.workloads.orders.workload import NOTICE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, []),
        ({"workload": "pgbench"}, []),
        ({"workload": "orders"}, [NOTICE]),
        ({"workload": None, "variants": [{"workload": "orders"}, {"workload": "orders"}]}, [NOTICE]),
        ({"variants": {"a": {"options": {"workload": "orders"}}, "b": {"workload": "pgbench"}}}, [NOTICE]),
        ({"scripts": ["workload"]}, []),
    ],
)
def test_orders_anywhere_in_the_options_is_said_once(options: dict[str, Any], message: list[str]) -> None:
    assert notices(SimpleNamespace(options=options, resumed_on_changed_host=[])) == message  # type: ignore[arg-type]
    assert notices(SimpleNamespace(options=options, resumed_on_changed_host=["elsewhere"])) == [*message, "elsewhere"]  # type: ignore[arg-type]


CELL = st.none() | st.text(max_size=20) | st.integers(-(10**9), 10**9) | st.floats(allow_nan=True)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_finding_becomes_value_low_high_and_unit():
    rows = [
        {"databases": 1, "throughput": Finding(value=64000.0, unit="tps", low=63000.5, high=65000.0), "bottleneck": "quota"},
        {"databases": 4, "throughput": Finding(value=None, unit="tps", note="failed"), "bottleneck": None},
    ]
    assert data_files.csv_text(rows) == (
        "databases,throughput,throughput_low,throughput_high,throughput_unit,bottleneck\r\n"
        "1,64000.0,63000.5,65000.0,tps,quota\r\n"
        "4,,,,tps,\r\n"
    )


def test_a_column_that_only_some_rows_measure_keeps_its_four_fields():
    first, second = read(data_files.csv_text([{"x": 1.5}, {"x": Finding(value=2.0, unit="s")}]))
    assert first == {"x": "1.5", "x_low": "", "x_high": "", "x_unit": ""}
    assert second["x"] == "2.0" and second["x_unit"] == "s"


@given(st.lists(st.dictionaries(st.text("abc", min_size=1, max_size=2), CELL, max_size=4), min_size=1, max_size=5))
def test_every_plain_cell_reads_back(rows):
    text = data_files.csv_text(rows)
    if not data_files.columns(rows):
        return
    for row, result in zip(rows, csv.reader(io.StringIO(text, newline="")), strict=False):
        assert row is not None and result is not None
    names, *lines = list(csv.reader(io.StringIO(text, newline="")))
    lines = [line for line in lines if line] if len(names) > 1 else lines
    assert names == data_files.columns(rows)
    if len(names) > 1:
        assert len(lines) == len(rows)
        for row, line in zip(rows, lines, strict=True):
            for name, field in zip(names, line, strict=True):
                cell = row.get(name)
                if isinstance(cell, float) and math.isfinite(cell):
                    assert float(field) == cell
                elif isinstance(cell, float) or cell is None:
                    assert field == ""
                elif isinstance(cell, int):
                    assert int(field) == cell


def test_files_are_deterministic_named_safely_and_only_for_tables_with_rows(run8, hostile8):
    files = data_files.csv_files(run8[0].analysis)
    assert list(files) == ["cpu.csv", "density.csv", "models.csv"]
    assert files == data_files.csv_files(run8[0].analysis)
    for name in data_files.csv_files(hostile8[0].analysis):
        assert "/" not in name and "<" not in name and not name.startswith(".")


def test_tables_whose_names_fall_together_both_stay():
    analysis = Analysis(answer="", grade="A", tables={"a b": [{"x": 1}], "a/b": [{"x": 2}]})
    assert len(data_files.csv_files(analysis)) == 2


def test_a_summary_stands_before_the_table_that_it_sums_up():
    rows = [{"x": 1}]
    assert data_files.leading("network", {"matrix": rows, "network": rows}) == "matrix"
    assert (
        data_files.leading("network", {"network": rows}) == "network"
        and data_files.leading("disk", {"hosts": rows, "disk": rows}) == "disk"
    )
    assert data_files.leading("scaling", {"points": rows}) == "points" and data_files.leading("scaling", {}) is None


FINDING = {"value", "unit", "low", "high", "confidence", "n", "method", "note", "experiment", "published"}


def strict(text: str):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_document_has_the_documented_fields(run8):
    record, results = run8
    read = strict(document_text(record, results))
    assert read["schema"] == "pgherd/density/2"
    assert read["run"] == record.run and read["study"] == "density" and read["grade"] == "B"
    assert read["answer"] == record.analysis.answer and read["warnings"] == record.analysis.warnings
    assert set(read["findings"]["efficiency_at_saturation"]) == FINDING
    assert set(read["tables"]["density"][0]["throughput"]) == FINDING
    assert read["tables"]["density"][0]["bottleneck"] == "cpu-quota"
    assert len(read["trials"]) == len(results)
    verdict = read["trials"][0]["checks"][0]
    assert {"name", "result", "observed", "expected", "reason"} <= set(verdict)
    assert [trial["id"] for trial in read["trials"] if trial["tainted"]] == [result.id for result in results if result.tainted]
    assert read["trials"][-1]["error"]


def test_hostile_names_stay_names(hostile8, synthetic):
    read = strict(document_text(*hostile8))
    assert read["findings"][synthetic.HOSTILE]["value"] == 1e300
    assert read["run"] == synthetic.HOSTILE


def test_a_run_without_analysis_has_no_answer(run8):
    record = run8[0].model_copy(update={"analysis": None, "state": "interrupted"})
    read = document(record, run8[1][:2])
    assert read["answer"] is None and read["grade"] is None and read["findings"] == {} and read["state"] == "interrupted"
    assert len(read["trials"]) == 2
