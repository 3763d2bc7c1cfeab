"""The figures of a disk run, made from the study's own analysis of made-up trials."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.disk.figures import disk, steadiness
from pgherd.studies.disk.study import STUDY

_SPEC = importlib.util.spec_from_file_location("disk_bank", Path(__file__).with_name("conftest.py"))
assert _SPEC and _SPEC.loader
bank = importlib.util.module_from_spec(_SPEC)
sys.modules["disk_bank"] = bank
_SPEC.loader.exec_module(bank)


def inputs(volumes=1, **host):
    options = bank.options(volumes)
    results = bank.Bank(options, **host).all()
    record = RunRecord(run="r", study="disk", options={}, started=0, pgherd="1", analysis=STUDY.analyse(options, results))
    return FigureInputs(record, record.analysis, results)


def test_each_unit_has_its_panel_and_each_bar_its_limit():
    figure = disk(inputs())
    text = str(drawing.specification(figure, validate=True))
    for words in ("I/Os per second", "MB/s", "ms, mean of one I/O at a time", "limited by", "device", "latency"):
        assert words in text
    assert figure.title.startswith("8 kB random read: 4") or "39,9" in figure.title


def test_with_several_volumes_bars_are_named_after_them():
    text = str(drawing.specification(disk(inputs(2))))
    assert "8 kB random read, disk0" in text and "8 kB random read, all" in text


def test_how_many_trials_were_steady():
    assert steadiness(inputs()).title == "18 of 18 trials were steady"
    assert steadiness(inputs(slope=0.6)).title == "0 of 18 trials were steady"
    drawing.specification(steadiness(inputs()), validate=True)


def test_nothing_is_drawn_of_nothing():
    empty = inputs(fail=lambda trial: "full")
    for builder in (disk, steadiness):
        with pytest.raises(FigureUnavailable):
            builder(empty)


def test_the_study_draws_them():
    drawn, left_out = drawing.draw(inputs())
    assert {"disk", "steadiness"} <= {one.name for one in drawn}
    assert not any("could not be drawn" in why for why in left_out.values()), left_out
