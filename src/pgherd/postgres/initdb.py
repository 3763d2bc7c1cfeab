"""Making an empty cluster."""

from __future__ import annotations

from pgherd.model.errors import TrialError
from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation

SUPERUSER = "postgres"
"""The database superuser of every private server, whatever account it runs as."""


def checksums_default(major: int) -> bool:
    """Whether initdb switches data checksums on by itself: since PostgreSQL 18."""
    return major >= 18


def arguments(major: int, *, checksums: bool | None = None) -> list[str]:
    """initdb's arguments, data directory aside; ``checksums`` None takes the version's own default.

    Byte order collation everywhere, so that versions and machines compare; the builtin C.UTF-8 (since 17) needs no
    locale of the system.

    Authentication is 'trust', which is safe only because the server listens on nothing but a Unix socket in a
    directory of mode 0700: whoever can reach the socket already is the server's account, or root. Host connections
    are rejected even if listen_addresses were set.
    """
    chosen = [f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject", "--no-sync"]
    if major >= 17:
        chosen += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if checksums is not None and checksums != checksums_default(major):
        chosen.append("--data-checksums" if checksums else "--no-data-checksums")
    return chosen


def initdb(node: Node, installation: Installation, data_dir: str, *, account: str | None, checksums: bool | None = None) -> None:
    """Make an empty cluster in ``data_dir``, owned by ``account``; it is not synced to disk.

    Raises:
        TrialError: initdb failed; the message holds its own words.
    """
    node.make_dir(data_dir, mode=0o700, user=account)
    argv = [installation.tool("initdb"), "-D", data_dir, *arguments(installation.major, checksums=checksums)]
    # Killed, the server that it runs inside would leave shared memory behind; told to end, it lets that finish first.
    done = node.run(Command(argv, user=account, death_signal="TERM"), timeout=300)
    if done.code != 0:
        words = [line for line in done.err.strip().splitlines() if "error" in line.lower()] or done.err.strip().splitlines()[-1:]
        raise TrialError(f"initdb of PostgreSQL {installation.version} failed in {data_dir}: {' '.join(words)}")
