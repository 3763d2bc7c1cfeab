from __future__ import annotations

import pytest

from pgherd.model.finding import Finding
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.compare import figures_data
from pgherd.studies.compare.figures_data import MetricChange


def inputs(record):
    return FigureInputs(record, record.analysis, [])


def with_rows(record, **tables):
    return record.model_copy(update={"analysis": record.analysis.model_copy(update={"tables": {**record.analysis.tables, **tables}})})


def change(low=None, high=None, better="higher", value=1.0):
    return MetricChange("v", "throughput", value, low, high, better, True, None)


@pytest.mark.parametrize(
    ("low", "high", "better", "meaning"),
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
def test_what_an_interval_means(low, high, better, meaning):
    assert change(low, high, better).meaning(0.02) == meaning


def test_rows_become_changes_with_their_floor(comparison):
    found = figures_data.changes(inputs(comparison.comparison_run()))
    assert [one.label for one in found[:2]] == ["throughput", "CPU per transaction"] and len(found) == len(comparison.METRICS)
    assert found[0].primary and not found[1].primary and found[1].better == "lower"
    assert found[0].floor[0] < 1 < found[0].floor[1]


def test_a_floor_without_an_interval_lies_on_both_sides(comparison):
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][0], "floor": Finding(value=0.98, unit="")}
    (one,) = figures_data.changes(inputs(with_rows(record, comparison=[row])))
    assert one.floor == (0.98, 1 / 0.98)


def test_without_a_ratio_there_is_nothing(comparison):
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][0], "ratio": Finding(value=None, unit="")}
    with pytest.raises(FigureUnavailable, match="no metric has a ratio"):
        figures_data.changes(inputs(with_rows(record, comparison=[row])))


def test_blocks_begin_with_the_baseline_and_the_same_again(comparison):
    blocks = figures_data.deciding(inputs(comparison.comparison_run({"a": {}, "b": {}}, blocks=4)))
    assert list(blocks.values) == ["base", "base again", "a", "b"]
    assert (blocks.label, blocks.unit, blocks.numbers) == ("throughput", "tps", (1, 2, 3, 4))
    ratios = blocks.ratios("a", "base")
    assert ratios[2] == pytest.approx(blocks.values["a"][1] / blocks.values["base"][1])


def test_trials_come_in_the_order_in_which_they_ran(comparison):
    label, unit, found = figures_data.measured(inputs(comparison.comparison_run(blocks=3, tainted=frozenset({(2, "base again")}))))
    assert (label, unit) == ("throughput", "tps") and [one.order for one in found] == list(range(1, 10))
    assert [(one.block, one.arm) for one in found if one.tainted] == [(2, "base")]


def test_a_row_says_itself_what_its_metric_is_called(comparison):
    """Of volumes nothing is told per transaction."""
    record = comparison.comparison_run()
    row = {**record.analysis.tables["comparison"][1], "label": "CPU per I/O"}
    (one,) = figures_data.changes(inputs(with_rows(record, comparison=[row])))
    assert one.label == "CPU per I/O"
