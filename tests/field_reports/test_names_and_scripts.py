"""Separators inside names, texts that are parsed with patterns, and files that are not the whole truth."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pgherd.distributed.prepare_cluster import UploadedFiles
from pgherd.drivers.driver import Endpoint
from pgherd.drivers.fio import DRIVER, file_argv
from pgherd.host import block_trace
from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.node.local import LocalNode
from pgherd.postgres import configuration
from pgherd.prepare.requests import expand, run_and_its_subject, several_values
from pgherd.prepare.volumes import parse_volume
from pgherd.studies.compare.options import CompareRequest
from pgherd.workloads.script_parser import backslash_commands, named_words
from pgherd.workloads.user_script import ScriptWorkload, parse_script, stage
from reports import CONFIGURATIONS, INITS, NAMES, SQL, Files, Init, Name, Sql


@pytest.mark.parametrize("row", NAMES, ids=lambda row: row.report)
def test_an_existing_file_wins_over_a_separator(row: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in row.files:
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("SELECT 1;\n")
    if isinstance(row.right, str):
        with pytest.raises(UsageError, match=row.right):
            parse_script(row.text, os.path.exists)
        return
    script = parse_script(row.text, os.path.exists)
    assert (script.source, script.weight) == row.right
    if row.files:
        (staged,) = stage(LocalNode(), [script], str(tmp_path))
        assert Path(staged.source).read_text() == "SELECT 1;\n"


def test_a_file_with_commas_in_a_variant(tmp_path: Path) -> None:
    script = tmp_path / "a,b@corp.sql"
    script.write_text("SELECT 1;\n")
    request = CompareRequest(variant=("one", f'two:script="{script}"'))
    changed = expand(request, request.variant)
    assert changed["two"].script == (str(script),)
    sent: dict[str, bytes] = {}
    there = UploadedFiles(lambda name, data: sent.setdefault(name, data) and f"/there/{name}").send(request)
    assert there.variant[1] == 'two:script="/there/000-a_b_corp.sql@1"' and list(sent) == ["000-a_b_corp.sql"]


def test_a_directory_with_an_equals_sign_is_no_named_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_volume("fast=x", "on-data").name == "fast"
    Path("fast=x").mkdir()
    volume = parse_volume("fast=x", "on-data")
    assert (volume.name, volume.path) == ("on-data", str(tmp_path / "fast=x"))


@pytest.mark.parametrize("row", SQL, ids=lambda row: row.report)
def test_commands_and_files_are_found_outside_of_rows_comments_and_strings(row: Sql) -> None:
    assert backslash_commands(row.text, psql=True) == row.commands
    assert {word for word in named_words(row.text) if word.endswith((".csv", ".sql"))} == row.files


@pytest.mark.parametrize("command", ["connect", "c"])
def test_an_init_script_that_leaves_its_database_is_refused(command: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.sql"
    file.write_text(f"CREATE DATABASE shop;\n\\{command} shop\nCREATE TABLE a ();\n")
    with pytest.raises(UsageError, match=rf"dump\.sql:2: \\{command} changes to another database.*pg_dump without -C"):
        ScriptWorkload().filling(LocalNode(), Database(workload="script", init=str(file)))


@pytest.mark.parametrize("row", INITS, ids=lambda row: row.report)
def test_an_init_script_that_may_leave_its_database_incomplete_is_refused(row: Init, tmp_path: Path) -> None:
    file = tmp_path / "init.sql"
    file.write_text(row.text)
    if row.right is None:
        ScriptWorkload().filling(LocalNode(), Database(workload="script", init=str(file)))
        return
    with pytest.raises(UsageError, match=row.right):
        ScriptWorkload().filling(LocalNode(), Database(workload="script", init=str(file)))


@pytest.mark.parametrize("row", CONFIGURATIONS, ids=lambda row: row.report)
def test_settings_are_read_in_postgresqls_order_or_named_as_not_read(row: Files, tmp_path: Path) -> None:
    for name, text in row.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = configuration.read_files(LocalNode(), str(tmp_path / "postgresql.conf"))
    assert {name: value for name, value in found.settings.items() if name != "data_directory"} == row.settings
    assert len(found.includes) == len(row.warnings)
    assert all(part in warning for part, warning in zip(row.warnings, found.includes, strict=True))
    sent: list[bytes] = []
    UploadedFiles(lambda name, data: sent.append(data) or "/there").send(CompareRequest(settings_from=str(tmp_path / "postgresql.conf")))
    (tmp_path / "sent.conf").write_bytes(sent[0])
    there = configuration.read_files(LocalNode(), str(tmp_path / "sent.conf"))
    assert row.settings.items() <= there.settings.items() and len(there.includes) >= len(row.warnings)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a,b.sql@2", ("a,b.sql@2",)),
        ("a,b.sql,c.sql@3", ("a,b.sql", "c.sql@3")),
        ("c.sql,a,b.sql@2,c.sql", ("c.sql", "a,b.sql@2", "c.sql")),
        ("1,2,4", ("1", "2", "4")),
    ],
)
def test_an_existing_file_with_a_comma_is_one_of_several_values(
    text: str, right: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.sql", "c.sql"):
        Path(name).write_text("SELECT 1;\n")
    assert several_values(text) == right


def test_a_run_below_a_directory_with_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x=y/run").mkdir(parents=True)
    assert run_and_its_subject("x=y/run") == ("", "x=y/run")
    assert run_and_its_subject("fast=x=y/run") == ("fast", "x=y/run")
    assert run_and_its_subject("run") == ("", "run")


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_writes_into_a_directory_with_a_colon(tmp_path: Path) -> None:
    """fio takes a colon for the end of a file's name. The rest was written below the working directory."""
    volume = tmp_path / "a:b"
    volume.mkdir()
    subprocess.run(file_argv(str(volume), 2**20, direct=False), cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == [Path("a:b"), Path("a:b/pgherd.data")]
    load = Load(driver="fio", clients=1, options={"rw": "read", "size": "8192"})
    argv = DRIVER.argv(load, Endpoint("disk0", "", "", 0, "", "", str(tmp_path), directory=str(volume)), 1.0)
    assert f"--filename={tmp_path}/a\\:b/pgherd.data" in argv


def test_perf_traces_into_a_directory_with_a_comma(tmp_path: Path) -> None:
    """perf splits the paths of its two pipes at a comma."""
    if reason := block_trace.refused(LocalNode()):
        pytest.skip(reason)
    directory = tmp_path / "a,b"
    directory.mkdir()
    trace = block_trace.BlockTrace(LocalNode(), [], directory)
    trace.stop()
    list(trace.lines(directory / "text"))
    assert [path.name for path in tmp_path.rglob("*")] == ["a,b", "text"]
