import json
import subprocess

import pytest

from pgherd.cli.main import run
from pgherd.store.run_directory import RunDirectory


def test_a_run_is_shown_again(runs, name, capsys):
    answer = RunDirectory(runs / name).record().analysis.answer
    assert run(["show", "last", "--runs", str(runs)]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(answer)
    assert run(["show", name, "--runs", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "pgherd/density/1"


def test_a_run_that_was_killed_is_not_said_to_run(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running", "analysis": None}))
    assert run(["show", name, "--runs", str(runs)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        said.startswith("No answer: this run is interrupted: its process was killed.") and f"resume it with 'pgherd resume {name}'" in said
    )
    assert run(["show", name, "--runs", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "interrupted"


@pytest.mark.parametrize("trial", ["3", "0003"])
def test_a_trial_is_shown(runs, name, capsys, trial):
    assert run(["show", "last", trial, "--runs", str(runs)]) == 0
    assert f"Trial 0003 of {name}" in " ".join(capsys.readouterr().out.split())
    assert run(["show", "last", trial, "--runs", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/trial/1" and document["trial"]["id"] == "0003"
    assert document["path"] == str(runs / name / "trials/0003")


def test_commands_are_a_shell_script(runs, name, capsys):
    assert run(["show", "last", "1", "--runs", str(runs), "--commands"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#!/bin/sh\n# Repeats trial 0001 (databases=") and name in text
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "--commands"], "--commands needs a trial; run {name} has trials 1 to "),
        (["last", "999"], "run {name} has no trial '999'; it has trials 1 to "),
        (["last", "x"], "run {name} has no trial 'x'"),
        (["nothing"], "no run 'nothing'"),
    ],
)
def test_what_is_not_there_is_said(runs, name, capsys, words, message):
    assert run(["show", *words, "--runs", str(runs)]) == 2
    assert message.format(name=name) in capsys.readouterr().err
