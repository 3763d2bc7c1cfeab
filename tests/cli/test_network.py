import json
import shutil

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = pytest.mark.usefixtures("own_directories")


@pytest.fixture(autouse=True)
def _iperf3():
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")


def test_a_dry_run_shows_links_and_trials_and_asks_nobody(tmp_path, capsys):
    assert run(["network", "--to", "nobody.invalid", "--streams", "4", "--dry-run", "--runs-dir", str(tmp_path / "runs")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "iperf3 on nobody.invalid" in text and "link=nobody.invalid,streams=4#0" in text and "9 trials" in text


def test_the_plan_as_a_document(capsys):
    assert run(["network", "--to", "db2", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["study"] == "network" and len(plan["trials"]) == 18


def test_a_command_line_is_kept_as_a_scenario(tmp_path):
    file = tmp_path / "s.yaml"
    assert run(["network", "--to", "a", "--to", "b:5300", "--streams", "1,2", "--reverse", "--write-scenario", str(file)]) == 0
    assert read_scenario(file).options == {"to": ["a", "b:5300"], "streams": [1, 2], "reverse": True}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "there is no link to measure"),
        (["--to", "127.0.0.1:9"], 2, "no iperf3 server answers at port 9"),
        (["--to", "x", "--streams", "0"], 2, "from 1 to 128"),
        (["--to", "x", "--netns-delay", "5ms"], 2, "add --netns, or leave them out"),
    ],
)
def test_bad_input_is_one_message(arguments, code, message, tmp_path, capsys):
    assert run(["network", *arguments, "--runs-dir", str(tmp_path)]) == code
    assert message in capsys.readouterr().err
