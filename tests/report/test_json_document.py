from __future__ import annotations

import json

from pgherd.report.data_files import document, document_text

FINDING = {"value", "unit", "low", "high", "confidence", "n", "method", "note", "experiment", "published"}


def strict(text: str):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_document_has_the_documented_fields(run8):
    record, results = run8
    read = strict(document_text(record, results))
    assert read["schema"] == "pgherd/density/1"
    assert read["run"] == record.run and read["study"] == "density" and read["grade"] == "B"
    assert read["answer"] == record.analysis.answer and read["warnings"] == record.analysis.warnings
    assert set(read["findings"]["efficiency_at_saturation"]) == FINDING
    assert set(read["tables"]["density"][0]["throughput"]) == FINDING
    assert read["tables"]["density"][0]["limited_by"] == "quota"
    assert len(read["trials"]) == len(results)
    verdict = read["trials"][0]["verdicts"][0]
    assert {"check", "result", "observed", "wanted", "why"} <= set(verdict)
    assert [trial["id"] for trial in read["trials"] if trial["tainted"]] == [result.id for result in results if result.tainted]
    assert read["trials"][-1]["error"]


def test_what_is_not_finite_is_null(hostile8, synthetic):
    read = strict(document_text(*hostile8))
    assert read["findings"][synthetic.HOSTILE]["value"] is None
    assert read["run"] == synthetic.HOSTILE


def test_a_run_without_analysis_has_no_answer(run8):
    record = run8[0].model_copy(update={"analysis": None, "state": "interrupted"})
    read = document(record, run8[1][:2])
    assert read["answer"] is None and read["grade"] is None and read["findings"] == {} and read["state"] == "interrupted"
    assert len(read["trials"]) == 2
