"""Files of servers on volumes of the user's: checked before anything is begun, placed, and taken away again.

Whatever lies on a volume lies in one directory there that this run makes, marks as its own and removes; nothing else on
it is touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.undo import PREFIX
from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres import disk, wal

WAL_RESERVE = 256 * 2**20
"""Bytes that must stay free on a volume."""
_FIRST_SEGMENTS = 64 * 2**20
_WRITTEN = 2**30


def wal_bytes(servers: int, read_only: bool) -> int:
    """Disk that so many servers' WAL may take, bytes: the first segments, and what writing fills in a trial's time."""
    return servers * (_FIRST_SEGMENTS + (0 if read_only else _WRITTEN))


def check_wal_directory(node: Node, directory: str, account: str | None, needed: int) -> None:
    """Insist on a directory in which servers' WAL can lie; nothing is made.

    Raises:
        UsageError: it is not there, is no directory, or holds too little.
        CapabilityError: we cannot make a directory in it, or the servers' ``account`` cannot enter it.
    """
    if not node.exists(directory):
        raise UsageError(f"--wal-dir {directory} does not exist; make the directory, or name another one")
    if node.run(Command(["test", "-d", directory])).code != 0:
        raise UsageError(f"--wal-dir {directory} is not a directory; name the one below which the WAL is to lie")
    if node.run(Command(["test", "-w", directory, "-a", "-x", directory])).code != 0:
        raise CapabilityError(f"--wal-dir {directory} cannot be written to; make it writable, or name another directory")
    blocked = paths.unreachable(directory, account)
    if blocked is not None:
        raise CapabilityError(f"--wal-dir {directory}: servers run as '{account}', which cannot enter {blocked}; name another directory")
    free = disk.free_bytes(node, directory)
    if free < needed + WAL_RESERVE:
        raise UsageError(
            f"--wal-dir {directory} has {format_bytes(free)} free, but the servers' WAL may need {format_bytes(needed)} and "
            f"{format_bytes(WAL_RESERVE)} are to stay free; make room, or name another directory"
        )


def same_device(node: Node, one: str, other: str) -> bool:
    """Whether two directories lie on one file system; what does not exist yet is judged by the directory around it."""
    return _device(node, one) == _device(node, other)


def _device(node: Node, directory: str) -> str:
    while not node.exists(directory) and directory not in ("/", ""):
        directory = os.path.dirname(directory)
    return node.run(Command(["stat", "--format=%d", "--", directory])).out.strip()


def used_by(server: Server, deployment: Deployment) -> dict[str, Volume]:
    """Role → volume of what a server keeps apart from its work directory."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    return {role: volumes[name] for role, name in server.volumes.items()}


class Volumes:
    """This run's directories on the user's volumes: one per volume, made when the first server needs it."""

    def __init__(self, node: Node, journal: Journal, account: str | None) -> None:
        """``account`` owns the servers' files."""
        self._node, self._journal, self._account = node, journal, account
        self._roots: dict[str, str] = {}

    def place(self, volumes: Mapping[str, Volume], data_dir: str, name: str) -> tuple[str, ...]:
        """Move the parts of a stopped server's cluster to where its ``volumes`` (role → volume) are; returns what to ``remove``.

        ``name`` names the server's directories and must not have been used before.

        Raises:
            UsageError: a kind or role of volume that cannot be had.
            CapabilityError: the volume is not there any more.
            TrialError: it cannot be moved.
        """
        for role, volume in volumes.items():
            if role != "wal" or volume.kind != "directory" or volume.path is None:
                raise UsageError(
                    f"volume '{volume.name}' ({volume.kind}) cannot hold a server's {role}: only the WAL can lie in a directory elsewhere"
                )
        made: tuple[str, ...] = ()
        try:
            for volume in volumes.values():
                directory = f"{self._root(str(volume.path))}/{name}"
                self._node.make_dir(directory, mode=0o700, user=self._account)
                made = (*made, directory)
                wal.move(self._node, data_dir, directory)
        except BaseException:
            self.remove(made)
            raise
        return made

    def remove(self, directories: tuple[str, ...]) -> None:
        """Remove what ``place`` made for one server."""
        for directory in directories:
            self._node.remove_tree(directory)

    def _root(self, path: str) -> str:
        if path not in self._roots:
            if not self._node.exists(path):  # to make it would be to put the WAL where nobody wanted it
                raise CapabilityError(f"{path}, where servers' WAL is to lie, is not there any more")
            root = f"{path.rstrip('/')}/{PREFIX}wal-{self._journal.id[:8]}"
            self._journal.make_tree(root, mode=0o711)
            self._roots[path] = root
        return self._roots[path]
