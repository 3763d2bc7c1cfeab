"""Data directory templates: loaded once per PostgreSQL build and contents, then cloned for each server.

A template is a directory ``golden/KEY`` of the cache. It contains ``data`` (a data directory, cleanly shut down and
synced) and ``golden.json``. It is created by a rename, so it is either complete or absent.

A finished template belongs to the user of pgherd, as does each directory around it. The servers' user owns ``data`` while
its server loads it. Otherwise that user could exchange files for links, and root would follow them when it copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from pgherd.host.undo_actions import end_in
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.files import UnsafeFileError
from pgherd.node.protocol import Command, DataLoader, Node
from pgherd.postgres.disk_space import check_space, patience, require_enterable, used_bytes
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, checksums_default, initdb

SCHEMA = "pgherd/golden/1"
DIRECTORY = "golden"
"""Directory of templates in the cache. Schema, directory and metadata file keep their earlier names, so that existing templates count."""
_MARKER = "golden.json"
_LOCKS = ".locks"
"""Directory of the locks, which only the user of pgherd can enter: whoever can open a file can lock it."""
_LOCKED_EXIT_CODE = 75
"""Exit code of flock(1) if another process holds the lock."""
_EMPTY_CLUSTER_BYTES = 64 * 2**20

# A template need not survive a crash while it is loaded, and loading is not measured. wal_level minimal skips the WAL of
# tables that are filled in the transaction that creates them. A small min_wal_size leaves few segments to clone.
LOADING: Mapping[str, str] = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "dynamic_shared_memory_type": "mmap",  # files in the data directory, removed with it if the builder is killed
    "fsync": "off",
    "full_page_writes": "off",
    "huge_pages": "off",  # reserved pages stay with their owner
    "maintenance_work_mem": "256MB",
    "max_logical_replication_workers": "0",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "min_wal_size": "32MB",
    "shared_buffers": "128MB",
    "synchronous_commit": "off",
    "wal_level": "minimal",
}
"""Settings of the server that loads a template, which is never measured."""

# A table's size includes its TOAST table, free space map and visibility map.
_PARTS = """SELECT coalesce(sum(pg_table_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"""


@dataclass(frozen=True)
class Template:
    """Finished template.

    ``bytes`` is its disk usage. ``databases`` maps each database to its size in bytes (pg_database_size), and ``parts`` to
    the bytes of its ``tables`` and ``indexes`` without system catalogs. ``made`` is in seconds since the epoch and ``seconds``
    the duration of loading.
    """

    key: str
    path: str
    version: str
    contents: tuple[str, ...]
    checksums: bool
    bytes: int
    databases: dict[str, int]
    made: float
    seconds: float
    parts: dict[str, dict[str, int]] = field(kw_only=True)

    @property
    def data_dir(self) -> str:
        """Path of the data directory."""
        return os.path.join(self.path, "data")


def key_of(installation: Installation, contents: Sequence[DataLoader], checksums: bool) -> str:
    """Return the directory name: readable, and unique for build, databases, contents and checksums."""
    identity = json.dumps([SCHEMA, installation.build, checksums, [(loader.database, loader.identity) for loader in contents]])
    readable = "+".join(dict.fromkeys(loader.identity for loader in contents)) or "empty"
    readable = re.sub(r"[^A-Za-z0-9.+-]", "_", readable)[:40]
    return f"pg{installation.version}-{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def needed_bytes(contents: Sequence[DataLoader]) -> int:
    """Estimate the disk space (bytes) for loading, from the contents whose size is known in advance."""
    return _EMPTY_CLUSTER_BYTES + int(1.1 * sum(loader.size_estimate or 0 for loader in contents))


def find(
    node: Node, installation: Installation, contents: Sequence[DataLoader], cache_dir: str, checksums: bool | None = None
) -> Template | None:
    """Return the template of these contents, or None if it does not exist."""
    return at(node, cache_dir, key_of(installation, contents, _resolve(installation, checksums)))


def ensure(
    node: Node,
    installation: Installation,
    contents: Sequence[DataLoader],
    *,
    account: str | None,
    cache_dir: str,
    socket_dir: str,
    checksums: bool | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Template:
    """Return the template, and create it first if it does not exist. Concurrent calls create it once.

    Leftovers of killed builders are removed.

    Args:
        node: Host of the cache.
        installation: PostgreSQL programs.
        contents: Loaders of the databases.
        account: User that servers run as.
        cache_dir: Directory of the cache.
        socket_dir: Directory, with a short path, for the socket of the loading server.
        checksums: Data checksums on or off. None: the default of the version.
        say: Callback for progress lines.

    Raises:
        UsageError: The contents cannot be loaded (an SQL error in an --init-script file).
        CapabilityError: The disk space does not suffice, or the account cannot enter the cache.
        TrialError: initdb, the server or a loader fails.
    """
    resolved = _resolve(installation, checksums)
    key = key_of(installation, contents, resolved)
    if (template := at(node, cache_dir, key)) is not None:
        return template
    with assembling(node, cache_dir, key, needed_bytes(contents), account=account, say=say) as unfinished:
        if unfinished is not None:
            description = ", ".join(dict.fromkeys(loader.identity for loader in contents)) or "nothing"
            say(f"creating a template: PostgreSQL {installation.version} with {description}")
            _build(node, installation, contents, unfinished, key, account, socket_dir, resolved, say)
    if (template := at(node, cache_dir, key)) is None:
        raise TrialError(f"the template {key} was removed right after its creation; run the command again")
    return template


@contextlib.contextmanager
def assembling(
    node: Node,
    cache_dir: str,
    key: str,
    needed: int,
    *,
    account: str | None,
    say: Callable[[str], None] = lambda _: None,
    made_here: bool = True,
) -> Iterator[str | None]:
    """Open a directory in which the body assembles the template ``key``; put it in place at the end.

    The body must call ``seal``. The directory is None if the template exists after all. A lock excludes other builders of
    the same template until the body ends. The directory is removed if the body fails.

    With ``made_here`` this waits for other builders. The directory belongs to the current user, and ``account`` can enter it.

    Raises:
        CapabilityError: Fewer than ``needed`` bytes of disk are free, or the account cannot enter the cache.
        TrialError: The template cannot be put in place. Without ``made_here``: another process creates it.
    """
    parent = os.path.join(cache_dir, DIRECTORY)
    node.make_dir(parent, mode=0o755)
    require_enterable(node, parent, account)
    node.make_dir(os.path.join(parent, _LOCKS), mode=0o700)
    with _locked(node, _lock(parent, key), say, wait=made_here):
        if at(node, cache_dir, key) is not None:
            yield None
            return
        _discard(node, parent, key)
        check_space(node, parent, needed, "a template")
        unfinished = os.path.join(parent, f".unfinished-{key}-{uuid.uuid4().hex[:8]}")
        try:
            node.make_dir(unfinished, mode=0o711)
            yield unfinished
            moved = node.run(Command(["mv", "-T", "--", unfinished, os.path.join(parent, key)]))
            if moved.code != 0:
                raise TrialError(f"the template cannot be put in place: {moved.err.strip()}")
        finally:
            node.remove_tree(unfinished)


def seal(node: Node, unfinished: str, template: Template) -> None:
    """Write the metadata of an assembled directory and sync it to disk; raises TrialError."""
    node.write(os.path.join(unfinished, _MARKER), json.dumps({"schema": SCHEMA, **asdict(template)}, indent=1).encode())
    # A crash of the host could otherwise leave a template that looks complete, because no earlier step syncs the files.
    synced = node.run(Command(["sync", "-f", unfinished], can_be_called_off=True), timeout=patience(template.bytes))
    if synced.code != 0:
        raise TrialError(f"the template cannot be written to disk: {synced.err.strip()}")


def at(node: Node, cache_dir: str, key: str) -> Template | None:
    """Return the finished template of this key, or None if it does not exist."""
    return _read(node, os.path.join(cache_dir, DIRECTORY, key))


def list_all(node: Node, cache_dir: str) -> list[Template]:
    """Return all finished templates, oldest first."""
    parent = os.path.join(cache_dir, DIRECTORY)
    names = node.listdir(parent) if node.exists(parent) else []
    templates = [_read(node, os.path.join(parent, name)) for name in names if not name.startswith(".")]
    return sorted((template for template in templates if template is not None), key=lambda template: template.made)


def prune(node: Node, cache_dir: str, keep: Sequence[str] = ()) -> list[str]:
    """Remove leftovers of killed builders and templates whose key is not in ``keep``; return the removed names.

    Templates that another process is creating are kept.
    """
    parent = os.path.join(cache_dir, DIRECTORY)
    removed: list[str] = []
    if not node.exists(parent):
        return removed
    node.make_dir(os.path.join(parent, _LOCKS), mode=0o700)
    for name in node.listdir(parent):
        key = re.sub(r"^\.unfinished-|-[0-9a-f]{8}$", "", name) if name.startswith(".unfinished-") else name
        if name == _LOCKS or name in keep or not _lock_is_free(node, _lock(parent, key)):
            continue
        if _remove(node, parent, name, key):
            removed.append(name)
    return removed


def remove(node: Node, cache_dir: str, key: str) -> None:
    """Remove one template if it exists."""
    _remove(node, os.path.join(cache_dir, DIRECTORY), key, key)


def _remove(node: Node, parent: str, name: str, key: str) -> bool:
    # Rename first, because a partly removed template must not be taken for a complete one.
    doomed = os.path.join(parent, f".unfinished-{key}-{uuid.uuid4().hex[:8]}")
    if node.run(Command(["mv", "-T", "--", os.path.join(parent, name), doomed])).code != 0:
        return False
    end_in(node, doomed)  # the server of a killed builder may still be shutting down
    node.remove_tree(doomed)
    return True


def _resolve(installation: Installation, checksums: bool | None) -> bool:
    return checksums_default(installation.major) if checksums is None else checksums


def _read(node: Node, home: str) -> Template | None:
    try:
        if not _is_ours(home) or not _is_ours(os.path.join(home, "data")):
            return None
        marker = json.loads(node.read_untrusted(os.path.join(home, _MARKER)))
        if marker.pop("schema") != SCHEMA:
            return None
        return Template(**{**marker, "path": home, "contents": tuple(marker["contents"])})
    except (OSError, UnsafeFileError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, or of another format: it is created again


def _is_ours(directory: str) -> bool:
    """Return True for a directory in which only this user can exchange files."""
    status = os.lstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _discard(node: Node, parent: str, key: str) -> None:
    """Remove leftovers at the template's path: of killed builders, or without readable metadata."""
    for name in node.listdir(parent):
        if name.startswith(f".unfinished-{key}-") or name == key:
            node.remove_tree(os.path.join(parent, name))


def _build(
    node: Node,
    installation: Installation,
    contents: Sequence[DataLoader],
    unfinished: str,
    key: str,
    account: str | None,
    socket_dir: str,
    checksums: bool,
    say: Callable[[str], None],
) -> None:
    started = node.now()
    data = os.path.join(unfinished, "data")
    initdb(node, installation, data, account=account, checksums=checksums)
    server = Instance(node, installation, data, socket_dir, account=account, name="template", log=os.path.join(unfinished, "log"))
    server.write_settings({**LOADING, **{name: value for loader in contents for name, value in loader.settings.items()}})
    server.start()
    try:
        server.wait_ready()
        _fill(server, contents, say)
        databases = list(dict.fromkeys(loader.database for loader in contents))
        sizes = {name: int(server.sql("SELECT pg_database_size(%s)", [name])[0][0]) for name in databases}
        parts = {name: dict(zip(("tables", "indexes"), map(int, server.sql(_PARTS, database=name)[0]), strict=True)) for name in databases}
        server.checkpoint()
        server.disconnect(databases)
        server.stop("fast", timeout=300)
    finally:
        server.disconnect([loader.database for loader in contents])
        server.stop("immediate")
    if server.ending() != "ended with exit code 0":
        raise TrialError(f"the loading server {server.ending()}; its log ends with:\n{server.log_tail(8)}")
    if account is not None:
        # The directory itself first: what the load left running cannot enter it any more.
        for recursive in ((), ("-R",)):
            taken = node.run(Command(["chown", "-h", *recursive, "--", f"{os.geteuid()}:{os.getegid()}", data]), timeout=600)
            if taken.code != 0:
                raise TrialError(f"the template {key} cannot be taken from user '{account}': {taken.err.strip()}")
    template = Template(
        key=key,
        path=os.path.join(os.path.dirname(unfinished), key),
        version=installation.version,
        contents=tuple(loader.identity for loader in contents),
        checksums=checksums,
        bytes=used_bytes(node, data),
        databases=sizes,
        made=node.now(),
        seconds=node.now() - started,
        parts=parts,
    )
    seal(node, unfinished, template)


def _fill(server: Instance, contents: Sequence[DataLoader], say: Callable[[str], None]) -> None:
    from psycopg import sql

    existing = {str(name) for (name,) in server.sql("SELECT datname FROM pg_database")}
    extension = bool(server.sql("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_prewarm'"))
    first: dict[tuple[str, ...], str] = {}
    for name, group in groupby(contents, lambda loader: loader.database):
        loaders, database = list(group), sql.Identifier(name)
        twin = first.setdefault(tuple(loader.identity for loader in loaders), name)
        if twin != name:
            # Copy equal contents, because a file copy costs a fraction of loading.
            server.disconnect([twin])
            server.sql(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(database, sql.Identifier(twin)).as_string())
            continue
        if name not in existing:
            server.sql(sql.SQL("CREATE DATABASE {}").format(database).as_string())
        for loader in loaders:  # one for a whole database, or one for each of its schemas
            loader.load(server, say)
        if extension:
            server.sql("CREATE EXTENSION IF NOT EXISTS pg_prewarm", database=name)
        # Freeze rows and set the visibility map, so that no measured SELECT sets hint bits or waits for vacuum.
        server.sql("VACUUM (FREEZE, ANALYZE)", database=name)


@contextlib.contextmanager
def _locked(node: Node, path: str, say: Callable[[str], None], *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock that ends with this process: flock(1) takes it and becomes a sleeping child process."""
    mode = [] if wait else ["--nonblock", "--conflict-exit-code", str(_LOCKED_EXIT_CODE)]
    holder = node.spawn(Command(["flock", "--exclusive", *mode, "--no-fork", path, "sleep", "infinity"]))
    try:
        reported = False
        started = time.monotonic()
        while not _sleeps(node, holder.pid):
            if (code := holder.poll()) is not None:
                if code == _LOCKED_EXIT_CODE:
                    raise TrialError(f"the template {os.path.basename(path)} is being created by another process")
                raise CapabilityError(f"{path} cannot be locked (flock ended with exit code {code}); check that the cache is writable")
            if not reported and time.monotonic() - started > 1.0:
                say("waiting for another pgherd that creates the same template")
                reported = True
            time.sleep(0.005 if not reported else 0.2)
        yield
    finally:
        holder.signal(9)
        holder.wait(10)


def _sleeps(node: Node, pid: int) -> bool:
    try:
        return node.read(f"/proc/{pid}/comm").strip() == b"sleep"
    except OSError:
        return False


def _lock(parent: str, key: str) -> str:
    return os.path.join(parent, _LOCKS, key)


def _lock_is_free(node: Node, path: str) -> bool:
    return node.run(Command(["flock", "--exclusive", "--nonblock", path, "true"])).code == 0
