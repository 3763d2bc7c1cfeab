"""The local host as a node, with its connections to servers."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.node import process
from pgherd.node.files import MAX_BYTES, MAX_END_BYTES, Directory, FileEnd, UnsafeFileError, read_end, read_file
from pgherd.node.protocol import Command, Completed, SampleSource

if TYPE_CHECKING:
    import psycopg

    from pgherd.node.sampling import LocalSampling, SampledConnection


# ---- node


_REMOVE_TIMEOUT_S = 5.0
"""An ending process may still create files in a directory that is being removed."""


class LocalNode:
    """Implements ``pgherd.node.protocol.Node`` on the machine of this process."""

    name = "local"

    def __init__(self, check_cancelled: Callable[[], None] | None = None) -> None:
        """Args:
        check_cancelled: raises an error when work is called off. That ends commands that can be called off.
        """
        self._check_cancelled = check_cancelled
        self._connections = Connections()
        self._probes: dict[str, SampledConnection] = {}

    def now(self) -> float:
        return time.time()

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def read_untrusted(self, path: str, limit: int = MAX_BYTES) -> bytes:
        return read_file(path, limit=limit)

    def read_end(self, path: str, limit: int = MAX_END_BYTES) -> FileEnd:
        return read_end(path, limit)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def write(self, path: str, data: bytes, *, user: str | None = None) -> None:
        if user is not None:
            with Directory.open(os.path.dirname(path)) as directory:
                directory.write(os.path.basename(path), data, owner=_owner(user), sync=False)
            return
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            written = os.write(number, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes could be written to {path}; is the disk full?")
        finally:
            os.close(number)

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        if user is None:
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
            return
        owner, (parent, name) = _owner(user), os.path.split(path.rstrip("/"))
        os.makedirs(parent, exist_ok=True)
        with Directory.open(os.path.realpath(parent)) as above:
            if above.owner() not in (0, os.geteuid()):
                raise UnsafeFileError(f"{parent} belongs to uid {above.owner()}, who could exchange {name} for a link; nothing is created")
            with above.directory(name, create=True) as directory:
                if directory.owner() not in (os.geteuid(), owner[0]):
                    raise UnsafeFileError(f"{path} belongs to uid {directory.owner()}; it is not given to {user}")
                os.fchmod(directory.number, mode)
                os.fchown(directory.number, *owner)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Also retries for a moment if other processes still write to the directory."""
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        while os.path.lexists(path):
            try:
                shutil.rmtree(path)
            except NotADirectoryError:
                os.unlink(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def spawn(self, command: Command) -> process.LocalProcess:
        return process.LocalProcess(command)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        return process.run(command, timeout, self._check_cancelled if command.can_be_called_off else None)

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """A lost connection is opened again once."""
        return self._connections.sql(conninfo, statement, parameters)

    def disconnect(self, conninfo: str) -> None:
        """Close both the connection for ``sql`` and the one for sampling."""
        self._connections.close(conninfo)
        probe = self._probes.pop(conninfo, None)
        if probe is not None:
            probe.close()

    def sample(self, sources: Sequence[SampleSource], spool: str, period: float = 1.0) -> LocalSampling:
        from pgherd.node.sampling import LocalSampling

        return LocalSampling(sources, spool, period, self._probes)


def _owner(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


# ---- connections to servers


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
                if not cached.closed:  # the server ended the statement only, for example by its time limit
                    raise
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
