from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.report.gate import Gate, gate
from pgherd.report.gate_documents import markdown_code, markdown_text, to_junit, to_markdown
from pgherd.report.gate_metrics import GateRun, MetricLimit


@pytest.fixture(scope="module")
def slower(synthetic, run8):
    record, results = synthetic.density_run(8, seed=3, seconds=4, vcpus=0.25, alone=15_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"hosts": {"local": synthetic.host_facts(4.0, "other")}})
    return gate(GateRun("main", *run8), GateRun("branch", record, results), [MetricLimit("throughput"), MetricLimit("p95", 0.1)])


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
    assert sum("**worse than allowed**" in row for row in table) == len(slower.regressions) > 0


def test_cannot_tell_says_what_would(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=16_000.0, name="20260201-120000-density-bbbb")
    page = to_markdown(gate(GateRun("a", *run8), GateRun("b", record, results)))
    assert page.startswith("### pgherd gate: inconclusive") and "more repeats at each point in each run would settle it" in page


def test_a_run_of_grade_c_fails(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=17_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"analysis": record.analysis.model_copy(update={"grade": "C"})})
    assert to_markdown(gate(GateRun("a", *run8), GateRun("b", record, results))).startswith("### pgherd gate: failed\n")


@given(st.text())
def test_any_text_stays_in_its_cell_and_is_no_markup(words):
    shown = markdown_text(words)
    assert "\n" not in shown and "<" not in shown and not re.search(r"(?<!\\)(?:\\\\)*[|`*_]", shown)
    assert "`" not in markdown_code(words) and "|" not in markdown_code(words) and "\n" not in markdown_code(words)


def conforms(text: str) -> ElementTree.Element:
    """The rules of the schema of Apache Ant's JUnit task, the strictest of those in use: which attributes and elements, in which
    order, and that the counts are true. (The schema itself is not included.)"""
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites" and not root.attrib
    (suite,) = root
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == {"name", "package", "id", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp")) and suite.get("hostname") and suite.get("name")
    tags = [child.tag for child in suite]
    cases = suite.findall("testcase")
    assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
    for name in ("tests", "failures", "errors", "skipped", "id", "time"):
        assert suite.get(name).isdigit()
    for item in suite.find("properties"):
        assert item.tag == "property" and set(item.attrib) == {"name", "value"} and item.get("name")
    for case in cases:
        assert set(case.attrib) == {"name", "classname", "time"} and len(case) <= 1
        assert " ".join(case.get("name").split()) == case.get("name")
        for child in case:
            assert child.tag in ("failure", "skipped")
            assert child.tag != "failure" or set(child.attrib) == {"message", "type"}
    counted = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error", "skipped": "testcase/skipped"}
    assert {name: int(suite.get(name)) for name in counted} == {name: len(suite.findall(path)) for name, path in counted.items()}
    assert len({case.get("name") for case in cases}) == len(cases)
    return suite


@pytest.fixture(scope="module")
def slower_run(synthetic, run8) -> Gate:
    record, results = synthetic.density_run(8, seed=3, seconds=4, vcpus=0.25, alone=15_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"settings": {**record.settings, "io_method": "worker"}})
    return gate(GateRun("main", *run8), GateRun("branch", record, results), [MetricLimit("throughput"), MetricLimit("p95", 0.1)])


def test_a_case_for_each_metric_and_point(slower_run):
    suite = conforms(to_junit(slower_run))
    names = [case.get("name") for case in suite.findall("testcase")]
    assert "throughput over all points" in names and "p95 latency at databases 8" in names
    assert suite.get("name") == "pgherd gate density" and suite.get("timestamp").startswith("2026-")


def test_a_failure_has_its_message_and_what_differs_is_a_property(slower_run):
    suite = conforms(to_junit(slower_run))
    failure = next(case for case in suite.findall("testcase") if case.get("name") == "throughput over all points").find("failure")
    assert failure.get("message").startswith("throughput over all points −1") and "Satterthwaite" not in failure.get("message")
    assert "t interval on logarithms" in failure.text
    assert {"name": "settings: io_method", "value": "sync → worker"} in [item.attrib for item in suite.find("properties")]
    assert suite.find("system-out").text == slower_run.answer


def test_what_cannot_be_told_is_skipped_with_the_reason(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=16_000.0, name="20260201-120000-density-bbbb")
    suite = conforms(to_junit(gate(GateRun("a", *run8), GateRun("b", record, results))))
    assert suite.get("failures") == "0" and int(suite.get("skipped")) > 0
    assert "more repeats at each point in each run would settle it" in suite.find("testcase/skipped").get("message")


def test_a_run_of_grade_c_is_a_failure_of_its_own(synthetic, run8):
    record, results = synthetic.density_run(8, seed=4, seconds=4, vcpus=0.25, alone=17_000.0, name="20260201-120000-density-bbbb")
    record = record.model_copy(update={"analysis": record.analysis.model_copy(update={"grade": "C"})})
    suite = conforms(to_junit(gate(GateRun("a", *run8), GateRun("b", record, results))))
    (case,) = [case for case in suite.findall("testcase") if case.find("failure") is not None]
    assert case.get("name") == "grade" and "grade C" in case.find("failure").get("message")


def test_hostile_names_stay_text(run8, hostile8, synthetic):
    record = run8[0].model_copy(update={"hosts": {}, "study": "density"})
    name = synthetic.HOSTILE + "\n\x00"
    settings = hostile8[0].model_copy(update={"analysis": run8[0].analysis})
    suite = conforms(to_junit(gate(GateRun(name, settings, run8[1]), GateRun("b", record, run8[1]))))
    assert suite.get("hostname") == "localhost"
    assert any("<script>" in item.get("value") for item in suite.find("properties"))
