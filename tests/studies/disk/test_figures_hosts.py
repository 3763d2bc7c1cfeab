import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.disk.figures import disk
from pgherd.studies.disk.figures_hosts import hosts
from pgherd.studies.disk.study import STUDY

_SPEC = importlib.util.spec_from_file_location("disk_bank_of_hosts", Path(__file__).with_name("conftest.py"))
assert _SPEC and _SPEC.loader
bank = importlib.util.module_from_spec(_SPEC)
sys.modules["disk_bank_of_hosts"] = bank
_SPEC.loader.exec_module(bank)


def inputs(names, volumes=1, **more):
    options = bank.options(volumes, hosts=names)
    results = bank.Bank(options, **more).all()
    record = RunRecord(run="r", study="disk", options={}, started=0, pgherd="1", analysis=STUDY.analyse(options, results))
    return FigureInputs(record, record.analysis, results)


def test_each_host_has_a_dot_for_each_test():
    figure = hosts(inputs(("a", "b", "c"), speed={"c": 0.7}))
    drawn = str(drawing.specification(figure, validate=True))
    assert "% (c, " in figure.title and "of the hosts' mean" in figure.title and "% of the hosts' mean" in drawn


def test_with_several_volumes_rows_are_named_after_them():
    assert "8 kB random read, disk1" in str(drawing.specification(hosts(inputs(("a", "b"), volumes=2))))


def test_one_host_is_not_compared():
    with pytest.raises(FigureUnavailable, match="^$"):
        hosts(inputs((None,)))
    assert "hosts" not in {one.name for one in drawing.draw(inputs((None,)))[0]}


def test_the_study_draws_it():
    drawn, left_out = drawing.draw(inputs(("a", "b")))
    assert {"hosts", "disk", "steadiness"} <= {one.name for one in drawn}
    assert not any("could not be drawn" in why for why in left_out.values()), left_out


def test_of_more_hosts_than_colours_the_ends_are_told_apart():
    names = tuple(f"db{number}" for number in range(1, 13))
    drawn = drawing.specification(hosts(inputs(names, speed={"db3": 0.6, "db7": 1.3})), validate=True)
    (colour,) = {str(layer["encoding"]["color"]["scale"]["domain"]) for layer in drawn["layer"] if "color" in layer["encoding"]}
    assert colour == "['db3', 'db7', 'the others']"


def test_the_figure_of_all_hosts_says_that_it_is_of_all():
    assert "All 2 hosts together" in str(drawing.specification(disk(inputs(("a", "b"))), validate=True))
    assert "hosts together" not in str(drawing.specification(disk(inputs((None,))), validate=True))
