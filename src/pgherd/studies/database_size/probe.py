"""Probe for the sizes of newly loaded databases."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.model.trial import Trial
from pgherd.postgres import templates
from pgherd.postgres.installations import Installation
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.workloads.registry import loaders


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Return the sizes of newly loaded databases, frozen and analyzed, as recorded in their data directory template.

    The readings are ``database_bytes`` and its parts ``tables_bytes``, ``indexes_bytes`` and ``other_bytes``. A template that did not
    exist before is removed again, so that the disk never needs room for more than one.
    """
    readings: dict[str, float] = {}
    sockets = session.sockets / "golden"
    session.node.make_dir(str(sockets), mode=0o700, user=session.account)
    for _, _, server in trial.deployment.servers():
        installation, contents = installations[server.bin], loaders(session.node, server.databases)
        template = templates.find(session.node, installation, contents, str(session.cache), server.checksums)
        created = template is None
        if template is None:
            template = templates.ensure(
                session.node,
                installation,
                contents,
                account=session.account,
                cache_dir=str(session.cache),
                socket_dir=str(sockets),
                checksums=server.checksums,
                say=watcher.setup,
            )
        for name, size in template.databases.items():
            parts = template.parts[name]
            for part, bytes_ in {"database": size, **parts, "other": size - sum(parts.values())}.items():
                readings[f"{part}_bytes"] = readings.get(f"{part}_bytes", 0.0) + bytes_
        if created:
            templates.remove(session.node, str(session.cache), template.key)
    return readings


def script_line(database: str, server: str) -> str:
    """Return the line of the reproduction script that measures a loaded database without pgherd."""
    return f"size {database} {server}"
