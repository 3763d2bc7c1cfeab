"""A database of the user's own is loaded, and each script tried on a copy of it, before anything is measured."""

from __future__ import annotations

from pathlib import Path

from pgherd.host import paths
from pgherd.model.deployment import Database
from pgherd.postgres import clones, configuration, golden, validation
from pgherd.postgres.settings import PRIVATE
from pgherd.prepare.context import Basis
from pgherd.workloads import script as user_scripts
from pgherd.workloads.registry import fillings

_SIZES = ("shared_buffers", "huge_pages", "huge_page_size")


def loaded(ground: Basis, database: Database) -> int | None:
    """Make its golden copy if there is none, and try the scripts; its size in bytes, or None on a dry run where there is none.

    Raises:
        UsageError: the SQL that fills it, or a script, fails; PostgreSQL refuses a setting.
    """
    for script in ground.scripts:
        user_scripts.require_readable(ground.node, script)
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
        directory, settings = str(ground.work), _settings(ground)
        with clones.rehearsal(
            node, copy, ground.usable, account=ground.account, directory=directory, socket_dir=sockets, settings=settings
        ) as server:
            user_scripts.dry_run(
                server,
                database.name,
                ground.scripts,
                scale=database.scale,
                protocol=ground.asked.protocol,
                read_only=ground.asked.read_only,
            )
            took = user_scripts.pace(
                server,
                database.name,
                ground.scripts,
                scale=database.scale,
                protocol=ground.asked.protocol,
                read_only=ground.asked.read_only,
            )
            ground.pace.extend(() if took is None else (took,))
    return sum(copy.databases.values())


def _settings(ground: Basis) -> dict[str, str]:
    """What the user sets by name (--set), for a script may need it: a search_path, a library, a variable of its own. Sizes of memory
    are the measured servers' matter. Raises UsageError for what PostgreSQL refuses."""
    asked = configuration.parse_set(ground.asked.set)
    settings = {name: value for name, value in asked.items() if name not in (*PRIVATE, *_SIZES)}
    if settings:
        validation.validate(ground.node, ground.usable, settings, ground.account, str(ground.work))
    return settings
