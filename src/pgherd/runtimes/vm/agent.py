"""The guest's agent: reads files, starts processes, samples and tells the time for the host, over one serial port.

It runs inside the guest on Python's standard library alone (3.11 or later), and on little of that: what takes ten milliseconds to import
takes an emulated processor half a second. So: no threads, no json, no subprocess, one poll loop; and one file: the guest has no other.

**Frames.** A serial port has no end of file, and a host may vanish in the middle of a frame and come back; a length would then be
counted from anywhere. So a frame lies between delimiters that cannot occur inside it (SLIP, RFC 1055), the first of which ends whatever was
left of an older frame. Inside: session (8 bytes), number (4), body, CRC-32 of all that (4); what does not check is dropped. A host draws
its session at random and answers bear it, so that nobody takes those to an earlier host for his.

**Bodies** are bencoded (BEP 3). A request is ``[operation, arguments…]``, an answer ``[b"ok", value]``, ``[b"os", errno, text, path]``,
``[b"late", seconds]`` or ``[b"bad", text]``; number 0 is an event: ``[b"ended", serial, code, CPU in µs]``. Instants are in ns.

What it starts dies with it. A new session ends the captured commands and samplings of the one before, for which nobody waits any more; its
other processes run on.
"""

from __future__ import annotations

import os
import select
import sys
import time
from binascii import crc32
from struct import Struct

try:
    import _signal as signal  # type: ignore[import-not-found]  # the module around it costs an import of enum
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

_END, _ESCAPE = b"\xc0", b"\xdb"
_ESCAPED_END, _ESCAPED_ESCAPE = b"\xdb\xdc", b"\xdb\xdd"
_HEAD, _CHECK = Struct("<QI"), Struct("<I")
_LONGEST = 64 << 20
PIECE = 1 << 20  # bytes of a file, or of readings, that go over the line at once
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AGAIN_SECONDS = 0.2  # a port whose host is not there is looked at so often: poll() would return at once
_END_SECONDS = 10.0  # for a command that wants to clean up when it is ended

RECORD = Struct("<QiI")  # the head of one reading: instant, index of the source (of a failure its complement), bytes that follow
MOST_WAITING = 8 << 20  # bytes of readings that wait to be fetched; ticks beyond are lost, and counted
_WHOLE = 2048  # many files of /proc come by the page: a longer answer may not be all of it
_BESIDE = 1  # the tick as which a reading beside the ticks counts: sources that are not read on each are left out
_NEVER, _LATER = 1 << 62, object()


def encode(value: Any) -> bytes:
    """Bencode integers, bytes, and lists or tuples of them; raises TypeError for anything else."""
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, list | tuple):
        return b"l%be" % b"".join([encode(one) for one in value])
    raise TypeError(f"{type(value).__name__} has no place in a frame")


def decode(data: bytes) -> Any:
    """The inverse of ``encode``; raises ValueError for what it does not give."""
    stack: list[list[Any]] = []
    at = 0
    value: Any
    while True:
        kind = data[at : at + 1]
        if kind == b"l":
            stack.append([])
            at += 1
            continue
        if kind == b"e":
            if not stack:
                raise ValueError("a list ends that has not begun")
            value = stack.pop()
            at += 1
        elif kind == b"i":
            end = data.index(b"e", at)
            value = int(data[at + 1 : end])
            at = end + 1
        else:
            colon = data.index(b":", at)
            size = data[at:colon]
            if not size.isdigit():
                raise ValueError(f"{size[:20]!r} is no length")
            at = colon + 1 + int(size)
            if at > len(data):
                raise ValueError(f"{at - len(data)} bytes are missing")
            value = data[colon + 1 : at]
        if not stack:
            if at != len(data):
                raise ValueError(f"{len(data) - at} bytes too many")
            return value
        stack[-1].append(value)


def frame(session: int, number: int, body: bytes) -> bytes:
    """One frame as it goes over the line."""
    plain = _HEAD.pack(session, number) + body
    plain += _CHECK.pack(crc32(plain))
    return _END + plain.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_END, _ESCAPED_END) + _END


class Frames:
    """Cuts a stream of bytes into frames; noise and torn frames vanish."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """(session, number, body) of each frame that these bytes complete."""
        self._rest += data
        if _END not in data:
            if len(self._rest) > _LONGEST:
                self._rest.clear()
            return []
        *whole, rest = self._rest.split(_END)
        self._rest = rest
        found = []
        for one in whole:
            plain = bytes(one).replace(_ESCAPED_END, _END).replace(_ESCAPED_ESCAPE, _ESCAPE)
            body = plain[: -_CHECK.size]
            if len(body) >= _HEAD.size and _CHECK.unpack(plain[-_CHECK.size :])[0] == crc32(body):
                session, number = _HEAD.unpack_from(body)
                found.append((session, number, body[_HEAD.size :]))
        return found


class Sampling:
    """Files and process trees that are read once per period; the readings wait in memory until they are fetched."""

    def __init__(self, period: int) -> None:
        """``period`` is in nanoseconds; the first tick is due at once."""
        self.period, self.due = period, time.monotonic_ns()
        self.lost = self._tick = self._size = 0
        self._sources: list[tuple[bytes, str, int]] = []
        self._open: dict[str, int] = {}
        self._gone: set[int] = set()
        self._waiting: list[bytes] = []

    def add(self, sources: Sequence[tuple[bytes, bytes, int]]) -> None:
        """Read these too: (kind 'file' or 'tree', path or pid, read on each n-th tick)."""
        self._sources += [(kind, os.fsdecode(where), every) for kind, where, every in sources]

    def tick(self) -> None:
        """Do the reading that is due, and say when the next one is."""
        self.read(self._tick, everything=self._tick == 0)
        self._tick += 1
        self.due = max(self.due + self.period, time.monotonic_ns())

    def read(self, tick: int = _BESIDE, *, everything: bool = False) -> None:
        """Read the sources whose turn it is, or all."""
        if self._size > MOST_WAITING:
            self.lost += 1
            return
        found = self._waiting
        for index, (kind, where, every) in enumerate(self._sources):
            if index in self._gone or (tick % every and not everything):
                continue
            now = time.time_ns()
            try:
                raw = self._tree(where) if kind == b"tree" else self._file(where)
            except OSError as error:
                if kind == b"tree" or where.startswith("/proc/"):
                    self._gone.add(index)  # a process that has ended does not come back
                raw, index = str(error).encode(errors="replace"), ~index
            found.append(RECORD.pack(now, index, len(raw)))
            found.append(raw)
            self._size += RECORD.size + len(raw)

    def _file(self, path: str) -> bytes:
        number = self._open.get(path)
        if number is None:
            number = self._open[path] = os.open(path, os.O_RDONLY)
        raw = os.pread(number, 65536, 0)
        return raw if len(raw) < _WHOLE else raw + _pread(number, len(raw))

    def _tree(self, pid: str) -> bytes:
        """The stat lines of a process and its children. An open file reads as gone when its process is, whoever has the pid next."""
        lines = []
        for one in (pid, *self._file(f"/proc/{pid}/task/{pid}/children").decode().split()):
            path = f"/proc/{one}/stat"
            try:
                lines.append(self._file(path).rstrip(b"\n"))
            except OSError:
                if path in self._open:
                    os.close(self._open.pop(path))
                if one == pid:
                    raise
        return b"\n".join(lines)

    def fetch(self, most: int = PIECE) -> list[Any]:
        """[whether there is more, ticks lost, records]; what is fetched is forgotten."""
        data = b"".join(self._waiting)
        piece, rest = data[:most], data[most:]
        self._waiting = [rest] if rest else []
        self._size = len(rest)
        return [int(bool(rest)), self.lost, piece]

    def close(self) -> None:
        """Close all files."""
        _close(self._open.values())
        self._open = {}


def _pread(number: int, at: int = 0, most: int = _NEVER) -> bytes:
    """A file from a place to its end, or ``most`` bytes of it."""
    pieces = []
    while most and (piece := os.pread(number, min(most, 65536), at)):
        pieces.append(piece)
        at += len(piece)
        most -= len(piece)
    return b"".join(pieces)


class Child:
    """A process of ours. A captured one has the number of the request that waits for it, and files that catch its output."""

    def __init__(self, serial: int, pid: int, death: int) -> None:
        self.serial, self.pid, self.death = serial, pid, death
        self.handle = os.pidfd_open(pid)
        self.request = 0
        self.caught: Sequence[int] = ()
        self.deadline = self.seconds = 0.0
        self.late = False


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
        dues = [sampling.due / 1e9 for sampling in self._samplings.values() if sampling.due != _NEVER]
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
            return _pread(number, start, PIECE)
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
        owner = _account(user) if user else None
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
            _close(files)
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
        """Fork and exec. Asked: argv, environment as name=value, directory, groups to join, CPUs, account, death signal, standard
        input, output and errors (empty: none), and the instant at which the program is to start (0: at once)."""
        user, death, stdin, *outputs = asked[5:10]
        owner = _account(user) if user else None
        prctl = _prctl()
        files: list[int] = []
        try:
            files.append(os.open(stdin or b"/dev/null", os.O_RDONLY))
            for path in () if caught else outputs:
                files.append(os.open(path or b"/dev/null", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            parent = os.getpid()
            pid = os.fork()
            if not pid:
                try:
                    _become(asked, [*files, *caught], owner, parent, prctl)
                finally:
                    os._exit(127)
        finally:
            _close(files)
        self._serial += 1
        child = Child(self._serial, pid, _signal(death))
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
                told = [b"late", b"%.0f" % child.seconds] if child.late else [b"ok", [code, cpu, *map(_pread, child.caught)]]
                self._send(child.request, told)
        finally:
            _close(child.caught)

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
        found = sampling.fetch()
        if sampling.due == _NEVER and not found[0]:
            del self._samplings[handle]
        return found

    def do_stop(self, handle: int) -> None:
        """Read everything a last time, and no more."""
        sampling = self._samplings[handle]
        sampling.read(everything=True)
        sampling.close()
        sampling.due = _NEVER


def _close(files: Iterable[int]) -> None:
    for number in files:
        os.close(number)


def _account(user: bytes) -> list[int]:
    import pwd

    return list(pwd.getpwnam(user.decode())[2:4])


def _signal(name: bytes) -> int:
    return int(getattr(signal, f"SIG{name.decode()}"))


def _prctl() -> Callable[..., int] | None:
    """prctl(2), by which a process asks for its death signal; None where Python was built without ctypes."""
    try:
        import ctypes
    except ImportError:
        return None
    call: Callable[..., int] = ctypes.CDLL(None).prctl
    return call


def _become(asked: Any, files: list[int], owner: list[int] | None, parent: int, prctl: Callable[..., int] | None) -> None:
    """What the child does up to its program. The death signal comes after the account, a change of which clears it."""
    argv, environment, directory, groups, cpus, _, death, *_, at = asked
    env = {b"PATH": os.environ.get("PATH", _PATH).encode(), b"LC_ALL": b"C", b"TZ": b"UTC"}
    env.update(entry.split(b"=", 1) for entry in environment)
    failed = 97
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for target, number in enumerate(files):
            os.dup2(number, target)
        for group in groups:
            number = os.open(group, os.O_WRONLY)
            os.write(number, b"0\n")
            os.close(number)
        failed = 127
        os.chdir(directory or b"/")
        if cpus:
            os.sched_setaffinity(0, cpus)
        if owner:
            os.setgroups([])
            os.setgid(owner[1])
            os.setuid(owner[0])
        if prctl is None:
            argv = [b"setpriv", b"--pdeathsig", death, *argv]
        else:
            prctl(1, _signal(death), 0, 0, 0)  # PR_SET_PDEATHSIG
        while (left := at - time.time_ns()) > 0 and os.getppid() == parent:
            time.sleep(min(left / 1e9, 0.2))
        if os.getppid() != parent:
            os._exit(96)  # the agent died before the signal was asked for
        os.execve(_found(argv[0], env[b"PATH"]), argv, env)
    except OSError as error:
        os.write(2, b"%b: %b\n" % (argv[0], (error.strerror or str(error)).encode()))
        os._exit(failed)


def _found(program: bytes, path: bytes) -> bytes:
    """The file of a program, as execvp(3) finds it."""
    if b"/" not in program:
        for directory in path.split(b":"):
            if os.access(whole := directory + b"/" + program, os.X_OK):
                return whole
    return program


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
