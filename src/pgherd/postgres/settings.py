"""Settings of a private server: chosen by pgherd, requested by the user, and different from the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes, parse_buffers, parse_bytes

MB = 2**20

PRIVATE: Mapping[str, str] = {
    "data_directory": "different for each private server",
    "config_file": "different for each private server",
    "hba_file": "different for each private server",
    "ident_file": "different for each private server",
    "external_pid_file": "different for each private server",
    "port": "each private server has a separate socket directory",
    "listen_addresses": "private servers listen on a Unix socket only",
    "unix_socket_directories": "different for each private server",
    "unix_socket_group": "the socket directory is private to the server's user",
    "unix_socket_permissions": "the socket directory is private to the server's user",
    "cluster_name": "it is the name of the server in the deployment",
    "log_destination": "the log is a file next to the data directory",
    "logging_collector": "the log is a file next to the data directory",
}
"""Settings that only pgherd sets on a private server, with the reason."""

RESERVED_CONNECTIONS = 5
"""Connections reserved for sampling and pgherd, and for PostgreSQL's default reserve of three."""


@dataclass(frozen=True)
class SettingRow:
    """Setting that differs from its default ('' if not known), with the reason."""

    name: str
    value: str
    default: str
    why: str


@dataclass(frozen=True)
class ChosenSettings:
    """Settings that differ from their default, also as rows for a report, and warnings.

    ``cached`` is True if shared_buffers can cache all databases.
    """

    settings: dict[str, str]
    rows: tuple[SettingRow, ...]
    cached: bool
    warnings: tuple[str, ...] = ()


def memory_needed(shared_buffers: int, clients: int) -> int:
    """Estimate the memory (bytes) of a server with all shared buffers in use, including pgbench.

    It is the sum of shared buffers and 5 % for descriptors and hash table (measured in idle servers), 16 MB for the
    postmaster and its workers, and per client 4 MB of private memory and page table entries of the buffers (8 bytes per 4 kB).
    """
    return int(shared_buffers * 1.05 + 16 * MB + clients * (4 * MB + shared_buffers / 512))


def buffers_for(database_bytes: int, writes: bool) -> int:
    """Return shared_buffers (bytes, a multiple of 8 MB, at least 32 MB) to cache databases of this size.

    5 % are added for pages that the size does not include. For writes 30 % are added, because tables and indexes grow.
    """
    needed = database_bytes * (1.3 if writes else 1.05) + 16 * MB
    return max(32 * MB, -int(-needed // (8 * MB)) * 8 * MB)


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
) -> ChosenSettings:
    """Choose the settings of one server.

    All other settings that affect the cost of a transaction (wal_level, fsync, autovacuum, jit, checkpoint_timeout …)
    keep their default. This includes dynamic_shared_memory_type: with 'mmap' a killed server would leave no files in
    /dev/shm, but parallel queries are 4–8 % slower (measured on PostgreSQL 18), and their segments are written to disk.

    Args:
        major: Major version of PostgreSQL.
        database_bytes: Total size of the databases.
        clients: Maximum number of connections.
        memory: Memory limit of the container (bytes).
        writes: Transactions write.
        cached: The databases should fit into shared_buffers.
        like: Settings of --settings-from, which override the chosen ones.
        asked: Settings of --set, which override both.

    Raises:
        UsageError: The user sets a setting of ``PRIVATE``, or too few connections.
    """
    like, asked = like or {}, asked or {}
    for name in asked:
        if name in PRIVATE:
            raise UsageError(f"--set {name}: pgherd sets it itself ({PRIVATE[name]}); remove it")
    buffers, fits = _buffers(database_bytes, clients, memory, writes, cached)
    rows = {row.name: row for row in (buffers, *_defaults(major, clients, writes, fits))}
    for source, settings in (("from --settings-from", like), ("from --set", asked)):
        for name, value in settings.items():
            default = rows[name].default if name in rows else ""
            rows[name] = SettingRow(name, value, default, source)
    warnings = list(_warnings(rows, database_bytes, clients, memory, cached and not fits))
    overridden = rows["shared_buffers"] is not buffers
    sufficient = _bytes_of(rows["shared_buffers"].value) >= database_bytes
    if overridden and cached and not sufficient:
        warnings.append(
            f"shared_buffers {rows['shared_buffers'].value} ({rows['shared_buffers'].why}) cannot cache databases of "
            f"{format_bytes(database_bytes)}; remove it so that pgherd chooses a sufficient value"
        )
    if overridden and memory is not None and _bytes_of(rows["shared_buffers"].value) > memory:
        warnings.append(
            f"shared_buffers {rows['shared_buffers'].value} ({rows['shared_buffers'].why}) are more than the container's "
            f"{format_bytes(memory)}: the server may fail to start, or be killed by the kernel; raise --memory, "
            "or lower it with --set"
        )
    changed = {name: row for name, row in sorted(rows.items()) if row.value != row.default}
    return ChosenSettings(
        settings={name: row.value for name, row in changed.items()},
        rows=tuple(changed.values()),
        cached=sufficient if overridden else fits,
        warnings=tuple(warnings),
    )


def _bytes_of(shared_buffers: str) -> int:
    """Convert to bytes. Return 0 for a value that PostgreSQL rejects."""
    try:
        return parse_buffers(shared_buffers)
    except UsageError:
        return 0


def max_wal_bytes(settings: Mapping[str, str]) -> int:
    """Return max_wal_size in bytes. Without it, or if its form is not known here, it is the default of PostgreSQL."""
    size = settings.get("max_wal_size", "1GB")
    try:
        return parse_bytes(f"{size}MB" if size.isdecimal() else size)
    except UsageError:
        return 2**30


def _defaults(major: int, clients: int, writes: bool, fits: bool) -> Iterable[SettingRow]:
    connections = max(20, clients + RESERVED_CONNECTIONS)
    yield SettingRow(
        "max_connections", str(connections), "100", f"{clients} clients and a reserve: each slot costs memory and snapshot time"
    )
    yield SettingRow("max_wal_senders", "0", "10", "a private server is not replicated; saves memory per idle server")
    yield SettingRow("max_logical_replication_workers", "0", "4", "a private server subscribes to nothing; saves one idle process")
    # 'try' gives reserved pages to the servers that start first, and takes them from whoever reserved them.
    yield SettingRow("huge_pages", "off", "try", "all servers use the same pages, and reserved huge pages stay with their owner")
    if major >= 18 and fits:
        # I/O workers only read pages that are not in shared_buffers. If this happens, they belong to the measured system.
        yield SettingRow("io_method", "sync", "worker", "saves three idle I/O worker processes; a cached database reads nothing")
    if writes:
        yield SettingRow(
            "max_wal_size", "4GB", "1GB", "checkpoints are triggered by time and not by WAL volume, so that no trial consists of one"
        )


def _buffers(database_bytes: int, clients: int, memory: int | None, writes: bool, cached: bool) -> tuple[SettingRow, bool]:
    needed = buffers_for(database_bytes, writes)
    if cached and (memory is None or memory_needed(needed, clients) <= memory):
        return SettingRow(
            "shared_buffers", f"{needed // MB}MB", "128MB", f"caches the databases ({format_bytes(database_bytes)}) completely"
        ), True
    if memory is None:
        return SettingRow("shared_buffers", "128MB", "128MB", "the default, because the databases should not be cached"), False
    quarter = max(8, memory // 4 // MB)
    return SettingRow("shared_buffers", f"{quarter}MB", "128MB", f"a quarter of the container's {format_bytes(memory)}"), False


def _warnings(rows: Mapping[str, SettingRow], database_bytes: int, clients: int, memory: int | None, does_not_fit: bool) -> Iterable[str]:
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
            f"container has {format_bytes(memory)}: reads go to the page cache or the disk; raise --memory, or reduce --scale"
        )
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if name in rows and rows[name].value.lower() in ("off", "false", "no", "0"):
            yield f"{name} is off ({rows[name].why}): commits cost less than on a server that must survive a crash"


DIFFERING = "SELECT name, setting, boot_val, source, current_setting(name) FROM pg_settings ORDER BY name"
"""Query whose rows are the input of ``differing``."""

# Sources of settings that no user set: 'override' is computed by the server (wal_buffers, data_directory), 'client' and
# 'session' belong to this connection, 'default' follows from the environment (time zone, stack limit).
_NOT_SET = ("default", "override", "client", "session", "environment variable")


def differing(rows: Iterable[tuple[str, str | None, str | None, str, str | None]]) -> dict[str, str]:
    """Return the settings that differ from their built-in default, from the rows of ``DIFFERING``.

    Values include their units. Private settings (socket, port, name) are excluded, so that equal servers compare equal.
    """
    return {
        name: shown or ""
        for name, setting, boot, source, shown in rows
        if setting != boot and source not in _NOT_SET and name not in PRIVATE
    }


def reload_or_restart(old: Mapping[str, str], new: Mapping[str, str], contexts: Mapping[str, str]) -> Literal["keep", "reload", "restart"]:
    """Return the action with which a running server changes from ``old`` to ``new`` settings.

    ``contexts`` maps names to pg_settings.context. A setting that is not in it requires a restart. A reload suffices for
    settings that apply to new connections, because drivers reconnect for each phase.
    """
    changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    if not changed:
        return "keep"
    reloadable = ("sighup", "superuser", "user", "backend", "superuser-backend")
    return "reload" if all(contexts.get(name) in reloadable for name in changed) else "restart"
