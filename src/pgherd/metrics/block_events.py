"""Requests of block devices from the text of `perf script` over block_rq_issue, block_rq_requeue and block_rq_complete. Pure.

A line is ``SECONDS: block:block_rq_issue: MAJOR,MINOR RWBS BYTES (COMMAND) SECTOR + SECTORS …`` (include/trace/events/block.h
of the kernel). A flush of the device's cache has no sectors. Completions are matched to issues by device and sector; a request
that completes in parts is one whose last part counts; one that the driver hands back (its queue is full) is issued again, and
is one from its first issue on. The completion of a write without sectors belongs to a flush, which is counted itself. What the
kernel could not deliver stands there as PERF_RECORD_LOST.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pgherd.model.io_view import BlockRequest, Direction

SECTOR = 512
_EVENT = re.compile(
    r"\s*(?P<time>\d+\.\d+):\s+block:block_rq_(?P<event>issue|requeue|complete):\s+(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>\w+) "
    r"(?:(?P<bytes>\d+) )?\(.*\) (?P<sector>\d+) \+ (?P<sectors>\d+)"
)
_LOST = re.compile(r"PERF_RECORD_LOST(?:_SAMPLES)? lost (\d+)")
_OPERATION = re.compile(r"F?(?P<what>[WRDNF])")
"""A leading F is a flush before the request itself (blk_fill_rwbs of the kernel)."""
_DIRECTIONS: dict[str, Direction] = {"W": "write", "R": "read", "D": "discard", "F": "flush"}


@dataclass
class Trace:
    """What a text holds: requests in the order in which they were issued; ``events`` read, those ``lost``, lines that are
    ``foreign``; ``unmatched`` completions whose issue was not seen; ``requeued`` how often a request was handed back."""

    requests: list[BlockRequest] = field(default_factory=list)
    events: int = 0
    lost: int = 0
    foreign: int = 0
    unmatched: int = 0
    requeued: int = 0

    @property
    def incomplete(self) -> int:
        """Requests whose completion was not seen, and completions whose issue was not."""
        return self.unmatched + sum(request.completed is None for request in self.requests)


def parse(lines: Iterable[str]) -> Trace:
    """Read a text; lines in order of time, as perf script writes them."""
    trace = Trace()
    waiting: dict[tuple[str, bool, int], list[int]] = {}
    left: dict[int, int] = {}
    handed_back: dict[tuple[str, bool, int], list[int]] = {}
    for line in lines:
        found = _EVENT.match(line)
        if found is None:
            lost = _LOST.search(line)
            trace.lost += int(lost[1]) if lost else 0
            trace.foreign += not lost and bool(line.strip())
            continue
        trace.events += 1
        what = _OPERATION.match(found["rwbs"])
        direction = _DIRECTIONS.get(what["what"]) if what else None
        if direction is None:  # a command that moves no data of a file, such as a driver's own
            continue
        device, sector, sectors = f"{int(found['major'])}:{int(found['minor'])}", int(found["sector"]), int(found["sectors"])
        flush = direction == "flush"
        if flush:
            sector = sectors = 0  # a driver may say anything here
        key = (device, flush, sector)
        if found["event"] == "issue":
            if handed_back.get(key):
                waiting.setdefault(key, []).append(handed_back[key].pop())
                continue
            size = 0 if flush else int(found["bytes"] or sectors * SECTOR)
            left[len(trace.requests)] = sectors
            waiting.setdefault(key, []).append(len(trace.requests))
            trace.requests.append(BlockRequest(device, direction, sector * SECTOR, size, float(found["time"]), None))
            continue
        queue = waiting.get(key)
        if not queue:
            trace.unmatched += bool(sectors) or flush
            continue
        # The latest: an earlier one whose completion was lost must not shift those that follow.
        place = queue.pop()
        if found["event"] == "requeue":
            trace.requeued += 1
            handed_back.setdefault(key, []).append(place)
            continue
        if not queue:
            del waiting[key]
        if left[place] > sectors > 0:  # the rest completes later, from a later sector on
            left[place] -= sectors
            waiting.setdefault((device, flush, sector + sectors), []).append(place)
            continue
        trace.requests[place] = trace.requests[place]._replace(completed=float(found["time"]))
    return trace
