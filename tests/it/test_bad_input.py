"""Bad input: one message that says what is wrong, the right exit code, nothing left, and no run begun."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

BAD_USAGE, CANNOT = 2, 3


@pytest.fixture
def files(pgherd) -> Path:
    """A directory for input files that the servers' account can reach."""
    pgherd.runs.mkdir()
    return pgherd.runs


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(("--set", "nonsense=1"), BAD_USAGE, 'unrecognized configuration parameter "nonsense"', id="unknown setting"),
        pytest.param(("--set", "work_mem=much"), BAD_USAGE, 'invalid value for parameter "work_mem": "much"', id="bad value"),
        pytest.param(("--databases", "1,1000000"), BAD_USAGE, "--databases 1000000: 1000000 databases of .* memory budget of", id="memory"),
        pytest.param(
            ("--databases", "2", "--bound-by", "io", "--scale", "99000000"),
            BAD_USAGE,
            "2 databases of about .* free; lower",
            id="disk",
        ),
        pytest.param(("--pg-bin", "/nonexistent"), BAD_USAGE, "/nonexistent does not hold postgres", id="no PostgreSQL there"),
        pytest.param(("--pg-version", "9"), BAD_USAGE, "PostgreSQL 9 is not supported; pgherd works with 15 to 18", id="old version"),
        pytest.param(("--pg-version", "15.99"), CANNOT, "no PostgreSQL 15.99 on this machine, but", id="version not there"),
        pytest.param(
            ("--runtime", "process", "--cpu-mode", "quota"), CANNOT, "--cpu-mode quota needs the cgroup runtime", id="quota of no group"
        ),
        pytest.param(("--runtime", "process", "--memory", "1GB"), CANNOT, "--memory needs the cgroup runtime", id="memory of no group"),
        pytest.param(("--runs-dir", "/proc/runs"), BAD_USAGE, "cannot create a run directory in /proc/runs", id="no place for runs"),
        pytest.param(("--script", "/nonexistent.sql"), BAD_USAGE, "/nonexistent.sql cannot be read", id="no script"),
        pytest.param(("--run-as", "root"), BAD_USAGE, "root, which PostgreSQL refuses", id="root"),
    ],
)
def test_options(pgherd, arguments, code, message):
    _refused(pgherd, pgherd.density(*arguments), code, message)


def _refused(pgherd, ended, code, *text):
    assert ended.code == code, ended
    for words in text:
        assert re.search(words, ended.message), ended.message
    assert not ended.out
    assert not list(pgherd.runs.glob("*/run.json")) and not list(pgherd.runs.glob("*/trials"))
    pgherd.nothing_left()


def test_a_script_with_an_sql_error(pgherd, files):
    script = files / "bad.sql"
    script.write_text("\\set id random(1, 10)\nSELECT 1;\nSELEC :id;\n")
    _refused(
        pgherd, pgherd.density("--script", str(script)), BAD_USAGE, 'syntax error at or near "SELEC"', str(script), "correct the script"
    )


def test_sql_that_fills_the_database_with_an_error(pgherd, files):
    script, init = files / "ok.sql", files / "init.sql"
    script.write_text("SELECT count(*) FROM things;\n")
    init.write_text("CREATE TABLE things (id int);\nINSERT INTO thinks VALUES (1);\n")
    ended = pgherd.density("--script", str(script), "--init-script", str(init))
    _refused(pgherd, ended, BAD_USAGE, f"{init}:2", 'relation "thinks" does not exist', "correct the --init-script file")


def test_a_file_where_the_runs_should_lie(pgherd, files):
    (files / "file").touch()
    ended = pgherd.density("--runs-dir", str(files / "file/runs"))
    _refused(pgherd, ended, BAD_USAGE, "file is not a directory; choose another with --runs-dir DIR or PGHERD_RUNS")
    assert "Runtime" not in ended.err, "it is said before anything is prepared"


def test_an_old_postgresql(pgherd, files):
    for tool in ("postgres", "initdb", "pgbench", "psql"):
        (files / tool).write_text(f'#!/bin/sh\necho "{tool} (PostgreSQL) 13.22"\n')
        (files / tool).chmod(0o755)
    ended = pgherd.density("--pg-bin", str(files))
    _refused(pgherd, ended, BAD_USAGE, "PostgreSQL 13.22 is not supported; pgherd works with 15 to 18")
    (files / "initdb").unlink()
    _refused(pgherd, pgherd.density("--pg-bin", str(files)), BAD_USAGE, "does not hold initdb")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study: density\noptions: [", "line 2: this is not YAML"),
        ("study: density\noptions:\n  workload: nonsense\n", "'workload': input should be 'select-only'.* but it is 'nonsense'"),
        ("study: dentistry\n", "dentistry"),
        ("study: density\noptions:\n  point: [1]\n", "point"),
        ("just words\n", "scenario.yaml"),
    ],
)
def test_scenarios(pgherd, files, text, message):
    (files / "scenario.yaml").write_text(text)
    _refused(pgherd, pgherd("run", str(files / "scenario.yaml")), BAD_USAGE, message)


def test_a_scenario_that_is_not_there(pgherd, files):
    _refused(pgherd, pgherd("run", str(files / "missing.yaml")), BAD_USAGE, "missing.yaml: No such file")


def test_no_control_group_for_an_ordinary_user(ordinary):
    ended = ordinary.density("--runtime", "cgroup")
    if ended.code in (0, 1):
        pytest.skip("an ordinary user may make control groups here")
    _refused(ordinary, ended, CANNOT, "the cgroup runtime can't be used here: ")


@pytest.fixture
def finished(pgherd, files) -> Path:
    """A finished run of one small trial, made by hand: what reads it needs no PostgreSQL."""
    assert pgherd.density("--databases", "1", "--time-budget", "2s").code in (0, 1)
    return pgherd.run


VERBS = [("show",), ("report",), ("resume",)]


def test_run_directories_that_cannot_be_read(pgherd, finished):
    complete = (finished / "run.json").read_text()
    damages = [
        (complete[: len(complete) // 2], "run.json cannot be read"),
        ("", "run.json cannot be read"),
        ('{"schema": "other/1"}', "has schema 'other/1', but this pgherd reads 'pgherd/run/2'"),
        ("[1, 2]", "has schema 'None'"),
        (json.dumps({**json.loads(complete), "trials": 7}), "run.json is no record of a run: trials"),
    ]
    for text, said in damages:
        (finished / "run.json").write_text(text)
        before = pgherd.digests()
        for verb in VERBS if text == "[1, 2]" else VERBS[:1]:
            ended = pgherd(*verb, str(finished))
            assert ended.code == BAD_USAGE and said in ended.message, (verb, ended)
        assert (finished / "run.json").read_text() == text and pgherd.digests() == before
    cleaned = pgherd("clean")
    assert cleaned.code == 0 and "left unchanged: " in cleaned.out and pgherd.digests() == before
    (finished / "run.json").write_text(complete)
    trial = sorted(finished.glob("trials/*/trial.json"))[-1]
    trial.write_text(trial.read_text()[:100])
    for verb in VERBS[:2]:
        ended = pgherd(*verb, str(finished))
        assert ended.code == BAD_USAGE and f"{trial} cannot be read" in ended.message, (verb, ended)
    # Without the damaged trial the rest can be used, and goes on under a new number.
    shutil.rmtree(trial.parent)
    assert pgherd("show", str(finished)).code == 0


def test_directories_that_are_no_run(pgherd, files):
    (files / "empty").mkdir()
    for verb in VERBS:
        ended = pgherd(*verb, str(files / "empty"))
        assert ended.code == BAD_USAGE and "is not a run directory of pgherd: it has no run.json" in ended.message
    ended = pgherd("show", "nothing")
    assert ended.code == BAD_USAGE and "no run 'nothing' in" in ended.message and "it has none" in ended.message


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives the directory to itself alone")
def test_a_runs_directory_of_somebody_else(ordinary):
    foreign = ordinary.root / "foreign"
    foreign.mkdir(mode=0o755)
    ended = ordinary.density("--runs-dir", str(foreign), "--runtime", "process")
    _refused(ordinary, ended, BAD_USAGE, f"{foreign} cannot be written; choose another with --runs-dir DIR or PGHERD_RUNS")
