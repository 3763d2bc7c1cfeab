from dataclasses import replace

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.exec.figures import duration, host, values
from pgherd.studies.exec.options import ExecOptions
from pgherd.studies.exec.study import STUDY

RATE = {"name": "rate", "pattern": "x", "unit": "MB/s"}


def inputs(seen=True, told=True, **changes):
    options = ExecOptions.model_validate({"command": ("make",), "host_cores": 2} | changes)
    results = []
    for number, trial in enumerate(STUDY.propose(options, []).trials):
        took = 4 + 0.1 * number
        own = {"duration_seconds": took} if options.duration is None else {}
        own |= {"value:rate": 250.0 + number} if told else {}
        target = TargetResult(
            target="local",
            driver="command",
            transactions=1,
            throughput=1,
            first=0,
            last=took,
            values=own,
            client_cpu=1.2,
            client_cpu_seconds=5,
        )
        metrics = {"host": {"cpu.user": 1.5, "cpu.online": 2.0, "cpu.idle": 0.2}} if seen else {}
        phase = PhaseResult(phase="command", start=0, end=took, overlap=1, targets=[target], metrics=metrics)
        results.append(TrialResult(id=f"{number + 1:04d}", trial=trial, started=0, ended=took, phases=[phase]))
    analysis = STUDY.analyse(options, results)
    return FigureInputs(RunRecord(run="r", study="exec", options={}, started=0, pgherd="1", analysis=analysis), analysis, results)


def test_durations_are_drawn_with_their_mean_and_interval():
    figure = duration(inputs())
    text = str(drawing.specification(figure, validate=True))
    assert figure.title.startswith("'make' takes 4.2 (") and "duration, s" in text and "'type': 'rect'" in text


def test_each_value_has_a_panel():
    figure = values(inputs(extract=(RATE,)))
    assert "rate 252 MB/s" in figure.title and "rate, MB/s" in str(drawing.specification(figure, validate=True))


def test_the_host_is_parted_into_the_command_and_the_rest():
    figure = host(inputs())
    assert figure.title == "The host used 1.8 cores while the command ran, 1.2 of them for the command"
    drawing.specification(figure, validate=True)


def test_the_host_is_that_of_the_clean_trials():
    given = inputs()
    tainted = Check(name="background-cpu", kind="noise", result="fail", observed="", expected="", severity="taint")
    last = given.results[-1]
    busy = {"host": {"cpu.user": 8.0, "cpu.online": 16.0, "cpu.idle": 8.0}}
    last = last.model_copy(update={"checks": [tainted], "phases": [last.phases[0].model_copy(update={"metrics": busy})]})
    figure = host(replace(given, results=[*given.results[:-1], last]))
    assert figure.title == "The host used 1.8 cores while the command ran, 1.2 of them for the command"
    assert f"{len(given.results)} (tainted)" in str(drawing.specification(figure))


def test_what_there_is_not_is_not_drawn():
    with pytest.raises(FigureUnavailable, match="not sampled"):
        host(inputs(seen=False))
    with pytest.raises(FigureUnavailable, match="none of the values"):
        values(inputs(extract=(RATE,), told=False))
    for builder, request in ((duration, {"duration": 5.0}), (values, {})):
        with pytest.raises(FigureUnavailable) as reason:
            builder(inputs(**request))
        assert not str(reason.value), "nobody misses it"


def test_all_are_drawn_and_none_is_missed():
    figure, left_out = drawing.draw(inputs(extract=(RATE,)))
    assert {"duration", "values", "host"} <= {item.name for item in figure}
    assert not {"order", "seconds", "fairness"} & ({element.name for element in figure} | set(left_out))
