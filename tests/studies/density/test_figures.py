from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pgherd.model.finding import Finding
from pgherd.report import chart_style, drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.density import figures
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.study import STUDY


def inputs(record, results=()) -> FigureInputs:
    return FigureInputs(record, record.analysis, results)


def changed(record, **update):
    return record.model_copy(update={"analysis": record.analysis.model_copy(update=update)})


def words(svg: str) -> str:
    return " ".join(text for text in ElementTree.fromstring(svg).itertext())


def test_throughput_shows_both_perfects_models_and_what_limits_each_point(drawn8):
    text = words(drawn8[0]["throughput"].svg)
    for said in ("perfect (1 database × N)", "perfect (linear slope)", "best fit: hinge", "USL", "limited by its quota"):
        assert said in text
    for said in (
        "limited by the host",
        "has tainted trials",
        "all cores are given out",
        "knee of the hinge: 5.6",
        "falls below 85 % at 8.0",
    ):
        assert said in text
    assert "thousand transactions/s" in text


def test_throughput_is_titled_with_the_number_at_all_cores(drawn8):
    assert drawn8[0]["throughput"].figure.title == "8 databases make 116.4k transactions/s, 85.6 % of one database × N; linear up to 5"


def test_a_super_linear_run_names_both_efficiencies_in_its_title(run8):
    rows = [
        {**row, "efficiency": Finding(value=1.18, unit="ratio"), "efficiency_linear": Finding(value=0.97, unit="ratio")}
        for row in run8[0].analysis.tables["density"]
    ]
    figure = figures.throughput(inputs(changed(run8[0], tables={**run8[0].analysis.tables, "density": rows})))
    assert "118.0 % of one database × N (97.0 % of the linear slope × N)" in figure.title
    efficiency = figures.efficiency(inputs(changed(run8[0], tables={"density": rows})))
    assert drawing.specification(efficiency)["layer"][0]["encoding"]["y"]["scale"]["domain"][1] >= 118


@pytest.mark.parametrize("limit", ["quota", "host", "rate", "storage", "clients", "unknown", "something new"])
def test_every_limit_can_be_drawn(run8, limit):
    rows = [{**row, "limited_by": limit} for row in run8[0].analysis.tables["density"]]
    figure = figures.throughput(inputs(changed(run8[0], tables={"density": rows})))
    assert drawing.specification(figure, validate=True)


def test_a_model_is_solid_within_the_data_and_dashed_beyond(run8):
    models = {"usl": {"n": [0, 12], "x": [0, 9]}, "best": "usl"}
    lines = drawing.specification(figures.throughput(inputs(changed(run8[0], figures={"models": models}))))
    rows = [row for held in lines["datasets"].values() for row in json.loads(held)]
    drawn = [row for row in rows if "dash" in row and row["colour"] == chart_style.GREEN]
    assert {(row["x"], tuple(row["dash"])) for row in drawn} == {(0, (1, 0)), (10, (1, 0)), (10, (4, 4)), (12, (4, 4))}


def test_an_end_that_the_data_do_not_reach_is_not_marked(run8):
    findings = {"end_of_linear": Finding(value=10, unit="databases"), "databases_held": Finding(value=99.0, unit="databases")}
    record = changed(run8[0], findings=findings)
    marks = figures._marks(inputs(record), record.analysis.tables["density"])
    assert [text for _, text, _ in marks] == ["all cores are given out"]
    assert figures.throughput(inputs(record)).title.endswith("linear up to 10, the most measured")


def test_published_names_its_source_and_its_known_end(drawn8):
    figure = drawn8[0]["published"].figure
    assert figure.title.endswith("the published curve 85.7 % at 100 %")
    assert "n0derunner.com" in figure.caption and "n0derunner.com" in words(drawn8[0]["published"].svg)


def test_published_without_a_curve_is_not_drawn(run8):
    with pytest.raises(FigureUnavailable, match="no published curve"):
        figures.published(inputs(changed(run8[0], figures={})))


def test_one_point_is_no_curve(run8):
    record = changed(run8[0], tables={"density": run8[0].analysis.tables["density"][:1]})
    for builder in (figures.throughput, figures.efficiency, figures.published):
        with pytest.raises(FigureUnavailable, match="needs two numbers of databases"):
            builder(inputs(record))


def test_small_throughputs_keep_their_unit(run8):
    rows = [
        {**row, "throughput": Finding(value=100.0 * row["databases"], unit="tps"), "perfect": None}
        for row in run8[0].analysis.tables["density"]
    ]
    rows = [{**row, "perfect_linear": None} for row in rows]
    figure = figures.throughput(inputs(changed(run8[0], tables={"density": rows}, figures={})))
    assert "title': 'transactions/s'" in str(drawing.specification(figure))


def test_the_real_study_fits_the_figures(run8, synthetic):
    options = DensityOptions(
        cores=2.0,
        memory=2**36,
        vcpus=0.25,
        cpu_mode="quota",
        runtime="cgroup",
        pg_bin="/x",
        pg_version="18.6",
        points=tuple(synthetic.points(8)),
    )
    record = run8[0].model_copy(update={"analysis": STUDY.analyse(options, run8[1])})
    drawn, left_out = drawing.draw(FigureInputs(record, record.analysis, run8[1]))
    assert left_out == {} and len(drawn) == 8
