"""Figures of density runs."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pgherd.model.analysis import Analysis, Finding
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


def test_throughput_shows_the_ideal_models_and_what_limits_each_point(drawn8):
    text = words(drawn8[0]["throughput"].svg)
    for said in ("ideal", "best fit: piecewise linear", "USL", "limited by the CPU quota"):
        assert said in text
    for said in (
        "limited by the host",
        "has tainted trials",
        "all cores allocated",
        "knee of the piecewise linear model: 5.6",
        "capacity at 85 %: 8.0",
    ):
        assert said in text
    assert "thousand transactions/s" in text


def test_throughput_is_titled_with_the_number_at_all_cores(drawn8):
    assert drawn8[0]["throughput"].figure.title == "8 databases make 116.4k transactions/s, 85.6 % of ideal; linear up to 5"


def test_an_efficiency_above_100_percent_is_within_the_axis(run8):
    rows = [{**row, "efficiency": Finding(value=1.18, unit="ratio")} for row in run8[0].analysis.tables["density"]]
    figure = figures.throughput(inputs(changed(run8[0], tables={**run8[0].analysis.tables, "density": rows})))
    assert "118.0 % of ideal" in figure.title
    efficiency = figures.efficiency(inputs(changed(run8[0], tables={"density": rows})))
    assert drawing.specification(efficiency)["layer"][0]["encoding"]["y"]["scale"]["domain"][1] >= 118


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        ("cpu-quota", "limited by the CPU quota"),
        ("cpuset", "limited by the CPU set"),
        ("vcpus", "limited by the guest's vCPUs"),
        ("host-cpu", "limited by the host"),
        ("rate-limit", "met its rate"),
        ("storage", "limited by storage"),
        ("client-cpu", "limited by the clients"),
        ("unknown", "unknown"),
        ("something new", "unknown"),
    ],
)
def test_every_limit_is_drawn_with_its_name(run8, limit, name):
    rows = [{**row, "bottleneck": limit} for row in run8[0].analysis.tables["density"]]
    figure = figures.throughput(inputs(changed(run8[0], tables={"density": rows})))
    assert f'"{name}"' in json.dumps(drawing.specification(figure, validate=True))


def test_a_model_is_solid_within_the_data_and_dashed_beyond(run8):
    models = {"usl": {"n": [0, 12], "x": [0, 9]}, "best": "usl"}
    lines = drawing.specification(figures.throughput(inputs(changed(run8[0], figures={"models": models}))))
    rows = [row for held in lines["datasets"].values() for row in json.loads(held)]
    drawn = [row for row in rows if "dash" in row and row["colour"] == chart_style.GREEN]
    assert {(row["x"], tuple(row["dash"])) for row in drawn} == {(0, (1, 0)), (10, (1, 0)), (10, (4, 4)), (12, (4, 4))}


def test_an_end_that_the_data_do_not_reach_is_not_marked(run8):
    findings = {"linear_range_end": Finding(value=10, unit="databases"), "capacity": Finding(value=99.0, unit="databases")}
    record = changed(run8[0], findings=findings)
    marks = figures._marks(inputs(record), record.analysis.tables["density"])
    assert [text for _, text, _ in marks] == ["all cores allocated"]
    assert figures.throughput(inputs(record)).title.endswith("linear up to 10, the largest number measured")


def test_published_names_its_source_and_its_known_end(drawn8):
    figure = drawn8[0]["published"].figure
    assert figure.title.endswith("the published curve has 85.7 % at 100 %")
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
        {**row, "throughput": Finding(value=100.0 * row["databases"], unit="tps"), "ideal": None}
        for row in run8[0].analysis.tables["density"]
    ]
    figure = figures.throughput(inputs(changed(run8[0], tables={"density": rows}, figures={})))
    assert "title': 'transactions/s'" in str(drawing.specification(figure))


def test_the_real_study_fits_the_figures(run8, synthetic):
    options = DensityOptions(
        host_cores=2.0,
        host_memory=2**36,
        vcpus=0.25,
        cpu_mode="quota",
        runtime="cgroup",
        pg_bin="/x",
        pg_version="18.6",
        databases=tuple(synthetic.points(8)),
    )
    record = run8[0].model_copy(update={"analysis": STUDY.analyse(options, run8[1])})
    drawn, left_out = drawing.draw(FigureInputs(record, record.analysis, run8[1]))
    assert left_out == {} and len(drawn) == 9


def test_cpu_is_titled_with_what_the_platform_takes(drawn8):
    assert drawn8[0]["cpu"].figure.title == "At 8 databases, 1.88 of 2 cores serve databases and clients; platform overhead is 0.08"
    assert drawn8[0]["cpu"].figure.sources == ("trials/*/samples/*.parquet",)


def test_what_a_runtime_does_not_show_is_not_told_apart(synthetic):
    record, _ = synthetic.process_run()
    figure = figures.cpu(inputs(record))
    text = words(drawing.svg(figure, prefix="cpu"))
    assert "not separ" in text and "platform" in text and "serve databases" not in figure.title


def test_neither_host_nor_containers_no_figure(synthetic, run8):
    with pytest.raises(FigureUnavailable, match="neither"):
        figures.cpu(inputs(synthetic.without_numbers(run8[0])))


def test_latency_is_logarithmic_only_over_a_wide_range(run8):
    wide = drawing.specification(figures.latency(inputs(run8[0])))
    assert wide["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    rows = [{**row, "p99": Finding(value=row["p95"].value * 1.1, unit="ms"), "p50": None} for row in run8[0].analysis.tables["density"]]
    record = run8[0].model_copy(update={"analysis": run8[0].analysis.model_copy(update={"tables": {"density": rows}})})
    narrow = drawing.specification(figures.latency(inputs(record)), validate=True)
    assert narrow["layer"][0]["encoding"]["y"]["scale"] == {"type": "linear", "domain": [0.0, 2.0], "nice": False}


def test_a_percentile_that_is_missing_at_a_point_leaves_the_others(drawn8):
    figure = drawn8[0]["latency"].figure
    assert figure.title == "At 8 databases, p95 is 0.814 ms and p99 is 5.2 ms; p95 was 0.22 ms at 1"
    assert "fewer than ten" in figure.caption


def test_a_soak_shows_its_worst_window_and_its_marks(synthetic):
    record, results = synthetic.soak_run()
    drawn, left_out = drawing.draw(FigureInputs(record, record.analysis, results))
    names = {one.name: one for one in drawn}
    assert "soak" in names and "seconds" in names and "throughput" in left_out
    assert names["soak"].figure.title.endswith("throughput drifted by −0.4 % per hour")
    text = words(names["soak"].svg)
    assert "worst window: " in text and "checkpoint" in text and "vacuum" in text and "minutes since the start" in text
    assert "failed check" in text
    quiet = record.analysis.model_copy(
        update={"tables": {"soak": [{**row, "failed_checks": None} for row in record.analysis.tables["soak"]]}}
    )
    assert "failed check" not in words(drawing.svg(figures.soak(FigureInputs(record, quiet, results)), prefix="soak"))


def test_of_less_than_an_hour_nothing_is_said_per_hour(synthetic):
    record, results = synthetic.soak_run()
    for figures_of, words_of in (({"soak": {"hours": 0.5}}, "; throughput drifted by −0.2 % over that time"), ({}, " of the median")):
        analysis = record.analysis.model_copy(update={"figures": figures_of})
        title = figures.soak(FigureInputs(record, analysis, results)).title
        assert title.endswith(words_of) and "per hour" not in title


def test_a_run_without_a_soak_does_not_miss_it(run8):
    with pytest.raises(FigureUnavailable) as caught:
        figures.soak(inputs(run8[0]))
    assert str(caught.value) == ""


def analysis(*rows):
    return Analysis(answer="", grade="A", tables={"density": list(rows)})


def row(databases, value, fraction=None, **more):
    return {"databases": databases, "allocated_share": fraction, "throughput": Finding(value=value, unit="tps"), **more}


def test_rows_are_sorted_and_need_a_number():
    found = figures.rows_with(analysis(row(8, 3.0), row(1, 1.0), row(4, None), row(None, 2.0)), "density", "throughput")
    assert [figures.databases(one) for one in found] == [1, 8]
    assert figures.rows_with(analysis(), "cpu", "idle") == []


def test_at_full_is_the_largest_point_within_the_cores():
    rows = [row(4, 1.0, 0.5), row(8, 2.0, 1.0), row(10, 2.1, 1.25)]
    assert figures.at_full(rows) is rows[1]
    assert figures.at_full([row(4, 1.0), row(8, 2.0)])["databases"] == 8
    assert figures.at_full([row(4, 1.0, 2.0)])["databases"] == 4


@pytest.mark.parametrize(("unit", "value"), [("ratio", 0.857), ("%", 85.7)])
def test_a_share_point_is_in_percent(unit, value):
    cell = Finding(value=value, unit=unit, low=value * 0.9, high=value * 1.1)
    point = figures.share_point({"databases": 40, "efficiency": cell}, "efficiency", 0.5)
    assert point == {"x": 40.5, "y": pytest.approx(85.7), "low": pytest.approx(77.13), "high": pytest.approx(94.27)}


def test_an_axis_reaches_over_all_intervals_and_super_linear_points():
    low, high = figures.percent_range([{"y": 118.0, "low": 60.5, "high": 123.4}, {"y": None}])
    assert low <= 60.5 and high >= 123.4 and low % 10 == 0
    assert figures.percent_range([]) == (80, 105)


def test_every_run_has_its_own_colour_and_shape(run8):
    curves = figures.overlay_lines([(f"run {i}", run8[0]) for i in range(5)], "throughput")
    assert len({curve.colour for curve in curves}) == len({curve.shape for curve in curves}) == 5


def test_runs_without_the_table_are_left_out(run8, synthetic):
    runs = [("a", run8[0]), ("b", synthetic.other_study()[0]), ("c", run8[0].model_copy(update={"analysis": None}))]
    assert [curve.name for curve in figures.overlay_lines(runs, "efficiency")] == ["a"]
    with pytest.raises(FigureUnavailable):
        figures.overlay_lines(runs[1:], "efficiency")


def test_titles_carry_the_numbers_and_specifications_are_valid(run8, run40):
    runs = [("small", run8[0]), ("large", run40[0])]
    throughput, efficiency, cpu = (
        one(runs) for one in (figures.overlay_throughput, figures.overlay_efficiency, figures.overlay_cpu_efficiency)
    )
    assert throughput.title == "At the largest point within the cores: small 116.4k tps, large 2.191M tps"
    assert "small 85.6 % at 100 % of its cores, large 85.6 % at 100 % of its cores" in efficiency.title
    assert cpu.title.startswith("CPU efficiency: small ") and cpu.title != efficiency.title
    for figure in (throughput, efficiency, cpu):
        assert drawing.specification(figure, validate=True)


def test_a_long_name_is_cut_in_its_middle(run8):
    name = figures.overlay_lines([("20260131-120000-density-with-a-long-name-aaaa", run8[0])], "throughput")[0].name
    assert len(name) <= figures.MAX_LABEL and name.startswith("20260131") and name.endswith("aaaa") and "…" in name
