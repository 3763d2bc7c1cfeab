"""The samplings of a guest's agent: files and process trees, read once per period, wait in its memory until the host fetches them.

It runs inside the guest beside ``agent``, and is as poor as that in what it imports.
"""

from __future__ import annotations

import os
import time
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

RECORD = Struct("<QiI")  # the head of one reading: instant, index of the source (of a failure its complement), bytes that follow
MOST_WAITING = 8 << 20  # bytes of readings that wait to be fetched; ticks beyond are lost, and counted
NEVER = 1 << 62  # when a sampling is due that has been stopped
_WHOLE = 2048  # many files of /proc come by the page: a longer answer may not be all of it
_BESIDE = 1  # the tick as which a reading beside the ticks counts: sources that are not read on each are left out


class Sampling:
    """Files and process trees that are read once per period; the readings wait in memory until they are fetched."""

    def __init__(self, period: int) -> None:
        """``period`` is in nanoseconds; the first tick is due at once."""
        self.period, self.due = period, time.monotonic_ns()
        self.lost = self._tick = self._size = 0
        self._sources: list[tuple[bytes, str, int]] = []
        self._open: dict[str, int] = {}
        self._gone: set[int] = set()
        self._waiting: list[bytes] = []

    def add(self, sources: Sequence[tuple[bytes, bytes, int]]) -> None:
        """Read these too: (kind 'file' or 'tree', path or pid, read on each n-th tick)."""
        self._sources += [(kind, os.fsdecode(where), every) for kind, where, every in sources]

    def tick(self) -> None:
        """Do the reading that is due, and say when the next one is."""
        self.read(self._tick, everything=self._tick == 0)
        self._tick += 1
        self.due = max(self.due + self.period, time.monotonic_ns())

    def read(self, tick: int = _BESIDE, *, everything: bool = False) -> None:
        """Read the sources whose turn it is, or all."""
        if self._size > MOST_WAITING:
            self.lost += 1
            return
        found = self._waiting
        for index, (kind, where, every) in enumerate(self._sources):
            if index in self._gone or (tick % every and not everything):
                continue
            now = time.time_ns()
            try:
                raw = self._tree(where) if kind == b"tree" else self._file(where)
            except OSError as error:
                if kind == b"tree" or where.startswith("/proc/"):
                    self._gone.add(index)  # a process that has ended does not come back
                raw, index = str(error).encode(errors="replace"), ~index
            found.append(RECORD.pack(now, index, len(raw)))
            found.append(raw)
            self._size += RECORD.size + len(raw)

    def _file(self, path: str) -> bytes:
        number = self._open.get(path)
        if number is None:
            number = self._open[path] = os.open(path, os.O_RDONLY)
        raw = os.pread(number, 65536, 0)
        return raw if len(raw) < _WHOLE else raw + pread(number, len(raw))

    def _tree(self, pid: str) -> bytes:
        """The stat lines of a process and its children. An open file reads as gone when its process is, whoever has the pid next."""
        lines = []
        for one in (pid, *self._file(f"/proc/{pid}/task/{pid}/children").decode().split()):
            path = f"/proc/{one}/stat"
            try:
                lines.append(self._file(path).rstrip(b"\n"))
            except OSError:
                if path in self._open:
                    os.close(self._open.pop(path))
                if one == pid:
                    raise
        return b"\n".join(lines)

    def fetch(self, most: int) -> list[Any]:
        """[whether there is more, ticks lost, records]; what is fetched is forgotten."""
        data = b"".join(self._waiting)
        piece, rest = data[:most], data[most:]
        self._waiting = [rest] if rest else []
        self._size = len(rest)
        return [int(bool(rest)), self.lost, piece]

    def close(self) -> None:
        """Close all files."""
        close_all(self._open.values())
        self._open = {}


def pread(number: int, at: int = 0, most: int = NEVER) -> bytes:
    """A file from a place to its end, or ``most`` bytes of it."""
    pieces = []
    while most and (piece := os.pread(number, min(most, 65536), at)):
        pieces.append(piece)
        at += len(piece)
        most -= len(piece)
    return b"".join(pieces)


def close_all(files: Iterable[int]) -> None:
    """Close file descriptors."""
    for number in files:
        os.close(number)
