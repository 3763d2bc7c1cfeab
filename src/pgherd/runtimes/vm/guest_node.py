"""A virtual machine's inside as a node: files, processes and samples through its agent, SQL from the host over the forwarded port.

A conninfo must reach the server from the host (see ``postgres.tcp_access``): no connection goes through the agent. For the same reason SQL
sources are not sampled here but by the host's loop, which has the connections.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from pgherd.node.connections import Connections
from pgherd.node.protocol import Command, Completed, Source
from pgherd.runtimes.vm import channel, guest_spool
from pgherd.runtimes.vm.agent_wire import PIECE
from pgherd.runtimes.vm.channel import PATIENCE, Answer, Channel, GuestError
from pgherd.runtimes.vm.guest_spool import GuestClock, Offset, measure

_STILL_WRITTEN = 5.0
"""Seconds for which a process that is just ending may go on making files in a directory that is to go."""

_FETCH_SECONDS = 20.0
"""Readings are fetched so often: what waits takes the guest's memory, and every fetch its CPU."""

_ALIGNMENTS, _ALIGNMENT_SECONDS = 40, 0.25
"""How often a clock is set, at most, until it runs as fast as ours; and for how long it is watched each time."""

_FAST_ENOUGH = 0.002
"""Seconds per second that a guest's clock may gain or lose."""

_KILLED = -signal.SIGKILL
_END_SECONDS = 15.0
"""What the agent may need, beyond a command's own time, to end it."""


class GuestNode:
    """Implements ``pgherd.node.protocol.Node`` in a guest. Its paths, pids, CPUs and accounts are the guest's."""

    def __init__(self, name: str) -> None:
        """``name`` is the container's. ``connect`` makes it usable."""
        self.name = name
        self.clock = GuestClock()
        self.patience = PATIENCE
        """Seconds for which an answer is waited for."""
        self._channel: Channel | None = None
        self._connections = Connections()
        self._ended: dict[int, tuple[int, float]] = {}
        self._changed = threading.Condition()

    @classmethod
    def connect(cls, name: str, socket: str, timeout: float = 120.0, **options: Any) -> GuestNode:
        """The guest whose agent answers on this Unix socket; waits until it does, and measures its clock. ``options`` and errors are
        those of ``Channel.open``."""
        node = cls(name)
        node._channel = Channel.open(socket, name, timeout, events=node._told, **options)
        node.measure_clock()
        return node

    @property
    def channel(self) -> Channel:
        """The way to the agent."""
        if self._channel is None:
            raise OSError(f"guest {self.name} is not connected")
        return self._channel

    @property
    def lost(self) -> str | None:
        """Why the guest can't be reached any more, in a sentence; None while it can."""
        return self.channel.lost

    @property
    def silent(self) -> bool:
        """Whether it has left the last question without an answer: it is frozen, or very busy."""
        return self.channel.silent

    def close(self) -> None:
        """Disconnect; what runs in the guest runs on."""
        self.channel.close()

    def ask(self, operation: str, *arguments: Any, timeout: float | None = None) -> Any:
        """One call to the agent; raises as ``Channel.call``."""
        return self.channel.call(operation.encode(), *arguments, timeout=self.patience if timeout is None else timeout)

    # ---- time

    def measure_clock(self) -> Offset:
        """Measure how far the guest's clock is from ours, and keep that: do it at the beginning and the end of a phase."""

        def asked() -> tuple[float, float]:
            received, sent = self.ask("ping")
            return received / 1e9, sent / 1e9

        found = measure(asked)
        self.clock.add(found)
        return found

    def align_clock(self) -> Offset:
        """Set the guest's wall clock to ours, as well as can be known, see that it runs as fast, and say what is left: what programs in the
        guest write of instants then needs no conversion. Do it before anything in the guest looks at its clock.

        Raises:
            OSError: its clock does not run as fast as ours. A guest's kernel measures its emulated processor when it boots; on a busy
                host that may go wrong several-fold, and takes it some seconds to notice.
        """
        found = self.measure_clock()
        rate = 0.0
        for _ in range(_ALIGNMENTS):
            if abs(found.offset) > found.uncertainty:
                self.ask("shift_clock", -round(found.offset * 1e9))
                self.clock.measured.clear()  # what was measured before does not hold any more
                found = self.measure_clock()
            time.sleep(_ALIGNMENT_SECONDS)
            later = self.measure_clock()
            passed = later.at - found.at
            rate = (later.offset - found.offset) / passed
            if abs(rate) <= _FAST_ENOUGH + (found.uncertainty + later.uncertainty) / passed:
                return later
            found = later
        raise OSError(
            f"the clock of guest {self.name} runs {1 + rate:.3g} times as fast as this machine's; boot it again, best on a quieter host"
        )

    def now(self) -> float:
        """The guest's wall clock, as computed from ours: the guest is not asked."""
        return self.clock.guest(time.time())

    # ---- files

    def read(self, path: str) -> bytes:
        """A whole file, fetched in pieces."""
        data = self.ask("read", os.fsencode(path), 0)
        pieces = [data]
        while len(pieces[-1]) == PIECE:
            pieces.append(self.ask("read", os.fsencode(path), PIECE * len(pieces)))
        return b"".join(pieces)

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return bool(self.ask("exists", os.fsencode(path)))

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a directory."""
        return sorted(os.fsdecode(name) for name in self.ask("listdir", os.fsencode(path)))

    def write(self, path: str, data: bytes) -> None:
        """Write a file or a kernel knob in one write call."""
        written = self.ask("write", os.fsencode(path), data)
        if written != len(data):
            raise GuestError(f"only {written} of {len(data)} bytes could be written to {path} in guest {self.name}; is the disk full?")

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        """Make a directory and its parents; ``mode`` and owner apply to the last one."""
        self.ask("make_dir", os.fsencode(path), mode, (user or "").encode())

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        self.ask("remove_dir", os.fsencode(path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; nothing happens if it is gone. What is still being written gets a moment."""
        deadline = time.monotonic() + _STILL_WRITTEN
        while True:
            try:
                self.ask("remove_tree", os.fsencode(path))
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    # ---- processes

    def spawn(self, command: Command, at: float | None = None) -> GuestProcess:
        """Start a process and return at once. With ``at``, an instant of the guest's clock, it has its pid now and becomes the
        command's program then."""
        serial, pid = self.ask("spawn", *_asked(command, at))
        return GuestProcess(self, serial, pid)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        """Run a command to its end and capture its output; raises TimeoutError after killing it."""
        try:
            answer = self.ask("run", math.ceil(timeout * 1000), *_asked(command, None), timeout=timeout + _END_SECONDS + self.patience)
        except TimeoutError as error:
            if error.errno is not None:
                raise
            shown = " ".join([os.path.basename(command.argv[0]), *command.argv[1:4], *(["…"] if len(command.argv) > 4 else [])])
            raise TimeoutError(f"'{shown}' did not end within {timeout:.0f} s in guest {self.name} and was killed") from None
        code, cpu, out, err = answer
        return Completed(code, out.decode(errors="replace"), err.decode(errors="replace"), cpu / 1e6)

    def ended(self, serial: int) -> tuple[int, float] | None:
        """(exit code, CPU seconds) of a process that has ended; None while it runs. All have, when the guest has died."""
        with self._changed:
            found = self._ended.get(serial)
        return found or ((_KILLED, 0.0) if self.lost is not None else None)

    def wait_ended(self, serial: int, timeout: float | None) -> tuple[int, float] | None:
        """The same, waiting for it up to ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: serial in self._ended or self.lost is not None, timeout)
        return self.ended(serial)

    def _told(self, event: list[Any]) -> None:
        with self._changed:
            if event[0] == b"ended" and len(event) == 4 and all(isinstance(number, int) for number in event[1:]):
                self._ended[event[1]] = (event[2], event[3] / 1e6)
            self._changed.notify_all()

    # ---- SQL and samples

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a kept connection from the host; a connection that was lost is made anew once.

        Raises:
            psycopg.Error: the server refuses it, or cannot be reached.
            GuestError: the guest does not answer any more.
        """
        import psycopg

        try:
            with channel.felt(lambda: self.ask("ping"), lambda: self._connections.interrupt(conninfo)):
                return self._connections.sql(conninfo, statement, parameters)
        except psycopg.OperationalError:
            if self.silent:
                raise GuestError(f"guest {self.name} does not answer any more, and so neither does its server") from None
            raise

    def disconnect(self, conninfo: str) -> None:
        """Close the kept connection, if there is one."""
        self._connections.close(conninfo)

    def sample(self, sources: Sequence[Source], spool: str, period: float = 1.0) -> GuestSampling:
        """Start to sample in the guest. ``spool`` is a file of the *host*, where readings arrive every twenty seconds and at the end; their
        instants are of the guest's clock (``guest_spool.merge`` puts them on the host's)."""
        return GuestSampling(self, sources, spool, period)


class GuestProcess:
    """A process in a guest. The agent tells when it ends, so asking whether it runs costs the guest nothing."""

    def __init__(self, node: GuestNode, serial: int, pid: int) -> None:
        """It has been started; ``pid`` is the guest's."""
        self.pid = pid
        self._node = node
        self._serial = serial

    def poll(self) -> int | None:
        """Exit code (negative: killed by that signal; -9 too if the guest has died), or None while it runs."""
        ended = self._node.ended(self._serial)
        return None if ended is None else ended[0]

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutError after ``timeout`` seconds."""
        ended = self._node.wait_ended(self._serial, timeout)
        if ended is None:
            raise TimeoutError(f"process {self.pid} of guest {self._node.name} still runs after {timeout:.0f} s")
        return ended[0]

    def signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            self._node.ask("signal", self._serial, int(number))

    @property
    def cpu_seconds(self) -> float | None:
        """User and system CPU (of the guest's clock) of the process and its reaped children; None until it has ended."""
        ended = self._node.ended(self._serial)
        return None if ended is None else ended[1]


class GuestSampling:
    """A sampling loop in the guest, and a thread here that fetches what it has read. The guest's clock is measured when it begins and when
    it stops."""

    def __init__(self, node: GuestNode, sources: Sequence[Source], spool: str, period: float) -> None:
        """Open the spool and start. Raises OSError, or ValueError for sources that a guest cannot read."""
        self._node = node
        self._count = 0
        self._rest = b""
        self._lock = threading.Lock()
        self._adding = threading.Lock()
        self._stopped = threading.Event()
        self._error: OSError | None = None
        self._marks: list[Answer] = []
        asked = _readable(node.name, sources)
        self._spool = open(spool, "a", encoding="utf-8")  # noqa: SIM115 (closed by stop)
        try:
            self._announce(sources)
            node.measure_clock()
            self._handle = node.ask("sample", round(period * 1e9), asked)
        except BaseException:
            self._spool.close()
            raise
        self._thread = threading.Thread(target=self._keep_fetching, name=f"pgherd-sampling-{node.name}", daemon=True)
        self._thread.start()

    def add(self, sources: Sequence[Source]) -> None:
        """Read these too from now on, and everything once at once, beside the ticks."""
        asked = _readable(self._node.name, sources)
        if not sources:  # an instant is marked, for which nobody waits: other guests have theirs
            self._marks.append(self._node.channel.begin(b"add", self._handle, []))
            return
        with self._adding:  # both sides must give the sources the same numbers
            self._announce(sources)
            self._node.ask("add", self._handle, asked)

    def backends(self) -> dict[str, int]:
        """None: a guest has no SQL sources."""
        return {}

    def fetch(self) -> None:
        """Move what has been read into the spool. Raises OSError when the guest has died or the spool cannot be written."""
        with self._lock:
            more = True
            while more:
                more, lost, data = self._node.ask("fetch", self._handle)
                found, self._rest = guest_spool.lines(self._rest + data)
                self._spool.writelines(found)
                self._spool.flush()
            if lost:
                raise OSError(f"{lost} ticks of guest {self._node.name} were lost: its readings could not be fetched in time")

    def stop(self) -> None:
        """Take a last sample, fetch it all and end the loop; raises OSError where that was not possible, at any time."""
        self._stopped.set()
        self._thread.join()
        try:
            self._node.ask("stop", self._handle)
            for mark in self._marks:
                self._node.channel.end(mark, self._node.patience)
            self._node.measure_clock()
            self.fetch()
        finally:
            self._spool.close()
        if self._error is not None:
            raise self._error

    def _announce(self, sources: Sequence[Source]) -> None:
        if sources:
            with self._lock:
                self._spool.write(guest_spool.announcement(sources, self._count))
                self._spool.flush()
                self._count += len(sources)

    def _keep_fetching(self) -> None:
        while not self._stopped.wait(_FETCH_SECONDS):
            try:
                self.fetch()
            except OSError as error:
                self._error = error
                return


def _readable(name: str, sources: Sequence[Source]) -> list[list[Any]]:
    for source in sources:
        if source.kind == "sql":
            raise ValueError(f"guest {name} cannot read SQL sources ({source.sampler}): give them to the host's sampling")
    return [[source.kind.encode(), os.fsencode(source.where), source.every] for source in sources]


def _asked(command: Command, at: float | None) -> list[Any]:
    """A command as the agent wants it. Raises ValueError for what it cannot do."""
    if command.groups:
        raise ValueError(f"'{command.argv[0]}' cannot be given further groups in a guest")
    words = [os.fsencode(word) for word in command.argv]
    environment = [os.fsencode(f"{name}={value}") for name, value in command.env.items()]
    files = [os.fsencode(path or "") for path in (command.stdin, command.stdout, command.stderr)]
    return [
        words,
        environment,
        os.fsencode(command.cwd or ""),
        [os.fsencode(path) for path in command.join],
        list(command.cpus or ()),
        (command.user or "").encode(),
        command.death_signal.encode(),
        *files,
        0 if at is None else round(at * 1e9),
    ]
