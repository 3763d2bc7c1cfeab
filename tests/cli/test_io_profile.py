import pytest

from pgherd.cli.io_profile import command
from pgherd.cli.main import run
from pgherd.cli.scenarios import read_scenario
from pgherd.studies.io_profile.options import StorageRequest

_VERB_ONLY = {"dry_run", "write_scenario", "no_report", "runs", "as_json", "yes", "metrics", "metrics_token"}
_NOT_ITS_OWN = {"server", "allow_write"}


def test_the_command_line_and_the_scenario_know_the_same_options():
    names = {parameter.name for parameter in command.params}
    assert names - _VERB_ONLY == set(StorageRequest.model_fields) - _NOT_ITS_OWN - {"over"}


def test_every_option_says_what_it_does():
    assert all(getattr(parameter, "help", None) for parameter in command.params)


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    words = [
        "io-profile",
        "--compare",
        "checkpoint_completion_target=0.5,0.9",
        "--trace",
        "--wal-dir",
        "/mnt/wal",
        "--write-scenario",
        str(file),
    ]
    assert run(words) == 0
    capsys.readouterr()
    assert read_scenario(file).options == {"compare": "checkpoint_completion_target=0.5,0.9", "trace": True, "wal_dir": "/mnt/wal"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--server", "host=x"], "No such option"),
        (["--io-bound", "0.5"], "greater than 1"),
        (["--equivalence", "much"], "a share is written as 2% or 0.02"),
    ],
)
def test_what_is_wrong_is_one_message(words, message, capsys):
    assert run(["io-profile", *words]) == 2
    assert message in capsys.readouterr().err
