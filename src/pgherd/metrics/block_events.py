"""Parser of block requests in the text of `perf script` over block_rq_issue, block_rq_requeue and block_rq_complete. Pure.

A line is ``SECONDS: block:block_rq_issue: MAJOR,MINOR RWBS BYTES (COMMAND) SECTOR + SECTORS …``
(include/trace/events/block.h of the kernel).

Completions are matched to issues by device and sector. A flush of the device's cache has no sectors. A request that completes in parts is
one request, and ends with its last part. A request that the driver requeues, because its queue is full, is issued again. It is one
request from its first issue on. A completed write without sectors is the end of a flush, which is counted itself. The kernel
reports events that it could not deliver as PERF_RECORD_LOST.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pgherd.model.device_io import BlockRequest, Direction

SECTOR = 512
_EVENT = re.compile(
    r"\s*(?P<time>\d+\.\d+):\s+block:block_rq_(?P<event>issue|requeue|complete):\s+(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>\w+) "
    r"(?:(?P<bytes>\d+) )?\(.*\) (?P<sector>\d+) \+ (?P<sectors>\d+)"
)
_LOST = re.compile(r"PERF_RECORD_LOST(?:_SAMPLES)? lost (\d+)")
_OPERATION = re.compile(r"F?(?P<operation>[WRDNF])")
"""A leading F is a flush before the request itself (blk_fill_rwbs of the kernel)."""
_DIRECTIONS: dict[str, Direction] = {"W": "write", "R": "read", "D": "discard", "F": "flush"}


@dataclass
class Trace:
    """Parsed events.

    Attributes:
        requests: in the order of their issue.
        events: number of events read.
        lost: number of events that the kernel lost.
        foreign: lines that are no event.
        unmatched: completions without their issue.
        requeued: requeue events.
    """

    requests: list[BlockRequest] = field(default_factory=list)
    events: int = 0
    lost: int = 0
    foreign: int = 0
    unmatched: int = 0
    requeued: int = 0

    @property
    def incomplete(self) -> int:
        """Number of requests without completion and completions without issue."""
        return self.unmatched + sum(request.completed is None for request in self.requests)


def parse(lines: Iterable[str]) -> Trace:
    """Parse lines in order of time, as perf script writes them."""
    trace = Trace()
    # (device, is flush, sector) → indexes of requests.
    waiting: dict[tuple[str, bool, int], list[int]] = {}
    requeued: dict[tuple[str, bool, int], list[int]] = {}
    sectors_left: dict[int, int] = {}
    for line in lines:
        event = _EVENT.match(line)
        if event is None:
            lost = _LOST.search(line)
            trace.lost += int(lost[1]) if lost else 0
            trace.foreign += not lost and bool(line.strip())
            continue
        trace.events += 1
        operation = _OPERATION.match(event["rwbs"])
        direction = _DIRECTIONS.get(operation["operation"]) if operation else None
        if direction is None:  # a command without file data, such as a driver's internal command
            continue
        device, sector, sectors = f"{int(event['major'])}:{int(event['minor'])}", int(event["sector"]), int(event["sectors"])
        flush = direction == "flush"
        if flush:
            sector = sectors = 0  # drivers may report arbitrary numbers here
        key = (device, flush, sector)
        if event["event"] == "issue":
            if requeued.get(key):
                waiting.setdefault(key, []).append(requeued[key].pop())
                continue
            size = 0 if flush else int(event["bytes"] or sectors * SECTOR)
            sectors_left[len(trace.requests)] = sectors
            waiting.setdefault(key, []).append(len(trace.requests))
            trace.requests.append(BlockRequest(device, direction, sector * SECTOR, size, float(event["time"]), None))
            continue
        queue = waiting.get(key)
        if not queue:
            trace.unmatched += bool(sectors) or flush
            continue
        # Take the latest, because an earlier request whose completion was lost must not shift the later ones.
        index = queue.pop()
        if event["event"] == "requeue":
            trace.requeued += 1
            requeued.setdefault(key, []).append(index)
            continue
        if not queue:
            del waiting[key]
        if sectors_left[index] > sectors > 0:  # the remainder completes later, starting at a later sector
            sectors_left[index] -= sectors
            waiting.setdefault((device, flush, sector + sectors), []).append(index)
            continue
        trace.requests[index] = trace.requests[index]._replace(completed=float(event["time"]))
    return trace
