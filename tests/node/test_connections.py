from __future__ import annotations

import socket
import threading

import psycopg
import pytest

from pgherd.node.connections import Connections


class Cursor:
    description = ("a column",)

    def fetchall(self):
        return [(1,)]


class Connection:
    """A connection that is lost after a number of statements."""

    def __init__(self, lives: int) -> None:
        self.lives, self.closed = lives, False

    def execute(self, statement, parameters):
        if self.lives == 0:
            raise psycopg.OperationalError("the connection was lost")
        self.lives -= 1
        if statement == b"wrong":
            raise psycopg.errors.SyntaxError("no such statement")
        return Cursor()

    def close(self):
        self.closed = True


@pytest.fixture
def made(monkeypatch):
    """The opened connections, by conninfo; each is lost after two statements."""
    found: list[tuple[str, Connection]] = []

    def connect(conninfo, **options):
        assert options["autocommit"]
        found.append((conninfo, Connection(2)))
        return found[-1][1]

    monkeypatch.setattr(psycopg, "connect", connect)
    return found


def test_a_connection_is_kept_and_made_anew_once_it_is_lost(made):
    connections = Connections()
    for _ in range(5):
        assert connections.sql("host=a", "select 1") == [(1,)]
    assert [conninfo for conninfo, _ in made] == ["host=a"] * 3
    assert [connection.closed for _, connection in made] == [True, True, False]


def test_a_wrong_statement_is_told_and_loses_no_connection(made):
    connections = Connections()
    with pytest.raises(psycopg.errors.SyntaxError):
        connections.sql("host=a", "wrong")
    connections.sql("host=a", "select 1")
    assert len(made) == 1


def test_each_server_has_its_own_and_they_are_closed_by_name(made):
    connections = Connections()
    connections.sql("host=a", "select 1")
    connections.sql("host=b", "select 1")
    connections.close("host=a")
    connections.close("host=a")
    connections.close("host=never")
    assert [(conninfo, connection.closed) for conninfo, connection in made] == [("host=a", True), ("host=b", False)]


def test_a_wait_on_a_connection_can_be_broken_from_another_thread(made, monkeypatch):
    """The connection's other end is a process that never answers."""
    ours, theirs = socket.socketpair()
    connections = Connections()
    connections.interrupt("host=a")
    connections.sql("host=a", "select 1")
    made[0][1].fileno = ours.fileno
    threading.Timer(0.05, connections.interrupt, ["host=a"]).start()
    assert ours.recv(1) == b"", "the wait has ended"
    ours.close()
    theirs.close()
    connections.interrupt("host=a")


class Frozen(Connection):
    """A connection whose server answers once, and then never: a waiting caller is interrupted."""

    def __init__(self, give_up) -> None:
        super().__init__(1)
        self.give_up = give_up

    def execute(self, statement, parameters):
        if self.lives == 0:
            self.give_up()
        return super().execute(statement, parameters)

    def fileno(self):
        raise ValueError("closed")


def test_what_was_interrupted_is_not_run_again(made, monkeypatch):
    connections = Connections()
    frozen = Frozen(lambda: connections.interrupt("host=a"))
    connections._open["host=a"] = frozen
    connections.sql("host=a", "select 1")
    with pytest.raises(psycopg.OperationalError):
        connections.sql("host=a", "select 1")
    assert made == [] and frozen.closed
    assert connections.sql("host=a", "select 1") == [(1,)], "the next statement gets a new connection"


def test_what_is_interrupted_while_it_connects_is_not_sent(monkeypatch):
    connections, connection = Connections(), Connection(2)

    def connect(conninfo, **options):
        connections.interrupt(conninfo)
        return connection

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(psycopg.OperationalError, match="interrupted"):
        connections.sql("host=a", "select 1")
    assert connection.closed and connection.lives == 2
