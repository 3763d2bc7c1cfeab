import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = pytest.mark.usefixtures("own_directories")


@pytest.fixture(autouse=True)
def _from_anywhere(monkeypatch):
    monkeypatch.chdir("/")


def test_a_dry_run_shows_the_command_and_starts_nothing(tmp_path, capsys):
    marker = tmp_path / "made"
    assert run(["exec", "--dry-run", "--runs-dir", str(tmp_path / "runs"), "--", "touch", str(marker)]) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "command on local" in text and "5 trials, each ends with its command, at most 10 min" in text
    assert f"touch{marker}" in "".join(out.split())  # a long path is wrapped
    assert not marker.exists() and not (tmp_path / "runs").exists()


def test_the_plan_as_a_document(capsys):
    assert run(["exec", "--dry-run", "--json", "--duration", "3s", "--repeats", "2", "--", "sleep", "60"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["study"] == "exec" and len(plan["trials"]) == 2 and plan["seconds"] == 6


def test_options_after_the_first_word_are_the_command_s(tmp_path):
    file = tmp_path / "s.yaml"
    assert run(["exec", "--write-scenario", str(file), "--extract", "n=(\\d+)", "sort", "--duration", "--json", "-n"]) == 0
    assert read_scenario(file).options == {"command": ["sort", "--duration", "--json", "-n"], "extract": ["n=(\\d+)"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no command"),
        (["--", "no-such-program-anywhere"], "a program 'no-such-program-anywhere'"),
        (["--extract", "x", "--", "sleep"], "--extract x: write NAME=REGEX"),
        (["--duration", "1s", "--timeout", "2s", "--", "sleep"], "give only one of them"),
        (["--no-such-option", "--", "sleep"], "No such option"),
    ],
)
def test_bad_input_is_one_message(arguments, message, tmp_path, capsys):
    assert run(["exec", "--runs-dir", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_values_of_variables_are_in_no_scenario_and_no_plan(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOKEN_B", "s3cret-b")
    arguments = ["--env", "A=s3cret-a", "--env", "TOKEN_B"]
    file = tmp_path / "s.yaml"
    assert run(["exec", "--write-scenario", str(file), *arguments, "sleep"]) == 0
    assert read_scenario(file).options["env"] == ["A", "TOKEN_B"]
    assert run(["exec", "--dry-run", "--json", *arguments, "sleep"]) == 0
    printed = capsys.readouterr().out
    assert "s3cret" not in printed and "***" in printed


def test_a_variable_that_does_not_exist_is_one_message(capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    assert run(["exec", "--env", "NO_SUCH", "sleep"]) == 2
    assert "no variable NO_SUCH in the environment" in capsys.readouterr().err
