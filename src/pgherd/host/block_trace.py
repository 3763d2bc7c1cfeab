"""Trace of block requests: recorded by `perf record`, and parsed from the text of `perf script`.

The tracepoints are block_rq_issue, block_rq_requeue and block_rq_complete. They are enabled only while perf runs, so
the host stays unchanged. perf needs root, or kernel.perf_event_paranoid at -1 and a readable tracefs. As root it mounts a missing
tracefs, which would stay, so it has separate mounts then.

A line of the text is ``SECONDS: block:block_rq_issue: MAJOR,MINOR RWBS BYTES (COMMAND) SECTOR + SECTORS …``
(include/trace/events/block.h of the kernel). Completions are matched to issues by device and sector. A flush of the device's
cache has no sectors. A request that completes in parts is one request, and ends with its last part. A request that the driver
requeues, because its queue is full, is issued again. It is one request from its first issue on. A completed write without
sectors is the end of a flush, which is counted itself. The kernel reports events that it could not deliver as PERF_RECORD_LOST.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host.permissions import effective_uid, in_container, is_mapped, privileges
from pgherd.model.device_io import BlockRequest, Direction
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node, Process

EVENTS = "block:block_rq_issue,block:block_rq_requeue,block:block_rq_complete"
_BUFFER_PAGES = "1024"
"""Pages of buffer per CPU. 4 MB hold about 30,000 events: half a second of 30,000 requests per second on one CPU."""
_END_TIMEOUT_S = 20.0
_READ_TIMEOUT_S = 300.0


def require_tracing(node: Node) -> None:
    """Require that this user can trace, by a short recording.

    Raises:
        CapabilityError: perf is not installed, or the kernel refuses. The message names a remedy.
    """
    reason = refused(node)
    if reason:
        raise CapabilityError(f"--trace-io: {reason}; without --trace-io, devices are reported per second instead of per request")


def refused(node: Node) -> str:
    """Return the reason why requests cannot be traced; '' if they can."""
    try:
        argv = (*_perf_record(node), "--event", EVENTS, "--output", "/dev/null", "--", "true")  # with the options of the trace
        result = node.run(Command(argv), timeout=15)
    except (OSError, TimeoutError):
        return _NOT_INSTALLED
    if result.code == 0:
        return ""
    message = " ".join(result.err.split())
    if result.code == 127 or "perf: not found" in message or "not found for kernel" in message:
        return _NOT_INSTALLED
    unknown = "unknown tracepoint" in message or "invalid or unsupported event" in message
    # Only root sees tracefs: to a user tracepoints are unknown.
    if unknown and effective_uid(node) != 0:
        return f"{_NOT_ALLOWED}; run pgherd as root"
    if any(word in message.lower() for word in ("permission", "paranoid", "access", "not permitted")):
        return f"{_NOT_ALLOWED}; {_remedy_to_trace(node)}"
    if unknown:
        return (
            "there are no block tracepoints in /sys/kernel/tracing; mount it as root (mount -t tracefs tracefs /sys/kernel/tracing), or "
            "use a kernel that has them"
        )
    return f"perf cannot record block tracepoints here: {message[:200] or f'exit code {result.code}'}"


def _perf_record(node: Node) -> tuple[str, ...]:
    """Return the first words of a recording."""
    mounted = b" - tracefs " in node.read("/proc/self/mountinfo")
    separate = () if mounted or effective_uid(node) != 0 else ("unshare", "--mount")
    version = re.search(r"(\d+)\.(\d+)", node.run(Command(("perf", "--version"))).out)
    # Without it perf reads the memory maps of all processes first. 5.16 brought the option.
    quick = ("--synth", "no") if version and (int(version[1]), int(version[2])) >= (5, 16) else ()
    return (*separate, "perf", "record", "--quiet", "--all-cpus", "--no-buildid", "--no-buildid-cache", "--clockid", "mono", *quick)


def _remedy_to_trace(node: Node) -> str:
    if effective_uid(node) != 0:
        return "run pgherd as root"
    if in_container(node):
        return f"start the container with {privileges()}"
    return "run pgherd as root of the host" if is_mapped(node) else "the kernel's lockdown or a security module forbids it to root"


_NOT_ALLOWED = "this user may not use the kernel's block tracepoints"
_NOT_INSTALLED = "perf is not installed (Debian: apt install linux-perf; Fedora: dnf install perf; Ubuntu: apt install linux-tools-generic)"
_NO_MESSAGE = "no error message"


class BlockTrace:
    """A perf process that records the requests of some devices until ``stop``."""

    def __init__(self, node: Node, devices: Sequence[str], directory: Path) -> None:
        """Start perf.

        Args:
            devices: device numbers, ``major:minor``.
            directory: place of perf's data file until ``lines`` has read it.

        Raises:
            CapabilityError: perf does not start.
        """
        self._node = node
        self._file = directory / "block-trace.data"
        self._log = directory / "block-trace.log"
        self._pipes = tuple(directory / f"block-trace.{name}" for name in ("control", "answer"))
        argv = [
            *(*_perf_record(node), "--mmap-pages", _BUFFER_PAGES, "--event", EVENTS),
            *(("--filter", _filter(devices)) if devices else ()),
            # perf splits the paths at commas, which a directory may contain: names within the working directory have none.
            *("--delay", "-1", "--control", f"fifo:{self._pipes[0].name},{self._pipes[1].name}", "--output", str(self._file)),
        ]
        for pipe in self._pipes:
            os.mkfifo(pipe, 0o600)
        self.clock = node.now() - time.monotonic()
        """Seconds to add to the trace's times (monotonic clock) for seconds since the epoch."""
        self._began, self.seconds = time.monotonic(), 0.0
        self._process: Process = node.spawn(Command(argv, cwd=str(directory), stdout=str(self._log), stderr=str(self._log)))
        try:
            self._enable()
        except OSError as error:
            self.abandon()
            raise CapabilityError(f"perf did not begin to trace ({error}): {self._error_text()}") from None
        except BaseException:  # the caller has no object yet, so perf must end here
            self.abandon()
            raise

    def _enable(self) -> None:
        """Enable the events on all CPUs at once; raises OSError if perf does not answer.

        A perf that records from its start opens the events one after another. Meanwhile it records completions without
        their issues, or issues without their completions.
        """
        deadline = time.monotonic() + _END_TIMEOUT_S
        control, answer = (os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in self._pipes)
        answered = select.poll()  # select(2) is limited to 1,024 descriptors, and sampling opens more
        answered.register(answer, select.POLLIN)
        try:
            os.write(control, b"enable\n")
            while not answered.poll(100):
                if self._process.poll() is not None:
                    raise OSError(f"exit code {self._process.poll()}")
                if time.monotonic() > deadline:
                    raise OSError(f"no answer within {_END_TIMEOUT_S:.0f} s")
        finally:
            os.close(control)
            os.close(answer)

    def stop(self) -> None:
        self._process.signal(signal.SIGINT)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except TimeoutError:
            self._process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                self._process.wait(_END_TIMEOUT_S)
        self.seconds = self.seconds or time.monotonic() - self._began

    @property
    def cpu(self) -> float | None:
        """CPU that perf used while it recorded, in cores.

        The cost of an event in the traced process is not included.
        """
        used = self._process.cpu_seconds
        return None if used is None or self.seconds <= 0 else used / self.seconds

    def lines(self, text: Path) -> Iterator[str]:
        """Yield the events as text, written to the file ``text`` first.

        Removes perf's data file.

        Raises:
            OSError: perf script fails.
        """
        argv = ["perf", "script", "--input", str(self._file), "--ns", "--show-lost-events", "--fields", "time,event,trace"]
        script = self._node.spawn(Command(argv, stdout=str(text), stderr="/dev/null"))
        try:
            code = script.wait(_READ_TIMEOUT_S)
        except TimeoutError:
            script.signal(signal.SIGKILL)
            code = -9
        if code != 0:
            raise OSError(f"perf script could not read the trace ({self._error_text()})")
        self.abandon()
        with open(text, errors="replace") as file:
            yield from file

    def abandon(self) -> None:
        """End perf if it runs, and remove its files."""
        if self._process.poll() is None:
            self.stop()
        for file in (self._file, Path(f"{self._file}.old"), *self._pipes):
            file.unlink(missing_ok=True)
        message = self._error_text()
        self._log.unlink(missing_ok=True)
        self._last_message = message

    def _error_text(self) -> str:
        with contextlib.suppress(OSError):
            return " ".join(self._log.read_text(errors="replace").split())[:200] or _NO_MESSAGE
        return getattr(self, "_last_message", _NO_MESSAGE)


def _filter(devices: Sequence[str]) -> str:
    """Return the kernel's event filter for these devices.

    Its dev_t is major × 2^20 + minor.
    """
    numbers = [tuple(map(int, device.split(":"))) for device in devices]
    return " || ".join(f"dev == {(major << 20) | minor}" for major, minor in numbers)


# ---- requests in the text of perf script


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
class TracedRequests:
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


def parse_trace(lines: Iterable[str]) -> TracedRequests:
    """Parse lines in order of time, as perf script writes them."""
    trace = TracedRequests()
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
