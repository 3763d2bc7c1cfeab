import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = pytest.mark.usefixtures("own_directories")


def test_a_dry_run_shows_the_scales_and_loads_nothing(tmp_path, capsys):
    assert run(["database-size", "--scales", "3,1", "--dry-run", "--runs-dir", str(tmp_path / "runs")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in (
        "Probe 'database-size', without load",
        "PostgreSQL",
        "scale=1#0 fresh scale=3#0",
        "2 trials, without load",
        "Disk:",
        "Host changes",
    ):
        assert word in text
    assert "reruns" not in text and not (tmp_path / "runs").exists()


def test_the_plan_as_a_document(capsys):
    assert run(["database-size", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["study"] == "database-size" and len(plan["trials"]) == 6 and plan["seconds"] == 0


def test_a_command_line_is_kept_as_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    assert run(["database-size", "--scales", "1,2", "--predict", "7", "--write-scenario", str(file)]) == 0
    assert read_scenario(file).options == {"scales": [1, 2], "predict": [7]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scales", "1,x"], "'1,x' is not a list of whole numbers such as 1,2,4,8"),
        (["--time-budget", "0"], "--time-budget 0: input should be greater than 0"),
        (["--scales", "0"], "'scales': give one or more scales, each at least 1"),
    ],
)
def test_what_is_no_scale_is_bad_usage(arguments, message, capsys):
    assert run(["database-size", *arguments, "--dry-run"]) == 2
    assert message in capsys.readouterr().err
