"""A database of the user's own is loaded, and each script tried on a copy of it, before anything is measured."""

from __future__ import annotations

from pathlib import Path

from pgherd.host import paths
from pgherd.model.deployment import Database
from pgherd.postgres import clones, golden
from pgherd.runner.prepare.basis import Basis
from pgherd.workloads import script as user_scripts
from pgherd.workloads.registry import fillings


def loaded(ground: Basis, database: Database) -> int | None:
    """Make its golden copy if there is none, and try the scripts; its size in bytes, or None on a dry run where there is none.

    Raises:
        UsageError: the SQL that fills it, or a script, fails.
    """
    node, contents = ground.node, fillings(ground.node, [database])
    copy = golden.find(node, ground.usable, contents, str(ground.cache), ground.checksums)
    if copy is None and ground.dry:
        return None
    sockets = str(Path(paths.socket_root(node, ground.journal)) / "s")
    node.make_dir(sockets, mode=0o700, user=ground.account)
    if copy is None:
        copy = golden.ensure(
            node,
            ground.usable,
            contents,
            account=ground.account,
            cache_dir=str(ground.cache),
            socket_dir=sockets,
            checksums=ground.checksums,
        )
    if not ground.dry:
        directory = str(ground.work)
        with clones.rehearsal(node, copy, ground.usable, account=ground.account, directory=directory, socket_dir=sockets) as server:
            user_scripts.dry_run(
                server,
                database.name,
                ground.scripts,
                scale=database.scale,
                protocol=ground.asked.protocol,
                read_only=ground.asked.read_only,
            )
    return sum(copy.databases.values())
