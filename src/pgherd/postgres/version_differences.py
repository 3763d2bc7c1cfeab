"""Differences between the defaults of two PostgreSQL servers, which would bias a comparison of versions.

Data checksums, encoding and byte-order collation are equalized when data directories are created (see
``instance.initdb``). This module lists the other differences, with their meaning where it is known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.settings import PRIVATE

ABSENT = "–"
"""Value of a setting that a version does not have."""

MEANING: Mapping[str, str] = {
    "autovacuum_vacuum_max_threshold": "from 18 on large tables are vacuumed earlier",
    "checkpoint_completion_target": "how far a checkpoint's writes are spread",
    "data checksums": "pages are checked when read and WAL-logged for hint bits",
    "effective_io_concurrency": "how far bitmap scans read ahead",
    "enable_partitionwise_aggregate": "another plan may be chosen",
    "hash_mem_multiplier": "more memory before hashes spill",
    "huge_pages": "whether shared memory may use huge pages",
    "io_combine_limit": "largest size of one read",
    "io_method": "since 18 reads that miss shared_buffers may go through I/O workers or io_uring",
    "io_workers": "processes that read for others",
    "jit": "costly queries are compiled",
    "locale": "both sort by bytes; upper and lower case of letters beyond ASCII differ",
    "log_autovacuum_min_duration": "what is logged",
    "log_checkpoints": "what is logged",
    "maintenance_io_concurrency": "how far vacuum and recovery read ahead",
    "max_wal_size": "how often WAL volume triggers a checkpoint",
    "built": "compilers and options produce different code",
    "random_page_cost": "another plan may be chosen",
    "vacuum_buffer_usage_limit": "memory that VACUUM may use of shared_buffers",
    "wal_compression": "full-page images are compressed",
    "wal_level": "how much is written to the WAL",
}
"""Meaning of a difference by the name of the setting or property.

A setting that exists in only one version is reported only if it is in this table.
"""

# Settings that identify or describe a server, or follow from the environment that started it.
_IGNORED = frozenset(
    {"server_version", "server_version_num", "in_hot_standby", "timezone_abbreviations", "log_timezone", "TimeZone", "application_name"}
)
_IGNORED_PREFIXES = ("ssl", "krb_", "gss_", "oauth_", "log_connections")
_BYTES = {"B": 1, "kB": 2**10, "8kB": 8 * 2**10, "16kB": 2**14, "32kB": 2**15, "MB": 2**20, "GB": 2**30}

_BOOT = "SELECT name, boot_val, unit FROM pg_settings WHERE context <> 'internal' AND boot_val IS NOT NULL ORDER BY name"
_CLUSTER = """SELECT current_setting('data_checksums'), current_setting('block_size'), current_setting('wal_segment_size'),
pg_encoding_to_char(encoding), datlocprovider::text, to_jsonb(d) ->> CASE datlocprovider WHEN 'c' THEN 'datcollate'
WHEN 'i' THEN coalesce((SELECT attname::text FROM pg_attribute WHERE attrelid = 'pg_database'::regclass AND attname = 'datlocale'),
'daticulocale') ELSE 'datlocale' END, version() FROM pg_database d WHERE datname = current_database()"""
_PROVIDERS = {"c": "libc", "i": "icu", "b": "builtin"}


@dataclass(frozen=True)
class ServerDefaults:
    """Defaults of a server.

    ``boot`` maps settings to their built-in values with units. ``cluster`` contains properties that are fixed by the build
    or by initdb.
    """

    version: str
    boot: Mapping[str, str]
    cluster: Mapping[str, str]


@dataclass(frozen=True)
class VersionDifference:
    """Difference between the defaults of two servers. ``meaning`` is '' if it is not known."""

    name: str
    one: str
    other: str
    meaning: str = ""


def differing(one: ServerDefaults, other: ServerDefaults, settings: Iterable[str] = ()) -> tuple[VersionDifference, ...]:
    """Return the differences between the defaults of two servers.

    Properties of the data directories come first, then settings with a known meaning, then other settings. A setting that
    exists in only one of the versions is omitted unless it has a known meaning, because new versions have new settings.

    Args:
        one: Defaults of the first server.
        other: Defaults of the second server.
        settings: Names of settings that are set on both servers, so that their defaults do not matter.
    """
    cluster = [
        VersionDifference(name, one.cluster.get(name, ABSENT), other.cluster.get(name, ABSENT), MEANING.get(name, ""))
        for name in _names(one.cluster, other.cluster)
    ]
    ignored = {*settings, *PRIVATE, *_IGNORED}
    ignored |= {name for name in (*one.boot, *other.boot) if name.startswith(_IGNORED_PREFIXES)}
    boot = [
        VersionDifference(name, one.boot.get(name, ABSENT), other.boot.get(name, ABSENT), MEANING.get(name, ""))
        for name in _names(one.boot, other.boot)
        if name not in ignored and (name in MEANING or (name in one.boot and name in other.boot))
    ]
    return (*[row for row in cluster if row.one != row.other], *sorted((row for row in boot if row.one != row.other), key=_unknown_last))


def _unknown_last(row: VersionDifference) -> tuple[bool, str]:
    return not row.meaning, row.name


def _names(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def read(ask: Callable[[str], Sequence[Sequence[Any]]], version: str) -> ServerDefaults:
    """Read the defaults of a running server. ``ask`` runs a statement on it and returns the rows."""
    checksums, block, segment, encoding, provider, locale, built = ask(_CLUSTER)[0]
    cluster = {
        "data checksums": str(checksums),
        "encoding": str(encoding),
        "locale": f"{locale} ({_PROVIDERS.get(provider, provider)})",
        "block size": str(block),
        "WAL segment size": str(segment),
        "built": str(built).partition(" on ")[2] or str(built),
    }
    return ServerDefaults(version, {str(name): with_unit(str(value), unit) for name, value, unit in ask(_BOOT)}, cluster)


def with_unit(value: str, unit: str | None) -> str:
    """Format a value of pg_settings with its unit: ``16384`` of ``8kB`` is ``128 MB``, ``300`` of ``s`` is ``300 s``.

    Zero and negative values are left unchanged, because they are not amounts.
    """
    if unit is None or not value.isdigit() or int(value) == 0:
        return value
    return format_bytes(int(value) * _BYTES[unit]) if unit in _BYTES else f"{value} {unit}"


def read_from_server(
    node: Node, installation: Installation, *, account: str | None, directory: str, socket_dir: str, checksums: bool | None = None
) -> ServerDefaults:
    """Return the defaults of an installation, read from a small temporary server (2 s).

    ``directory`` must belong to pgherd and be accessible to ``account``. ``socket_dir`` is as for ``Instance``.

    Raises:
        TrialError: initdb or the server fails.
    """
    data = os.path.join(directory, f"defaults-{installation.version}")
    server = Instance(node, installation, data, socket_dir, account=account, name="defaults")
    try:
        initdb(node, installation, data, account=account, checksums=checksums)
        server.write_settings({"fsync": "off", "huge_pages": "off", "shared_buffers": "8MB", "max_connections": "10"})
        server.start()
        server.wait_ready()
        return read(server.sql, installation.version)
    finally:
        server.stop("immediate", 10.0)
        node.remove_tree(data)
