"""After a trial: does a database still obey its workload's own rules?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.workloads.registry import find


class Asked(Protocol):
    """A server that can be asked (pgherd.postgres.instance.Instance is one)."""

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    def sql(self, statement: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        ...

    def disconnect(self, databases: Sequence[str] = ("postgres",)) -> None:
        """Close the kept connections."""
        ...


def insist_consistent(server: Asked, database: Database) -> None:
    """Check a database's consistency conditions.

    Raises:
        TrialError: one does not hold, or they cannot be asked for.
    """
    import psycopg

    where = f"database {database.name} of server {server.name}"
    try:
        broken = find(database.workload).violations(lambda statement: server.sql(statement, database=database.name))
    except (psycopg.Error, ValueError) as error:
        raise TrialError(f"the consistency of {where} cannot be checked: {str(error).strip()}") from None
    finally:
        server.disconnect([database.name])
    if broken:
        raise TrialError(f"{where} contradicts itself after the trial, so its numbers do not count: {'; '.join(broken)}")
