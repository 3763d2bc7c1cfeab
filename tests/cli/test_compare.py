import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario


def test_a_command_line_becomes_a_scenario(tmp_path):
    file = tmp_path / "s.yaml"
    arguments = ["--variant", "a:jit=off", "--variant", 'b:search_path="x,y"', "--precision", "1%", "--scale", "2"]
    assert run(["compare", *arguments, "--write-scenario", str(file)]) == 0
    scenario = read_scenario(file)
    assert scenario.study == "compare"
    assert scenario.options == {"variant": ["a:jit=off", 'b:search_path="x,y"'], "precision": "1%", "scale": 2}


def test_scenario_files_become_arms_that_a_scenario_holds_whole(tmp_path):
    for name in ("one", "two words"):
        assert run(["database-size", "--scales", str(len(name)), "--write-scenario", str(tmp_path / f"{name}.yaml")]) == 0
    both = tmp_path / "both.yaml"
    assert run(["compare", str(tmp_path / "one.yaml"), str(tmp_path / "two words.yaml"), "--write-scenario", str(both)]) == 0
    assert read_scenario(both).options == {
        "scenarios": [
            {"name": "one", "study": "database-size", "options": {"scales": [3]}},
            {"name": "two-words", "study": "database-size", "options": {"scales": [9]}},
        ]
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to compare; name variants"),
        (["--variant", "a", "--precision", "two"], "'precision': a share is written as 2% or 0.02"),
        (["missing.yaml"], "missing.yaml: No such file"),
        (["--variant", ":jit=off"], "the name is missing"),
        (["--repeats", "3"], "No such option"),
    ],
)
def test_bad_words_are_one_message_and_exit_2(arguments, message, capsys, tmp_path):
    assert run(["compare", *arguments, "--runs-dir", str(tmp_path / "runs")]) == 2
    output = capsys.readouterr()
    assert message.lower() in output.err.lower() and "Traceback" not in output.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("own_directories")
def test_the_plan_is_a_document(capsys):
    assert run(["compare", "--variant", "simple:protocol=simple", "--host-memory", "2GB", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["study"] == "compare" and len(document["trials"]) == 1 < document["max_trials"]
    assert {trial["point"]["variant"] for trial in document["trials"]} == {"all-interleaved"}
    assert (
        run(
            [
                "compare",
                "--variant",
                "simple:protocol=simple",
                "--interleave",
                "trials",
                "--host-memory",
                "2GB",
                "--dry-run",
                "--json",
            ]
        )
        == 0
    )
    alone = json.loads(capsys.readouterr().out)
    assert {trial["point"]["variant"] for trial in alone["trials"]} == {"base", "base (A/A)", "simple"}
