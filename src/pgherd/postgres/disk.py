"""Disk space and access, checked before files are written."""

from __future__ import annotations

import os

from pgherd.model.errors import CapabilityError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

_SPARE = 256 * 2**20
"""Bytes that must stay free, so that logs and the rest of the machine go on."""
_SLOWEST = 10 * 2**20
"""Bytes per second of the slowest disk that is waited for."""


def patience(size: int) -> float:
    """Seconds after which a disk is taken to hang on which so many bytes are to be written."""
    return 600.0 + size / _SLOWEST


def free_bytes(node: Node, directory: str) -> int:
    """Bytes that an unprivileged account can still write below ``directory`` (which may not exist yet)."""
    while not node.exists(directory) and directory not in ("/", ""):
        directory = os.path.dirname(directory)
    done = node.run(Command(["df", "--output=avail", "-B1", "--", directory]))
    if done.code != 0:
        raise OSError(f"the free space of {directory} cannot be read: {done.err.strip()}")
    return int(done.out.split()[-1])


def used_bytes(node: Node, directory: str) -> int:
    """Bytes that a directory with all its files takes on disk."""
    done = node.run(Command(["du", "-s", "-B1", "--", directory]), timeout=300)
    if done.code != 0:
        raise OSError(f"the size of {directory} cannot be read: {done.err.strip()}")
    return int(done.out.split()[0])


def check_space(node: Node, directory: str, needed: int, purpose: str) -> None:
    """Insist on room for ``needed`` bytes and a reserve.

    Raises:
        CapabilityError: there is less.
    """
    free = free_bytes(node, directory)
    if free < needed + _SPARE:
        raise CapabilityError(
            f"{purpose} needs {format_bytes(needed + _SPARE)} in {directory}, but {format_bytes(free)} are free; "
            "make room ('pgherd clean --golden' removes the golden copies), use another directory, or a smaller --scale"
        )


def insist_enterable(node: Node, directory: str, account: str | None) -> None:
    """Insist that the servers' account can reach a directory.

    Raises:
        CapabilityError: it cannot.
    """
    if account is not None and node.run(Command(["test", "-x", directory], user=account)).code != 0:
        raise CapabilityError(
            f"account {account}, under which servers run, cannot enter {directory}; choose a directory outside of private home directories"
        )
