"""Data cut into segments of 1 MB, of which some are chosen at random and read: relations of a database, or files.

A part is what gets a ratio of its own: a relation, or a directory directly below the one that is read. Beyond ``MOST_PARTS``
the smaller ones are taken together, so that each has enough segments.
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
"""Segments to read of each part, as far as it has them."""
OTHERS = "all others together"


@dataclass(frozen=True)
class SegmentReader:
    """Something that can be read in pieces: its size in bytes, and how to read ``(offset, length)``."""

    size: int
    read: Callable[[int, int], bytes]

    @property
    def segments(self) -> int:
        """Of 1 MB; the last may be shorter."""
        return -(-self.size // SEGMENT)


@dataclass(frozen=True)
class SegmentSource:
    """A relation or a directory: what it is called and what it consists of."""

    name: str
    extents: Sequence[SegmentReader]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(extent.size for extent in self.extents)

    @property
    def segments(self) -> int:
        """In all."""
        return sum(extent.segments for extent in self.extents)

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The segments of these numbers with their bytes; one that is gone meanwhile is left out."""
        ends = list(accumulate(extent.segments for extent in self.extents))
        for number in numbers:
            place = bisect.bisect_right(ends, number)
            extent = self.extents[place]
            offset = (number - (ends[place - 1] if place else 0)) * SEGMENT
            data = extent.read(offset, min(SEGMENT, extent.size - offset))
            if data:
                yield number, data


def merge_small_sources(parts: Sequence[SegmentSource], most: int = MAX_SOURCES) -> list[SegmentSource]:
    """The parts that hold something, largest first; where there are more than ``most``, the smaller ones as one."""
    ordered = sorted((part for part in parts if part.size > 0), key=lambda part: (-part.size, part.name))
    if len(ordered) <= most:
        return ordered
    rest = [extent for part in ordered[most - 1 :] for extent in part.extents]
    return [*ordered[: most - 1], SegmentSource(OTHERS, rest)]


def choose_segments(parts: Sequence[SegmentSource], samples: int, seed: int) -> dict[str, list[int]]:
    """Part → numbers of the segments to read: in proportion to its size, but at least ``LEAST`` as far as it has them."""
    whole = sum(part.segments for part in parts)
    found = {}
    for part in parts:
        count = min(part.segments, max(MIN_SEGMENTS, round(samples * part.segments / max(whole, 1))))
        found[part.name] = sorted(random.Random(f"{seed} {part.name}").sample(range(part.segments), count))
    return found


def sources_of_relations(relations: Relations) -> list[SegmentSource]:
    """The relations of a database as parts."""
    return merge_small_sources([SegmentSource(one.name, (SegmentReader(one.size, _reader(relations, one)),)) for one in relations.all])


def sources_of_directory(directory: str) -> list[SegmentSource]:
    """The ordinary files below a directory of this machine as parts; links are not followed, other file systems not entered.

    Raises:
        TrialError: it cannot be read, or holds nothing.
    """
    try:
        device = os.stat(directory).st_dev
    except OSError as error:
        raise TrialError(f"directory {directory} cannot be read: {error.strerror}") from None
    found: dict[str, list[SegmentReader]] = {}
    for place, below, files in os.walk(directory):
        below[:] = sorted(name for name in below if _stays(os.path.join(place, name), device))
        top = os.path.relpath(place, directory).split(os.sep)[0]
        for name in sorted(files):
            path = os.path.join(place, name)
            size = _size(path)
            if size:
                found.setdefault("files at the top" if top == "." else f"{top}/", []).append(SegmentReader(size, _file_reader(path)))
    if not found:
        raise TrialError(f"directory {directory} holds no file that can be read and has a byte in it")
    return merge_small_sources([SegmentSource(name, extents) for name, extents in found.items()])


def size_readings(parts: Sequence[SegmentSource]) -> Mapping[str, float]:
    """Size and number of segments of each part, by the names of pgherd.studies.compression.readings."""
    sizes = {f"size_bytes/{part.name}": float(part.size) for part in parts}
    return sizes | {f"segments/{part.name}": float(part.segments) for part in parts}


def _reader(relations: Relations, relation: Relation) -> Callable[[int, int], bytes]:
    return lambda offset, length: relations.read(relation, offset, length)


def _file_reader(path: str) -> Callable[[int, int], bytes]:
    def read(offset: int, length: int) -> bytes:
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError:  # gone meanwhile, or not ours to read
            return b""

    return read


def _stays(path: str, device: int) -> bool:
    try:
        return not os.path.islink(path) and os.stat(path).st_dev == device
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK) else 0
