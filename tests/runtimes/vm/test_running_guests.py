from __future__ import annotations

import os
import pty
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.model.errors import TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import qemu, running_guests
from pgherd.runtimes.vm.qemu import Disk, GuestFiles, GuestSpec

STATUS = "Name:\tqemu-system-x86\nVmPeak:\t 1500000 kB\nVmRSS:\t  204800 kB\nVmSwap:\t    1024 kB\n"


def test_a_command_line_tells_what_runs() -> None:
    guest = GuestSpec("db01", "/k", "/i", "/r.ext4", (Disk("data", "/a,b.raw", "/d"),), vcpus=2, memory=2**30, port=7001, shell=True)
    argv = qemu.arguments("/usr/bin/qemu-system-x86_64", guest, GuestFiles("/v/q", "/v/a", "/v/c,d", "/v/l"))
    found = running_guests.parse(42, argv, STATUS)
    assert (found.name, found.pid, found.vcpus, found.memory, found.port) == ("db01", 42, 2, 2**30, 7001)
    assert (found.resident, found.swapped, found.accelerator, found.console) == (200 * 2**20, 2**20, "tcg", "/v/c,d")
    assert found.files == ("/k", "/i", "/r.ext4", "/a,b.raw")


def test_without_port_and_console() -> None:
    guest = GuestSpec("x", "/k", "/i", "/r")
    found = running_guests.parse(1, qemu.arguments("q", guest, GuestFiles("/q", "/a", "/c", "/l")), "")
    assert found.port is None and found.console is None and found.resident == 0


def test_looking_at_this_machine_finds_guests_of_ours_only() -> None:
    assert all(guest.pid > 1 and guest.name for guest in running_guests.find_all(LocalNode()))


def test_a_guest_that_runs_as_another_account_is_ours_by_the_place_of_its_sockets(tmp_path) -> None:
    """Nobody else can put a directory into one of ours that only we may write."""
    ours, open_to_all = tmp_path / "ours", tmp_path / "open"
    for place, mode in ((ours, 0o711), (open_to_all, 0o777)):
        place.mkdir()
        place.chmod(mode)
    guest = GuestSpec("x", "/k", "/i", "/r")

    def argv(place: str) -> list[str]:
        return qemu.arguments("q", guest, GuestFiles(f"{place}/v1/qmp", "/a", "/c", "/l"))

    assert running_guests._in_place_of_ours(argv(str(ours)))
    assert not running_guests._in_place_of_ours(argv(str(open_to_all)))
    assert not running_guests._in_place_of_ours(["qemu-system-x86_64"])
    elsewhere = GuestFiles(f"{ours}/v1/qmp", "/a", f"{open_to_all}/v1/console", "/l")
    assert not running_guests._in_place_of_ours(qemu.arguments("q", replace(guest, shell=True), elsewhere))


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
    assert running_guests.command(shell, "echo one; echo 'two  $HOME'", 20) == (0, "one\ntwo  $HOME\n")


def test_a_failing_command_s_exit_code(shell: str) -> None:
    assert running_guests.command(shell, "(exit 3)", 20) == (3, "")


def test_a_command_that_does_not_end(shell: str) -> None:
    with pytest.raises(TrialError, match="did not end within 0 s"):
        running_guests.command(shell, "sleep 30", 0.3)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'pgherd vm list' shows running guests"):
        running_guests.command(str(tmp_path / "none"), "true")


def test_a_terminal_is_connected_until_it_is_left(shell: str) -> None:
    keyboard, ours = pty.openpty()
    screen, shown = os.pipe()
    before = __import__("termios").tcgetattr(ours)
    thread = threading.Thread(target=running_guests.attach, args=(shell, ours, shown), daemon=True)
    thread.start()
    said = b""
    while b"# " not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, b"echo 6$((6+1))\n")
    while b"67" not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, running_guests.LEAVE)
    thread.join(10)
    assert not thread.is_alive() and __import__("termios").tcgetattr(ours)[3] == before[3]
    for number in (keyboard, ours, screen, shown):
        os.close(number)
