"""Virtual machine: QEMU as a process of the node, its QMP monitor, and its console; and all that run on a node.

Running guests are found by QEMU's command line, and reached through the shell on their console.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shlex
import socket
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgherd.host import processes
from pgherd.host.journal import Journal
from pgherd.host.paths import SOCKET_PATH_MAX
from pgherd.host.undo_actions import Kill
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.protocol import Command, Node, Process
from pgherd.runtimes.vm import qemu
from pgherd.runtimes.vm.hypervisor import Hypervisor, groups_for
from pgherd.runtimes.vm.log_pipe import LogPipe
from pgherd.runtimes.vm.qemu import BALLOON, NAME_PREFIX, PROGRAMS, GuestFiles, GuestSpec, option
from pgherd.runtimes.vm.qmp import CALL_TIMEOUT_S, QmpClient

BOOT_TIMEOUT_S = 120.0
"""Time limit for booting. An emulated processor on a busy host is slow."""
_QUIT_SECONDS = 5.0
_ALL_LINES = 1000
_OOM_KILL = re.compile(r"Out of memory: Killed process \d+ \((.*?)\)")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[c78]|[\r\x00-\x08]")


class VirtualMachine:
    """One guest from start to stop. QEMU ends with this process, and is in the journal while it runs."""

    def __init__(
        self,
        node: Node,
        guest: GuestSpec,
        directory: str,
        hypervisor: Hypervisor,
        journal: Journal | None = None,
        account: str | None = None,
    ) -> None:
        """``directory`` is private and has a short path. It holds the guest's sockets and the pipes of its logs. QEMU runs as ``account``
        (None: the current user), which must own the directory and the guest's disks.

        Raises:
            UsageError: the description of the guest is invalid.
            CapabilityError: the directory's path is too long for sockets.
        """
        guest.check()
        self.node, self.guest, self.directory, self.hypervisor = node, guest, directory, hypervisor
        self.places = GuestFiles(*(os.path.join(directory, name) for name in ("qmp", "agent", "console", "console.log")))
        longest = max((self.places.monitor, self.places.agent, self.places.console), key=len)
        if len(os.fsencode(longest)) > SOCKET_PATH_MAX:
            size = len(os.fsencode(longest))
            raise CapabilityError(
                f"the socket path {longest} has {size} bytes, and Linux takes {SOCKET_PATH_MAX} at most; use a shorter one"
            )
        self._journal = journal
        self._groups = groups_for(hypervisor)
        self._account = account if self._groups is not None else None
        self._note: int | None = None
        self._started_at = self._ready_at = 0.0
        self._process: Process | None = None
        self.qmp = QmpClient(self.places.monitor, self.name)
        self._console: LogPipe | None = None
        self._errors: LogPipe | None = None

    @property
    def name(self) -> str:
        return self.guest.name

    @property
    def pid(self) -> int:
        """Pid of QEMU. Raises TrialError if it was not started."""
        if self._process is None:
            raise TrialError(f"guest {self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended(self, patience: float = 2.0) -> bool:
        """Return whether QEMU has ended, or ends within ``patience`` seconds. Its sockets close before the process ends."""
        with contextlib.suppress(TimeoutError):
            if self._process is not None:
                self._process.wait(patience)
        return not self.running

    @property
    def boot_seconds(self) -> float:
        """Seconds from the start of QEMU until ``wait_ready`` found the agent's port open."""
        return max(self._ready_at - self._started_at, 0.0)

    @property
    def agent_socket(self) -> str:
        """Socket of the guest's agent, for a node."""
        return self.places.agent

    def start(self, join: tuple[str, ...] = (), cpus: tuple[int, ...] | None = None) -> None:
        """Start QEMU in its container and return at once. ``wait_ready`` waits for the guest.

        All use of QEMU is charged to the container: the guest's memory, its vCPUs, its disks. Call it from a thread that outlives the
        guest (see ``Node.spawn``).

        Raises:
            OSError: QEMU cannot be started.
            UnsafeFileError: the owner of the directory has exchanged a pipe in it.
        """
        errors = os.path.join(self.directory, "qemu.log")
        argv = qemu.arguments(self.hypervisor.program, self.guest, self.places, sandbox=self.hypervisor.sandbox)
        groups = (self._groups or ()) if self._account is not None else ()
        command = Command(argv, join=join, cpus=cpus, cwd=self.directory, user=self._account, groups=groups)
        self._started_at = time.monotonic()
        with contextlib.ExitStack() as failed:
            self._console = failed.enter_context(LogPipe(self.places.log))
            self._errors = failed.enter_context(LogPipe(errors))
            self._process = self.node.spawn(replace(command, stdout=errors, stderr=errors))
            failed.pop_all()
        start = processes.start_time(self.node, self.pid)
        if self._journal is not None and start is not None:
            self._note = self._journal.note(Kill(pid=self.pid, start=start))

    def wait_ready(self, timeout: float = BOOT_TIMEOUT_S) -> None:
        """Wait until the agent in the guest has opened its port.

        Raises:
            TrialError: the guest ended, or did not boot in time. The message has the console's last lines.
        """
        deadline = time.monotonic() + timeout
        while not self._came_up():
            if not self.running:
                raise TrialError(f"guest {self.name} {self.ending()} while it came up; {self.last_words()}")
            if time.monotonic() > deadline:
                raise TrialError(f"guest {self.name} did not come up within {timeout:.0f} s; {self.last_words()}")
            time.sleep(0.05)
        self._ready_at = time.monotonic()
        if self.guest.stats_seconds:
            self.execute("qom-set", path=BALLOON, property="guest-stats-polling-interval", value=self.guest.stats_seconds)

    def _came_up(self) -> bool:
        if not (self.running and os.path.exists(self.places.monitor)):
            return False
        try:
            devices = self.execute("query-chardev")
        except TrialError:
            return False  # QEMU is starting or has just ended, which the caller checks
        return any(device["label"] == "agent" and device["frontend-open"] for device in devices)

    def execute(self, name: str, /, timeout: float = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Run a QMP command: ``execute("balloon", value=2**28)``. Pass names with dashes as ``**{"node-name": …}``.

        Raises:
            TrialError: QEMU refuses it, does not answer within ``timeout`` seconds, or has ended.
        """
        try:
            return self.qmp.execute(name, arguments or None, timeout)
        except TrialError:
            if self._process is not None and self._process.poll() is not None:
                raise TrialError(f"guest {self.name} {self.ending()}; {self.last_words()}") from None
            raise

    def stop(self) -> None:
        """End QEMU at once, like a power failure. Stop its servers before. Does nothing if QEMU does not run."""
        if self._process is None:
            return
        if self.running:
            with contextlib.suppress(TrialError):
                self.execute("quit", timeout=2.0)
            try:
                self._process.wait(_QUIT_SECONDS)
            except TimeoutError:
                self.kill()
        self.qmp.close()
        self._close_logs()
        if self._journal is not None and self._note is not None:
            self._journal.done(self._note)
            self._note = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.signal(9)
            self._process.wait(10.0)
            self._close_logs()

    def _close_logs(self) -> None:
        for log in filter(None, (self._console, self._errors)):
            log.close()

    def vcpu_threads(self) -> list[int]:
        """Return the host's thread of each vCPU."""
        vcpus = sorted(self.execute("query-cpus-fast"), key=lambda vcpu: int(vcpu["cpu-index"]))
        return [int(vcpu["thread-id"]) for vcpu in vcpus]

    def pin(self, cpus: Sequence[int]) -> dict[int, int]:
        """Assign one of these CPUs to each vCPU, in turn. Return thread → CPU. QEMU's other threads keep their affinity.

        Raises:
            TrialError: the kernel refuses it.
        """
        cpu_of = {thread: cpus[index % len(cpus)] for index, thread in enumerate(self.vcpu_threads())}
        for thread, cpu in cpu_of.items():
            completed = self.node.run(Command(["taskset", "-pc", str(cpu), str(thread)]), timeout=10)
            if completed.code != 0:
                raise TrialError(f"a vCPU of guest {self.name} cannot be put on CPU {cpu}: {completed.err.strip()}")
        return cpu_of

    def ending(self) -> str:
        """Return a description of how QEMU ended."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "has not ended"
        return "powered itself off" if code == 0 else f"ended with QEMU's exit code {code}" if code > 0 else f"was ended by signal {-code}"

    def last_words(self, lines: int = 8) -> str:
        """Return QEMU's last error messages and the console's last lines. After a kernel panic these are the lines up to the panic."""
        errors = self._tail(self._errors, 3) if self._process is not None and self._process.poll() not in (None, 0) else ""
        console = self.console_tail(_ALL_LINES).splitlines()
        panic = next((number for number, line in enumerate(console) if "Kernel panic" in line), None)
        tail = "\n".join(console[-lines:] if panic is None else console[max(0, panic + 1 - lines) : panic + 1])
        parts = [f"QEMU says:\n{errors}"] * bool(errors) + [f"its console ends with:\n{tail}"] * bool(tail)
        return "\n".join(parts) or "its console shows nothing"

    def oom_kills(self) -> list[str]:
        """Return the programs that the guest's kernel has killed for lack of memory (OOM), from its console."""
        return _OOM_KILL.findall(self.console_tail(_ALL_LINES))

    def console_tail(self, lines: int = 8) -> str:
        """Return the console's last lines."""
        return self._tail(self._console, lines)

    @staticmethod
    def _tail(log: LogPipe | None, lines: int) -> str:
        text = "" if log is None else log.text()
        return "\n".join([line for line in _CONTROL.sub("", text).splitlines() if line.strip()][-lines:])


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


def running_guests(node: Node) -> list[RunningGuest]:
    """Return all guests that this user may inspect, by name."""
    guests = []
    for pid in node.listdir("/proc"):
        if pid.isdigit():
            try:
                argv = node.read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
                is_guest = os.path.basename(argv[0]) in _NAMES and option(argv, "-name").startswith(f"guest={NAME_PREFIX}")
                if is_guest and (os.stat(f"/proc/{pid}").st_uid == os.geteuid() or _in_place_of_ours(argv)):
                    guests.append(parse_guest(int(pid), argv, node.read(f"/proc/{pid}/status").decode(errors="replace")))
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


def parse_guest(pid: int, argv: Sequence[str], status: str) -> RunningGuest:
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


LEAVE_CONSOLE = b"\x1d"
"""Ctrl-], which leaves the console as in telnet."""


def connect_console(path: str) -> socket.socket:
    """Connect to the console's socket. Raises UsageError where it is not open."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise UsageError(f"the console {path} cannot be reached: {error.strerror}; 'pgherd vm list' shows running guests") from None
    return connection


def run_on_console(path: str, text: str, timeout: float = 60.0) -> tuple[int, str]:
    """Run one command in the console's shell. Return its exit code and its output.

    Raises:
        UsageError: the console's socket is not open.
        TrialError: the command did not end in time. A second user of the console causes that too.
    """
    token = secrets.token_hex(8)  # an earlier command may still write its marks
    begin, done = f"pgherd-begin-{token}\n", re.compile(rf"pgherd-done-{token}-(\d+)\n")
    with connect_console(path) as connection:
        # One line, so that there is no prompt in between. The inner quotes make the terminal's echo differ from the output.
        # A subshell, because 'exit' or a wrong syntax would end the shell of the console or the line.
        connection.sendall(f'\necho pgherd-"begin"-{token}; (eval {shlex.quote(text)}); echo pgherd-"done"-{token}-$?\n'.encode())
        output, deadline = "", time.monotonic() + timeout
        while not (end_mark := done.search(output)):
            ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TrialError(f"'{text}' did not end within {timeout:.0f} s on the guest's console")
            try:
                data = connection.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise TrialError(f"the guest ended before '{text}' did")
            output += data.decode(errors="replace").replace("\r", "")
    return int(end_mark[1]), output[: end_mark.start()].partition(begin)[2]


def attach_console(path: str, keyboard: int, screen: int) -> None:
    """Connect a terminal (file descriptors) with the console until Ctrl-] is typed or the guest ends. Raises UsageError."""
    import termios
    import tty

    with connect_console(path) as connection:
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
                    if not typed or LEAVE_CONSOLE in typed:
                        return
                    connection.sendall(typed)
        finally:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
