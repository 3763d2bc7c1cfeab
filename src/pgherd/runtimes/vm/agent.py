"""Agent inside a guest: reads files, starts processes, samples and reports the time over one serial port (``agent_wire``).

It runs on Python's standard library (3.11 or later) and imports little of that, because an import of ten milliseconds takes half a second
on an emulated processor. It therefore has no threads, no json, no subprocess, and one poll loop. Its three files ``agent``,
``agent_tasks`` and ``agent_wire`` are in one directory of the guest, without a package.

Processes that it starts end with it. A new session ends the captured commands and the sampling loops of the previous session, because no
caller waits for them. Other processes continue.
"""

from __future__ import annotations

import os
import select
import sys
import time

try:
    import _signal as signal  # type: ignore[import-not-found]  # the module around it costs an import of enum
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

if TYPE_CHECKING or __package__:
    from pgherd.runtimes.vm.agent_tasks import NEVER, AgentChild, AgentSamplingLoop, account, close_all, pread, start
    from pgherd.runtimes.vm.agent_wire import CHUNK_BYTES, FrameDecoder, decode, encode, frame
else:  # inside the guest
    from agent_tasks import NEVER, AgentChild, AgentSamplingLoop, account, close_all, pread, start
    from agent_wire import CHUNK_BYTES, FrameDecoder, decode, encode, frame

_RETRY_SECONDS = 0.2  # poll interval of a port without a host, because poll() would return at once
_END_SECONDS = 10.0  # for a command to clean up after its death signal
_LATER = object()


class Agent:
    """Poll loop and operations of the agent. Each method ``do_NAME`` is an operation."""

    def __init__(self, port: int) -> None:
        os.set_blocking(port, False)
        self.port = port
        self._poll = select.poll()
        self._poll.register(port, select.POLLIN)
        self._there, self._writing, self._again = True, False, 0.0
        self._frames = FrameDecoder()
        self._out: list[memoryview] = []
        self._session = self._request = self._received = self._serial = 0
        self._children: dict[int, AgentChild] = {}
        self._handles: dict[int, AgentChild] = {}
        self._samplings: dict[int, AgentSamplingLoop] = {}

    def serve(self) -> None:
        """Run the poll loop forever."""
        while True:
            ready = self._poll.poll(self._patience())
            self._received = time.time_ns()
            for number, event in ready:
                if number == self.port:
                    self._attend(event)
                elif number in self._handles:
                    self._reap(self._handles[number])
            self._keep_time()

    def _patience(self) -> int | None:
        """Return the milliseconds until the next deadline."""
        dues = [sampling.due / 1e9 for sampling in self._samplings.values() if sampling.due != NEVER]
        dues += [child.deadline for child in self._children.values() if child.deadline]
        if not self._there:
            dues.append(self._again)
        return max(0, int((min(dues) - time.monotonic()) * 1000) + 1) if dues else None

    def _keep_time(self) -> None:
        now = time.monotonic()
        for sampling in self._samplings.values():
            if sampling.due <= now * 1e9:
                sampling.tick()
        for child in list(self._children.values()):
            if child.deadline and child.deadline <= now:
                self._overdue(child)
        if not self._there and self._again <= now:
            self._there = True
            self._poll.register(self.port, select.POLLIN)

    def _attend(self, event: int) -> None:
        if event & select.POLLOUT:
            self._flush()
        if event & select.POLLIN:
            try:
                data = os.read(self.port, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                for session, number, body in self._frames.feed(data):
                    self._handle(session, number, body)
                return
        elif not event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            return
        # The host has disconnected: drop all pending data, and start with a new frame.
        self._frames = FrameDecoder()
        self._out = []
        self._there = self._writing = False
        self._poll.unregister(self.port)
        self._again = time.monotonic() + _RETRY_SECONDS

    def _handle(self, session: int, number: int, body: bytes) -> None:
        if session != self._session:
            self._session = session
            self._forget()
        self._request = number
        try:
            operation, *arguments = decode(body)
            value = getattr(self, f"do_{operation.decode()}")(*arguments)
            if value is _LATER:
                return
            answer = [b"ok", 0 if value is None else value]
        except OSError as error:
            answer = [b"os", error.errno or 0, (error.strerror or str(error)).encode(), os.fsencode(error.filename or b"")]
        except Exception as error:
            answer = [b"bad", f"{type(error).__name__}: {error}".encode(errors="replace")]
        self._send(number, answer)

    def _send(self, number: int, value: Any) -> None:
        self._out.append(memoryview(frame(self._session, number, encode(value))))
        self._flush()

    def _flush(self) -> None:
        while self._out and self._there:
            try:
                written = os.write(self.port, self._out[0])
            except BlockingIOError:
                break
            except OSError:
                self._out = []  # poll() reports that the host has disconnected
                break
            self._out[0] = self._out[0][written:]
            if not self._out[0]:
                del self._out[0]
        if self._there and bool(self._out) != self._writing:
            self._writing = bool(self._out)
            self._poll.modify(self.port, select.POLLIN | (select.POLLOUT if self._writing else 0))

    def _forget(self) -> None:
        """End commands and sampling loops of a previous host session."""
        for sampling in self._samplings.values():
            sampling.close()
        self._samplings = {}
        for child in self._children.values():
            if child.request:
                child.request = -1
                self._kill_group(child)

    def do_ping(self) -> Any:
        """Return [instant of the request, instant of the answer], which are NTP's second and third timestamps."""
        return [self._received, time.time_ns()]

    def do_shift_clock(self, nanoseconds: int) -> None:
        """Set the wall clock forward, or back for a negative number."""
        time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + nanoseconds)

    def do_read(self, path: bytes, start: int) -> Any:
        """Return a piece of a file from an offset. It is shorter than ``CHUNK_BYTES`` at the end of the file only."""
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not stop the agent
        try:
            return pread(number, start, CHUNK_BYTES)
        finally:
            os.close(number)

    def do_size(self, path: bytes) -> Any:
        """Return the size of a file in bytes."""
        return os.stat(path).st_size

    def do_write(self, path: bytes, data: bytes) -> Any:
        """Write with one call, and return the number of bytes written."""
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            return os.write(number, data)
        finally:
            os.close(number)

    do_listdir = staticmethod(os.listdir)
    do_exists = staticmethod(os.path.exists)
    do_remove_dir = staticmethod(os.rmdir)

    def do_make_dir(self, path: bytes, mode: int, user: bytes) -> None:
        """Make a directory and its parents."""
        owner = account(user) if user else None
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        if owner:
            os.chown(path, *owner)

    def do_remove_tree(self, path: bytes) -> None:
        """Remove a directory tree. Links are removed, not followed. A missing path is not an error."""
        if os.path.islink(path):
            raise NotADirectoryError(20, "Not a directory, but a link", path)
        pending = [path] if os.path.exists(path) else []
        while pending:
            with os.scandir(pending[-1]) as listing:
                entries = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in listing]
            for entry_path, _ in filter(lambda entry: not entry[1], entries):
                os.unlink(entry_path)
            inner = [entry_path for entry_path, directory in entries if directory]
            if not inner:
                os.rmdir(pending.pop())
            pending += inner

    def do_spawn(self, *request: Any) -> Any:
        """Start a process and return [serial, pid]. See ``agent_tasks.start`` for the arguments."""
        child = self._start(request)
        return [child.serial, child.pid]

    def do_run(self, milliseconds: int, *request: Any) -> Any:
        """Run a command and return [code, CPU in microseconds, output, errors]. A command that exceeds its time is killed and reported as
        late."""
        files = (os.memfd_create("out"), os.memfd_create("err"))
        try:
            child = self._start(request, files)
        except BaseException:
            close_all(files)
            raise
        child.request, child.caught = self._request, files
        child.seconds = milliseconds / 1000
        child.deadline = time.monotonic() + child.seconds
        return _LATER

    def do_signal(self, serial: int, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if serial in self._children:
            os.kill(self._children[serial].pid, number)

    def _start(self, request: Any, caught: Sequence[int] = ()) -> AgentChild:
        """Start a process (see ``agent_tasks.start``) and register it."""
        self._serial += 1
        child = start(self._serial, request, caught)
        self._children[child.serial] = self._handles[child.handle] = child
        self._poll.register(child.handle, select.POLLIN)
        return child

    def _reap(self, child: AgentChild) -> None:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if not pid:
            return
        self._poll.unregister(child.handle)
        os.close(child.handle)
        del self._children[child.serial], self._handles[child.handle]
        code = os.waitstatus_to_exitcode(status)
        cpu = round((usage.ru_utime + usage.ru_stime) * 1e6)
        if not child.request:
            self._send(0, [b"ended", child.serial, code, cpu])
            return
        try:
            if child.request > 0:
                answer = [b"late", b"%.0f" % child.seconds] if child.late else [b"ok", [code, cpu, *map(pread, child.caught)]]
                self._send(child.request, answer)
        finally:
            close_all(child.caught)

    def _overdue(self, child: AgentChild) -> None:
        """Send the death signal of an overdue command first. Kill it when it is overdue again."""
        first, child.late = not child.late, True
        if first and child.death != signal.SIGKILL:
            child.deadline = time.monotonic() + _END_SECONDS
            os.kill(child.pid, child.death)
        else:
            self._kill_group(child)

    def _kill_group(self, child: AgentChild) -> None:
        child.deadline = 0.0
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child.pid, signal.SIGKILL)  # it has no process group yet, or is a zombie

    def do_sample(self, period: int, sources: Any) -> Any:
        """Start a sampling loop and return its handle."""
        self._serial += 1
        sampling = self._samplings[self._serial] = AgentSamplingLoop(period)
        sampling.add(sources)
        return self._serial

    def do_add(self, handle: int, sources: Any) -> None:
        """Add sources, and read at once all sources that are read in each tick."""
        sampling = self._samplings[handle]
        sampling.add(sources)
        sampling.read()

    def do_fetch(self, handle: int) -> Any:
        """Return the readings since the last fetch (see ``AgentSamplingLoop.fetch``). A stopped loop is removed with its last piece."""
        sampling = self._samplings[handle]
        fetched = sampling.fetch(CHUNK_BYTES)
        if sampling.due == NEVER and not fetched[0]:
            del self._samplings[handle]
        return fetched

    def do_stop(self, handle: int) -> None:
        """Read all sources a last time, and stop."""
        sampling = self._samplings[handle]
        sampling.read(everything=True)
        sampling.close()
        sampling.due = NEVER


def main(arguments: Sequence[str]) -> None:
    """Serve on a port: a path, or the number of an open file descriptor."""
    (name,) = arguments
    while os.open("/dev/null", os.O_RDWR) <= 2:
        pass  # keep 0 to 2 in use, so that the port does not become a child's standard input
    os.umask(0o022)
    if name.isdigit():
        port = int(name)
        os.set_inheritable(port, False)
    else:
        port = os.open(name, os.O_RDWR | os.O_NOCTTY)
    Agent(port).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
