import json

import pytest

from pgherd.cli.main import run


def test_the_schema_is_json(capsys):
    assert run(["run", "--print-schema"]) == 0
    assert "density" in json.loads(capsys.readouterr().out)["$defs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("study: density\noptions: {vcpu: 1}", "'vcpu' is not an option"), ("study: [", "this is not YAML"), ("study: x", "no study 'x'")],
)
def test_a_bad_scenario_is_one_message(tmp_path, capsys, text, message):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    assert run(["run", str(file), "--runs-dir", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert message in said and str(file) in said
    assert not (tmp_path / "runs").exists()


def test_a_scenario_is_wanted(capsys):
    assert run(["run"]) == 2
    assert "name a scenario file" in capsys.readouterr().err
