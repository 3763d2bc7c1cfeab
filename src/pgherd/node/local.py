"""This host as a node."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.node import process
from pgherd.node.connections import Connections
from pgherd.node.protocol import Command, Completed, Source

if TYPE_CHECKING:
    from pgherd.node.sampling import LocalSampling, Probe


_STILL_WRITTEN = 5.0
"""Seconds for which a process that is just ending may go on making files in a directory that is to go."""


class LocalNode:
    """Implements ``pgherd.node.protocol.Node`` on the machine we run on."""

    name = "local"

    def __init__(self) -> None:
        """Nothing is opened until it is used."""
        self._connections = Connections()
        self._probes: dict[str, Probe] = {}

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def read(self, path: str) -> bytes:
        """A whole file."""
        return Path(path).read_bytes()

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a directory."""
        return sorted(os.listdir(path))

    def write(self, path: str, data: bytes) -> None:
        """Write a file or a kernel knob in one write call."""
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(number, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes could be written to {path}; is the disk full?")
        finally:
            os.close(number)

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        """Make a directory and its parents; ``mode`` and owner apply to the last one."""
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; nothing happens if it is gone. What is still being written gets a moment."""
        deadline = time.monotonic() + _STILL_WRITTEN
        while os.path.lexists(path):
            try:
                shutil.rmtree(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def spawn(self, command: Command) -> process.LocalProcess:
        """Start a process and return at once."""
        return process.LocalProcess(command)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        """Run a command to its end and capture its output."""
        return process.run(command, timeout)

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a kept connection; a connection that was lost is made anew once."""
        return self._connections.sql(conninfo, statement, parameters)

    def disconnect(self, conninfo: str) -> None:
        """Close what is kept for this server: the connection for ``sql`` and the sampling one."""
        self._connections.close(conninfo)
        probe = self._probes.pop(conninfo, None)
        if probe is not None:
            probe.close()

    def sample(self, sources: Sequence[Source], spool: str, period: float = 1.0) -> LocalSampling:
        """Start the sampling loop."""
        from pgherd.node.sampling import LocalSampling

        return LocalSampling(sources, spool, period, self._probes)
