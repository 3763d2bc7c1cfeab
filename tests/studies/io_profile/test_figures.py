import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.model.analysis import Check
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders
from pgherd.studies.io_profile.options import IoProfileOptions, trial
from pgherd.studies.io_profile.study import STUDY


@pytest.fixture(scope="module")
def simulator():
    spec = importlib.util.spec_from_file_location("storage_conftest", Path(__file__).with_name("conftest.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["storage_conftest"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def inputs(simulator):
    spec = importlib.util.spec_from_file_location("compare_conftest", Path(__file__).parents[2] / "study/comparison/conftest.py")
    compared = importlib.util.module_from_spec(spec)
    sys.modules["compare_conftest"] = compared
    spec.loader.exec_module(compared)
    variant = {"name": "db01", "study": "density", "options": compared.server_options()}
    options = IoProfileOptions(variants=[variant], baseline="db01")
    results = [simulator.result_of(trial(options, number), number, traced=True) for number in range(3)]
    analysis = STUDY.analyse(options, results)
    record = RunRecord(run="r", study="io-profile", options={}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record, analysis, results)


def test_all_figures_of_a_single_server_are_drawn_and_valid(inputs):
    by_name = builders("io-profile")
    for name in ("latency", "io", "io_latency"):
        drawing.specification(by_name[name](inputs), validate=True)
    drawn, left_out = drawing.draw(inputs)
    assert {"latency", "io", "io_latency"} <= {figure.name for figure in drawn}
    assert not {"forest", "pairs"} & set(left_out), "without a comparison they are not expected"


def test_latency_names_both_curves(inputs):
    title = builders("io-profile")["latency"](inputs).title
    assert "during checkpoints" in title and "between checkpoints" in title and "ms" in title


def test_a_tainted_trial_has_no_part_in_the_curves(inputs):
    latency = builders("io-profile")["latency"]
    tainted = Check(name="background-disk", kind="noise", result="fail", observed="", expected="", severity="taint")
    slow = {key: {300: 10**6} for key in ("inside", "outside")}
    first, *others = inputs.results
    phases = [phase.model_copy(update={"io": phase.io.model_copy(update={"latency": slow})}) for phase in first.phases]
    late = first.model_copy(update={"phases": phases})
    assert latency(replace(inputs, results=[late, *others])).title != latency(replace(inputs, results=others)).title
    late = late.model_copy(update={"checks": [tainted]})
    assert latency(replace(inputs, results=[late, *others])).title == latency(replace(inputs, results=others)).title


def test_without_logged_transactions_there_is_no_curve(inputs):
    blind = [
        result.model_copy(update={"phases": [p.model_copy(update={"io": p.io.model_copy(update={"latency": {}})}) for p in result.phases]})
        for result in inputs.results
    ]
    with pytest.raises(FigureUnavailable, match="fewer than 100"):
        builders("io-profile")["latency"](FigureInputs(inputs.record, inputs.analysis, blind))
