"""Workloads: the contents of their databases, and the transactions that load them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pgherd.model.deployment import Database
from pgherd.model.load import Script
from pgherd.node.protocol import DataLoader, LoaderServer, Node

Query = Callable[[str], Sequence[tuple[Any, ...]]]
"""Callback that runs a statement in a database and returns its rows."""


class Workload(Protocol):
    """Workload with a name. ``read_only`` is False if its transactions write, or may write."""

    @property
    def name(self) -> str:
        """Value of --workload."""
        ...

    @property
    def read_only(self) -> bool:
        """True if no transaction writes."""
        ...

    def scripts(self) -> Sequence[Script]:
        """Return the transactions with their weights."""
        ...

    def filling(self, node: Node, database: Database) -> DataLoader:
        """Return the loader of a database; raises UsageError if a file cannot be read."""
        ...

    def size_estimate(self, scale: int) -> int | None:
        """Return the expected size of a database in bytes, or None if it is not known before loading."""
        ...

    def violations(self, query: Query) -> Sequence[str]:
        """Return the violated consistency rules as sentences. A workload without rules returns none."""
        ...


def client_options(target: LoaderServer) -> list[str]:
    """Return the connection options of psql and pgbench."""
    return ["--host", target.socket_dir, "--port", str(target.port), "--username", target.user]
