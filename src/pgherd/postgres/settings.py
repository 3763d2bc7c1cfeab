"""Settings of a private server: what pgherd chooses, what the user asked for, and what differs from the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes, parse_bytes

MB = 2**20

PRIVATE: Mapping[str, str] = {
    "data_directory": "each private server has its own",
    "config_file": "each private server has its own",
    "hba_file": "each private server has its own",
    "ident_file": "each private server has its own",
    "external_pid_file": "each private server has its own",
    "port": "each private server has its own socket directory",
    "listen_addresses": "private servers listen on a Unix socket only",
    "unix_socket_directories": "each private server has its own",
    "unix_socket_group": "the socket directory is private to the server's account",
    "unix_socket_permissions": "the socket directory is private to the server's account",
    "cluster_name": "it carries the server's name in the deployment",
    "log_destination": "the log goes to a file beside the data directory",
    "logging_collector": "the log goes to a file beside the data directory",
}
"""Settings that are pgherd's own matter on every private server, each with the reason."""

RESERVED_CONNECTIONS = 5
"""Connections beyond the clients': sampling, pgherd itself, and PostgreSQL's own default reserve of three."""


@dataclass(frozen=True)
class Row:
    """One setting that differs from the default: its value, the default ('' if not known) and why."""

    name: str
    value: str
    default: str
    why: str


@dataclass(frozen=True)
class Choice:
    """Settings that differ from the default, the same as rows for a report, and what to warn of.

    ``cached`` says whether shared_buffers hold the databases whole.
    """

    settings: dict[str, str]
    rows: tuple[Row, ...]
    cached: bool
    warnings: tuple[str, ...] = ()


def memory_needed(shared_buffers: int, clients: int) -> int:
    """Estimated memory (bytes) of a server whose shared buffers are all in use, with its pgbench.

    Buffers with their descriptors and hash table (5 % in servers at rest), 16 MB for the postmaster and its workers,
    and per client 4 MB of private memory plus the page table entries of the buffers it touches (8 bytes per 4 kB).
    """
    return int(shared_buffers * 1.05 + 16 * MB + clients * (4 * MB + shared_buffers / 512))


def buffers_for(database_bytes: int, writes: bool) -> int:
    """shared_buffers (bytes, whole 8 MB, at least 32 MB) that hold databases of this size.

    5 % on top for what is not counted in it; 30 % where transactions write, since tables and indexes grow.
    """
    wanted = database_bytes * (1.3 if writes else 1.05) + 16 * MB
    return max(32 * MB, -int(-wanted // (8 * MB)) * 8 * MB)


def choose_settings(
    *,
    major: int,
    database_bytes: int,
    clients: int,
    memory: int | None = None,
    writes: bool = False,
    cached: bool = True,
    like: Mapping[str, str] | None = None,
    asked: Mapping[str, str] | None = None,
) -> Choice:
    """Settings for one server with databases of ``database_bytes`` in all, and at most ``clients`` connections.

    ``memory`` is its container's (bytes), ``cached`` whether the databases should stay in shared_buffers. The user's
    own configuration (``like``) and then ``asked`` (--set) override what is chosen here. Everything else that shapes
    the cost of a transaction (wal_level, fsync, autovacuum, jit, checkpoint_timeout …) stays at its default. So does
    dynamic_shared_memory_type: 'mmap' would leave nothing in /dev/shm behind a killed server, but makes parallel queries
    4–8 % slower (measured on PostgreSQL 18) and writes their segments to disk.

    Raises:
        UsageError: the user sets what is pgherd's own matter, or too few connections.
    """
    like, asked = like or {}, asked or {}
    for name in asked:
        if name in PRIVATE:
            raise UsageError(f"--set {name}: pgherd sets it itself ({PRIVATE[name]}); leave it out")
    buffers, fits = _buffers(database_bytes, clients, memory, writes, cached)
    rows = {row.name: row for row in (buffers, *_chosen(major, clients, writes, fits))}
    for source, settings in (("as in --like", like), ("asked for with --set", asked)):
        for name, value in settings.items():
            default = rows[name].default if name in rows else ""
            rows[name] = Row(name, value, default, source)
    warnings = list(_objections(rows, database_bytes, clients, memory, cached and not fits))
    overridden = rows["shared_buffers"] is not buffers
    holds = _bytes_of(rows["shared_buffers"].value) >= database_bytes
    if overridden and cached and not holds:
        warnings.append(
            f"shared_buffers {rows['shared_buffers'].value} ({rows['shared_buffers'].why}) do not hold databases of "
            f"{format_bytes(database_bytes)}; leave it out to have them cached"
        )
    if overridden and memory is not None and _bytes_of(rows["shared_buffers"].value) > memory:
        warnings.append(
            f"shared_buffers {rows['shared_buffers'].value} ({rows['shared_buffers'].why}) are more than the container's "
            f"{format_bytes(memory)}: the server may not start, or be ended by the kernel once it uses them; give more --memory, "
            "or another value by --set"
        )
    differ = {name: row for name, row in sorted(rows.items()) if row.value != row.default}
    return Choice(
        settings={name: row.value for name, row in differ.items()},
        rows=tuple(differ.values()),
        cached=holds if overridden else fits,
        warnings=tuple(warnings),
    )


def _bytes_of(shared_buffers: str) -> int:
    """The value in bytes (a plain number counts pages of 8 kB); 0 for what PostgreSQL will refuse anyway."""
    try:
        return int(shared_buffers) * 8192 if shared_buffers.isdigit() else parse_bytes(shared_buffers)
    except UsageError:
        return 0


def _chosen(major: int, clients: int, writes: bool, fits: bool) -> Iterable[Row]:
    connections = max(20, clients + RESERVED_CONNECTIONS)
    yield Row("max_connections", str(connections), "100", f"{clients} clients and a reserve; each slot costs memory and snapshot time")
    yield Row("max_wal_senders", "0", "10", "nothing replicates from a private server; saves memory per idle server")
    yield Row("max_logical_replication_workers", "0", "4", "nothing replicates to a private server; saves one idle process")
    if major >= 18 and fits:
        # Workers only read what misses shared_buffers. Where that happens they are part of what is measured.
        yield Row("io_method", "sync", "worker", "saves three idle I/O worker processes; a cached database reads nothing")
    if writes:
        yield Row("max_wal_size", "4GB", "1GB", "checkpoints come by time and not by WAL volume, so that a trial is not spent in one")


def _buffers(database_bytes: int, clients: int, memory: int | None, writes: bool, cached: bool) -> tuple[Row, bool]:
    wanted = buffers_for(database_bytes, writes)
    if cached and (memory is None or memory_needed(wanted, clients) <= memory):
        return Row("shared_buffers", f"{wanted // MB}MB", "128MB", f"holds the databases ({format_bytes(database_bytes)}) whole"), True
    if memory is None:
        return Row("shared_buffers", "128MB", "128MB", "the default: the databases are meant not to be cached"), False
    quarter = max(8, memory // 4 // MB)
    return Row("shared_buffers", f"{quarter}MB", "128MB", f"a quarter of the container's {format_bytes(memory)}"), False


def _objections(rows: Mapping[str, Row], database_bytes: int, clients: int, memory: int | None, does_not_fit: bool) -> Iterable[str]:
    connections = rows["max_connections"]
    if connections.value.isdigit() and int(connections.value) < clients + RESERVED_CONNECTIONS:
        raise UsageError(
            f"max_connections {connections.value} ({connections.why}) is too small for {clients} clients and "
            f"{RESERVED_CONNECTIONS} more for sampling and superusers; set at least {clients + RESERVED_CONNECTIONS}, or use fewer clients"
        )
    if does_not_fit and memory is not None:
        need = memory_needed(buffers_for(database_bytes, False), clients)
        yield (
            f"databases of {format_bytes(database_bytes)} with {clients} clients need about {format_bytes(need)} to be cached, but the "
            f"container has {format_bytes(memory)}: reads will go to the page cache or the disk; give more --memory, or a smaller --scale"
        )
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if name in rows and rows[name].value.lower() in ("off", "false", "no", "0"):
            yield f"{name} is off ({rows[name].why}): commits are cheaper here than on a server that must survive a crash"


DIFFERING = "SELECT name, setting, boot_val, source, current_setting(name) FROM pg_settings ORDER BY name"
"""The query whose rows ``differing`` takes."""

# 'override' is what the server computes (wal_buffers, data_directory), 'client' and 'session' what our own connection
# brought along, 'default' what it found in its environment (time zone, stack limit).
_NOT_SET = ("default", "override", "client", "session", "environment variable")


def differing(rows: Iterable[tuple[str, str | None, str | None, str, str | None]]) -> dict[str, str]:
    """Settings that differ from PostgreSQL's built-in default, as the server itself says (rows of ``DIFFERING``).

    Values carry their units. Private matters (socket, port, name) are left out, so that equal servers compare equal.
    """
    return {
        name: shown or ""
        for name, setting, boot, source, shown in rows
        if setting != boot and source not in _NOT_SET and name not in PRIVATE
    }


def reload_or_restart(old: Mapping[str, str], new: Mapping[str, str], contexts: Mapping[str, str]) -> Literal["keep", "reload", "restart"]:
    """What a running server needs to get from ``old`` to ``new`` settings.

    ``contexts`` maps names to pg_settings.context; what it does not know is taken to need a restart. A reload reaches
    connections that are made afterwards in any case, which is enough: drivers connect anew for each phase.
    """
    changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    if not changed:
        return "keep"
    reloadable = ("sighup", "superuser", "user", "backend", "superuser-backend")
    return "reload" if all(contexts.get(name) in reloadable for name in changed) else "restart"
