import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    assert run(["hugepages", "--page-sizes", "none,1GB", "--clients", "4", "--precision", "2%", "--write-scenario", str(file)]) == 0
    capsys.readouterr()
    assert read_scenario(file).options == {"page_sizes": ["none", "1GB"], "clients": 4, "precision": "2%"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--huge-pages", "2MB"], "No such option"),
        (["--precision", "high"], "a share is written as 2% or 0.02"),
        (["--clients", "0"], "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_one_message(arguments, message, capsys):
    assert run(["hugepages", *arguments]) == 2
    assert message in capsys.readouterr().err
