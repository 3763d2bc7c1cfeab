"""Tracing block requests with `perf record` on the kernel's tracepoints block_rq_issue, block_rq_requeue and
block_rq_complete.

Nothing of the host is changed: the events are enabled for as long as perf runs, and go with it. perf needs root (or
kernel.perf_event_paranoid at -1 and a readable tracefs).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node, Process

EVENTS = "block:block_rq_issue,block:block_rq_requeue,block:block_rq_complete"
_PAGES = "1024"
"""Pages of buffer for each CPU: 4 MB hold some 30,000 events, half a second of 30,000 requests a second on one CPU."""
_END_SECONDS = 20.0
_READ_SECONDS = 300.0


def insist(node: Node) -> None:
    """Find out by trying whether this user can trace.

    Raises:
        CapabilityError: perf is not installed, or the kernel refuses; the message says what would help.
    """
    why = refused(node)
    if why:
        raise CapabilityError(f"--trace: {why}; without --trace the devices are shown by second, but not request by request")


def refused(node: Node) -> str:
    """Why requests cannot be traced here; '' when they can."""
    argv = ("perf", "record", "--quiet", "--all-cpus", "--no-buildid", "--event", EVENTS, "--output", "/dev/null", "--", "true")
    try:
        done = node.run(Command(argv), timeout=15)
    except (OSError, TimeoutError):
        return _NOT_INSTALLED
    if done.code == 0:
        return ""
    said = " ".join(done.err.split())
    if done.code == 127 or "perf: not found" in said or "not found for kernel" in said:
        return _NOT_INSTALLED
    if any(word in said.lower() for word in ("permission", "paranoid", "access", "not permitted")):
        return "this user has no right to the kernel's block tracepoints; run as root, or set kernel.perf_event_paranoid to -1"
    if "unknown tracepoint" in said or "invalid or unsupported event" in said:
        return "this kernel shows no block tracepoints (tracefs is not mounted on /sys/kernel/tracing, or it was built without them)"
    return f"perf cannot record block tracepoints here: {said[:200] or f'it ended with exit code {done.code}'}"


_NOT_INSTALLED = "perf is not installed (Debian: apt install linux-perf; Fedora: dnf install perf; Ubuntu: apt install linux-tools-generic)"


class BlockTrace:
    """perf, recording the requests of some devices until ``stop``."""

    def __init__(self, node: Node, devices: Sequence[str], directory: Path) -> None:
        """Start it; ``devices`` are numbers ``major:minor``, ``directory`` takes perf's file until ``lines`` has read it.

        Raises:
            CapabilityError: it does not start.
        """
        self._node = node
        self._file = directory / "block-trace.data"
        self._words = directory / "block-trace.said"
        self._pipes = tuple(directory / f"block-trace.{name}" for name in ("control", "answer"))
        argv = [
            *("perf", "record", "--quiet", "--all-cpus", "--no-buildid", "--no-buildid-cache", "--synth", "no"),
            *("--clockid", "mono", "--mmap-pages", _PAGES, "--event", EVENTS),
            *(("--filter", _filter(devices)) if devices else ()),
            *("--delay", "-1", "--control", f"fifo:{self._pipes[0]},{self._pipes[1]}", "--output", str(self._file)),
        ]
        for pipe in self._pipes:
            os.mkfifo(pipe, 0o600)
        self.clock = node.now() - time.monotonic()
        """What the trace's times lack to the seconds since the epoch."""
        self._began, self.seconds = time.monotonic(), 0.0
        self._process: Process = node.spawn(Command(argv, stdout=str(self._words), stderr=str(self._words)))
        try:
            self._enable()
        except OSError as error:
            self.abandon()
            raise CapabilityError(f"perf did not begin to trace ({error}): {self._said()}") from None
        except BaseException:  # nobody else knows of it
            self.abandon()
            raise

    def _enable(self) -> None:
        """Have the events counted from now on, on all CPUs at once; raises OSError where perf does not answer.

        A perf that counts as soon as it starts sees the first completions of requests without their issues, or the other way
        round, for as long as it takes to open all events.
        """
        deadline = time.monotonic() + _END_SECONDS
        control, answer = (os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in self._pipes)
        answered = select.poll()  # not select(2): beside a large sample there are more descriptors than it takes
        answered.register(answer, select.POLLIN)
        try:
            os.write(control, b"enable\n")
            while not answered.poll(100):
                if self._process.poll() is not None:
                    raise OSError(f"it ended with exit code {self._process.poll()}")
                if time.monotonic() > deadline:
                    raise OSError(f"it did not answer within {_END_SECONDS:.0f} s")
        finally:
            os.close(control)
            os.close(answer)

    def stop(self) -> None:
        """End the recording."""
        self._process.signal(signal.SIGINT)
        try:
            self._process.wait(_END_SECONDS)
        except TimeoutError:
            self._process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                self._process.wait(_END_SECONDS)
        self.seconds = self.seconds or time.monotonic() - self._began

    @property
    def cpu(self) -> float | None:
        """CPU that perf itself used while it recorded, in cores; what an event costs the process that causes it is not in it."""
        used = self._process.cpu_seconds
        return None if used is None or self.seconds <= 0 else used / self.seconds

    def lines(self, text: Path) -> Iterator[str]:
        """The events as text, which is written to ``text`` and read from there; perf's own file is removed.

        Raises:
            OSError: perf script fails.
        """
        argv = ["perf", "script", "--input", str(self._file), "--ns", "--show-lost-events", "--fields", "time,event,trace"]
        done = self._node.spawn(Command(argv, stdout=str(text), stderr="/dev/null"))
        try:
            code = done.wait(_READ_SECONDS)
        except TimeoutError:
            done.signal(signal.SIGKILL)
            code = -9
        if code != 0:
            raise OSError(f"perf script could not read what was traced ({self._said()})")
        self.abandon()
        with open(text, errors="replace") as file:
            yield from file

    def abandon(self) -> None:
        """End it if it runs, and remove its files."""
        if self._process.poll() is None:
            self.stop()
        for file in (self._file, Path(f"{self._file}.old"), *self._pipes):
            file.unlink(missing_ok=True)
        said = self._said()
        self._words.unlink(missing_ok=True)
        self._last = said

    def _said(self) -> str:
        with contextlib.suppress(OSError):
            return " ".join(self._words.read_text(errors="replace").split())[:200] or "it said nothing"
        return getattr(self, "_last", "it said nothing")


def _filter(devices: Sequence[str]) -> str:
    """The kernel's filter for events of these devices: dev_t is major × 2^20 + minor there."""
    numbers = [tuple(map(int, device.split(":"))) for device in devices]
    return " || ".join(f"dev == {(major << 20) | minor}" for major, minor in numbers)
