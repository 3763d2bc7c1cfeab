from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgherd.drivers.driver import MeasuredWindow
from pgherd.model.load import Load

CAPTURED = Path(__file__).parent.parent / "fixtures" / "pgbench"


@dataclass(frozen=True)
class Captured:
    """One captured run of pgbench."""

    files: dict[str, str]
    started: float
    stop: float
    ended: float
    load: Load

    def window(self, start: float, end: float) -> MeasuredWindow:
        """Return the window between two instants, in seconds after the start of the process."""
        return MeasuredWindow(self.started + start, self.started + end, self.stop)


def captured(name: str) -> Captured:
    directory = CAPTURED / name
    meta = json.loads((directory / "meta.json").read_text())
    files = {path.name: path.read_text() for path in directory.iterdir() if path.name != "meta.json"}
    return Captured(files, meta["started"], meta["stop"], meta["ended"], Load.model_validate(meta["load"]))


@pytest.fixture(params=["15", "18"], scope="session")
def version(request: pytest.FixtureRequest) -> str:
    """Major version of a captured pgbench."""
    return str(request.param)


@pytest.fixture(scope="session")
def capture(version: str) -> Callable[[str], Captured]:
    """Case → captured run of that version's pgbench."""
    return lambda case: captured(f"{version}-{case}")


@pytest.fixture(scope="session")
def every_capture() -> list[Captured]:
    """All captured runs."""
    return [captured(path.name) for path in sorted(CAPTURED.iterdir()) if path.is_dir()]
