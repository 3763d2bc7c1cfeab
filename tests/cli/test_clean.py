import errno
import json
import os

import pytest

from pgherd.cli.main import run
from pgherd.host import paths
from pgherd.node.files import Directory, user_name
from pgherd.store.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_nothing_to_clean_is_said(tmp_path, monkeypatch, capsys):
    """Other users have other directories, and the directory of runs depends on the current one."""
    monkeypatch.chdir(tmp_path)
    assert run(["clean", "--runs-dir", "runs"]) == 0
    places = f"{user_name(os.geteuid())} in {paths.state_dir()}, {paths.cache_dir()} and {tmp_path / 'runs'}"
    assert capsys.readouterr().out.startswith(f"No leftovers found of {places}: ")


def test_a_killed_run_keeps_its_finished_trials_and_loses_the_torn_one(runs, name, capsys):
    directory = RunDirectory(runs / name)
    finished = len(directory.results())
    directory.save(directory.record().model_copy(update={"state": "running"}))
    directory.begin_trial("9999")
    assert run(["clean", "--runs-dir", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["clean"] and any("unfinished trial 9999" in line for line in document["actions"])
    assert any(f"pgherd resume {directory.argument}" in line for line in document["actions"])
    assert directory.record().state == "interrupted" and len(directory.results()) == finished
    assert not list((directory.path / "trials").glob("*.partial"))


def test_an_unfinished_trial_that_stays_is_reported(runs, name, monkeypatch, capsys):
    directory = RunDirectory(runs / name)
    directory.begin_trial("9999")

    def refused(directory, name):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr(Directory, "remove_tree", refused)
    assert run(["clean", "--runs-dir", str(runs), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["clean"]
    assert any(line.startswith("not undone: ") and "9999.partial cannot be removed" in line for line in document["actions"])
    assert not any("removed the unfinished trial" in line for line in document["actions"])


def test_a_run_that_cannot_be_cleaned_does_not_keep_the_others(runs, name, tmp_path, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running"}))
    broken = runs / "20250101-000000-density-0000"
    broken.mkdir()
    (broken / "run.json").write_bytes((directory.path / "run.json").read_bytes())
    (broken / "trials").symlink_to(tmp_path)
    assert run(["clean", "--runs-dir", str(runs), "--json"]) == 0
    actions = json.loads(capsys.readouterr().out)["actions"]
    assert any("left unchanged" in line and broken.name in line for line in actions), actions
    assert directory.record().state == "interrupted"


def test_a_live_run_is_left_alone(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running"}))
    directory.begin_trial("9999")
    with directory.locked():
        assert run(["clean", "--runs-dir", str(runs)]) == 0
    assert directory.record().state == "running"
    assert list((directory.path / "trials").glob("*.partial"))


def test_templates_go_only_when_asked(tmp_path, capsys):
    assert run(["clean", "--templates", "--runs-dir", str(tmp_path)]) == 0
    assert "No leftovers found" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_run_of_another_user_is_not_changed(runs, name, tmp_path, capsys):
    """Its record would then belong to root, and a link in it would overwrite a file of root."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running"}))
    directory.begin_trial("9999")
    (directory.path / "run.json.tmp").symlink_to(secret)
    for path in (directory.path, *directory.path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    assert run(["clean", "--runs-dir", str(runs)]) == 0
    assert f"left unchanged: run {name} belongs to user 'nobody'" in capsys.readouterr().out
    assert directory.record().state == "running" and (directory.path / "run.json").stat().st_uid == 65534
    assert (directory.path / "trials/9999.partial").exists() and secret.read_text() == "secret"
