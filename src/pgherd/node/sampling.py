"""The sampling loop of the local node: one thread, one tick per period, raw bytes into a spool.

Nothing is parsed here. Files are kept open and read again from their start; SQL goes out to all servers at once and is
collected as it comes, because a server whose CPU quota is used up may take a tenth of a second to answer, and forty of
those in a row would miss the tick.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Iterable, Sequence

from psycopg import pq

from pgherd.node.protocol import Source

_LAST_ANSWERS_SECONDS = 2.0
_PREPARE_SECONDS = 10.0
_READ, _END = b"r", b"x"
_MOST, _WHOLE = 65536, 2048
_BESIDE = 1
"""As whichever tick a reading beside the ticks counts: sources that are not read on each are left out."""


class Probe:
    """A kept, non-blocking connection over which one prepared statement at a time is sampled."""

    def __init__(self, conninfo: str) -> None:
        """Connect; raises OSError with libpq's message."""
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise OSError(self.connection.get_error_message().strip())
        self._prepared: dict[str, bytes] = {}
        self.busy: int | None = None
        self.waiting: list[int] = []

    @property
    def backend(self) -> int:
        """Pid of the server process that answers us."""
        return self.connection.backend_pid

    def send(self, statement: str) -> None:
        """Send a statement, prepared on first use. Raises OSError or psycopg.Error when the connection is gone."""
        name = self._prepared.get(statement)
        if name is None:
            name = f"s{len(self._prepared)}".encode()
            self.connection.send_prepare(name, statement.encode())
            self._await_prepared()
            self._prepared[statement] = name
        self.connection.send_query_prepared(name, None)
        self.connection.flush()

    def _await_prepared(self) -> None:
        """Wait for the answer to a prepare, but not for ever: a server in a frozen guest gives none. Raises OSError."""
        deadline = time.monotonic() + _PREPARE_SECONDS
        self.connection.flush()
        failure = ""
        while True:
            while self.connection.is_busy():
                if not _readable([self.connection.socket], deadline - time.monotonic()):
                    raise OSError(f"the server has not answered for {_PREPARE_SECONDS:.0f} s")
                self.connection.consume_input()
            result = self.connection.get_result()
            if result is None:
                break
            if result.status != pq.ExecStatus.COMMAND_OK:
                failure = result.get_error_message().strip()
        if failure:
            raise OSError(failure)

    def receive(self) -> list[list[str | None]] | None:
        """The rows, when the answer is complete; None while it is not. Raises OSError with the server's message."""
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
                failure = result.get_error_message().strip() or "the server gave no rows"
        if failure:
            raise OSError(failure)
        return rows

    def close(self) -> None:
        """Close the connection."""
        self.connection.finish()


class LocalSampling:
    """A running loop; see ``Node.sample`` for the spool's format."""

    def __init__(self, sources: Sequence[Source], spool: str, period: float, probes: dict[str, Probe]) -> None:
        """Open the spool, connect the probes and start the thread. Raises OSError when the spool cannot be opened."""
        self._spool = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._period = period
        self._probes = probes
        self._files: dict[int, int] = {}
        self._sources: list[Source] = []
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._stop, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lines: list[str] = []
        self.error: OSError | None = None
        self._announce(sources)
        self._thread = threading.Thread(target=self._loop, name="pgherd-sampling", daemon=True)
        self._thread.start()

    def add(self, sources: Sequence[Source]) -> None:
        """Read these too from now on, and everything once at once, beside the ticks; connects what SQL sources need."""
        self._announce(sources)
        os.write(self._wake, _READ)

    def _announce(self, sources: Sequence[Source]) -> None:
        if not sources:
            return
        for source in sources:
            if source.kind == "sql" and source.where not in self._probes:
                try:
                    self._probes[source.where] = Probe(source.where)
                except OSError:
                    continue  # each tick says why in the spool
        with self._lock:
            first = len(self._sources)
            self._sources.extend(sources)
            described = [[s.sampler, s.entity, s.kind, s.where, s.tag] for s in sources]
            self._lines.append(json.dumps({"sources": described, "first": first}, separators=(",", ":")))

    def backends(self) -> dict[str, int]:
        """Conninfo → pid of the server process that answers our samples."""
        return {conninfo: probe.backend for conninfo, probe in self._probes.items()}

    def stop(self) -> None:
        """Take a last sample, flush and end. Raises OSError when the spool could not be written (a full disk)."""
        os.write(self._wake, _END)
        self._thread.join()
        for number in (self._spool, self._stop, self._wake, *self._files.values()):
            os.close(number)
        if self.error is not None:
            raise self.error

    def _loop(self) -> None:
        tick = 0
        due = time.monotonic()
        stopping = False
        while True:
            self._tick(tick, everything=stopping or tick == 0)
            # Answers are collected until the next tick is due; the last tick waits for them a little.
            due = max(due + self._period, time.monotonic()) if not stopping else time.monotonic() + _LAST_ANSWERS_SECONDS
            stopped = self._collect(due, last=stopping)
            self._flush()
            if stopping:
                return
            stopping = stopped
            tick += 1

    def _tick(self, tick: int, *, everything: bool) -> None:
        with self._lock:
            sources = list(enumerate(self._sources))
        for index, source in sources:
            if index in self._gone or (tick % source.every and not everything):
                continue
            if source.kind == "sql":
                self._ask(index, source)
                continue
            now = time.time()
            try:
                raw = self._tree(source.where) if source.kind == "tree" else self._file(index, source.where)
            except OSError as error:
                if source.where.startswith("/proc/") or source.kind == "tree":
                    self._gone.add(index)  # a process that has ended does not come back
                self._say(now, index, None, str(error))
            else:
                self._say(now, index, raw)
        self._flush()

    def _file(self, index: int, path: str) -> str:
        number = self._files.get(index)
        if number is None:
            number = self._files[index] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raw = os.pread(number, _MOST, 0)
        # The kernel gives many files of /proc by the page (vmstat is longer): what may not be all of it is read on.
        at = len(raw)
        while at >= _WHOLE and (more := os.pread(number, _MOST, at)):
            raw += more
            at += len(more)
        return raw.decode(errors="replace")

    @staticmethod
    def _tree(pid: str) -> str:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pids = [pid, *file.read().split()]
        lines = []
        for one in pids:
            try:
                with open(f"/proc/{one}/stat") as file:
                    lines.append(file.read().rstrip("\n"))
            except OSError:
                if one == pid:
                    raise
        return "\n".join(lines)

    def _ask(self, index: int, source: Source) -> None:
        probe = self._probes.get(source.where)
        if probe is None:
            self._say(time.time(), index, None, "not connected")
            return
        if probe.busy is not None:
            if index not in probe.waiting and index != probe.busy:
                probe.waiting.append(index)
            return
        try:
            probe.send(source.statement)
            probe.busy = index
        except Exception as error:
            self._lost(index, source.where, error)

    def _collect(self, until: float, *, last: bool) -> bool:
        """Take answers until the time; returns True as soon as we are told to stop."""
        while True:
            asked = {p.connection.socket: p for p in self._probes.values() if p.busy is not None}
            left = until - time.monotonic()
            if left <= 0 or (last and not asked):
                return False
            watched = [*asked] if last else [self._stop, *asked]
            for ready in _readable(watched, left):
                if ready != self._stop:
                    self._answer(asked[ready])
                elif _END in os.read(ready, 4096):
                    return True
                else:
                    self._tick(_BESIDE, everything=False)

    def _answer(self, probe: Probe) -> None:
        index = probe.busy
        assert index is not None
        source = self._sources[index]
        try:
            rows = probe.receive()
            if rows is None:
                return
            self._say(time.time(), index, json.dumps(rows, separators=(",", ":")))
            probe.busy = None
            if probe.waiting:
                self._ask(waiting := probe.waiting.pop(0), self._sources[waiting])
        except Exception as error:
            self._lost(index, source.where, error)

    def _lost(self, index: int, conninfo: str, error: Exception) -> None:
        self._say(time.time(), index, None, str(error).strip())
        probe = self._probes.pop(conninfo, None)
        if probe is not None:
            probe.close()

    def _say(self, when: float, index: int, raw: str | None, error: str = "") -> None:
        line = reading_line(when, index, raw, error or None)
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
    """One reading as a line of a spool (format: ``Node.sample``), without its end. Texts alone are encoded: a hundred readings a second
    are written while something is measured, and as a whole document a small one takes four times as long."""
    told = "" if error is None else f',"error":{json.dumps(error)}'
    return f'{{"t":{when:.6f},"i":{index},"raw":{json.dumps(raw)}{told}}}'


def _readable(numbers: Iterable[int], seconds: float) -> list[int]:
    """Those of the descriptors that can be read, or whose other end is gone, as soon as there is one. Not by select(2), which takes
    none from 1,024 on."""
    waiting = select.poll()
    for number in numbers:
        waiting.register(number, select.POLLIN)
    return [number for number, _ in waiting.poll(max(0.0, 1000 * seconds))]
