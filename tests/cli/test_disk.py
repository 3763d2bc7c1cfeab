import json
import os
import shutil

import pytest

from pgherd.cli.main import run
from pgherd.prepare.requests import read_scenario

pytestmark = [
    pytest.mark.usefixtures("own_directories"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]


def test_a_dry_run_shows_volumes_trials_and_changes_and_does_nothing(tmp_path, capsys):
    assert run(["disk", "--dry-run", "--file-size", "32MB", "--rate-iops", "70,30", "--runs-dir", str(tmp_path / "runs")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in (
        "No server is deployed. Load: fio on disk0.",
        "test=mix,volume=disk0#0",
        "loaded targets",
        "Host changes",
        "private directory",
    ):
        assert word in text
    assert not (tmp_path / "runs").exists()


def test_the_plan_as_a_document(capsys):
    assert run(["disk", "--dry-run", "--json", "--file-size", "32MB", "--tests", "random-read,qd1-write", "--no-double-iodepth"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["study"] == "disk" and len(plan["trials"]) == 6
    assert plan["deployment"]["volumes"][0]["name"] == "disk0"


def test_a_command_line_is_kept_as_a_scenario(tmp_path):
    file = tmp_path / "s.yaml"
    assert (
        run(["disk", "--volume", "/tmp", "--rate-iops", "70,30", "--tests", "mix", "--no-concurrent", "--write-scenario", str(file)]) == 0
    )
    assert read_scenario(file).options == {"volume": ["/tmp"], "rate_iops": "70,30", "tests": ["mix"], "concurrent": False}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate-iops", "70"], "give two whole numbers, reads and writes per second, such as --rate-iops 70,30"),
        (["--tests", "fast"], "there is no test 'fast'"),
        (["--volume", "/nonexistent"], "--volume /nonexistent does not exist"),
        (["--volume", "device:/dev/sdzz"], "give --allow-format /dev/sdzz"),
    ],
)
def test_bad_usage_is_one_message(arguments, message, capsys):
    assert run(["disk", *arguments, "--dry-run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_without_fio_the_package_is_named(monkeypatch, capsys):
    from pgherd.node.local import LocalNode

    real = LocalNode.run

    def without(self, command, timeout=60.0):
        if command.argv[0] == "fio":
            raise FileNotFoundError(2, os.strerror(2), "fio")
        return real(self, command, timeout)

    monkeypatch.setattr(LocalNode, "run", without)
    assert run(["disk", "--dry-run"]) == 3
    assert "install the package fio" in " ".join(capsys.readouterr().err.split())
