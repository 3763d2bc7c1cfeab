"""``pgherd capture`` on bad input. tests/it/test_capture.py captures from servers."""

from __future__ import annotations

import os
import shlex
from types import SimpleNamespace

import pytest

from pgherd.capture import schema, source
from pgherd.capture.scripts import Mix, ScriptFile
from pgherd.cli import capture
from pgherd.cli.main import run
from pgherd.host import paths
from pgherd.host.journal import parse
from pgherd.model.errors import UsageError
from pgherd.postgres import external_server, installations
from pgherd.postgres.configuration import parse_set
from pgherd.postgres.external_connections import Pooler


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dbname=x"], "either --out DIR for a new capture, or --compare DIR"),
        (["dbname=x", "--out", "{new}", "--compare", "{old}"], "either --out DIR for a new capture, or --compare DIR"),
        (["what?", "--out", "{new}"], "DSN what?: this is not a DSN"),
        (["host=/nonexistent", "--out", "{new}"], "no connection"),
        (["host=/nonexistent", "--out", "{old}"], "is not empty"),
        (["host=/nonexistent", "--compare", "{old}"], "is not a file of pgherd capture"),
        (["host=/nonexistent", "--compare", "{empty}"], "requires the directory of a capture"),
        (["dbname=x", "--out", "{new}", "--duration", "0s"], "less than 1 s"),
        (["dbname=x", "--out", "{new}", "--duration", "soon"], "soon"),
    ],
)
def test_bad_input_is_one_message(arguments, message, capsys, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/capture.json").write_text('{"fingerprint": {"seconds": -1}}')
    (tmp_path / "empty").mkdir()
    places = {name: str(tmp_path / name) for name in ("new", "old", "empty")}
    assert run(["capture", *(word.format(**places) for word in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


@pytest.fixture
def connected(own_directories, monkeypatch):
    """A pretended server, whose load is not read: the arguments of its ExternalServer, and the mode of the directory of its password."""
    found = SimpleNamespace(pooler=None, account=None, modes=[], journals=own_directories / "state/pgherd/journal")

    def attach(node, dsn, *, name, passfile, account):
        found.account = account
        found.modes.append(os.stat(os.path.dirname(passfile)).st_mode & 0o777)
        (journal,) = found.journals.glob("*.jsonl")
        assert [undo.path for undo in parse(journal.read_text())[1].values()] == [os.path.dirname(passfile)]
        return SimpleNamespace(pooler=found.pooler)

    def read(*_, **__):
        raise UsageError("the load is read")

    monkeypatch.setattr(external_server, "connect_read_only", lambda *_, **__: SimpleNamespace(info=SimpleNamespace(server_version=150000)))
    monkeypatch.setattr(external_server, "ExternalServer", attach)
    monkeypatch.setattr(schema, "choose_pg_dump", lambda *_: SimpleNamespace(tool=lambda name: f"/theirs/{name}"))
    monkeypatch.setattr(installations, "user_for", lambda program: {"/theirs/pg_dump": "owner"}[program])
    monkeypatch.setattr(source, "read_source", read)
    monkeypatch.setattr(paths, "unreachable", lambda path, account: None)
    yield found
    assert not list(found.journals.glob("*.jsonl")) and not list((own_directories / "cache/pgherd/work").iterdir())


@pytest.mark.parametrize(
    ("pooler", "message"),
    [
        (None, "the load is read"),
        (Pooler("PgBouncer"), "the load is read"),
        (Pooler("PgBouncer", shared=True), "PgBouncer shares sessions between clients, .*; name the server itself"),
    ],
)
def test_a_pooler_that_shares_sessions_is_refused(connected, pooler, message, tmp_path):
    connected.pooler = pooler
    with pytest.raises(UsageError, match=message):
        capture._capture("dbname=x", tmp_path / "new", 1.0, "none", None, False)


def test_a_pg_dump_that_its_owner_can_exchange_runs_as_the_owner(connected, tmp_path):
    with pytest.raises(UsageError, match="the load is read"):
        capture._capture("dbname=x", tmp_path / "new", 1.0, "none", None, False)
    assert connected.account == "owner" and connected.modes == [0o711], "the owner can enter the directory of its password file"


def test_other_users_cannot_read_the_files(tmp_path):
    before = os.umask(0)
    try:
        capture._write(tmp_path / "a" / "new", "SELECT 1;", Mix([ScriptFile("one.sql", "SELECT 2;", 1, {1: 1})], 1.0), {"schema": "x"})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "new").iterdir()}
    assert modes == dict.fromkeys(("init.sql", "one.sql", "capture.json"), 0o600)


def test_the_command_sets_the_search_path(tmp_path):
    mix = Mix([ScriptFile("one.sql", "SELECT 2;", 1, {1: 1})], 1.0)
    words = shlex.split(capture._density(tmp_path, mix, '"it\'s", "public"'))
    assert parse_set([words[words.index("--set") + 1]]) == {"search_path": '"it\'s", "public"'}
    assert "--set" not in capture._density(tmp_path, mix, "")
