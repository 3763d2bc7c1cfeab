"""What the tests of the benchmarks share."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parent


@pytest.fixture
def quick(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a benchmark by its name in its quick form, with more arguments if given; what it wrote, which is well-formed."""

    def run(name: str, *arguments: str) -> dict[str, Any]:
        file = tmp_path / f"{name}.json"
        command = [sys.executable, str(HOME / f"{name}.py"), "--quick", "--seed", "7", "--out", str(file), *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 3:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(file.read_text())
        assert document["schema"] == "pgherd/benchmark/1"
        assert document["benchmark"] == ("balloon_oracle" if "--oracle" in arguments else name)
        assert document["quick"] is True
        assert document["raw"]
        assert document["machine"]
        assert 0 <= document["noise"]["steal share"] <= 1
        for figure in document["figures"]:
            assert math.isfinite(figure["value"]) and figure["value"] >= 0, figure
            assert (figure["low"] is None) == (figure["high"] is None), figure
            assert figure["low"] is None or figure["low"] <= figure["value"] <= figure["high"], figure
            assert figure["met"] is None or figure["goal"], figure
            assert figure["name"] in done.stdout
        return document

    return run
