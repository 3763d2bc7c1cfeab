from __future__ import annotations

import os
import pty
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.model.errors import TrialError, UsageError
from pgherd.runtimes.vm import console


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[str]:
    """A real shell at a terminal, behind a socket, as QEMU puts a guest's console there."""
    path = str(tmp_path / "console")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["sh", "-i"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={"PS1": "# ", "PATH": os.defpath}
    )
    os.close(slave)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return

            def up(connection: socket.socket = connection) -> None:
                try:
                    while data := connection.recv(4096):
                        os.write(master, data)
                except OSError:  # whoever asked is gone
                    return

            threading.Thread(target=up, daemon=True).start()
            try:
                while data := os.read(master, 4096):
                    connection.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    yield path
    process.kill()
    process.wait()
    server.close()


def test_a_command_s_output_and_exit_code(shell: str) -> None:
    assert console.command(shell, "echo one; echo 'two  $HOME'", 20) == (0, "one\ntwo  $HOME\n")


def test_a_failing_command_s_exit_code(shell: str) -> None:
    assert console.command(shell, "(exit 3)", 20) == (3, "")


def test_a_command_that_does_not_end(shell: str) -> None:
    with pytest.raises(TrialError, match="did not end within 0 s"):
        console.command(shell, "sleep 30", 0.3)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'pgherd vm list' shows the guests that run"):
        console.command(str(tmp_path / "none"), "true")


def test_a_terminal_is_connected_until_it_is_left(shell: str) -> None:
    keyboard, ours = pty.openpty()
    screen, shown = os.pipe()
    before = __import__("termios").tcgetattr(ours)
    thread = threading.Thread(target=console.attach, args=(shell, ours, shown), daemon=True)
    thread.start()
    said = b""
    while b"# " not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, b"echo 6$((6+1))\n")
    while b"67" not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, console.LEAVE)
    thread.join(10)
    assert not thread.is_alive() and __import__("termios").tcgetattr(ours)[3] == before[3]
    for number in (keyboard, ours, screen, shown):
        os.close(number)
