"""Sampling loop of the local node: a thread that writes unparsed text to a spool.

Files stay open and are read again from their start. SQL statements go to all servers at once, and the answers are
collected as they arrive. A server with an exhausted CPU quota may need 0.1 s to answer, so 40 servers in sequence would
miss the tick.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from psycopg import pq

from pgherd.node.kernel_threads import KernelThreads
from pgherd.node.process import real_time
from pgherd.node.protocol import SampleSource
from pgherd.node.switches import Switches

_LAST_ANSWERS_TIMEOUT_S = 2.0
_PREPARE_TIMEOUT_S = 10.0
_MAX_REFUSALS = 3
_RECONNECT_S = 5.0
"""Seconds for an attempt to open a lost connection again, and between two of them."""
_READ, _END = b"r", b"x"
_READ_BYTES = 65536
_MIN_INCOMPLETE_BYTES = 2048
"""A shorter read is always a complete file: the kernel returns many files of /proc by the page."""
_EXTRA_TICK = 1
"""Tick number of a reading between the ticks, which leaves out sources with ``every`` above 1."""


class SampledConnection:
    """Non-blocking connection that runs one statement at a time.

    Statements are prepared, but not behind a connection pooler: they would stay in a session that it shares.
    """

    def __init__(self, conninfo: str, connection: pq.abc.PGconn | None = None) -> None:
        """Connect, or use a connection that is open; raises OSError with libpq's message."""
        self.connection = connection or pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise OSError(self.connection.get_error_message().strip())
        self._prepared: dict[str, bytes] = {}
        self._names = 0
        self._pooled: bool | None = None
        self.busy: int | None = None
        self.waiting: list[int] = []

    @property
    def backend(self) -> int:
        """Pid of the server process."""
        return self.connection.backend_pid

    def send(self, statement: str) -> None:
        """Send a statement, prepared on first use.

        Raises OSError or psycopg.Error if the connection is lost.
        """
        if self._pooled is None:
            self.connection.send_query(b"SELECT pg_backend_pid()")
            self._pooled = self._await() != str(self.backend).encode()  # a pooler announces a process of its own
        if self._pooled:
            self.connection.send_query_params(statement.encode(), None)
            self.connection.flush()
            return
        name = self._prepared.get(statement)
        if name is None:
            self._names += 1
            name = f"s{self._names}".encode()
            self.connection.send_prepare(name, statement.encode())
            self._await()
            self._prepared[statement] = name
        self.connection.send_query_prepared(name, None)
        self.connection.flush()

    def _await(self) -> bytes | None:
        """Wait for the end of a statement. Return its first value, None without rows.

        Raises OSError after a timeout, since a server in a frozen guest never answers.
        """
        deadline = time.monotonic() + _PREPARE_TIMEOUT_S
        self.connection.flush()
        failure, value = "", None
        while True:
            while self.connection.is_busy():
                if not _readable([self.connection.socket], deadline - time.monotonic()):
                    raise OSError(f"no answer from the server for {_PREPARE_TIMEOUT_S:.0f} s")
                self.connection.consume_input()
            result = self.connection.get_result()
            if result is None:
                break
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                failure = result.get_error_message().strip()
            elif result.ntuples:
                value = result.get_value(0, 0)
        if failure:
            raise OSError(failure)
        return value

    def forget(self, statement: str) -> None:
        """Prepare a statement again at its next use: what it reads may have changed."""
        self._prepared.pop(statement, None)

    def receive(self) -> list[list[str | None]] | None:
        """Return the rows, or None while the answer is incomplete.

        Raises OSError with the server's message.
        """
        self.connection.consume_input()
        if self.connection.is_busy():
            return None
        rows: list[list[str | None]] = []
        failure = ""
        while (result := self.connection.get_result()) is not None:
            if result.status == pq.ExecStatus.TUPLES_OK:
                for row in range(result.ntuples):
                    values = (result.get_value(row, column) for column in range(result.nfields))
                    rows.append([None if value is None else value.decode() for value in values])
            else:
                failure = result.get_error_message().strip() or "the server returned no rows"
        if failure:
            raise OSError(failure)
        return rows

    @property
    def usable(self) -> bool:
        """Return True if the connection can run a statement, also after one that the server refused."""
        idle = pq.TransactionStatus.IDLE
        return self.connection.status == pq.ConnStatus.OK and self.connection.transaction_status == idle

    def close(self) -> None:
        self.connection.finish()


class LocalSampling:
    """Running sampling loop; see ``Node.sample`` for the format of the spool."""

    def __init__(self, sources: Sequence[SampleSource], spool: str, period: float, probes: dict[str, SampledConnection]) -> None:
        """Open the spool, connect the probes and start the thread.

        Raises OSError if the spool cannot be opened.
        """
        self._spool = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._period = period
        self._probes = probes
        self._files: dict[int, int] = {}
        self._kernel_threads = KernelThreads()
        self._switches: dict[int, Switches] = {}
        self._sources: list[SampleSource] = []
        self._gone: set[int] = set()
        self._refused: Counter[int] = Counter()
        self._reopen_at: dict[str, float] = {}
        self._opening: dict[str, tuple[pq.abc.PGconn, int]] = {}
        self._lock = threading.Lock()
        self._stop, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lines: list[str] = []
        self.error: OSError | None = None
        self._announce(sources)
        self._thread = threading.Thread(target=self._loop, name="pgherd-sampling", daemon=True)
        self._thread.start()

    def add(self, sources: Sequence[SampleSource]) -> None:
        """Connects the servers of SQL sources."""
        self._announce(sources)
        os.write(self._wake, _READ)

    def _announce(self, sources: Sequence[SampleSource]) -> None:
        if not sources:
            return
        for source in sources:
            if source.kind == "sql" and source.where not in self._probes:
                try:
                    self._probes[source.where] = SampledConnection(source.where)
                except OSError:
                    self._reopen_at[source.where] = time.monotonic()
        with self._lock:
            first = len(self._sources)
            self._sources.extend(sources)
            descriptions = [[s.sampler, s.entity, s.kind, s.where, s.tag] for s in sources]
            self._lines.append(json.dumps({"sources": descriptions, "first": first}, separators=(",", ":")))

    def backends(self) -> dict[str, int]:
        return {conninfo: probe.backend for conninfo, probe in list(self._probes.items())}

    def stop(self) -> None:
        os.write(self._wake, _END)
        self._thread.join()
        # The next loop has other sources. It would assign a late answer to one of them.
        for conninfo in [conninfo for conninfo, probe in self._probes.items() if probe.busy is not None]:
            self._probes.pop(conninfo).close()
        for number in (self._spool, self._stop, self._wake, *self._files.values()):
            os.close(number)
        for connection, _ in self._opening.values():
            connection.finish()
        if self.error is not None:
            raise self.error

    @real_time()
    def _loop(self) -> None:
        tick = 0
        due = time.monotonic()
        stopping = False
        while True:
            self._tick(tick, everything=stopping or tick == 0)
            # Answers are collected until the next tick is due. The last tick waits for them for a limited time.
            due = max(due + self._period, time.monotonic()) if not stopping else time.monotonic() + _LAST_ANSWERS_TIMEOUT_S
            stopped = not stopping and self._collect_between(due - self._period)
            stopped = stopped or self._collect(due, last=stopping)
            self._flush()
            if stopping:
                return
            stopping = stopped
            tick += 1

    def _collect_between(self, start: float) -> bool:
        """Read the sources with several readings per tick, until the last of these. Return True as soon as the loop should stop."""
        with self._lock:
            fast = [(index, source) for index, source in enumerate(self._sources) if source.times > 1]
        steps = sorted({step / source.times for _, source in fast for step in range(1, source.times)})
        for step in steps:
            if self._collect(start + step * self._period, last=False):
                return True
            for index, source in fast:
                probe = self._probes.get(source.where)
                if probe is not None and probe.busy is None and index not in self._gone and (step * source.times).is_integer():
                    self._send(index, source)
        return False

    def _tick(self, tick: int, *, everything: bool) -> None:
        with self._lock:
            sources = list(enumerate(self._sources))
        for index, source in sources:
            if index in self._gone or (tick % source.every and not everything):
                continue
            if source.kind == "sql":
                self._send(index, source)
                continue
            now = time.time()
            try:
                raw = self._text(index, source)
            except OSError as error:
                if source.where.startswith("/proc/") or source.kind != "file":
                    self._gone.add(index)  # the process has ended
                self._record(now, index, None, str(error))
            else:
                self._record(now, index, raw)
        self._flush()

    def _text(self, index: int, source: SampleSource) -> str:
        if source.kind == "kernel-threads":
            return self._kernel_threads.read()
        if source.kind == "switches":
            return self._switches.setdefault(index, Switches(source.where)).read()
        return self._tree(source.where) if source.kind == "tree" else self._file(index, source.where)

    def _file(self, index: int, path: str) -> str:
        number = self._files.get(index)
        if number is None:
            number = self._files[index] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raw = os.pread(number, _READ_BYTES, 0)
        offset = len(raw)
        while offset >= _MIN_INCOMPLETE_BYTES and (page := os.pread(number, _READ_BYTES, offset)):
            raw += page
            offset += len(page)
        return raw.decode(errors="replace")

    @staticmethod
    def _tree(pid: str) -> str:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pids = [pid, *file.read().split()]
        lines = []
        for member in pids:
            try:
                with open(f"/proc/{member}/stat") as file:
                    lines.append(file.read().rstrip("\n"))
            except OSError:
                if member == pid:
                    raise
        return "\n".join(lines)

    def _send(self, index: int, source: SampleSource) -> None:
        probe = self._probes.get(source.where)
        if probe is None:
            self._record(time.time(), index, None, "not connected")
            if source.where in self._reopen_at:
                self._reopen(source.where)
            return
        if probe.busy is not None:
            if index not in probe.waiting and index != probe.busy:
                probe.waiting.append(index)
            return
        try:
            probe.send(source.statement)
            probe.busy = index
        except Exception as error:
            self._failed(index, source.where, error)

    def _reopen(self, conninfo: str) -> None:
        """Go on to open a lost connection, as far as that needs no waiting. Each tick calls it until the connection is there or fails."""
        now = time.monotonic()
        opening = self._opening.get(conninfo)
        if opening is None:
            if now >= self._reopen_at[conninfo]:
                self._reopen_at[conninfo] = now + _RECONNECT_S
                self._opening[conninfo] = pq.PGconn.connect_start(conninfo.encode()), pq.PollingStatus.WRITING
            return
        connection, status = opening
        while status in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
            if connection.status == pq.ConnStatus.BAD or not _ready(connection.socket, write=status == pq.PollingStatus.WRITING):
                break
            status = connection.connect_poll()
        self._opening[conninfo] = connection, status
        if status == pq.PollingStatus.OK and conninfo not in self._probes:
            self._probes[conninfo] = SampledConnection(conninfo, connection)
            del self._opening[conninfo], self._reopen_at[conninfo]
        elif connection.status == pq.ConnStatus.BAD or status == pq.PollingStatus.FAILED or now >= self._reopen_at[conninfo]:
            connection.finish()
            del self._opening[conninfo]

    def _collect(self, until: float, *, last: bool) -> bool:
        """Collect answers until the time ``until``.

        Return True as soon as the loop should stop.
        """
        while True:
            busy = {p.connection.socket: p for p in list(self._probes.values()) if p.busy is not None}
            remaining = until - time.monotonic()
            if remaining <= 0 or (last and not busy):
                return False
            descriptors = [*busy] if last else [self._stop, *busy]
            for ready in _readable(descriptors, remaining):
                if ready != self._stop:
                    self._receive(busy[ready])
                elif _END in os.read(ready, 4096):
                    return True
                else:
                    self._tick(_EXTRA_TICK, everything=False)

    def _receive(self, probe: SampledConnection) -> None:
        index = probe.busy
        assert index is not None
        source = self._sources[index]
        try:
            rows = probe.receive()
            if rows is None:
                return
            self._record(time.time(), index, json.dumps(rows, separators=(",", ":")))
            self._refused[index] = 0
        except Exception as error:
            self._failed(index, source.where, error)
        else:
            self._send_next(probe)

    def _send_next(self, probe: SampledConnection) -> None:
        probe.busy = None
        if probe.waiting:
            self._send(waiting := probe.waiting.pop(0), self._sources[waiting])

    def _failed(self, index: int, conninfo: str, error: Exception) -> None:
        """Record an error. Without a usable connection, all statements of the server fail until it is opened again.

        A statement that the server refuses several times in a row is given up, so that it does not fill the server's log.
        """
        self._record(time.time(), index, None, str(error).strip())
        probe = self._probes.get(conninfo)
        if probe is None:
            return
        if not probe.usable:
            del self._probes[conninfo]
            probe.close()
            self._reopen_at[conninfo] = time.monotonic()
            return
        probe.forget(self._sources[index].statement)
        self._refused[index] += 1
        if self._refused[index] == _MAX_REFUSALS:
            self._gone.add(index)
        self._send_next(probe)

    def _record(self, at: float, index: int, raw: str | None, error: str = "") -> None:
        line = reading_line(at, index, raw, error or None)
        with self._lock:
            self._lines.append(line)

    def _flush(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
        if not lines or self.error is not None:
            return
        data = memoryview(("\n".join(lines) + "\n").encode())
        try:
            while data:
                data = data[os.write(self._spool, data) :]
        except OSError as error:
            self.error = error


def reading_line(when: float, index: int, raw: str | None, error: str | None = None) -> str:
    """Format one reading as a spool line (see ``Node.sample``), without a newline.

    Only the texts go through the JSON encoder, because encoding the complete document takes four times as long. About
    100 readings per second are written during a measurement.
    """
    suffix = "" if error is None else f',"error":{json.dumps(error)}'
    return f'{{"t":{when:.6f},"i":{index},"raw":{json.dumps(raw)}{suffix}}}'


def _ready(number: int, *, write: bool) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLOUT if write else select.POLLIN)
    return bool(poll.poll(0))


def _readable(numbers: Iterable[int], seconds: float) -> list[int]:
    """Wait for readable descriptors, or those closed by their peer; return them.

    poll(2) is used, because select(2) is limited to descriptors below 1,024.
    """
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(max(0.0, 1000 * seconds))]
