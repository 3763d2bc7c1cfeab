"""Registry of workloads by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import DataLoader, LoaderServer, Node, Say, silent
from pgherd.workloads import Workload
from pgherd.workloads.orders.workload import ORDERS
from pgherd.workloads.pgbench import PGBENCH, SELECT_ONLY, SIMPLE_UPDATE, TPCB_LIKE
from pgherd.workloads.random_block import RANDOM_BLOCK
from pgherd.workloads.realistic import REALISTIC
from pgherd.workloads.user_script import ScriptLoader, ScriptWorkload, loading_settings

if TYPE_CHECKING:
    from psycopg.sql import Composed

_BUILTIN: tuple[Workload, ...] = (SELECT_ONLY, TPCB_LIKE, SIMPLE_UPDATE, PGBENCH, ORDERS, RANDOM_BLOCK, REALISTIC)

NAMES = (*(workload.name for workload in _BUILTIN), "script")
"""Names of all workloads."""


def find(name: str, scripts: Sequence[Script] = ()) -> Workload:
    """Return the workload of a name. ``scripts`` are the transactions of 'script'.

    Raises:
        UsageError: The name is unknown.
    """
    if name == "script":
        return ScriptWorkload(tuple(scripts))
    for workload in _BUILTIN:
        if workload.name == name:
            return workload
    raise UsageError(f"no workload '{name}'; the workloads are {', '.join(NAMES)}")


def loaders(node: Node, databases: Sequence[Database], settings: Mapping[str, str]) -> list[DataLoader]:
    """Return the loaders of a server's databases and schemas, as input for a template. ``settings`` are those of the server.

    Raises:
        UsageError: A workload is unknown, or an --init-script file cannot be read.
    """
    needed = loading_settings(settings)
    result: list[DataLoader] = []
    for database in databases:
        filling = find(database.workload).filling(node, database.model_copy(update={"name": database.dbname}))
        filling = replace(filling, settings=needed) if isinstance(filling, ScriptLoader) else filling
        result.append(filling if database.schema_of is None else SchemaLoader(filling, database.name))
    return result


@dataclass(frozen=True)
class SchemaLoader:
    """Loader of one schema: the loader of its database, for which the schema is the search path meanwhile."""

    loader: DataLoader
    schema: str

    @property
    def database(self) -> str:
        return self.loader.database

    @property
    def identity(self) -> str:
        """Identity such as ``pgbench-10@db1``."""
        return f"{self.loader.identity}@{self.schema}"

    @property
    def size_estimate(self) -> int | None:
        """Expected size in bytes."""
        return self.loader.size_estimate

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings that the load requires."""
        return self.loader.settings

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Create and fill the schema. Raises as the loader of the database.

        The search path is a setting of the database, because every loader connects in another way.
        """
        from psycopg import sql

        names = {"database": sql.Identifier(self.database), "schema": sql.Identifier(self.schema)}
        self._execute(target, sql.SQL("CREATE SCHEMA {schema}").format(**names))
        self._execute(target, sql.SQL("ALTER DATABASE {database} SET search_path = {schema}").format(**names))
        self.loader.load(target, say)
        self._execute(target, sql.SQL("ALTER DATABASE {database} RESET search_path").format(**names))

    def _execute(self, target: LoaderServer, statement: Composed) -> None:
        import psycopg

        try:
            with psycopg.connect(
                host=target.socket_dir, port=target.port, user=target.user, dbname=self.database, autocommit=True
            ) as connection:
                connection.execute(statement)
        except psycopg.Error as error:
            raise TrialError(f"schema {self.schema} of database {self.database} cannot be made: {str(error).strip()}") from None
