import json
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from pgherd.cli.advise import answer
from pgherd.cli.main import run
from pgherd.host.journal import parse
from pgherd.model.host_facts import Advice
from pgherd.postgres import advice_facts, external_server


def test_this_host_is_checked_and_nothing_asked_of_it(tmp_path, capsys):
    assert run(["advise", "--runs-dir", str(tmp_path / "none")]) == 0
    output = capsys.readouterr().out
    assert "recommended settings checked" in output and "Nothing was changed" in output and "--dsn DSN also checks" in output


def test_as_a_document(tmp_path, capsys):
    assert run(["advise", "--json", "--runs-dir", str(tmp_path / "none")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/advise/2" and document["server"] is None
    assert sum(document["counts"].values()) == len(document["advice"]) >= 8
    assert {"check", "outcome", "observed", "recommended", "rationale", "fix", "source", "measured_benefit", "scope"} == set(
        document["advice"][0]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dsn", "what?"], "--dsn what?: this is not a DSN"),
        (["--dsn", "host=/nonexistent"], "no connection"),
    ],
)
def test_bad_input_is_one_message(arguments, message, capsys):
    assert run(["advise", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_password_file_is_in_the_journal(own_directories, monkeypatch, capsys):
    """After kill -9, 'pgherd clean' removes it."""
    journals = own_directories / "state/pgherd/journal"

    def read(node, dsn, passfile, *, local):
        Path(passfile).write_text("*:*:*:*:secret")
        (journal,) = journals.glob("*.jsonl")
        assert [undo.path for undo in parse(journal.read_text())[1].values()] == [str(Path(passfile).parent)]
        raise psycopg.OperationalError("the server is gone")

    monkeypatch.setattr(external_server, "read_database_info", lambda *_, **__: SimpleNamespace(pid=0))
    monkeypatch.setattr(advice_facts, "read_server_facts", read)
    assert run(["advise", "--dsn", "host=db1 dbname=app"]) == 2
    assert "the server is gone" in capsys.readouterr().err
    assert not list(journals.glob("*.jsonl")) and not list((own_directories / "cache/pgherd/work").iterdir())


def test_the_answer_counts_every_outcome():
    advice = Advice(check="a", scope="host", outcome="change", observed="x", recommended="y", rationale="z")
    assert answer([advice, advice.model_copy(update={"outcome": "ok"})]).startswith(
        "2 recommended settings checked: 1 to change, 0 to consider"
    )
