from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pgherd.model.finding import Finding
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.density import figures_resources


def inputs(record, results=()) -> FigureInputs:
    return FigureInputs(record, record.analysis, results)


def words(svg: str) -> str:
    return " ".join(text for text in ElementTree.fromstring(svg).itertext())


def test_cpu_is_titled_with_what_the_platform_takes(drawn8):
    assert drawn8[0]["cpu"].figure.title == "At 8 databases, 1.88 of 2 cores serve databases and clients; the platform takes 0.08"
    assert drawn8[0]["cpu"].figure.sources == ("trials/*/samples/*.parquet",)


def test_what_a_runtime_does_not_show_is_not_told_apart(synthetic):
    record, _ = synthetic.process_run()
    figure = figures_resources.cpu(inputs(record))
    text = words(drawing.svg(figure, prefix="cpu"))
    assert "not separable" in text and "platform" in text and "serve databases" not in figure.title


def test_neither_host_nor_containers_no_figure(synthetic, run8):
    with pytest.raises(FigureUnavailable, match="neither"):
        figures_resources.cpu(inputs(synthetic.without_numbers(run8[0])))


def test_latency_is_logarithmic_only_over_a_wide_range(run8):
    wide = drawing.specification(figures_resources.latency(inputs(run8[0])))
    assert wide["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    rows = [{**row, "p99": Finding(value=row["p95"].value * 1.1, unit="ms"), "p50": None} for row in run8[0].analysis.tables["density"]]
    record = run8[0].model_copy(update={"analysis": run8[0].analysis.model_copy(update={"tables": {"density": rows}})})
    narrow = drawing.specification(figures_resources.latency(inputs(record)), validate=True)
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
    assert "failed check" not in words(drawing.svg(figures_resources.soak(FigureInputs(record, quiet, results)), prefix="soak"))


def test_of_less_than_an_hour_nothing_is_said_per_hour(synthetic):
    record, results = synthetic.soak_run()
    for figures_of, words_of in (({"soak": {"hours": 0.5}}, "; throughput drifted by −0.2 % over that time"), ({}, " of the median")):
        analysis = record.analysis.model_copy(update={"figures": figures_of})
        title = figures_resources.soak(FigureInputs(record, analysis, results)).title
        assert title.endswith(words_of) and "per hour" not in title


def test_a_run_without_a_soak_does_not_miss_it(run8):
    with pytest.raises(FigureUnavailable) as caught:
        figures_resources.soak(inputs(run8[0]))
    assert str(caught.value) == ""
