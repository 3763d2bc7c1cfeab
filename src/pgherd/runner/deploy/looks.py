"""Memory of the servers before and after a trial: that restarted ones begin without cached files, and how much of their shared buffers
is in use at the end.

The counts come from the extension pg_buffercache, which is created in the maintenance database of a private server: pgherd has made that
server, and the workload's own database stays as it was. Somebody else's server is never asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from pgherd.model.deployment import Container
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.postgres import clones
from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.transition import ServerKey

Readings = dict[str, dict[str, float]]
"""Entity → metric → value."""

IN_USE = """SELECT count(*) FILTER (WHERE b.usagecount > 0), count(*) FILTER (WHERE b.usagecount > 1), count(b.relfilenode),
       current_setting('block_size')::int
FROM pg_buffercache b LEFT JOIN pg_database d ON d.oid = b.reldatabase WHERE d.datname IS DISTINCT FROM 'postgres'"""
"""Buffers used at all, used again since they were read in, and filled, but for those of the maintenance database; bytes of a buffer.

A buffer's usage count is 1 when it is read (by the warm-up too), rises with every use up to 5, and falls each time the clock sweep passes
in its search for a buffer to evict."""

UNITS: Mapping[str, str] = {"buffers.used": "bytes", "buffers.reused": "bytes", "buffers.filled": "bytes"}


def readings(node: Node, trial: Trial | None, instances: Mapping[ServerKey, Instance]) -> Readings:
    """Bytes of shared buffers of each server that is up; nothing where the trial does not ask, or the extension is missing."""
    import psycopg

    found: Readings = {}
    if trial is None or "buffers" not in trial.looks:
        return found
    for key, instance in instances.items():
        # A server at the edge of its memory may not live through being asked: the trial was over before.
        with contextlib.suppress(psycopg.Error, OSError):
            instance.sql("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
            used, reused, filled, size = instance.sql(IN_USE)[0]
            values = (float(used * size), float(reused * size), float(filled * size))
            found[f"server:{'/'.join(key)}"] = dict(zip(UNITS, values, strict=True))
        node.disconnect(instance.conninfo())
    return found


def drop_cached_files(node: Node, restarted: Sequence[tuple[Instance, Container]]) -> None:
    """Take the files of restarted servers out of the page cache where their containers' memory is limited: what an earlier trial
    brought in is charged to a control group that may be gone, and would be memory that the container has for nothing."""
    clones.drop_cache(node, [instance.data_dir for instance, container in restarted if container.memory is not None])


def merged(*parts: Readings) -> Readings:
    """Readings of several kinds together, entity by entity."""
    found: Readings = {}
    for part in parts:
        for entity, values in part.items():
            found.setdefault(entity, {}).update(values)
    return found
