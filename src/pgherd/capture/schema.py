"""Schema of a source by pg_dump, and the SQL file that creates the copy.

pg_dump is the only tool that knows every kind of object of its version. Its output is a foreign text all the same: an old pg_dump
passes on what a malicious server puts after a line break, such as a command of psql (CVE-2025-8714). Commands of psql are refused.

Foreign servers and user mappings have addresses and passwords, and a copy with them could write to the source's other servers. They
are left out. Foreign tables become ordinary, empty tables, because views, functions and partitions may depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pgherd.capture.columns import Shapes, generator
from pgherd.capture.model import literal
from pgherd.capture.scripts import TOKEN
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.protocol import Command, Node
from pgherd.postgres import installations
from pgherd.postgres.external_server import LibpqAddress
from pgherd.postgres.installations import Installation
from pgherd.workloads.script_parser import backslash_commands

_TIMEOUT_S = 120.0
_LOCK_TIMEOUT_MS = 5000
_OPTIONS = (
    "--schema-only", "--no-owner", "--no-privileges", "--no-comments", "--no-tablespaces", "--no-publications", "--no-subscriptions",
    "--no-security-labels", "--no-password",
)  # fmt: skip
_RESTRICTION = re.compile(r"^\\(?:un)?restrict [A-Za-z0-9]+\n", re.MULTILINE)
"""Commands that pg_dump itself writes since 2025, which older versions of psql reject."""
_NAME = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_]*)'
_OBJECT = re.compile(
    r"\A(?:CREATE|ALTER) (?:SERVER|FOREIGN TABLE|TABLE|DOMAIN|UNIQUE INDEX|MATERIALIZED VIEW) (?:ONLY )?"
    rf"({_NAME}(?:\.{_NAME})?)"
)
_CHECK = re.compile(rf"\bADD CONSTRAINT\s+(?:{_NAME}\s+)?CHECK\b")
"""Check constraint that is not part of its table or domain: it is not valid, or depends on it."""
_DOMAIN_CHECK = "\n\tCONSTRAINT "
_PARTIAL = re.compile(r"\([^()]*\(|\sWHERE\s")
"""Index on an expression, or on a part of the rows."""

_SERVERS, _TABLES, _POLICIES, _DOMAINS, _INDEXES, _VIEWS = (
    "foreign servers {}: left out with their addresses, users and passwords",
    "foreign tables {}: empty tables in the copy",
    "tables {}: row-level security is left out",
    "domains {}: check constraints are dropped in the copy",
    "unique indexes {}: not unique in the copy if generated values repeat",
    "materialized views {}: filled by their queries from generated rows, and empty if a query fails on them",
)


@dataclass(frozen=True)
class Schema:
    """Schema for a copy, as SQL.

    Attributes:
        before: tables and functions.
        after: indexes, constraints and triggers.
        views: materialized views in order of dependency.
        lost: differences from the source.
    """

    before: str
    after: str
    views: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def choose_pg_dump(node: Node, major: int, pg_bin: str | None = None) -> Installation:
    """Return the installation whose pg_dump reads the schema: of the server's major version, else the oldest newer one.

    Raises:
        CapabilityError: This host has no such pg_dump.
        UsageError: ``pg_bin`` contains no complete PostgreSQL.
    """
    candidates = [installations.choose(node, pg_bin)] if pg_bin else installations.find_all(node)
    usable = [one for one in candidates if one.major >= major and node.exists(one.tool("pg_dump"))]
    if not usable:
        have = ", ".join(f"{one.version} in {one.bin}" for one in candidates) or "none"
        raise CapabilityError(
            f"the schema of PostgreSQL {major} needs pg_dump {major} or later, and this host has {have}; install the client programs "
            f"of PostgreSQL {major}, or name their directory with --pg-bin"
        )
    return min(usable, key=lambda one: one.major)


def dump_schema(node: Node, installation: Installation, address: LibpqAddress, account: str | None) -> Schema:
    """Return the schema for a copy. pg_dump runs as ``account`` (None: the user of pgherd).

    Raises:
        TrialError: pg_dump fails.
        UsageError: The schema contains a command of psql.
    """
    return schema_for_copy(*(_section(node, installation, address, account, section) for section in ("pre-data", "post-data")))


def _section(node: Node, installation: Installation, address: LibpqAddress, account: str | None, section: str) -> str:
    argv = [installation.tool("pg_dump"), *_OPTIONS, f"--lock-wait-timeout={_LOCK_TIMEOUT_MS}", f"--section={section}"]
    argv += ["-h", address.host, "-p", str(address.port), "-U", address.user, "-d", address.conninfo]
    try:
        dumped = node.run(Command(argv, env=dict(address.environment), user=account), timeout=_TIMEOUT_S)
    except TimeoutError:
        raise TrialError(f"pg_dump did not end within {_TIMEOUT_S:.0f} s; see which locks its session waits for") from None
    if dumped.code != 0:
        raise TrialError(f"pg_dump cannot read the schema: {' '.join(dumped.err.split())[-500:]}")
    return dumped.out


def schema_for_copy(before: str, after: str) -> Schema:
    """Return the schema for a copy from the two sections of a dump.

    Raises:
        UsageError: It contains a command of psql.
    """
    sections: list[str] = []
    found: dict[str, dict[str, None]] = {}
    for dump in (before, after):
        kept: list[str] = []
        for comment, statement, bare in _statements(dump):
            text, line = _for_copy(statement, bare)
            kept += [comment, text] if text else []
            if line:
                found.setdefault(line, {}).update(dict.fromkeys(_OBJECT.findall(statement)))
        sections.append(checked("".join(kept)))
    lost = tuple(line.format(", ".join(names)) for line, names in found.items())
    return Schema(sections[0], sections[1], tuple(found.get(_VIEWS, ())), lost)


def _statements(dump: str) -> Iterator[tuple[str, str, str]]:
    """Yield the comment before each statement, the statement, and the statement with blanks instead of quoted parts and comments."""
    bare = "".join(" " * len(token[0]) if token["quoted"] or token["comment"] else token[0] for token in TOKEN.finditer(dump))
    start = 0
    while start < len(dump):
        end = bare.find(";", start) + 1 or len(dump)
        first = end - len(bare[start:end].lstrip())
        yield dump[start:first], dump[first:end], bare[first:end]
        start = end


def _for_copy(statement: str, bare: str) -> tuple[str, str]:
    """Return a statement for the copy, '' if it is left out, and the line about its object, '' if there is nothing to report."""
    match bare.split():
        case ["CREATE", "SERVER", *_]:
            return "", _SERVERS
        case ["CREATE", "USER", "MAPPING", *_] | ["CREATE", "FOREIGN", "DATA", "WRAPPER", *_] | ["CREATE", "POLICY", *_]:
            return "", ""
        case ["ALTER", "TABLE", *_, "ENABLE", "ROW", "LEVEL", "SECURITY;"]:
            return "", _POLICIES
        case ["ALTER", kind, *_] if _CHECK.search(bare):
            return "", _DOMAINS if kind == "DOMAIN" else ""
        case ["CREATE", "DOMAIN", *_] if _DOMAIN_CHECK in bare:
            return f"{statement[: bare.index(_DOMAIN_CHECK)]};", _DOMAINS
        case ["CREATE", "FOREIGN", "TABLE", *_]:
            table = re.split(r"\sSERVER\s", bare, maxsplit=1)[0]
            return f"CREATE TABLE{statement[len('CREATE FOREIGN TABLE') : len(table)]};", _TABLES
        case ["ALTER", "FOREIGN", "TABLE", *_]:
            return "" if "OPTIONS (" in bare else f"ALTER TABLE{statement[len('ALTER FOREIGN TABLE') :]}", ""
        case ["CREATE", "UNIQUE", "INDEX", *_] if _PARTIAL.search(bare):
            return _attempt(statement, statement.replace("UNIQUE ", "", 1)), _INDEXES
        case ["CREATE", "MATERIALIZED", "VIEW", *_]:
            return statement, _VIEWS
    return statement, ""


def _attempt(statement: str, instead: str = "") -> str:
    """Return SQL that warns if a statement fails on the generated rows, and runs ``instead``."""
    handler = "RAISE WARNING '%', SQLERRM;" + (f" EXECUTE {literal(instead)};" if instead else "")
    return f"DO {literal(f'BEGIN EXECUTE {literal(statement)}; EXCEPTION WHEN OTHERS THEN {handler} END')};"


def checked(dump: str) -> str:
    """Return a dump without psql's restriction, and require that it has no other command of psql.

    Raises:
        UsageError: It has one.
    """
    text = _RESTRICTION.sub("", dump)
    commands = backslash_commands(text, psql=True)
    if commands:
        line, name = commands[0]
        raise UsageError(f"the schema contains psql's command \\{name} in line {line}; an object's name or definition is malicious")
    return text


def init_script(schema: Schema, shapes: Shapes, search_path: str = "") -> tuple[str, list[str]]:
    """Return the SQL file that creates and fills a copy, and a list of what it does not reproduce.

    The file makes ``search_path`` the default of the database, unless it is ''.
    """
    rows, lost = generator(shapes)
    parts = ["-- Schema and generated rows of a captured database. Created by pgherd capture.", schema.before, rows, schema.after]
    parts += [_attempt(f"REFRESH MATERIALIZED VIEW {name};") for name in schema.views]
    if search_path:
        alter = f"format('ALTER DATABASE %I SET search_path TO ', current_database()) || {literal(search_path)}"
        parts.append(f"DO {literal(f'BEGIN EXECUTE {alter}; END')};")
    parts.append("VACUUM ANALYZE;")
    return "\n".join(parts) + "\n", [*schema.lost, *lost]
