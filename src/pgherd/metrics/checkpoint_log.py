"""Parser of checkpoints in a server's log. Pure.

The lines are those of log_checkpoints, which is on by default since PostgreSQL 15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from pgherd.model.device_io import Checkpoint

_STARTING = re.compile(r"checkpoint starting: (?P<cause>.+)$")
_COMPLETE = re.compile(
    r"checkpoint complete: wrote (?P<buffers>\d+) buffers.*?write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s"
    r"(?:.*?distance=(?P<distance>\d+) kB)?"
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:UTC|GMT|Etc/UTC)\b")


def checkpoints(lines: Iterable[str], server: str, start: float, end: float) -> list[Checkpoint]:
    """Return the checkpoints that overlap the window from start to end (seconds since the epoch).

    Lines whose prefix does not start with a time in UTC are left out. The servers of pgherd log in UTC with PostgreSQL's
    default prefix.
    """
    results: list[Checkpoint] = []
    running: Checkpoint | None = None
    for line in lines:
        starting, complete = _STARTING.search(line), _COMPLETE.search(line)
        if not starting and not complete:
            continue
        at = _timestamp(line)
        if at is None:
            continue
        if starting:
            if running is not None:  # it never ended, because the server was killed
                results.append(running)
            running = Checkpoint(server=server, start=at - start, cause=starting["cause"].strip())
        elif complete:
            distance = complete["distance"]
            fields = {
                "end": at - start,
                "buffers": int(complete["buffers"]),
                "write_seconds": float(complete["write"]),
                "sync_seconds": float(complete["sync"]),
                "distance_bytes": int(distance) * 1024 if distance else None,
            }
            checkpoint = running or Checkpoint(server=server, start=at - float(complete["total"]) - start)
            results.append(checkpoint.model_copy(update=fields))
            running = None
    if running is not None:
        results.append(running)
    return [checkpoint for checkpoint in results if checkpoint.start < end - start and (checkpoint.end is None or checkpoint.end > 0)]


def _timestamp(line: str) -> float | None:
    match = _TIME.match(line)
    if match is None:
        return None
    text = match[1] if "." in match[1] else f"{match[1]}.0"
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
