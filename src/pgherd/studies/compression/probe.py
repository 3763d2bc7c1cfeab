"""Probe 'compression': compress segments of one kind of data, block by block.

``Trial.asked`` has ``codecs`` and ``blocks`` (comma-separated), ``samples`` and ``seed``, ``form`` (plain or encrypted), and for the
user's data ``dsn`` or ``directory``. ``filesystem`` is a directory on a file system that compresses. ``analyse`` documents the names of
the readings.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.files import UnsafeFileError, open_regular
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones, templates
from pgherd.postgres.external_server import ExternalServer
from pgherd.postgres.installations import Installation
from pgherd.postgres.relation_files import Query, Relation, Relations
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.studies.compression.options import ENCRYPTED, FILE_SYSTEM, SECTOR, SEGMENT
from pgherd.workloads.registry import loaders

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
    request = trial.probe_options
    codecs = {name: codec(name) for name in request["codecs"].split(",")}
    blocks = [int(size) for size in request["blocks"].split(",")]
    with contextlib.ExitStack() as stack:
        sources = stack.enter_context(_open_sources(session, installations, trial, watcher))
        directory = stack.enter_context(CompressedDirectory(session, request["filesystem"])) if "filesystem" in request else None
        readings = dict(size_readings(sources))
        for source in sources:
            watcher.setup(f"compressing {source.name}, {trial.point.get('data')}, {request['form']}")
            numbers = choose_segments(sources, int(request["samples"]), int(request["seed"]))[source.name]
            for number, data in source.read(numbers):
                interruption.check()
                if request["form"] == ENCRYPTED:
                    data = encrypt(data)
                readings[f"raw_bytes/{number}/{source.name}"] = float(len(data))
                for name, compress in codecs.items():
                    for block in blocks:
                        exact, stored = compressed_sizes(compress, data, block, SECTOR)
                        readings[f"compressed_bytes/{name}/{block}/{number}/{source.name}"] = float(exact)
                        readings[f"stored_bytes/{name}/{block}/{number}/{source.name}"] = float(stored)
                if directory is not None:
                    directory.write(f"{number}/{source.name}", data)
        for name, size in directory.sizes().items() if directory is not None else ():
            readings[f"compressed_bytes/{FILE_SYSTEM}/0/{name}"] = readings[f"stored_bytes/{FILE_SYSTEM}/0/{name}"] = size
        return readings


@contextlib.contextmanager
def _open_sources(
    session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver
) -> Iterator[Sequence[SegmentSource]]:
    """Open the trial's data for reading in this context."""
    import psycopg

    request = trial.probe_options
    try:
        if "directory" in request:
            yield sources_of_directory(request["directory"])
        elif "dsn" in request:
            passfile = str(session.work / "passfile-compression")
            server = ExternalServer(session.node, request["dsn"], name="dsn", passfile=passfile, account=session.account)
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
    return sources_of_relations(relations)


@contextlib.contextmanager
def _cloned_server(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> Iterator[Query]:
    """Run a server on a temporary clone of the data directory template."""
    _, _, server = next(iter(trial.deployment.servers()))
    installation, node = installations[server.bin], session.node
    sockets = str(session.sockets / "template")
    node.make_dir(sockets, mode=0o700, user=session.account)
    contents = loaders(node, server.databases, server.settings)
    template = templates.ensure(
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


# ---- random sample of 1 MB segments from the relations of a database or from files
# Each source has a separate ratio: a relation, or a directory directly below the one that is read. Above MAX_SOURCES, the smaller
# sources are combined, so that each has enough segments.

MAX_SOURCES = 12
MIN_SEGMENTS = 4
"""Minimum of segments to read from each source, if it has that many."""
OTHERS = "all others together"


@dataclass(frozen=True)
class SegmentReader:
    """Readable range: its size in bytes, and a function that reads ``(offset, length)``."""

    size: int
    read: Callable[[int, int], bytes]

    @property
    def segments(self) -> int:
        """Number of 1 MB segments. The last one may be shorter."""
        return -(-self.size // SEGMENT)


@dataclass(frozen=True)
class SegmentSource:
    """Relation or directory with its readers."""

    name: str
    readers: Sequence[SegmentReader]

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(reader.size for reader in self.readers)

    @property
    def segments(self) -> int:
        return sum(reader.segments for reader in self.readers)

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the segments with these numbers and their bytes. Segments that no longer exist are skipped."""
        ends = list(accumulate(reader.segments for reader in self.readers))
        for number in numbers:
            index = bisect.bisect_right(ends, number)
            reader = self.readers[index]
            offset = (number - (ends[index - 1] if index else 0)) * SEGMENT
            data = reader.read(offset, min(SEGMENT, reader.size - offset))
            if data:
                yield number, data


def merge_small_sources(sources: Sequence[SegmentSource], limit: int = MAX_SOURCES) -> list[SegmentSource]:
    """Return the sources that are not empty, largest first. Above the limit, the smaller ones become one source."""
    ordered = sorted((source for source in sources if source.size > 0), key=lambda source: (-source.size, source.name))
    if len(ordered) <= limit:
        return ordered
    others = [reader for source in ordered[limit - 1 :] for reader in source.readers]
    return [*ordered[: limit - 1], SegmentSource(OTHERS, others)]


def choose_segments(sources: Sequence[SegmentSource], samples: int, seed: int) -> dict[str, list[int]]:
    """Return source → numbers of the segments to read, in proportion to its size but at least ``MIN_SEGMENTS`` if it has them."""
    total = sum(source.segments for source in sources)
    numbers = {}
    for source in sources:
        count = min(source.segments, max(MIN_SEGMENTS, round(samples * source.segments / max(total, 1))))
        numbers[source.name] = sorted(random.Random(f"{seed} {source.name}").sample(range(source.segments), count))
    return numbers


def sources_of_relations(relations: Relations) -> list[SegmentSource]:
    """Return the relations of a database as sources."""
    return merge_small_sources(
        [SegmentSource(relation.name, (SegmentReader(relation.size, _relation_reader(relations, relation)),)) for relation in relations.all]
    )


def sources_of_directory(directory: str) -> list[SegmentSource]:
    """Return the regular files below a local directory as sources. Links and other file systems are skipped.

    Raises:
        TrialError: the directory cannot be read, or has no data.
    """
    try:
        device = os.stat(directory).st_dev
    except OSError as error:
        raise TrialError(f"directory {directory} cannot be read: {error.strerror}") from None
    readers: dict[str, list[SegmentReader]] = {}
    for parent, subdirectories, files in os.walk(directory):
        subdirectories[:] = sorted(name for name in subdirectories if _is_on_device(os.path.join(parent, name), device))
        top = os.path.relpath(parent, directory).split(os.sep)[0]
        for name in sorted(files):
            path = os.path.join(parent, name)
            size = _readable_size(path)
            if size:
                readers.setdefault("files at the top" if top == "." else f"{top}/", []).append(SegmentReader(size, _file_reader(path)))
    if not readers:
        raise TrialError(f"directory {directory} holds no file that is readable and not empty")
    return merge_small_sources([SegmentSource(name, source_readers) for name, source_readers in readers.items()])


def size_readings(sources: Sequence[SegmentSource]) -> Mapping[str, float]:
    """Return the size and the number of segments of each source as readings."""
    sizes = {f"size_bytes/{source.name}": float(source.size) for source in sources}
    return sizes | {f"segments/{source.name}": float(source.segments) for source in sources}


def _relation_reader(relations: Relations, relation: Relation) -> Callable[[int, int], bytes]:
    return lambda offset, length: relations.read(relation, offset, length)


def _file_reader(path: str) -> Callable[[int, int], bytes]:
    def read(offset: int, length: int) -> bytes:
        try:
            with open_regular(path) as number:
                return os.pread(number, length, offset)
        except (OSError, UnsafeFileError):  # removed or exchanged in the meantime, or not readable
            return b""

    return read


def _is_on_device(path: str, device: int) -> bool:
    try:
        return not os.path.islink(path) and os.stat(path).st_dev == device
    except OSError:
        return False


def _readable_size(path: str) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK) else 0


# ---- codecs and encryption of data in memory, by their Python libraries

_PAGE_BYTES = 8192
"""Unit of encryption. Databases encrypt each page separately."""

_MAX_ZSTD_LEVEL = 22

Codec = Callable[[bytes], int]
"""Function from a block to its compressed size in bytes, at most the block's size because storage keeps such blocks uncompressed."""


def require_codec(name: str) -> None:
    """Require a known codec. Raises UsageError."""
    level = re.fullmatch(r"zstd-(\d{1,2})", name)
    if name != "lz4" and not (level and 1 <= int(level[1]) <= _MAX_ZSTD_LEVEL):
        raise UsageError(f"unknown codec '{name}'; use lz4 or zstd-LEVEL with a level of 1 to {_MAX_ZSTD_LEVEL}, such as zstd-3")


def codec(name: str) -> Codec:
    """Return the codec lz4 (block format, default acceleration) or zstd-LEVEL (frames without checksum and size).

    Raises UsageError if the codec is unknown.
    """
    require_codec(name)
    if name == "lz4":
        import lz4.block

        return lambda block: min(len(block), len(lz4.block.compress(block, store_size=False)))
    import zstandard

    compressor = zstandard.ZstdCompressor(level=int(name.removeprefix("zstd-")), write_content_size=False, write_checksum=False)
    return lambda block: min(len(block), len(compressor.compress(block)))


def encrypt(data: bytes) -> bytes:
    """Encrypt data like a database with encrypted pages: AES-256 in counter mode, with a separate nonce for each 8 kB page.

    The key is discarded.
    """
    from cryptography.hazmat.primitives import ciphers

    key = os.urandom(32)
    pages = []
    for start in range(0, len(data), _PAGE_BYTES):
        encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(os.urandom(16))).encryptor()
        pages.append(encryptor.update(data[start : start + _PAGE_BYTES]) + encryptor.finalize())
    return b"".join(pages)


def compressed_sizes(compress: Codec, data: bytes, block: int, sector: int) -> tuple[int, int]:
    """Return the size of the data after compression in blocks of ``block`` bytes, and the same with blocks rounded up to sectors.

    A rounded block never takes more than the uncompressed one.
    """
    view, exact, stored = memoryview(data), 0, 0
    for start in range(0, len(data), block):
        piece = bytes(view[start : start + block])
        size = compress(piece)
        exact += size
        stored += min(-(-size // sector) * sector, -(-len(piece) // sector) * sector)
    return exact, stored


def versions(codecs: Sequence[str], *, encrypts: bool, realistic: bool) -> dict[str, str]:
    """Return package → version of the libraries that a run uses."""
    from importlib.metadata import version

    packages = {"lz4" if name == "lz4" else "zstandard" for name in codecs}
    packages |= {name for name, used in (("cryptography", encrypts), ("mimesis", realistic)) if used}
    return {package: version(package) for package in sorted(packages)}


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
            raise CapabilityError(
                "compsize, which reports btrfs's compressed sizes, is missing; install btrfs-compsize (Fedora, SUSE: compsize)"
            ) from None
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
