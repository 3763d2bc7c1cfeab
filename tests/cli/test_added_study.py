"""A study is added by one directory, here outside src: every part of pgherd that shows studies finds it."""

import json
import re
import warnings
from pathlib import Path

import pytest

from pgherd.cli.doctor import study_capabilities
from pgherd.cli.main import run
from pgherd.model.host_facts import HostFacts
from pgherd.node.local import LocalNode
from pgherd.prepare.requests import json_schema
from pgherd.store.run_directory import RunDirectory
from pgherd.study.study import StudyCapability
from pgherd.ui.app_state import AppState
from pgherd.ui.security import AccessPolicy
from pgherd.ui.server import application

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it recommends httpx2
    from starlette.testclient import TestClient

ADDRESS = "http://127.0.0.1:8765"


@pytest.fixture(autouse=True)
def _directories(added_study, own_directories, tmp_path, monkeypatch):
    monkeypatch.setenv("PGHERD_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def names(root: Path) -> list[str]:
    """The runs, in the order of their sizes of text."""
    return sorted((path.name for path in root.iterdir()), key=lambda name: RunDirectory(root / name).record().options["words"])


def test_the_help_and_the_schema_of_scenarios_have_it(capsys):
    assert run(["--help"]) == 0
    assert re.search(r"^  tiny +Measure the compressed size of a text by level\.$", capsys.readouterr().out, re.MULTILINE)
    assert run(["tiny", "--help"]) == 0
    assert "--levels N,N,…" in capsys.readouterr().out
    schema = json.dumps(json_schema())
    assert '"tiny"' in schema and "Levels of zlib." in schema


def test_doctor_has_it():
    facts = HostFacts(hostname="h", kernel="k", cores=1, logical_cpus=1, memory=1)
    assert StudyCapability("tiny", "available", "a text by level of zlib") in study_capabilities(LocalNode(), facts, "no server")


def test_a_scenario_runs_it_and_its_runs_are_shown_reported_and_gated(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text("study: tiny\noptions: {levels: [1, 9]}\n")
    assert run(["run", "tiny.yaml", "--dry-run"]) == 0 and "level=9" in capsys.readouterr().out
    assert run(["run", "tiny.yaml"]) == 0 and "The text was compressed." in capsys.readouterr().out
    assert run(["tiny", "--words", "5000", "--no-report"]) == 0
    small, large = names(tmp_path / "runs")
    page = (tmp_path / "runs" / small / "report.html").read_text()
    assert "bytes after compression" in page and "Size by level" in page
    capsys.readouterr()
    assert run(["show", small]) == 0 and "packed bytes" in capsys.readouterr().out
    assert run(["show", small, "2"]) == 0 and "compressed" in capsys.readouterr().out
    assert run(["report", small, large, "--output", "both.html"]) == 0 and "bytes after compression" in Path("both.html").read_text()
    assert run(["gate", large, small]) == 0 and "compressed bytes over all points" in capsys.readouterr().out
    assert run(["gate", small, large]) == 1 and "Worse than allowed: compressed bytes" in capsys.readouterr().out


def test_an_interrupted_run_is_resumed(tmp_path, capsys):
    assert run(["tiny", "--levels", "1,6,9", "--stop-at", "6"]) == 130
    assert "Resume with: pgherd resume" in capsys.readouterr().err
    directory = RunDirectory.find("last", tmp_path / "runs")
    assert [result.trial.point["level"] for result in directory.results()] == [1]
    assert run(["resume", "last"]) == 0
    assert directory.record().state == "finished"
    assert [result.trial.point["level"] for result in directory.results()] == [1, 6, 9]


def test_the_web_page_offers_and_shows_it(tmp_path):
    assert run(["tiny", "--no-report"]) == 0
    site = AppState.for_runs(tmp_path / "runs", AccessPolicy.for_server("127.0.0.1", 8765))
    client = TestClient(application(site), base_url=ADDRESS)
    client.cookies.set(site.policy.cookie, site.policy.session)
    assert "/start/tiny" in client.get("/start").text
    assert 'name="levels"' in client.get("/start/tiny").text
    [name] = names(tmp_path / "runs")
    assert name in client.get("/").text
    assert "The text was compressed." in client.get(f"/runs/{name}").text
