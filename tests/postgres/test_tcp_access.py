from __future__ import annotations

import base64
import hashlib
import hmac
import os
import stat
from pathlib import Path

import pytest

from pgherd.postgres.tcp_access import TcpAccess, TcpListener, generate, set_password, verifier, write_password_file

# RFC 7677, section 3: user 'user', password 'pencil'.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
MESSAGE = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}".encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SERVER_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_verifier_accepts_the_proof_of_the_rfc_s_example():
    kind, parameters, keys = verifier("pencil", SALT).split("$")
    stored, server = (base64.b64decode(key) for key in keys.split(":"))
    assert kind == "SCRAM-SHA-256" and parameters == "4096:W22ZaJ0SNY7soEsUEjb6gQ=="
    assert hmac.digest(server, MESSAGE, "sha256") == SERVER_SIGNATURE
    client = bytes(a ^ b for a, b in zip(PROOF, hmac.digest(stored, MESSAGE, "sha256"), strict=True))
    assert hashlib.sha256(client).digest() == stored


def test_salt_and_password_differ_every_time():
    assert verifier("x") != verifier("x") and generate() != generate()
    assert len(generate()) == 32


def test_the_statement_holds_the_verifier_and_not_the_password():
    statements = set_password('odd"role', "correct horse")
    first, second = statements.splitlines()
    assert first == "SET default_transaction_read_only = off;", "its settings may differ"
    assert second.startswith('ALTER ROLE "odd""role" PASSWORD \'SCRAM-SHA-256$4096:') and "correct" not in statements


def test_the_password_is_not_shown():
    assert "secret" not in repr(TcpAccess("127.0.0.1", 1, "/x", "secret"))


def test_the_file_is_the_owner_s_alone_and_escapes_what_libpq_reads_otherwise(tmp_path):
    path = tmp_path / "pgpass"
    entries = [(TcpAccess("127.0.0.1", 5433, str(path), "a:b\\c"), "postgres"), (TcpAccess("::1", 5434, str(path), "d"), "postgres")]
    write_password_file(str(path), entries)
    write_password_file(str(path), entries)
    assert path.read_text() == "127.0.0.1:5433:*:postgres:a\\:b\\\\c\n\\:\\:1:5434:*:postgres:d\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_the_account_that_drivers_run_as_can_read_it(tmp_path):
    path = tmp_path / "pgpass"
    write_password_file(str(path), [], "nobody")
    assert path.owner() == "nobody"


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(OSError):
        write_password_file(str(tmp_path / "missing/pgpass"), [])
    with pytest.raises(KeyError):
        write_password_file(str(tmp_path / "pgpass"), [], "no-such-account")
    assert not list(Path(tmp_path).iterdir())


def test_an_opening_does_not_show_its_password():
    opening = TcpListener("10.0.0.1", "/run/own/tls.pem", "secret")
    assert "secret" not in repr(opening) and "secret" not in str(opening.settings())
