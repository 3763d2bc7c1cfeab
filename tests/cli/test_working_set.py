from pathlib import Path

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario
from pgherd.studies.working_set.prepare import PRESET_E7


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    arguments = ["--clients", "8,2", "--vary", "memory", "--memory-sizes", "100MB,200MB", "--precision", "2%"]
    assert run(["working-set", *arguments, "--write-scenario", str(file)]) == 0
    capsys.readouterr()
    expected = {"clients": [8, 2], "vary": ["memory"], "memory_sizes": ["100MB", "200MB"], "precision": "2%"}
    assert read_scenario(file).options == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "1GB"], "No such option"),
        (["--precision", "high"], "a share is written as 2% or 0.02"),
        (["--vary", "disk"], "disk"),
        (["--initial-sizes", "2"], "greater than or equal to 4"),
        (["--start-state", "warm"], "servers must restart"),
    ],
)
def test_what_is_wrong_is_one_message(arguments, message, capsys):
    assert run(["working-set", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_published_scenario_is_what_paper_means():
    own = read_scenario(Path(__file__).parents[2] / "scenarios/e07-working-set.yaml").options
    assert own == {name: list(value) if isinstance(value, tuple) else value for name, value in PRESET_E7.items()}
