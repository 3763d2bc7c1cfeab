from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from pgherd.model.analysis import Analysis, Finding
from pgherd.report import terminal


def printed(record, results, directory=None, width=100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    terminal.show(console, record, results, directory)
    return console.file.getvalue()


def test_the_answer_comes_first_then_the_grade_then_the_table(run40):
    lines = printed(*run40).splitlines()
    assert lines[0].startswith("This host holds 40 databases")
    assert any(line.startswith("Grade B: ") for line in lines[:4])
    text = "\n".join(lines)
    assert text.index("Grade B") < text.index("databases  allocated") < text.index("Warnings") < text.index("Next steps")


def test_an_indication_is_named_once(run40):
    record, results = run40
    analysis = record.analysis.model_copy(update={"answer": "Indication only: 40 databases.", "grade": "C"})
    text = printed(record.model_copy(update={"analysis": analysis}), results)
    assert text.lower().count("indication only") == 1 and "Grade C: Half or more of the results" in text


def test_without_a_trial_neither_taints_nor_their_absence_are_told(run40):
    text = printed(run40[0], [])
    assert "Grade B: no trials.\n" in text and "0 trials" not in text


def test_the_density_table_fits_100_columns_with_all_of_its_columns(run40):
    text = printed(*run40)
    assert max(map(len, text.splitlines())) <= 100
    head = next(line for line in text.splitlines() if line.lstrip().startswith("databases"))
    assert head.split() == ["databases", "allocated", "tps", "received", "%", "%", "bottleneck", "ms", "trials", "%"]
    row = next(line for line in text.splitlines() if line.split()[:1] == ["40"])
    assert "2.191M ±" in row and "85.6 ±" in row and " 1/3 " in row and " host-cpu " in row


def test_a_narrow_terminal_loses_whole_columns_and_never_wraps_a_head(run8):
    text = printed(*run8, width=60)
    head = next(line for line in text.splitlines() if line.lstrip().startswith("databases"))
    assert head.split() == ["databases", "allocated", "tps", "received", "%", "%"] and "more column" in text


def test_where_there_is_no_number_there_is_a_dash(synthetic, run8):
    text = printed(synthetic.without_numbers(run8[0]), run8[1])
    row = next(line for line in text.splitlines() if line.split()[:1] == ["8"])
    assert row.split()[3:6] == ["–"] * 3


def test_names_are_text_and_cannot_steer_the_terminal(hostile8):
    text = printed(*hostile8)
    assert "\x1b" not in text and "[bold]not markup[/bold]" in text and "<script>" in text


def test_any_study_shows_its_first_table(synthetic):
    record, results = synthetic.other_study()
    text = printed(record, results)
    assert "2 MB pages gain 7.5 %." in text and "throughput, tps" in text and "62.19k ±1.9 %" in text


def test_columns_without_room_are_counted_not_cut(run8):
    row = {f"a_rather_long_column_{i}": Finding(value=float(i), unit="tps") for i in range(12)}
    analysis = Analysis(answer="x", grade="A", tables={"other": [row]})
    text = printed(run8[0].model_copy(update={"study": "other", "analysis": analysis}), [])
    assert "more columns of this table in the report" in text and max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("state", "error"), [("interrupted", None), ("failed", "the disk is full")])
def test_without_an_analysis_the_state_stands_in_the_answers_place(run8, state, error):
    text = printed(run8[0].model_copy(update={"analysis": None, "state": state, "error": error}), [])
    assert text.startswith(f"No answer: this run {'failed' if state == 'failed' else 'is interrupted'}") and "pgherd resume" in text
    assert error is None or error in text
    assert "pgherd report" not in text, "there is no trial to report on"
    some = printed(run8[0].model_copy(update={"analysis": None, "state": state, "error": error}), run8[1][:2])
    assert f"report its finished trials: pgherd report {run8[0].run} " in " ".join(some.split())


@pytest.mark.parametrize("width", [60, 100])
def test_a_command_stands_on_one_line_to_be_copied(run8, width):
    record, results = run8
    command = f"pgherd density --points {','.join(map(str, range(1, 40)))} --like '/a directory/postgresql.conf' --budget 10m"
    analysis = record.analysis.model_copy(
        update={"next_steps": [f"measure again while the machine is quiet, {'since ' * 20}(steal): {command}"]}
    )
    lines = printed(record.model_copy(update={"analysis": analysis}), results, width=width).splitlines()
    location = lines.index(f"    {command}")
    assert lines[location - 1].endswith("(steal):") and max(map(len, lines[:location])) <= width


def test_it_names_the_report_when_there_is_one(run8, tmp_path):
    assert str(tmp_path) in printed(*run8, tmp_path).replace("\n    ", "")
    (tmp_path / "report.html").touch()
    assert "report.html" in printed(*run8, tmp_path).replace("\n    ", "")


def test_terminal_and_document_import_neither_plotting_nor_scientific_libraries():
    code = (
        "import sys, pgherd.report.terminal, pgherd.report.data_files\n"
        "print(sorted({'altair', 'vl_convert', 'jinja2', 'numpy', 'scipy', 'duckdb'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_comparison_shows_changes_verdicts_and_the_noise_floor(synthetic):
    record, results = synthetic.other_study()
    row = {
        "variant": "big",
        "metric": "throughput",
        "unit": "tps",
        "baseline": Finding(value=62_190.0, unit="tps"),
        "value": Finding(value=65_175.0, unit="tps"),
        "ratio_to_baseline": Finding(value=1.048, unit="", low=1.031, high=1.064),
        "conclusion": "faster",
        "aa_ratio": Finding(value=1.001, unit="", low=0.993, high=1.011),
    }
    other = row | {
        "metric": "p99",
        "unit": "ms",
        "baseline": Finding(value=0.4, unit="ms"),
        "ratio_to_baseline": Finding(value=1.2, unit=""),
        "conclusion": "inconclusive",
        "aa_ratio": Finding(value=None, unit=""),
    }
    fine = row | {
        "metric": "memory",
        "ratio_to_baseline": Finding(value=1.0004, unit="", low=0.9995, high=1.0012),
        "aa_ratio": Finding(value=1.02, unit=""),
    }
    wide = Finding(value=4.0, unit="", low=1e-6, high=1e9)
    lost = row | {"metric": "p95", "ratio_to_baseline": wide, "conclusion": "inconclusive", "aa_ratio": wide}
    tables = {"comparison": [row, other, fine, lost], "blocks": [{"block": 0}]}
    analysis = Analysis(answer="big is faster than base.", grade="A", tables=tables)
    text = printed(record.model_copy(update={"study": "compare", "analysis": analysis}), results)
    lines = [line.split("  ") for line in text.splitlines()]
    shown = [[word.strip() for word in line if word.strip()] for line in lines]
    assert ["big", "throughput", "+4.8 % (+3.1 … +6.4 %)", "faster", "±1.1 %", "62.19k tps"] in shown
    assert ["big", "p99", "+20.0 %", "inconclusive", "–", "0.4 ms"] in shown
    assert ["big", "memory", "+0.04 % (−0.05 … +0.12 %)", "faster", "±2.0 %", "62.19k tps"] in shown
    assert ["big", "p95", "+300 % (unbounded)", "inconclusive", "unbounded", "62.19k tps"] in shown
