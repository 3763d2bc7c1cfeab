from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import choose_settings
from pgherd.postgres.settings_validation import complaints, contexts, no_tls, parse_contexts, understand, understood, validate

FIXTURES = Path(__file__).parents[1] / "fixtures/postgres"


@pytest.mark.parametrize("major", [15, 18])
def test_contexts_in_captured_output(major: int) -> None:
    values = parse_contexts((FIXTURES / f"describe-config-{major}.txt").read_text())
    assert values["shared_buffers"] == "postmaster"
    assert values["work_mem"] == "user"
    assert values["autovacuum"] == "sighup"
    assert values.get("io_method") == ("postmaster" if major == 18 else None)


def test_contexts_of_an_installation(node: LocalNode, installation: Installation) -> None:
    values = contexts(node, installation)
    assert len(values) > 250
    assert set(values.values()) <= {"internal", "postmaster", "sighup", "superuser-backend", "backend", "superuser", "user"}
    assert values["max_connections"] == "postmaster"


def test_understand_keeps_the_words_and_drops_the_rest() -> None:
    log = (
        '2026-01-01 00:00:00.000 GMT [1] LOG:  skipping missing configuration file "/x/postgresql.auto.conf"\n'
        '2026-01-01 00:00:00.000 GMT [1] LOG:  invalid value for parameter "wal_level": "x"\n'
        "2026-01-01 00:00:00.000 GMT [1] HINT:  Available values: minimal, replica, logical.\n"
        '2026-01-01 00:00:00.000 GMT [1] LOG:  unrecognized configuration parameter "foo" in file "/x/postgresql.conf" line 2\n'
        '2026-01-01 00:00:00.000 GMT [1] FATAL:  configuration file "/x/postgresql.conf" contains errors\n'
    )
    assert understand(log) == [
        'invalid value for parameter "wal_level": "x" (Available values: minimal, replica, logical.)',
        'unrecognized configuration parameter "foo"',
    ]
    assert understand("setpriv: failed to execute postgres\n") == ["setpriv: failed to execute postgres"]
    assert understand("") == ["PostgreSQL exited without a message"]


def test_what_postgresql_makes_of_settings_without_a_cluster(node: LocalNode, installation: Installation) -> None:
    settings = {"shared_buffers": "1GB", "jit": "FALSE", "search_path": '"a b", c', "some_extension.size": "1GB"}
    values = understood(node, installation.bin, settings, [*settings, "work_mem", "no_such_setting", "other_extension.size"])
    assert values == {"shared_buffers": "131072", "jit": "off", "work_mem": "4096"} | {name: settings[name] for name in list(settings)[2:]}


WRONG = [
    ({"foo": "1", "bar_": "2"}, ['unrecognized configuration parameter "foo"', 'unrecognized configuration parameter "bar_"']),
    ({"work_mem": "banana"}, ['invalid value for parameter "work_mem": "banana"']),
    ({"max_connections": "999999999"}, ['999999999 is outside the valid range for parameter "max_connections" (1 .. 262143)']),
    ({"shared_preload_libraries": "nix"}, ['could not access file "nix": No such file or directory']),
]


def test_validation_in_postgresqls_own_words(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    """One test, because all cases share a data directory that takes 0.5 s to create."""
    for settings, errors in WRONG:
        assert complaints(node, installation, settings, account, str(place)) == errors
    # PostgreSQL reports contradictions only after it has read all settings.
    (contradiction,) = complaints(node, installation, {"wal_level": "minimal"}, account, str(place))
    assert "WAL streaming" in contradiction
    with pytest.raises(UsageError, match=rf"PostgreSQL {installation.version} .*work_mem.*; correct --set"):
        validate(node, installation, {"work_mem": "banana"}, account, str(place))
    chosen = choose_settings(major=installation.major, database_bytes=10**8, clients=4, writes=True)
    validate(node, installation, chosen.settings, account, str(place))
    validate(node, installation, {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "100"}, account, str(place))


def test_whether_a_server_can_have_tls(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    error = no_tls(node, installation, account, str(place))
    # The embedded PostgreSQL is built without OpenSSL, distributions' with it.
    assert "SSL is not supported by this build" in error if installation.kind == "embedded" else error == ""
