"""Guest as a node: files, processes and samples through its agent, SQL from the host over the forwarded port.

A conninfo must reach the server from the host (see ``postgres.tcp_access``), because no connection goes through the agent. For the same
reason the host's sampling loop reads SQL sources.
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

from pgherd.node.files import MAX_BYTES, MAX_END_BYTES, FileEnd, UnsafeFileError, require_name
from pgherd.node.local import Connections
from pgherd.node.protocol import Command, Completed, SampleSource
from pgherd.runtimes.vm import agent_client, guest_spool
from pgherd.runtimes.vm.agent_client import CALL_TIMEOUT_S, AgentClient, GuestError, PendingCall
from pgherd.runtimes.vm.agent_wire import CHUNK_BYTES
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestClockOffset, measure

_WRITERS_END_S = 5.0
"""Seconds for which an ending process may create files in a directory that is being removed."""

_FETCH_SECONDS = 20.0
"""Interval between fetches of readings. Waiting readings take memory of the guest, and each fetch takes CPU of it."""

_MAX_FETCH_BYTES = 64 * 2**20
"""Maximum bytes of readings of one fetch, several times of what the agent keeps."""

_MAX_ENDED = 10_000
"""Maximum number of ended processes that are kept, several times of what a trial starts."""

_ALIGNMENTS, _ALIGNMENT_SECONDS = 40, 0.25
"""Maximum number of clock adjustments until the clock is fast enough, and the observation time of each."""

_MAX_DRIFT = 0.002
"""Seconds per second that a guest's clock may gain or lose."""

_KILLED = -signal.SIGKILL
_EXIT_CODES = frozenset([*range(256), *(-number for number in signal.Signals)])
"""Valid exit codes of a process. A negative one is a signal that Python has a name for."""
_END_SECONDS = 15.0
"""Time for the agent to end a command after its time limit."""


class GuestNode:
    """Node inside a guest. Paths, pids, CPUs and users are the guest's."""

    def __init__(self, name: str) -> None:
        """``name`` is the container's. ``connect`` makes the node usable."""
        self.name = name
        self.clock = GuestClock()
        self.patience = CALL_TIMEOUT_S
        """Seconds to wait for an answer."""
        self._channel: AgentClient | None = None
        self._connections = Connections()
        self._ended: dict[int, tuple[int, float]] = {}
        self._changed = threading.Condition()

    @classmethod
    def connect(cls, name: str, socket: str, timeout: float = 120.0, **options: Any) -> GuestNode:
        """Connect to the agent at this Unix socket, wait until it answers, and measure the guest's clock. ``options`` and errors are
        those of ``AgentClient.open``.
        """
        node = cls(name)
        node._channel = AgentClient.open(socket, name, timeout, events=node._told, **options)
        node.measure_clock()
        return node

    @property
    def channel(self) -> AgentClient:
        """Connection to the agent."""
        if self._channel is None:
            raise OSError(f"guest {self.name} is not connected")
        return self._channel

    @property
    def lost(self) -> str | None:
        """Reason why the guest cannot be reached any more. None while it can."""
        return self.channel.lost

    @property
    def silent(self) -> bool:
        """Whether the last call was not answered: the guest is frozen or very busy."""
        return self.channel.silent

    def close(self) -> None:
        """Disconnect. Processes in the guest continue."""
        self.channel.close()

    def ask(self, operation: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Call the agent. Raises as ``AgentClient.call``."""
        return self.channel.call(operation.encode(), *arguments, timeout=self.patience if timeout is None else timeout)

    def ask_for(self, shape: type | tuple[type, ...], operation: str, *arguments: Any) -> Any:
        """Call the agent, whose answer must be of a type, or a list of items of these types.

        Raises as ``ask``, and GuestError for another answer, because a guest's root user may send anything.
        """
        answer = self.ask(operation, *arguments)
        self._require(shape, operation, answer)
        return answer

    def _require(self, shape: type | tuple[type, ...], operation: str, answer: Any) -> None:
        items, types = (answer, shape) if isinstance(shape, tuple) else ([answer], (shape,))
        if not isinstance(items, list) or [type(item) for item in items] != [*types]:
            raise GuestError(f"guest {self.name} answered '{operation}' with an invalid message")

    # ---- time

    def measure_clock(self) -> GuestClockOffset:
        """Measure the offset of the guest's clock and store it. Call it at the start and the end of a phase."""

        def ping() -> tuple[float, float]:
            received, sent = self.ask_for((int, int), "ping")
            return received / 1e9, sent / 1e9

        offset = measure(ping)
        self.clock.add(offset)
        return offset

    def align_clock(self) -> GuestClockOffset:
        """Set the guest's wall clock to the host's, check its rate, and return the remaining offset.

        Instants that programs in the guest write then need no conversion. Call it before a program in the guest reads the clock.

        Raises:
            OSError: its clock has another rate. A guest's kernel calibrates its emulated processor at boot. On a busy host the result may
            be
                wrong several-fold, and the kernel needs some seconds to notice.
        """
        offset = self.measure_clock()
        rate = 0.0
        for _ in range(_ALIGNMENTS):
            if abs(offset.offset) > offset.uncertainty:
                self.ask("shift_clock", -round(offset.offset * 1e9))
                self.clock.measured.clear()  # former measurements are not valid any more
                offset = self.measure_clock()
            time.sleep(_ALIGNMENT_SECONDS)
            later = self.measure_clock()
            elapsed = later.at - offset.at
            rate = (later.offset - offset.offset) / elapsed
            if abs(rate) <= _MAX_DRIFT + (offset.uncertainty + later.uncertainty) / elapsed:
                return later
            offset = later
        raise OSError(
            f"the clock of guest {self.name} runs {1 + rate:.3g} times as fast as this machine's; boot it again, best on a quieter host"
        )

    def now(self) -> float:
        """Return the guest's wall clock, computed from the host's without a call."""
        return self.clock.guest(time.time())

    # ---- files

    def read(self, path: str) -> bytes:
        return self.read_untrusted(path)

    def read_untrusted(self, path: str, limit: int = MAX_BYTES) -> bytes:
        pieces: list[bytes] = []
        while not pieces or len(pieces[-1]) == CHUNK_BYTES:
            pieces.append(self.ask_for(bytes, "read", os.fsencode(path), CHUNK_BYTES * len(pieces)))
            if CHUNK_BYTES * (len(pieces) - 1) + len(pieces[-1]) > limit or len(pieces[-1]) > CHUNK_BYTES:
                raise GuestError(f"{path} in guest {self.name} has more than {limit:,} bytes, and is not read")
        return b"".join(pieces)

    def read_end(self, path: str, limit: int = MAX_END_BYTES) -> FileEnd:
        size = self.ask_for(int, "size", os.fsencode(path))
        data = self.ask_for(bytes, "read", os.fsencode(path), max(0, size - limit)) if size else b""
        return FileEnd(size, data[:limit])

    def exists(self, path: str) -> bool:
        return bool(self.ask("exists", os.fsencode(path)))

    def listdir(self, path: str) -> list[str]:
        names = self.ask_for(list, "listdir", os.fsencode(path))
        self._require((bytes,) * len(names), "listdir", names)
        try:
            return sorted(require_name(os.fsdecode(name)) for name in names)
        except UnsafeFileError as error:
            raise GuestError(f"guest {self.name}: {error}") from None

    def write(self, path: str, data: bytes, *, user: str | None = None) -> None:
        """The file of a ``user`` is written in place: it exists, and the agent follows no link."""
        written = self.ask_for(int, "write", os.fsencode(path), data)
        if written != len(data):
            raise GuestError(f"only {written} of {len(data)} bytes could be written to {path} in guest {self.name}; is the disk full?")

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        self.ask("make_dir", os.fsencode(path), mode, (user or "").encode())

    def remove_dir(self, path: str) -> None:
        self.ask("remove_dir", os.fsencode(path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree. A missing path is not an error. Files that are still being written are retried for some seconds."""
        deadline = time.monotonic() + _WRITERS_END_S
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
        """Start a process and return at once. With ``at``, an instant of the guest's clock, the process exists now and runs its program
        then."""
        serial, pid = self.ask_for((int, int), "spawn", *_encoded(command, at))
        return GuestProcess(self, serial, pid)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        try:
            answer = self.ask("run", math.ceil(timeout * 1000), *_encoded(command, None), timeout=timeout + _END_SECONDS + self.patience)
        except TimeoutError as error:
            if error.errno is not None:
                raise
            shown = " ".join([os.path.basename(command.argv[0]), *command.argv[1:4], *(["…"] if len(command.argv) > 4 else [])])
            raise TimeoutError(f"'{shown}' did not end within {timeout:.0f} s in guest {self.name} and was killed") from None
        self._require((int, int, bytes, bytes), "run", answer)
        code, cpu, out, err = answer
        return Completed(_exit_code(code), out.decode(errors="replace"), err.decode(errors="replace"), cpu / 1e6)

    def ended(self, serial: int) -> tuple[int, float] | None:
        """Return (exit code, CPU seconds) of a process, or None while it runs. After the guest has died, all processes have ended."""
        with self._changed:
            result = self._ended.get(serial)
        return result or ((_KILLED, 0.0) if self.lost is not None else None)

    def wait_ended(self, serial: int, timeout: float | None) -> tuple[int, float] | None:
        """Wait up to ``timeout`` seconds for the end of a process, and return as ``ended``."""
        with self._changed:
            self._changed.wait_for(lambda: serial in self._ended or self.lost is not None, timeout)
        return self.ended(serial)

    def _told(self, event: list[Any]) -> None:
        with self._changed:
            if event[0] == b"ended" and len(event) == 4 and all(isinstance(number, int) for number in event[1:]):
                self._ended[event[1]] = (_exit_code(event[2]), event[3] / 1e6)
                if len(self._ended) > _MAX_ENDED:
                    del self._ended[next(iter(self._ended))]
            self._changed.notify_all()

    # ---- SQL and samples

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a cached connection from the host. A lost connection is opened again once.

        Raises:
            psycopg.Error: the server refuses it, or cannot be reached.
            GuestError: the guest does not answer.
        """
        import psycopg

        try:
            with agent_client.watchdog(lambda: self.ask("ping"), lambda: self._connections.interrupt(conninfo)):
                return self._connections.sql(conninfo, statement, parameters)
        except psycopg.OperationalError:
            if self.silent:
                raise GuestError(f"guest {self.name} does not answer, so its server does not either") from None
            raise

    def disconnect(self, conninfo: str) -> None:
        self._connections.close(conninfo)

    def sample(self, sources: Sequence[SampleSource], spool: str, period: float = 1.0) -> GuestSampler:
        """Start to sample in the guest.

        ``spool`` is a file of the *host*. Readings arrive there every twenty seconds and at the end, with instants of the guest's clock.
        ``guest_spool.merge`` converts them.
        """
        return GuestSampler(self, sources, spool, period)


class GuestProcess:
    """Process in a guest. The agent reports its end, so that ``poll`` costs the guest nothing."""

    def __init__(self, node: GuestNode, serial: int, pid: int) -> None:
        """The process has been started. ``pid`` is the guest's."""
        self.pid = pid
        self._node = node
        self._serial = serial

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs. Negative: killed by that signal, -9 also if the guest has died."""
        ended = self._node.ended(self._serial)
        return None if ended is None else ended[0]

    def wait(self, timeout: float | None = None) -> int:
        ended = self._node.wait_ended(self._serial, timeout)
        if ended is None:
            raise TimeoutError(f"process {self.pid} of guest {self._node.name} still runs after {timeout:.0f} s")
        return ended[0]

    def signal(self, number: int) -> None:
        if self.poll() is None:
            self._node.ask("signal", self._serial, int(number))

    @property
    def cpu_seconds(self) -> float | None:
        ended = self._node.ended(self._serial)
        return None if ended is None else ended[1]


class GuestSampler:
    """Sampling loop in the guest, and a thread on the host that fetches its readings. The guest's clock is measured at its start and
    end."""

    def __init__(self, node: GuestNode, sources: Sequence[SampleSource], spool: str, period: float) -> None:
        """Open the spool and start. Raises OSError, or ValueError for sources that a guest cannot read."""
        self._node = node
        self._count = 0
        self._rest = b""
        self._lock = threading.Lock()
        self._adding = threading.Lock()
        self._stopped = threading.Event()
        self._error: OSError | None = None
        self._marks: list[PendingCall] = []
        encoded = _readable(node.name, sources)
        self._spool = open(spool, "a", encoding="utf-8")  # noqa: SIM115 (closed by stop)
        try:
            self._announce(sources)
            node.measure_clock()
            self._handle = node.ask_for(int, "sample", round(period * 1e9), encoded)
        except BaseException:
            self._spool.close()
            raise
        self._thread = threading.Thread(target=self._keep_fetching, name=f"pgherd-sampling-{node.name}", daemon=True)
        self._thread.start()

    def add(self, sources: Sequence[SampleSource]) -> None:
        """Add sources, and read at once all sources that are read in each tick."""
        encoded = _readable(self._node.name, sources)
        if not sources:  # only an instant is marked, and marking it in other guests must not wait
            self._marks.append(self._node.channel.begin(b"add", self._handle, []))
            return
        with self._adding:  # host and agent must number the sources alike
            self._announce(sources)
            self._node.ask("add", self._handle, encoded)

    def backends(self) -> dict[str, int]:
        """Return nothing: a guest has no SQL sources."""
        return {}

    def fetch(self) -> None:
        """Move the waiting readings into the spool. Raises OSError when the guest has died or the spool cannot be written."""
        with self._lock:
            remaining, fetched = True, 0
            while remaining:
                remaining, lost, data = self._node.ask_for((int, int, bytes), "fetch", self._handle)
                fetched += len(data)
                torn = remaining and len(data) < CHUNK_BYTES  # an honest agent sends full pieces before the last one
                if torn or fetched > _MAX_FETCH_BYTES or len(self._rest) > _MAX_FETCH_BYTES:
                    raise GuestError(f"guest {self._node.name} sends readings without end")
                complete_lines, self._rest = guest_spool.lines(self._rest + data)
                self._spool.writelines(complete_lines)
                self._spool.flush()
            if lost:
                raise OSError(f"{lost} ticks of guest {self._node.name} were lost: its readings could not be fetched in time")

    def stop(self) -> None:
        """Take a last sample, fetch it, and end the loop. Raises OSError where that failed, now or earlier."""
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

    def _announce(self, sources: Sequence[SampleSource]) -> None:
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


def _exit_code(code: int) -> int:
    """Return a valid exit code. A guest's root user may send any number: an invalid one is that of a killed process."""
    return code if code in _EXIT_CODES else _KILLED


def _readable(name: str, sources: Sequence[SampleSource]) -> list[list[Any]]:
    for source in sources:
        if source.kind == "sql":
            raise ValueError(f"guest {name} cannot read SQL sources ({source.sampler}): give them to the host's sampling")
    return [[source.kind.encode(), os.fsencode(source.where), source.every] for source in sources]


def _encoded(command: Command, at: float | None) -> list[Any]:
    """Encode a command for the agent. Raises ValueError for an unsupported option."""
    if command.groups:
        raise ValueError(f"'{command.argv[0]}' cannot run with further groups in a guest")
    argv = [os.fsencode(word) for word in command.argv]
    environment = [os.fsencode(f"{name}={value}") for name, value in command.env.items()]
    files = [os.fsencode(path or "") for path in (command.stdin, command.stdout, command.stderr)]
    return [
        argv,
        environment,
        os.fsencode(command.cwd or ""),
        [os.fsencode(path) for path in command.join],
        list(command.cpus or ()),
        (command.user or "").encode(),
        command.death_signal.encode(),
        *files,
        int(command.sched_batch),
        0 if at is None else round(at * 1e9),
    ]
