from pathlib import Path

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario
from pgherd.studies.consolidation.prepare import PRESETS

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    arguments = [
        "--schemes",
        "shared-server,dedicated",
        "--overcommit",
        "0,30%,0.55",
        "--pattern",
        "30,2/2,30",
        "--working-set-size",
        "1376MB,1152MB",
        "--scale",
        "5",
    ]
    assert run(["consolidation", *arguments, "--write-scenario", str(file)]) == 0
    capsys.readouterr()
    assert read_scenario(file).options == {
        "schemes": ["shared-server", "dedicated"],
        "overcommit": ["0", "30%", "0.55"],
        "pattern": "30,2/2,30",
        "working_set_size": ["1376MB", "1152MB"],
        "scale": 5,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--duration", "3s"], "No such option"),
        (["--overcommit", "much"], "'overcommit.0': a level is written as 0.3 or 30%, but it is 'much'"),
        (["--overcommit", "x%"], "'overcommit.0': a level is written as 0.3 or 30%, but it is 'x%'"),
        (["--schemes", "one"], "'schemes.0': input should be 'shared-server', 'shared-container', 'dedicated', 'dedicated-balloon' or"),
        (["--swap", "tape"], "'tape' is not one of"),
        (["--preset", "E1"], "'E1' is not one of"),
        (["--databases", "1"], "greater than or equal to 2"),
        (["--pattern", "weekly", "--dry-run"], "there is no pattern 'weekly'"),
    ],
)
def test_what_is_wrong_is_one_message(arguments, message, capsys):
    assert run(["consolidation", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("paper", ["E4", "E5", "E6"])
def test_the_published_scenario_is_what_paper_means(paper):
    (file,) = (path for path in SCENARIOS.glob(f"e0{paper[1]}-*.yaml") if not path.stem.endswith(("-laptop", "-vm")))
    own = read_scenario(file).options
    known = {name: list(value) if isinstance(value, tuple) else value for name, value in PRESETS[paper].items()}
    assert {name: own[name] for name in known} == known
