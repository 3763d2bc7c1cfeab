"""QMP client: commands and events of one QEMU monitor.

The client is plain code, because the balloon manager polls every guest once a second on the host that is measured. With the
library ``qemu.qmp`` the manager took 2.4 times the CPU. Without out-of-band commands QEMU answers commands in the order in which it
receives them (QEMU, docs/interop/qmp-spec), so a queue is enough to match answers to commands. One thread reads for all guests: a guest
that does not answer delays no other.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pgherd.model.errors import TrialError

CommandArguments = tuple[str, dict[str, Any] | None]
"""QMP command and its arguments (None: no arguments)."""
READER_THREAD = "pgherd-qmp"
"""Name of the thread that reads all answers. It lives as long as the process."""
CALL_TIMEOUT_S = 10.0
_RECEIVE_BYTES = 1 << 18
_MAX_LINE_BYTES = 10 << 20
"""A longer line without an end is not an answer. Without a limit it would fill the memory."""
_T = TypeVar("_T")
_start_lock = threading.Lock()
_poller: select.epoll | None = None
_clients: dict[int, QmpClient] = {}


def _running_poller() -> select.epoll:
    """Return the poller of the reader thread, and start both on first use."""
    global _poller
    with _start_lock:
        if _poller is None:
            poller = select.epoll()
            try:
                threading.Thread(target=_read_answers, args=(poller,), name=READER_THREAD, daemon=True).start()
            except BaseException:
                poller.close()
                raise
            _poller = poller
        return _poller


def _read_answers(poller: select.epoll) -> None:
    while True:
        for number, _ in poller.poll():
            client = _clients.get(number)
            if client is not None:
                client.receive()


@dataclass
class _Batch:
    """Commands that were sent together, and their answers so far."""

    commands: Sequence[CommandArguments]
    settle: Callable[[list[Any] | TrialError], None]
    answers: list[Any] = field(default_factory=list)


class QmpClient:
    """Connection to the monitor of one QEMU.

    It connects on the first command, and again after the connection was lost. All methods may be called from any thread.
    """

    def __init__(self, path: str, name: str) -> None:
        """``path`` is the monitor's socket. ``name`` is the guest's name in messages."""
        self._path, self._name = path, name
        self._connection: socket.socket | None = None
        self._connections = 0
        self._received = b""
        self._pending: deque[_Batch] = deque()
        self._event_counts: dict[str, int] = {}
        self._lock = threading.RLock()

    def ask(self, commands: Sequence[CommandArguments], then: Callable[[list[Any]], _T]) -> Future[_T]:
        """Send commands and return at once.

        QEMU runs them one after the other. The future holds the result of ``then`` for their values, or TrialError. ``then`` runs in the
        reader thread. The future stays open while QEMU runs without answering.
        """
        result: Future[_T] = Future()

        def settle(values: list[Any] | TrialError) -> None:
            try:
                if isinstance(values, TrialError):
                    raise values
                result.set_result(then(values))
            except Exception as error:
                result.set_exception(error)

        with self._lock:
            try:
                if self._connection is None:
                    self._connect()
                self._send(commands, settle)
            except (OSError, RuntimeError) as error:  # RuntimeError: the reader thread cannot start
                self._disconnect(str(error))
                settle(TrialError(f"the monitor of guest {self._name} cannot be reached: {error}"))
        return result

    def execute(self, command: str, arguments: dict[str, Any] | None = None, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Run one command and return its value.

        Raises:
            TrialError: QEMU refuses the command, does not answer within ``timeout`` seconds, or closes the connection.
        """
        value = self.ask([(command, arguments)], lambda values: values[0])
        try:
            return value.result(timeout)
        except TimeoutError:  # the answer may still arrive: it is dropped then, and the order of later answers is kept
            raise TrialError(f"QEMU of guest {self._name} did not answer {command} within {timeout:g} s") from None

    def heard(self, event: str) -> object:
        """Return a value that changes with each event of this name, and with each new connection, which may have missed events.

        Events are counted from the first call for their name. Other events are dropped: a balloon that moves sends one per second.
        """
        return self._connections, self._event_counts.setdefault(event, 0)

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            self._disconnect("its monitor was closed")

    def receive(self) -> None:
        """Process what QEMU has sent. The reader thread calls this."""
        with self._lock:
            if self._connection is None:
                return
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
                *lines, self._received = (self._received + data).split(b"\n")
                for line in lines:
                    self._process(json.loads(line))
                if len(self._received) > _MAX_LINE_BYTES:
                    raise ValueError("a line without an end")
            except BlockingIOError:
                return
            except Exception as error:  # an unexpected message of one QEMU must not end the thread that reads for all
                self._disconnect(f"{type(error).__name__}: {error}")
            else:
                if not data:
                    self._disconnect("it has closed its monitor")

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)  # before connect, which would otherwise wait while QEMU's backlog is full
            connection.connect(self._path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._connections += 1
        _clients[connection.fileno()] = self
        _running_poller().register(connection.fileno(), select.EPOLLIN)
        self._send([("qmp_capabilities", None)], lambda values: None)

    def _send(self, commands: Sequence[CommandArguments], settle: Callable[[list[Any] | TrialError], None]) -> None:
        assert self._connection is not None
        lines = [json.dumps({"execute": command, "arguments": arguments or {}}) for command, arguments in commands]
        self._connection.sendall("\n".join(lines).encode() + b"\n")
        self._pending.append(_Batch(commands, settle))

    def _process(self, message: dict[str, Any]) -> None:
        if "event" in message:
            if message["event"] in self._event_counts:
                self._event_counts[message["event"]] += 1
        elif "return" in message or "error" in message:
            batch = self._pending[0]
            batch.answers.append(message)
            if len(batch.answers) == len(batch.commands):
                values = self._values(batch)  # may raise: the batch then stays pending, and _disconnect reports the error to its caller
                self._pending.popleft()
                batch.settle(values)

    def _values(self, batch: _Batch) -> list[Any] | TrialError:
        for (command, _), answer in zip(batch.commands, batch.answers, strict=True):
            if "error" in answer:
                return TrialError(f"QEMU of guest {self._name} refuses {command}: {answer['error'].get('desc', answer['error'])}")
        return [answer["return"] for answer in batch.answers]

    def _disconnect(self, reason: str) -> None:
        """Drop the connection, and fail all pending commands with ``reason``."""
        connection, self._connection, self._received = self._connection, None, b""
        if connection is not None:
            del _clients[connection.fileno()]
            if _poller is not None:
                with contextlib.suppress(OSError):
                    _poller.unregister(connection.fileno())
            connection.close()
        pending, self._pending = self._pending, deque()
        for batch in pending:
            batch.settle(TrialError(f"QEMU of guest {self._name} has not answered {batch.commands[0][0]}: {reason}"))
