"""What the manager sees and sets, as lines of a spool (format: ``Node.sample``), beside those of a node's own sampling loop.

Both append whole lines to one file, each in one write, so that they do not mix. The manager numbers its sources from ``FIRST`` on, where
no loop's own numbers come.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIRST = 1_000_000
BALLOON, DRIVES, MANAGER = "guest_balloon", "qemu_blockstats", "balloon_manager"
"""The samplers that parse the lines (pgherd.metrics)."""
_SELF = "platform:balloon-manager"


class BalloonSpool:
    """An open spool. A full disk stops it and is kept in ``error``: the balloons must go on."""

    def __init__(self, path: Path) -> None:
        """Open it for appending; raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._numbers: dict[tuple[str, str], int] = {}
        self.error: OSError | None = None

    def write(self, readings: Sequence[tuple[float, str, str, Any]]) -> None:
        """Append (seconds since the epoch, sampler, guest, what is to be parsed), as JSON; a text instead is why there is nothing. What
        the manager says of itself is of no guest ('')."""
        lines: list[str] = []
        for at, sampler, guest, raw in readings:
            number = self._numbers.get((sampler, guest))
            if number is None:
                number = self._numbers[sampler, guest] = FIRST + len(self._numbers)
                described = [[sampler, f"guest:{guest}" if guest else _SELF, "qmp", guest, guest]]
                lines.append(_line({"sources": described, "first": number}))
            document: dict[str, Any] = {"t": round(at, 6), "i": number}
            document |= {"raw": None, "error": raw} if isinstance(raw, str) else {"raw": raw}
            lines.append(_line(document))
        if not lines or self.error is not None:
            return
        data = memoryview(("\n".join(lines) + "\n").encode())
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
