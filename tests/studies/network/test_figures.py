import pytest

from pgherd.model.deployment import Link
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.network.figures import matrix, rtt, shape, streams
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.study import STUDY


def inputs(numbers=(1, 2, 4), scale=1e9, names=("db2",), told=True):
    options = NetworkOptions(links=tuple(Link(name=name, host=name) for name in names), streams=numbers, host_cores=2)
    results = []
    for trial in STUDY.propose(options, []).trials:
        count = trial.point["streams"]
        values = {"bits_per_second": scale * min(max(count, 0.001), 3) * (1 + trial.repeat / 100)} | (
            {"rtt_ms": 0.2 + count} if told else {}
        )
        target = TargetResult(target=trial.point["link"], driver="iperf3", transactions=1, throughput=1, first=0, last=1, values=values)
        phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[target])
        results.append(TrialResult(id="0001", trial=trial, started=0, ended=1, phases=[phase]))
    analysis = STUDY.analyse(options, results)
    return FigureInputs(RunRecord(run="r", study="network", options={}, started=0, pgherd="1", analysis=analysis), analysis, results)


@pytest.mark.parametrize(("scale", "unit"), [(1e9, "Gbit/s"), (1e7, "Mbit/s")])
def test_throughput_is_drawn_in_a_unit_that_fits(scale, unit):
    assert f"throughput, {unit}" in str(drawing.specification(streams(inputs(scale=scale)), validate=True))


def test_the_shape_is_compared_with_e14s():
    figure = shape(inputs())
    text = str(drawing.specification(figure, validate=True))
    assert "E14: cloud" in text and "E14: on premises" in text and "db2: like the cloud's" in figure.title


def test_round_trips_are_drawn_from_idle_on():
    figure = rtt(inputs())
    assert "0.2 ms (idle) to 4.2 ms (4 streams)" in figure.title
    drawing.specification(figure, validate=True)


def test_all_are_drawn_and_none_is_missed():
    figure, left_out = drawing.draw(inputs(names=("db2", "db3")))
    assert {"streams", "shape", "rtt"} <= {item.name for item in figure} and not {"order", "seconds"} & {element.name for element in figure}
    assert set(left_out) <= {"fairness"}


def test_too_little_is_said():
    with pytest.raises(FigureUnavailable, match="fewer than two"):
        streams(inputs(numbers=(1,)))
    with pytest.raises(FigureUnavailable, match="sender only"):
        rtt(inputs(told=False))


def pair_inputs(hosts=("db1.example", "b", "c", "d"), scale=1e9, kind="hosts"):
    near = {"kind": "hosts", "near": "a"}
    links = [Link(name=far, host=far, **near | {"near": item}) for item in hosts for far in hosts if item != far]
    if kind != "hosts":
        links = [Link(name="db2", host="db2")]
    options = NetworkOptions(links=tuple(links), streams=(1, 2), host_cores=2)
    results = []
    for number, trial in enumerate(STUDY.propose(options, []).trials, 1):
        link, count = trial.point["link"], trial.point["streams"]
        full = 5.0 + hosts.index(link.split("/")[0]) if kind == "hosts" else 5.0
        values = {"bits_per_second": scale * min(max(count, 0.001) * 3, full) * (1 + trial.repeat / 100), "rtt_ms": 0.2 + count}
        target = TargetResult(target=link, driver="iperf3", transactions=1, throughput=1, first=0, last=1, values=values)
        phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[target])
        results.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, phases=[phase]))
    analysis = STUDY.analyse(options, results)
    return FigureInputs(RunRecord(run="r", study="network", options={}, started=0, pgherd="1", analysis=analysis), analysis, results)


@pytest.mark.parametrize(("scale", "unit"), [(1e9, "Gbit/s"), (1e7, "Mbit/s")])
def test_every_pair_has_a_cell(scale, unit):
    figure = matrix(pair_inputs(scale=scale))
    text = str(drawing.specification(figure, validate=True))
    assert figure.title.startswith("db1.example → ") and f"carries least, {'5.05' if scale == 1e9 else '50.5'} {unit}" in figure.title
    assert text.count('\\"text\\"') == 12 or text.count('"text": "') >= 12


def test_a_run_to_other_hosts_has_no_matrix():
    with pytest.raises(FigureUnavailable, match="^$"):
        matrix(pair_inputs(kind="remote"))


def test_all_figures_of_many_pairs_are_drawn_of_some_of_them():
    figure, left_out = drawing.draw(pair_inputs())
    assert {"matrix", "streams", "shape", "rtt"} <= {item.name for item in figure}, left_out
    streams = next(element for element in figure if element.name == "streams")
    assert "Of 12 links the lowest, the middle and the highest" in " ".join(streams.svg.split())
