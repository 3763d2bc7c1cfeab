"""Random sample of 1 MB segments from the relations of a database or from files.

Each source has a separate ratio: a relation, or a directory directly below the one that is read. Above ``MAX_SOURCES``, the smaller
sources are combined, so that each has enough segments.
"""

from __future__ import annotations

import bisect
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pgherd.model.errors import TrialError
from pgherd.postgres.relations import Relation, Relations
from pgherd.studies.compression.options import SEGMENT

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
        """Total number of segments."""
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
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError:  # removed in the meantime, or not readable
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
