"""Processes of the local node: how a command becomes an argv that joins its groups, drops privileges and dies with us."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pgherd.node import interruption
from pgherd.node.protocol import Command, Completed

# The shell writes itself into each group named before '--', then becomes the command. All words are positional
# parameters: nothing is ever pasted into the script.
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 97; shift; done; shift; exec "$@"'

# We may die before setpriv has asked for the death signal; then nobody would send it. $PPID is read after that: whoever
# finds another parent there goes by itself. The soft limit of open files goes back to what we had: what is measured is to run
# under the limit that it has on this host without us.
_ORPHANED = '[ "$PPID" = "$1" ] || exit 96; ulimit -S -n "$2" || exit 95; shift 2; exec "$@"'

_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The soft limit of open files that we were started with, before pgherd.host.open_files raises it."""

_LOOK_SECONDS = 0.01

# For a command that wants to clean up when it is ended.
_END_SECONDS = 10.0

_CLEAN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def wrap(command: Command) -> list[str]:
    """The argv that enters the groups, takes the affinity and the account, and then execs the command's own argv.

    One pid from start to end: sh, taskset, setpriv and sh each exec the next. setpriv comes after the others because a
    change of account clears the parent-death signal. The soft limit of open files is the one that this process was started with.
    """
    argv = ["setpriv", "--pdeathsig", command.death_signal]
    if command.user is not None:
        argv += ["--reuid", command.user, "--regid", _group_of(command.user)]
        argv += ["--groups", ",".join(command.groups)] if command.groups else ["--clear-groups"]
    argv += ["/bin/sh", "-c", _ORPHANED, "sh", str(os.getpid()), _limit(_OPEN_FILES), *command.argv]
    if command.cpus is not None:
        argv = ["taskset", "-c", ",".join(map(str, command.cpus)), *argv]
    if command.join:
        argv = ["/bin/sh", "-c", _ENTER, "sh", *command.join, "--", *argv]
    return argv


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)


def _group_of(user: str) -> str:
    import pwd

    return str(pwd.getpwnam(user).pw_gid)


def environment(extra: dict[str, str]) -> dict[str, str]:
    """A clean environment: our PATH, the C locale, UTC, and what the command adds."""
    return {"PATH": os.environ.get("PATH", _PATH), **_CLEAN_ENVIRONMENT, **extra}


class LocalProcess:
    """A child of this process, reaped with its resource usage."""

    def __init__(self, command: Command) -> None:
        """Start it. Raises OSError when a file cannot be opened or the program is missing."""
        files: list[int] = []
        try:
            stdin = subprocess.DEVNULL if command.stdin is None else _opened(files, command.stdin, os.O_RDONLY)
            append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            if command.user is not None:  # the directory may be theirs, and we may be root: no link is followed, no pipe waited for
                append |= os.O_NOFOLLOW | os.O_NONBLOCK
            stdout = subprocess.DEVNULL if command.stdout is None else _opened(files, command.stdout, append)
            same = command.stderr is not None and command.stderr == command.stdout
            stderr = stdout if same else subprocess.DEVNULL if command.stderr is None else _opened(files, command.stderr, append)
            self._popen = _popen(command, stdin, stdout, stderr)
        finally:
            for number in files:
                os.close(number)
        self.pid = self._popen.pid
        self._usage: resource.struct_rusage | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Exit code (negative: killed by that signal), or None while it runs."""
        with self._lock:  # only one of those who ask at once is told by the kernel
            if self._popen.returncode is None:
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
        """Wait for its end; raises TimeoutError after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"process {self.pid} still runs after {timeout:.0f} s")
            _await_end(self.pid, left)
        return code

    def signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
                os.kill(self.pid, number)

    @property
    def cpu_seconds(self) -> float | None:
        """User and system CPU of the process and its reaped children; None until it has ended."""
        return None if self._usage is None else self._usage.ru_utime + self._usage.ru_stime


def _await_end(pid: int, timeout: float | None) -> None:
    """Sleep until our child has ended, or for so many seconds at the most: the kernel wakes us at that very instant. A kernel that
    cannot (before 5.3, or told not to) has us look again soon."""
    try:
        number = os.pidfd_open(pid)
    except OSError:
        time.sleep(_LOOK_SECONDS if timeout is None else min(timeout, _LOOK_SECONDS))
        return
    try:
        ended = select.poll()
        ended.register(number, select.POLLIN)
        ended.poll(None if timeout is None else 1000 * timeout)
    finally:
        os.close(number)


def _opened(files: list[int], path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_CLOEXEC, 0o600)
    files.append(number)
    return number


def run(command: Command, timeout: float) -> Completed:
    """Run to the end with captured output; raises TimeoutError after killing it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.ExitStack() as stack:
        stdin = subprocess.DEVNULL if command.stdin is None else stack.enter_context(open(command.stdin, "rb")).fileno()
        process = _popen(command, stdin, subprocess.PIPE, subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process, command)
        raise TimeoutError(f"'{_shown(command.argv)}' did not end within {timeout:.0f} s and was killed") from None
    except BaseException:
        _end(process, command)
        raise
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Completed(code=process.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"), cpu=cpu)


def _popen(command: Command, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own: a Ctrl-C in the terminal is for us alone, and we end our children in order.

    A signal that comes while it starts waits until it can be ended: nobody would know of it otherwise.
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
    """End a command in the way it wants to be ended, and its whole process group if it does not."""
    if command.death_signal != "KILL":
        process.send_signal(signal.Signals[f"SIG{command.death_signal}"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_END_SECONDS)
            return
    with contextlib.suppress(ProcessLookupError):  # it may have ended just before
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _shown(argv: Sequence[str]) -> str:
    return " ".join([Path(argv[0]).name, *argv[1:4], *(["…"] if len(argv) > 4 else [])])
