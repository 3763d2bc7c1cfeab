"""Status of pg_balloon in a running server, read by DSN in a read-only session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgherd.model.units import format_bytes
from pgherd.postgres import external_server

_LOADED = "SELECT setting FROM pg_settings WHERE name = 'pg_balloon.enabled'"
_FUNCTION = """SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = 'pg_balloon_status' AND p.pronargs = 0"""


@dataclass(frozen=True)
class BalloonStatus:
    """State of a server's balloon.

    ``status`` is the row of pg_balloon_status() and ``counters`` the row of pg_stat_balloon. Both are empty if ``advice``
    describes a missing requirement.
    """

    dsn: str
    version: str
    loaded: bool
    enabled: bool = False
    status: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    advice: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain data for --json."""
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
        """Return (name, text) pairs for the terminal."""
        row = self.status
        if not row.get("usable"):
            return [("server", f"PostgreSQL {self.version}"), ("balloon", f"cannot be used: {row.get('unusable_reason')}")]
        share = row["ballooned_bytes"] / row["shared_buffers_bytes"] if row["shared_buffers_bytes"] else 0.0
        target = "" if row["target_bytes"] is None else f", kept at {format_bytes(row['target_bytes'])} by pg_balloon.target"
        lines = [
            ("server", f"PostgreSQL {self.version}, worker {row['worker_pid'] or 'not running'}"),
            ("enabled", ("yes" if self.enabled else "no: set pg_balloon.enabled = on and reload") + target),
            ("pool", f"{format_bytes(row['shared_buffers_bytes'])}, of which {format_bytes(row['resident_bytes'])} are in memory"),
            (
                "balloon",
                f"{format_bytes(row['ballooned_bytes'])} ({share:.0%} of the pool); at most {format_bytes(row['ceiling_bytes'])}, and "
                f"{format_bytes(row['floor_bytes'])} always stay",
            ),
        ]
        if row["balloon_resident_bytes"]:
            lines.append(("stuck", f"{format_bytes(row['balloon_resident_bytes'])} of the balloon are still in memory"))
        if row["limit_bytes"] is not None:
            lines += [
                ("working set", "unknown" if row["working_set_bytes"] is None else format_bytes(row["working_set_bytes"])),
                (
                    "memory",
                    f"{format_bytes(row['available_bytes'])} available of {format_bytes(row['limit_bytes'])} ({row['cgroup_path']})",
                ),
                (
                    "signals",
                    f"{row['source']}: {row['refaults_per_s']:.0f} refaults/s, {format_bytes(row['swap_out_bytes_per_s'])}/s to swap, "
                    f"{row['misses_per_s']:.0f} misses/s" + (f" of {row['page_read_ms']:.3g} ms" if row["page_read_ms"] else ""),
                ),
            ]
        if row["state"]:
            lines.append(("now", row["state"]))
        if row["decision"]:
            lines.append(
                (
                    "last decision",
                    f"{row['decision']} {format_bytes(row['decision_bytes'])} at {row['decision_at']}: {row['decision_reason']}",
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


def read_status(dsn: str) -> BalloonStatus:
    """Read the balloon's state from the server at ``dsn``, as returned by ``external.normalize_dsn``.

    Raises:
        UsageError: The connection fails, the version is not supported, or the user lacks privileges.
    """
    from psycopg import sql

    version, (loaded, schemas) = external_server.ask(dsn, [_LOADED, _FUNCTION], option="DSN")
    if not loaded:
        advice = f"PostgreSQL {version} has not loaded pg_balloon; 'pgherd balloon build' prints the settings, which require a restart."
        return BalloonStatus(dsn, version, False, advice=advice)
    enabled = loaded[0]["setting"] == "on"
    if not schemas:
        advice = (
            f"pg_balloon is loaded and {'on' if enabled else 'off'}, but this database lacks its functions; name a database that has them, "
            "or create them: CREATE EXTENSION pg_balloon, or the script that 'pgherd balloon build' prints."
        )
        return BalloonStatus(dsn, version, True, enabled, advice=advice)
    schema = sql.Identifier(schemas[0]["nspname"])
    statements = [
        sql.SQL("SELECT * FROM {}.{}").format(schema, sql.SQL(relation)).as_string()
        for relation in ("pg_balloon_status()", "pg_stat_balloon")
    ]
    _, (status, counters) = external_server.ask(dsn, statements, option="DSN")
    return BalloonStatus(dsn, version, True, enabled, status[0], counters[0])
