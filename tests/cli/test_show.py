import io
import json
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from pgherd.cli.main import run
from pgherd.cli.show import MAX_PHASES, point_words, readings, show_trial
from pgherd.model.result import Slice
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.database_size.options import DatabaseSizeOptions
from pgherd.studies.database_size.study import STUDY


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


def test_a_run_is_shown_again(runs, name, capsys):
    answer = RunDirectory(runs / name).record().analysis.answer
    assert run(["show", "last", "--runs-dir", str(runs)]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(answer)
    assert run(["show", name, "--runs-dir", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "pgherd/density/2"


def test_a_run_that_was_killed_is_not_said_to_run(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running", "analysis": None}))
    assert run(["show", name, "--runs-dir", str(runs)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        said.startswith("No answer: this run is interrupted: its process was killed.")
        and f"resume it: pgherd resume {directory.argument} " in said
    )
    assert run(["show", name, "--runs-dir", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "interrupted"


@pytest.mark.parametrize("trial", ["3", "0003"])
def test_a_trial_is_shown(runs, name, capsys, trial):
    assert run(["show", "last", trial, "--runs-dir", str(runs)]) == 0
    assert f"Trial 0003 of {name}" in " ".join(capsys.readouterr().out.split())
    assert run(["show", "last", trial, "--runs-dir", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/trial/2" and document["trial"]["id"] == "0003"
    assert document["path"] == str(runs / name / "trials/0003")


def test_commands_are_a_shell_script(runs, name, capsys):
    assert run(["show", "last", "1", "--runs-dir", str(runs), "--repro-script"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#!/bin/sh\n# Repeats trial 0001 (databases=") and name in text
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "1", "--repro-script", "--json"], "--repro-script prints a script and --json a document; give one of them"),
        (["last", "--repro-script"], "--repro-script requires a trial; run {name} has trials 1 to "),
        (["last", "999"], "run {name} has no trial '999'; it has 0001"),
        (["last", "x"], "run {name} has no trial 'x'"),
        (["nothing"], "no run 'nothing'"),
    ],
)
def test_what_is_not_there_is_said(runs, name, capsys, words, message):
    assert run(["show", *words, "--runs-dir", str(runs)]) == 2
    assert message.format(name=name) in capsys.readouterr().err


def shown(result, path="/runs/r/trials/0001"):
    out = io.StringIO()
    show_trial(Console(file=out, width=200), result, path, RunDirectory(Path("pgherd-runs/r")))
    return out.getvalue()


@pytest.fixture
def result(runs, name):
    return RunDirectory(runs / name).results()[0]


def test_targets_verdicts_and_files_are_shown(result):
    text = shown(result)
    for target in result.phases[0].targets:
        assert target.target in text
    for verdict in result.checks:
        assert verdict.name in text
    assert "Raw files: /runs/r/trials/0001" in text
    assert f"pgherd show r {int(result.id)} --repro-script > repeat.sh; sh repeat.sh" in text


def test_what_took_turns_says_of_what_its_rates_are(result):
    (phase,) = result.phases
    assert "time slices" not in shown(result)
    turns = [Slice(begun=phase.start + i, ended=phase.start + i + 0.25) for i in range(4)]
    targets = [target.model_copy(update={"slices": turns}) for target in phase.targets]
    own = shown(result.model_copy(update={"phases": [phase.model_copy(update={"targets": targets})]}))
    assert f"Loads ran in time slices, at most 4 each, {1 / phase.seconds:.0%} of the period. tps is per second of a load's slices" in own


def test_each_of_a_soaks_windows_is_one_line(result):
    (phase,) = result.phases
    windows = [phase.model_copy(update={"phase": f"w{number:04d}"}) for number in range(MAX_PHASES + 1)]
    text = shown(result.model_copy(update={"phases": windows}))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("w0")] == [window.phase for window in windows]
    assert f"{phase.throughput:,.0f}" in text and phase.targets[0].target not in text
    assert phase.targets[0].target in shown(result.model_copy(update={"phases": windows[:MAX_PHASES]}))


def test_a_failed_trial_says_why_and_is_not_to_be_repeated(result):
    text = shown(result.model_copy(update={"error": "a [server] died", "phases": [], "checks": []}))
    assert "Not finished: a [server] died" in text and "--repro-script" not in text


def test_a_probe_is_shown_by_its_readings(result):
    (trial,) = STUDY.propose(DatabaseSizeOptions(pg_bin="/b", pg_version="18.6", scales=(10,)), []).trials
    text = shown(result.model_copy(update={"trial": trial, "phases": [], "checks": [], "probe": {"database_bytes": 157 * 2**20}}))
    assert "Probe 'database-size': database 157 MB." in text


def test_readings_are_written_in_their_unit():
    assert readings({"database_bytes": 1536.0, "free_space_bytes": 2**30, "ratio": 2.13}) == "database 1.5 kB, free space 1 GB, ratio 2.13"


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"databases": 1}, "1 database"),
        ({"databases": 8}, "8 databases"),
        ({"scale": 10}, "scale 10"),
        ({"variant": "base (A/A)", "databases": 2}, "base (A/A), 2 databases"),
    ],
)
def test_a_point_is_in_words(result, point, words):
    assert point_words(result.trial.model_copy(update={"point": point})) == words


def test_more_readings_than_a_line_takes_are_counted():
    from pgherd.cli.show import MAX_READINGS, readings

    assert readings({f"part{number}_bytes": 1.0 for number in range(MAX_READINGS)}).count(",") == MAX_READINGS - 1
    assert readings({f"part{number}_bytes": 1.0 for number in range(MAX_READINGS + 1)}) == f"{MAX_READINGS + 1} readings"


def test_a_script_with_control_characters_is_not_printed_on_a_terminal(runs, name, capsys, monkeypatch):
    directory = RunDirectory(runs / name)
    result = directory.results()[0]
    file = directory.path / "trials" / result.id / "trial.json"
    file.write_text(file.read_text().replace("/usr/lib/postgresql/18/bin", "/x\\u001b[2J"))
    assert run(["show", name, result.id, "--runs-dir", str(runs), "--repro-script"]) == 0
    assert "\x1b[2J" in capsys.readouterr().out, "a file gets them as they were"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["show", name, result.id, "--runs-dir", str(runs), "--repro-script"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "control characters" in printed.err and "\x1b" not in printed.err
