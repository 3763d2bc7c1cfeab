from __future__ import annotations

import csv
import io
import math

from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.finding import Analysis, Finding
from pgherd.report import csv_tables

CELL = st.none() | st.text(max_size=20) | st.integers(-(10**9), 10**9) | st.floats(allow_nan=True)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_finding_becomes_value_low_high_and_unit():
    rows = [
        {"databases": 1, "throughput": Finding(value=64000.0, unit="tps", low=63000.5, high=65000.0), "limited_by": "quota"},
        {"databases": 4, "throughput": Finding(value=None, unit="tps", note="failed"), "limited_by": None},
    ]
    assert csv_tables.csv_text(rows) == (
        "databases,throughput,throughput_low,throughput_high,throughput_unit,limited_by\r\n"
        "1,64000.0,63000.5,65000.0,tps,quota\r\n"
        "4,,,,tps,\r\n"
    )


def test_a_column_that_only_some_rows_measure_keeps_its_four_fields():
    first, second = read(csv_tables.csv_text([{"x": 1.5}, {"x": Finding(value=2.0, unit="s")}]))
    assert first == {"x": "1.5", "x_low": "", "x_high": "", "x_unit": ""}
    assert second["x"] == "2.0" and second["x_unit"] == "s"


@given(st.lists(st.dictionaries(st.text("abc", min_size=1, max_size=2), CELL, max_size=4), min_size=1, max_size=5))
def test_every_plain_cell_reads_back(rows):
    text = csv_tables.csv_text(rows)
    if not csv_tables.columns(rows):
        return
    for row, found in zip(rows, csv.reader(io.StringIO(text, newline="")), strict=False):
        assert row is not None and found is not None
    names, *lines = list(csv.reader(io.StringIO(text, newline="")))
    lines = [line for line in lines if line] if len(names) > 1 else lines
    assert names == csv_tables.columns(rows)
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
    files = csv_tables.csv_files(run8[0].analysis)
    assert list(files) == ["cpu.csv", "density.csv", "models.csv"]
    assert files == csv_tables.csv_files(run8[0].analysis)
    for name in csv_tables.csv_files(hostile8[0].analysis):
        assert "/" not in name and "<" not in name and not name.startswith(".")


def test_tables_whose_names_fall_together_both_stay():
    analysis = Analysis(answer="", grade="A", tables={"a b": [{"x": 1}], "a/b": [{"x": 2}]})
    assert len(csv_tables.csv_files(analysis)) == 2


def test_a_summary_stands_before_the_table_that_it_sums_up():
    rows = [{"x": 1}]
    assert csv_tables.leading("network", {"matrix": rows, "network": rows}) == "matrix"
    assert (
        csv_tables.leading("network", {"network": rows}) == "network"
        and csv_tables.leading("disk", {"hosts": rows, "disk": rows}) == "disk"
    )
    assert csv_tables.leading("scaling", {"points": rows}) == "points" and csv_tables.leading("scaling", {}) is None
