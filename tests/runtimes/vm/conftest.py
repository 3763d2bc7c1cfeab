"""Agents as child processes, behind a stand-in for the serial port of a virtual machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgherd.runtimes.vm import agent
from pgherd.runtimes.vm.guest_node import GuestNode

AGENT = agent.__file__

WITHOUT_CTYPES = (
    "import os, runpy, sys; sys.modules['ctypes'] = None; sys.argv = ['agent', sys.argv[1]]; "
    "sys.path.insert(0, os.path.dirname({0!r})); runpy.run_path({0!r}, run_name='__main__')"
)


class SerialPort:
    """What QEMU is between a guest's serial port and its chardev's Unix socket: one client at a time, what comes while there is none is
    thrown away, and the guest is not told. ``line`` is the host's end of the serial line."""

    def __init__(self, path: Path, line: int, process: subprocess.Popen[bytes]) -> None:
        self.path, self.process = str(path), process
        self._line = line
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(4)
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        client: socket.socket | None = None
        while True:
            watched = [self._stop, self._line, self._server if client is None else client]
            ready = select.select(watched, [], [])[0]
            if self._stop in ready:
                break
            if self._server in ready:
                client = self._server.accept()[0]
            if self._line in ready:
                try:
                    data = os.read(self._line, 65536)
                except OSError:
                    data = b""
                if not data:
                    break
                if client is not None:
                    with contextlib.suppress(OSError):
                        client.sendall(data)
            if client in ready:
                assert client is not None
                try:
                    data = client.recv(65536)
                except OSError:
                    data = b""
                if not data:
                    client.close()
                    client = None
                while data:
                    data = data[os.write(self._line, data) :]
        if client is not None:
            client.close()
        self._server.close()

    def machine_dies(self) -> None:
        """As when QEMU is killed."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        if self._thread.is_alive():
            os.write(self._wake, b"x")
            self._thread.join()


@pytest.fixture(params=["socketpair", "pty"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SerialPort]:
    """An agent that runs, and the socket to it."""
    yield from _port(tmp_path, request.param)


@pytest.fixture
def plain_port(tmp_path: Path) -> Iterator[SerialPort]:
    """The same over one kind of line only."""
    yield from _port(tmp_path, "socketpair")


@pytest.fixture
def port_without_ctypes(tmp_path: Path) -> Iterator[SerialPort]:
    """An agent whose Python has no ctypes."""
    yield from _port(tmp_path, "socketpair", ["-c", WITHOUT_CTYPES.format(AGENT)])


def _port(tmp_path: Path, kind: str, program: list[str] | None = None) -> Iterator[SerialPort]:
    if kind == "pty":
        line, slave = os.openpty()
        tty.setraw(slave)
        end = os.ttyname(slave)
    else:
        ours, theirs = socket.socketpair()
        line, slave = ours.detach(), theirs.detach()
        end = str(slave)
    argv = [sys.executable, "-E", "-s", *(program or ["-S", AGENT]), end]  # as the guest's first script does it
    with open(tmp_path / "agent.err", "wb") as errors:
        process = subprocess.Popen(argv, pass_fds=() if kind == "pty" else (slave,), stderr=errors, cwd="/")
    if kind != "pty":  # a terminal's other end stays open, as a guest's port does
        os.close(slave)
    port = SerialPort(tmp_path / "s", line, process)
    try:
        yield port
        assert process.poll() in (None, -signal.SIGKILL), (tmp_path / "agent.err").read_text()
    finally:
        port.close()
        process.kill()
        process.wait()
        for number in {line, slave} if kind == "pty" else {line}:
            os.close(number)


@pytest.fixture
def guest(port: SerialPort) -> Iterator[GuestNode]:
    """The agent as a node."""
    node = GuestNode.connect("db01", port.path, 60)
    yield node
    node.close()


@pytest.fixture
def plain_guest(plain_port: SerialPort) -> Iterator[GuestNode]:
    """The same over one kind of line only."""
    node = GuestNode.connect("db01", plain_port.path, 60)
    yield node
    node.close()


@pytest.fixture
def ends() -> Callable[[int], bool]:
    """Whether a process of this pid ends within some seconds."""

    def look(pid: int) -> bool:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([handle], [], [], 20.0)[0])
        finally:
            os.close(handle)

    return look
