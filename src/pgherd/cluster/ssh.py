"""Programs on a host over the ssh client: no password is asked for, and no orders are pasted into a remote command line.

The remote command is one constant text, with the path of our own Python quoted in it. It starts a Python of our own version, or else any,
which reads a line of JSON from its standard input: the program to run and its orders. What follows on standard input belongs to that
program, which answers with lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pgherd.model.deployment import HOST_NAME
from pgherd.model.errors import CapabilityError, TrialError, UsageError

CONNECT = 10
"""Seconds for the connection."""

_CHUNK = 1 << 20
"""Bytes that are sent at once; a host that takes them is not silent."""
_MAJOR, _MINOR = sys.version_info[:2]

_REMOTE = (
    f"alike() {{ \"$1\" -I -c 'import sys; sys.exit(sys.version_info[:2] != ({_MAJOR}, {_MINOR}))' </dev/null >/dev/null 2>&1; }}; "
    'there() { command -v "$1" >/dev/null 2>&1; }; '
    "for wanted in alike there; do "
    f"for python in {shlex.quote(sys.executable)} python{_MAJOR}.{_MINOR} python3.13 python3.12 python3.11 python3.14 python3; do "
    'if "$wanted" "$python"; then '
    'exec "$python" -I -c \'import json, sys; orders = json.loads(sys.stdin.buffer.readline()); '
    'exec(compile(orders.pop("program"), "bootstrap", "exec"), {"__name__": "bootstrap", "orders": orders})\'; '
    "fi; done; done; exit 127"
)

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Ssh:
    """How hosts are reached: a configuration file of one's own (``ssh -F``), or None for the user's."""

    config: str | None = None

    def argv(self, host: str) -> list[str]:
        """The client's command line up to the remote command."""
        settings = ("BatchMode=yes", f"ConnectTimeout={CONNECT}", "ServerAliveInterval=5", "ServerAliveCountMax=4")
        options = [word for setting in settings for word in ("-o", setting)]
        return ["ssh", "-T", *(("-F", self.config) if self.config else ()), *options, "--", host]

    def run(self, host: str, orders: dict[str, Any], *payload: bytes, timeout: float = 60.0) -> dict[str, Any]:
        """Run the bootstrap program on a host with these orders, the payload behind them; its answer. ``timeout``: seconds of silence.

        Raises:
            UsageError: the host cannot be reached so (unknown, refused, no key).
            CapabilityError: it lacks something, as it says itself.
            TrialError: it did not answer in time.
        """
        program = files("pgherd.cluster").joinpath("bootstrap.py").read_text(encoding="utf-8")
        first = json.dumps({**orders, "program": program}).encode() + b"\n"
        try:
            done = _fed([*self.argv(host), _REMOTE], (first, *payload), timeout)
        except FileNotFoundError:
            raise CapabilityError("there is no ssh client here; install openssh-client") from None
        except subprocess.TimeoutExpired:
            raise TrialError(f"host {host} did not answer over ssh within {timeout:.0f} s") from None
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == 255:
            tried = " ".join(self.argv(host))
            raise UsageError(f"host {host} cannot be reached: {_last(said)}. 'pgherd' asks for no password; '{tried} true' must work")
        if done.returncode == 127:
            raise CapabilityError(f"host {host} has no Python; install python{_MAJOR}.{_MINOR} there, as here")
        return _answer(host, done.stdout, said)

    def address(self, host: str) -> str:
        """The host's own name or address, as the client's configuration has it."""
        try:
            shown = subprocess.run([*self.argv(host)[:-2], "-G", "--", host], capture_output=True, text=True, timeout=CONNECT)
        except FileNotFoundError:
            raise CapabilityError("there is no ssh client here; install openssh-client") from None
        except subprocess.TimeoutExpired:
            raise TrialError(f"ssh did not say within {CONNECT} s how host {host} is reached") from None
        for line in shown.stdout.splitlines():
            if line.startswith("hostname "):
                return line.split(None, 1)[1]
        raise UsageError(f"ssh does not understand '{host}': {_last(shown.stderr)}")


def check_hosts(text: str) -> tuple[str, ...]:
    """``a,b,user@c`` as names for ssh; raises UsageError. What stands after the '@' is the host's name in the cluster."""
    names = tuple(word.strip() for word in text.split(","))
    for name in names:
        user, at, host = name.rpartition("@")
        if not re.fullmatch(HOST_NAME, host) or (at and not _USER.fullmatch(user)):
            raise UsageError(
                f"'{name}' in --hosts is no name of a host; write a,b,c as ssh knows them, with letters, digits, '.', ':', '-' and '_'"
            )
    hosts = [joined_name(name) for name in names]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise UsageError(f"--hosts names {', '.join(twice)} twice")
    return names


def joined_name(host: str) -> str:
    """The name under which a host joins its cluster: without the user as whom ssh reaches it."""
    return host.rpartition("@")[2]


def _fed(argv: list[str], parts: tuple[bytes, ...], timeout: float) -> subprocess.CompletedProcess[bytes]:
    """A program's end and its output. The parts are written to it one after the other, not joined: they are large, and many hosts get
    the same ones. ``timeout``: seconds in which it takes nothing and does not end. Raises FileNotFoundError, subprocess.TimeoutExpired."""

    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err) as process,
    ):
        watchdog = threading.Timer(timeout, expire)
        watchdog.start()
        try:
            assert process.stdin is not None
            with contextlib.suppress(OSError), process.stdin:  # it may have ended, and tells why
                for part in parts:
                    for begin in range(0, len(part), _CHUNK):
                        process.stdin.write(memoryview(part)[begin : begin + _CHUNK])
                        watchdog.cancel()
                        watchdog = threading.Timer(timeout, expire)
                        watchdog.start()
            process.wait()
        finally:
            watchdog.cancel()
            process.kill()
        if expired.is_set():
            raise subprocess.TimeoutExpired(argv, timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, process.returncode, out.read(), err.read())


def _answer(host: str, out: bytes, err: str) -> dict[str, Any]:
    for line in reversed(out.decode(errors="replace").splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "failed" in answer:
            raise CapabilityError(f"host {host}: {answer['failed']}")
        if isinstance(answer, dict):
            return answer
    what = _last(err) or _last(out.decode(errors="replace")) or "nothing at all"
    raise CapabilityError(f"host {host} did not answer as expected: {what}")


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
