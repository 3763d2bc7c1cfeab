import json

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = pytest.mark.usefixtures("own_directories")


def test_a_dry_run_shows_the_kinds_and_does_nothing(tmp_path, capsys):
    assert run(["compression", "--data", "pgbench@2", "--dry-run", "--runs-dir", str(tmp_path / "runs")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in ("Probe 'compression', without load", "data=pgbench,form=plain#0", "2 trials, without load", "Host changes"):
        assert word in text
    assert not (tmp_path / "runs").exists()


def test_a_command_line_is_kept_as_a_scenario(tmp_path):
    file = tmp_path / "s.yaml"
    assert run(["compression", "--data", "none", "--dir", "/x", "--codecs", "lz4", "--no-encrypt", "--write-scenario", str(file)]) == 0
    assert read_scenario(file).options == {"data": ["none"], "dir": "/x", "codecs": ["lz4"], "encrypt": False}


def test_a_directory_is_compressed_to_the_end_and_left_as_it_was(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    (data / "filler").write_bytes(b"0123456789abcdef" * 65536)
    before = sorted(path.name for path in data.iterdir())
    arguments = [
        "--data",
        "none",
        "--dir",
        str(data),
        "--codecs",
        "lz4",
        "--block-sizes",
        "8k,32k",
        "--json",
        "--runs-dir",
        str(tmp_path / "runs"),
    ]
    assert run(["compression", *arguments, "--no-report"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["grade"] == "A" and document["findings"]["ratio_directory"]["value"] > 20
    assert document["findings"]["ratio_directory_encrypted"]["value"] == pytest.approx(1)
    assert sorted(path.name for path in data.iterdir()) == before
