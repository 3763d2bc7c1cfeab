"""Curves of several scaling runs over each other."""

import pytest

from pgherd.model.finding import Analysis, Finding
from pgherd.report import drawing, overlay
from pgherd.report.drawing import FigureUnavailable
from pgherd.studies.scaling import figures_overlay

LINE = {"n": [0, 1, 2, 4, 8], "x": [0, 9_000, 17_000, 30_000, 40_000]}


def scaling(record, factor=1.0, variants=("",), models=True):
    def found(value):
        return Finding(value=value, unit="tps", low=value * 0.98, high=value * 1.02)

    rows = [
        {**({"variant": name} if name else {}), "clients": n, "throughput": found(factor * x)}
        for name in variants
        for n, x in zip(LINE["n"][1:], LINE["x"][1:], strict=True)
    ]
    fitted = {"hinge": {"n": LINE["n"], "x": [factor * x for x in LINE["x"]]}, "best": "hinge"}
    drawn = ({"models": fitted} if variants == ("",) else {"variant_models": dict.fromkeys(variants, fitted)}) if models else {}
    return record.model_copy(
        update={"study": "scaling", "analysis": Analysis(answer="", grade="A", tables={"scaling": rows}, figures=drawn)}
    )


def test_each_run_has_its_points_and_its_best_model(run8):
    runs = [("old", scaling(run8[0])), ("new", scaling(run8[0], 1.2)), ("odd", scaling(run8[0], models=False))]
    curves = figures_overlay.curves(runs)
    assert [len(one.model) for one in curves] == [5, 5, 0] and len({one.rows.colour for one in curves}) == 3
    figure = figures_overlay.throughput(runs)
    assert figure.title == "At most, old 40k tps, new 48k tps, odd 40k tps"
    text = str(drawing.specification(figure, validate=True))
    assert "Dashed: the model" in text


def test_variants_of_a_run_are_curves_of_their_own_each_with_its_model(run8):
    record = scaling(run8[0], variants=("a", "b"))
    del record.analysis.figures["variant_models"]["b"]
    curves = figures_overlay.curves([("run", record)])
    assert [one.name for one in curves] == ["run: a", "run: b"]
    assert [one.model[-1:] for one in curves] == [((8, 40_000),), ()], "another one's model is not drawn for b"


def test_variants_of_one_name_in_runs_of_long_names_are_told_apart(run8):
    record = scaling(run8[0], variants=("synchronous-commit-off", "synchronous-commit-on"))
    runs = [(f"20261122-125315-scaling-{end}", record) for end in ("ab12", "cd34")]
    names = [one.name for one in figures_overlay.curves(runs)]
    assert len(set(names)) == 4 and max(map(len, names)) <= 30, names


def test_nothing_to_draw(run8):
    with pytest.raises(FigureUnavailable):
        figures_overlay.throughput([("density", run8[0])])


def test_the_page_shows_it_and_does_not_miss_densitys_figures(run8):
    record = scaling(run8[0])
    page = overlay.render([("one", record, run8[1]), ("two", scaling(run8[0], 1.1), run8[1])])
    assert "At most, one 40k tps, two 44k tps" in page
    assert "numbers of databases" not in page
