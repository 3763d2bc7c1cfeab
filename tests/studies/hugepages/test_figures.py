import json

import pytest

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders
from pgherd.report.terminal import compact_table
from pgherd.studies.hugepages.figures import gain


def row(kind, value=None, low=None, high=None, published=None):
    finding = Finding(value=value, unit="%", low=low, high=high, experiment="E9" if published else None, published=published)
    return {"pages": kind, "gain": finding, "throughput": Finding(value=1000.0, unit="tps"), "conclusion": "faster"}


ROWS = [row("none"), row("2MB", 6.1, 4.0, 8.2, "+7.52 % (…)"), row("1GB", None, published="+12.1 % (…)"), row("thp", 5.0)]


def inputs(rows):
    analysis = Analysis(answer="2MB is faster than none.", grade="A", tables={"hugepages": rows})
    record = RunRecord(run="r", study="hugepages", options={}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=[])


def marks(chart):
    """The rows behind every layer."""
    datasets = chart.to_dict()["datasets"].values()
    return [json.loads(rows) if isinstance(rows, str) else rows for rows in datasets]


def test_measured_and_published_gains_are_drawn():
    figure = gain(inputs(ROWS))
    values = [point for layer in marks(figure.chart) for point in layer if "who" in point]
    shown = {(point["kind"], point["who"]): point["x"] for point in values}
    assert shown["2MB", "measured here"] == 6.1 and shown["2MB", "published (E9)"] == pytest.approx(7.5, abs=0.1)
    assert ("1GB", "measured here") not in shown and shown["1GB", "published (E9)"] == pytest.approx(12.1, abs=0.1)
    assert ("thp", "published (E9)") not in shown
    assert figure.title == "2MB: +6.1 % (+4.0 … +8.2 %); thp: +5.0 % (no interval)"


@pytest.mark.parametrize("rows", [[], [row("none"), row("1GB", None, published="+12.1 % (…)")]])
def test_without_anything_measured_there_is_no_figure(rows):
    with pytest.raises(FigureUnavailable, match="no page size could be compared"):
        gain(inputs(rows))


def test_the_figures_of_every_comparison_are_drawn_too():
    assert {"gain", "forest", "pairs", "order"} <= set(builders("hugepages"))


def test_the_terminal_table_has_the_published_figure():
    table, _ = compact_table("hugepages", ROWS)
    cells = [list(column.cells) for column in table.columns]
    assert [str(cell) for cell in cells[0]] == ["none", "2MB", "1GB", "thp"]
    assert [str(cell) for cell in cells[2]] == ["–", "+6.1 (+4.0 … +8.2)", "–", "+5.0"]
    assert [str(cell) for cell in cells[3]] == ["–", "+7.52", "+12.1", "–"]
