"""The shell on a guest's console, from outside: at a terminal, or one command at a time."""

from __future__ import annotations

import os
import re
import select
import shlex
import socket
import time

from pgherd.model.errors import TrialError, UsageError

LEAVE = b"\x1d"
"""Ctrl-]: leaves the console, as telnet does it."""
_BEGIN, _DONE = "pgherd-begin", re.compile(r"pgherd-done-(\d+)")


def connect(path: str) -> socket.socket:
    """The console's socket; raises UsageError where nobody listens, or somebody else is there."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise UsageError(f"the console {path} cannot be reached: {error.strerror}; 'pgherd vm list' shows the guests that run") from None
    return connection


def command(path: str, text: str, timeout: float = 60.0) -> tuple[int, str]:
    """Type one command at the shell and return its exit code and what it wrote.

    Raises:
        UsageError: nobody listens there.
        TrialError: it did not end in time; somebody else at the console makes that happen, too.
    """
    with connect(path) as connection:
        # One line, so that no prompt comes between; the inner quotes keep the terminal's echo of it from looking like the answer.
        connection.sendall(f'\necho pgherd-"begin"; eval {shlex.quote(text)}; echo pgherd-"done"-$?\n'.encode())
        said, deadline = "", time.monotonic() + timeout
        while not (ended := _DONE.search(said)):
            ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
            data = connection.recv(65536) if ready else b""
            if not data:
                raise TrialError(f"'{text}' did not end within {timeout:.0f} s on the guest's console")
            said += data.decode(errors="replace").replace("\r", "")
    return int(ended[1]), said[: ended.start()].partition(f"{_BEGIN}\n")[2]


def attach(path: str, keyboard: int, screen: int) -> None:
    """Connect a terminal (file descriptors) with the console until Ctrl-] is typed or the guest ends; raises UsageError."""
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
