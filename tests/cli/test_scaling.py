"""The verb ``scaling``."""

import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = pytest.mark.usefixtures("own_directories")

_VARIANTS = ["--variant", "base", "--variant", 'odd:jit=off,search_path="a,b",protocol=simple']


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    assert run(["scaling", "--clients", "1,2,4", *_VARIANTS, "--write-scenario", str(file)]) == 0
    scenario = read_scenario(file)
    assert scenario.options == {"clients": [1, 2, 4], "variant": ["base", 'odd:jit=off,search_path="a,b",protocol=simple']}


def test_a_dry_run_shows_every_variant(capsys, tmp_path):
    assert run(["scaling", "--clients", "1,2", "--seed", "3", *_VARIANTS, "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in (
        "Deployment of 'base': 1 container",
        "Deployment of 'odd': 1 container",
        "1 to 2 clients on 1 to 2 threads",
        "protocol simple",
    ):
        assert word in text
    for word in ("clients=2,variant=odd#2", "jit", "clients outside the containers", "at most"):
        assert word in text
    assert run(["scaling", "--clients", "1,2", *_VARIANTS, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["trials"]) == 12
    assert [variant["name"] for variant in plan["options"]["variants"]] == ["base", "odd"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "1,two"], "'1,two' is not a list of whole numbers"),
        (["--clients", "0,1"], "--clients 0: the minimum is 1"),
        (["--variant", "base"], "the name 'base' occurs twice"),
        (["--variant", "a", "--variant", "b"], "the variants 'a' and 'b' are the same"),
        (["--variant", "a", "--variant", "b:clients=3"], "'clients' cannot differ between variants"),
        (["--variant", "a", "--variant", "b:shared_bufers=1GB"], "variant 'b': "),
        (["--variant", "a", "--variant", "b:vcpus=900"], "variant 'b': --vcpus 900 is more than"),
        (["--rate", "5"], "No such option"),
    ],
)
def test_bad_words_are_one_message_and_exit_2(arguments, message, capsys, tmp_path):
    assert run(["scaling", *arguments, "--runs-dir", str(tmp_path / "runs")]) == 2
    output = capsys.readouterr()
    assert message.lower() in output.err.lower() and "Traceback" not in output.err
    assert not (tmp_path / "runs").exists()
