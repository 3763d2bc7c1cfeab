"""Measures the sizes of freshly loaded databases."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.model.trial import Trial
from pgherd.postgres import golden
from pgherd.postgres.installations import Installation
from pgherd.runner.observer import RunObserver
from pgherd.runner.session import RunSession
from pgherd.workloads.registry import fillings


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Sizes of freshly loaded databases, frozen and analysed, as their golden copy says: ``database_bytes`` in all, of which
    ``tables_bytes``, ``indexes_bytes`` and ``rest_bytes``.

    A golden copy that is made for this is removed again: the disk must hold no more than one.
    """
    readings: dict[str, float] = {}
    sockets = session.sockets / "golden"
    session.node.make_dir(str(sockets), mode=0o700, user=session.account)
    for _, _, server in trial.deployment.servers():
        installation, contents = installations[server.bin], fillings(session.node, server.databases)
        copy = golden.find(session.node, installation, contents, str(session.cache), server.checksums)
        made = copy is None
        if copy is None:
            copy = golden.ensure(
                session.node,
                installation,
                contents,
                account=session.account,
                cache_dir=str(session.cache),
                socket_dir=str(sockets),
                checksums=server.checksums,
                say=watcher.setup,
            )
        for name, size in copy.databases.items():
            parts = copy.parts[name]
            for part, bytes_ in {"database": size, **parts, "rest": size - sum(parts.values())}.items():
                readings[f"{part}_bytes"] = readings.get(f"{part}_bytes", 0.0) + bytes_
        if made:
            golden.remove(session.node, str(session.cache), copy.key)
    return readings


def script_line(database: str, server: str) -> str:
    """The line of a script that repeats the trial without pgherd, once a server's database is loaded."""
    return f"size {database} {server}"
