"""The balloon's benchmark in its quick form: it runs, and what it writes is well-formed. No timing makes a test fail."""

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
