"""The guest's agent: reads files, starts processes, samples and tells the time for the host, over one serial port (``agent_wire``).

It runs inside the guest on Python's standard library alone (3.11 or later), and on little of that: what takes ten milliseconds to import
takes an emulated processor half a second. So: no threads, no json, no subprocess, one poll loop; and four files, ``agent``,
``agent_processes``, ``agent_sampling`` and ``agent_wire``, which lie beside each other in the guest, where there is no package around them.

What it starts dies with it. A new session ends the captured commands and samplings of the one before, for which nobody waits any more; its
other processes run on.
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
    from pgherd.runtimes.vm.agent_tasks import NEVER, Child, Sampling, account, close_all, pread, start
    from pgherd.runtimes.vm.agent_wire import PIECE, Frames, decode, encode, frame
else:  # inside the guest
    from agent_tasks import NEVER, Child, Sampling, account, close_all, pread, start
    from agent_wire import PIECE, Frames, decode, encode, frame

_AGAIN_SECONDS = 0.2  # a port whose host is not there is looked at so often: poll() would return at once
_END_SECONDS = 10.0  # for a command that wants to clean up when it is ended
_LATER = object()


class Agent:
    """The loop and what it can be asked for: each method ``do_NAME`` is an operation."""

    def __init__(self, port: int) -> None:
        os.set_blocking(port, False)
        self.port = port
        self._poll = select.poll()
        self._poll.register(port, select.POLLIN)
        self._there, self._writing, self._again = True, False, 0.0
        self._frames = Frames()
        self._out: list[memoryview] = []
        self._session = self._request = self._received = self._serial = 0
        self._children: dict[int, Child] = {}
        self._handles: dict[int, Child] = {}
        self._samplings: dict[int, Sampling] = {}

    def serve(self) -> None:
        """Answer for ever."""
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
        """Milliseconds until something is due."""
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
        # Nobody is there: what is on its way is for nobody, and what comes next begins anew.
        self._frames = Frames()
        self._out = []
        self._there = self._writing = False
        self._poll.unregister(self.port)
        self._again = time.monotonic() + _AGAIN_SECONDS

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
                self._out = []  # the poll says that nobody is there
                break
            self._out[0] = self._out[0][written:]
            if not self._out[0]:
                del self._out[0]
        if self._there and bool(self._out) != self._writing:
            self._writing = bool(self._out)
            self._poll.modify(self.port, select.POLLIN | (select.POLLOUT if self._writing else 0))

    def _forget(self) -> None:
        """End what an earlier host waited for."""
        for sampling in self._samplings.values():
            sampling.close()
        self._samplings = {}
        for child in self._children.values():
            if child.request:
                child.request = -1
                self._kill_group(child)

    def do_ping(self) -> Any:
        """[when the question came, when the answer leaves], as NTP's second and third timestamps."""
        return [self._received, time.time_ns()]

    def do_shift_clock(self, nanoseconds: int) -> None:
        """Set the wall clock this much forward, or back."""
        time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + nanoseconds)

    def do_read(self, path: bytes, start: int) -> Any:
        """A file from a place on: a piece of it, shorter only where it ends."""
        number = os.open(path, os.O_RDONLY)
        try:
            return pread(number, start, PIECE)
        finally:
            os.close(number)

    def do_write(self, path: bytes, data: bytes) -> Any:
        """How many bytes a single write call took."""
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
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
        """Remove a directory and what is in it; links are removed, not followed. A path that is gone is no error."""
        if os.path.islink(path):
            raise NotADirectoryError(20, "Not a directory, but a link", path)
        pending = [path] if os.path.exists(path) else []
        while pending:
            with os.scandir(pending[-1]) as found:
                entries = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
            for one, _ in filter(lambda entry: not entry[1], entries):
                os.unlink(one)
            inner = [one for one, directory in entries if directory]
            if not inner:
                os.rmdir(pending.pop())
            pending += inner

    def do_spawn(self, *asked: Any) -> Any:
        """[serial, pid]; see ``_start`` for what is asked."""
        child = self._start(asked)
        return [child.serial, child.pid]

    def do_run(self, milliseconds: int, *asked: Any) -> Any:
        """[code, CPU in microseconds, output, errors], once it has ended. What does not end in time is made to, and is late."""
        files = (os.memfd_create("out"), os.memfd_create("err"))
        try:
            child = self._start(asked, files)
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

    def _start(self, asked: Any, caught: Sequence[int] = ()) -> Child:
        """Start what is asked for (see ``agent_processes.start``), and know it from now on."""
        self._serial += 1
        child = start(self._serial, asked, caught)
        self._children[child.serial] = self._handles[child.handle] = child
        self._poll.register(child.handle, select.POLLIN)
        return child

    def _reap(self, child: Child) -> None:
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
                told = [b"late", b"%.0f" % child.seconds] if child.late else [b"ok", [code, cpu, *map(pread, child.caught)]]
                self._send(child.request, told)
        finally:
            close_all(child.caught)

    def _overdue(self, child: Child) -> None:
        """Its time is over: told to end in its own way first, if it has one."""
        first, child.late = not child.late, True
        if first and child.death != signal.SIGKILL:
            child.deadline = time.monotonic() + _END_SECONDS
            os.kill(child.pid, child.death)
        else:
            self._kill_group(child)

    def _kill_group(self, child: Child) -> None:
        child.deadline = 0.0
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child.pid, signal.SIGKILL)  # it has not made its group yet, or waits to be reaped

    def do_sample(self, period: int, sources: Any) -> Any:
        """Begin to sample; the handle of it."""
        self._serial += 1
        sampling = self._samplings[self._serial] = Sampling(period)
        sampling.add(sources)
        return self._serial

    def do_add(self, handle: int, sources: Any) -> None:
        """Read these too from now on, and everything once at once."""
        sampling = self._samplings[handle]
        sampling.add(sources)
        sampling.read()

    def do_fetch(self, handle: int) -> Any:
        """What has been read since the last time; see ``Sampling.fetch``. A stopped sampling is gone with its last piece."""
        sampling = self._samplings[handle]
        found = sampling.fetch(PIECE)
        if sampling.due == NEVER and not found[0]:
            del self._samplings[handle]
        return found

    def do_stop(self, handle: int) -> None:
        """Read everything a last time, and no more."""
        sampling = self._samplings[handle]
        sampling.read(everything=True)
        sampling.close()
        sampling.due = NEVER


def main(arguments: Sequence[str]) -> None:
    """Serve on the port that is named: a path, or the number of an open file descriptor."""
    (name,) = arguments
    while os.open("/dev/null", os.O_RDWR) <= 2:
        pass  # a file of ours must not become somebody's standard input
    os.umask(0o022)
    if name.isdigit():
        port = int(name)
        os.set_inheritable(port, False)
    else:
        port = os.open(name, os.O_RDWR | os.O_NOCTTY)
    Agent(port).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
