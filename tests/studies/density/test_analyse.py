"""The analysis of simulated runs with known truth."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.deployment import Host
from pgherd.model.study import RunnableStudy
from pgherd.studies.density.analyse import _trials_used
from pgherd.studies.density.curve import density_curve, density_points, floor_tenths, with_interval
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.studies.density.study import STUDY

Build = Callable[..., DensityOptions]

COLUMNS = {
    "density": "databases cores_allocated allocated_share throughput throughput_per_core ideal cpu_share efficiency efficiency_vs_single "
    "cpu_per_tx cpu_efficiency p50 p95 p99 jain_index min_max_ratio bottleneck trials tainted_trials published_efficiency",
    "cpu": "databases allocated_share databases_cpu clients_cpu pgherd_cpu platform_cpu iowait idle steal",
    "modes": "databases mode trials cost_ratio cpu_per_tx client_per_tx system_per_tx switches_per_tx throttled_share runnable p50 "
    "under_50us lowest_throughput highest_throughput",
    "models": "model parameters aicc relative_error knee peak selected",
}
FINDINGS = (
    "single_database_throughput reference_throughput capacity capacity_by_cpu capacity_by_throughput cost_ratio "
    "efficiency_at_saturation linear_range_end saturation_point peak_throughput "
    "usl_sigma usl_kappa usl_peak_load knee retrograde_ratio jain_index min_max_ratio min_max_ratio_worst "
    "platform_overhead_inferred platform_overhead_inferred_share platform_overhead_measured cpu_limit_utilization"
)


def finished(options: DensityOptions, host: Any) -> Analysis:
    return STUDY.analyse(options, host.until_stop()[0])


def row(analysis: Analysis, databases: int, table: str = "density") -> dict[str, Any]:
    return next(r for r in analysis.tables[table] if r["databases"] == databases)


def test_it_is_a_study() -> None:
    study: RunnableStudy[DensityOptions] = STUDY
    assert study.name == "density"
    assert study.options is DensityOptions


def test_a_full_host(options: Build, simulate: Any) -> None:
    """Linear up to all cores, flat beyond: 8 databases fill the host, and the capacity is 8/0.85 = 9.4."""
    analysis = finished(options(), simulate(options()))
    held = analysis.findings["capacity"]
    assert analysis.grade == "A"
    assert held == analysis.findings["capacity_by_cpu"]
    assert held.value == pytest.approx(8 / 0.85, rel=1e-6)
    by_throughput = analysis.findings["capacity_by_throughput"]
    assert by_throughput.value == pytest.approx(8 / 0.85, rel=0.02)
    assert by_throughput.low < 8 / 0.85 < by_throughput.high
    assert analysis.answer == "Capacity: 9 databases of 0.25 vCPU receive 85 % of their CPU (9.41, 95 % interval 9.41–9.41)."
    by_throughput_text, cost, limits, used = analysis.details
    assert by_throughput_text.startswith("By throughput: 9.") and ", as at 6 databases, 95 % interval 9.2–9.5." in by_throughput_text
    assert cost.startswith("At 10 databases a transaction costs ") and "times as much CPU as at 6 databases" in cost
    assert "CPU-bound: the host is full from 8 databases on" in limits
    assert "up to 6 databases are limited by their CPU quota" in limits
    assert used == "Steal was below 2 % in 21 of 21 trials; 21 count, after all checks."
    assert analysis.findings["single_database_throughput"].low < 15_000 < analysis.findings["single_database_throughput"].high
    assert analysis.findings["reference_throughput"].value == pytest.approx(15_000, rel=0.01)
    assert analysis.findings["linear_range_end"].value == 8
    assert analysis.findings["linear_range_end"].high == 10
    assert analysis.findings["saturation_point"].value == 8
    assert analysis.findings["peak_throughput"].value == pytest.approx(120_000, rel=0.02)
    assert analysis.findings["efficiency_at_saturation"].low < 1 < analysis.findings["efficiency_at_saturation"].high
    assert analysis.findings["cpu_limit_utilization"].value == pytest.approx(1, abs=0.01)
    assert analysis.findings["knee"].value == pytest.approx(8, abs=0.3)
    assert analysis.figures["models"]["best"] == "piecewise-linear"
    assert [r["bottleneck"] for r in analysis.tables["density"]] == ["cpu-quota"] * 5 + ["host-cpu"] * 2


def test_sentence_table_and_finding_name_a_cpu_set(options: Build, simulate: Any) -> None:
    given = options(cpu_mode="cpuset", vcpus=1, host_cores=8)
    analysis = finished(given, simulate(given))
    assert any("up to 6 databases are limited by their CPU set" in text for text in analysis.details)
    assert [row["bottleneck"] for row in analysis.tables["density"]] == ["cpuset"] * 5 + ["host-cpu"] * 2
    assert "a CPU set limits the databases up to 6" in analysis.findings["linear_range_end"].note


def test_names_are_those_that_the_report_reads(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), overhead=0.1))
    for table, columns in COLUMNS.items():
        for each in analysis.tables[table]:
            assert set(columns.split()) <= set(each)
    assert set(FINDINGS.split()) <= set(analysis.findings)
    assert "platform_cpu.vm" in analysis.tables["cpu"][0]
    assert {"models", "published"} <= set(analysis.figures)
    curve_of = analysis.figures["models"]["piecewise-linear"]
    assert len(curve_of["n"]) == len(curve_of["x"])
    assert analysis.figures["published"][-1]["efficiency"] == pytest.approx(0.857, abs=5e-4)
    assert row(analysis, 8)["published_efficiency"] == pytest.approx(0.857, abs=5e-4)
    assert row(analysis, 8)["efficiency_vs_single"].experiment == "E1"
    assert analysis.findings["platform_overhead_inferred"].experiment == "E2"
    assert Analysis.model_validate_json(analysis.model_dump_json()) == analysis


def test_every_number_has_a_reason_or_an_interval(options: Build, simulate: Any) -> None:
    for host in (simulate(options()), simulate(options(), metrics=False), simulate(options(), taint=lambda t: "steal")):
        analysis = finished(options(), host)
        cells = [c for t in analysis.tables.values() for r in t for c in r.values() if isinstance(c, Finding)] + list(
            analysis.findings.values()
        )
        for cell in cells:
            if cell.value is None:
                assert cell.note
                assert cell.low is None
            elif cell.low is None:
                assert "no interval" in cell.note, cell
            elif cell.confidence is not None:
                assert cell.low <= cell.value <= cell.high


def test_no_interval_reaches_beyond_what_can_be(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 8), repeats=3)
    results = simulate(given).all(planned(given))
    for result, busy in zip([r for r in results if r.trial.point["databases"] == 8], (0.0, 0.0, 0.3), strict=True):
        (phase,) = result.phases
        host = phase.metrics["host"]
        host["cpu.user"] = host["cpu.user"] - 0.1 + busy
        first = phase.targets[0]
        phase.targets[0] = first.model_copy(update={"throughput": first.throughput * (1 - busy)})
    analysis = STUDY.analyse(given, results)
    cells = [*row(analysis, 8).values(), *row(analysis, 8, "cpu").values()]
    names = ("jain_index", "min_max_ratio", "min_max_ratio_worst")
    ratios = [row(analysis, 8)["jain_index"], row(analysis, 8)["min_max_ratio"], *(analysis.findings[name] for name in names)]
    assert all(cell.low < cell.value < cell.high == 1 for cell in ratios)
    for cell in (row(analysis, 8, "cpu")["platform_cpu"], analysis.findings["platform_overhead_measured"]):
        assert cell.low is None and "no interval: the 3 repeats range from 0 to 0.2" in cell.note
    assert all(cell.low >= 0 for cell in cells if isinstance(cell, Finding) and cell.low is not None)


def test_what_the_platform_takes(options: Build, simulate: Any) -> None:
    """A platform that uses 0.4 of 2 cores: measured directly, and inferred only when the remaining cores are full."""
    analysis = finished(options(), simulate(options(databases=(1, 2, 4, 5, 6, 7, 8, 10)), overhead=0.4))
    assert analysis.findings["platform_overhead_measured"].value == pytest.approx(0.4, abs=1e-6)
    assert analysis.findings["platform_overhead_measured.vm"].value == pytest.approx(0.2)
    assert analysis.findings["knee"].value == pytest.approx(6.4, abs=0.3)
    assert "no bound" in analysis.findings["platform_overhead_inferred"].note
    at_full = row(analysis, 8)["efficiency"]
    assert at_full.low < 0.8 < at_full.high


def test_a_slow_single_database_does_not_flatter(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), alone=0.85))
    assert row(analysis, 6)["efficiency_vs_single"].value > 1.1
    assert row(analysis, 8)["efficiency"].value == pytest.approx(1, abs=0.02)
    assert any("A lone client sleeps after each query" in text for text in analysis.warnings)
    assert analysis.findings["capacity_by_throughput"].value == pytest.approx(8 / 0.85, rel=0.02)
    assert analysis.findings["capacity_vs_single"].value is None
    assert "as at" not in analysis.findings["capacity"].method and "6 databases" in analysis.findings["capacity_by_throughput"].method
    exact = finished(options(), simulate(options(), alone=0.8, noise=0))
    assert any("makes 12,000 tps, 20 % less than each of 6 databases (15,000 tps)" in text for text in exact.warnings)


def test_a_boosted_single_database_is_explained(options: Build, simulate: Any) -> None:
    analysis = finished(options(efficiency=0.75), simulate(options(), alone=1.15))
    assert any("boosted clocks" in text for text in analysis.warnings)
    assert analysis.findings["capacity_vs_single"].value == pytest.approx(8 / 0.75 / 1.15, rel=0.02)


def test_never_below_claims_no_more_than_was_measured(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 3, 5, 6))
    analysis = finished(given, simulate(given))
    assert analysis.findings["capacity"].value is None
    assert "at least 6" in analysis.findings["capacity"].note
    assert "Capacity: at least 6 databases" in analysis.answer
    assert any("past 100 %" in text for text in analysis.warnings)
    assert analysis.figures["models"]["best"] == "linear"


def test_at_least_is_no_more_than_the_interval_bears_out(options: Build, simulate: Any) -> None:
    """Nine databases have 8/9 of ideal, above 85 %, but noisy trials do not confirm it."""
    given = options(databases=(1, 2, 4, 8, 9))
    exact, noisy = (finished(given, simulate(given, noise=noise, metrics=False)) for noise in (0.001, 0.03))
    assert exact.answer == "Capacity: at least 9 databases of 0.25 vCPU at 85 % efficiency."
    assert exact.details[0] == "9 databases is the largest number measured (112 % of the cores)."
    assert (exact.grade, exact.grade_reason) == ("B", "the answer is open, since the crossing was not measured")
    assert "nor does the spread of its repeats" in exact.findings["capacity"].note
    assert noisy.answer == "Capacity: at least 8 databases of 0.25 vCPU at 85 % efficiency."
    assert noisy.details[0].startswith("95 % interval from 8.")
    assert "; 9, the largest number measured (112 % of the cores), had 8" in noisy.details[0]
    assert "capacity at least 8 databases (from 8." in noisy.findings["capacity"].note
    few = options(databases=(1, 2, 4, 8, 9), repeats=1)
    single = finished(few, simulate(few, noise=0.001, metrics=False))
    assert "at least 9 databases" in single.answer and "too few repeats for an interval" in single.details[0]
    assert "no interval: too few repeats" in single.findings["capacity"].note


def test_a_grade_judges_the_answer(options: Build, simulate: Any) -> None:
    """A run whose trials are all clean, but whose throughput at ten databases is known badly, is not of grade A."""

    class Noisy(simulate):
        def run(self, trial: Any) -> Any:
            self.noise = 0.25 if trial.point["databases"] == 10 else 0.01
            return super().run(trial)

    analysis = finished(options(), Noisy(options()))
    assert analysis.grade == "B"
    assert re.fullmatch(r"the throughput of (8|10) databases is known to ± \d\d[.\d]* % only", analysis.grade_reason)
    wide = finished(options(), Noisy(options(), metrics=False))
    assert wide.grade == "B" and "interval" in wide.grade_reason


def test_two_modes_are_named_and_leave_the_cpu_capacity(options: Build, simulate: Any) -> None:
    class Modes(simulate):
        def truth(self, n: int) -> float:
            fast = random.Random(f"{self.seed} {n} {self.clock}").random() < 0.5
            return super().truth(n) * ((1.25 if fast else 0.75) if n >= 8 else 1.0)

    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12))
    analysis = finished(given, Modes(given))
    assert analysis.findings["capacity"].value == pytest.approx(8 / 0.85)
    by_throughput = analysis.findings["capacity_by_throughput"]
    assert by_throughput.low is None and "on two levels" in by_throughput.note
    assert analysis.findings["slow_level"].value == pytest.approx(45_000, rel=0.03)
    assert analysis.findings["fast_level"].value == pytest.approx(75_000, rel=0.03)
    assert 0 < analysis.findings["fast_share"].value < 1
    assert {line["mode"] for line in analysis.tables["modes"] if line["databases"] >= 8} == {"slow", "fast"}
    assert any(text.startswith("Two levels: ") for text in analysis.warnings)
    assert any("in two modes: " in text for text in analysis.details)
    one = finished(given, simulate(given, noise=0.08))
    assert one.findings["fast_level"].value is None


def test_trials_that_are_not_steady_are_named(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given).all(planned(given))
    for result in results:
        (phase,) = result.phases
        falling = result.trial.point["databases"] == 10
        for index, target in enumerate(phase.targets):
            series = [target.throughput * (1.3 - 0.1 * second if falling else 1) for second in range(8)]
            phase.targets[index] = target.model_copy(update={"per_second": series})
    texts = [text for text in STUDY.analyse(given, results).warnings if "not steady" in text]
    assert len(texts) == 1 and texts[0].startswith("Throughput is not steady within most trials of 10 databases: ")


def test_trials_too_short_to_show_whether_they_are_steady_are_named(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given).all(planned(given))
    for result in results:
        (phase,) = result.phases
        phase.targets[:] = [
            target.model_copy(update={"per_second": [2 * target.throughput, target.throughput]}) for target in phase.targets
        ]
    texts = [text for text in STUDY.analyse(given, results).warnings if "steady" in text]
    assert len(texts) == 1 and "the longest one counts 2 s, and the rule needs 5 s" in texts[0]


def test_above_the_capacity_fewer_than_the_smallest_number_are_enough(options: Build, simulate: Any) -> None:
    given = options(host_cores=2, vcpus=0.25, databases=(10, 12))
    answer = finished(given, simulate(given, overhead=0.4)).answer
    assert answer.startswith("Capacity: fewer than 10 databases of 0.25 vCPU receive 85 % of their CPU")


@pytest.mark.parametrize(
    ("overhead", "words"), [(0.4, "no database of 2 vCPU receives 85 % of its CPU."), (0.1, "1 database of 2 vCPU receives")]
)
def test_one_database_is_spoken_of_as_one(options: Build, simulate: Any, overhead: float, words: str) -> None:
    given = options(host_cores=2, vcpus=2, databases=(1, 2))
    assert words in finished(given, simulate(given, overhead=overhead)).answer


def answers(options: Build, simulate: Any) -> Iterator[str]:
    """Answers with every part that makes one longer: several hosts, a rate, an open interval, tainted trials only."""
    hosts = tuple(Host(name=f"h{number}", cores=1.0) for number in (1, 2))
    points: tuple[dict[str, Any], ...] = ({}, {"efficiency": 0.81}, {"databases": (10,)})
    for over, rate, extra in itertools.product(((), hosts), (None, 15_000), points):
        given = options(over=over, rate=rate, **extra)
        yield finished(given, simulate(given, metrics=rate is None, taint=lambda trial: "steal", noise=0.02)).answer
    for noise in (0, 0.02):
        yield finished(options(), simulate(options(), noise=noise)).answer


def test_answers_are_short(options: Build, simulate: Any) -> None:
    found = list(answers(options, simulate))
    for answer in found:
        assert answer.endswith(".") and len(answer.split()) <= 20, answer
    several = "^Indication only: 2 hosts: .* tps each, 81 % efficiency .* interval from"
    for part in (r"% interval from \d", r"% interval \d\S+–\d", several):
        assert any(re.search(part, answer) for answer in found), part


def test_a_number_that_is_held_is_never_rounded_up() -> None:
    assert [floor_tenths(value) for value in (8.98, 9.0, 8.999999999, 9.04, 9.1)] == ["8.9", "9.0", "9.0", "9.0", "9.1"]


def test_an_interval_is_not_printed_with_equal_ends() -> None:
    assert with_interval(9.25, 9.18, 9.31) == ("9.2", "9.1–9.3")
    assert with_interval(2.33, 2.31, 2.34) == ("2.33", "2.31–2.34")


def test_cpu_per_transaction_where_the_rate_hides_it(options: Build, simulate: Any) -> None:
    """The rate makes throughput linear, but every transaction costs more CPU. Only cpu_efficiency shows it."""
    given = options(rate=3000)
    results, _ = simulate(given).until_stop()
    for result in results:
        n = result.trial.point["databases"]
        for entity, metrics in result.phases[0].metrics.items():
            if entity.startswith("container:"):
                metrics["cpu.usage"] *= 0.2 * (1 + 0.02 * (n - 1))
    analysis = STUDY.analyse(given, results)
    assert row(analysis, 8)["efficiency"].value == pytest.approx(1, abs=0.02)
    assert row(analysis, 8)["cpu_efficiency"].value == pytest.approx(1.1 / 1.14, abs=0.02)


def test_what_was_not_seen_is_not_claimed(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), metrics=False))
    for name in ("platform_overhead_measured", "cpu_limit_utilization", "pgherd_cpu"):
        assert analysis.findings[name].value is None
        assert analysis.findings[name].note
    assert row(analysis, 3)["cpu_per_tx"].value is None
    assert row(analysis, 3, "cpu")["platform_cpu"].value is None
    assert "The bottleneck is unknown." in analysis.details
    assert analysis.findings["capacity"].value == pytest.approx(8 / 0.85, rel=0.02)


def test_tainted_trials_do_not_count_beside_clean_ones(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), taint=lambda t: "steal" if t.key() == "databases=6#1" else None))
    assert analysis.grade == "A"
    assert row(analysis, 6)["tainted_trials"] == 1
    assert row(analysis, 6)["trials"] == 4
    assert row(analysis, 6)["throughput"].value == pytest.approx(90_000, rel=0.02)
    assert any("1 of 22 trials are tainted, by steal (1)" in text for text in analysis.warnings)


def test_a_point_with_only_tainted_trials_appears_marked(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), taint=lambda t: "steal" if t.point["databases"] == 5 else None))
    assert analysis.grade == "B"
    assert "only tainted" in row(analysis, 5)["throughput"].note
    assert row(analysis, 5)["throughput"].value == pytest.approx(52_500, rel=0.03)
    assert any("Only tainted trials for 5" in text for text in analysis.warnings)


def test_an_answer_that_rests_mostly_on_tainted_trials_is_an_indication(options: Build, simulate: Any) -> None:
    def noisy(*databases: int) -> Analysis:
        return finished(options(), simulate(options(), taint=lambda t: "steal" if t.point["databases"] in databases else None))

    few, most = noisy(2, 5, 8), noisy(2, 3, 5, 8)
    assert few.grade == "B" and not few.answer.startswith("Indication only")
    assert "Only tainted trials for 2, 5, 8 databases: these numbers are an indication" in few.warnings
    assert most.grade == "C" and most.answer.startswith("Indication only: Capacity: ")
    assert any("for 2, 3, 5, 8 databases (4 of 7 points, half of them or more): the whole answer" in text for text in most.warnings)
    reference = noisy(6)
    assert reference.grade == "C"
    assert any("(every efficiency depends on 6 databases): the whole answer" in text for text in reference.warnings)


def test_a_crossing_beyond_what_was_measured_names_the_next_number(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 3, 5, 6))
    (never,) = [text for text in finished(given, simulate(given)).next_steps if "--databases" in text]
    assert never == (
        "the point at 85 % efficiency is beyond 6 databases, the largest number measured; density with --databases 1,2,3,5,6,11 "
        "also measures 11"
    )
    near = options(efficiency=0.81)  # the capacity is 8/0.81 = 9.9
    noisy = finished(near, simulate(near, noise=0.02, metrics=False))
    assert "95 % interval from 9." in noisy.answer and noisy.grade_reason == "the answer's interval is open"
    assert any(text.startswith("the upper bound of the capacity is beyond 10 databases") for text in noisy.next_steps)
    assert any("--databases 1,2,3,5,6,8,10,13 " in text for text in noisy.next_steps)
    seen = finished(options(databases=(1, 2, 4, 8, 12)), simulate(options(databases=(1, 2, 4, 8, 12)), metrics=False))
    assert seen.findings["capacity"].high < 12 and not any("--databases" in text for text in seen.next_steps)


def test_a_wide_interval_names_the_repeats_that_narrow_it(options: Build, simulate: Any) -> None:
    def said(noise: float) -> list[str]:
        return [text for text in finished(options(), simulate(options(), noise=noise)).next_steps if "is known to" in text]

    assert said(0.01) == []
    (wide,) = said(0.1)
    known, more = wide.split(": ")
    match = re.fullmatch(r"throughput of \d+ databases? is known to ± (\d+) % only \((\d+) trials\)", known)
    enough = re.fullmatch(r"by their spread --repeats (\d+) narrows it to ± 10 %", more)
    assert match and int(match[1]) > 10 and enough and int(enough[1]) > int(match[2]), wide
    (hopeless,) = said(0.6)
    assert hopeless.endswith("try a longer --duration, or rerun on an idle machine")
    given = options(databases=(1, 2, 3), repeats=40)
    lost = finished(given, simulate(given, noise=0.1, fail=lambda trial: "it died" if trial.repeat > 3 else None))
    (asked,) = [text for text in lost.next_steps if "is known to" in text]
    assert asked.endswith("try a longer --duration, or rerun on an idle machine"), "no fewer repeats than requested are proposed"


def test_no_number_is_advised_that_would_be_refused(options: Build, simulate: Any) -> None:
    def said(fail: Any = lambda trial: None, **more: Any) -> list[str]:
        given = options(databases=(1, 2, 3, 5, 6), **more)
        return [text for text in finished(given, simulate(given, fail=fail)).next_steps if "is beyond" in text]

    (full,) = said(max_databases_in_memory=6)
    assert full.endswith("the largest number measured; memory holds no more: lower --memory or --scale")
    (near,) = said(max_databases_in_memory=9)
    assert near.endswith("density with --databases 1,2,3,5,6,9 also measures 9")
    (free,) = said(max_databases_in_memory=40)
    assert free.endswith("density with --databases 1,2,3,5,6,11 also measures 11")
    assert said(fail=lambda trial: "it died" if trial.point["databases"] == 6 else None) == [], "six are planned, and run first"


@pytest.mark.parametrize("which", [lambda t: True, lambda t: t.point["databases"] == 6, lambda t: t.point["databases"] != 1])
def test_tainted_throughout_is_an_indication_only(options: Build, simulate: Any, which: Callable[..., bool]) -> None:
    analysis = finished(options(), simulate(options(), taint=lambda t: "steal" if which(t) else None))
    assert analysis.grade == "C"
    assert analysis.answer.startswith("Indication only: ")


def test_what_could_not_be_checked_is_not_grade_a(options: Build, simulate: Any) -> None:
    given = options()
    results, _ = simulate(given).until_stop()
    results = [
        r.model_copy(update={"checks": [v.model_copy(update={"result": "unknown"}) if v.name == "cached" else v for v in r.checks]})
        for r in results
    ]
    analysis = STUDY.analyse(given, results)
    assert analysis.grade == "B"
    assert any("Could not be checked here" in text and "cached" in text for text in analysis.warnings)


def test_failed_trials_are_said(options: Build, simulate: Any) -> None:
    analysis = finished(options(), simulate(options(), fail=lambda t: "the server died" if t.point["databases"] == 10 else None))
    assert any(text.startswith("Trial databases=10#0 did not finish: the server died") for text in analysis.warnings)
    assert any("No finished trial for 10 databases" in text for text in analysis.warnings)
    assert all(r["databases"] != 10 for r in analysis.tables["density"])
    assert analysis.grade == "B"


def test_taints_that_leave_too_few_for_an_interval_are_not_grade_a(options: Build, simulate: Any) -> None:
    given = options(max_reruns=0)
    analysis = finished(given, simulate(given, taint=lambda t: "steal" if t.key() == "databases=6#1" else None))
    assert row(analysis, 6)["throughput"].n == 2
    assert analysis.grade == "B"


def test_nothing_at_all(options: Build, simulate: Any) -> None:
    assert STUDY.analyse(options(), []).grade == "C"
    assert "no trial was run" in STUDY.analyse(options(), []).answer
    analysis = finished(options(), simulate(options(), fail=lambda t: "no"))
    assert analysis.grade == "C"
    assert "none of them finished" in analysis.answer


def test_any_prefix_of_a_run_can_be_analysed(options: Build, simulate: Any) -> None:
    given = options(repeats=1)
    results = simulate(given).all(planned(given))
    for cut in range(len(results) + 1):
        analysis = STUDY.analyse(given, results[:cut])
        assert analysis.answer


def test_single_repeats_have_numbers_without_intervals(options: Build, simulate: Any) -> None:
    given = options(repeats=1)
    analysis = finished(given, simulate(given))
    assert analysis.findings["capacity"].value is not None
    assert analysis.findings["capacity"].low is None
    assert "without an interval" in analysis.answer
    assert analysis.grade_reason == "the answer has no interval"
    assert any("fewer than 3 usable trials" in text for text in analysis.warnings)
    assert row(analysis, 8)["efficiency"].low is None


def test_a_single_database_is_not_needed(options: Build, simulate: Any) -> None:
    given = options(databases=(2, 3, 5, 6, 8, 10))
    analysis = finished(given, simulate(given))
    assert analysis.findings["single_database_throughput"].value is None
    assert row(analysis, 6)["efficiency_vs_single"].value is None
    assert analysis.findings["capacity"].value == pytest.approx(8 / 0.85, rel=0.02)
    assert analysis.findings["capacity_vs_single"].value is None
    full = finished(options(databases=(8, 10, 12)), simulate(options(databases=(8, 10, 12))))
    assert any("exclude what is lost up to 8 databases: no smaller number was measured" in text for text in full.warnings)


@pytest.mark.parametrize("only", [1, 8])
def test_one_point_holds_nothing(options: Build, simulate: Any, only: int) -> None:
    """Efficiency is 1 there by construction."""
    given = options(databases=(only,))
    analysis = finished(given, simulate(given))
    assert "at least" not in analysis.answer
    assert analysis.answer.endswith("a capacity needs several numbers of databases.")
    assert analysis.findings["capacity"].value is None


def test_without_a_limit_vcpus_are_no_more_than_a_way_to_count(options: Build, simulate: Any) -> None:
    analysis = finished(options(cpu_mode="none"), simulate(options(cpu_mode="none")))
    assert any("CPU of the databases was not limited" in text for text in analysis.warnings)


def test_an_open_interval_has_no_end_in_the_answer(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 4, 8, 10), efficiency=0.8, seed=1)
    answers = [finished(given, simulate(given, noise=0.02, seed=seed, metrics=False)).answer for seed in range(8)]
    opened = [text for text in answers if "95 % interval from" in text]
    assert opened
    assert not any("–" in text for text in opened)


def test_a_host_that_others_fill_is_not_full_of_databases(options: Build, simulate: Any) -> None:
    given = options()
    results, _ = simulate(given).until_stop()
    for result in results:
        host = result.phases[0].metrics["host"]
        host["cpu.user"], host["cpu.idle"] = host["cpu.user"] + host["cpu.idle"], 0.0
    few = [result for result in results if result.trial.point["databases"] <= 5]
    assert "but 0.75 of its 2 cores are used outside the containers" in " ".join(STUDY.analyse(given, few).details)
    assert "CPU-bound" not in " ".join(STUDY.analyse(given, few).details)
    assert "the host is full from 8 databases on" in " ".join(STUDY.analyse(given, results).details)


def test_a_rate_that_is_met(options: Build, simulate: Any) -> None:
    given = options(rate=10_000)
    analysis = finished(given, simulate(given))
    assert "of 0.25 vCPU, 10000 tps each, 85 % efficiency" in analysis.answer
    assert {r["bottleneck"] for r in analysis.tables["density"]} == {"rate-limit"}


def test_e1_published_table(options: Build, simulate: Any) -> None:
    """The table of E1 through the whole analysis."""
    e1 = {1: 64, 4: 256, 8: 512, 16: 1045, 24: 1540, 32: 1957, 40: 2194}
    given = options(host_cores=160, vcpus=4, databases=tuple(e1), repeats=1)

    class Published(simulate):
        def truth(self, n: int) -> float:
            return e1[n] * 1000

    analysis = finished(given, Published(given, noise=0))
    assert analysis.findings["efficiency_vs_single_at_saturation"].value == pytest.approx(0.857, abs=5e-4)
    assert analysis.findings["linear_range_end"].value == 32
    assert analysis.findings["platform_overhead_inferred"].value == pytest.approx(7.1, abs=0.1)  # published as "about 8 cores"
    assert analysis.findings["platform_overhead_inferred_share"].value == pytest.approx(1 - 1957 / 2048)
    assert analysis.findings["knee"].value == pytest.approx(29, abs=1)
    assert analysis.findings["usl_peak_load"].value is None
    assert "is not reported" in analysis.findings["usl_peak_load"].note
    assert "at least 40" in analysis.findings["capacity"].note


@pytest.mark.parametrize("alone", [1.0, 0.85])
def test_the_interval_of_the_capacity_covers_the_truth(options: Build, simulate: Any, alone: float) -> None:
    """Nominal coverage is 95 %. Of 60 simulated runs at least 51 must be covered (probability of fewer: below 0.1 %)."""
    given = options()
    trials = planned(given)
    covered = 0
    for seed in range(60):
        line = density_curve(given, density_points(given, simulate(given, seed=seed, noise=0.02, metrics=False, alone=alone).all(trials)))
        assert line.basis == "reference"
        held = line.capacity(line.basis)
        covered += held.low <= 8 / 0.85 <= held.high
    assert covered >= 51


@given(st.floats(1, 1e5), st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_a_faster_machine_has_the_same_efficiency(factor: float, seed: int) -> None:
    """A faster machine changes throughput only."""
    from dataclasses import replace

    base = _BUILD["options"](repeats=3)
    trials = planned(base)
    host = _BUILD["simulate"](base, seed=seed)
    base_curve, scaled_curve = (density_curve(base, density_points(base, replace(host, rate=60.0 * f).all(trials))) for f in (1.0, factor))
    assert scaled_curve.efficiencies("single").tolist() == pytest.approx(base_curve.efficiencies("single").tolist(), rel=1e-9)
    assert scaled_curve.capacity("single").value == pytest.approx(base_curve.capacity("single").value, rel=1e-6)
    assert scaled_curve.reference.value == pytest.approx(base_curve.reference.value * factor, rel=1e-9)


_BUILD: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _builders(options: Build, simulate: Any) -> None:
    _BUILD.update(options=options, simulate=simulate)


TAINT = Check(name="background-cpu", kind="noise", result="fail", observed="", expected="")
FLEET = tuple({"name": f"s{n}", "dsn": f"host=s{n}", "version": "18.1", "host": "h", "capacity": 2, "price": 5} for n in range(1, 11))


def test_listed_servers_are_judged_by_throughput(options: Build, simulate: Any) -> None:
    """As on a host of unknown cores, which is full with eight servers."""
    asked = options(fleet=FLEET, databases=tuple(range(1, 11)), cpu_mode="none", runtime="external")
    found = finished(asked, simulate(asked, metrics=False, noise=0.002))
    capacity = found.findings["capacity"]
    assert capacity.value == pytest.approx(8 / 0.85, abs=0.3), "relative to one server"
    assert "databases of the list at 85 % efficiency" in found.answer and "vCPU" not in found.answer
    assert found.findings["capacity_by_cpu"].value is None and found.findings["efficiency_at_saturation"].value is None
    assert all(row["allocated_share"].value is None and row["cores_allocated"].value is None for row in found.tables["density"])
    (rows,) = [found.tables["servers"]]
    assert [row["server"] for row in rows] == [f"s{n}" for n in range(1, 11)]
    assert rows[0]["throughput_per_core"].value == pytest.approx(rows[0]["throughput"].value / 2)
    assert rows[0]["throughput_per_price"].value == pytest.approx(rows[0]["throughput"].value / 5)
    assert rows[0]["throughput"].low is None and "no interval: the points differ by design" in rows[0]["throughput_per_core"].note
    assert any("the answer is by throughput, relative to 1 database" in warning for warning in found.warnings)
    assert not any("nan" in str(text).lower() for text in (found.answer, *found.details, *found.warnings, *found.next_steps))
    json.dumps(found.model_dump(mode="json"), allow_nan=False)


def test_tainted_trials_count_for_a_server_only_where_they_count_for_the_curve(options: Build, simulate: Any) -> None:
    asked = options(fleet=FLEET, databases=(1, 2, 3, 4), cpu_mode="none", runtime="external")
    results = simulate(asked, metrics=False, noise=0.002).all(planned(asked))
    clean = STUDY.analyse(asked, results).tables["servers"]
    halved = []
    for result in results:
        if result.trial.repeat == 0:
            phases = [
                phase.model_copy(update={"targets": [t.model_copy(update={"throughput": t.throughput / 2}) for t in phase.targets]})
                for phase in result.phases
            ]
            result = result.model_copy(update={"phases": phases, "checks": [*result.checks, TAINT]})
        halved.append(result)
    for before, after in zip(clean, STUDY.analyse(asked, halved).tables["servers"], strict=True):
        assert (before["throughput"].value is None) == (after["throughput"].value is None)
        if before["throughput"].value is not None:
            assert after["throughput"].value == pytest.approx(before["throughput"].value, rel=0.05)


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (["unknown"] * 2, "Steal was not seen; "),
        (["pass", "unknown"], "Steal was below 2 % in 1 of 1 trials that showed it, of 2; "),
        (["pass", "fail"], "Steal was below 2 % in 1 of 2 trials; "),
    ],
)
def test_steal_that_nobody_saw_was_not_low(options: Build, simulate: Any, results: list[str], said: str) -> None:
    asked = options(databases=(1, 2))
    trials = [
        result.model_copy(update={"checks": [Check(name="steal", kind="noise", result=found, observed="", expected="")]})
        for result, found in zip(simulate(asked).all(planned(asked))[:2], results, strict=True)
    ]
    curve = density_curve(asked, density_points(asked, trials))
    assert _trials_used(curve, trials)[0].startswith(said)


def test_a_list_that_never_saturates_asks_for_more_servers(options: Build, simulate: Any) -> None:
    asked = options(fleet=FLEET[:4], databases=(1, 2, 3, 4), cpu_mode="none", runtime="external")
    found = finished(asked, simulate(asked, metrics=False, noise=0.002))
    assert "at least 4 databases of the list" in found.answer
    assert any("list more servers in --servers" in step for step in found.next_steps)


def test_a_point_that_contradicts_its_neighbours_is_named(options: Build, simulate: Any) -> None:
    class Dip(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (0.5 if n == 5 else 1)

    warnings = finished(options(), Dip(options(), noise=0.01)).warnings
    assert any(text.startswith("5 databases: far less throughput than the next smaller") for text in warnings)
    assert not any("contradicts" in text for text in finished(options(), simulate(options(), noise=0.01)).warnings)
