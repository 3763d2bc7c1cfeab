import pytest

from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.database_size.figures import sizes
from pgherd.studies.database_size.options import DatabaseSizeOptions
from pgherd.studies.database_size.study import STUDY


def inputs(*scales):
    options = DatabaseSizeOptions(pg_bin="/b", pg_version="18.6", scales=scales)
    results = [
        TrialResult(id="0001", trial=trial, started=0, ended=1, probe={"database_bytes": 7.7e6 + 15.68e6 * trial.point["scale"]})
        for trial in STUDY.propose(options, []).trials
    ]
    record = RunRecord(run="r", study="database-size", options={}, started=0, pgherd="1", analysis=STUDY.analyse(options, results))
    return FigureInputs(record, record.analysis, results)


def test_measured_predicted_and_published_are_drawn_over_logarithmic_axes():
    figure = sizes(inputs(1, 2, 5, 10))
    drawn = drawing.specification(figure, validate=True)
    assert "scale 1000 would take 14.6 GB" in figure.title
    text = str(drawn)
    assert text.count("'type': 'log'") >= 2
    for message in ("measured", "predicted", "published (E10)"):
        assert message in text


def test_the_study_draws_this_figure_and_misses_none():
    figure, left_out = drawing.draw(inputs(1, 2, 5, 10))
    assert [item.name for item in figure] == ["sizes"] and left_out == {}


def test_one_size_is_no_figure():
    with pytest.raises(FigureUnavailable, match="fewer than two"):
        sizes(inputs(1))
