"""Disk space, access to directories, and a WAL directory apart from the data."""

from __future__ import annotations

import os

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

_RESERVE_BYTES = 256 * 2**20
"""Disk space that must stay free for logs and the rest of the host."""
_SLOWEST_DISK = 10 * 2**20
"""Write rate (bytes per second) of the slowest disk that timeouts allow for."""


def patience(size: int) -> float:
    """Return the timeout (s) for writing ``size`` bytes."""
    return 600.0 + size / _SLOWEST_DISK


def free_bytes(node: Node, directory: str) -> int:
    """Return the bytes that an unprivileged user can write below ``directory``, which need not exist yet."""
    while not node.exists(directory) and directory not in ("/", ""):
        directory = os.path.dirname(directory)
    df = node.run(Command(["df", "--output=avail", "-B1", "--", directory]))
    if df.code != 0:
        raise OSError(f"the free space of {directory} cannot be read: {df.err.strip()}")
    return int(df.out.split()[-1])


def used_bytes(node: Node, directory: str) -> int:
    """Return the disk usage of a directory in bytes."""
    du = node.run(Command(["du", "-s", "-B1", "--", directory]), timeout=300)
    if du.code != 0:
        raise OSError(f"the size of {directory} cannot be read: {du.err.strip()}")
    return int(du.out.split()[0])


def check_space(node: Node, directory: str, needed: int, purpose: str) -> None:
    """Require ``needed`` free bytes and a reserve.

    Raises:
        CapabilityError: Less space is free.
    """
    free = free_bytes(node, directory)
    if free < needed + _RESERVE_BYTES:
        raise CapabilityError(
            f"{purpose} needs {format_bytes(needed + _RESERVE_BYTES)} in {directory}, but {format_bytes(free)} are free; "
            "make room ('pgherd clean --templates' removes the templates), use another directory, or reduce --scale"
        )


def require_enterable(node: Node, directory: str, account: str | None) -> None:
    """Require that the user of the servers can enter a directory.

    Raises:
        CapabilityError: It cannot.
    """
    if account is not None and node.run(Command(["test", "-x", directory], user=account)).code != 0:
        raise CapabilityError(
            f"servers run as '{account}', which cannot enter {directory}; choose a directory outside of private home directories"
        )


def move_wal(node: Node, data_dir: str, directory: str) -> None:
    """Move the WAL of a stopped server to ``directory``/pg_wal and leave a symbolic link, as initdb --waldir does.

    Owners and modes are preserved. The user of the server must be able to enter ``directory``. A template contains few
    segments, so the move copies little data.

    Raises:
        TrialError: The move fails, for example because the disk is full. The data directory is then unusable.
    """
    source, target = os.path.join(data_dir, "pg_wal"), os.path.join(directory, "pg_wal")
    for argv in (["mv", "-T", "--", source, target], ["ln", "-s", "--", target, source]):
        completed = node.run(Command(argv), timeout=600)
        if completed.code != 0:
            raise TrialError(f"the WAL of {data_dir} cannot be moved to {directory}: {completed.err.strip()}")
