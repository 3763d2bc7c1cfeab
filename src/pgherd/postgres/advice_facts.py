"""Facts of a server for recommendations, read by DSN in read-only sessions."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

from pgherd.host import processes
from pgherd.host.facts import disks_below
from pgherd.model.host_facts import ServerFacts
from pgherd.node.protocol import Node
from pgherd.postgres.external_server import ExternalServer

ASKED = (
    *("checkpoint_completion_target", "max_wal_size", "wal_compression", "data_checksums", "huge_pages", "shared_buffers", "fsync"),
    *("full_page_writes", "autovacuum", "synchronous_commit", "data_directory", "wal_segment_size"),
    *("shared_memory_size_in_huge_pages", "huge_pages_status"),
)
POSTMASTERS = ("postgres", "postmaster")
_UNITS = {"8kB": 8192, "MB": 2**20, "kB": 1024, "B": 1}
_SETTINGS = "SELECT name, current_setting(name), setting, unit, enumvals FROM pg_settings WHERE name = ANY (%s)"
_DATABASES = """SELECT datname, pg_database_size(oid) FROM pg_database
WHERE NOT datistemplate AND datname <> 'postgres' AND has_database_privilege(oid, 'CONNECT')"""
_CHECKPOINTS = {
    False: "SELECT checkpoints_timed, checkpoints_req FROM pg_stat_bgwriter",
    True: "SELECT num_timed, num_requested FROM pg_stat_checkpointer",
}
_WAL = "SELECT wal_records, wal_fpi FROM pg_stat_wal"

Query = Callable[..., list[tuple[Any, ...]]]


def read_server_facts(node: Node, dsn: str, passfile: str, *, local: bool) -> ServerFacts:
    """Read the facts of the server at ``dsn``, as returned by ``external.normalize_dsn``.

    Values that the user may not read stay empty. ``passfile`` is the path of a password file, which is created if one is
    required. ``local``: the server is proved to run on this host, so that its disks and its neighbours are here.

    Raises:
        UsageError: The connection fails.
        psycopg.Error: The connection is lost.
    """
    server = ExternalServer(node, dsn, name="advise", passfile=passfile)
    try:
        rows = server.sql(_SETTINGS, (list(ASKED),))
        settings = {name: text for name, text, *_ in rows}
        sizes = {name: int(value) * _UNITS[unit] for name, _, value, unit, _ in rows if unit in _UNITS and value.lstrip("-").isdigit()}
        version = str(server.sql("SHOW server_version")[0][0]).split()[0]
        data = settings.pop("data_directory", "")
        timed, requested = _counts(server.sql, _CHECKPOINTS[server.major >= 17])
        records, images = _counts(server.sql, _WAL)
        pages = settings.get("shared_memory_size_in_huge_pages", "")
        return ServerFacts(
            dsn=dsn,
            version=version,
            major=server.major,
            settings=settings,
            bytes_=sizes,
            local=local,
            data=disks_below(node, data) if local and data else (),
            wal=disks_below(node, posixpath.join(data, "pg_wal")) if local and data else (),
            system=disks_below(node, "/") if local else (),
            databases={str(name): int(size) for name, size in server.sql(_DATABASES)},
            servers_here=(len(processes.topmost(node, POSTMASTERS)) or None) if local else None,
            timed=timed,
            requested=requested,
            wal_records=records,
            full_pages=images,
            wal_compressions=next((tuple(values) for name, *_, values in rows if name == "wal_compression" and values), ()),
            huge_pages_status=settings.get("huge_pages_status"),
            huge_pages_needed=int(pages) if pages.isdigit() else None,
        )
    finally:
        server.disconnect()


def _counts(query: Query, statement: str) -> Sequence[int | None]:
    """Return two counts, or (None, None) if the user or the version cannot read them."""
    import psycopg

    with contextlib.suppress(psycopg.Error):
        first, second = query(statement)[0]
        return int(first), int(second)
    return None, None
