import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    text = [
        "io-profile",
        "--compare-setting",
        "checkpoint_completion_target=0.5,0.9",
        "--trace-io",
        "--wal-volume",
        "/mnt/wal",
        "--write-scenario",
        str(file),
    ]
    assert run(text) == 0
    capsys.readouterr()
    assert read_scenario(file).options == {
        "compare_setting": "checkpoint_completion_target=0.5,0.9",
        "trace_io": True,
        "wal_volume": "/mnt/wal",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dsn", "host=x"], "--workload tpcb-like writes; use --workload select-only, or add --allow-writes"),
        (["--servers", "fleet.yaml", "--checkpoints", "2"], "--checkpoints does not go with --servers"),
        (["--no-such", "x"], "No such option"),
        (["--memory-ratio", "0.5"], "greater than 1"),
        (["--equivalence-margin", "much"], "a share is written as 2% or 0.02"),
    ],
)
@pytest.mark.usefixtures("own_directories")
def test_what_is_wrong_is_one_message(arguments, message, capsys):
    assert run(["io-profile", *arguments]) == 2
    assert message in capsys.readouterr().err
