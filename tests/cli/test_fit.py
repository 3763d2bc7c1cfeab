"""``pgherd fit`` on published tables and on bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pgherd.cli.fit import command, read_table
from pgherd.model.errors import UsageError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "analysis"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def pairs(path: Path, *columns: str) -> list[tuple[float, float]]:
    table = read_table(path, *columns)
    return list(zip(table.loads, table.throughputs, strict=True))


def refused(path: Path, *arguments: str) -> str:
    result = run(str(path), *arguments)
    assert isinstance(result.exception, UsageError), result.exception
    assert result.exception.exit_code == 2
    return str(result.exception)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_specsdm91_in_json() -> None:
    result = run(str(FIXTURES / "specsdm91.csv"), "--weights", "equal", "--json")
    assert result.exception is None
    document = json.loads(result.stdout)
    assert document["schema"] == "pgherd/fit/2"
    assert document["findings"]["usl_sigma"]["value"] == pytest.approx(0.0277, abs=5e-5)
    assert document["findings"]["usl_kappa"]["value"] == pytest.approx(0.000104, abs=5e-7)
    assert document["findings"]["usl_peak_load"]["value"] == pytest.approx(96.5, abs=0.1)
    assert {row["model"] for row in document["tables"]["models"]} == {"linear", "usl", "piecewise-linear"}


def test_e1_on_the_terminal() -> None:
    result = run(str(FIXTURES / "e1.csv"))
    assert result.exception is None
    text = " ".join(result.stdout.split())
    assert "Best model: piecewise linear (" in text
    assert "knee at 29.1" in text
    assert "piecewise linear *" in text
    assert "sigma is at its bound" in text
    assert "is beyond the largest load measured (40) and is not reported" in text
    assert "…" not in text, "nothing is cut in 80 columns"
    assert text.count("peak at") == text.count("the model's peak at N="), "what is not claimed is not in the table"


def test_one_load_is_too_few(tmp_path: Path) -> None:
    text = " ".join(run(str(write(tmp_path, "1,64\n1,65\n"))).stdout.split())
    assert "2 observations at 1 distinct load are too few to choose a model" in text


def test_repeats_separators_and_no_header(tmp_path: Path) -> None:
    assert pairs(write(tmp_path, "1;10\n1;11\n\n# said\n2;20\n")) == [(1, 10), (1, 11), (2, 20)]
    assert pairs(write(tmp_path, "\ufeffTPS\tclients\n10\t1\n20\t2\n")) == [(1, 10), (2, 20)]
    assert pairs(write(tmp_path, "a,b\n1,10\n")) == [(1, 10)]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "size,users,speed\n7,1,10\n7,2,20\n")
    assert pairs(path, "Users", "speed") == [(1, 10), (2, 20)]
    assert "choose with --throughput-column" in refused(path)
    assert "no column 'x' (it has size, users, speed)" in refused(path, "--load-column", "x")
    assert "the same column" in refused(path, "--load-column", "speed", "--throughput-column", "speed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("load,throughput\n", "no rows"),
        ("load\n1\n", "one column only"),
        ("load,throughput\n1,10\n2,many\n", "line 3: 'many' under throughput is not a number above zero"),
        ("load,throughput\n1,10\n2\n", "line 3: '' under throughput"),
        ("load,throughput\n0,10\n", "'0' under load"),
        ("load,throughput\n1,nan\n", "'nan' under throughput"),
        ("load,throughput\n1,-3\n", "'-3' under throughput"),
        ('load,throughput\n1,"10\n', "not a CSV table"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "absent.csv")
    assert "directory" in refused(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refused(tmp_path / "binary")


def test_two_loads_are_fitted_by_a_line_and_nothing_is_chosen(tmp_path: Path) -> None:
    result = run(str(write(tmp_path, "1,10\n2,20\n")))
    assert result.exception is None
    assert "No model can be selected" in result.stdout


def test_help_imports_no_scientific_library() -> None:
    code = "import sys, pgherd.cli.fit, pgherd.studies.density; print([m for m in ('numpy', 'scipy', 'rich') if m in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
