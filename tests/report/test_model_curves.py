"""Curves of the fitted models, as figures draw them."""

from __future__ import annotations

from pgherd.report import chart_style, model_curves
from pgherd.report.drawing import FigureInputs


def with_models(run, models) -> FigureInputs:
    analysis = run[0].analysis.model_copy(update={"figures": {"models": models}})
    return FigureInputs(run[0], analysis, run[1])


MODELS = {"usl": {"n": [0, 4, 9, 30], "x": [0, 400, 700, 900]}, "hinge": {"n": [0, 8], "x": [0, 800]}, "best": "usl"}


def test_a_curve_has_a_point_where_the_data_end_and_none_far_beyond(run8):
    found = dict(model_curves.curves(with_models(run8, MODELS), 8.0))
    assert found["usl"] == [(0, 0), (4, 400), (8.0, 640.0), (9, 700)]
    assert found["hinge"] == [(0, 0), (8, 800)]


def test_the_chosen_model_stands_out(run8):
    inputs = with_models(run8, MODELS)
    assert model_curves.best(inputs) == "usl"
    lines, labels = model_curves.drawn(inputs, model_curves.curves(inputs, 8.0), 8.0, 100.0)
    assert labels[0] == (7.0, "best fit: USL", chart_style.GREEN)
    assert labels[1][1] == "hinge"
    assert [(dash, points[0], points[-1]) for points, _, _, dash in lines[:2]] == [
        ([1, 0], (0, 0.0), (8.0, 6.4)),
        ([4, 4], (8.0, 6.4), (9, 7.0)),
    ]


def test_variants_have_models_of_their_own(run8):
    analysis = run8[0].analysis.model_copy(update={"figures": {"variant_models": {"old": MODELS, "new": {**MODELS, "best": "hinge"}}}})
    inputs = FigureInputs(run8[0], analysis, run8[1])
    assert [model_curves.best(inputs, name) for name in ("old", "new", "other", "")] == ["usl", "hinge", None, None]
    assert model_curves.best_curve(inputs, 8.0, "new") == [(0, 0), (8, 800)]
    assert model_curves.best_curve(inputs, 8.0, "other") == []
    _, labels = model_curves.drawn(inputs, model_curves.curves(inputs, 8.0, "new"), 8.0, 1.0, "new")
    assert [text for _, text, _ in labels] == ["USL", "best fit: hinge"]


def test_without_models_there_is_nothing(run8):
    for models in (None, [], {"best": None}, {"usl": "x"}):
        inputs = with_models(run8, models)
        assert model_curves.best(inputs) is None
        assert model_curves.curves(inputs, 8.0) == []
