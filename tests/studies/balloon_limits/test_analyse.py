import json

import pytest

from pgherd.model.result import Latency, PhaseResult, TargetResult
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, specification
from pgherd.studies.balloon_limits.analyse import analyse, recovered_after
from pgherd.studies.balloon_limits.figures import over_time


def table(analysis):
    return {(row["pool"], row["number"]): row for row in analysis.tables["balloon-limits"]}


def test_known_throughputs_and_times_are_found(simulate):
    analysis = analyse(*simulate())
    found = table(analysis)
    halved = found["balloon", 2]
    assert halved["change"] == "2: 100 % to 50 %" and halved["limit_mb"] == 512
    ratio = halved["native_ratio"]
    assert ratio.low <= 7600 / 9000 <= ratio.high and ratio.n == 5 and ratio.note.startswith("÷ pool large")
    assert halved["throughput"].value == pytest.approx(7600, rel=0.02)
    assert halved["recovered_after"].value == 3 and found["balloon", 1]["recovered_after"].value == 0
    assert halved["limited_after"].value == 0.5 and halved["refused"] == "0 of 5"
    assert halved["lowest_share"].value == pytest.approx(0.5)
    assert found["large", 2]["native_ratio"].value == 1 and found["large", 2]["native_ratio"].low is None
    assert analysis.grade == "A"
    assert analysis.answer.startswith("pg_balloon has 0.84 times (0.8") and analysis.answer.endswith("at 50 % of the memory.")


def test_a_change_is_compared_with_the_phase_without_one(simulate):
    found = table(analyse(*simulate()))
    same, halved = found["balloon", 1], found["balloon", 2]
    assert same["p99_change_ratio"].value == 1 and same["p99_change_ratio"].low is None and same["slowest_added"].value == 0
    assert halved["p99_change_ratio"].low <= 2 <= halved["p99_change_ratio"].high and halved["p99_change_ratio"].n == 5
    assert halved["p99"].value == pytest.approx(4, rel=0.02)
    assert halved["slowest"].value == pytest.approx(60, rel=0.02)
    assert halved["slowest_added"].value == pytest.approx(halved["slowest"].value - 9)
    first = table(analyse(*simulate({"limits": (100, 50)})))["balloon", 1]
    assert first["slowest_added"].value == pytest.approx(first["slowest"].value - 9), "against the phase before all changes"


def test_a_pool_whose_limit_was_refused_is_no_reference(simulate):
    analysis = analyse(*simulate(refuse=lambda pool, limit: pool == "large" and limit == 50))
    found = table(analysis)
    ratio = found["balloon", 2]["native_ratio"]
    assert ratio.low <= 7600 / 8000 <= ratio.high and ratio.note.startswith("÷ pool small")
    assert found["large", 2]["limited_after"].value is None and found["large", 2]["refused"] == "5 of 5"
    assert "the kernel refused the limit" in found["large", 2]["limited_after"].note
    refused = found["large", 2]["native_ratio"]
    assert refused.value is None and refused.note == "the kernel refused the limit in 5 of 5 trials", "it had more memory"
    assert analysis.details == ["Pool large: the kernel refused 5 of 15 changes for half of the phase."]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([100] * 16, 0),
        ([100, 100, 80, 100, 100] + [100] * 11, 0),  # a single second
        ([70_000] * 3 + [0] * 5 + [25_000] * 8, 8),  # the outage follows seconds with the former limit
        ([70_000] * 3 + [5_000] * 4 + [25_000] * 9, 7),
        ([0] * 4 + [100] * 12, 4),
        ([100] * 10 + [10] * 3 + [100] * 3, 0),  # a stall in the second half is no part of the change
        ([0] * 8 + [1, 2, 4, 8, 16, 32, 64, 128], 12),
        ([100] * 8 + [0] * 8, None),
    ],
)
def test_recovery_begins_at_the_lowest_throughput(values, seconds):
    target = TargetResult(
        target="a", driver="pgbench", transactions=1, throughput=1, per_second=values, latency=Latency(mean=1), first=0, last=1
    )
    phase = PhaseResult(phase="p", start=0, end=len(values), overlap=1.0, targets=[target])
    assert recovered_after(phase) == seconds


def test_a_pool_without_throughput_has_no_ratio(simulate):
    found = table(analyse(*simulate({"pools": ("large", "balloon")}, stall=lambda pool, limit: pool == "large" and limit == 50)))
    assert found["large", 2]["recovered_after"].value is None
    for pool in ("large", "balloon"):
        assert found[pool, 2]["native_ratio"].note in ("no throughput", "no interval: it is the best native pool")


def test_kills_are_a_result(simulate):
    options, results = simulate(kill=lambda pool: pool == "large")
    analysis = analyse(options, results)
    found = table(analysis)
    assert "an OOM kill ended 5 of 5 trials" in found["large", 2]["throughput"].note
    assert found["balloon", 2]["native_ratio"].note.startswith("÷ pool small")
    assert [row["killed"] for row in analysis.tables["pools"]] == ["0 of 5", "5 of 5", "0 of 5"]
    assert any("an OOM kill ended 5 of 5 trials" in detail for detail in analysis.details)


def test_a_pool_with_a_kill_has_no_ratio(simulate):
    """The trials that ran to their end may be those that needed the least memory."""
    kills = iter([True, True])
    analysis = analyse(*simulate(kill=lambda pool: pool == "balloon" and next(kills, False)))
    found = table(analysis)["balloon", 2]
    assert found["throughput"].n == 3 and found["native_ratio"].value is None
    assert analysis.answer == "pg_balloon at 50 % of the memory: no ratio to a native pool, since an OOM kill ended 2 of 5 trials."


def test_without_a_native_pool_there_is_no_ratio(simulate):
    analysis = analyse(*simulate({"pools": ("balloon",)}))
    assert "no ratio to a native pool, since no native pool kept to the limit" in analysis.answer


def test_nothing_finished(simulate):
    options, results = simulate(kill=lambda pool: True)
    analysis = analyse(options, results)
    assert analysis.answer == "No result: no trial finished." and analysis.grade == "C"
    record = RunRecord(run="r", study="balloon-limits", options=options.model_dump(mode="json"), started=0.0, pgherd="0", analysis=analysis)
    with pytest.raises(FigureUnavailable):
        over_time(FigureInputs(record=record, analysis=analysis, results=results))


def test_tainted_trials_are_an_indication(simulate):
    analysis = analyse(*simulate(taint=lambda pool: pool != "small"))
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only: ")


def test_the_figure_has_every_second_and_the_limit(simulate):
    options, results = simulate()
    analysis = analyse(options, results)
    record = RunRecord(run="r", study="balloon-limits", options=options.model_dump(mode="json"), started=0.0, pgherd="0", analysis=analysis)
    figure = over_time(FigureInputs(record=record, analysis=analysis, results=results))
    datasets = specification(figure, validate=True)["datasets"].values()
    rows = [row for dataset in datasets for row in (json.loads(dataset) if isinstance(dataset, str) else dataset)]
    seconds = [row["second"] for row in rows if row.get("pool") == "balloon"]
    assert seconds == [number + 0.5 for number in range(40)]
    limits = [share * 1024 for share in (1, 1, 0.5, 1, 1)]
    assert [row["limit"] for row in rows if "limit" in row] == pytest.approx(limits)
