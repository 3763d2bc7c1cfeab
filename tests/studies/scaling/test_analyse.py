"""Analysis and answer of simulated servers with known curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.load import Script
from pgherd.model.study import RunnableStudy
from pgherd.studies.scaling.analyse import answer
from pgherd.studies.scaling.curve import scaling_curve, scaling_points
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import planned
from pgherd.studies.scaling.study import STUDY

Build = Callable[..., ScalingOptions]

COLUMNS = {
    "scaling": "clients clients_per_core throughput efficiency_linear cpu_per_tx server_cpu_per_tx client_cpu_share p50 p95 p99 bottleneck "
    "trials tainted_trials",
    "cpu": "clients databases_cpu clients_cpu pgherd_cpu platform_cpu iowait idle steal",
    "models": "model parameters aicc relative_error knee peak selected",
}
FINDINGS = (
    "peak_throughput peak_clients linear_slope linear_range_end saturation_point retrograde_ratio server_cpu_per_tx client_cpu_share "
    "p95_at_peak usl_lambda usl_sigma usl_kappa usl_peak_load knee pgherd_cpu"
)


def finished(options: ScalingOptions, host: Any) -> Analysis:
    return STUDY.analyse(options, host.until_stop()[0])


def test_it_is_a_study() -> None:
    study: RunnableStudy[ScalingOptions] = STUDY
    assert study.name == "scaling"
    assert study.options is ScalingOptions


def test_a_noisy_peak_has_an_interval_and_all_numbers_that_may_be_best(options: Build, server: Any, shape: Any) -> None:
    """A plateau from 4 clients on with 10 % of noise: no single number of clients is claimed to be best."""
    given = options(clients=(1, 2, 4, 8, 12), repeats=3)
    analysis = finished(given, server(given, {"": shape(knee=4, slope=0.0, peak=100)}, noise=0.1))
    peak, clients = analysis.findings["peak_throughput"], analysis.findings["peak_clients"]
    assert peak.low < 40_000 < peak.high and clients.low <= 4 and clients.high == 12
    assert f"{peak.value:,.0f} tps ({peak.low:,.0f}–{peak.high:,.0f})" in analysis.answer
    assert "which cannot be told apart" in analysis.answer


def test_a_known_curve(options: Build, server: Any) -> None:
    """Linear to 4 clients at 10,000 tps each, flatter to 58,000 at 10 clients, then falling: 16 clients make 5 % less."""
    given = options(clients=(1, 2, 3, 4, 6, 8, 10, 12, 16), repeats=5)
    analysis = finished(given, server(given, noise=0.004))
    assert analysis.grade == "A"
    peak = analysis.findings["peak_throughput"]
    assert peak.value == pytest.approx(58_000, rel=0.01)
    assert peak.low < 58_000 < peak.high
    assert analysis.findings["peak_clients"].value == 10
    assert analysis.findings["linear_slope"].low < 10_000 < analysis.findings["linear_slope"].high
    assert (analysis.findings["linear_range_end"].value, analysis.findings["linear_range_end"].high) == (4, 6)
    assert analysis.findings["saturation_point"].value == 10
    assert analysis.findings["retrograde_ratio"].value == pytest.approx(0.948, abs=0.01)
    assert "5." in analysis.findings["retrograde_ratio"].note and "below" in analysis.findings["retrograde_ratio"].note
    assert analysis.answer.startswith("One PostgreSQL 18.6 on 4 cores peaks at 5")
    assert ") (select-only) with 10 clients; it scales linearly up to 4 clients; 16 clients make 5." in analysis.answer
    assert analysis.findings["client_cpu_share"].value == pytest.approx(1 / 3)
    assert any("pgbench shares the cores with the server, and used 33 % of their CPU" in text for text in analysis.warnings)
    assert [row["bottleneck"] for row in analysis.tables["scaling"]] == ["too-few-clients"] * 4 + ["host-cpu"] * 5


def test_names_are_those_that_the_report_reads(options: Build, server: Any) -> None:
    analysis = finished(options(), server(options()))
    for table, columns in COLUMNS.items():
        for each in analysis.tables[table]:
            assert set(columns.split()) <= set(each), table
            assert "variant" not in each
    assert set(FINDINGS.split()) <= set(analysis.findings)
    assert analysis.figures["models"]["best"] in ("usl", "piecewise-linear")
    assert Analysis.model_validate_json(analysis.model_dump_json()) == analysis


def test_every_number_has_a_reason_or_an_interval(options: Build, variants: Build, server: Any, shape: Any) -> None:
    two = variants({"a": {}, "b": {"pg_version": "15.18"}}, clients=(1, 4, 8))
    shapes = {"a": shape(), "b": shape(each=8000)}
    hosts = (
        server(options()),
        server(options(), metrics=False),
        server(options(), taint=lambda t: "steal"),
        server(options(repeats=1)),
        server(options(repeats=7, clients=(1, 4))),
        server(options(clients=(4,))),
        server(two, shapes),
        server(two, shapes, metrics=False, fail=lambda t: "died" if t.point["variant"] == "a" and t.point["clients"] == 4 else None),
    )
    for host in hosts:
        analysis = finished(host.options, host)
        cells = [c for t in analysis.tables.values() for r in t for c in r.values() if isinstance(c, Finding)] + list(
            analysis.findings.values()
        )
        for cell in cells:
            if cell.value is None:
                assert cell.note
                assert cell.low is None
            elif cell.low is None:
                assert cell.note or cell.method
            elif cell.confidence is not None:
                assert cell.low <= cell.value <= cell.high


def test_enough_repeats_have_exact_intervals(options: Build, server: Any) -> None:
    analysis = finished(options(repeats=6, time_budget=None), server(options(repeats=6)))
    cell = analysis.tables["scaling"][0]["throughput"]
    assert isinstance(cell, Finding)
    assert "exact interval" in cell.method
    assert cell.confidence == pytest.approx(0.96875)
    few = finished(options(), server(options())).tables["scaling"][0]["throughput"]
    assert isinstance(few, Finding)
    assert "pooled" in few.method


def test_a_peak_at_the_edge_is_not_claimed(options: Build, server: Any, shape: Any) -> None:
    given = options(clients=(1, 2, 3, 4), refine=False)
    analysis = finished(given, server(given, {"": shape(knee=100)}))
    assert analysis.findings["peak_clients"].value is None
    assert analysis.findings["saturation_point"].value is None
    assert "the peak is beyond the data" in analysis.findings["peak_throughput"].note
    assert analysis.answer.startswith("One PostgreSQL 18.6 on 4 cores makes ")
    assert (
        "4 clients, the largest number measured; it scales linearly up to 4 clients, the end of the data; throughput still"
        in analysis.answer
    )
    assert any("A higher peak is possible beyond 4 clients" in text and "measure more with --clients" in text for text in analysis.warnings)


def test_a_flat_top_reports_the_smallest_sufficient_number(options: Build, server: Any, shape: Any) -> None:
    given = options(time_budget=None)
    analysis = finished(given, server(given, {"": shape(knee=6, slope=0.01, peak=100)}, noise=0.002))
    assert analysis.findings["saturation_point"].value == 6
    assert "; 6 clients already make 9" in analysis.answer


def test_one_number_of_clients_has_no_scaling(options: Build, server: Any) -> None:
    given = options(clients=(4,), refine=False)
    analysis = finished(given, server(given))
    assert "scaling is unknown with one number of clients" in analysis.answer
    for name in ("peak_clients", "linear_range_end", "saturation_point"):
        assert analysis.findings[name].value is None


def test_published_values_are_given_for_comparable_runs(options: Build, variants: Build, server: Any, shape: Any) -> None:
    analysis = finished(options(), server(options()))
    assert analysis.findings["linear_range_end"].experiment == "E3"
    assert "8 → 20 clients" in str(analysis.findings["linear_range_end"].published)
    assert "VMware" in str(analysis.findings["linear_range_end"].published)
    assert analysis.findings["saturation_point"].published is None
    tpcb = options(scripts=(Script(source="builtin:tpcb-like"),), read_only=False)
    analysis = finished(tpcb, server(tpcb))
    assert "beyond 48 clients" in str(analysis.findings["saturation_point"].published)
    assert analysis.findings["linear_range_end"].published is None
    assert any("one of 10 rows of branches (--scale), with up to" in text for text in analysis.warnings)
    own = options(scripts=(Script(source="/own.sql"),), read_only=False)
    assert not any(finding.published for finding in finished(own, server(own)).findings.values())


def test_variants_are_compared_with_the_first(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"old": {"pg_version": "15.18"}, "new": {}, "same": {"settings": {"jit": "off"}}}, time_budget=None)
    shapes = {"old": shape(), "new": shape(each=12_000, knee=6), "same": shape()}
    analysis = finished(given, server(given, shapes, noise=0.005))
    assert analysis.grade == "A"
    peak = analysis.findings["peak_ratio.new"]
    truth = max(shapes["new"](n) for n in given.clients) / max(shapes["old"](n) for n in given.clients)
    assert peak.low < truth < peak.high
    assert peak.experiment == "E3" and "4 ×" in str(peak.published)
    assert analysis.findings["slope_ratio.new"].low < 1.2 < analysis.findings["slope_ratio.new"].high
    assert analysis.findings["slope_ratio.new"].published is None
    linear = analysis.findings["linear_range_ratio.new"]
    assert linear.value == 1.5
    assert (linear.low, linear.high) == (6 / 6, 8 / 4), "the ends are between 6 and 8, and between 4 and 6"
    assert "8 → 20" in str(analysis.findings["linear_range_ratio.new"].published)
    assert analysis.findings["peak_ratio.same"].low < 1 < analysis.findings["peak_ratio.same"].high
    assert analysis.findings["peak_throughput.old"].value == pytest.approx(56_000, rel=0.02)
    assert "'old' peaks at 5" in analysis.answer and "'new' at" in analysis.answer
    assert "times that (95 % interval" in analysis.answer
    assert "'same' at" in analysis.answer and "no significant difference" in analysis.answer
    assert "linear up to 4 ('old'), 6 ('new'), 4 ('same') clients" in analysis.answer
    assert any("driven by the pgbench of its version ('old' by 15.18, 'new' by 18.6" in text for text in analysis.warnings)
    assert [row["variant"] for row in analysis.tables["ratios"]] == ["new", "same"]
    assert [row["settings"] for row in analysis.tables["variants"]] == ["jit=default", "jit=default", "jit=off"]
    rows = [row for row in analysis.tables["scaling"] if row["variant"] == "new"]
    assert [row["clients"] for row in rows] == list(given.clients)
    at_one = rows[0]["ratio_to_baseline"]
    assert isinstance(at_one, Finding) and at_one.low < 1.2 < at_one.high
    drawn = analysis.figures["variant_models"]
    assert list(drawn) == ["old", "new", "same"] and "models" not in analysis.figures
    highest = {name: max(one["piecewise-linear"]["x"]) for name, one in drawn.items()}
    assert highest == pytest.approx({name: max(map(shapes[name], given.clients)) for name in shapes}, rel=0.1)


def test_runtimes_are_compared_with_virtual_and_physical(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"plain": {"runtime": "process"}, "guest": {"runtime": "vm"}, "contained": {}}, time_budget=None, clients=(1, 4, 8))
    analysis = finished(given, server(given, {"plain": shape(), "guest": shape(), "contained": shape()}))
    assert "virtual is on par with physical" in str(analysis.findings["peak_ratio.guest"].published)
    assert analysis.findings["peak_ratio.contained"].published is None, "both use one kernel: neither is virtual"


def test_a_linear_region_without_an_end_gives_no_ratio(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 2, 4), refine=False)
    analysis = finished(given, server(given, {"a": shape(knee=2), "b": shape(knee=99)}, noise=0.002))
    assert analysis.findings["linear_range_ratio.b"].value is None
    assert "the data end before the linear region does: b" in analysis.findings["linear_range_ratio.b"].note
    assert "still rising" in analysis.findings["peak_ratio.b"].note


def test_taints_and_failures_lower_the_grade(options: Build, variants: Build, server: Any, shape: Any) -> None:
    none = options(max_reruns=0, time_budget=None)
    assert finished(none, server(none, taint=lambda t: "steal")).grade == "C"
    analysis = finished(none, server(none, taint=lambda t: "steal" if t.point["clients"] == 8 else None))
    assert analysis.grade == "B"
    assert "Only tainted trials for 8 clients: these numbers are an indication" in analysis.warnings
    half = none.clients[1::2] + none.clients[:1]
    analysis = finished(none, server(none, taint=lambda t: "steal" if t.point["clients"] in half else None))
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only")
    assert any(f"{len(half)} of {len(none.clients)} points, half of them or more" in said for said in analysis.warnings)
    analysis = finished(none, server(none, fail=lambda t: "it died" if t.point["clients"] == 8 else None))
    assert analysis.grade == "B"
    assert "No finished trial for 8 clients" in analysis.warnings
    two = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4), max_reruns=0, time_budget=None)
    shapes = {"a": shape(), "b": shape()}
    analysis = finished(two, server(two, shapes, fail=lambda t: "it died" if t.point["variant"] == "b" else None))
    assert analysis.grade == "C"
    assert "No finished trial of variant 'b'" in analysis.warnings
    assert "ratios" not in analysis.tables


def test_no_trials(options: Build, server: Any) -> None:
    assert STUDY.analyse(options(), []).answer == "No result: no trial was run."
    failed = server(options(), fail=lambda t: "died").all(planned(options()))
    analysis = STUDY.analyse(options(), failed)
    assert analysis.grade == "C"
    assert "24 trials were run and none of them finished" in analysis.answer


@given(st.integers(0, 10**6), st.floats(0.0, 0.3), st.integers(1, 8))
@settings(max_examples=20, deadline=None)
def test_any_subset_of_trials_can_be_analysed(seed: int, noise: float, keep: int) -> None:
    from tests.studies.scaling.conftest import BASE, Server

    given_options = ScalingOptions(**{**BASE, "clients": (1, 2, 4, 8), "max_clients": 16, "seed": seed})
    results = Server(given_options, noise=noise, seed=seed).all(planned(given_options))
    analysis = STUDY.analyse(given_options, results[::keep])
    used = results[::keep]
    rates = [target.throughput for result in used for phase in result.phases for target in phase.targets]
    peak = analysis.findings["peak_throughput"].value
    assert peak is not None and min(rates) * 0.999 <= peak <= max(rates) * 1.001
    assert {row["clients"] for row in analysis.tables["scaling"]} == {result.trial.point["clients"] for result in used}


def test_clients_on_another_host_share_no_cores_with_the_server(options: Build, server: Any) -> None:
    chosen = options(clients=(1, 4), repeats=3, refine=False)
    results = []
    for result in server(chosen).until_stop()[0]:
        phases = [
            phase.model_copy(update={"loads": {target: load.model_copy(update={"host": "c"}) for target, load in phase.loads.items()}})
            for phase in result.trial.phases
        ]
        results.append(result.model_copy(update={"trial": result.trial.model_copy(update={"phases": tuple(phases)})}))
    analysis = STUDY.analyse(chosen, results)
    assert not any("shares the cores" in text for text in analysis.warnings)
    assert {row["clients_cpu"].value for row in analysis.tables["cpu"]} == {0}


Build = Callable[..., ScalingOptions]


def answer_of(options: ScalingOptions, host: Any) -> str:
    results = host.all(planned(options))
    return answer(
        [scaling_curve(own, scaling_points(own, results, name), name, place) for place, (name, own) in enumerate(options.servers().items())]
    )


@pytest.mark.parametrize(
    ("shape_of", "more", "text"),
    [
        (
            {},
            {},
            "One PostgreSQL 18.6 on 4 cores peaks at 57,000 tps (select-only) with 12 clients; it scales linearly up to 4 clients; "
            "16 clients make 3.5 % less than 12.",
        ),
        (
            {"slope": 0.02, "peak": 12, "fall": 0.0},
            {},
            "One PostgreSQL 18.6 on 4 cores peaks at 41,600 tps (select-only) with 12 or 16 clients, which cannot be told apart; it scales "
            "linearly up to 4 clients; 4 clients already make 96 % of that, and more than 12 clients do not increase it.",
        ),
        (
            {"knee": 100},
            {"vcpus": 1, "cpu_mode": "quota", "clients": (1, 2)},
            "One PostgreSQL 18.6 on 1 vCPU makes 20,000 tps (select-only) with 2 clients, the largest number measured; it scales linearly "
            "up to 2 clients, the end of the data; throughput still rises there, so that the peak is at more clients.",
        ),
        (
            {"knee": 1, "slope": 0.1},
            {"clients": (1, 2, 16)},
            "One PostgreSQL 18.6 on 4 cores makes 16,000 tps (select-only) with 16 clients, the largest number measured; it does not scale "
            "linearly beyond 1 client; throughput still rises there, so that the peak is at more clients.",
        ),
        (
            {},
            {"clients": (4,)},
            "One PostgreSQL 18.6 on 4 cores made 40,000 tps (select-only) with 4 clients; scaling is unknown with one number of clients.",
        ),
        (
            {},
            {"repeats": 1},
            "One PostgreSQL 18.6 on 4 cores made up to 57,000 tps (select-only); it scales linearly up to 4 clients; no peak is named, "
            "because there are too few trials for an interval.",
        ),
    ],
)
def test_of_one_server(options: Build, server: Any, shape: Any, shape_of: dict[str, float], more: dict[str, Any], text: str) -> None:
    given = options(**more)
    assert answer_of(given, server(given, {"": shape(**shape_of)}, noise=0)) == text


def test_no_peak_is_named_without_a_spread(options: Build, server: Any) -> None:
    given = options(repeats=1)
    findings = finished(given, server(given)).findings
    assert findings["peak_clients"].value is None and "too few repeats" in findings["peak_clients"].note
    assert "clients" not in findings["peak_throughput"].note


def test_of_variants_without_an_interval(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4, 8, 12), repeats=1)
    assert answer_of(given, server(given, {"a": shape(), "b": shape(each=20_000)}, noise=0)) == (
        "'a' makes up to 57,000 tps (select-only); 'b' at 114,000 tps: not compared, because there are too few "
        "trials for an interval; "
        "linear up to 4 ('a'), 4 ('b') clients."
    )


def test_variants_with_one_number_of_clients_have_no_peak(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(8,), repeats=5, time_budget=None)
    answer = answer_of(given, server(given, {"a": shape(), "b": shape(each=20_000)}, noise=0.01))
    assert answer.startswith("'a' makes ") and "peaks" not in answer
    assert answer.endswith("; scaling is unknown with one number of clients.")
