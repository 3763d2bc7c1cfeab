from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from pgherd.model.analysis import Finding
from pgherd.report import chart_style, drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.compare import figures
from pgherd.studies.compare.figures import MetricChange


def inputs(record):
    return FigureInputs(record, record.analysis, [])


def words(svg: str) -> str:
    return " ".join(text for text in ElementTree.fromstring(svg).itertext())


def changed(record, **update):
    return record.model_copy(update={"analysis": record.analysis.model_copy(update=update)})


@pytest.fixture(scope="module")
def record(comparison):
    return comparison.comparison_run()


@pytest.fixture(scope="module")
def several(comparison):
    return comparison.comparison_run({"big_buffers": comparison.GOOD, "tiny": comparison.BAD, "same": {}}, blocks=8)


@pytest.fixture(scope="module")
def svgs(several):
    return {
        name: drawing.svg(builder(inputs(several)), prefix=name)
        for name, builder in drawing.builders("compare").items()
        if name in ("forest", "pairs", "order")
    }


def test_a_comparison_has_its_own_figures_first_and_its_own_order():
    builders = drawing.builders("compare")
    assert list(builders)[:3] == ["forest", "pairs", "order"]
    assert builders["order"] is figures.order and drawing.builders("density")["order"] is not figures.order


@pytest.mark.parametrize("name", ["forest", "pairs", "order"])
def test_specifications_are_valid_vega_lite(several, record, comparison, name):
    builder = drawing.builders("compare")[name]
    for item in (
        several,
        record,
        comparison.comparison_run(blocks=2),
        comparison.comparison_run(points=("4 clients", "8 clients"), blocks=5),
    ):
        drawing.specification(builder(inputs(item)), validate=True)


def test_every_svg_is_well_formed_and_no_wider_than_a_figure(svgs):
    for name, svg in svgs.items():
        _, _, width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split())
        assert 560 <= width <= chart_style.WIDTH + 20 and 200 <= height <= 1200, (name, width, height)


def test_the_forest_states_what_is_certain_and_shows_every_metric(several, svgs, comparison):
    title = figures.forest(inputs(several)).title
    assert re.search(r"big_buffers: throughput \+4\.\d %, CPU per transaction −4\.\d %", title)
    assert re.search(r"tiny: throughput −6\.\d %", title)
    text = words(svgs["forest"])
    assert text.count("throughput (decides)") == 3 and text.count("context switches per transaction") == 3
    assert text.count("← worse | better →") == 3 and text.count("← better | worse →") == 3 * (len(comparison.METRICS) - 1)
    for text_part in ("big_buffers against base", "change against base, %", "inconclusive", "no difference beyond the margin", "±2"):
        assert text_part in text


def test_a_wide_interval_does_not_hide_the_metric_that_decides(several):
    changes = figures.metric_changes(inputs(several))
    low, high = figures._domain(changes, 0.02)
    assert max(change.high for change in changes) > high < 1.5 and low == pytest.approx(1 / high)
    assert "An arrow" in str(drawing.specification(figures.forest(inputs(several)))["title"])


def test_without_certain_changes_the_title_reports_that(comparison):
    title = figures.forest(inputs(comparison.comparison_run({"same": {}}, blocks=2))).title
    assert title == "same: no difference is certain"


def test_an_inconclusive_deciding_metric_comes_before_the_others():
    def change(label, low, high, primary=False):
        return MetricChange("x", label, 1.0, low, high, "higher", primary, None)

    unclear, equal = change("throughput", 0.9, 1.1, True), change("memory", 0.999, 1.001)
    title = figures._forest_title({"x": [unclear, equal]}, 0.02)
    assert title == "x: throughput inconclusive, no difference beyond 2 % in memory"
    slower = change("p95 latency", 1.01, 1.1)
    assert figures._forest_title({"x": [unclear, slower]}, 0.02).startswith("x: throughput inconclusive, p95 latency +")
    assert figures._forest_title({"x": [unclear]}, 0.02) == "x: no difference is certain"


def test_pairs_count_the_blocks_and_draw_both_panels(several, svgs):
    title = figures.pairs(inputs(several)).title
    assert "big_buffers in 8 of 8, tiny in 0 of 8" in title and "base (A/A) in" in title
    text = words(svgs["pairs"])
    assert "throughput, tps" in text and "change against base, %" in text
    assert text.count("big_buffers") <= 3  # one legend beside the title, not one for each channel and panel


def test_a_block_without_a_value_is_left_out(record):
    series = record.analysis.figures["series"]
    throughput = series["metrics"]["throughput"]
    values = {variant: [None, *value[1:]] if variant == "big_buffers" else value for variant, value in throughput["values"].items()}
    update = {**series, "metrics": {**series["metrics"], "throughput": {**throughput, "values": values}}}
    assert "big_buffers in 13 of 13" in figures.pairs(inputs(changed(record, figures={"series": update}))).title


def test_no_pair_is_no_figure(record):
    series = record.analysis.figures["series"]
    throughput = series["metrics"]["throughput"]
    values = {value: [None] * 14 for value in throughput["values"]}
    update = {**series, "metrics": {"throughput": {**throughput, "values": values}}}
    for nothing in ({}, {"series": update}):
        with pytest.raises(FigureUnavailable):
            figures.pairs(inputs(changed(record, figures=nothing)))


def test_a_drift_of_the_machine_is_estimated(record):
    title = figures.order(inputs(record)).title
    total, error = map(float, re.match(r"Throughput drifted by −(\d+\.\d) ± (\d+\.\d) % ", title).groups())
    assert abs(total - 3) <= error < 1.5


def test_tainted_trials_are_ringed_and_excluded_from_the_drift(comparison):
    figure = figures.order(inputs(comparison.comparison_run(tainted=frozenset({(2, "base"), (5, "big_buffers")}))))
    assert "A ring marks a tainted trial" in str(drawing.specification(figure)["title"])
    every = frozenset((block, variant) for block in range(1, 15) for variant in ("base", "base (A/A)", "big_buffers"))
    figure = figures.order(inputs(comparison.comparison_run(tainted=every)))
    assert "Too few clean trials" in " ".join(drawing.specification(figure)["title"]["subtitle"])


def test_several_points_are_drawn_relative_to_their_means(comparison):
    figure = figures.order(inputs(comparison.comparison_run(points=("4 clients", "8 clients"), blocks=5)))
    assert "% off the mean of its variant and point" in str(drawing.specification(figure))


def test_figures_that_cannot_be_drawn_have_a_reason(record, comparison):
    figure, left_out = drawing.draw(FigureInputs(record, changed(record, tables={}, figures={}).analysis, []))
    assert figure == [] and left_out["forest"] == "no metric has a ratio to the baseline"
    with pytest.raises(FigureUnavailable, match="fewer than four trials"):
        figures.order(inputs(comparison.comparison_run(blocks=1)))


def test_hostile_names_stay_text(comparison, synthetic):
    record = comparison.comparison_run({synthetic.HOSTILE: comparison.GOOD}, blocks=4)
    shown = record.analysis.tables["comparison"]
    rows = [{**row, **{name: synthetic.HOSTILE + row[name] for name in ("metric", "label")}} for row in shown]
    hostile = changed(record, tables={**record.analysis.tables, "comparison": rows})
    for item in (record, hostile):
        drawn, left_out = drawing.draw(inputs(item))
        assert not any("could not be drawn" in reason for reason in left_out.values()), left_out
        for figure in drawn:
            assert not [node for node in ElementTree.fromstring(figure.svg).iter() if node.tag.endswith("script")]


def test_metrics_beyond_the_limit_are_left_out(record):
    row = record.analysis.tables["comparison"][1]
    rows = [record.analysis.tables["comparison"][0], *({**row, "metric": f"own_{i}", "label": f"own {i}", "better": ""} for i in range(40))]
    figure = figures.forest(inputs(changed(record, tables={**record.analysis.tables, "comparison": rows})))
    assert f"The first {figures.MAX_METRICS} metrics" in str(drawing.specification(figure)["title"])


def test_a_far_change_has_few_ticks(record):
    row = {
        **record.analysis.tables["comparison"][0],
        "ratio_to_baseline": Finding(value=3.0, unit="", low=2.0, high=4.5, confidence=0.95, n=9),
    }
    figure = figures.forest(inputs(changed(record, tables={**record.analysis.tables, "comparison": [row]})))
    assert "+100" in words(drawing.svg(figure, prefix="f")) and "+200 %" in figure.title


# ---- values from the analysis


def with_rows(record, **tables):
    return record.model_copy(update={"analysis": record.analysis.model_copy(update={"tables": {**record.analysis.tables, **tables}})})


def change(low=None, high=None, better="higher", value=1.0):
    return MetricChange("v", "throughput", value, low, high, better, True, None)


@pytest.mark.parametrize(
    ("low", "high", "better", "outcome"),
    [
        (1.01, 1.05, "higher", "better"),
        (1.01, 1.05, "lower", "worse"),
        (0.90, 0.97, "higher", "worse"),
        (0.90, 0.97, "lower", "better"),
        (0.90, 0.97, "", "differs"),
        (0.99, 1.01, "higher", "equal"),
        (0.97, 1.01, "higher", "unclear"),
        (1.001, 1.002, "higher", "better"),
        (None, None, "higher", "unclear"),
    ],
)
def test_outcome_of_an_interval(low, high, better, outcome):
    assert change(low, high, better).outcome(0.02) == outcome


def test_rows_become_changes_with_the_aa_interval(comparison):
    changes = figures.metric_changes(inputs(comparison.comparison_run()))
    assert [change.label for change in changes[:2]] == ["throughput", "CPU per transaction"] and len(changes) == len(comparison.METRICS)
    assert changes[0].primary and not changes[1].primary and changes[1].better_direction == "lower"
    assert changes[0].aa_interval[0] < 1 < changes[0].aa_interval[1]


def test_an_aa_ratio_without_an_interval_is_on_both_sides_of_one(comparison):
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][0], "aa_ratio": Finding(value=0.98, unit="")}
    (item,) = figures.metric_changes(inputs(with_rows(record, comparison=[row])))
    assert item.aa_interval == (0.98, 1 / 0.98)


def test_without_a_ratio_there_are_no_changes(comparison):
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][0], "ratio_to_baseline": Finding(value=None, unit="")}
    with pytest.raises(FigureUnavailable, match="no metric has a ratio"):
        figures.metric_changes(inputs(with_rows(record, comparison=[row])))


def test_blocks_start_with_both_trials_of_the_baseline(comparison):
    blocks = figures.block_values(inputs(comparison.comparison_run({"a": {}, "b": {}}, blocks=4)))
    assert list(blocks.values) == ["base", "base (A/A)", "a", "b"]
    assert (blocks.label, blocks.unit, blocks.numbers) == ("throughput", "tps", (1, 2, 3, 4))
    ratios = blocks.ratios("a", "base")
    assert ratios[2] == pytest.approx(blocks.values["a"][1] / blocks.values["base"][1])


def test_trials_are_in_run_order(comparison):
    label, unit, trials = figures.trial_values(inputs(comparison.comparison_run(blocks=3, tainted=frozenset({(2, "base (A/A)")}))))
    assert (label, unit) == ("throughput", "tps") and [trial.order for trial in trials] == list(range(1, 10))
    assert [(trial.block, trial.base_variant) for trial in trials if trial.tainted] == [(2, "base")]


def test_a_row_can_name_its_metric(comparison):
    """Volumes have costs per I/O, not per transaction."""
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][1], "label": "CPU per I/O"}
    (item,) = figures.metric_changes(inputs(with_rows(record, comparison=[row])))
    assert item.label == "CPU per I/O"
