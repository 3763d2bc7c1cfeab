import json

import pytest

from pgherd.cli.main import run
from pgherd.store.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_nothing_to_clean_is_said(tmp_path, capsys):
    assert run(["clean", "--runs-dir", str(tmp_path)]) == 0
    assert "No leftovers found" in capsys.readouterr().out


def test_a_killed_run_keeps_its_finished_trials_and_loses_the_torn_one(runs, name, capsys):
    directory = RunDirectory(runs / name)
    finished = len(directory.results())
    directory.save(directory.record().model_copy(update={"state": "running"}))
    directory.begin_trial("9999")
    assert run(["clean", "--runs-dir", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["clean"] and any("unfinished trial 9999" in line for line in document["actions"])
    assert any(f"pgherd resume {name}" in line for line in document["actions"])
    assert directory.record().state == "interrupted" and len(directory.results()) == finished
    assert not list((directory.path / "trials").glob("*.partial"))


def test_a_live_run_is_left_alone(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running"}))
    directory.begin_trial("9999")
    with directory.locked():
        assert run(["clean", "--runs-dir", str(runs)]) == 0
    assert directory.record().state == "running"
    assert list((directory.path / "trials").glob("*.partial"))


def test_golden_copies_go_only_when_asked(tmp_path, capsys):
    assert run(["clean", "--templates", "--runs-dir", str(tmp_path)]) == 0
    assert "No leftovers found" in capsys.readouterr().out
