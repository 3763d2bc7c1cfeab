"""What a request may say of somebody else's server (``--dsn DSN``), and what is found there before anything is begun."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.postgres import external
from pgherd.postgres.external import Found
from pgherd.study.database_options import DatabaseRequest

MEMORY = 256 * 2**20
"""What is needed on this host, bytes, for drivers and pgherd itself; each client needs a little more."""

_PGBENCH = ("select-only", "tpcb-like", "simple-update")

_NOT_THERE: Mapping[str, str] = {
    "set": "no setting of it is written",
    "settings_from": "no setting of it is written",
    "wal_dir": "its files stay where they are",
    "data_volume": "its files stay where they are",
    "wal_volume": "its files stay where they are",
    "temp_volume": "its files stay where they are",
    "tablespace_volume": "its files stay where they are",
    "huge_pages": "no setting of it is written",
    "init_script": "no database is made on it",
    "partitions": "no table is made on it",
    "runtime": "what isolates it is set where it runs",
    "memory": "what limits it is set where it runs",
    "cpu_mode": "what limits it is set where it runs",
    "data_checksums": "its cluster was made by somebody else",
}
"""Options that say something of servers of our own, each with the reason why not of others'."""


def find(asked: DatabaseRequest, *, read_only: bool) -> Found:
    """Look at the server of a request; ``read_only`` says that its load does not write.

    Raises:
        UsageError: the request asks for what cannot be, or the load cannot run there.
    """
    assert asked.dsn is not None
    name = external.normalize_dsn(asked.dsn)
    for option, why in _NOT_THERE.items():
        if getattr(asked, option, None) not in (None, ()):
            raise UsageError(f"--{option.replace('_', '-')} does not go with --dsn: {name} is somebody else's, and {why}; leave one out")
    if asked.start_state != "warm":
        raise UsageError(
            f"--start-state {asked.start_state} does not go with --dsn: nothing is restarted or restored on somebody else's server"
        )
    if "client_placement" in asked.model_fields_set and asked.client_placement == "inside":
        raise UsageError("--client-placement inside does not go with --dsn: pgbench runs on this host, outside of the server's container")
    if not asked.script and asked.workload not in _PGBENCH:
        raise UsageError(
            f"--workload {asked.workload} does not go with --dsn: it has tables of its own, and none are made on others' servers; "
            f"use {', '.join(_PGBENCH)}, or scripts of your own"
        )
    if not read_only and not asked.allow_writes:
        what = "scripts of your own are taken to write" if asked.script else f"{asked.workload} writes"
        raise UsageError(
            f"--dsn {name} is only read unless you allow more, and {what}; use --workload select-only, or add --allow-writes if the "
            "database is there to be written to"
        )
    found = external.look(name, writes=not read_only)
    external.insist(found, builtin=not asked.script, writes=not read_only, scale=asked.scale)
    return found


def sentences(found: Found, asked: DatabaseRequest, *, read_only: bool) -> list[str]:
    """What a reader is to know of it."""
    scale = "" if found.scale is None else f", pgbench's tables of scale {found.scale}"
    said = [
        f"Server {found.dsn}: PostgreSQL {found.version}; database '{found.database}' of {format_bytes(found.bytes)}{scale}.",
        "It is only read: every session begins with default_transaction_read_only=on."
        if read_only
        else "Transactions write to it, as --allow-writes says; what they write stays.",
        "Its CPU, memory and disks are not seen from here: verdicts on them are unknown.",
    ]
    if asked.vcpus is not None:
        said.append(f"Warning: vcpus {asked.vcpus:g} say nothing of somebody else's server and are left out.")
    if asked.trace_io:
        said.append("Warning: --trace-io sees no device of somebody else's server: of this one nothing is traced.")
    return said
