"""Virtual machine: QEMU as a process of the node, its QMP monitor, and its console."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgherd.host import processes
from pgherd.host.journal import Journal
from pgherd.host.paths import SOCKET_PATH_MAX
from pgherd.host.undo_actions import Kill
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.files import UnsafeFileError, read_end
from pgherd.node.protocol import Command, Node, Process
from pgherd.runtimes.vm import qemu
from pgherd.runtimes.vm.hypervisor import Hypervisor, groups_for
from pgherd.runtimes.vm.qemu import BALLOON, GuestFiles, GuestSpec
from pgherd.runtimes.vm.qmp import CALL_TIMEOUT_S, QmpClient

BOOT_TIMEOUT_S = 120.0
"""Time limit for booting. An emulated processor on a busy host is slow."""
_QUIT_SECONDS = 5.0
_ALL_LINES = 1000
_MAX_CONSOLE_BYTES = 4 * 2**20
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
        """``directory`` is private and has a short path. It holds the guest's sockets and its console's log. QEMU runs as ``account``
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
        self._errors = os.path.join(directory, "qemu.log")

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
        """Whether QEMU runs."""
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
        """
        argv = qemu.arguments(self.hypervisor.program, self.guest, self.places, sandbox=self.hypervisor.sandbox)
        groups = (self._groups or ()) if self._account is not None else ()
        command = Command(argv, join=join, cpus=cpus, cwd=self.directory, user=self._account, groups=groups)
        self._started_at = time.monotonic()
        self._process = self.node.spawn(replace(command, stdout=self._errors, stderr=self._errors))
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
        if self._journal is not None and self._note is not None:
            self._journal.done(self._note)
            self._note = None

    def kill(self) -> None:
        """End QEMU with SIGKILL."""
        if self._process is not None:
            self._process.signal(9)
            self._process.wait(10.0)

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
        return self._tail(self.places.log, lines)

    @staticmethod
    def _tail(path: str, lines: int) -> str:
        # QEMU's user owns the directory, and the guest writes without limit.
        try:
            text = read_end(path, _MAX_CONSOLE_BYTES).after(0)
        except (OSError, UnsafeFileError):
            return ""
        return "\n".join([line for line in _CONTROL.sub("", text).splitlines() if line.strip()][-lines:])
