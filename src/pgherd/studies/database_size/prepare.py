"""Completion of a database-size request: the PostgreSQL installation, and the check of the free disk space."""

from __future__ import annotations

from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.server_user import server_account
from pgherd.model.analysis import Thresholds
from pgherd.model.run import RunEnvironment
from pgherd.node.protocol import Node
from pgherd.postgres import disk_space, installations, templates
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.studies.database_size.options import DatabaseSizeOptions, DatabaseSizeRequest
from pgherd.workloads.pgbench import PgbenchLoader

MEMORY = 512 * 2**20
"""Memory in bytes of a server during the load: 128 MB of shared buffers, 256 MB for an index build, and 128 MB for the rest."""


def prepare(node: Node, request: DatabaseSizeRequest, dry: bool) -> PreparedStudy:
    """Complete a database-size request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    facts = gather(node)
    account = server_account(request.run_as)
    installation = installations.choose(node, request.pg_bin, request.pg_version)
    cache = paths.cache_dir()
    # A template that did not exist before is removed after its measurement. Therefore the largest one determines the space.
    need = templates.needed_bytes([PgbenchLoader("bench", max(request.scales))])
    disk_space.check_space(node, str(cache / "golden"), need, f"a database of scale {max(request.scales)}")
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
        host_changes=(f"loaded databases in {cache / 'golden'}, one at a time", "a socket in a private directory below /run or /tmp"),
        disk=need,
        memory=memory,
    )
