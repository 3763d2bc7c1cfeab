"""The figures of a disk run, made from the study's own analysis of made-up trials."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.disk.figures import disk, hosts, steadiness
from pgherd.studies.disk.study import STUDY

_SPEC = importlib.util.spec_from_file_location("disk_bank", Path(__file__).with_name("conftest.py"))
assert _SPEC and _SPEC.loader
bank = importlib.util.module_from_spec(_SPEC)
sys.modules["disk_bank"] = bank
_SPEC.loader.exec_module(bank)


def inputs_of(names, volumes=1, **extra):
    options = bank.options(volumes, hosts=names)
    results = bank.Bank(options, **extra).all()
    record = RunRecord(run="r", study="disk", options={}, started=0, pgherd="1", analysis=STUDY.analyse(options, results))
    return FigureInputs(record, record.analysis, results)


def inputs(volumes=1, **host):
    return inputs_of((None,), volumes, **host)


def test_each_unit_has_its_panel_and_each_bar_its_limit():
    figure = disk(inputs())
    text = str(drawing.specification(figure, validate=True))
    for message in ("I/Os per second", "MB/s", "ms, mean of one I/O at a time", "'title': 'bottleneck'", "device", "latency"):
        assert message in text
    assert re.match(r"8 kB random read: (39,9|40,[01])\d\d\b", figure.title), figure.title


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
    figure, left_out = drawing.draw(inputs())
    assert {"disk", "steadiness"} <= {item.name for item in figure}
    assert not any("could not be drawn" in reason for reason in left_out.values()), left_out


def test_each_host_has_a_dot_for_each_test():
    figure = hosts(inputs_of(("a", "b", "c"), speed={"c": 0.7}))
    text = str(drawing.specification(figure, validate=True))
    assert "% (c, " in figure.title and "of the hosts' mean" in figure.title and "% of the hosts' mean" in text


def test_with_several_volumes_rows_of_hosts_are_named_after_them():
    assert "8 kB random read, disk1" in str(drawing.specification(hosts(inputs_of(("a", "b"), volumes=2))))


def test_one_host_is_not_compared():
    with pytest.raises(FigureUnavailable, match="^$"):
        hosts(inputs_of((None,)))
    assert "hosts" not in {item.name for item in drawing.draw(inputs_of((None,)))[0]}


def test_the_study_draws_the_hosts():
    figure, left_out = drawing.draw(inputs_of(("a", "b")))
    assert {"hosts", "disk", "steadiness"} <= {item.name for item in figure}
    assert not any("could not be drawn" in reason for reason in left_out.values()), left_out


def test_of_more_hosts_than_colours_the_ends_are_told_apart():
    names = tuple(f"db{number}" for number in range(1, 13))
    figure = drawing.specification(hosts(inputs_of(names, speed={"db3": 0.6, "db7": 1.3})), validate=True)
    (colour,) = {str(layer["encoding"]["color"]["scale"]["domain"]) for layer in figure["layer"] if "color" in layer["encoding"]}
    assert colour == "['db3', 'db7', 'the others']"


def test_the_figure_of_all_hosts_says_that_it_is_of_all():
    several, one = (drawing.specification(disk(inputs_of(hosts)), validate=True)["title"] for hosts in (("a", "b"), (None,)))
    assert "All 2 hosts together" in " ".join([*several["text"], *several["subtitle"]])
    assert "hosts together" not in " ".join([*one["text"], *one["subtitle"]])
