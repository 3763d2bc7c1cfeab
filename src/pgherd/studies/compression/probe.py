"""Probe 'compression': compress segments of one kind of data, block by block.

``Trial.asked`` has ``codecs`` and ``blocks`` (comma-separated), ``samples`` and ``seed``, ``form`` (plain or encrypted), and for the
user's data ``dsn`` or ``directory``. ``filesystem`` is a directory on a file system that compresses. ``analyse`` documents the names of
the readings.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones, golden
from pgherd.postgres.external import External
from pgherd.postgres.installations import Installation
from pgherd.postgres.relations import Query, Relations
from pgherd.runner.observer import RunObserver
from pgherd.runner.session import RunSession
from pgherd.studies.compression import probe_codecs, probe_segments
from pgherd.studies.compression.options import ENCRYPTED, FILE_SYSTEM, SECTOR
from pgherd.studies.compression.probe_segments import SegmentSource
from pgherd.workloads.registry import fillings

FORBIDDEN = (
    "{dsn}: permission denied for the relations' files; run as superuser: GRANT EXECUTE ON FUNCTION "
    "pg_read_binary_file(text, bigint, bigint, boolean) TO the user (and GRANT pg_read_server_files TO it for tablespaces)"
)

COMPRESSING_FILE_SYSTEMS = ("btrfs", "zfs")
_COMPSIZE_TOTAL = re.compile(r"^TOTAL\s+\d+%\s+(\d+)\s+(\d+)\s+(\d+)", re.MULTILINE)
_SYNC_TIMEOUT_S = 120.0


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Compress the sampled segments of the trial's data with every requested codec and block size.

    Raises:
        TrialError: the data cannot be read.
        CapabilityError: a library is missing.
        UsageError: a codec is unknown, or the connection to the user's database fails.
    """
    request = trial.asked
    codecs = {name: probe_codecs.codec(name) for name in request["codecs"].split(",")}
    blocks = [int(size) for size in request["blocks"].split(",")]
    with contextlib.ExitStack() as stack:
        sources = stack.enter_context(_sources(session, installations, trial, watcher))
        directory = stack.enter_context(CompressedDirectory(session, request["filesystem"])) if "filesystem" in request else None
        readings = dict(probe_segments.size_readings(sources))
        for source in sources:
            watcher.setup(f"compressing {source.name}, {trial.point.get('kind')}, {request['form']}")
            numbers = probe_segments.choose_segments(sources, int(request["samples"]), int(request["seed"]))[source.name]
            for number, data in source.read(numbers):
                interruption.insist()
                if request["form"] == ENCRYPTED:
                    data = probe_codecs.encrypt(data)
                readings[f"raw_bytes/{number}/{source.name}"] = float(len(data))
                for name, compress in codecs.items():
                    for block in blocks:
                        exact, stored = probe_codecs.compressed_sizes(compress, data, block, SECTOR)
                        readings[f"compressed_bytes/{name}/{block}/{number}/{source.name}"] = float(exact)
                        readings[f"stored_bytes/{name}/{block}/{number}/{source.name}"] = float(stored)
                if directory is not None:
                    directory.write(f"{number}/{source.name}", data)
        for name, size in directory.sizes().items() if directory is not None else ():
            readings[f"compressed_bytes/{FILE_SYSTEM}/0/{name}"] = readings[f"stored_bytes/{FILE_SYSTEM}/0/{name}"] = size
        return readings


@contextlib.contextmanager
def _sources(
    session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver
) -> Iterator[Sequence[SegmentSource]]:
    """Open the trial's data for reading in this context."""
    import psycopg

    request = trial.asked
    try:
        if "directory" in request:
            yield probe_segments.sources_of_directory(request["directory"])
        elif "dsn" in request:
            passfile = str(session.work / "passfile-compression")
            server = External(session.node, request["dsn"], name="dsn", passfile=passfile, account=session.account)
            try:
                yield _sources_of_database(server.sql, request["dsn"])
            finally:
                server.disconnect()
        else:
            with _cloned_server(session, installations, trial, watcher) as query:
                yield _sources_of_database(query, "the server")
    except psycopg.Error as error:
        raise TrialError(f"the data cannot be read: {str(error).strip()}") from None


def _sources_of_database(query: Query, server: str) -> list[SegmentSource]:
    relations = Relations(query)
    if not relations.all:
        raise TrialError(f"{server}: the database holds no table with rows")
    if not relations.readable:
        raise TrialError(FORBIDDEN.format(dsn=server))
    return probe_segments.sources_of_relations(relations)


@contextlib.contextmanager
def _cloned_server(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> Iterator[Query]:
    """Run a server on a temporary clone of the data directory template."""
    _, _, server = next(iter(trial.deployment.servers()))
    installation, node = installations[server.bin], session.node
    sockets = str(session.sockets / "golden")
    node.make_dir(sockets, mode=0o700, user=session.account)
    contents = fillings(node, server.databases)
    template = golden.ensure(
        node,
        installation,
        contents,
        account=session.account,
        cache_dir=str(session.cache),
        socket_dir=sockets,
        checksums=server.checksums,
        say=watcher.setup,
    )
    directory = str(session.work)
    with clones.rehearsal(node, template, installation, account=session.account, directory=directory, socket_dir=sockets) as instance:
        yield partial(_query, instance, server.databases[0].name)


def _query(instance: Any, database: str, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = instance.sql(statement, parameters, database=database)
    return rows


# ---- file systems that compress


def file_system_type(node: Node, directory: str) -> str:
    """Return the type of a directory's file system, named as by stat(1). Raises UsageError if the directory does not exist."""
    result = node.run(Command(["stat", "--file-system", "--format=%T", "--", directory]))
    if result.code != 0:
        raise UsageError(f"--filesystem {directory}: {result.err.strip()}")
    return result.out.strip()


def require_compressing(node: Node, directory: str) -> str:
    """Return the type of a file system that compresses and reports the compressed size of a file.

    Raises:
        UsageError: the directory does not exist.
        CapabilityError: the file system does not compress, or compsize is not installed.
    """
    kind = file_system_type(node, directory)
    if kind not in COMPRESSING_FILE_SYSTEMS:
        raise CapabilityError(f"--filesystem {directory}: {kind} does not compress files; {' and '.join(COMPRESSING_FILE_SYSTEMS)} do")
    if kind == "btrfs":
        try:
            node.run(Command(["compsize", "--help"]))
        except OSError:
            raise CapabilityError("compsize, which reports btrfs's compressed sizes, is missing; install btrfs-compsize") from None
    return kind


class CompressedDirectory:
    """Temporary directory on a file system that compresses. The journal records it, so that pgherd clean removes it after a crash.

    ZFS reports compressed sizes as the blocks of a file (stat(2), after a sync). For btrfs, the tool compsize reports them.
    """

    def __init__(self, session: RunSession, directory: str) -> None:
        self._session, self._node = session, session.node
        self._path = os.path.join(os.path.abspath(directory), f"pgherd-compression-{session.journal.id[:8]}")
        self._names: list[str] = []
        self._kind = require_compressing(session.node, directory)
        self._undo = 0

    def __enter__(self) -> CompressedDirectory:
        try:
            self._undo = self._session.journal.make_tree(self._path)
        except OSError as error:
            raise TrialError(f"{self._path} cannot be created: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session.journal.undo(self._undo)

    def write(self, name: str, data: bytes) -> None:
        """Write a segment to a new file. Raises TrialError if that fails."""
        try:
            Path(self._path, str(len(self._names))).write_bytes(data)
        except OSError as error:
            raise TrialError(f"{self._path}: {error.strerror}") from None
        self._names.append(name)

    def sizes(self) -> dict[str, float]:
        """Sync, and return name → bytes of the file on disk. Raises TrialError if the file system does not report them."""
        result = self._node.run(Command(["sync", "-f", "--", self._path]), timeout=_SYNC_TIMEOUT_S)
        if result.code != 0:
            raise TrialError(f"{self._path}: {result.err.strip()}")
        return {name: self._size(str(number)) for number, name in enumerate(self._names)}

    def _size(self, file: str) -> float:
        path = os.path.join(self._path, file)
        if self._kind == "zfs":
            return float(os.stat(path).st_blocks * 512)
        result = self._node.run(Command(["compsize", "-b", path]))
        return parse_compsize(result.out, result.err)


def parse_compsize(out: str, err: str = "") -> float:
    """Return the bytes on disk from compsize's line TOTAL. Raises TrialError with its output if the line is missing."""
    match = _COMPSIZE_TOTAL.search(out)
    if not match:
        raise TrialError(f"compsize reported no compressed size: {err.strip() or out.strip()}")
    return float(match[1])
