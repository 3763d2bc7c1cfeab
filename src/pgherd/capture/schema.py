"""Schema of a source by pg_dump, and the SQL file that creates the copy.

pg_dump is the only tool that knows every kind of object of its version. Its output is a foreign text all the same: an old pg_dump
passes on what a malicious server puts after a line break, such as a command of psql (CVE-2025-8714). Commands of psql are refused.
"""

from __future__ import annotations

import re

from pgherd.capture.columns import Shapes, generator
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


def dump_schema(node: Node, installation: Installation, address: LibpqAddress) -> tuple[str, str]:
    """Return the SQL of tables and functions, and that of indexes, constraints and triggers.

    Raises:
        TrialError: pg_dump fails.
        UsageError: The schema contains a command of psql.
    """
    return _section(node, installation, address, "pre-data"), _section(node, installation, address, "post-data")


def _section(node: Node, installation: Installation, address: LibpqAddress, section: str) -> str:
    argv = [installation.tool("pg_dump"), *_OPTIONS, f"--lock-wait-timeout={_LOCK_TIMEOUT_MS}", f"--section={section}"]
    argv += ["-h", address.host, "-p", str(address.port), "-U", address.user, "-d", address.conninfo]
    try:
        dumped = node.run(Command(argv, env=dict(address.environment)), timeout=_TIMEOUT_S)
    except TimeoutError:
        raise TrialError(f"pg_dump did not end within {_TIMEOUT_S:.0f} s; see which locks its session waits for") from None
    if dumped.code != 0:
        raise TrialError(f"pg_dump cannot read the schema: {' '.join(dumped.err.split())[-500:]}")
    return checked(dumped.out)


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


def init_script(sections: tuple[str, str], shapes: Shapes) -> tuple[str, list[str]]:
    """Return the SQL file that creates and fills a copy, and a list of what the generator cannot reproduce."""
    rows, lost = generator(shapes)
    before, after = sections
    parts = ["-- Schema and generated rows of a captured database. Created by pgherd capture.", before, rows, after, "VACUUM ANALYZE;"]
    return "\n".join(parts) + "\n", lost
