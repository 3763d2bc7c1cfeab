"""What a workload is: what its databases hold, and which transactions run on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgherd.model.deployment import Database
from pgherd.model.load import Script
from pgherd.node.protocol import Node


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

    def load(self, target: LoadTarget) -> None:
        """Fill the database, which exists and is empty; raises UsageError or TrialError."""
        ...


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


def client_options(target: LoadTarget) -> list[str]:
    """The options by which psql and pgbench find a server."""
    return ["--host", target.socket_dir, "--port", str(target.port), "--username", target.user]
