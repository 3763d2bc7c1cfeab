import pytest

from pgherd.studies.hugepages.study import STUDY

MB = 2**20


def test_gains_stand_beside_the_published_ones_and_hold_the_truth(build, run):
    options = build(uncounted="no counters")
    found = STUDY.analyse(options, run(options, truth={"2MB": 1.075, "1GB": 1.12, "thp": 1.05}))
    rows = {row["pages"]: row for row in found.tables["hugepages"]}
    assert list(rows) == ["none", "2MB", "1GB", "thp"] and next(iter(found.tables)) == "hugepages"
    for kind, truth in (("2MB", 7.5), ("1GB", 12.0), ("thp", 5.0)):
        gain = rows[kind]["gain"]
        assert gain.low < truth < gain.high and gain.unit == "%" and rows[kind]["verdict"] == "faster"
        assert found.findings[f"gain:{kind}"] == gain
    assert rows["2MB"]["gain"].experiment == "E9" and rows["2MB"]["gain"].published.startswith("+7.52 %")
    assert rows["1GB"]["gain"].published.startswith("+12.1 %") and rows["thp"]["gain"].published is None
    assert rows["none"]["gain"].value is None and rows["none"]["verdict"] == "baseline"
    assert (rows["2MB"]["reserved"].value, rows["2MB"]["reserved"].unit) == (829, "pages of 2MB")
    assert rows["1GB"]["reserved"].value == 2 and rows["thp"]["reserved"].value == 0
    assert "2MB is faster than none" in found.answer


def test_what_the_processor_does_not_show_is_unknown_with_the_reason(build, run):
    options = build("none", "2MB", uncounted="this virtual machine does not count")
    found = STUDY.analyse(options, run(options))
    for name in ("tlb_misses", "walks", "walk_cycles", "walking"):
        finding = found.findings[f"{name}:2MB"]
        assert finding.value is None and "unknown: this virtual machine does not count" in finding.note
    assert any("TLB misses and page walks are unknown" in warning for warning in found.warnings)
    assert found.grade == "A", "what explains a result is no verdict on it"


def test_counters_are_told_per_transaction(build, run):
    options = build("none", "2MB")
    seen = {
        "tlb.load_misses": 30_000.0,
        "tlb.store_misses": 10_000.0,
        "tlb.walks": 20_000.0,
        "tlb.walk_cycles": 3e8,
        "tlb.cycles": 3e9,
        "pages.mapped": 200.0,
        "pages.huge": 150.0,
    }
    found = STUDY.analyse(options, run(options, noise=0.0, metrics={"server:db01/pg": seen, "host": {"memory.page_tables": 64.0 * MB}}))
    values = {
        name: found.findings[f"{name}:none"].value for name in ("tlb_misses", "walks", "walk_cycles", "walking", "backed", "page_tables")
    }
    assert values == pytest.approx(
        {"tlb_misses": 4.0, "walks": 2.0, "walk_cycles": 30_000.0, "walking": 0.1, "backed": 0.75, "page_tables": 64.0}
    )
    assert not any("unknown" in warning for warning in found.warnings)


def test_page_tables_that_are_still_being_filled_are_said(build, run):
    options = build("none", "2MB", uncounted="x")

    def analysed(faults):
        results = run(options, noise=0.001)
        told = []
        for result in results:
            per_tx = faults if str(result.trial.point["variant"]).startswith("none") else 0.0
            phases = [
                phase.model_copy(
                    update={"metrics": {**phase.metrics, "container:db01": {"cpu.usage": 1.0, "memory.fault": per_tx * phase.throughput}}}
                )
                for phase in result.phases
            ]
            told.append(result.model_copy(update={"phases": phases}))
        return STUDY.analyse(options, told)

    (said,) = [warning for warning in analysed(3.0).warnings if "still filling their page tables" in warning]
    assert said.startswith("There were 3 page faults per transaction with 'none' and 0 with '2MB': new connections were still filling")
    quiet = analysed(0.01)
    assert not any("still filling" in warning for warning in quiet.warnings)
    assert quiet.findings["faults:none"].value == pytest.approx(0.01)


def test_another_baseline_has_no_published_figure_beside_it(build, run):
    options = build("2MB", "1GB", uncounted="x")
    found = STUDY.analyse(options, run(options, truth={"1GB": 1.04}))
    assert found.findings["gain:1GB"].published is None and found.findings["gain:1GB"].experiment is None


def test_without_any_result_nothing_is_said_and_nothing_breaks(build):
    found = STUDY.analyse(build(uncounted="x"), [])
    assert found.grade == "C" and found.answer.startswith("No result")
    assert all(row["gain"].value is None for row in found.tables["hugepages"])


def test_a_kind_that_never_starts_leaves_the_others(build, run):
    options = build("none", "2MB", "1GB", uncounted="x")
    fail = lambda trial: "no pages" if trial.point["variant"] == "1GB" else None  # noqa: E731
    found = STUDY.analyse(options, run(options, fail=fail))
    assert found.grade == "C" and any("1GB did not finish: no pages" in warning for warning in found.warnings)
