import json

import pytest

from pgherd.cli.main import run

pytestmark = pytest.mark.usefixtures("own_directories")


WORDS = ["density", "--dry-run", "--points", "1,2", "--seed", "5", "--vcpus", "1", "--scale", "3"]


def test_a_dry_run_says_what_would_happen_and_leaves_nothing(own_directories, tmp_path, capsys):
    assert run([*WORDS, "--runs", str(tmp_path / "runs")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for word in ("Deployment: 2 containers", "select-only", "databases=2#0", "under load", "Disk:", "Host changes", "shared_buffers"):
        assert word in said
    assert not (tmp_path / "runs").exists()
    assert not list(own_directories.glob("cache/pgherd/work/*"))


def test_the_plan_as_a_document(capsys):
    assert run([*WORDS, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["schema"] == "pgherd/plan/1"
    assert {trial["point"]["databases"] for trial in plan["trials"]} == {1, 2}
    assert plan["seconds"] == pytest.approx(sum(trial["seconds"] for trial in plan["trials"]))
    assert plan["disk_bytes"] > 0 and plan["memory_bytes"] > 0 and plan["host_changes"]
    assert any(row["name"] == "shared_buffers" for row in plan["settings"])
