import pytest

from pgherd.model.deployment import Link
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.network.figures_matrix import matrix
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.study import STUDY


def inputs(hosts=("db1.example", "b", "c", "d"), scale=1e9, kind="hosts"):
    near = {"kind": "hosts", "near": "a"}
    links = [Link(name=far, host=far, **near | {"near": one}) for one in hosts for far in hosts if one != far]
    if kind != "hosts":
        links = [Link(name="db2", host="db2")]
    options = NetworkOptions(links=tuple(links), streams=(1, 2), cores=2)
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
    figure = matrix(inputs(scale=scale))
    drawn = str(drawing.specification(figure, validate=True))
    assert figure.title.startswith("db1.example → ") and f"carries least, {'5.05' if scale == 1e9 else '50.5'} {unit}" in figure.title
    assert drawn.count('\\"text\\"') == 12 or drawn.count('"text": "') >= 12


def test_a_run_to_other_hosts_has_no_matrix():
    with pytest.raises(FigureUnavailable, match="^$"):
        matrix(inputs(kind="remote"))


def test_all_figures_of_many_pairs_are_drawn_of_some_of_them():
    drawn, left_out = drawing.draw(inputs())
    assert {"matrix", "streams", "shape", "rtt"} <= {one.name for one in drawn}, left_out
    streams = next(one for one in drawn if one.name == "streams")
    assert "Of 12 links the lowest, the middle and the highest" in " ".join(streams.svg.split())
