"""All workloads by name."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import Filling, Node
from pgherd.workloads.orders.workload import ORDERS
from pgherd.workloads.pgbench import PGBENCH, SELECT_ONLY, SIMPLE_UPDATE, TPCB_LIKE
from pgherd.workloads.random_block import RANDOM_BLOCK
from pgherd.workloads.realistic import REALISTIC
from pgherd.workloads.script import ScriptWorkload
from pgherd.workloads.workload import Workload

_BUILTIN: tuple[Workload, ...] = (SELECT_ONLY, TPCB_LIKE, SIMPLE_UPDATE, PGBENCH, ORDERS, RANDOM_BLOCK, REALISTIC)

NAMES = (*(workload.name for workload in _BUILTIN), "script")
"""What a workload may be called."""


def find(name: str, scripts: Sequence[Script] = ()) -> Workload:
    """The workload of that name; ``scripts`` are the transactions of 'script'.

    Raises:
        UsageError: there is none.
    """
    if name == "script":
        return ScriptWorkload(tuple(scripts))
    for workload in _BUILTIN:
        if workload.name == name:
            return workload
    raise UsageError(f"there is no workload '{name}'; there are {', '.join(NAMES)}")


def fillings(node: Node, databases: Sequence[Database]) -> list[Filling]:
    """What fills each database of a server, in the form that golden copies are made of.

    Raises:
        UsageError: an unknown workload, or an --init file that cannot be read.
    """
    return [find(database.workload).filling(node, database) for database in databases]
