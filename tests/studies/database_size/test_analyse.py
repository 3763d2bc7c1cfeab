from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.studies.database_size.analyse import PUBLISHED, fit_sizes, published_megabytes
from pgherd.studies.database_size.options import SCALES, DatabaseSizeOptions
from pgherd.studies.database_size.study import STUDY

MB = 2**20

MEGABYTE = 1e6
E10 = {1: 23 * MEGABYTE, 10: 157 * MEGABYTE, 100: 1700 * MEGABYTE, 1000: 15e9, 2500: 37e9, 5000: 74e9, 10000: 147e9}


def test_a_line_is_found_and_predicts_e10(options, results):
    analysis = STUDY.analyse(options(), results(SCALES))
    assert analysis.grade == "A"
    assert analysis.findings["size_per_scale"].value * MB == pytest.approx(15_680_000, rel=1e-6)
    assert analysis.findings["base_size"].value * MB == pytest.approx(7_700_000, rel=1e-6)
    for scale in (1000, 2500, 5000, 10000):
        predicted = analysis.findings[f"predicted_size.{scale}"]
        # PostgreSQL 9.x made rows and catalogues a little differently, and E10 rounds to whole GB.
        assert predicted.value == pytest.approx(published_megabytes(scale), rel=0.05)
        assert predicted.low <= predicted.value <= predicted.high and predicted.confidence == 0.95
        assert (predicted.experiment, predicted.published) == ("E10", PUBLISHED[scale])
    assert "scale 1000 would take 14.6 GB" in analysis.answer and "PostgreSQL 18.6" in analysis.answer


def test_the_table_has_measured_and_predicted_with_e10_beside(options, results):
    rows = STUDY.analyse(options(scales=(1, 2, 5, 10), predict=(2, 100)), results((1, 2, 5, 10))).tables["sizes"]
    assert [(row["scale"], row["source"]) for row in rows] == [
        (1, "measured"),
        (2, "measured"),
        (5, "measured"),
        (10, "measured"),
        (100, "predicted"),
    ]
    assert [row["published"] for row in rows] == ["23 MB", None, None, "157 MB", "1.7 GB"]
    first = rows[0]
    assert first["size"].value == pytest.approx(sum(first[part].value for part in ("tables", "indexes", "other")))
    assert first["size"].published == "23 MB" and rows[-1]["tables"] is None
    assert {row["size"].unit for row in rows} == {"MB"}


def test_parts_that_were_not_seen_are_left_out(options, results):
    rows = STUDY.analyse(options(), results(SCALES, parts=False)).tables["sizes"]
    assert rows[0]["tables"] is None and rows[0]["size"].value > 0


def test_fewer_than_four_scales_have_no_interval_and_say_so(options, results):
    analysis = STUDY.analyse(options(scales=(1, 10, 50)), results((1, 10, 50)))
    assert analysis.grade == "B"
    assert analysis.findings["predicted_size.1000"].low is None
    assert any("no interval: 3 scales" in text for text in analysis.warnings)


def test_sizes_off_the_line_are_said(options, results):
    analysis = STUDY.analyse(options(), results(SCALES, sizes={20: 900e6}))
    assert analysis.grade == "B"
    assert any("do not form a line" in text for text in analysis.warnings)


def test_far_predictions_are_marked(options, results):
    warnings = STUDY.analyse(options(predict=(100, 10000, 20000)), results(SCALES)).warnings
    assert any(
        text.startswith("Predictions for scale 10000, 20000 are uncertain: over 100 times the largest measured") for text in warnings
    )


def test_a_scale_that_failed_is_said_and_lowers_the_grade(options, results):
    analysis = STUDY.analyse(options(), results(SCALES, failed=(50,)))
    assert analysis.grade == "B" and "Scale 50 could not be measured: no room" in analysis.warnings


@pytest.mark.parametrize(
    ("scales", "failed", "answer"),
    [((), (), "No result"), ((5,), (5,), "No result"), ((5,), (), "one size gives no line")],
)
def test_too_little_for_a_line_still_gives_an_answer(options, results, scales, failed, answer):
    analysis = STUDY.analyse(options(), results(scales, failed=failed) if scales else [])
    assert answer in analysis.answer and analysis.grade == "C"


@given(st.dictionaries(st.integers(1, 1000), st.floats(1, 1e13), max_size=6), st.sets(st.integers(1, 20000), min_size=1, max_size=4))
def test_any_sizes_give_an_answer(sizes, predict):
    options = DatabaseSizeOptions(pg_bin="/b", pg_version="18.6", scales=tuple(sizes) or (1,), predict=tuple(predict))
    trials = STUDY.propose(options, []).trials
    results = [
        TrialResult(id="0001", trial=trial, started=0, ended=1, probe={"database_bytes": sizes[trial.point["scale"]]})
        for trial in trials
        if sizes
    ]
    analysis = STUDY.analyse(options, results)
    assert analysis.answer.endswith(".") and analysis.grade in "ABC"
    assert all(isinstance(row["size"], Finding) for rows in analysis.tables.values() for row in rows)


def test_e10_is_complete():
    assert list(PUBLISHED) == [1, 10, 100, 1000, 2500, 5000, 10000]
    assert all(published_megabytes(scale) for scale in PUBLISHED)


def test_its_units_are_postgresqls():
    assert published_megabytes(10) == 157
    assert published_megabytes(1000) == 15 * 1024
    assert published_megabytes(7) is None
    # pgbench makes 14.95 MB per unit of scale: in millions of bytes scale 10 would be 164.
    assert published_megabytes(10) == pytest.approx(7.4 + 14.95 * 10, rel=0.01)


def test_scales_that_a_short_run_left_out_are_named(options, results):
    study_options = options(scales=(1, 2, 5, 10))
    analysis = STUDY.analyse(study_options, results((1, 2)))
    assert "Not measured, because the run ended before: scale 5, 10" in analysis.warnings and analysis.grade == "B"


def test_small_scales_of_e10_predict_its_large_ones() -> None:
    sizes = fit_sizes([1, 10, 100, 1000], [E10[s] for s in (1, 10, 100, 1000)])
    assert sizes.base_size == pytest.approx(8 * MEGABYTE, rel=0.2)
    for scale in (2500, 5000, 10000):
        predicted = sizes.predict(scale)
        assert predicted.low <= E10[scale] <= predicted.high


@given(st.floats(0, 1e8), st.floats(1e5, 1e8))
@settings(deadline=None)
def test_recovers_a_line(fixed: float, per_scale: float) -> None:
    scales = [1, 2, 5, 10, 50]
    sizes = fit_sizes(scales, [fixed + per_scale * s for s in scales])
    assert sizes.size_per_scale == pytest.approx(per_scale, rel=1e-6)
    assert sizes.base_size == pytest.approx(fixed, rel=1e-5, abs=1e-6 * per_scale)
    assert sizes.predict(20).value == pytest.approx(fixed + per_scale * 20, rel=1e-6)


def test_three_sizes_have_no_interval_and_say_so() -> None:
    result = fit_sizes([1, 10, 50], [23 * MEGABYTE, 157 * MEGABYTE, 760 * MEGABYTE]).predict(100)
    assert result.low is None
    assert "3 measured sizes" in result.note


def test_a_far_prediction_has_a_note() -> None:
    sizes = fit_sizes([1, 10], [23 * MEGABYTE, 157 * MEGABYTE])
    assert "times beyond the largest measured" in sizes.predict(5000).note
    assert "beyond" not in sizes.predict(500).note


@pytest.mark.parametrize(("scales", "sizes"), [([1], [2.0]), ([1, 1], [2.0, 3]), ([1, 2], [1.0]), ([1, 2], [1.0, -1]), ([0, 1], [1.0, 2])])
def test_unusable_sizes_are_refused(scales: list[float], sizes: list[float]) -> None:
    with pytest.raises(UsageError):
        fit_sizes(scales, sizes)
