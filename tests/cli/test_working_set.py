from pathlib import Path

import pytest

from pgherd.cli.main import run
from pgherd.cli.scenarios import read_scenario
from pgherd.cli.working_set import command
from pgherd.studies.working_set.options import WorkingSetRequest
from pgherd.studies.working_set.prepare import PAPER

_VERB_ONLY = {"dry_run", "write_scenario", "no_report", "runs", "as_json", "yes", "metrics", "metrics_token"}
_NOT_ITS_OWN = {"memory", "server", "allow_write", "rate", "huge_pages"}


def test_the_command_line_and_the_scenario_know_the_same_options():
    names = {parameter.name for parameter in command.params}
    assert names - _VERB_ONLY == set(WorkingSetRequest.model_fields) - _NOT_ITS_OWN - {"over"}


def test_every_option_says_what_it_does():
    helps = [getattr(parameter, "help", None) for parameter in command.params]
    assert all(helps) and not any("{" in text for text in helps)


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    words = ["--clients", "8,2", "--sweeps", "memory", "--memory-sizes", "100MB,200MB", "--precision", "2%"]
    assert run(["working-set", *words, "--write-scenario", str(file)]) == 0
    capsys.readouterr()
    wanted = {"clients": [8, 2], "sweeps": ["memory"], "memory_sizes": ["100MB", "200MB"], "precision": "2%"}
    assert read_scenario(file).options == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "1GB"], "No such option"),
        (["--precision", "high"], "a share is written as 2% or 0.02"),
        (["--sweeps", "disk"], "disk"),
        (["--points", "2"], "greater than or equal to 4"),
        (["--state", "warm"], "restarted at least"),
    ],
)
def test_what_is_wrong_is_one_message(words, message, capsys):
    assert run(["working-set", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_published_scenario_is_what_paper_means():
    own = read_scenario(Path(__file__).parents[2] / "scenarios/e07-working-set.yaml").options
    assert own == {name: list(value) if isinstance(value, tuple) else value for name, value in PAPER.items()}
