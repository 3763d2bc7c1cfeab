"""Clones of a data directory template: copy, prewarm, rehearse."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Literal

from pgherd.host import processes, shared_memory
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.units import parse_buffers
from pgherd.node import interruption
from pgherd.node.protocol import Command, Node
from pgherd.postgres.disk_space import check_space, patience
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.templates import Template

_POLL_INTERVAL_S = 0.5
_KILL_INTERVAL_S = 0.05


def cached(template: Template, settings: Mapping[str, str]) -> bool:
    """Return True if shared_buffers can cache all databases of the template."""
    return parse_buffers(settings.get("shared_buffers", "128MB")) >= sum(template.databases.values())


def clone(node: Node, template: Template, destination: str, account: str | None) -> float:
    """Copy a template to ``destination``, owned by ``account``, and return the duration in seconds.

    The copy shares blocks if the file system supports it (reflink). An existing data directory is replaced, which resets
    a server to the state 'fresh'. Its server must be stopped.

    The copy belongs to the current user until it is complete. Without ``account`` it stays so, and ``give`` is due.

    Raises:
        UsageError: The destination is neither empty nor a data directory.
        TrialError: The copy fails, for example because the disk is full.
    """
    began = time.monotonic()
    if node.exists(destination):
        if node.listdir(destination) and not node.exists(os.path.join(destination, "PG_VERSION")):
            raise UsageError(f"{destination} is neither empty nor a PostgreSQL cluster and is not replaced; choose another directory")
        shared_memory.release(node, destination)
        node.remove_tree(destination)
    node.make_dir(destination, mode=0o700)
    argv = ["cp", "-a", "--reflink=auto", "--", os.path.join(template.data_dir, "."), destination]
    copy = Command(argv, cwd=destination)  # by which _end_copies finds it
    completed = node.run(copy, timeout=max(3600.0, patience(template.bytes)))
    if completed.code != 0:
        node.remove_tree(destination)
        reason = (completed.err.strip().splitlines() or ["no reason given"])[0]
        raise TrialError(f"the template {template.key} cannot be copied to {destination}: {reason}")
    try:
        give(node, [destination], account)
    except TrialError:
        node.remove_tree(destination)
        raise
    return time.monotonic() - began


def give(node: Node, directories: Sequence[str], account: str | None) -> None:
    """Give complete directories of the current user to ``account``; None keeps them. Links are not followed.

    chown changes the top directory last. Until then it has mode 0700, so that ``account`` cannot exchange what is below.

    Raises:
        TrialError: The owner cannot be changed.
    """
    if account is None or not directories:
        return
    completed = node.run(Command(["chown", "-hR", f"{account}:", "--", *directories]), timeout=600)
    if completed.code != 0:
        reason = (completed.err.strip().splitlines() or ["no reason given"])[0]
        raise TrialError(f"{directories[0]} cannot be given to user '{account}': {reason}")


def clone_all(
    node: Node,
    jobs: Sequence[tuple[Template, str]],
    account: str | None,
    at_once: int = 2,
    check_cancelled: Callable[[], None] = lambda: None,
) -> float:
    """Clone (template, destination) pairs, ``at_once`` at a time, and return the total duration in seconds.

    More than two concurrent copies only compete for the disk. A failure, Ctrl-C, or an error raised by ``check_cancelled``
    (called every ``_POLL_INTERVAL_S`` in this thread) ends the running copies. No further copy starts.

    Raises:
        CapabilityError: The disk space does not suffice for all clones.
        UsageError, TrialError: As in ``clone``.
    """
    began = time.monotonic()
    if jobs:
        check_space(node, os.path.dirname(jobs[0][1]), sum(template.bytes for template, _ in jobs), f"cloning {len(jobs)} servers")
    copies: dict[Future[float], str] = {}
    with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
        try:
            with interruption.undisturbed():  # a signal must not leave out a copy that has started
                copies = {pool.submit(clone, node, template, destination, account): destination for template, destination in jobs}
            pending = set(copies)
            while pending:
                ended, pending = wait(pending, _POLL_INTERVAL_S, FIRST_EXCEPTION)
                for copy in ended:
                    copy.result()
                interruption.check()
                check_cancelled()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _end_copies(node, copies)
            raise
    return time.monotonic() - began


def _end_copies(node: Node, copies: Mapping[Future[float], str]) -> None:
    """Kill the programs of running copies until all have ended. A copy may not have started its program yet."""
    while running := [destination for copy, destination in copies.items() if not copy.done()]:
        for destination in running:
            processes.kill(node, processes.working_in(node, os.path.realpath(destination), ("cp",)))
        time.sleep(_KILL_INTERVAL_S)


def drop_cache(node: Node, directories: Sequence[str]) -> None:
    """Write the large files of these directories to disk and evict them from the page cache.

    A memory cgroup is charged only for pages that its processes read. Pages left in the cache by a copy would be memory
    that a container uses without a charge.
    """
    large = ("-type", "f", "-size", "+256k")
    # The servers' user may exchange a file for a link to a device or for a FIFO meanwhile, which dd must not open.
    drop = ["dd", "if={}", "iflag=nocache,nofollow,nonblock", "count=0", "status=none"]
    for directory in directories:
        # Sync only these files, because a sync of the whole file system may take minutes under concurrent writes.
        for action, timeout in ((["sync", "-d", "--", "{}", "+"], 3600), ([*drop, ";"], 600)):
            node.run(Command(["find", directory, *large, "-exec", *action], can_be_called_off=True), timeout=timeout)


@dataclass(frozen=True)
class Prewarmed:
    """Amount of data read into shared buffers, and the method."""

    bytes: int
    method: Literal["pg_prewarm", "sequential scans"]


# Main forks of all relations: first tables and their TOAST tables, then indexes and sequences ('S').
PREWARM = """SELECT coalesce(sum(pg_prewarm(oid::regclass, 'buffer', 'main')), 0) * current_setting('block_size')::bigint
FROM (SELECT oid FROM pg_class WHERE relkind IN ('r', 't', 'm', 'i', 'S') AND relpersistence <> 't'
      ORDER BY relkind NOT IN ('r', 't', 'm'), oid) AS relations"""
"""Query that reads a complete database into shared buffers and returns the number of bytes."""
_TABLES = """SELECT n.nspname, c.relname, pg_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY c.oid"""


def prewarm(instance: Instance, database: str, look: Callable[[int], None] | None = None) -> Prewarmed:
    """Read a database into shared buffers with a backend of the server, so that the container is charged for them.

    Without the extension pg_prewarm the tables are scanned sequentially. PostgreSQL restricts the scan of a large table to
    a small ring of buffers, so this warms only the page cache. ``look`` is called with the backend's pid before it exits.
    """
    from psycopg import sql

    try:
        pid = int(instance.sql("SELECT pg_backend_pid()", database=database)[0][0]) if look else 0
        if instance.sql("SELECT 1 FROM pg_extension WHERE extname = 'pg_prewarm'", database=database):
            prewarmed = Prewarmed(int(instance.sql(PREWARM, database=database)[0][0]), "pg_prewarm")
            if look is not None:
                look(pid)
            return prewarmed
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
    template: Template,
    installation: Installation,
    *,
    account: str | None,
    directory: str,
    socket_dir: str,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Instance]:
    """Run a server on a temporary clone, to try scripts that may write.

    Args:
        node: Host of the server.
        template: Template to clone.
        installation: PostgreSQL programs.
        account: User that the server runs as.
        directory: Parent of the clone. pgherd must be able to write to it, and ``account`` to enter it.
        socket_dir: As for ``Instance``.
        settings: Settings to add to ``fsync = off``. They may allow huge pages, which are off otherwise.
    """
    data_dir = os.path.join(directory, "rehearsal")
    instance = Instance(node, installation, data_dir, socket_dir, account=account, name="rehearsal")
    try:
        clone(node, template, data_dir, account)
        instance.write_settings({"huge_pages": "off", **(settings or {}), "fsync": "off"})
        instance.start()
        instance.wait_ready()
        yield instance
    finally:
        instance.stop("immediate", 10.0)
        node.remove_tree(data_dir)
        if node.exists(instance.log):
            node.run(Command(["rm", "-f", "--", instance.log]))
