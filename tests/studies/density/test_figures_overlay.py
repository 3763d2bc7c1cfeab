from __future__ import annotations

import pytest

from pgherd.report import drawing
from pgherd.report.drawing import FigureUnavailable
from pgherd.studies.density import figures_overlay


def test_every_run_has_its_own_colour_and_shape(run8):
    curves = figures_overlay.curves([(f"run {i}", run8[0]) for i in range(5)], "throughput")
    assert len({curve.colour for curve in curves}) == len({curve.shape for curve in curves}) == 5


def test_runs_without_the_table_are_left_out(run8, synthetic):
    runs = [("a", run8[0]), ("b", synthetic.other_study()[0]), ("c", run8[0].model_copy(update={"analysis": None}))]
    assert [curve.name for curve in figures_overlay.curves(runs, "efficiency")] == ["a"]
    with pytest.raises(FigureUnavailable):
        figures_overlay.curves(runs[1:], "efficiency")


def test_titles_carry_the_numbers_and_specifications_are_valid(run8, run40):
    runs = [("small", run8[0]), ("large", run40[0])]
    throughput, efficiency, cpu = (
        one(runs) for one in (figures_overlay.throughput, figures_overlay.efficiency, figures_overlay.efficiency_cpu)
    )
    assert throughput.title == "At the largest point within the cores: small 116.4k tps, large 2.191M tps"
    assert "small keeps 85.6 % at 100 %, large keeps 85.6 % at 100 %" in efficiency.title
    assert cpu.title.startswith("In CPU per transaction, small keeps ") and cpu.title != efficiency.title
    for figure in (throughput, efficiency, cpu):
        assert drawing.specification(figure, validate=True)


def test_a_long_name_is_cut_in_its_middle(run8):
    name = figures_overlay.curves([("20260131-120000-density-with-a-long-name-aaaa", run8[0])], "throughput")[0].name
    assert len(name) <= figures_overlay.LABEL and name.startswith("20260131") and name.endswith("aaaa") and "…" in name
