"""The balloon's benchmarks in their quick forms: they run, and what they write is well-formed. No timing makes a test fail."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_balloon(tmp_path):
    file = tmp_path / "balloon.json"
    command = [sys.executable, str(Path(__file__).parent / "balloon.py"), "--quick", "--seed", "7", "--out", str(file)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert (document["benchmark"], document["quick"]) == ("balloon", True)
    assert all(math.isfinite(figure["value"]) and figure["value"] >= 0 for figure in document["figures"])
    assert {"inflation", "pair"} <= {key for row in document["raw"] for key in row}


def grid():
    sys.path.insert(0, str(Path(__file__).parent))
    import balloon_grid

    return balloon_grid


def test_balloon_grid(tmp_path):
    file = tmp_path / "grid.json"
    command = [sys.executable, str(Path(__file__).parent / "balloon_grid.py"), "--quick", "--seed", "7", "--out", str(file)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert (document["benchmark"], document["quick"]) == ("balloon_grid", True)
    assert [row["block"] for row in document["raw"]] == [1, 2] and len(document["figures"]) == 4
    assert all(math.isfinite(figure["value"]) and figure["value"] >= 0 for figure in document["figures"])


def test_a_pool_is_never_compared_on_the_blocks_that_chose_it():
    balloon_grid = grid()
    rows = []
    for block in range(1, 9):
        best = "10 %" if block % 2 else "75 %"  # luck: another one in each half
        rows.append({"block": block, **{f"{side} tps": 200.0 if side == best else 100.0 for side in balloon_grid.SIDES}})
    pairs = balloon_grid.compared(rows)
    assert len(pairs) == 8
    assert all(best == ("75 %" if row["block"] % 2 else "10 %") for row, best in pairs)
    assert balloon_grid.compared(rows[:1]) == []


def test_a_bound_that_is_not_reached_is_not_called_met():
    balloon_grid = grid()
    from pgherd.analysis.intervals import Estimate

    def found(value: float, low: float, high: float) -> Estimate:
        return Estimate(value=value, low=low, high=high, confidence=0.95, n=8, method="made up")

    assert balloon_grid.at_least(found(1.0, 0.92, 1.1), 0.95, 0.90) is True
    assert balloon_grid.at_least(found(1.0, 0.80, 1.2), 0.95, 0.90) is None
    assert balloon_grid.at_least(found(0.8, 0.70, 0.9), 0.95, 0.90) is False
