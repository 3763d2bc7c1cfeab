"""Client of a guest's agent: calls over the Unix socket that QEMU connects with the guest's serial port.

``agent_wire`` describes and encodes frames and bodies, for the agent too. One thread reads. Any thread may call, and waits for its answer.
Each call has a deadline, because a guest may be too busy to answer, or frozen.

``watchdog`` watches a guest while a caller waits on another connection. A statement to a server in a guest may take minutes and has no
deadline. When the guest freezes, no answer arrives and the connection stays open, because QEMU holds the host's end of the forwarded
port.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pgherd.model.errors import TrialError
from pgherd.model.text import clean
from pgherd.runtimes.vm import agent_wire

_PAUSE = 0.05
_EVENT = 0
CALL_TIMEOUT_S = 30.0
"""Seconds to wait for an answer. A busy emulated guest is slow."""
CLOSE_TIMEOUT_S = 2.0
"""Seconds to wait for a guest that has not answered the previous call. Cleaning up after a frozen guest takes many calls."""

_MAX_TEXT_BYTES = 1000
"""Maximum size of a guest's error text."""

_RESOURCE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM)


class GuestError(TrialError, OSError):
    """A guest has died, does not answer, or is out of disk space or memory. Its trial fails, and the run continues."""


class AgentClient:
    """Connection to one guest's agent."""

    def __init__(self, connection: socket.socket, name: str, events: Callable[[list[Any]], None] | None = None) -> None:
        """``name`` is the guest's name in messages.

        The reading thread calls ``events`` with each event of the agent, and with ``[b"lost"]`` after the last one.
        """
        self.name = name
        self.lost: str | None = None
        """Reason why the guest cannot be reached any more. None while it can."""
        self.silent = False
        """The last call was not answered in time, and no message has arrived since."""
        self._events = events or (lambda event: None)
        self._connection = connection
        self._session = secrets.randbits(64)
        self._number = 0
        self._waiting: dict[int, PendingCall] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        # A guest that does not read must not block the host. The next frame's delimiter drops a partial frame.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CALL_TIMEOUT_S), 0))
        self._thread = threading.Thread(target=self._read, name=f"pgherd-guest-{name}", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: str,
        name: str,
        timeout: float,
        *,
        alive: Callable[[], bool] = lambda: True,
        events: Callable[[list[Any]], None] | None = None,
    ) -> AgentClient:
        """Connect to the socket and wait until the agent answers. The guest may still be booting.

        Raises:
            TimeoutError: it does not answer within ``timeout`` seconds.
            OSError: the virtual machine has ended (``alive`` returns False), or its socket cannot be reached.
        """
        deadline = time.monotonic() + timeout
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(path)
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:
                connection.close()
                if not alive():
                    raise OSError(f"guest {name} has ended before its agent could be reached") from None
                if time.monotonic() > deadline:
                    raise TimeoutError(f"guest {name} has no agent socket {path} after {timeout:.0f} s: {error.strerror}") from None
                time.sleep(_PAUSE)
            except BaseException:
                connection.close()
                raise
        channel = cls(connection, name, events)
        try:
            answer = channel.begin(b"ping")
            while not answer.done.wait(_PAUSE * 4):
                if not alive() or channel.lost:
                    raise OSError(f"guest {name} has ended before its agent answered")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the agent of guest {name} did not answer within {timeout:.0f} s")
            channel.end(answer, 0.0)
        except BaseException:
            channel.close()
            raise
        return channel

    def call(self, operation: bytes, *arguments: Any, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Call the agent and wait for the answer.

        Raises:
            OSError: the operation failed in the guest (with its errno and path).
            GuestError: the guest has died, does not answer, or is out of disk space or memory.
            TimeoutError: the operation exceeded the time that was set for it.
        """
        return self.end(self.begin(operation, *arguments), timeout)

    def begin(self, operation: bytes, *arguments: Any) -> PendingCall:
        """Send a call. ``end`` waits for the answer. Raises GuestError when the guest has died."""
        answer = PendingCall(operation.decode(), arguments)
        with self._lock:
            if self.lost is not None:
                raise GuestError(self.lost)
            self._number = self._number % 0xFFFFFFFF + 1
            answer.number = self._number
            self._waiting[answer.number] = answer
        data = agent_wire.frame(self._session, answer.number, agent_wire.encode([operation, *arguments]))
        try:
            with self._sending:
                self._connection.sendall(data)
        except BlockingIOError:
            self.silent = True
            self._forget(answer)
            raise GuestError(f"guest {self.name} accepts no more calls; it has not read for {CALL_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            self._forget(answer)
            raise GuestError(self.lost or f"guest {self.name} has died: {error.strerror}") from None
        return answer

    def end(self, answer: PendingCall, timeout: float) -> Any:
        """Wait for an answer. The wait is short for a silent guest. Raises as ``call``."""
        timeout = min(timeout, CLOSE_TIMEOUT_S) if self.silent else timeout
        if not answer.done.wait(timeout):
            self.silent = True
            self._forget(answer)
            raise GuestError(f"guest {self.name} did not answer '{answer.question()}' within {timeout:.0f} s")
        if answer.value is None:
            raise GuestError(self.lost or f"guest {self.name} is no longer connected")
        match answer.value:
            case [b"ok", result]:
                return result
            case [b"os", int(number), bytes(text), bytes(path)] if number:
                message = _shown(text)
                if number in _RESOURCE_ERRORS:
                    raise GuestError(f"guest {self.name} cannot '{answer.question()}': {message}")
                raise OSError(number, message, os.fsdecode(path[:_MAX_TEXT_BYTES])) if path else OSError(number, message)
            case [b"late", bytes(text)]:
                raise TimeoutError(_shown(text))
            case [b"os", _, bytes(text), _] | [b"bad", bytes(text)]:
                raise OSError(f"guest {self.name} cannot '{answer.question()}': {_shown(text)}")
        raise OSError(f"guest {self.name} answered '{answer.question()}' with an invalid message")

    def close(self) -> None:
        """Disconnect. Processes in the guest continue."""
        self._lose(f"guest {self.name} is no longer connected")
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._connection.close()

    def _forget(self, answer: PendingCall) -> None:
        with self._lock:
            self._waiting.pop(answer.number, None)

    def _read(self) -> None:
        frames = agent_wire.FrameDecoder()
        reason = "its virtual machine has closed the agent's socket"
        try:
            while data := self._connection.recv(1 << 18):
                for session, number, body in frames.feed(data):
                    if session == self._session:  # other answers belong to an earlier host
                        self._take(number, body)
        except OSError as error:
            reason = error.strerror or str(error)
        except Exception as error:  # an unexpected message must not leave callers waiting
            reason = f"its agent sent an invalid message ({error})"
        self._lose(f"guest {self.name} has died: {reason}")
        self._events([b"lost"])

    def _take(self, number: int, body: bytes) -> None:
        try:
            value = agent_wire.decode(body)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, list) or not value:
            return
        self.silent = False
        if number == _EVENT:
            self._events(value)
            return
        with self._lock:
            answer = self._waiting.pop(number, None)
        if answer is not None:
            answer.value = value
            answer.done.set()

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self.lost is None:
                self.lost = reason
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.done.set()


def _shown(text: bytes) -> str:
    return clean(text[:_MAX_TEXT_BYTES].decode(errors="replace"))


class PendingCall:
    """Operation that was sent to the agent, and its answer once that has arrived."""

    def __init__(self, operation: str, arguments: tuple[Any, ...]) -> None:
        self.operation = operation
        self.arguments = arguments
        self.number = 0
        self.done = threading.Event()
        self.value: list[Any] | None = None

    def question(self) -> str:
        """Return the operation, and the path that it concerns."""
        first = self.arguments[0] if self.arguments else None
        return f"{self.operation} {os.fsdecode(first)}" if isinstance(first, bytes) else self.operation


PING_INTERVAL_S = 5.0
"""Seconds between two pings. A shorter wait costs the guest nothing."""


@contextlib.contextmanager
def watchdog(ask: Callable[[], object], give_up: Callable[[], object], every: float = PING_INTERVAL_S) -> Iterator[None]:
    """Ping the guest while the body runs.

    ``ask`` runs every ``every`` seconds in a thread. When it raises OSError, ``give_up`` ends the wait of the body.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            try:
                ask()
            except OSError:
                if not over.is_set():
                    give_up()
                return

    threading.Thread(target=watch, name="pgherd-pulse", daemon=True).start()
    try:
        yield
    finally:
        over.set()
