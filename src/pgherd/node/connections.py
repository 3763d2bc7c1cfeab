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
        self._interrupted: set[str] = set()

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; a connection that was lost is made anew once, unless it was interrupted. Raises
        psycopg.Error."""
        import psycopg

        self._interrupted.discard(conninfo)
        kept = self._kept.get(conninfo)
        if kept is not None:
            try:
                return _rows(kept, statement, parameters)
            except psycopg.OperationalError:
                self.close(conninfo)
                if conninfo in self._interrupted:
                    raise
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        self._kept[conninfo] = connection
        if conninfo in self._interrupted:  # while it was made: nobody would end the wait any more
            self.close(conninfo)
            raise psycopg.OperationalError("the connection was interrupted before the statement was sent")
        return _rows(connection, statement, parameters)

    def interrupt(self, conninfo: str) -> None:
        """Break the kept connection, if there is one: whoever waits for an answer on it, in another thread, is told that it is lost, and
        the statement is not run again."""
        self._interrupted.add(conninfo)
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
