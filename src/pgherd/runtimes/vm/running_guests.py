"""Running guests of a node: found by QEMU's command line, and reached through the shell on their console."""

from __future__ import annotations

import os
import re
import select
import shlex
import socket
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.errors import TrialError, UsageError
from pgherd.node.protocol import Node
from pgherd.runtimes.vm.qemu import NAME_PREFIX, PROGRAMS, option

_NAMES = tuple(map(os.path.basename, PROGRAMS))


@dataclass(frozen=True)
class RunningGuest:
    """Running guest: pid of QEMU, vCPUs, configured memory, ``resident`` and ``swapped`` bytes of QEMU, accelerator, forwarded port,
    socket of the console (None: no shell on it), and open image files.
    """

    name: str
    pid: int
    vcpus: int
    memory: int
    resident: int
    swapped: int
    accelerator: str
    port: int | None
    console: str | None
    files: tuple[str, ...]


def find_all(node: Node) -> list[RunningGuest]:
    """Return all guests that this user may inspect, by name."""
    guests = []
    for pid in node.listdir("/proc"):
        if pid.isdigit():
            try:
                argv = node.read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
                is_guest = os.path.basename(argv[0]) in _NAMES and option(argv, "-name").startswith(f"guest={NAME_PREFIX}")
                if is_guest and (os.stat(f"/proc/{pid}").st_uid == os.geteuid() or _in_place_of_ours(argv)):
                    guests.append(parse(int(pid), argv, node.read(f"/proc/{pid}/status").decode(errors="replace")))
            except (OSError, ValueError):
                continue  # it has ended, belongs to another user, or is not a guest
    return sorted(guests, key=lambda guest: guest.name)


def _in_place_of_ours(argv: Sequence[str]) -> bool:
    """Return whether the guest's sockets are in a directory that only this user can have created.

    QEMU may run as another user, and any user may run a program of that name with a foreign socket path.
    """
    sockets = re.findall(r"(?:^unix:|socket,id=console,path=)(.*?),server=on", "\n".join(argv), re.MULTILINE)
    directories = {os.path.dirname(os.path.dirname(path.replace(",,", ","))) for path in sockets}
    if len(directories) != 1:
        return False
    status = os.lstat(directories.pop())
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def parse(pid: int, argv: Sequence[str], status: str) -> RunningGuest:
    """Parse a command line and ``/proc/PID/status`` (proc(5))."""

    def kilobytes(line: str) -> int:
        match = re.search(rf"^{line}:\s+(\d+) kB", status, re.MULTILINE)
        return int(match[1]) * 1024 if match else 0

    text = "\n".join(argv)
    port = re.search(r"hostfwd=tcp:127\.0\.0\.1:(\d+)-", text)
    console = re.search(r"socket,id=console,path=(.*?),server=on", text)
    drives = re.findall(r"^if=none,id=[^,]+,format=raw,file=((?:[^,]|,,)+)", text, re.MULTILINE)
    return RunningGuest(
        name=re.sub(rf"^guest={NAME_PREFIX}|,.*", "", option(argv, "-name")),
        pid=pid,
        vcpus=int(option(argv, "-smp") or 1),
        memory=int(re.sub(r"\D", "", option(argv, "-m")) or 0) * 2**20,
        resident=kilobytes("VmRSS"),
        swapped=kilobytes("VmSwap"),
        accelerator=option(argv, "-accel").partition(",")[0],
        port=int(port[1]) if port else None,
        console=console[1].replace(",,", ",") if console else None,
        files=(option(argv, "-kernel"), option(argv, "-initrd"), *(drive.replace(",,", ",") for drive in drives)),
    )


LEAVE = b"\x1d"
"""Ctrl-], which leaves the console as in telnet."""
_BEGIN, _DONE = "pgherd-begin", re.compile(r"pgherd-done-(\d+)")


def connect(path: str) -> socket.socket:
    """Connect to the console's socket. Raises UsageError where it is not open."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise UsageError(f"the console {path} cannot be reached: {error.strerror}; 'pgherd vm list' shows running guests") from None
    return connection


def command(path: str, text: str, timeout: float = 60.0) -> tuple[int, str]:
    """Run one command in the console's shell. Return its exit code and its output.

    Raises:
        UsageError: the console's socket is not open.
        TrialError: the command did not end in time. A second user of the console causes that too.
    """
    with connect(path) as connection:
        # One line, so that there is no prompt in between. The inner quotes make the terminal's echo differ from the output.
        connection.sendall(f'\necho pgherd-"begin"; eval {shlex.quote(text)}; echo pgherd-"done"-$?\n'.encode())
        output, deadline = "", time.monotonic() + timeout
        while not (end_mark := _DONE.search(output)):
            ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
            data = connection.recv(65536) if ready else b""
            if not data:
                raise TrialError(f"'{text}' did not end within {timeout:.0f} s on the guest's console")
            output += data.decode(errors="replace").replace("\r", "")
    return int(end_mark[1]), output[: end_mark.start()].partition(f"{_BEGIN}\n")[2]


def attach(path: str, keyboard: int, screen: int) -> None:
    """Connect a terminal (file descriptors) with the console until Ctrl-] is typed or the guest ends. Raises UsageError."""
    import termios
    import tty

    with connect(path) as connection:
        before = termios.tcgetattr(keyboard)
        tty.setraw(keyboard)
        try:
            connection.sendall(b"\n")  # for a prompt
            while True:
                ready = select.select([connection.fileno(), keyboard], [], [])[0]
                if connection.fileno() in ready:
                    if not (data := connection.recv(65536)):
                        return
                    os.write(screen, data)
                if keyboard in ready:
                    typed = os.read(keyboard, 4096)
                    if not typed or LEAVE in typed:
                        return
                    connection.sendall(typed)
        finally:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
