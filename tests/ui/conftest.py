"""Made-up runs on disk, a site over them, and a client that speaks to it as a browser's own page would."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have httpx2, which is too young to be everywhere
    from starlette.testclient import TestClient

from pgherd.store.samples import write_samples
from pgherd.ui.app_state import AppState
from pgherd.ui.security import AccessPolicy
from pgherd.ui.server import application

ADDRESS = "http://127.0.0.1:8765"
SAME = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}


def _synthetic() -> ModuleType:
    if "synthetic_runs" in sys.modules:
        return sys.modules["synthetic_runs"]
    path = Path(__file__).parents[1] / "fixtures" / "report" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_runs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["synthetic_runs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def synthetic() -> ModuleType:
    """The module that makes runs up."""
    return _synthetic()


@pytest.fixture
def runs(tmp_path, made_up, monkeypatch) -> Iterator[Path]:
    """A directory with two finished density runs of 4 databases that were made an hour apart, the later of them 3 % slower."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield shutil.copytree(made_up, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)  # hundreds of files for each of hundreds of tests


@pytest.fixture(scope="session")
def made_up(tmp_path_factory) -> Path:
    """The same, made once."""
    root, synthetic = tmp_path_factory.mktemp("made-up") / "runs", _synthetic()
    for index, (name, alone) in enumerate([(FIRST, 64_000.0), (SECOND, 62_000.0)]):
        record, results = synthetic.density_run(4, seconds=3, seed=index + 1, alone=alone, name=name)
        moved = record.model_copy(update={"started": record.started + 3600 * index, "ended": (record.ended or 0) + 3600 * index})
        synthetic.write_run(root / name, moved, results)
        for result in results:
            lay_samples(root / name / "trials" / result.id, result)
        for log in (root / name).glob("trials/*/*.log"):
            log.unlink()
    return root


FIRST, SECOND = "20260131-120000-density-0001", "20260131-130000-density-0002"


def lay_samples(trial: Path, result) -> None:
    """Samples of a CPU counter that grows by half a core, and of a gauge, in place of the empty files."""
    for file in (trial / "samples").glob("*.parquet"):
        file.unlink()
    if not result.phases:
        return
    start = result.phases[0].start
    rows = []
    for second in range(5):
        for entity in (name for name in result.phases[0].metrics if name.startswith("container:")):
            rows.append((start - 1 + second, "cgroup_cpu", entity, {"cpu.usage": 100 + 0.5 * second, "cpu.periods": 10.0 * second}))
            rows.append((start - 1 + second, "cgroup_memory", entity, {"memory.usage": 2.0**28 + second}))
        rows.append((start - 1 + second, "cpu", "host", {"cpu.user": 0.7 * second, "cpu.online": 4.0}))
    write_samples(trial, rows)


@pytest.fixture
def site(runs) -> AppState:
    """State of a server on loopback for the runs."""
    return AppState.for_runs(runs, AccessPolicy.for_server("127.0.0.1", 8765))


def signed_in(client: TestClient, policy: AccessPolicy) -> TestClient:
    """The client with the session's cookie."""
    client.cookies.set(policy.cookie, policy.session)
    return client


@pytest.fixture
def client(site) -> TestClient:
    """A browser that has signed in."""
    return signed_in(TestClient(application(site), base_url=ADDRESS, follow_redirects=False), site.policy)


@pytest.fixture
def post(client, site):
    """Send one of the site's own forms."""

    def send(path: str, **fields: str):
        return client.post(path, data={"form_token": site.policy.form_token, **fields}, headers=SAME)

    return send


@pytest.fixture
def spec_of():
    """The specification that stands in an explorer page."""

    def found(text: str) -> dict:
        match = re.search(r'<script type="application/json" id="plot-spec">(.*?)</script>', text, re.DOTALL)
        assert match, text
        return json.loads(match[1])

    return found
