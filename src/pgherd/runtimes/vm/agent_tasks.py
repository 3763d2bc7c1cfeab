"""Processes and sampling loops of a guest's agent.

Processes start here, with all steps of a child up to its program. A sampling loop reads files and process trees once per period, and keeps
the readings in memory until the host fetches them. The module runs inside the guest next to ``agent`` and has the same limits on imports.
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

RECORD = Struct("<QiI")  # head of one reading: instant, index of the source (its complement for a failure), number of bytes that follow
MAX_WAITING_BYTES = 8 << 20  # maximum bytes of waiting readings: further ticks are dropped and counted
NEVER = 1 << 62  # due time of a stopped loop
_FULL_READ_BYTES = 2048  # files of /proc are read by the page: a longer answer may be incomplete
_EXTRA_TICK = 1  # tick number of an extra reading: only sources that are read in each tick are read


class AgentSamplingLoop:
    """Sampling loop: reads files and process trees once per period, and keeps the readings until they are fetched."""

    def __init__(self, period: int) -> None:
        """``period`` is in nanoseconds. The first tick is due at once."""
        self.period, self.due = period, time.monotonic_ns()
        self.lost = self._tick = self._size = 0
        self._sources: list[tuple[bytes, str, int]] = []
        self._open: dict[str, int] = {}
        self._gone: set[int] = set()
        self._waiting: list[bytes] = []

    def add(self, sources: Sequence[tuple[bytes, bytes, int]]) -> None:
        """Add sources: (kind 'file' or 'tree', path or pid, number of ticks between readings)."""
        self._sources += [(kind, os.fsdecode(location), every) for kind, location, every in sources]

    def tick(self) -> None:
        """Read the sources that are due, and set the time of the next tick."""
        self.read(self._tick, everything=self._tick == 0)
        self._tick += 1
        self.due = max(self.due + self.period, time.monotonic_ns())

    def read(self, tick: int = _EXTRA_TICK, *, everything: bool = False) -> None:
        """Read the sources that are due in this tick, or all sources."""
        if self._size > MAX_WAITING_BYTES:
            self.lost += 1
            return
        records = self._waiting
        for index, (kind, location, every) in enumerate(self._sources):
            if index in self._gone or (tick % every and not everything):
                continue
            now = time.time_ns()
            try:
                raw = self._tree(location) if kind == b"tree" else self._file(location)
            except OSError as error:
                if kind == b"tree" or location.startswith("/proc/"):
                    self._gone.add(index)  # an ended process does not return
                raw, index = str(error).encode(errors="replace"), ~index
            records.append(RECORD.pack(now, index, len(raw)))
            records.append(raw)
            self._size += RECORD.size + len(raw)

    def _file(self, path: str) -> bytes:
        number = self._open.get(path)
        if number is None:
            number = self._open[path] = os.open(path, os.O_RDONLY)
        raw = os.pread(number, 65536, 0)
        return raw if len(raw) < _FULL_READ_BYTES else raw + pread(number, len(raw))

    def _tree(self, pid: str) -> bytes:
        """Return the stat lines of a process and its children.

        The files stay open: an open file fails after its process has ended, even if another process has the same pid.
        """
        lines = []
        for process in (pid, *self._file(f"/proc/{pid}/task/{pid}/children").decode().split()):
            path = f"/proc/{process}/stat"
            try:
                lines.append(self._file(path).rstrip(b"\n"))
            except OSError:
                if path in self._open:
                    os.close(self._open.pop(path))
                if process == pid:
                    raise
        return b"\n".join(lines)

    def fetch(self, limit: int) -> list[Any]:
        """Return [whether there is more, lost ticks, records], and forget these records."""
        data = b"".join(self._waiting)
        piece, remainder = data[:limit], data[limit:]
        self._waiting = [remainder] if remainder else []
        self._size = len(remainder)
        return [int(bool(remainder)), self.lost, piece]

    def close(self) -> None:
        close_all(self._open.values())
        self._open = {}


def pread(number: int, at: int = 0, limit: int = NEVER) -> bytes:
    """Return a file from an offset to its end, or ``most`` bytes of it."""
    pieces = []
    while limit and (piece := os.pread(number, min(limit, 65536), at)):
        pieces.append(piece)
        at += len(piece)
        limit -= len(piece)
    return b"".join(pieces)


def close_all(files: Iterable[int]) -> None:
    for number in files:
        os.close(number)


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OOM_SCORE = "/proc/self/oom_score_adj"


class AgentChild:
    """Process that the agent has started. A captured one has the number of its request, and files for its output."""

    def __init__(self, serial: int, pid: int, death: int) -> None:
        """``serial`` is the agent's number of the process, ``death`` the signal that ends it normally."""
        self.serial, self.pid, self.death = serial, pid, death
        self.handle = os.pidfd_open(pid)
        self.request = 0
        self.caught: Sequence[int] = ()
        self.deadline = self.seconds = 0.0
        self.late = False


def start(serial: int, request: Any, caught: Sequence[int] = ()) -> AgentChild:
    """Fork and exec. ``caught`` are open files for output and errors. Raises OSError.

    ``asked``: argv, environment as name=value, directory, cgroups to join, CPUs, user, death signal, standard input, output and errors
    (empty: none), whether it runs under SCHED_BATCH, and the instant at which the program starts (0: at once).
    """
    user, death, stdin, *outputs = request[5:10]
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
                _become(request, [*files, *caught], owner, parent, prctl)
            finally:
                os._exit(127)
    finally:
        close_all(files)
    return AgentChild(serial, pid, ending)


def account(user: bytes) -> list[int]:
    """Return the uid and gid of a user. Raises KeyError."""
    import pwd

    return list(pwd.getpwnam(user.decode())[2:4])


def _signal(name: bytes) -> int:
    return int(getattr(signal, f"SIG{name.decode()}"))


def _prctl() -> Callable[..., int] | None:
    """Return prctl(2), with which a process requests its death signal. None where Python was built without ctypes."""
    try:
        import ctypes
    except ImportError:
        return None
    call: Callable[..., int] = ctypes.CDLL(None).prctl
    return call


def _become(request: Any, files: list[int], owner: list[int] | None, parent: int, prctl: Callable[..., int] | None) -> None:
    """Run the steps of a child up to its program. The death signal comes after the change of user, which clears it."""
    argv, environment, directory, groups, cpus, _, death, *_, batch, at = request
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
        if batch:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        _reset_oom_score()
        if owner:
            os.setgroups([])
            os.setgid(owner[1])
            os.setuid(owner[0])
        if prctl is None:
            argv = [b"setpriv", b"--pdeathsig", death, *argv]
        else:
            prctl(1, _signal(death), 0, 0, 0)  # PR_SET_PDEATHSIG
        while (remaining := at - time.time_ns()) > 0 and os.getppid() == parent:
            time.sleep(min(remaining / 1e9, 0.2))
        if os.getppid() != parent:
            os._exit(96)  # the agent died before the signal was set
        os.execve(_program_path(argv[0], env[b"PATH"]), argv, env)  # noqa: S606 (the command that was asked for)
    except OSError as error:
        os.write(2, b"%b: %b\n" % (argv[0], (error.strerror or str(error)).encode()))
        os._exit(failed)


def _reset_oom_score() -> None:
    """Reset the OOM score, so that the kernel may kill the process as any other. The agent itself is exempt (see ``initramfs.INIT``)."""
    with open(_OOM_SCORE, "rb", 0) as file:
        exempt = int(file.read()) < 0
    if exempt:
        with open(_OOM_SCORE, "wb", 0) as file:
            file.write(b"0")


def _program_path(program: bytes, path: bytes) -> bytes:
    """Return the file of a program, as execvp(3) finds it."""
    if b"/" not in program:
        for directory in path.split(b":"):
            if os.access(candidate := directory + b"/" + program, os.X_OK):
                return candidate
    return program
