"""Separators inside names, texts that are parsed with patterns, and files that are not the whole truth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.distributed.prepare_cluster import UploadedFiles
from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import configuration
from pgherd.prepare.requests import expand
from pgherd.prepare.volumes import parse_volume
from pgherd.studies.compare.options import CompareRequest
from pgherd.workloads.script_parser import backslash_commands, named_words
from pgherd.workloads.user_script import ScriptWorkload, parse_script, stage
from reports import CONFIGURATIONS, NAMES, SQL, Files, Name, Sql


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
