"""Programs on a host by the ssh client, without passwords, and without data in the remote command line.

The remote command is constant, with the path of this Python quoted in it. It starts a Python of the same minor
version, or else any Python, which reads a line of JSON from standard input: the program and its orders. The rest of
standard input belongs to that program, which answers with lines of JSON.
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

from pgherd.model.base import NAME
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.text import clean

CONNECT = 10
"""Timeout of the connection in seconds."""

_CHUNK = 1 << 20
"""Bytes per write. A host that accepts them is not silent."""
_MAJOR, _MINOR = sys.version_info[:2]

# A Python in a directory that other users of the host can change is theirs: at the driver's path there may be anything. So the file,
# each directory and link on its way, and what it resolves to must belong to root or the user, without write permission for others.
# (A directory with the sticky bit, such as /tmp, will do for what is in it.) Without find(1) or readlink(1) nothing is trusted.
_TRUSTED = (
    "safe() { place=$1; while :; do "
    r'[ -n "$(find "$place" -prune \( -user 0 -o -user "$(id -u)" \) '
    r'\( -type l -o ! -perm -020 ! -perm -002 -o -type d -perm -1000 \) 2>/dev/null)" ] || return 1; '
    '[ "$place" = / ] && return 0; place=${place%/*}; place=${place:-/}; done; }; '
    'trusted() { case "$1" in /*) safe "$1" && safe "$(readlink -f -- "$1")" ;; esac; }; '
)

_REMOTE = _TRUSTED + (
    f"alike() {{ \"$1\" -I -c 'import sys; sys.exit(sys.version_info[:2] != ({_MAJOR}, {_MINOR}))' </dev/null >/dev/null 2>&1; }}; "
    'there() { command -v "$1" >/dev/null 2>&1; }; '
    "for wanted in alike there; do "
    f"for python in {shlex.quote(sys.executable)} python{_MAJOR}.{_MINOR} python3.13 python3.12 python3.11 python3.14 python3; do "
    'if trusted "$python" && "$wanted" "$python"; then '
    'exec "$python" -I -c \'import json, sys; orders = json.loads(sys.stdin.buffer.readline()); '
    'exec(compile(orders.pop("program"), "bootstrap", "exec"), {"__name__": "bootstrap", "orders": orders})\'; '
    "fi; done; done; exit 127"
)

_USER = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@+\\-]*[A-Za-z0-9_.-])?")
"""Also users of a directory service: ``ann@corp.example`` and ``CORP\\ann``. ssh takes the last '@' as that before the host."""


@dataclass(frozen=True)
class Ssh:
    """Configuration of ssh: a configuration file (``ssh -F``), or None for the user's."""

    config: str | None = None

    def argv(self, host: str) -> list[str]:
        """Return the client's command line up to the remote command."""
        settings = ("BatchMode=yes", f"ConnectTimeout={CONNECT}", "ServerAliveInterval=5", "ServerAliveCountMax=4")
        options = [word for setting in settings for word in ("-o", setting)]
        return ["ssh", "-T", *(("-F", self.config) if self.config else ()), *options, "--", host]

    def run(self, host: str, orders: dict[str, Any], *payload: bytes, timeout: float = 60.0) -> dict[str, Any]:
        """Run the bootstrap program on a host with these orders, followed by the payload, and return its answer.

        ``timeout`` is the maximum silence in seconds.

        Raises:
            UsageError: the host cannot be reached (unknown, refused, no key).
            CapabilityError: the host lacks a requirement.
            TrialError: it did not respond in time.
        """
        program = files("pgherd.cluster").joinpath("bootstrap.py").read_text(encoding="utf-8")
        first = json.dumps({**orders, "program": program}).encode() + b"\n"
        try:
            result = _run_with_input([*self.argv(host), _REMOTE], (first, *payload), timeout)
        except FileNotFoundError:
            raise CapabilityError("no ssh client found; install openssh-client (Fedora, SUSE: openssh-clients)") from None
        except subprocess.TimeoutExpired:
            raise TrialError(f"host {host} did not respond over ssh within {timeout:.0f} s") from None
        message = result.stderr.decode(errors="replace").strip()
        if result.returncode == 255:
            command = shlex.join(self.argv(host))
            raise UsageError(f"host {host} cannot be reached: {_last_line(message)}. '{command} true' must work without a password")
        if result.returncode == 127:
            raise CapabilityError(f"host {host} has no Python; install python{_MAJOR}.{_MINOR} there, as on this machine")
        return _answer(host, result.stdout, message)

    def address(self, host: str) -> str:
        """Return the host's name or address from the client's configuration."""
        try:
            result = subprocess.run([*self.argv(host)[:-2], "-G", "--", host], capture_output=True, text=True, timeout=CONNECT)
        except FileNotFoundError:
            raise CapabilityError("no ssh client found; install openssh-client (Fedora, SUSE: openssh-clients)") from None
        except subprocess.TimeoutExpired:
            raise TrialError(f"ssh did not print its configuration of host {host} within {CONNECT} s") from None
        for line in result.stdout.splitlines():
            if line.startswith("hostname "):
                return line.split(None, 1)[1]
        raise UsageError(f"ssh does not understand '{host}': {_last_line(result.stderr)}")


def check_hosts(text: str) -> tuple[str, ...]:
    """Parse ``a,b,user@c``, names for ssh. The host's name in the cluster follows the '@'. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        user, at, host = name.rpartition("@")
        if not re.fullmatch(NAME, host) or (at and not _USER.fullmatch(user)):
            raise UsageError(
                f"'{name}' in --hosts is not a valid host name; write a,b,c as for ssh, with letters, digits, '.', ':', '-' and '_'"
            )
    hosts = [joined_name(name) for name in names]
    duplicates = sorted({host for host in hosts if hosts.count(host) > 1})
    if duplicates:
        raise UsageError(f"--hosts names {', '.join(duplicates)} twice")
    return names


def joined_name(host: str) -> str:
    """Return the name under which a host joins its cluster: without the user for ssh."""
    return host.rpartition("@")[2]


def _run_with_input(argv: list[str], parts: tuple[bytes, ...], timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Run a program, write the parts to it, and return its result.

    The parts are not joined, because they are large and sent to many hosts. ``timeout`` is the maximum time in
    seconds in which it accepts nothing and does not end. Raises FileNotFoundError, subprocess.TimeoutExpired.
    """

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
            with contextlib.suppress(OSError), process.stdin:  # it may have ended; its output has the reason
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
        if isinstance(answer, dict):
            told: dict[str, Any] = cleaned(answer)
            if "failed" in told:
                raise CapabilityError(f"host {host}: {told['failed']}")
            return told
    output = _last_line(err) or _last_line(out.decode(errors="replace")) or "no output"
    raise CapabilityError(f"host {host} sent an unexpected answer: {output}")


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return clean(lines[-1].strip()) if lines else ""


def cleaned(value: Any) -> Any:
    """Return a value of JSON from a host whose texts cannot control a terminal."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): cleaned(item) for name, item in value.items()}
    return [cleaned(item) for item in value] if isinstance(value, list | tuple) else value
