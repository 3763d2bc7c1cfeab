"""Completion of a database-size request, and the probe that measures the sizes of newly loaded databases.

The completion selects the PostgreSQL installation and checks the free disk space.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.server_user import require_initdb, server_account
from pgherd.model.analysis import Thresholds
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.postgres import disk_space, installations, templates
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.studies.database_size.options import DatabaseSizeOptions, DatabaseSizeRequest
from pgherd.workloads.pgbench import PgbenchLoader
from pgherd.workloads.registry import loaders

MEMORY = 512 * 2**20
"""Memory in bytes of a server during the load: 128 MB of shared buffers, 256 MB for an index build, and 128 MB for the rest."""


def prepare(node: Node, request: DatabaseSizeRequest, dry: bool) -> PreparedStudy:
    """Complete a database-size request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    facts = gather(node)
    account = server_account(request.run_as)
    require_initdb(account)
    installation = installations.choose(node, request.pg_bin, request.pg_version)
    cache = paths.cache_dir()
    # A template that did not exist before is removed after its measurement. Therefore the largest one determines the space.
    need = templates.needed_bytes([PgbenchLoader("bench", max(request.scales))])
    disk_space.check_space(node, str(cache / templates.DIRECTORY), need, f"a database of scale {max(request.scales)}")
    memory = min(MEMORY, facts.memory)
    return PreparedStudy(
        study="database-size",
        options=DatabaseSizeOptions(
            pg_bin=installation.bin,
            pg_version=installation.version,
            scales=request.scales,
            predict=request.predict,
            time_budget=request.time_budget,
        ),
        environment=RunEnvironment(runtime="process", run_as=account, cores=min(1.0, facts.cores), memory=memory),
        thresholds=Thresholds(),
        facts=facts,
        installation=installation,
        defaults_chosen=(f"PostgreSQL {installation.version} ({installation.kind}) from {installation.bin}.",),
        settings=(),
        host_changes=(
            f"loaded databases in {cache / templates.DIRECTORY}, one at a time",
            "a socket in a private directory below /run or /tmp",
        ),
        disk=need,
        memory=memory,
    )


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Return the sizes of newly loaded databases, frozen and analyzed, as recorded in their data directory template.

    The readings are ``database_bytes`` and its parts ``tables_bytes``, ``indexes_bytes`` and ``other_bytes``. A template that did not
    exist before is removed again, so that the disk never needs room for more than one.
    """
    readings: dict[str, float] = {}
    sockets = session.sockets / "template"
    session.node.make_dir(str(sockets), mode=0o700, user=session.account)
    for _, _, server in trial.deployment.servers():
        installation, contents = installations[server.bin], loaders(session.node, server.databases, server.settings)
        template = templates.find(session.node, installation, contents, str(session.cache), server.checksums)
        created = template is None
        if template is None:
            template = templates.ensure(
                session.node,
                installation,
                contents,
                account=session.account,
                cache_dir=str(session.cache),
                socket_dir=str(sockets),
                checksums=server.checksums,
                say=watcher.setup,
            )
        for name, size in template.databases.items():
            parts = template.parts[name]
            for part, bytes_ in {"database": size, **parts, "other": size - sum(parts.values())}.items():
                readings[f"{part}_bytes"] = readings.get(f"{part}_bytes", 0.0) + bytes_
        if created:
            templates.remove(session.node, str(session.cache), template.key)
    return readings


def script_line(database: str, server: str) -> str:
    """Return the line of the reproduction script that measures a loaded database without pgherd."""
    return f"size {database} {server}"
