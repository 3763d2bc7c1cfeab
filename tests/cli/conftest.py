"""Made-up runs on disk, for verbs that read run directories."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pgherd.host import shared_settings


@pytest.fixture(scope="module", autouse=True)
def _own_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is cleaned here must not take back what tests that run meanwhile hold on the host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_settings, "LEDGER", tmp_path_factory.mktemp("ledger") / "holds.json")
        yield


def _synthetic() -> ModuleType:
    path = Path(__file__).parents[1] / "fixtures" / "report" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_runs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["synthetic_runs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path) -> Path:
    """A directory of runs with one finished density run of 8 databases."""
    synthetic = _synthetic()
    record, results = synthetic.density_run(8, seconds=3)
    synthetic.write_run(tmp_path / record.run, record, results)
    return tmp_path


@pytest.fixture
def name(runs) -> str:
    """The run's name."""
    return next(path.name for path in runs.iterdir())
