from __future__ import annotations

import contextlib
import re
from xml.etree import ElementTree

import pytest

from pgherd.report import chart_style, drawing
from pgherd.report.drawing import Figure, FigureInputs, FigureUnavailable


def inputs(run) -> FigureInputs:
    return FigureInputs(run[0], run[0].analysis, run[1])


def words(svg: str) -> str:
    return " ".join(text for text in ElementTree.fromstring(svg).itertext())


def test_a_density_run_gets_all_of_its_figures(drawn8):
    figure, left_out = drawn8
    assert list(figure) == ["throughput", "efficiency", "published", "cpu", "latency", "modes", "fairness", "seconds", "order"]
    assert left_out == {}


def test_every_figure_states_a_number_and_names_the_files_it_came_from(drawn8):
    for name, item in drawn8[0].items():
        assert re.search(r"\d", item.figure.title), name
        assert "Source:" in item.caption and "trials/*/" in item.caption


def test_every_svg_is_well_formed_and_no_wider_than_a_figure(drawn8):
    for name, item in drawn8[0].items():
        root = ElementTree.fromstring(item.svg)
        assert root.tag.endswith("svg"), name
        _, _, width, height = map(float, root.get("viewBox").split())
        assert 560 <= width <= chart_style.WIDTH + 20 and 200 <= height <= 760, (name, width, height)
        assert not [node for node in root.iter() if node.tag.endswith(("script", "foreignObject", "image"))]


def test_ids_of_figures_on_one_page_do_not_meet(drawn8):
    ids = [result for element in drawn8[0].values() for result in re.findall(r'\bid="([^"]+)"', element.svg)]
    assert len(ids) == len(set(ids)) and all("-" in item for item in ids)
    for item in drawn8[0].values():
        for reference in re.findall(r"url\(#([^)]+)\)", item.svg):
            assert f'id="{reference}"' in item.svg


def test_specifications_are_valid_vega_lite(run8):
    for builder in drawing.builders("density").values():
        with contextlib.suppress(FigureUnavailable):  # a soak, the devices: not of this run
            drawing.specification(builder(inputs(run8)), validate=True)


def test_an_unknown_study_gets_the_general_figures():
    general = set(drawing.builders("no-such-study"))
    assert {"fairness", "seconds", "order", "io", "io_sizes", "io_latency"} <= general and "latency" not in general


def test_a_faulty_builder_costs_its_figure_only(run8, monkeypatch):
    def broken(_: FigureInputs) -> Figure:
        raise KeyError("gone")

    def refused(_: FigureInputs) -> Figure:
        raise FigureUnavailable("too little data")

    def unsuitable(_: FigureInputs) -> Figure:
        raise FigureUnavailable

    monkeypatch.setattr(drawing, "builders", lambda study: {"a": broken, "b": refused, "c": unsuitable})
    figure, left_out = drawing.draw(inputs(run8))
    assert figure == [] and set(left_out) == {"a", "b"}
    assert "KeyError" in left_out["a"] and left_out["b"] == "too little data"


def test_hostile_names_stay_text(hostile8):
    figure, left_out = drawing.draw(inputs(hostile8))
    assert left_out == {} and figure
    for item in figure:
        root = ElementTree.fromstring(item.svg)
        assert not [node for node in root.iter() if node.tag.endswith("script")]
        assert not [name for node in root.iter() for name in node.attrib if name.lower().startswith("on")]
    assert any("<script>" in words(element.svg) for element in figure)


def test_without_numbers_every_curve_is_left_out_with_its_reason(synthetic, run8):
    record = synthetic.without_numbers(run8[0])
    figure, left_out = drawing.draw(FigureInputs(record, record.analysis, []))
    assert figure == []
    assert set(left_out) == {"throughput", "efficiency", "published", "cpu", "latency", "modes", "fairness", "seconds", "order"}
    assert not any("could not be drawn" in reason for reason in left_out.values())


def test_png_is_twice_the_size(drawn8):
    image = drawing.png(drawn8[0]["order"].svg)
    assert image.startswith(b"\x89PNG")
    width = int.from_bytes(image[16:20], "big")
    assert width == pytest.approx(2 * float(ElementTree.fromstring(drawn8[0]["order"].svg).get("viewBox").split()[2]), abs=2)


@pytest.mark.parametrize("number", ["1.23456789", "-0.98765", "12.3456e-7"])
def test_only_geometry_is_shortened(number):
    text = f'<svg d="M{number},2"><text>{number}</text></svg>'
    short = drawing._GEOMETRY.sub(lambda result: drawing._LONG.sub(r"\1", result[0]), text)
    assert f"<text>{number}</text>" in short
    value = float(re.search(r'd="M([^,]+),', short)[1])
    assert value == pytest.approx(float(number), abs=0.01)
