"""Against stand-ins for QEMU and its console; tests/it/test_guest.py boots real guests."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import qemu, virtual_machine
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.qemu import Disk, GuestFiles, GuestSpec
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

STAND_IN = """\
#!{python}
import json, os, socket, sys, time
argv = sys.argv
log = argv[argv.index("-serial") + 1].removeprefix("file:")
open(log, "w").write("\\x1b[2Jbooting\\r\\n\\r\\n" + "line\\r\\n" * 20)
server = socket.socket(socket.AF_UNIX)
mode = argv[argv.index("-append") + 1].rpartition(" mode=")[2]
if mode == "ends":
    print("qemu: no such thing", file=sys.stderr)
    sys.exit(1)
if mode == "panics":
    open(log, "a").write("Kernel panic - not syncing: no root\\r\\n")
    sys.exit(0)
server.bind(argv[argv.index("-qmp") + 1].removeprefix("unix:").partition(",")[0])
server.listen(1)
connection = server.accept()[0]
def say(what):
    connection.sendall(json.dumps(what).encode() + b"\\r\\n")
def documents():
    rest = ""
    while data := connection.recv(4096):
        rest += data.decode()
        while rest.strip():
            try:
                document, end = json.JSONDecoder().raw_decode(rest.lstrip())
            except ValueError:
                break
            rest = rest.lstrip()[end:]
            yield document
say({{"QMP": {{"version": {{}}, "capabilities": []}}}})
began = time.monotonic()
for asked in documents():
    name, answer = asked["execute"], {{}}
    if name == "query-chardev":
        answer = [{{"label": "agent", "frontend-open": mode != "hangs" and time.monotonic() > began + 0.2}}]
    if name == "query-cpus-fast":
        answer = [{{"cpu-index": 1, "thread-id": os.getpid()}}, {{"cpu-index": 0, "thread-id": os.getpid()}}]
    if name == "qom-set":
        answer = asked["arguments"]
    if name == "quit" and mode == "stays":
        continue
    say({{"return": answer, **{{key: asked[key] for key in asked if key == "id"}}}})
    if name == "quit":
        sys.exit(0)
"""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    one = Journal.open(LocalNode(), tmp_path / "state", "test")
    yield one
    one.close()


@pytest.fixture
def start(tmp_path: Path, journal: Journal) -> Iterator[Callable[..., VirtualMachine]]:
    """Start a guest whose QEMU behaves as ``mode`` says."""
    program = tmp_path / "qemu"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    made: list[VirtualMachine] = []

    def make(mode: str = "plain") -> VirtualMachine:
        directory = tmp_path / "v"
        directory.mkdir()
        guest = GuestSpec("db01", "/k", "/i", "/r", words=(f"mode={mode}",))
        machine = VirtualMachine(LocalNode(), guest, str(directory), Hypervisor(str(program), "7.2", False, "tcg"), journal)
        made.append(machine)
        machine.start()
        return machine

    yield make
    for machine in made:
        machine.kill()


def test_a_guest_comes_up_and_is_stopped(start: Callable[..., VirtualMachine], journal: Journal) -> None:
    machine = start()
    machine.wait_ready(30)
    assert machine.running and machine.pid > 1 and [undo.kind for undo in journal.pending()] == ["kill"]
    assert machine.console_tail(2) == "line\nline" and machine.console_tail(99).startswith("booting\n")
    machine.stop()
    assert not machine.running and journal.pending() == [] and machine.ending() == "powered itself off"
    machine.stop()


def test_a_qemu_that_does_not_quit_is_killed(start: Callable[..., VirtualMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgherd.runtimes.vm.virtual_machine._QUIT_SECONDS", 0.2)
    machine = start("stays")
    machine.wait_ready(30)
    machine.stop()
    assert machine.ending() == "was ended by signal 9"


def test_a_qemu_that_refuses_tells_why(start: Callable[..., VirtualMachine]) -> None:
    with pytest.raises(TrialError, match=r"guest db01 ended with QEMU's exit code 1 while it came up; QEMU says:\nqemu: no such thing"):
        start("ends").wait_ready(30)


def test_a_kernel_that_panics_is_told_by_the_console(start: Callable[..., VirtualMachine]) -> None:
    with pytest.raises(TrialError, match=r"powered itself off while it came up; its console ends with:\n(line\n)+Kernel panic"):
        start("panics").wait_ready(30)


def test_a_guest_that_does_not_come_up_in_time(start: Callable[..., VirtualMachine]) -> None:
    with pytest.raises(TrialError, match=r"did not come up within 1 s; its console ends with:\nline"):
        start("hangs").wait_ready(1)


def test_a_guest_that_dies_is_told_as_such(start: Callable[..., VirtualMachine]) -> None:
    machine = start()
    machine.wait_ready(30)
    os.kill(machine.pid, signal.SIGKILL)
    with pytest.raises(TrialError):
        for _ in range(100):
            machine.execute("query-status")
    machine._process.wait(10)  # type: ignore[union-attr]
    told = pytest.raises(TrialError, match="guest db01 was ended by signal 9")
    with told:
        machine.execute("query-status")
    machine.qmp.close()
    with told:  # by a new connection, too, which nobody answers
        machine.execute("query-status")


def test_vcpus_are_pinned_by_their_threads(start: Callable[..., VirtualMachine]) -> None:
    machine = start()
    machine.wait_ready(30)
    cpu = min(os.sched_getaffinity(0))
    assert machine.vcpu_threads() == [machine.pid, machine.pid]
    assert machine.pin([cpu]) == {machine.pid: cpu} and os.sched_getaffinity(machine.pid) == {cpu}
    with pytest.raises(TrialError, match="cannot be put on CPU 8191"):
        machine.pin([8191])


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    hypervisor = Hypervisor("/none", "7.2", False, "tcg")
    with pytest.raises(CapabilityError, match="Linux takes 107 at most"):
        VirtualMachine(LocalNode(), GuestSpec("a", "/k", "/i", "/r"), "/" + "x" * 100, hypervisor)
    with pytest.raises(UsageError, match="is not a valid name of a guest"):
        VirtualMachine(LocalNode(), GuestSpec("a b", "/k", "/i", "/r"), "/x", hypervisor)
    with pytest.raises(TrialError, match="has not been started"):
        _ = VirtualMachine(LocalNode(), GuestSpec("a", "/k", "/i", "/r"), "/x", hypervisor).pid


def test_what_the_guests_kernel_ended_for_want_of_memory_is_read_from_its_console(start: Callable[..., VirtualMachine]) -> None:
    machine = start()
    assert machine.oom_kills() == []
    with open(machine.places.log, "a") as log:
        log.write("[   12.3] Out of memory: Killed process 211 (postgres) total-vm:812345kB, anon-rss:1kB\r\n")
    assert machine.oom_kills() == ["postgres"]


def test_qemu_runs_as_the_account_that_is_named(tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the group that opens /dev/kvm, where guests run by that; as ourselves where no group would do."""
    seen = []

    class Node(LocalNode):
        def spawn(self, command, at=None):
            seen.append((command.user, command.groups))
            raise OSError("not started")

    guest, kvm = GuestSpec("db01", "/k", "/i", "/r", accelerator="kvm"), Hypervisor("/q", "7.2", False, "kvm")
    for groups, expected in (((), ("pg", ())), (("107",), ("pg", ("107",))), (None, (None, ()))):
        monkeypatch.setattr("pgherd.runtimes.vm.virtual_machine.groups_for", lambda hypervisor, groups=groups: groups)
        machine = VirtualMachine(Node(), guest, str(tmp_path), kvm, journal, "pg")
        with pytest.raises(OSError, match="not started"):
            machine.start()
        assert seen.pop() == expected


def test_no_link_is_followed_in_the_guests_directory(start: Callable[..., VirtualMachine], tmp_path: Path) -> None:
    machine = start()
    machine.wait_ready(30)
    (tmp_path / "secret").write_text("root's own")
    log = Path(machine.places.log)
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    assert machine.console_tail(1) == "line"
    machine.kill()
    assert machine.console_tail(1) == "line"


STATUS = "Name:\tqemu-system-x86\nVmPeak:\t 1500000 kB\nVmRSS:\t  204800 kB\nVmSwap:\t    1024 kB\n"


def test_a_command_line_tells_what_runs() -> None:
    guest = GuestSpec("db01", "/k", "/i", "/r.ext4", (Disk("data", "/a,b.raw", "/d"),), vcpus=2, memory=2**30, port=7001, shell=True)
    argv = qemu.arguments("/usr/bin/qemu-system-x86_64", guest, GuestFiles("/v/q", "/v/a", "/v/c,d", "/v/l"))
    found = virtual_machine.parse_guest(42, argv, STATUS)
    assert (found.name, found.pid, found.vcpus, found.memory, found.port) == ("db01", 42, 2, 2**30, 7001)
    assert (found.resident, found.swapped, found.accelerator, found.console) == (200 * 2**20, 2**20, "tcg", "/v/c,d")
    assert found.files == ("/k", "/i", "/r.ext4", "/a,b.raw")


def test_without_port_and_console() -> None:
    guest = GuestSpec("x", "/k", "/i", "/r")
    found = virtual_machine.parse_guest(1, qemu.arguments("q", guest, GuestFiles("/q", "/a", "/c", "/l")), "")
    assert found.port is None and found.console is None and found.resident == 0


def test_looking_at_this_machine_finds_guests_of_ours_only(tmp_path) -> None:
    place = tmp_path / "v"
    place.mkdir(mode=0o700)
    files = GuestFiles(*(f"{place}/{name}" for name in "qacl"))
    argv = qemu.arguments("qemu-system-x86_64", GuestSpec("mine", "/k", "/i", "/r"), files)
    idle = [argv[0], "-S", "-c", "import time; print(1, flush=True); time.sleep(60)"]
    foreign = [word.replace("guest=pgherd-", "guest=other-") for word in argv]
    started = [
        subprocess.Popen([*idle, *words[1:]], executable=sys.executable, stdout=subprocess.PIPE, text=True) for words in (argv, foreign)
    ]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "1\n"
        found = {guest.pid: guest.name for guest in virtual_machine.running_guests(LocalNode())}
        assert found.get(started[0].pid) == "mine" and started[1].pid not in found
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_guest_that_runs_as_another_account_is_ours_by_the_place_of_its_sockets(tmp_path) -> None:
    """Nobody else can put a directory into one of ours that only we may write."""
    ours, open_to_all = tmp_path / "ours", tmp_path / "open"
    for place, mode in ((ours, 0o711), (open_to_all, 0o777)):
        place.mkdir()
        place.chmod(mode)
    guest = GuestSpec("x", "/k", "/i", "/r")

    def argv(place: str) -> list[str]:
        return qemu.arguments("q", guest, GuestFiles(f"{place}/v1/qmp", "/a", "/c", "/l"))

    assert virtual_machine._in_place_of_ours(argv(str(ours)))
    assert not virtual_machine._in_place_of_ours(argv(str(open_to_all)))
    assert not virtual_machine._in_place_of_ours(["qemu-system-x86_64"])
    elsewhere = GuestFiles(f"{ours}/v1/qmp", "/a", f"{open_to_all}/v1/console", "/l")
    assert not virtual_machine._in_place_of_ours(qemu.arguments("q", replace(guest, shell=True), elsewhere))


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
    assert virtual_machine.run_on_console(shell, "echo one; echo 'two  $HOME'", 20) == (0, "one\ntwo  $HOME\n")


def test_a_failing_command_s_exit_code(shell: str) -> None:
    assert virtual_machine.run_on_console(shell, "(exit 3)", 20) == (3, "")


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("exit 3", 3, ""),
        ("echo pgherd-done-0; echo pgherd-begin; exit 4", 4, "pgherd-done-0\npgherd-begin\n"),
        ("printf x; false", 1, "x"),
    ],
)
def test_a_command_cannot_pretend_its_end(shell: str, text: str, code: int, output: str) -> None:
    assert virtual_machine.run_on_console(shell, text, 20) == (code, output)


def test_a_command_with_a_wrong_syntax_ends_too(shell: str) -> None:
    code, output = virtual_machine.run_on_console(shell, "if", 20)
    assert code and output


@pytest.mark.parametrize("code", [10, 127, 255])
def test_an_exit_code_that_arrives_byte_by_byte(tmp_path: Path, code: int) -> None:
    """A serial line has no messages."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "console"))
    server.listen()

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            token = re.search(rb'"begin"-(\w+);', connection.recv(4096))[1].decode()  # type: ignore[index]
            for byte in f"pgherd-begin-{token}\nout\npgherd-done-{token}-{code}\r\n".encode():
                connection.sendall(bytes([byte]))
                time.sleep(0.001)

    threading.Thread(target=answer, daemon=True).start()
    assert virtual_machine.run_on_console(str(tmp_path / "console"), "x", 20) == (code, "out\n")
    server.close()


def test_a_guest_that_ends_before_its_command(tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "console"))
    server.listen()

    def end() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.close()

    threading.Thread(target=end, daemon=True).start()
    with pytest.raises(TrialError, match="the guest ended before 'poweroff -f' did"):
        virtual_machine.run_on_console(str(tmp_path / "console"), "poweroff -f", 20)
    server.close()


def test_a_command_that_does_not_end(shell: str) -> None:
    with pytest.raises(TrialError, match="did not end within 0 s"):
        virtual_machine.run_on_console(shell, "sleep 30", 0.3)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'pgherd vm list' shows running guests"):
        virtual_machine.run_on_console(str(tmp_path / "none"), "true")


def test_a_terminal_is_connected_until_it_is_left(shell: str) -> None:
    keyboard, ours = pty.openpty()
    screen, shown = os.pipe()
    before = __import__("termios").tcgetattr(ours)
    thread = threading.Thread(target=virtual_machine.attach_console, args=(shell, ours, shown), daemon=True)
    thread.start()
    said = b""
    while b"# " not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, b"echo 6$((6+1))\n")
    while b"67" not in said:
        said += os.read(screen, 4096)
    os.write(keyboard, virtual_machine.LEAVE_CONSOLE)
    thread.join(10)
    assert not thread.is_alive() and __import__("termios").tcgetattr(ours)[3] == before[3]
    for number in (keyboard, ours, screen, shown):
        os.close(number)
