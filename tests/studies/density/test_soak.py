"""A soak of known drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pgherd.analysis.stability import steadiness
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.studies.density.study import STUDY

Build = Callable[..., DensityOptions]


def test_a_steady_soak(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=4 * 3600)
    results, _ = simulate(study_options).until_stop()
    analysis = STUDY.analyse(study_options, results)
    assert analysis.findings["soak_drift"].low <= 0 <= analysis.findings["soak_drift"].high
    assert "8 databases of 0.25 vCPU ran for 4 h" in analysis.answer
    assert analysis.answer.endswith("; throughput was steady.")
    assert [
        text.startswith(begin) for text, begin in zip(analysis.details, ("Throughput drifted by ", "The worst 1 min had "), strict=True)
    ]
    assert len(analysis.tables["soak"]) == 240
    assert analysis.findings["soak_worst_window"].value < 1
    assert analysis.findings["soak_throughput"].value == pytest.approx(120_000, rel=0.01)


def test_a_drifting_soak(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=3600)
    results, _ = simulate(study_options, drift=-0.2).until_stop()
    analysis = STUDY.analyse(study_options, results)
    assert analysis.findings["soak_drift"].value == pytest.approx(-0.2 / 0.9, abs=0.03)
    assert "not steady" in analysis.answer


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.001, 0.021, "inconclusive"), (0.021, 0.03, "not steady"), (-0.01, 0.019, "was steady")]
)
def test_a_drift_that_may_be_within_the_limit_is_inconclusive(options: Build, simulate: Any, monkeypatch, low, high, words) -> None:
    study_options = options(soak_seconds=3600)
    results, _ = simulate(study_options).until_stop()

    def stability(hours, values):
        found = steadiness(hours, values)
        return replace(found, drift=replace(found.drift, value=(low + high) / 2, low=low, high=high))

    monkeypatch.setattr("pgherd.studies.density.soak.steadiness", stability)
    assert words in STUDY.analyse(study_options, results).answer


def test_of_less_than_an_hour_nothing_is_said_per_hour(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=1800, databases=(1,))
    analysis = STUDY.analyse(study_options, simulate(study_options, drift=-0.6, noise=0.001).until_stop()[0])
    assert analysis.findings["soak_drift"].value == pytest.approx(-0.6, abs=0.15)
    assert "extrapolated from less than an hour" in analysis.findings["soak_drift"].note
    assert "1 database of 0.25 vCPU ran for 30 min" in analysis.answer
    drift = analysis.details[0]
    assert drift.startswith("Throughput drifted by -3") and " over that time (-" in drift and "per hour" not in drift
    assert "not steady" in analysis.answer


def test_two_windows_do_not_tell_drift_from_noise(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=120)
    analysis = STUDY.analyse(study_options, simulate(study_options).until_stop()[0])
    assert analysis.answer.endswith("; the drift of throughput is unknown.")
    assert "with too few windows to distinguish it from noise" in analysis.details[0]
    assert "steady" not in analysis.answer


def test_one_window_says_nothing_of_steadiness(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=30)
    results, _ = simulate(study_options).until_stop()
    analysis = STUDY.analyse(study_options, results)
    assert "No result for stability" in analysis.answer
    assert analysis.findings["soak_drift"].value is None
    assert "soak" not in analysis.tables
    assert analysis.tables["density"][0]["throughput"].value > 0


def test_checkpoints_and_vacuums_are_marked(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=300)
    results, _ = simulate(study_options).until_stop()
    results[0].phases[2].metrics["server:db01/pg"] = {"checkpoint.timed": 1 / 60, "checkpoint.requested": 0.0, "vacuum.workers": 0.4}
    marks = STUDY.analyse(study_options, results).tables["soak"]
    assert marks[2]["checkpoints"] == 1
    assert marks[2]["vacuum_workers"] == 0.4
    assert marks[1]["checkpoints"] is None


@pytest.mark.parametrize(("cgroup", "iowait"), [(None, None), ("/pods/a", 0.25)])
def test_iowait_is_that_of_the_servers_host(options: Build, simulate: Any, cgroup: str | None, iowait: float | None) -> None:
    """This host is that of an external server only if its cgroup is known here."""
    server = {"name": "s1", "dsn": "host=s1", "version": "18.1", "host": "h", "container": cgroup}
    study_options = options(soak_seconds=300, databases=(1,), fleet=(server,), cpu_mode="none", runtime="external")
    results, _ = simulate(study_options).until_stop()
    for phase in (phase for result in results for phase in result.phases):
        phase.metrics["host"]["cpu.iowait"] = 0.25
        if cgroup is None:
            del phase.metrics["container:s1"]
    assert {row["iowait"] for row in STUDY.analyse(study_options, results).tables["soak"]} == {iowait}


def failed(results: list[TrialResult], check: str, windows: tuple[str, ...]) -> list[TrialResult]:
    """The soak's trials with a check that failed in these windows."""
    analysis = []
    for result in results:
        local = tuple(phase.phase for phase in result.phases if phase.phase in windows)
        verdicts = [v.model_copy(update={"result": "fail", "failed_phases": local}) if v.name == check else v for v in result.checks]
        analysis.append(result.model_copy(update={"checks": verdicts}) if local else result)
    return analysis


def test_a_few_noisy_windows_are_no_taint_throughout(options: Build, simulate: Any) -> None:
    """The windows of a soak are its repeats: a noisy minute does not invalidate four hours."""
    study_options = options(soak_seconds=3600)
    results, _ = simulate(study_options).until_stop()
    worst = results[0].phases[7]
    worst.targets[:] = [target.model_copy(update={"throughput": target.throughput / 2}) for target in worst.targets]
    analysis = STUDY.analyse(study_options, failed(results, "steal", ("w0007", "w0031")))
    assert analysis.grade == "B"
    assert [r["failed_checks"] for r in analysis.tables["soak"] if r["failed_checks"]] == ["steal", "steal"]
    assert analysis.tables["soak"][7]["failed_checks"] == "steal"
    assert analysis.details[-1].endswith("of the median, and failed the check steal.")
    assert any(text.startswith("2 of 60 windows failed a check: steal (2)") for text in analysis.warnings)
    assert not any("trials are tainted" in text for text in analysis.warnings), "the windows count"


def test_a_window_of_every_trial_is_still_a_few(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=3600)
    results, _ = simulate(study_options).until_stop()
    noisy = tuple(f"w{10 * trial:04d}" for trial in range(6))
    analysis = STUDY.analyse(study_options, failed(results, "steal", noisy))
    assert analysis.grade == "B"
    throughput = analysis.tables["density"][0]["throughput"]
    assert throughput.value == pytest.approx(analysis.findings["soak_throughput"].value, rel=1e-6), "the table also uses all windows"
    assert throughput.low is None and throughput.n == 1, "stretches of one soak are not repeats"


def test_a_soak_of_which_half_is_noisy_is_an_indication_only(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=600)
    results, _ = simulate(study_options).until_stop()
    half = tuple(phase.phase for phase in results[0].phases[::2])
    noisy = STUDY.analyse(study_options, failed(results, "steal", half))
    assert noisy.grade == "C" and any(
        "at least half of all: the whole answer is an indication (grade C)" in warning for warning in noisy.warnings
    )
    assert STUDY.analyse(study_options, failed(results, "steal", half[1:])).grade == "B"


def test_a_check_of_a_whole_trial_is_one_of_all_its_windows(options: Build, simulate: Any) -> None:
    def whole(seconds: float, n: int) -> Any:
        study_options = options(soak_seconds=seconds)
        results = simulate(study_options, taint=lambda trial: "steal" if trial.repeat < n else None, noise=0.0).until_stop()[0]
        return STUDY.analyse(study_options, results)

    assert whole(600, 1).grade == "C"
    few = whole(3600, 2)
    assert few.grade == "B" and any(text.startswith("20 of 60 windows failed a check: steal (20)") for text in few.warnings)
    assert whole(3600, 3).grade == "C"


def test_a_soak_that_was_interrupted_is_judged_by_what_it_has(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=4 * 3600)
    results = simulate(study_options).all(planned(study_options)[:18])
    analysis = STUDY.analyse(study_options, results)
    assert "8 databases of 0.25 vCPU ran for 3 h" in analysis.answer and "was steady" in analysis.answer
    assert analysis.grade == "B" and "180 of 240 windows were measured" in analysis.warnings
    assert STUDY.analyse(study_options, []).answer == "No result: no trial was run."


def test_the_hours_until_a_run_was_resumed_are_not_soaked(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=3600)
    host = simulate(study_options, drift=-0.2, noise=0.001)
    trials = planned(study_options)
    results = host.all(trials)
    for_a_night = 10 * 3600
    late = [
        result.model_copy(
            update={"phases": [p.model_copy(update={"start": p.start + for_a_night, "end": p.end + for_a_night}) for p in result.phases]}
        )
        for result in results[3:]
    ]
    analysis, complete = STUDY.analyse(study_options, [*results[:3], *late]), STUDY.analyse(study_options, results)
    assert "ran for 1 h" in analysis.answer and analysis.findings["soak_drift"].value == pytest.approx(-0.2 / 0.9, abs=0.03)
    assert any(text.startswith("The soak was interrupted once, for at most 10 h") for text in analysis.warnings)
    assert not any("interrupted" in text for text in complete.warnings)
    assert [row["hours"] for row in analysis.tables["soak"]] == pytest.approx([i * 61 / 3600 for i in range(60)], abs=0.005)


def test_servers_that_began_anew_break_a_soak_off(options: Build, simulate: Any) -> None:
    """A failed server is restored from its template within a minute."""
    study_options = options(soak_seconds=1800)
    results, _ = simulate(study_options).until_stop()
    retained = [result.model_copy(update={"transition": "8 kept"}) for result in results]
    assert not any("interrupted" in text for text in STUDY.analyse(study_options, retained).warnings)
    anew = [*retained[:1], retained[1].model_copy(update={"transition": "8 restored"}), retained[2]]
    (message,) = [text for text in STUDY.analyse(study_options, anew).warnings if "interrupted" in text]
    assert message.startswith("The soak was interrupted once") and "its servers were restarted" in message


def test_every_number_of_a_soak_has_a_reason_or_an_interval(options: Build, simulate: Any) -> None:
    for seconds in (600, 30):
        study_options = options(soak_seconds=seconds)
        analysis = STUDY.analyse(study_options, simulate(study_options).until_stop()[0])
        reported = {name: finding for name, finding in analysis.findings.items() if name.startswith("soak")}
        assert set(reported) == {"soak_throughput", "soak_drift", "soak_worst_window", "soak_cv"}
        for item in reported.values():
            assert (item.value is None and item.note) or item.low is not None or "no interval" in item.note


def test_answers_are_short(options: Build, simulate: Any) -> None:
    """With every part that makes one longer: hours and minutes, an indication, and each judgement of the drift."""
    found = set()
    for seconds, more in ((30, {}), (120, {}), (4 * 3600 + 120, {}), (3720, {"drift": -0.2}), (1860, {"noise": 0.05})):
        study_options = options(soak_seconds=seconds)
        results, _ = simulate(study_options, taint=lambda trial: "steal", **more).until_stop()
        answer = STUDY.analyse(study_options, results).answer
        assert answer.startswith("Indication only: ") and answer.endswith(".") and len(answer.split()) <= 20, answer
        found.add(answer.rpartition("; ")[2])
    assert {"throughput was steady.", "throughput was not steady.", "the drift of throughput is inconclusive."} <= found
