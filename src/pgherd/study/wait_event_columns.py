"""Declaration of the table of wait events, which several studies have. Imports nothing heavy, because it is part of a study."""

from __future__ import annotations

from pgherd.study.study import Column, TableView

TABLE = "wait_events"
SHARES = {
    "cpu": "on_cpu",
    "lock": "waits_lock",
    "lwlock": "waits_lwlock",
    "io": "waits_io",
    "ipc": "waits_ipc",
    "client": "waits_client",
    "other": "waits_other",
}
"""Class of wait events → column."""
VIEW = TableView(
    columns=(
        Column("tenants", "tenants", "number", needs="tenants"),
        Column("class", "class", needs="class"),
        Column("shared\nbuffers %", "shared_buffers_percent", "number", needs="shared_buffers_percent"),
        Column("over-\ncommit", "overcommit", "share", needs="overcommit"),
        Column("layout", "layout", needs="layout"),
        Column("scheme", "scheme", needs="scheme"),
        Column("aggressor", "aggressor", needs="aggressor"),
        Column("active\nsessions", "active_sessions", "brief"),
        Column("on CPU\n%", "on_cpu", "share ±"),
        Column("lock\n%", "waits_lock", "share ±"),
        Column("LWLock\n%", "waits_lwlock", "share ±"),
        Column("I/O\n%", "waits_io", "share ±"),
        Column("IPC\n%", "waits_ipc", "share ±"),
        Column("client\n%", "waits_client", "share ±"),
        Column("other\n%", "waits_other", "share ±"),
    )
)
LABELS = {
    TABLE: "wait events of active sessions",
    "on_cpu": "running or ready to run",
    "waits_lock": "waiting for a lock",
    "waits_lwlock": "waiting for a lightweight lock",
    "waits_io": "waiting for I/O",
    "waits_ipc": "waiting for another process",
    "waits_client": "waiting for the client",
    "waits_other": "waiting for another event",
}
PERCENT = frozenset(SHARES.values())
