from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.report.gate import gate
from pgherd.report.gate_metrics import MetricLimit, Run
from pgherd.report.gate_documents import code, text, to_markdown


@pytest.fixture(scope="module")
def slower(synthetic, run8):
    record, results = synthetic.density_run(8, seed=3, seconds=4, vcpus=0.25, alone=15_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"hosts": {"local": synthetic.host_facts(4.0, "other")}})
    return gate(Run("main", *run8), Run("branch", record, results), [MetricLimit("throughput"), MetricLimit("p95", 0.1)])


def rows(page: str) -> list[list[str]]:
    """Cells of all lines of tables, split where Markdown splits them."""
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines() if line.startswith("|")]


def test_the_sentence_comes_first_then_the_table_then_what_differs(slower):
    page = to_markdown(slower)
    assert page.startswith("### pgherd gate: worse than allowed\n\n**Worse than allowed: throughput over all points −1")
    assert page.index("this compares two platforms") < page.index("| metric |") < page.index("Host facts that differ (4)")
    assert "The same in both: settings, versions." in page and page.endswith("\n")


def test_every_comparison_is_a_row_of_seven_cells(slower):
    table = [row for row in rows(to_markdown(slower)) if len(row) == 7]
    assert len(table) == 2 + len(slower.comparisons)
    assert ["throughput", "all points", "–", "–"] in [row[:4] for row in table]
    assert sum("**worse than allowed**" in row for row in table) == len(slower.worse) > 0


def test_cannot_tell_says_what_would(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=16_000.0, name="20260201-120000-density-bbbb")
    page = to_markdown(gate(Run("a", *run8), Run("b", record, results)))
    assert page.startswith("### pgherd gate: cannot tell") and "more repeats at each point in each run would tell" in page


def test_a_run_of_grade_c_fails(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=17_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"analysis": record.analysis.model_copy(update={"grade": "C"})})
    assert to_markdown(gate(Run("a", *run8), Run("b", record, results))).startswith("### pgherd gate: failed\n")


@given(st.text())
def test_any_text_stays_in_its_cell_and_is_no_markup(words):
    shown = text(words)
    assert "\n" not in shown and "<" not in shown and not re.search(r"(?<!\\)(?:\\\\)*[|`*_]", shown)
    assert "`" not in code(words) and "|" not in code(words) and "\n" not in code(words)
