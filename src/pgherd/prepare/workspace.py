"""Temporary directory of a preparation, with the account and the cache of the servers that it tries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.node.protocol import Node


@dataclass(frozen=True)
class Workspace:
    """Place where a preparation reads this host and tries servers.

    ``account`` is the user that servers run as (None: the current user). ``directory`` is temporary, and ``cache`` is permanent. With
    ``dry`` nothing is loaded.
    """

    node: Node
    account: str | None
    journal: Journal
    directory: Path
    cache: Path
    dry: bool


@contextlib.contextmanager
def open_workspace(node: Node, run_as: str | None, *, dry: bool) -> Iterator[Workspace]:
    """Yield a workspace for servers of the user ``run_as``, and remove its temporary files on exit. Raises UsageError for a wrong user."""
    account = server_account(run_as)
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        yield Workspace(node, account, journal, paths.work_tree(node, journal, "prepare", account), paths.cache_dir(), dry)
    finally:
        journal.close()
