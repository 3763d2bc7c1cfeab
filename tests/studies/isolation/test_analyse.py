import random

import pytest

from pgherd.analysis.block_ratios import paired_ratio
from pgherd.model.analysis import Finding
from pgherd.studies.isolation.analyse import analyse, conclusion, pairs_of, worst_of
from pgherd.study.findings import as_finding


def test_known_ratios_are_found(simulate):
    options, results = simulate()
    analysis = analyse(options, results)
    found = {(row["scheme"], row["aggressor"]): row for row in analysis.tables["isolation"]}
    for cell, factor in {("shared-server", "wal"): 8, ("shared-server", "cpu"): 3, ("quota", "wal"): 2, ("quota", "cpu"): 1}.items():
        ratio = found[cell]["p99_ratio"]
        assert ratio.low <= factor <= ratio.high and ratio.n == 8 and ratio.unit == "ratio"
        assert found[cell]["conclusion"] == ("suffers" if factor > 1 else "no effect shown")
    assert found["quota", "cpu"]["throughput_ratio"].value == 1
    assert found["quota", "cpu"]["aggressor_throughput"].value == 40
    worst = analysis.findings["worst_p99_ratio"]
    assert worst.low < 8 < worst.high and "4 comparisons" in worst.method
    assert worst.value == found["shared-server", "wal"]["p99_ratio"].value, "the sentence and the table have one value"
    assert "wal, in scheme shared-server; scheme quota has the lowest worst ratio, 1.93" in analysis.answer
    assert [row["aggressor"] for row in analysis.tables["worst"]] == ["wal", "wal"]


def test_wait_events_are_those_of_the_victims_server(simulate):
    """Next to wal it waits for I/O. The aggressor's server waits for locks."""
    options, results = simulate({"schemes": ("shared-container",), "repeats": 3}, factors={("shared-container", "wal"): 8.0})
    none = {f"waits.{name}": 0.0 for name in ("cpu", "lock", "lwlock", "io", "ipc", "client", "other")}
    sampled = []
    for result in results:
        assert result.trial.wait_events
        waits = {"waits.io": 3.0, "waits.cpu": 1.0} if result.trial.point["aggressor"] == "wal" else {"waits.cpu": 1.0}
        metrics = {"server:all/victim": none | waits, "server:all/aggressor": none | {"waits.lock": 9.0}}
        sampled.append(result.model_copy(update={"phases": [result.phases[0].model_copy(update={"metrics": metrics})]}))
    analysis = analyse(options, sampled)
    found = {row["aggressor"]: (row["on_cpu"].value, row["waits_io"].value) for row in analysis.tables["wait_events"]}
    assert found == {"none": (1, 0), "cpu": (1, 0), "wal": (0.25, 0.75)}
    place = "scheme shared-container"
    assert analysis.details == [
        f"Active sessions differ most in the share waiting for I/O: 75 % in {place} next to wal, 0 % in {place} alone."
    ]
    assert "wait_events" not in analyse(options, results).tables and analyse(options, results).details == []


def test_fio_counts_ios(simulate):
    options, results = simulate({"aggressors": ("cpu", "fio"), "scripts_of": {"cpu": "/x/cpu.sql"}, "repeats": 1})
    units = {row["aggressor"]: row["aggressor_throughput"].unit for row in analyse(options, results).tables["isolation"]}
    assert units == {"cpu": "tps", "fio": "IOPS"}


def test_the_worst_of_equal_ratios_covers_the_truth():
    """Without a correction the largest of 15 intervals would lie above 1 in about a third of all runs in which nothing has an effect."""
    chance, above = random.Random(4), 0
    for _ in range(200):
        cells = {}
        for number in range(15):
            values = [chance.lognormvariate(0, 0.2) for _ in range(6)]
            estimate = paired_ratio(values, [1.0] * 6, 1 - 0.05 / 15)
            cells[str(number)] = as_finding(estimate, "ratio")
        _, worst = worst_of(cells, 15)
        assert worst.value == max(cell.value for cell in cells.values())
        above += worst.low > 1
    assert above <= 20, "at most 5 % are expected, and 20 of 200 are far beyond chance"


def test_an_unknown_ratio_leaves_the_worst_open(simulate):
    options, results = simulate(factors={("shared-server", "cpu"): None})
    analysis = analyse(options, results)
    worst = analysis.findings["worst_p99_ratio"]
    assert worst.value == pytest.approx(8, rel=0.1) and worst.low is worst.high is None
    assert "shared-server/cpu has no p99 ratio and may be worse" in worst.note
    row = next(row for row in analysis.tables["isolation"] if (row["scheme"], row["aggressor"]) == ("shared-server", "cpu"))
    assert row["p99_ratio"].value is None and "too few transactions for a p99" in row["p99_ratio"].note
    assert row["conclusion"] == "not known"
    assert "wal, in scheme shared-server; scheme quota has the lowest worst ratio, 1.93" in analysis.answer
    assert analysis.answer.endswith("; no p99 ratio is known next to cpu in scheme shared-server, which may be worse.")
    assert (analysis.grade, analysis.grade_reason) == ("B", "too few transactions for a p99 in trials of shared-server/cpu")


def test_a_scheme_with_an_unknown_ratio_is_not_the_best(simulate):
    """The wal that starves the victim in quota may be worse than all in shared-server."""
    answer = analyse(*simulate(factors={("quota", "wal"): None})).answer
    assert "wal, in scheme shared-server; no p99 ratio is known next to wal in scheme quota, which may be worse." in answer
    assert "lowest worst ratio" not in answer


def test_blocks_without_a_p99_lower_the_grade(simulate):
    """They are the worst ones, and no pair has them."""
    options, results = simulate(starved=lambda trial: trial.repeat < 2 and trial.point == {"scheme": "quota", "aggressor": "wal"})
    analysis = analyse(options, results)
    assert analysis.findings["p99_ratio{scheme=quota,aggressor=wal}"].n == 6
    assert (analysis.grade, analysis.grade_reason) == ("B", "too few transactions for a p99 in trials of quota/wal")


def test_pairs_are_of_one_block_and_clean_where_there_are_enough(simulate):
    _, results = simulate({"max_reruns": 0}, taint=lambda trial: trial.repeat < 2 and trial.point["aggressor"] == "wal")
    pairs = pairs_of(results, "quota", "wal")
    assert pairs.clean and pairs.tainted == 2
    assert [pair[0].trial.repeat for pair in pairs.trials] == [pair[1].trial.repeat for pair in pairs.trials] == [2, 3, 4, 5, 6, 7]
    assert pairs_of(results, "quota", "cpu").tainted == 0


def test_tainted_trials_give_an_indication(simulate):
    options, results = simulate(taint=lambda trial: True)
    analysis = analyse(options, results)
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only: ")
    assert all("an indication" in row["p99_ratio"].note for row in analysis.tables["isolation"])


def test_a_victim_that_is_too_slow_alone_is_reported(simulate):
    options, results = simulate(
        check="rate-achieved", taint=lambda trial: (trial.point["scheme"], trial.point["aggressor"]) == ("quota", "none")
    )
    (warning,) = [text for text in analyse(options, results).warnings if "missed its rate" in text]
    assert warning.startswith("The victim alone missed its rate in scheme quota: ratios there say little")


def test_a_clean_run_has_grade_a_and_few_blocks_no_interval(simulate):
    options, results = simulate()
    assert analyse(options, results).grade == "A"
    options, results = simulate({"repeats": 2})
    analysis = analyse(options, results)
    assert analysis.findings["worst_p99_ratio"].note == "no interval: fewer than 3 blocks"
    assert "(no interval)" in analysis.answer
    assert analysis.next_steps == ["more blocks give intervals: --repeats 6"]


def test_no_trials_raise_nothing(make_options):
    analysis = analyse(make_options(), [])
    assert analysis.answer == "No result: no p99 ratio is known." and analysis.grade == "C"


@pytest.mark.parametrize(
    ("p99", "throughput", "text"),
    [
        ((1.1, 2), (0.9, 1.1), "suffers"),
        ((0.9, 2), (0.5, 0.9), "suffers"),
        ((0.9, 2), (0.9, 1.1), "no effect shown"),
        ((0.5, 0.9), (0.9, 1.1), "gains"),
        ((None, None), (0.5, 0.9), "suffers"),
        ((None, None), (0.9, 1.1), "not known"),
    ],
)
def test_conclusions(p99, throughput, text):
    def finding(ends):
        return Finding(value=1, unit="ratio", low=ends[0], high=ends[1])

    assert conclusion(finding(p99), finding(throughput)) == text
