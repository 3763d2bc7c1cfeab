import pytest

from pgherd.studies.hugepages.analyse import published_gain, published_text
from pgherd.studies.hugepages.study import STUDY

MB = 2**20


def test_published_gains_are_those_of_the_reference():
    assert published_gain("2MB") == pytest.approx(7.5, abs=0.05) and published_gain("1GB") == pytest.approx(12, abs=0.1)
    assert published_gain("thp") is None and published_text("none") is None


def test_gains_hold_the_truth_and_have_the_published_ones(build, run):
    options = build(counters_unavailable="no counters")
    analysis = STUDY.analyse(options, run(options, truth={"2MB": 1.075, "1GB": 1.12, "thp": 1.05}))
    rows = {row["pages"]: row for row in analysis.tables["hugepages"]}
    assert list(rows) == ["none", "2MB", "1GB", "thp"] and next(iter(analysis.tables)) == "hugepages"
    for kind, truth in (("2MB", 7.5), ("1GB", 12.0), ("thp", 5.0)):
        gain = rows[kind]["gain"]
        assert gain.low < truth < gain.high and gain.unit == "%" and rows[kind]["conclusion"] == "faster"
        assert analysis.findings[f"gain:{kind}"] == gain
    assert rows["2MB"]["gain"].experiment == "E9" and rows["2MB"]["gain"].published.startswith("+7.52 %")
    assert rows["1GB"]["gain"].published.startswith("+12.1 %") and rows["thp"]["gain"].published is None
    assert rows["none"]["gain"].value is None and rows["none"]["conclusion"] == "baseline"
    assert (rows["2MB"]["pages_reserved"].value, rows["2MB"]["pages_reserved"].unit) == (829, "pages of 2MB")
    assert rows["1GB"]["pages_reserved"].value == 2 and rows["thp"]["pages_reserved"].value == 0
    assert "2MB is faster than none" in analysis.answer


def test_missing_counters_are_unknown_with_the_reason(build, run):
    options = build("none", "2MB", counters_unavailable="this virtual machine does not count")
    analysis = STUDY.analyse(options, run(options))
    for name in ("tlb_misses", "page_walks", "page_walk_cycles", "page_walk_cycle_share"):
        finding = analysis.findings[f"{name}:2MB"]
        assert finding.value is None and "unknown: this virtual machine does not count" in finding.note
    assert any("TLB misses and page walks are unknown" in warning for warning in analysis.warnings)
    assert analysis.grade == "A", "explanatory metrics do not lower the grade"


def test_counters_are_reported_per_transaction(build, run):
    options = build("none", "2MB")
    observed = {
        "tlb.load_misses": 30_000.0,
        "tlb.store_misses": 10_000.0,
        "tlb.walks": 20_000.0,
        "tlb.walk_cycles": 3e8,
        "tlb.cycles": 3e9,
        "pages.mapped": 200.0,
        "pages.huge": 150.0,
    }
    analysis = STUDY.analyse(
        options, run(options, noise=0.0, metrics={"server:db01/pg": observed, "host": {"memory.page_tables": 64.0 * MB}})
    )
    values = {
        name: analysis.findings[f"{name}:none"].value
        for name in ("tlb_misses", "page_walks", "page_walk_cycles", "page_walk_cycle_share", "huge_page_share", "page_tables")
    }
    assert values == pytest.approx(
        {
            "tlb_misses": 4.0,
            "page_walks": 2.0,
            "page_walk_cycles": 30_000.0,
            "page_walk_cycle_share": 0.1,
            "huge_page_share": 0.75,
            "page_tables": 64.0,
        }
    )
    assert not any("unknown" in warning for warning in analysis.warnings)
    assert analysis.findings["tlb_misses:none"].note == ""


def test_a_counter_that_a_sum_lacks_is_named(build, run):
    options = build("none", "2MB")
    analysis = STUDY.analyse(options, run(options, noise=0.0, metrics={"server:db01/pg": {"tlb.load_misses": 30_000.0, "tlb.walks": 1.0}}))
    found = analysis.findings["tlb_misses:none"]
    assert found.value == pytest.approx(3.0) and found.note == "without tlb.store_misses, which the processor's counters did not give"
    assert analysis.findings["page_walks:none"].note == ""


def test_filling_of_page_tables_is_a_warning(build, run):
    options = build("none", "2MB", counters_unavailable="x")

    def analysed(faults):
        results = run(options, noise=0.001)
        changed = []
        for result in results:
            per_tx = faults if str(result.trial.point["variant"]).startswith("none") else 0.0
            phases = [
                phase.model_copy(
                    update={
                        "metrics": {**phase.metrics, "container:db01": {"cpu.usage": 1.0, "memory.page_faults": per_tx * phase.throughput}}
                    }
                )
                for phase in result.phases
            ]
            changed.append(result.model_copy(update={"phases": phases}))
        return STUDY.analyse(options, changed)

    (text,) = [warning for warning in analysed(3.0).warnings if "filling of page tables" in warning]
    assert "by new connections: 3 page faults per transaction with 'none', 0 with '2MB'. A longer --warmup excludes it" in text
    quiet = analysed(0.01)
    assert not any("filling of page tables" in warning for warning in quiet.warnings)
    assert quiet.findings["page_faults:none"].value == pytest.approx(0.01)


def test_another_baseline_has_no_published_figure(build, run):
    options = build("2MB", "1GB", counters_unavailable="x")
    analysis = STUDY.analyse(options, run(options, truth={"1GB": 1.04}))
    assert analysis.findings["gain:1GB"].published is None and analysis.findings["gain:1GB"].experiment is None


def test_without_results_there_is_no_answer(build):
    analysis = STUDY.analyse(build(counters_unavailable="x"), [])
    assert analysis.grade == "C" and analysis.answer.startswith("No result: no trial was run")
    assert all(row["gain"].value is None for row in analysis.tables["hugepages"])


def test_a_page_size_that_never_starts_leaves_the_others(build, run):
    options = build("none", "2MB", "1GB", counters_unavailable="x")
    fail = lambda trial: "no pages" if trial.point["variant"] == "1GB" else None  # noqa: E731
    analysis = STUDY.analyse(options, run(options, fail=fail))
    assert analysis.grade == "C" and any("1GB did not finish: no pages" in warning for warning in analysis.warnings)
