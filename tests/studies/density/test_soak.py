"""A soak of known drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density import STUDY, DensityOptions

Build = Callable[..., DensityOptions]


def test_a_steady_soak(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=4 * 3600)
    results, _ = simulate(given).until_stop()
    found = STUDY.analyse(given, results)
    assert found.findings["soak_drift"].low <= 0 <= found.findings["soak_drift"].high
    assert "8 databases of 0.25 vCPU ran for 4 h" in found.answer
    assert "which is steady" in found.answer
    assert len(found.tables["soak"]) == 240
    assert found.findings["soak_worst_window"].value < 1
    assert found.findings["soak_throughput"].value == pytest.approx(120_000, rel=0.01)


def test_a_drifting_soak(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=3600)
    results, _ = simulate(given, drift=-0.2).until_stop()
    found = STUDY.analyse(given, results)
    assert found.findings["soak_drift"].value == pytest.approx(-0.2 / 0.9, abs=0.03)
    assert "not steady" in found.answer


def test_of_less_than_an_hour_nothing_is_said_per_hour(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=1800, points=(1,))
    found = STUDY.analyse(given, simulate(given, drift=-0.6, noise=0.001).until_stop()[0])
    assert found.findings["soak_drift"].value == pytest.approx(-0.6, abs=0.15)
    assert "extrapolated from less than an hour" in found.findings["soak_drift"].note
    assert "1 database of 0.25 vCPU ran for 30 min" in found.answer
    assert "; throughput drifted by -3" in found.answer and " over that time (-" in found.answer and "per hour" not in found.answer
    assert "which is not steady" in found.answer


def test_two_windows_do_not_tell_drift_from_noise(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=120)
    found = STUDY.analyse(given, simulate(given).until_stop()[0])
    assert "too few windows were measured to tell that from noise" in found.answer
    assert "steady" not in found.answer


def test_one_window_says_nothing_of_steadiness(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=30)
    results, _ = simulate(given).until_stop()
    found = STUDY.analyse(given, results)
    assert "nothing can be said" in found.answer
    assert found.findings["soak_drift"].value is None
    assert "soak" not in found.tables
    assert found.tables["density"][0]["throughput"].value > 0


def test_checkpoints_and_vacuums_are_marked(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=300)
    results, _ = simulate(given).until_stop()
    results[0].phases[2].metrics["server:db01/pg"] = {"ckpt.timed": 1 / 60, "ckpt.requested": 0.0, "vacuum.workers": 0.4}
    marks = STUDY.analyse(given, results).tables["soak"]
    assert marks[2]["checkpoints"] == 1
    assert marks[2]["vacuum_workers"] == 0.4
    assert marks[1]["checkpoints"] is None
