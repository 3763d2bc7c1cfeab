"""What a connection shows about an external server itself: who provides it, and what is hidden from the user.

A provider is recognised by settings, functions and roles that only its servers have, or by the domain of its hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgherd.postgres import statement_statistics

if TYPE_CHECKING:
    import psycopg

_FACTS = """SELECT current_user,
       pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage'),
       pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'usage'),
       ARRAY(SELECT DISTINCT pg_catalog.split_part(name, '.', 1) FROM pg_settings WHERE name LIKE '%.%'),
       ARRAY(SELECT rolname FROM pg_roles),
       to_regproc('pg_catalog.aurora_version') IS NOT NULL"""


@dataclass(frozen=True)
class ProviderFacts:
    """Facts of a server for a role.

    Attributes:
        prefixes: first parts of the names of settings that extensions define.
        aurora: the server has a function of Aurora.
        hidden: what the role does not see.
        no_statements: why pg_stat_statements cannot be read, with the remedy. '' if it can.
    """

    role: str = ""
    prefixes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    aurora: bool = False
    hidden: tuple[str, ...] = ()
    no_statements: str = ""


def read_facts(connection: psycopg.Connection[Any]) -> ProviderFacts:
    """Read the facts on a connection in autocommit. Raises psycopg.Error."""
    row = connection.execute(_FACTS.encode()).fetchone()
    assert row is not None
    role, stats, settings, prefixes, roles, aurora = row
    hidden = [] if stats else ["waits and queries of other users", "replication lag"]
    hidden += [] if settings else ["some settings"]
    no_statements = statement_statistics.why_unreadable(connection)
    return ProviderFacts(role, frozenset(prefixes), frozenset(roles), bool(aurora), tuple(hidden), no_statements)


def quoted(role: str) -> str:
    """Return a role as an SQL identifier in double quotes."""
    return '"' + role.replace('"', '""') + '"'


@dataclass(frozen=True)
class Provider:
    """Provider of a server, and what cannot be known there."""

    name: str
    unknown: str


_NO_HOST = "processes, memory and disks of its host, except from the provider's metrics"
_SHARED = f"{_NO_HOST}; storage is a service apart, with its own cache and limits"
_SLEEPS = "; it may sleep when idle and change its size under load"

_RULES = (
    # (name, prefixes of settings, roles, domain of hosts, unknown). The first that matches decides.
    ("Google AlloyDB", ("alloydb",), ("alloydbsuperuser",), ".alloydb.goog", _SHARED),
    ("Google Cloud SQL", ("cloudsql",), ("cloudsqlsuperuser",), ".sql.goog", _NO_HOST),
    ("Azure Database for PostgreSQL", ("azure",), ("azure_pg_admin",), ".postgres.database.azure.com", _NO_HOST),
    ("Neon", ("neon",), ("neon_superuser",), ".neon.tech", _SHARED + _SLEEPS),
    ("Supabase", ("supautils",), ("supabase_admin",), ".supabase.co", _NO_HOST),
    ("Crunchy Bridge", (), ("crunchy_superuser",), ".postgresbridge.com", _NO_HOST),
    ("Amazon RDS", ("rds",), ("rds_superuser",), ".rds.amazonaws.com", _NO_HOST),
)


def provider_of(facts: ProviderFacts, host: str) -> Provider | None:
    """Return the provider of a server. None: none was recognised, so it is plain PostgreSQL as far as can be seen."""
    if facts.aurora:
        return Provider("Amazon Aurora", _SHARED)
    for name, prefixes, roles, domain, unknown in _RULES:
        if facts.prefixes & set(prefixes) or facts.roles & set(roles) or host.lower().rstrip(".").endswith(domain):
            return Provider(name, unknown)
    return None
