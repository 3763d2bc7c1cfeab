"""Servers' data directories from a golden copy: clone, warm."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from pgherd.host import shared_memory
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.units import parse_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres.disk import check_space, patience
from pgherd.postgres.golden import Golden
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance


def cached(golden: Golden, settings: Mapping[str, str]) -> bool:
    """Whether the shared buffers of a server with these settings hold the copy's databases whole."""
    buffers = settings.get("shared_buffers", "128MB")
    size = int(buffers) * 8192 if buffers.isdigit() else parse_bytes(buffers)  # a bare number counts blocks
    return size >= sum(golden.databases.values())


def clone(node: Node, golden: Golden, destination: str, account: str | None) -> float:
    """Copy a golden cluster to ``destination``, owned by ``account``, and return the seconds that it took.

    Shares blocks where the file system can (reflink). A cluster that stands there is replaced: that is how a server
    goes back to 'fresh'. Its server must have been stopped.

    Raises:
        UsageError: the destination holds something that is not a cluster.
        TrialError: the copy failed, for instance because the disk is full.
    """
    began = time.monotonic()
    if node.exists(destination):
        if node.listdir(destination) and not node.exists(os.path.join(destination, "PG_VERSION")):
            raise UsageError(f"{destination} is neither empty nor a PostgreSQL cluster, so it is not replaced; name another directory")
        shared_memory.release(node, destination)
        node.remove_tree(destination)
    node.make_dir(destination, mode=0o700, user=account)
    copy = Command(["cp", "-a", "--reflink=auto", "--", os.path.join(golden.data_dir, "."), destination])
    done = node.run(copy, timeout=max(3600.0, patience(golden.bytes)))
    if done.code == 0 and account is not None and golden.owner != account:
        done = node.run(Command(["chown", "-R", f"{account}:", "--", destination]), timeout=600)
    if done.code != 0:
        node.remove_tree(destination)
        words = (done.err.strip().splitlines() or ["no reason given"])[0]
        raise TrialError(f"the golden copy {golden.key} cannot be copied to {destination}: {words}")
    return time.monotonic() - began


def clone_all(node: Node, jobs: Sequence[tuple[Golden, str]], account: str | None, at_once: int = 2) -> float:
    """Clone (golden copy, destination) pairs, ``at_once`` at a time, and return the seconds in all.

    More than two copies at once only compete for the disk. What was not begun when one fails is not begun any more.

    Raises:
        CapabilityError: there is too little disk for all of them.
        UsageError, TrialError: as ``clone``.
    """
    began = time.monotonic()
    if jobs:
        check_space(node, os.path.dirname(jobs[0][1]), sum(golden.bytes for golden, _ in jobs), f"cloning {len(jobs)} servers")
    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        futures = [pool.submit(clone, node, golden, destination, account) for golden, destination in jobs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return time.monotonic() - began


def drop_cache(node: Node, directories: Sequence[str]) -> None:
    """Write these directories' large files to disk and remove them from the page cache.

    A memory-limited container is charged only for pages that its own processes bring in; what a copy left in the cache
    would be memory that it has for nothing.
    """
    large = ("-type", "f", "-size", "+256k")
    drop = ["dd", "if={}", "iflag=nocache", "count=0", "status=none"]
    for directory in directories:
        # These files only: what others are writing to the same file system may take minutes.
        node.run(Command(["find", directory, *large, "-exec", "sync", "-d", "--", "{}", "+"]), timeout=3600)
        node.run(Command(["find", directory, *large, "-exec", *drop, ";"]), timeout=600)


@dataclass(frozen=True)
class Prewarmed:
    """What was read into shared buffers: bytes, and by which method."""

    bytes: int
    method: Literal["pg_prewarm", "sequential scans"]


# Main forks of everything that has one: tables and their TOAST, then indexes, then the rest. 'S' are sequences.
PREWARM = """SELECT coalesce(sum(pg_prewarm(oid::regclass, 'buffer', 'main')), 0) * current_setting('block_size')::bigint
FROM (SELECT oid FROM pg_class WHERE relkind IN ('r', 't', 'm', 'i', 'S') AND relpersistence <> 't'
      ORDER BY relkind NOT IN ('r', 't', 'm'), oid) AS relations"""
"""Reads a whole database into shared buffers; its one value is the number of bytes."""
_TABLES = """SELECT n.nspname, c.relname, pg_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY c.oid"""


def prewarm(instance: Instance, database: str, look: Callable[[int], None] | None = None) -> Prewarmed:
    """Read a database into shared buffers. A backend of the server does it, so the container is charged for them.

    Without the pg_prewarm extension tables are scanned; PostgreSQL lets a scan of a large table use only a few
    buffers, so that then only the page cache is warm. ``look`` is called with the backend's pid before it ends.
    """
    from psycopg import sql

    try:
        pid = int(instance.sql("SELECT pg_backend_pid()", database=database)[0][0]) if look else 0
        if instance.sql("SELECT 1 FROM pg_extension WHERE extname = 'pg_prewarm'", database=database):
            read = Prewarmed(int(instance.sql(PREWARM, database=database)[0][0]), "pg_prewarm")
            if look is not None:
                look(pid)
            return read
        size = 0
        for schema, table, length in instance.sql(_TABLES, database=database):
            instance.sql(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table)).as_string(), database=database)
            size += int(length)
        if look is not None:
            look(pid)
        return Prewarmed(size, "sequential scans")
    finally:
        instance.disconnect([database])


@contextlib.contextmanager
def rehearsal(
    node: Node,
    golden: Golden,
    installation: Installation,
    *,
    account: str | None,
    directory: str,
    socket_dir: str,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Instance]:
    """A server on a clone that is thrown away afterwards, for trying scripts that may write.

    ``directory`` must be writable by us and enterable for ``account``; ``socket_dir`` as for ``Instance``. ``settings``: by default none
    but what spares the disk.
    """
    data_dir = os.path.join(directory, "rehearsal")
    instance = Instance(node, installation, data_dir, socket_dir, account=account, name="rehearsal")
    try:
        clone(node, golden, data_dir, account)
        instance.write_settings({**(settings or {}), "fsync": "off"})
        instance.start()
        instance.wait_ready()
        yield instance
    finally:
        instance.stop("immediate", 10.0)
        node.remove_tree(data_dir)
        if node.exists(instance.log):
            node.run(Command(["rm", "-f", "--", instance.log]))
