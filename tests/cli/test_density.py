import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario


def test_a_command_line_becomes_a_scenario(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    arguments = ["--vcpus", "0.5", "--databases", "1,2,4", "--set", "work_mem=8MB", "--set", "jit=off", "--rate", "50"]
    assert run(["density", *arguments, "--write-scenario", str(file)]) == 0
    assert f"pgherd run {file}" in capsys.readouterr().out.replace("\n", "")
    scenario = read_scenario(file)
    assert scenario.study == "density"
    assert scenario.options == {"vcpus": 0.5, "databases": [1, 2, 4], "set": ["work_mem=8MB", "jit=off"], "rate": 50.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--databases", "1,two"], "'1,two' is not a list of whole numbers"),
        (["--vcpus", "-1"], "'vcpus': input should be greater than 0"),
        (["--efficiency", "2"], "'efficiency': input should be less than or equal to 1"),
        (["--workload", "tpcc"], "'tpcc' is not one of"),
        (["--vcpu", "1"], "No such option"),
        (["--write-scenario", "/nonexistent/x.yaml"], "cannot be written"),
    ],
)
def test_bad_words_are_one_message_and_exit_2(arguments, message, capsys, tmp_path):
    assert run(["density", *arguments, "--runs-dir", str(tmp_path / "runs")]) == 2
    output = capsys.readouterr()
    assert message.lower() in output.err.lower() and "Traceback" not in output.err
    assert not (tmp_path / "runs").exists()


def test_an_error_is_a_document_too(capsys, tmp_path):
    assert run(["density", "--vcpus", "-1", "--json", "--runs-dir", str(tmp_path)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/error/2" and document["exit_code"] == 2
