"""Figure of a search by latency objective, on a simulated queue."""

from __future__ import annotations

import pytest

from pgherd.model.load import LatencyObjective
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.gate import gate
from pgherd.report.gate_metrics import GateRun
from pgherd.report.objective_figure import objective
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import propose
from pgherd.studies.density.study import STUDY
from simulated_queue import Queue


@pytest.fixture(scope="module")
def runs(run8):
    """A function that makes a finished run of a queue of this capacity."""
    record, _ = run8

    def make(capacity: float, name: str) -> GateRun:
        options = DensityOptions(
            host_cores=2,
            host_memory=2**32,
            vcpus=0.25,
            pg_bin="/pg/bin",
            pg_version="18.6",
            databases=tuple(range(1, 41)),
            objectives=(LatencyObjective(percentile=99, limit_ms=10),),
            duration=4,
            repeats=10,
            rate=200,
        )
        results, _ = Queue(propose, options, capacity=capacity).until_stop()
        analysis = STUDY.analyse(options, results)
        update = {"run": name, "analysis": analysis, "options": options.model_dump(mode="json"), "started": record.started + capacity}
        return GateRun(name, record.model_copy(update=update), results)

    return make


def test_it_shows_the_latency_and_the_objective(runs):
    run = runs(4000.0, "a")
    inputs = FigureInputs(run.record, run.record.analysis, run.results)
    figure = objective(inputs)
    assert figure.title in ("16 databases keep p99 ≤ 10 ms", "17 databases keep p99 ≤ 10 ms", "18 databases keep p99 ≤ 10 ms")
    drawing.specification(figure, validate=True)
    figures, omitted = drawing.draw(inputs)
    assert figures[0].name == "objective", "the figure of the answer is the first"
    assert not {"efficiency", "throughput", "modes"} & omitted.keys()
    (svg,) = [one.svg for one in figures if one.name == "objective"]
    assert "objective: p99 ≤ 10 ms" in svg and "largest that keeps the objective: 1" in svg


def test_an_open_answer_is_at_least_the_largest_measured(runs):
    run = runs(40_000.0, "a")
    assert run.record.analysis.answer.startswith("At least 40 databases")
    inputs = FigureInputs(run.record, run.record.analysis, run.results)
    assert objective(inputs).title == "At least 40 databases keep p99 ≤ 10 ms"
    assert "largest measured, which keeps the objective: 40" in str(drawing.specification(objective(inputs)))


def test_the_largest_measured_without_a_lower_bound_is_no_at_least(runs):
    run = runs(40_000.0, "a")
    capacity = run.record.analysis.findings["capacity"]
    assert capacity.low == 40
    findings = {**run.record.analysis.findings, "capacity": capacity.model_copy(update={"low": None, "confidence": None})}
    analysis = run.record.analysis.model_copy(update={"findings": findings})
    assert objective(FigureInputs(run.record, analysis, run.results)).title == "40 databases keep p99 ≤ 10 ms, the largest measured"


def test_it_does_not_apply_to_other_runs(run8):
    record, results = run8
    with pytest.raises(FigureUnavailable, match="^$"):
        objective(FigureInputs(record, record.analysis, results))


def test_the_gate_fails_when_the_capacity_falls(runs):
    old, lower = runs(4000.0, "a"), runs(3000.0, "b")
    outcome = gate(old, lower)
    assert outcome.failed and outcome.comparisons[0].metric == "capacity"
    assert outcome.answer.startswith("Worse than allowed: capacity −")
    assert not gate(lower, old).failed
