"""The gate over isolation runs."""

import pytest

from pgherd.model.run import RunRecord
from pgherd.report.gate import gate
from pgherd.report.gate_metrics import GateRun
from pgherd.studies.isolation.analyse import analyse


@pytest.fixture
def run(simulate):
    """Return ``run(name, factor)``: a run in which wal multiplies the victim's p99 in shared-server by the factor."""

    def make(name, factor):
        options, results = simulate(factors={("shared-server", "wal"): factor})
        fields = {"run": name, "study": "isolation", "options": {}, "started": 0.0, "pgherd": "0", "state": "finished"}
        return GateRun(name, RunRecord(**fields, analysis=analyse(options, results)), results)

    return make


def test_the_worst_ratio_decides_and_not_the_throughput_of_both(run):
    """All runs have the same throughput."""
    outcome = gate(run("old", 8.0), run("new", 16.0))
    (worst,) = outcome.comparisons
    assert (worst.metric, worst.better_direction, outcome.result) == ("worst_p99_ratio", "lower", "regression")
    (better,) = gate(run("old", 8.0), run("new", 4.0)).comparisons
    assert better.result == "improvement"


def test_an_unknown_ratio_decides_nothing(run):
    assert gate(run("old", 8.0), run("new", None)).result == "inconclusive"
