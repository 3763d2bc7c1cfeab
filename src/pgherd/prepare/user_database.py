"""Load a database of the user, and try each script on a copy of it before any measurement."""

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
    """Create the database's template if it is missing, and try the scripts. Return the template's size in bytes.

    A dry run creates nothing and tries nothing. It returns None if the template is missing.

    Raises:
        UsageError: the init script or a script fails, or PostgreSQL rejects a setting.
    """
    for script in ground.scripts:
        user_scripts.require_readable(ground.node, script)
    node, contents = ground.node, fillings(ground.node, [database])
    template = golden.find(node, ground.usable, contents, str(ground.cache), ground.checksums)
    if template is None and ground.dry:
        return None
    sockets = str(Path(paths.socket_root(node, ground.journal)) / "s")
    node.make_dir(sockets, mode=0o700, user=ground.account)
    if template is None:
        template = golden.ensure(
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
            node, template, ground.usable, account=ground.account, directory=directory, socket_dir=sockets, settings=settings
        ) as server:
            user_scripts.dry_run(
                server,
                database.name,
                ground.scripts,
                scale=database.scale,
                protocol=ground.asked.protocol,
                read_only=ground.asked.read_only,
            )
            mean_s = user_scripts.pace(
                server,
                database.name,
                ground.scripts,
                scale=database.scale,
                protocol=ground.asked.protocol,
                read_only=ground.asked.read_only,
            )
            ground.pace.extend(() if mean_s is None else (mean_s,))
    return sum(template.databases.values())


def _settings(ground: Basis) -> dict[str, str]:
    """Return the settings of --set, because a script may need them: a search_path, a library, a custom variable.

    Memory sizes are omitted, because they apply only to the measured servers. Raises UsageError if PostgreSQL rejects a setting.
    """
    requested = configuration.parse_set(ground.asked.set)
    settings = {name: value for name, value in requested.items() if name not in (*PRIVATE, *_SIZES)}
    if settings:
        validation.validate(ground.node, ground.usable, settings, ground.account, str(ground.work))
    return settings
