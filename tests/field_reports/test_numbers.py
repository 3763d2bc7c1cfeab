"""Numbers as people write them, and columns that were guessed."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pgherd.cli import main
from pgherd.cli.fit import command, read_table
from pgherd.drivers.command import read_values
from pgherd.model.errors import UsageError
from pgherd.model.units import parse_number, required_marks
from pgherd.study.study import studies, study_of
from reports import COLUMNS, OUTPUTS, PAIRS, TABLES, Output, Table


@pytest.mark.parametrize("row", [*TABLES, *COLUMNS], ids=lambda row: row.report)
def test_a_table_is_read_as_meant_or_refused(row: Table, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(row.text)
    if isinstance(row.right, str):
        with pytest.raises(UsageError) as refusal:
            read_table(path)
        assert row.right in str(refusal.value)
    else:
        table = read_table(path)
        assert list(zip(table.loads, table.throughputs, strict=True)) == row.right


@pytest.mark.parametrize("row", OUTPUTS, ids=lambda row: row.report)
def test_a_number_in_an_output_is_read_as_meant(row: Output) -> None:
    assert read_values({"v": row.pattern}, {"stdout": row.text}) == {"v": row.right}


def test_the_columns_and_left_out_rows_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("tps;threads\n0;0\n" + "".join(f"{tps},5;{load}\n" for load, tps in PAIRS))
    text = CliRunner().invoke(command, [str(path)], standalone_mode=False).stdout
    assert "Columns: load threads, throughput tps, with decimal commas." in text
    assert "Warning: without load and throughput, and left out: line 2." in text
    document = json.loads(CliRunner().invoke(command, [str(path), "--json"], standalone_mode=False).stdout)
    assert document["columns"] == {"load": "threads", "throughput": "tps"}


def test_a_table_on_standard_input() -> None:
    text = "\n".join(f"{load} {tps}" for load, tps in PAIRS)
    finished = subprocess.run([sys.executable, "-m", "pgherd", "fit", "-"], input=text, capture_output=True, text=True, check=True)
    assert "Columns: load 1, throughput 2." in finished.stdout
    empty = subprocess.run([sys.executable, "-m", "pgherd", "fit", "-"], input="", capture_output=True, text=True)
    assert empty.returncode == 2 and "standard input is empty" in empty.stderr


@given(st.integers(0, 10**12), st.integers(0, 999_999), st.sampled_from([("", "."), (",", "."), ("'", "."), (".", ","), ("\u202f", ",")]))
def test_grouped_numbers_keep_their_value(whole: int, fraction: int, marks: tuple[str, str]) -> None:
    group, mark = marks
    text = f"{whole:,}".replace(",", group) + f"{mark}{fraction:06d}"
    assert parse_number(text, mark) == pytest.approx(whole + fraction / 1e6)  # type: ignore[arg-type]
    assert required_marks([text]) == {mark}


@pytest.mark.parametrize("name", sorted(studies()))
def test_no_option_of_a_study_is_infinite(name: str) -> None:
    model = study_of(name).request_model
    for field in model.model_fields:
        with pytest.raises(ValidationError):
            model.model_validate({field: math.inf})


def test_no_option_of_another_command_is_infinite_or_nan() -> None:
    """Click compares NaN with both ends of a range, and finds it inside."""

    def options(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.params
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                yield from options(command.get_command(click.Context(command), name) or command)

    ranges = [option.type for option in options(main.cli) if isinstance(option.type, click.FloatRange)]
    assert len(ranges) > 4
    for text, kind in itertools.product(("nan", "inf"), ranges):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


@pytest.mark.parametrize("text", ["1,050", "1, 050,2", "8,016,4"])
def test_a_list_of_numbers_with_separators_of_thousands_is_refused(text: str) -> None:
    asked = CliRunner().invoke(main.cli, ["density", "--databases", text, "--dry-run"])
    assert asked.exit_code == 2 and "begins with 0; without separators of thousands, is it" in asked.output
    listed = CliRunner().invoke(main.cli, ["density", "--databases", "1,x", "--dry-run"])
    assert listed.exit_code == 2 and "not a list of whole numbers" in listed.output
