"""Asking a running server what its balloon does, by its DSN. Nothing is changed: the session is read-only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgherd.model.units import format_bytes
from pgherd.postgres import external

_LOADED = "SELECT setting FROM pg_settings WHERE name = 'pg_balloon.enabled'"
_FUNCTION = """SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = 'pg_balloon_status' AND p.pronargs = 0"""


@dataclass(frozen=True)
class Found:
    """A server's balloon. ``status`` is the row of pg_balloon_status(), ``counters`` that of pg_stat_balloon; both are empty where
    ``advice`` says what is missing."""

    dsn: str
    version: str
    loaded: bool
    enabled: bool = False
    status: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    advice: str = ""

    def document(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "server": self.dsn,
            "version": self.version,
            "loaded": self.loaded,
            "enabled": self.enabled,
            "status": self.status or None,
            "counters": self.counters or None,
            "advice": self.advice or None,
        }

    def lines(self) -> list[tuple[str, str]]:
        """(name, text) for people."""
        now = self.status
        if not now.get("usable"):
            return [("server", f"PostgreSQL {self.version}"), ("balloon", f"cannot be used: {now.get('unusable_reason')}")]
        share = now["ballooned_bytes"] / now["shared_buffers_bytes"] if now["shared_buffers_bytes"] else 0.0
        target = "" if now["target_bytes"] is None else f", kept at {format_bytes(now['target_bytes'])} by pg_balloon.target"
        lines = [
            ("server", f"PostgreSQL {self.version}, worker {now['worker_pid'] or 'not running'}"),
            ("enabled", ("yes" if self.enabled else "no: set pg_balloon.enabled = on and reload") + target),
            ("pool", f"{format_bytes(now['shared_buffers_bytes'])}, of which {format_bytes(now['resident_bytes'])} are in memory"),
            (
                "balloon",
                f"{format_bytes(now['ballooned_bytes'])} ({share:.0%} of the pool); at most {format_bytes(now['ceiling_bytes'])}, and "
                f"{format_bytes(now['floor_bytes'])} stay in any case",
            ),
        ]
        if now["balloon_resident_bytes"]:
            lines.append(("stuck", f"{format_bytes(now['balloon_resident_bytes'])} of the balloon are in memory all the same"))
        if now["limit_bytes"] is not None:
            lines += [
                ("working set", "not known" if now["working_set_bytes"] is None else format_bytes(now["working_set_bytes"])),
                (
                    "memory",
                    f"{format_bytes(now['available_bytes'])} available of {format_bytes(now['limit_bytes'])} ({now['cgroup_path']})",
                ),
                (
                    "signals",
                    f"{now['source']}: {now['refaults_per_s']:.0f} refaults/s, {format_bytes(now['swap_out_bytes_per_s'])}/s to swap, "
                    f"{now['misses_per_s']:.0f} misses/s" + (f" of {now['page_read_ms']:.3g} ms" if now["page_read_ms"] else ""),
                ),
            ]
        if now["state"]:
            lines.append(("now", now["state"]))
        if now["decision"]:
            lines.append(
                (
                    "last decision",
                    f"{now['decision']} {format_bytes(now['decision_bytes'])} at {now['decision_at']}: {now['decision_reason']}",
                )
            )
        if self.counters:
            taken = self.counters["inflated_unused"] + self.counters["inflated_clean"]
            lines.append(
                (
                    "since reset",
                    f"{taken:,} buffers given, {self.counters['deflated']:,} taken back, "
                    f"{self.counters['prefetched']:,} pages read back, {self.counters['buffers_written']:,} written",
                )
            )
        return lines


def look(dsn: str) -> Found:
    """Connect, ask, disconnect. ``dsn`` is as ``dsn.take`` gives it.

    Raises:
        UsageError: no connection, an unsupported version, or a user who may not ask.
    """
    from psycopg import sql

    version, (loaded, places) = external.ask(dsn, [_LOADED, _FUNCTION], option="DSN")
    if not loaded:
        advice = f"PostgreSQL {version} has not loaded pg_balloon; 'pgherd balloon build' tells how to, which takes a restart."
        return Found(dsn, version, False, advice=advice)
    enabled = loaded[0]["setting"] == "on"
    if not places:
        advice = (
            f"pg_balloon is loaded and switched {'on' if enabled else 'off'}, but this database has not its functions; name one that has, "
            "or make them: CREATE EXTENSION pg_balloon, or the script that 'pgherd balloon build' names."
        )
        return Found(dsn, version, True, enabled, advice=advice)
    schema = sql.Identifier(places[0]["nspname"])
    asked = [
        sql.SQL("SELECT * FROM {}.{}").format(schema, sql.SQL(what)).as_string() for what in ("pg_balloon_status()", "pg_stat_balloon")
    ]
    _, (status, counters) = external.ask(dsn, asked, option="DSN")
    return Found(dsn, version, True, enabled, status[0], counters[0])
