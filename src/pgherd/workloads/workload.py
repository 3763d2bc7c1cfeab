"""What a workload is: what its databases hold, and which transactions run on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pgherd.model.deployment import Database
from pgherd.model.load import Script
from pgherd.node.protocol import Filling, LoadTarget, Node

Query = Callable[[str], Sequence[tuple[Any, ...]]]
"""Runs a statement in a database and returns its rows."""


class Workload(Protocol):
    """A named workload. ``read_only``: its transactions write nothing, as far as is known."""

    @property
    def name(self) -> str:
        """As the user writes it."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether no transaction writes."""
        ...

    def scripts(self) -> Sequence[Script]:
        """Its transactions with their weights."""
        ...

    def filling(self, node: Node, database: Database) -> Filling:
        """What fills this database; raises UsageError for a file that cannot be read."""
        ...

    def size_estimate(self, scale: int) -> int | None:
        """Expected size of a database in bytes, or None if only loading will tell."""
        ...

    def violations(self, query: Query) -> Sequence[str]:
        """What in a database contradicts the workload's own rules, in sentences; empty: nothing, or it has no rules."""
        ...


def client_options(target: LoadTarget) -> list[str]:
    """The options by which psql and pgbench find a server."""
    return ["--host", target.socket_dir, "--port", str(target.port), "--username", target.user]
