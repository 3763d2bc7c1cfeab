import json
import os
import sys

import pytest

from pgherd.cli.main import run
from pgherd.cli.run import what_it_runs
from pgherd.store.run_directory import RunDirectory


def test_the_schema_is_json(capsys):
    assert run(["run", "--print-schema", "--json"]) == 0
    assert "properties" in capsys.readouterr().out
    assert run(["run", "--print-schema"]) == 0
    assert "density" in json.loads(capsys.readouterr().out)["$defs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("study: density\noptions: {vcpu: 1}", "'vcpu' is not an option"), ("study: [", "this is not YAML"), ("study: x", "no study 'x'")],
)
def test_a_bad_scenario_is_one_message(tmp_path, capsys, text, message):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    assert run(["run", str(file), "--runs-dir", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert message in said and str(file) in said
    assert not (tmp_path / "runs").exists()


def test_a_scenario_is_wanted(capsys):
    assert run(["run"]) == 2
    assert "name a scenario file" in capsys.readouterr().err


def test_a_run_that_is_not_there(tmp_path, capsys):
    assert run(["resume", "nothing", "--runs-dir", str(tmp_path)]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_run_that_does_not_say_what_it_needs(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "interrupted"}))
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert "cannot be resumed: its run.json has no 'environment'" in capsys.readouterr().err


@pytest.fixture
def resumed(monkeypatch):
    """Runs that would be resumed, instead of being resumed."""
    directories = []
    monkeypatch.setattr("pgherd.cli.run_study.resume", lambda directory, **_: directories.append(directory) or 0)
    return directories


@pytest.fixture
def foreign(runs, name, monkeypatch):
    """An interrupted run of another user, which names a program."""
    directory = RunDirectory(runs / name)
    options = {**directory.record().options, "pg_bin": "/home/mallory/bin"}
    update = {"state": "interrupted", "options": options, "postgres": {"/home/mallory/bin\x1b[2J": "18"}}
    directory.save(directory.record().model_copy(update=update))
    (directory.path / "inputs").mkdir()
    (directory.path / "inputs/x.sql").write_text("SELECT 1")
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    for path in (directory.path, *directory.path.rglob("*")):
        os.chown(path, 65534, 65534)
    for place in (runs, *runs.parents):
        if place.stat().st_mode & 0o022 and not place.stat().st_mode & 0o1000:
            pytest.skip(f"other users can write to {place}")
    return directory


def terminal(monkeypatch, typed):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("click.prompt", lambda text, **_: typed)


def test_a_run_of_ours_is_resumed_unasked(runs, name, resumed):
    assert run(["resume", name, "--runs-dir", str(runs)]) == 0
    assert [directory.path for directory in resumed] == [runs / name]


def test_a_run_of_another_user_is_not_resumed_without_a_terminal(foreign, runs, name, resumed, capsys):
    for word in (name, "last", f"{foreign.path}/"):
        os.chown(runs, 65534 if word == "last" else 0, 0)
        assert run(["resume", word, "--runs-dir", str(runs)]) == 2
        error = capsys.readouterr().err
        assert "because it belongs to user 'nobody': its record could name any program to run; resume it on a terminal" in error
    assert not resumed and len(list(runs.iterdir())) == 1


def test_a_run_that_others_can_write_is_not_resumed_without_a_terminal(runs, name, resumed, capsys):
    (runs / name / "run.json").chmod(0o666)
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert "other users can write to" in capsys.readouterr().err and not resumed


@pytest.mark.parametrize("typed", ["", "yes", "y"])
def test_a_run_of_another_user_is_not_resumed_unless_its_name_is_typed(foreign, runs, name, resumed, monkeypatch, capsys, typed):
    terminal(monkeypatch, typed)
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert f"'{typed}' is not {name}: nothing was run" in capsys.readouterr().err
    assert not resumed and len(list(runs.iterdir())) == 1


def test_a_run_of_another_user_is_shown_and_resumed_as_a_copy(foreign, runs, name, resumed, monkeypatch, capsys):
    """The copy is the one that was shown, and the other user cannot change it."""
    terminal(monkeypatch, name)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in foreign.path.rglob("*"))
    assert run(["resume", name, "--runs-dir", str(runs)]) == 0
    (copy,) = resumed
    shown = capsys.readouterr().err
    assert 'option pg_bin: "/home/mallory/bin"' in shown and "PostgreSQL /home/mallory/bin" in shown and "\x1b" not in shown
    assert f"input file {copy.path}/inputs/x.sql (8 bytes)" in shown
    assert copy.path.parent == runs and copy.name != name and copy.distrust() is None and copy.record().run == copy.name
    assert [result.id for result in copy.results()] == [result.id for result in foreign.results()]
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in foreign.path.rglob("*")) == before


def test_options_that_nobody_can_check_are_refused(foreign, runs, name, resumed, monkeypatch, capsys):
    os.chown(foreign.path, 0, 0)
    foreign.save(foreign.record().model_copy(update={"options": {"x": "y" * 50_000}}))
    os.chown(foreign.path, 65534, 65534)
    terminal(monkeypatch, name)
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert "too many to check; nothing was run" in capsys.readouterr().err and len(list(runs.iterdir())) == 1


def test_a_name_of_an_option_begins_no_line(runs, name):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"study": "x\ny", "options": {"a\n  study: density": 1}}))
    assert what_it_runs(directory)[:2] == ["  study: x y", "  option a   study: density: 1"]


@pytest.mark.parametrize(
    "update, message", [({"study": "spy"}, "there is no study 'spy'"), ({"options": {"x": 1}}, "option 'host_cores' is missing")]
)
def test_a_record_that_this_version_cannot_resume(runs, name, capsys, update, message):
    environment = {"runtime": "process", "cores": 1.0, "memory": 2**30}
    directory = RunDirectory(runs / name)
    record = directory.record().model_copy(update={"state": "interrupted", **update})
    directory.save(type(record).model_validate({**record.model_dump(by_alias=True), "environment": environment}))
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert message in capsys.readouterr().err
