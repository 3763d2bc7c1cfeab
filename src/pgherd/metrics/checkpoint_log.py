"""Checkpoints from a server's log: the lines that log_checkpoints (on by default since PostgreSQL 15) writes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from pgherd.model.io_view import Checkpoint

_STARTING = re.compile(r"checkpoint starting: (?P<cause>.+)$")
_COMPLETE = re.compile(
    r"checkpoint complete: wrote (?P<buffers>\d+) buffers.*?write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s"
    r"(?:.*?distance=(?P<distance>\d+) kB)?"
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:UTC|GMT|Etc/UTC)\b")


def checkpoints(lines: Iterable[str], server: str, start: float, end: float) -> list[Checkpoint]:
    """The checkpoints that fall into the window from start to end (seconds since the epoch), also those that began before it
    or ended after it. Lines whose prefix does not begin with a time in UTC are left out: pgherd's servers log in UTC, with
    PostgreSQL's own prefix.
    """
    found: list[Checkpoint] = []
    open_: Checkpoint | None = None
    for line in lines:
        began, done = _STARTING.search(line), _COMPLETE.search(line)
        if not began and not done:
            continue
        at = _instant(line)
        if at is None:
            continue
        if began:
            if open_ is not None:  # it never ended: the server was killed
                found.append(open_)
            open_ = Checkpoint(server=server, start=at - start, cause=began["cause"].strip())
        elif done:
            distance = done["distance"]
            told = {
                "end": at - start,
                "buffers": int(done["buffers"]),
                "write_seconds": float(done["write"]),
                "sync_seconds": float(done["sync"]),
                "distance_bytes": int(distance) * 1024 if distance else None,
            }
            before = open_ or Checkpoint(server=server, start=at - float(done["total"]) - start)
            found.append(before.model_copy(update=told))
            open_ = None
    if open_ is not None:
        found.append(open_)
    return [one for one in found if one.start < end - start and (one.end is None or one.end > 0)]


def _instant(line: str) -> float | None:
    match = _TIME.match(line)
    if match is None:
        return None
    text = match[1] if "." in match[1] else f"{match[1]}.0"
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
