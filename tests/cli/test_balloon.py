"""The verb's words; tests/it/test_balloon.py has servers."""

from __future__ import annotations

import json

import pytest

from pgherd.cli.main import run
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.pg_balloon import missing_to_build

pytestmark = pytest.mark.usefixtures("own_directories")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["build", "--pg-version", "14"], 2, "PostgreSQL 14 is not supported"),
        (["build", "--pg-bin", "/nowhere"], 2, "/nowhere does not hold postgres"),
        (["status", "no dsn at all"], 2, "DSN no dsn at all: this is not a DSN"),
        (["status", "host=/nowhere user=u"], 2, "no connection"),
        (["status"], 2, "Missing argument 'DSN'"),
        (["demo", "--memory", "12"], 2, "--memory 12 B is too small"),
        (["demo", "--phase-length", "1s"], 2, "--phase-length 1 s is too short"),
        (["demo", "--overcommit", "90"], 2, "--overcommit 90"),
    ],
)
def test_bad_words_are_refused_with_one_message(words, code, message, capsys):
    assert run(["balloon", *words]) == code
    said = capsys.readouterr().err
    assert message in said and said.count("pgherd: ") == 1


def test_a_dry_run_of_the_demo_shows_its_plan_and_changes_nothing(capsys, own_directories):
    words = ["balloon", "demo", "--dry-run", "--overcommit", "0", "--memory", "1GB", "--phases", "6", "--phase-length", "5s"]
    assert run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 containers (1 GB each, 2 GB together)" in said and "6 phases of 5 s: 4 clients on one server" in said
    assert "Time: 30 s under load." in said and "Host changes, undone at the end: two control groups" in said
    assert run([*words, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["schema"] == "pgherd/balloon-demo-plan/2" and (plan["seconds"], plan["memory_bytes"]) == (30, 2 * 2**30)
    assert not list(own_directories.iterdir())


def test_a_built_library_is_told_with_its_settings(capsys):
    node = LocalNode()
    able = [one for one in installations.find_all(node) if not missing_to_build(node, one)]
    if not able:
        pytest.skip("pg_balloon cannot be built here")
    assert run(["balloon", "build", "--pg-bin", able[0].bin, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["rebuilt"] and first["settings"]["shared_preload_libraries"] == "pg_balloon"
    assert run(["balloon", "build", "--pg-bin", able[0].bin]) == 0
    said = capsys.readouterr().out
    assert "cached" in said and first["library"] in said.replace("\n", "")
