"""A server that listens on TCP too: with the password from its file one gets in, without it nobody does."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.tcp_access import TcpAccess, generate, write_password_file

_spec = importlib.util.spec_from_file_location("postgres_conftest", Path(__file__).parents[1] / "postgres/conftest.py")
assert _spec and _spec.loader
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
node, account, installation = _shared.node, _shared.account, _shared.installation

SMALL = {"shared_buffers": "8MB", "max_connections": "20", "fsync": "off", "log_connections": "on"}


@pytest.fixture
def server(node: LocalNode, installation: Installation, account: str | None, place: Path) -> Iterator[Instance]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    access = TcpAccess("127.0.0.1", port, str(place / "pgpass"), generate(), listen="127.0.0.1")
    initdb(node, installation, str(place / "data"), account=account)
    instance = Instance(
        node, installation, str(place / "data"), str(place / "s"), account=account, name="db01/pg", port=port, access=access
    )
    write_password_file(access.password_file, [(access, instance.user)], account)
    instance.write_settings(SMALL)
    yield instance
    instance.stop("immediate", 5)


def test_the_password_opens_tcp_and_nothing_else_does(server: Instance, node: LocalNode, place: Path, account: str | None) -> None:
    assert server.access is not None
    for _ in range(2):  # after a restart too
        server.start()
        server.wait_ready()
        assert server.sql("SELECT inet_server_port(), current_user") == [(server.port, "postgres")]
        server.stop()
    server.start()
    server.wait_ready()
    wrong = server.conninfo().replace(str(place / "pgpass"), "/nonexistent")
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(wrong)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong, password="guessed")
    with psycopg.connect(host=server.socket_dir, port=server.port, user="postgres", dbname="postgres") as inside:
        assert inside.execute("SELECT inet_server_addr()").fetchone() == (None,), "the socket is as private as ever, and open to root"
        (stored,) = inside.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'").fetchone() or ("",)
        assert stored.startswith("SCRAM-SHA-256$")
    pgbench = [
        server.installation.tool("pgbench"),
        "-i",
        "-s",
        "1",
        "-q",
        "-h",
        "127.0.0.1",
        "-p",
        str(server.port),
        "-U",
        "postgres",
        "postgres",
    ]
    finished = node.run(Command(pgbench, env={"PGPASSFILE": server.access.password_file}, user=account))
    assert finished.code == 0, finished.err
    assert node.run(Command(pgbench, user=account)).code != 0


def test_the_password_is_in_its_file_only(server: Instance, place: Path) -> None:
    assert server.access is not None
    server.start()
    server.wait_ready()
    secret = server.access.password.encode()
    assert secret not in server.conninfo().encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            assert secret not in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
    server.stop()
    holding = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink() and secret in path.read_bytes()]
    assert holding == [place / "pgpass"]
    assert (place / "pgpass").stat().st_mode & 0o077 == 0
    assert os.stat(f"{server.data_dir}.password.sql").st_size == 0
