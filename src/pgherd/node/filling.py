"""What fills a database, and what it needs to know of the server: workloads make it, golden copies are made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pgherd.node.protocol import Node

Say = Callable[[str], None]
"""Gets a line whenever something begins, or has been done, that takes a while."""


def silent(line: str) -> None:
    """Says nothing."""


class LoadTarget(Protocol):
    """A running server as far as a loader needs to know it (pgherd.postgres.instance.Instance is one)."""

    @property
    def node(self) -> Node:
        """Where it runs."""
        ...

    @property
    def bin(self) -> str:
        """Directory of psql and pgbench."""
        ...

    @property
    def socket_dir(self) -> str:
        """Directory of its socket."""
        ...

    @property
    def port(self) -> int:
        """Port, which is part of the socket's name."""
        ...

    @property
    def user(self) -> str:
        """Database user."""
        ...

    @property
    def account(self) -> str | None:
        """Account under which client programs run."""
        ...


class Filling(Protocol):
    """What fills one database; equal ``identity`` means equal contents. Golden copies are made of these."""

    @property
    def database(self) -> str:
        """Name of the database."""
        ...

    @property
    def identity(self) -> str:
        """Names the contents: workload, scale, and the hash of whatever else decides them."""
        ...

    @property
    def size_estimate(self) -> int | None:
        """Expected size in bytes, or None if only loading will tell."""
        ...

    def load(self, target: LoadTarget, say: Say = silent) -> None:
        """Fill the database, which exists and is empty; raises UsageError or TrialError."""
        ...
