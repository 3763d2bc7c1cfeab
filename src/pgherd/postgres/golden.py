"""Golden copies: a loaded cluster, made once per PostgreSQL build and contents, that every server is cloned from.

A golden copy is a directory ``golden/KEY`` of the cache that holds ``data`` (a cluster, cleanly stopped and synced)
and ``golden.json``. It appears by a rename, so it is whole or not there at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pgherd.host.undo import end_in
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.protocol import Command, Filling, Node
from pgherd.postgres.disk import check_space, insist_enterable, patience, used_bytes
from pgherd.postgres.initdb import checksums_default, initdb
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance

SCHEMA = "pgherd/golden/1"
_MARKER = "golden.json"
_HELD = 75
"""With which flock(1) is to say that somebody else has the lock."""
_EMPTY_CLUSTER = 64 * 2**20

# Nothing of a golden copy that is being built needs to survive a crash, and nothing is measured. wal_level minimal
# skips the WAL of tables that are filled in the transaction that made them; a small min_wal_size leaves few segments
# to be cloned.
LOADING: Mapping[str, str] = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "dynamic_shared_memory_type": "mmap",  # files of the data directory, which go with it if the builder is killed
    "fsync": "off",
    "full_page_writes": "off",
    "maintenance_work_mem": "256MB",
    "max_logical_replication_workers": "0",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "min_wal_size": "32MB",
    "shared_buffers": "128MB",
    "synchronous_commit": "off",
    "wal_level": "minimal",
}
"""Settings under which a golden copy is loaded (never measured)."""

# A table's size has its TOAST table, free space and visibility maps in it.
_PARTS = """SELECT coalesce(sum(pg_table_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"""


@dataclass(frozen=True)
class Golden:
    """A finished golden copy.

    ``bytes`` is its use of disk, ``databases`` maps each database to its size in bytes (pg_database_size), ``made``
    is in seconds since the epoch, ``seconds`` how long it took, ``owner`` the account that owns its files. ``parts`` maps
    each database to the bytes of its ``tables`` and ``indexes``, catalogues aside.
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
    owner: str | None = None
    parts: dict[str, dict[str, int]] = field(kw_only=True)

    @property
    def data_dir(self) -> str:
        """The cluster."""
        return os.path.join(self.path, "data")


def key_of(installation: Installation, contents: Sequence[Filling], checksums: bool) -> str:
    """The directory name: readable, and different whenever build, databases, contents or checksums differ."""
    decisive = json.dumps([SCHEMA, installation.build, checksums, [(one.database, one.identity) for one in contents]])
    readable = "+".join(dict.fromkeys(one.identity for one in contents)) or "empty"
    readable = re.sub(r"[^A-Za-z0-9.+-]", "_", readable)[:40]
    return f"pg{installation.version}-{readable}-{hashlib.sha256(decisive.encode()).hexdigest()[:12]}"


def needed_bytes(contents: Sequence[Filling]) -> int:
    """Disk that building takes, in bytes, as far as sizes are known beforehand."""
    return _EMPTY_CLUSTER + int(1.1 * sum(one.size_estimate or 0 for one in contents))


def find(
    node: Node, installation: Installation, contents: Sequence[Filling], cache_dir: str, checksums: bool | None = None
) -> Golden | None:
    """The golden copy, if it has been made."""
    return at(node, cache_dir, key_of(installation, contents, _resolve(installation, checksums)))


def ensure(
    node: Node,
    installation: Installation,
    contents: Sequence[Filling],
    *,
    account: str | None,
    cache_dir: str,
    socket_dir: str,
    checksums: bool | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Golden:
    """The golden copy, made now if it has not been made yet. Two pgherds that want the same one make it once.

    ``socket_dir`` is a short path for the loading server's socket. ``checksums`` None: the version's own default.
    ``say`` gets a line whenever something begins that takes a while. What a killed builder left is discarded.

    Raises:
        UsageError: the contents cannot be loaded (an SQL error in an --init file).
        CapabilityError: too little disk, or the account cannot enter the cache.
        TrialError: initdb, the server or the loader failed.
    """
    resolved = _resolve(installation, checksums)
    key = key_of(installation, contents, resolved)
    if (made := at(node, cache_dir, key)) is not None:
        return made
    with assembling(node, cache_dir, key, needed_bytes(contents), account=account, say=say) as unfinished:
        if unfinished is not None:
            what = ", ".join(dict.fromkeys(one.identity for one in contents)) or "nothing"
            say(f"making a golden copy: PostgreSQL {installation.version} with {what}")
            _build(node, installation, contents, unfinished, key, account, socket_dir, resolved, say)
    if (made := at(node, cache_dir, key)) is None:
        raise TrialError(f"the golden copy {key} was removed as soon as it was there; run the command again")
    return made


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
    """A directory in which the copy of this key is put together: the body is to ``seal`` it, and it is then put in place. None where
    the copy has come to be there meanwhile. Nobody else makes the same one until the body ends; where it fails nothing is left.

    Who makes it here waits for others that do, and gives the directory to the account; else it stays our own.

    Raises:
        CapabilityError: there are fewer than ``needed`` bytes of disk, or the account cannot enter the cache.
        TrialError: it cannot be put in place; or another pgherd makes it, and it is not made here.
    """
    parent = os.path.join(cache_dir, "golden")
    node.make_dir(parent, mode=0o755)
    insist_enterable(node, parent, account)
    with _locked(node, os.path.join(parent, f".lock-{key}"), say, wait=made_here):
        if at(node, cache_dir, key) is not None:
            yield None
            return
        _discard(node, parent, key)
        check_space(node, parent, needed, "a golden copy")
        unfinished = os.path.join(parent, f".unfinished-{key}-{uuid.uuid4().hex[:8]}")
        try:
            node.make_dir(unfinished, mode=0o700, user=account if made_here else None)
            yield unfinished
            done = node.run(Command(["mv", "-T", "--", unfinished, os.path.join(parent, key)]))
            if done.code != 0:
                raise TrialError(f"the golden copy cannot be put in place: {done.err.strip()}")
        finally:
            node.remove_tree(unfinished)


def seal(node: Node, unfinished: str, golden: Golden) -> None:
    """Say what a directory that has been put together holds, and have all of it on the disk; raises TrialError."""
    node.write(os.path.join(unfinished, _MARKER), json.dumps({"schema": SCHEMA, **asdict(golden)}, indent=1).encode())
    # Without this a crash of the machine could leave a copy that looks whole and is not: nothing else has synced it.
    synced = node.run(Command(["sync", "-f", unfinished]), timeout=patience(golden.bytes))
    if synced.code != 0:
        raise TrialError(f"the golden copy cannot be written to disk: {synced.err.strip()}")


def at(node: Node, cache_dir: str, key: str) -> Golden | None:
    """The finished golden copy of this key, if there is one."""
    return _read(node, os.path.join(cache_dir, "golden", key))


def list_all(node: Node, cache_dir: str) -> list[Golden]:
    """All finished golden copies, oldest first."""
    parent = os.path.join(cache_dir, "golden")
    names = node.listdir(parent) if node.exists(parent) else []
    found = [_read(node, os.path.join(parent, name)) for name in names if not name.startswith(".")]
    return sorted((golden for golden in found if golden is not None), key=lambda golden: golden.made)


def prune(node: Node, cache_dir: str, keep: Sequence[str] = ()) -> list[str]:
    """Remove golden copies whose key is not in ``keep``, and what killed builders left; returns the removed names.

    A copy that another pgherd is building right now is left alone.
    """
    parent = os.path.join(cache_dir, "golden")
    removed: list[str] = []
    for name in node.listdir(parent) if node.exists(parent) else []:
        key = re.sub(r"^\.unfinished-|-[0-9a-f]{8}$", "", name) if name.startswith(".unfinished-") else name
        if name.startswith(".lock-") or name in keep or not _lock_is_free(node, os.path.join(parent, f".lock-{key}")):
            continue
        if _remove(node, parent, name, key):
            removed.append(name)
    return removed


def remove(node: Node, cache_dir: str, key: str) -> None:
    """Remove one golden copy; nothing happens if it is gone."""
    _remove(node, os.path.join(cache_dir, "golden"), key, key)


def _remove(node: Node, parent: str, name: str, key: str) -> bool:
    # Out of sight first: a copy that is half removed must not be taken for a whole one.
    doomed = os.path.join(parent, f".unfinished-{key}-{uuid.uuid4().hex[:8]}")
    if node.run(Command(["mv", "-T", "--", os.path.join(parent, name), doomed])).code != 0:
        return False
    end_in(node, doomed)  # a killed builder's server may still be shutting down
    node.remove_tree(doomed)
    return True


def _resolve(installation: Installation, checksums: bool | None) -> bool:
    return checksums_default(installation.major) if checksums is None else checksums


def _read(node: Node, home: str) -> Golden | None:
    try:
        marker = json.loads(node.read(os.path.join(home, _MARKER)))
        if marker.pop("schema") != SCHEMA:
            return None
        return Golden(**{**marker, "path": home, "contents": tuple(marker["contents"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not there, or not ours to understand: it is made again


def _discard(node: Node, parent: str, key: str) -> None:
    """Remove what stands where the copy will: builders that died, and a directory without a readable marker."""
    for name in node.listdir(parent):
        if name.startswith(f".unfinished-{key}-") or name == key:
            node.remove_tree(os.path.join(parent, name))


def _build(
    node: Node,
    installation: Installation,
    contents: Sequence[Filling],
    unfinished: str,
    key: str,
    account: str | None,
    socket_dir: str,
    checksums: bool,
    say: Callable[[str], None],
) -> None:
    began = node.now()
    data = os.path.join(unfinished, "data")
    initdb(node, installation, data, account=account, checksums=checksums)
    server = Instance(node, installation, data, socket_dir, account=account, name="golden", log=os.path.join(unfinished, "log"))
    server.write_settings(LOADING)
    server.start()
    try:
        server.wait_ready()
        _fill(server, contents, say)
        sizes = {one.database: int(server.sql("SELECT pg_database_size(%s)", [one.database])[0][0]) for one in contents}
        parts = {
            one.database: dict(zip(("tables", "indexes"), map(int, server.sql(_PARTS, database=one.database)[0]), strict=True))
            for one in contents
        }
        server.checkpoint()
        server.disconnect([one.database for one in contents])
        server.stop("fast", timeout=300)
    finally:
        server.disconnect([one.database for one in contents])
        server.stop("immediate")
    if server.ending() != "ended with exit code 0":
        raise TrialError(f"the loading server {server.ending()}; its log ends with:\n{server.log_tail(8)}")
    golden = Golden(
        key=key,
        path=os.path.join(os.path.dirname(unfinished), key),
        version=installation.version,
        contents=tuple(one.identity for one in contents),
        checksums=checksums,
        bytes=used_bytes(node, data),
        databases=sizes,
        made=node.now(),
        seconds=node.now() - began,
        owner=account,
        parts=parts,
    )
    seal(node, unfinished, golden)


def _fill(server: Instance, contents: Sequence[Filling], say: Callable[[str], None]) -> None:
    from psycopg import sql

    existing = {str(name) for (name,) in server.sql("SELECT datname FROM pg_database")}
    extension = bool(server.sql("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_prewarm'"))
    first: dict[str, str] = {}
    for one in contents:
        database = sql.Identifier(one.database)
        twin = first.setdefault(one.identity, one.database)
        if twin != one.database:
            # The same contents again: a file copy costs a fraction of loading.
            server.disconnect([twin])
            server.sql(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(database, sql.Identifier(twin)).as_string())
            continue
        if one.database not in existing:
            server.sql(sql.SQL("CREATE DATABASE {}").format(database).as_string())
        one.load(server, say)
        if extension:
            server.sql("CREATE EXTENSION IF NOT EXISTS pg_prewarm", database=one.database)
        # Frozen and with visibility maps, so that no measured SELECT has to set hint bits or waits for vacuum.
        server.sql("VACUUM (FREEZE, ANALYZE)", database=one.database)


@contextlib.contextmanager
def _locked(node: Node, path: str, say: Callable[[str], None], *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock that ends with us: flock(1) takes it and then becomes a sleeping process of ours."""
    how = [] if wait else ["--nonblock", "--conflict-exit-code", str(_HELD)]
    holder = node.spawn(Command(["flock", "--exclusive", *how, "--no-fork", path, "sleep", "infinity"]))
    try:
        told = False
        began = time.monotonic()
        while not _sleeps(node, holder.pid):
            if (code := holder.poll()) is not None:
                if code == _HELD:
                    raise TrialError(f"the golden copy {os.path.basename(path).removeprefix('.lock-')} is being made here")
                raise CapabilityError(f"{path} cannot be locked (flock ended with exit code {code}); check that the cache is writable")
            if not told and time.monotonic() - began > 1.0:
                say("waiting for another pgherd that makes the same golden copy")
                told = True
            time.sleep(0.005 if not told else 0.2)
        yield
    finally:
        holder.signal(9)
        holder.wait(10)


def _sleeps(node: Node, pid: int) -> bool:
    try:
        return node.read(f"/proc/{pid}/comm").strip() == b"sleep"
    except OSError:
        return False


def _lock_is_free(node: Node, path: str) -> bool:
    return node.run(Command(["flock", "--exclusive", "--nonblock", path, "true"])).code == 0
