import json

import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.finding import Analysis, Verdict
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report.drawing import FigureInputs, FigureUnavailable, specification
from pgherd.store.samples import write_samples
from pgherd.studies.consolidation.figures_cpu import cpu_over_time, rates, trials

TARGET = "local/all/pg/bench"


def result(number, scheme, rate=0.0, cores=(1.0, 0.5), tainted=False):
    server = Server(bin="/pg", version="18", databases=(Database(),))
    deployment = Deployment(hosts=(Host(containers=(Container(name="all", servers=(server,)),)),))
    phases = tuple(Phase(name=f"period-{n}", ramp=1, seconds=4, loads={TARGET: Load()}) for n in (1, 2))
    trial = Trial(point={"scheme": scheme, "buffers": 25, "rate": rate}, repeat=number, deployment=deployment, phases=phases)
    one = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=100, last=110)
    played = [
        PhaseResult(
            phase=phase.name,
            start=100 + 5 * index,
            end=104 + 5 * index,
            overlap=1,
            targets=[one],
            metrics={"container:all": {"cpu.usage": used}} if used is not None else {},
        )
        for index, (phase, used) in enumerate(zip(phases, cores, strict=True))
    ]
    verdicts = [Verdict(check="steal", kind="noise", result="fail", observed="", wanted="")] if tainted else []
    return TrialResult(id=f"{number:04d}", trial=trial, started=number, ended=number + 1, phases=played, verdicts=verdicts)


def inputs(results, directory=None):
    analysis = Analysis(answer="…", grade="A")
    record = RunRecord(run="r", study="consolidation", options={}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=results, directory=directory)


def lines(figure):
    found = specification(figure, validate=True)["datasets"].values()
    rows = [one for rows in found for one in (json.loads(rows) if isinstance(rows, str) else rows)]
    return [(one["x"], one["y"]) for one in rows if "line" in one]


def test_containers_are_added_up_second_by_second():
    counters = {"container:a": [(0.0, 5.0), (1.0, 5.5), (2.0, 6.5)], "container:b": [(0.0, 1.0), (1.0, 1.25), (2.0, 1.25)]}
    assert rates(counters) == [(0.5, pytest.approx(75)), (1.5, pytest.approx(100))]


def test_a_late_reading_does_not_count_twice():
    """Half a core throughout, read at 0, 1.6 and 2.0 s."""
    found = rates({"container:a": [(0.0, 0.0), (1.6, 0.8), (2.0, 1.0)]})
    assert [value for _, value in found] == pytest.approx([50] * len(found))


def test_samples_are_drawn_where_they_are_there(tmp_path):
    readings = [(100.0 + second, "cgroup_cpu", "container:all", {"cpu.usage": 0.25 * second}) for second in range(10)]
    (tmp_path / "trials/0001").mkdir(parents=True)
    write_samples(tmp_path / "trials/0001", readings)
    found = lines(cpu_over_time(inputs([result(1, 1)], tmp_path)))
    assert len(found) == 9 and {y for _, y in found} == {25}


def test_without_samples_the_periods_means_are_drawn():
    figure = cpu_over_time(inputs([result(1, 1)]))
    assert lines(figure) == [(0, 100), (4, 100), (5, 50), (9, 50)]
    assert figure.title.startswith("1: 1/1/M used the most CPU, 75 % of a core")


def test_one_clean_undercommitted_trial_of_each_scheme_is_shown():
    chosen = trials([result(1, 1, tainted=True), result(2, 1), result(3, 3), result(4, 3, rate=0.5)])
    assert {key: one.id for key, one in chosen.items()} == {(25, 1): "0002", (25, 3): "0003"}


def test_nothing_seen_is_said():
    with pytest.raises(FigureUnavailable, match="no undercommitted trial"):
        cpu_over_time(inputs([result(1, 1, rate=0.5)]))
    with pytest.raises(FigureUnavailable, match="CPU was not seen"):
        cpu_over_time(inputs([result(1, 1, cores=(None, None))]))
