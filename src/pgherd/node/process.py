"""Processes of the local node, and this process's limit of open files."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.node import interruption
from pgherd.node.protocol import Command, Completed

# The shell writes its pid into each group before '--', then becomes the command. The script is constant: all variable
# parts are positional parameters.
_JOIN_GROUPS = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 97; shift; done; shift; exec "$@"'

# pgherd may end before setpriv has requested the death signal, which is then never sent. Therefore the shell checks its
# parent afterwards. It also restores the original soft limit of open files, so that the measured programs run under the
# host's limit.
_EXEC_UNLESS_ORPHANED = '[ "$PPID" = "$1" ] || exit 96; ulimit -S -n "$2" || exit 95; shift 2; exec "$@"'

_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""Original soft limit of open files, before ``allow_many`` raises it."""

MAX_OPEN_FILES = 65536
"""Enough for thousands of databases. An unlimited number slows down programs that close all inherited descriptors."""

CHRT_BATCH = ("chrt", "--batch", "0")
"""Words before a command that runs under SCHED_BATCH. Every user may set this policy; its priority is always 0."""

_POLL_INTERVAL_S = 0.01

_CHECK_INTERVAL_S = 0.5
"""Interval at which a command that can be called off is checked."""

_CLEANUP_TIMEOUT_S = 10.0
"""For a command that cleans up at its death signal."""

MARK = "PGHERD_PROCESS"
"""Variable in the environment of each command, by which other processes of pgherd recognise it (``pgherd.host.server_user``)."""
_CLEAN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", MARK: "1"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Run the calling thread under SCHED_FIFO, if this user may. What it starts does not inherit this.

    On a full host a thread of another policy may wait for a CPU for seconds, whatever its nice value: on Linux 6.18 up to 15 s next to
    a control group whose processes wake one another all the time, as pgbench and PostgreSQL do.
    """
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, parameter)  # only root may clear the flag


def wrap(command: Command) -> list[str]:
    """Return the argv that sets groups, scheduling policy, affinity and user, then execs the command.

    The pid stays the same: sh, chrt, taskset, setpriv and sh each exec the next one. setpriv follows the others, because a
    change of user clears the parent-death signal. The command gets the original soft limit of open files, unless it needs more.
    """
    argv = ["setpriv", "--pdeathsig", command.death_signal]
    if command.user is not None:
        argv += ["--reuid", command.user, "--regid", _group_of(command.user)]
        argv += ["--groups", ",".join(command.groups)] if command.groups else ["--clear-groups"]
    argv += ["/bin/sh", "-c", _EXEC_UNLESS_ORPHANED, "sh", str(os.getpid()), _limit(command.open_files), *command.argv]
    if command.cpus is not None:
        argv = ["taskset", "-c", ",".join(map(str, command.cpus)), *argv]
    if command.sched_batch:
        argv = [*CHRT_BATCH, *argv]
    if command.join:
        argv = ["/bin/sh", "-c", _JOIN_GROUPS, "sh", *command.join, "--", *argv]
    return argv


def _limit(least: int) -> str:
    """Return the soft limit of open files of a command: the original one, or ``least`` if that is higher."""
    return "unlimited" if _OPEN_FILES == resource.RLIM_INFINITY else str(max(_OPEN_FILES, least))


def require_open_files(count: int, program: str) -> None:
    """Require that a command can open this many files. Raises CapabilityError with the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and count > hard:
        raise CapabilityError(
            f"{program} needs {count} open files, but the hard limit of this process is {hard}; raise it as root (ulimit -Hn {count}, or "
            "LimitNOFILE= of the service), or use fewer clients"
        )


def _group_of(user: str) -> str:
    import pwd

    return str(pwd.getpwnam(user).pw_gid)


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Return a clean environment (PATH, C locale, UTC) with ``extra`` variables."""
    return {"PATH": os.environ.get("PATH", _PATH), **_CLEAN_ENVIRONMENT, **extra}


class LocalProcess:
    """Child of this process, reaped with its resource usage."""

    def __init__(self, command: Command) -> None:
        """Start the command.

        Raises OSError if a file cannot be opened or the program is missing.
        """
        files: list[int] = []
        try:
            stdin = subprocess.DEVNULL if command.stdin is None else _open(files, command.stdin, os.O_RDONLY)
            append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            if command.user is not None:  # root may write to a directory of that user: do not follow links or wait for pipes
                append |= os.O_NOFOLLOW | os.O_NONBLOCK
            stdout = subprocess.DEVNULL if command.stdout is None else _open(files, command.stdout, append)
            same = command.stderr is not None and command.stderr == command.stdout
            stderr = stdout if same else subprocess.DEVNULL if command.stderr is None else _open(files, command.stderr, append)
            self._popen = _popen(command, stdin, stdout, stderr)
        finally:
            for number in files:
                os.close(number)
        self.pid = self._popen.pid
        self._command = command
        self._usage: resource.struct_rusage | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:  # of concurrent calls, the kernel returns the status to one only
            if self._popen.returncode is None:
                if self._command.end_session and _has_ended(self.pid):
                    _end_session(self.pid)
                try:
                    pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                except ChildProcessError:
                    self._popen.returncode = 255
                    return 255
                if pid:
                    self._popen.returncode = os.waitstatus_to_exitcode(status)
                    self._usage = usage
            code: int | None = self._popen.returncode
            return code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError(f"process {self.pid} still runs after {timeout:.0f} s")
            _await_end(self.pid, remaining)
        return code

    def signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
                os.kill(self.pid, number)

    @property
    def cpu_seconds(self) -> float | None:
        return None if self._usage is None else self._usage.ru_utime + self._usage.ru_stime


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, without reaping it: until then no other process gets its pid."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _end_session(pid: int) -> None:
    """Kill what a process left behind in its session. Mostly there is nothing. Without pkill(1) it remains."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["pkill", "-KILL", "--session", str(pid)], stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLEANUP_TIMEOUT_S)


def _await_end(pid: int, timeout: float | None) -> None:
    """Sleep until the child has ended, or for ``timeout`` seconds.

    The kernel wakes this process at the end of the child. Without pidfd (Linux before 5.3, seccomp) it polls instead.
    """
    try:
        number = os.pidfd_open(pid)
    except OSError:
        time.sleep(_POLL_INTERVAL_S if timeout is None else min(timeout, _POLL_INTERVAL_S))
        return
    try:
        ended = select.poll()
        ended.register(number, select.POLLIN)
        ended.poll(None if timeout is None else 1000 * timeout)
    finally:
        os.close(number)


def _open(files: list[int], path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_CLOEXEC, 0o600)
    files.append(number)
    return number


def run(command: Command, timeout: float, check_cancelled: Callable[[], None] | None = None) -> Completed:
    """Run a command to its end and capture its output.

    After ``timeout``, kill it and raise TimeoutError. An error of ``check_cancelled``, which is called repeatedly, also ends it.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.ExitStack() as stack:
        stdin = subprocess.DEVNULL if command.stdin is None else stack.enter_context(open(command.stdin, "rb")).fileno()
        process = _popen(command, stdin, subprocess.PIPE, subprocess.PIPE)
    try:
        out, err = _output(process, timeout, check_cancelled)
    except subprocess.TimeoutExpired:
        _end(process, command)
        raise TimeoutError(f"'{_short_form(command.argv)}' did not end within {timeout:.0f} s and was killed") from None
    except BaseException:
        _end(process, command)
        raise
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Completed(code=process.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"), cpu=cpu)


def _output(process: subprocess.Popen[bytes], timeout: float, check_cancelled: Callable[[], None] | None) -> tuple[bytes, bytes]:
    """Return the output of a command that has ended. Raises subprocess.TimeoutExpired, and what ``check_cancelled`` raises."""
    deadline = time.monotonic() + timeout
    while check_cancelled is not None and (remaining := deadline - time.monotonic()) > _CHECK_INTERVAL_S:
        check_cancelled()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a later call returns the whole output
            return process.communicate(timeout=min(remaining, _CHECK_INTERVAL_S))
    return process.communicate(timeout=max(0.0, deadline - time.monotonic()))


def _popen(command: Command, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start a command in a new session, because Ctrl-C must reach only pgherd.

    A signal during the start is delayed until the command can be ended. Otherwise the command would keep running.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with interruption.undisturbed():
            process = subprocess.Popen(
                wrap(command),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=command.cwd or "/",
                env=environment(command.env),
                start_new_session=True,
            )
    except KeyboardInterrupt:
        if process is not None:
            _end(process, command)
        raise
    assert process is not None
    return process


def _end(process: subprocess.Popen[bytes], command: Command) -> None:
    """End a command by its death signal, and kill its process group if that fails."""
    if command.death_signal != "KILL":
        process.send_signal(signal.Signals[f"SIG{command.death_signal}"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_CLEANUP_TIMEOUT_S)
            return
    with contextlib.suppress(ProcessLookupError):  # it may have ended just before
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _short_form(argv: Sequence[str]) -> str:
    return " ".join([Path(argv[0]).name, *argv[1:4], *(["…"] if len(argv) > 4 else [])])


def allow_many() -> int:
    """Raise the soft limit of open files, up to MAX_OPEN_FILES, and return it.

    Sampling opens about twelve files per database, so the usual soft limit of 1,024 suffices for fewer than 100. The
    change ends with the process (setrlimit(2)) and needs no undo. Commands get the original limit (``wrap``), so that
    servers and clients run under the host's limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    maximum = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= maximum:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, hard))
    return maximum
