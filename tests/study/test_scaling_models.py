"""Models as findings, rows and curves."""

from __future__ import annotations

import pytest

from pgherd.analysis.model_selection import fit_models
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings

E1 = [1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194]
SPECSDM91 = [1, 18, 36, 72, 108, 144, 216], [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2]


def test_e1() -> None:
    selection = fit_models(*E1)
    result = model_findings(selection)
    assert result["usl_sigma"].value == 0
    assert "at its bound" in result["usl_sigma"].note
    assert result["usl_peak_load"].value is None
    assert result["knee"].low < result["knee"].value < result["knee"].high
    rows = {row["model"]: row for row in model_rows(selection)}
    assert [name for name, row in rows.items() if row["selected"]] == ["piecewise-linear"]
    assert any(text.startswith("USL: ") and "not separately identifiable" in text for text in model_warnings(selection))


def test_a_peak_within_the_data_is_claimed() -> None:
    result = model_findings(fit_models(*SPECSDM91, "equal"))
    assert result["usl_peak_load"].value == pytest.approx(96.5, abs=0.1)
    assert result["usl_peak_load"].low < 96.5 < result["usl_peak_load"].high


def test_a_straight_line_has_no_knee_and_no_second_slope() -> None:
    loads, throughputs = [1, 2, 3, 5, 6, 8] * 2, [100, 199, 301, 500, 602, 797, 101, 201, 299, 502, 598, 803]
    selection = fit_models(loads, throughputs)
    assert selection.best is not None
    assert selection.best.model.name == "linear"
    result = model_findings(selection)
    for name in ("knee", "slope_after_knee"):
        assert result[name].value is None
        assert result[name].note


def test_one_load_beyond_the_knee_does_not_give_a_slope() -> None:
    loads = [1, 2, 4, 8, 10] * 3
    result = model_findings(fit_models(loads, [100.0 * min(n, 8) * (1 + 0.01 * (i % 3 - 1)) for i, n in enumerate(loads)]))
    assert "the second slope is not known" in result["slope_after_knee"].note


def test_a_peak_that_the_data_do_not_bound_is_not_claimed() -> None:
    selection = fit_models(*SPECSDM91, "equal")
    hinge = next(row for row in model_rows(selection) if row["model"] == "piecewise-linear")
    assert hinge["peak"].value is None
    assert "not reported" in hinge["peak"].note


def test_too_few_loads_say_why() -> None:
    selection = fit_models([1, 2], [10, 20])
    result = model_findings(selection)
    for name in ("usl_sigma", "knee"):
        assert result[name].value is None
        assert "3 parameters, but 2 distinct loads" in result[name].note
    assert model_curves(selection, 2)["best"] is None and model_curves(selection, 2)["compared"] == 0


def test_the_knee_is_a_point_of_its_curve() -> None:
    selection = fit_models(*E1)
    hinge = selection.get("piecewise-linear")
    assert hinge is not None
    figure = model_curves(selection, 40)
    assert hinge.knee in figure["piecewise-linear"]["n"]
    assert figure["usl"]["n"][-1] == 40
    assert figure["usl"]["x"][0] == 0
    assert figure["best"] == "piecewise-linear" and figure["compared"] == 3
