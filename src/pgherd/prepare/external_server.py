"""Checks of an external server (``--dsn DSN``) and of its request, before a study starts."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.postgres import external
from pgherd.postgres.external import Found
from pgherd.study.database_options import DatabaseRequest

MEMORY = 256 * 2**20
"""Memory in bytes of drivers and pgherd on this host. Each client needs 1 MB more."""

_PGBENCH = ("select-only", "tpcb-like", "simple-update")

_REJECTED: Mapping[str, str] = {
    "set": "pgherd does not change its settings",
    "settings_from": "pgherd does not change its settings",
    "data_volume": "pgherd does not move its files",
    "wal_volume": "pgherd does not move its files",
    "temp_volume": "pgherd does not move its files",
    "tablespace_volume": "pgherd does not move its files",
    "huge_pages": "pgherd does not change its settings",
    "init_script": "pgherd creates no database on it",
    "partitions": "pgherd creates no table on it",
    "runtime": "its isolation is configured where it runs",
    "memory": "its limits are configured where it runs",
    "cpu_mode": "its limits are configured where it runs",
    "data_checksums": "pgherd did not initialize its cluster",
}
"""Option that applies only to servers that pgherd starts → reason why it is rejected for an external server."""


def find(asked: DatabaseRequest, *, read_only: bool) -> Found:
    """Connect to the server of a request and return its properties. ``read_only``: the load does not write.

    Raises:
        UsageError: an option does not apply to an external server, or the load cannot run on it.
    """
    assert asked.dsn is not None
    name = external.normalize_dsn(asked.dsn)
    for option, reason in _REJECTED.items():
        if getattr(asked, option, None) not in (None, ()):
            raise UsageError(f"--{option.replace('_', '-')} does not go with --dsn: {name} is external, and {reason}; leave one out")
    if asked.start_state != "warm":
        raise UsageError(
            f"--start-state {asked.start_state} does not go with --dsn: pgherd neither restarts nor restores an external server; "
            "leave --start-state out"
        )
    if "client_placement" in asked.model_fields_set and asked.client_placement == "inside":
        raise UsageError(
            "--client-placement inside does not go with --dsn: pgbench runs on this host, outside the server's container; "
            "leave --client-placement out"
        )
    if not asked.script and asked.workload not in _PGBENCH:
        raise UsageError(
            f"--workload {asked.workload} does not go with --dsn: it requires its tables, and pgherd creates none on an external server; "
            f"use {', '.join(_PGBENCH)}, or --script"
        )
    if not read_only and not asked.allow_writes:
        load = "--script is assumed to write" if asked.script else f"--workload {asked.workload} writes"
        raise UsageError(
            f"--dsn {name} is read only by default, and {load}; use --workload select-only, or add --allow-writes if this database may "
            "be changed"
        )
    server = external.look(name, writes=not read_only)
    external.insist(server, builtin=not asked.script, writes=not read_only, scale=asked.scale)
    return server


def sentences(found: Found, asked: DatabaseRequest, *, read_only: bool) -> list[str]:
    """Return the report's sentences and warnings about the server."""
    scale = "" if found.scale is None else f", pgbench's tables of scale {found.scale}"
    messages = [
        f"Server {found.dsn}: PostgreSQL {found.version}; database '{found.database}' of {format_bytes(found.bytes)}{scale}.",
        "Its data are only read: every session starts with default_transaction_read_only=on."
        if read_only
        else "Transactions write to it (--allow-writes). Their changes are not undone.",
        "Its CPU, memory and disks cannot be observed from this host: checks of them are unknown.",
    ]
    if asked.vcpus is not None:
        messages.append(f"Warning: --vcpus {asked.vcpus:g} does not apply to an external server and is ignored.")
    if asked.trace_io:
        messages.append("Warning: --trace-io cannot trace an external server: its block requests are not traced.")
    return messages
