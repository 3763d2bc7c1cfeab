"""Cached connections to servers, one per conninfo (``Node.sql``)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_CONNECT_TIMEOUT_S = 10


class Connections:
    """Connections in autocommit, from the first statement until ``close``."""

    def __init__(self) -> None:
        self._open: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}
        self._interrupted: set[str] = set()

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows.

        A lost connection is opened again once, unless it was interrupted. Raises psycopg.Error.
        """
        import psycopg

        self._interrupted.discard(conninfo)
        cached = self._open.get(conninfo)
        if cached is not None:
            try:
                return _rows(cached, statement, parameters)
            except psycopg.OperationalError:
                self.close(conninfo)
                if conninfo in self._interrupted:
                    raise
        # Prepared statements would stay in the server's session if a pooler shares it.
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S, prepare_threshold=None)
        self._open[conninfo] = connection
        if conninfo in self._interrupted:  # during the connect: no further interrupt would end the wait
            self.close(conninfo)
            raise psycopg.OperationalError("the connection was interrupted before the statement was sent")
        return _rows(connection, statement, parameters)

    def interrupt(self, conninfo: str) -> None:
        """Break the cached connection, if there is one.

        Another thread that waits for its answer gets an error, and its statement is not repeated.
        """
        self._interrupted.add(conninfo)
        cached = self._open.get(conninfo)
        if cached is None:
            return
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(cached.fileno())) as wire:  # it may be closing
            wire.shutdown(socket.SHUT_RDWR)

    def close(self, conninfo: str) -> None:
        """Close the connection with this conninfo, if there is one."""
        connection = self._open.pop(conninfo, None)
        if connection is not None:
            connection.close()


def _rows(connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement.encode(), parameters or None)
    return cursor.fetchall() if cursor.description else []
