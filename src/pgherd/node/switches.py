"""Voluntary context switches of a process and its children: how often they slept until something woke them up.

A process that starts and ends between two readings is missed. One that has ended keeps its count.
"""

from __future__ import annotations

import re

_VOLUNTARY = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)


class Switches:
    """Counts the switches since the first reading."""

    def __init__(self, pid: str, proc: str = "/proc") -> None:
        self._pid, self._proc = pid, proc
        self._counts: dict[str, int] | None = None
        self._total = 0

    def read(self) -> str:
        """Return the number so far. Raises OSError if the process has ended."""
        with open(f"{self._proc}/{self._pid}/task/{self._pid}/children") as file:
            children = file.read().split()
        before, self._counts = self._counts, {}
        for pid in (self._pid, *children):
            try:
                count = self._count(pid)
            except OSError:
                if pid == self._pid:
                    raise
                continue  # it has ended
            self._counts[pid] = count
            if before is not None:
                self._total += count - before.get(pid, 0)
        return str(self._total)

    def _count(self, pid: str) -> int:
        with open(f"{self._proc}/{pid}/status") as file:
            match = _VOLUNTARY.search(file.read())
        if match is None:
            raise OSError(f"/proc/{pid}/status has no voluntary_ctxt_switches")
        return int(match[1])
