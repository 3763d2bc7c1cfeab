import pytest

from pgherd.cli.hugepages import command
from pgherd.cli.main import run
from pgherd.cli.scenarios import read_scenario
from pgherd.studies.hugepages.options import HugepagesRequest

_VERB_ONLY = {"dry_run", "write_scenario", "no_report", "runs", "as_json", "yes", "metrics", "metrics_token"}
_NOT_ITS_OWN = {"repeats", "huge_pages"}


def test_the_command_line_and_the_scenario_know_the_same_options():
    names = {parameter.name for parameter in command.params}
    assert names - _VERB_ONLY == set(HugepagesRequest.model_fields) - _NOT_ITS_OWN - {"over"}
    assert "yes" in names


def test_every_option_says_what_it_does():
    assert all(getattr(parameter, "help", None) for parameter in command.params)


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    assert run(["hugepages", "--pages", "none,1GB", "--clients", "4", "--precision", "2%", "--write-scenario", str(file)]) == 0
    capsys.readouterr()
    assert read_scenario(file).options == {"pages": ["none", "1GB"], "clients": 4, "precision": "2%"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--huge-pages", "2MB"], "No such option"),
        (["--precision", "high"], "a share is written as 2% or 0.02"),
        (["--clients", "0"], "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_one_message(words, message, capsys):
    assert run(["hugepages", *words]) == 2
    assert message in capsys.readouterr().err
