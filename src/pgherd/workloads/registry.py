"""Registry of workloads by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import DataLoader, Node
from pgherd.workloads import Workload
from pgherd.workloads.orders.workload import ORDERS
from pgherd.workloads.pgbench import PGBENCH, SELECT_ONLY, SIMPLE_UPDATE, TPCB_LIKE
from pgherd.workloads.random_block import RANDOM_BLOCK
from pgherd.workloads.realistic import REALISTIC
from pgherd.workloads.user_script import ScriptLoader, ScriptWorkload, loading_settings

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
    """Return the loaders of a server's databases, as input for a template. ``settings`` are those of the server.

    Raises:
        UsageError: A workload is unknown, or an --init-script file cannot be read.
    """
    fillings = [find(database.workload).filling(node, database) for database in databases]
    needed = loading_settings(settings)
    return [replace(filling, settings=needed) if isinstance(filling, ScriptLoader) else filling for filling in fillings]
