import json

from pgherd.cli.main import run
from pgherd.store.run_directory import RunDirectory


def test_runs_are_listed_with_state_grade_and_answer(runs, name, capsys):
    assert run(["list", "--runs-dir", str(runs)]) == 0
    out = capsys.readouterr().out
    assert name in out and "finished" in out


def test_a_killed_run_is_told_from_a_live_one(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running"}))
    with directory.locked():
        run(["list", "--runs-dir", str(runs), "--json"])
    alive = json.loads(capsys.readouterr().out)
    run(["list", "--runs-dir", str(runs), "--json"])
    dead = json.loads(capsys.readouterr().out)
    assert alive["runs"][0]["state"] == "running" and dead["runs"][0]["state"] == "killed"
    assert dead["schema"] == "pgherd/runs/2"


def test_a_broken_run_is_a_warning_and_hides_no_other(runs, name, capsys):
    (runs / "20250101-000000-density-abcd").mkdir()
    (runs / "20250101-000000-density-abcd" / "run.json").write_text("{")
    assert run(["list", "--runs-dir", str(runs)]) == 0
    said = capsys.readouterr()
    assert name in said.out and "cannot be read" in said.err


def test_no_runs_says_what_makes_one(tmp_path, capsys):
    assert run(["list", "--runs-dir", str(tmp_path / "none")]) == 0
    assert "Start one with 'pgherd density'" in " ".join(capsys.readouterr().out.split())
