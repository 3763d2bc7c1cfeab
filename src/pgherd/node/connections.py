"""Kept connections to servers, one per conninfo: what ``Node.sql`` and ``Node.disconnect`` do on every node that has libpq."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_CONNECT_SECONDS = 10


class Connections:
    """Opened at the first statement, in autocommit, and kept until they are closed."""

    def __init__(self) -> None:
        """Nothing is opened until it is used."""
        self._kept: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; a connection that was lost is made anew once. Raises psycopg.Error."""
        import psycopg

        kept = self._kept.get(conninfo)
        if kept is not None:
            try:
                return _rows(kept, statement, parameters)
            except psycopg.OperationalError:
                self.close(conninfo)
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        self._kept[conninfo] = connection
        return _rows(connection, statement, parameters)

    def interrupt(self, conninfo: str) -> None:
        """Break the kept connection, if there is one: whoever waits for an answer on it, in another thread, is told that it is lost."""
        kept = self._kept.get(conninfo)
        if kept is None:
            return
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(kept.fileno())) as wire:  # it may just be closing
            wire.shutdown(socket.SHUT_RDWR)

    def close(self, conninfo: str) -> None:
        """Close the connection of this conninfo, if there is one."""
        connection = self._kept.pop(conninfo, None)
        if connection is not None:
            connection.close()


def _rows(connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement.encode(), parameters or None)
    return cursor.fetchall() if cursor.description else []
