"""The samplings of a guest's agent: files and process trees, read once per period, wait in its memory until the host fetches them.

It runs inside the guest beside ``agent``, and is as poor as that in what it imports.
"""

from __future__ import annotations

import os
import time
from struct import Struct

try:
    import _signal as signal  # type: ignore[import-not-found]  # the module around it costs an import of enum
except ImportError:
    import signal


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

RECORD = Struct("<QiI")  # the head of one reading: instant, index of the source (of a failure its complement), bytes that follow
MOST_WAITING = 8 << 20  # bytes of readings that wait to be fetched; ticks beyond are lost, and counted
NEVER = 1 << 62  # when a sampling is due that has been stopped
_WHOLE = 2048  # many files of /proc come by the page: a longer answer may not be all of it
_BESIDE = 1  # the tick as which a reading beside the ticks counts: sources that are not read on each are left out


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
        return raw if len(raw) < _WHOLE else raw + pread(number, len(raw))

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

    def fetch(self, most: int) -> list[Any]:
        """[whether there is more, ticks lost, records]; what is fetched is forgotten."""
        data = b"".join(self._waiting)
        piece, rest = data[:most], data[most:]
        self._waiting = [rest] if rest else []
        self._size = len(rest)
        return [int(bool(rest)), self.lost, piece]

    def close(self) -> None:
        """Close all files."""
        close_all(self._open.values())
        self._open = {}


def pread(number: int, at: int = 0, most: int = NEVER) -> bytes:
    """A file from a place to its end, or ``most`` bytes of it."""
    pieces = []
    while most and (piece := os.pread(number, min(most, 65536), at)):
        pieces.append(piece)
        at += len(piece)
        most -= len(piece)
    return b"".join(pieces)


def close_all(files: Iterable[int]) -> None:
    """Close file descriptors."""
    for number in files:
        os.close(number)


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FAIRNESS = "/proc/self/oom_score_adj"


class Child:
    """A process of the agent. A captured one has the number of the request that waits for it, and files that catch its output."""

    def __init__(self, serial: int, pid: int, death: int) -> None:
        """Of the agent's own numbering, the process, and the signal that ends it in its own way."""
        self.serial, self.pid, self.death = serial, pid, death
        self.handle = os.pidfd_open(pid)
        self.request = 0
        self.caught: Sequence[int] = ()
        self.deadline = self.seconds = 0.0
        self.late = False


def start(serial: int, asked: Any, caught: Sequence[int] = ()) -> Child:
    """Fork and exec. Asked: argv, environment as name=value, directory, groups to join, CPUs, account, death signal, standard
    input, output and errors (empty: none), and the instant at which the program is to start (0: at once). ``caught`` are open files
    for output and errors instead. Raises OSError."""
    user, death, stdin, *outputs = asked[5:10]
    owner = account(user) if user else None
    ending, prctl = _signal(death), _prctl()
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
        close_all(files)
    return Child(serial, pid, ending)


def account(user: bytes) -> list[int]:
    """The number of an account, and of its group; raises KeyError."""
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
        _be_fair()
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


def _be_fair() -> None:
    """What is started may be ended for want of memory as anything else may; the agent itself is exempt (see ``guest_init``)."""
    with open(_FAIRNESS, "rb", 0) as file:
        exempt = int(file.read()) < 0
    if exempt:
        with open(_FAIRNESS, "wb", 0) as file:
            file.write(b"0")


def _found(program: bytes, path: bytes) -> bytes:
    """The file of a program, as execvp(3) finds it."""
    if b"/" not in program:
        for directory in path.split(b":"):
            if os.access(whole := directory + b"/" + program, os.X_OK):
                return whole
    return program
