"""Demand of captures. tests/fixtures/capture has one of pgbench's tpcb-like, without its scripts."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from pgherd.analysis.demand import Cost
from pgherd.model.errors import UsageError
from pgherd.prepare.capture_demand import read_captures

RECORDED = Path(__file__).parents[1] / "fixtures" / "capture"
COST = Cost("*", {"cpu_cores": (0.001, 0.002), "memory_mb": (100, 200), "wal_mb_s": (7, 8)}, "--demand-run run")


@pytest.fixture
def captured(tmp_path):
    """The directories of two captures, and a function that changes the first."""
    for name in ("orders", "billing"):
        shutil.copytree(RECORDED, tmp_path / name)

    def change(**parts):
        file = tmp_path / "orders" / "capture.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **parts}))

    return [tmp_path / "orders", tmp_path / "billing"], change


def test_rate_and_wal_of_the_window_count_all_day(captured):
    directories, _ = captured
    record = json.loads((directories[0] / "capture.json").read_text())
    found = read_captures(directories, 95, [COST])
    assert found.names == ("orders", "billing") and found.slots == ("00:00",) and not found.unknown
    assert found.resources == ("cpu_cores", "memory_mb", "wal_mb_s")
    lost = record["total"]["calls"] / sum(one["calls"] for one in record["fingerprint"]["statements"])
    assert 1 < lost < 1.1
    assert found.low[0, :2, 0].tolist() == pytest.approx([0.001 * record["rate"], 100])
    assert found.high[0, :2, 0].tolist() == pytest.approx([0.002 * record["rate"] * lost, 200])
    wal = record["total"]["wal_bytes"] / record["fingerprint"]["seconds"] / 1e6
    assert found.high[0, 2, 0] == pytest.approx(wal), "as captured, and not as in the run"
    assert any("is that of its window" in note for note in found.notes)


def test_statements_without_a_copy_are_in_the_upper_bound(captured):
    directories, change = captured
    record = json.loads((directories[0] / "capture.json").read_text())
    calls = sum(one["calls"] for one in record["fingerprint"]["statements"])
    change(total={"calls": 3 * calls, "wal_bytes": 2**40})
    found = read_captures(directories, 95, [COST])
    assert found.high[0, 0, 0] == pytest.approx(3 * 0.002 * record["rate"]) and found.low[0, 0, 0] == pytest.approx(0.001 * record["rate"])
    assert found.high[0, 2, 0] > 100 * found.low[0, 2, 0]


def test_cpu_needs_a_run(captured):
    with pytest.raises(UsageError, match="orders has no CPU, .*; run the command in its capture.json, and give the run with --demand-run"):
        read_captures(captured[0], 95, [])


def test_names_are_those_of_the_directories(captured, tmp_path):
    directories, _ = captured
    shutil.copytree(RECORDED, tmp_path / "other" / "orders")
    with pytest.raises(UsageError, match="two captures are called orders, the name of their directory; rename .*other/orders"):
        read_captures([*directories, tmp_path / "other" / "orders"], 95, [COST])


@pytest.mark.parametrize(
    "parts",
    [
        {"rate": 0},
        {"rate": 1e300},
        {"total": {"calls": -1, "wal_bytes": 0}},
        {"total": {"calls": 1, "wal_bytes": 10**400}},
        {"total": None},
        {"fingerprint": []},
        {"fingerprint": {"seconds": math.inf, "statements": [{"calls": 1, "wal_bytes": 1}]}},
        {"fingerprint": {"seconds": 1e-300, "statements": [{"calls": 1, "wal_bytes": 1}]}},
        {"fingerprint": {"seconds": 20, "statements": [{"calls": 0, "wal_bytes": 1}]}},
    ],
)
def test_other_files_are_refused(captured, parts):
    directories, change = captured
    change(**parts)
    with pytest.raises(UsageError, match="orders/capture.json is not a file of this version of pgherd capture"):
        read_captures(directories, 95, [COST])


def test_a_directory_of_something_else_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*capture.json: No such file or directory; name a demand file or the directory of"):
        read_captures([tmp_path], 95, [COST])
