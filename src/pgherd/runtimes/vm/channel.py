"""The host's side of a guest's agent: calls over the Unix socket that QEMU connects with the guest's serial port.

Frames and bodies are described, and made, in ``agent_wire``, which the agent has too. Here a thread reads; any thread may call,
and waits for its own answer. Every call has a deadline: a guest can be so busy, or so dead, that nothing comes.
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
from pgherd.runtimes.vm import agent_wire

_PAUSE = 0.05
_EVENT = 0
PATIENCE = 30.0
"""Seconds for which an answer is waited for; an emulated guest that works hard takes its time."""
HASTE = 2.0
"""Seconds for which a guest is waited for that has not answered the last question: what has to be tidied up after a frozen guest takes
many questions."""

_OUT_OF = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM)


class GuestError(TrialError, OSError):
    """A guest has died, does not answer, or has run out of disk or memory: its trial fails, and the run goes on."""


class Channel:
    """Calls to one guest's agent."""

    def __init__(self, connection: socket.socket, name: str, events: Callable[[list[Any]], None] | None = None) -> None:
        """``name`` stands in messages; ``events`` is called, in the thread that reads, with what the agent says of itself, and with
        ``[b"lost"]`` as the last thing when nothing more can come."""
        self.name = name
        self.lost: str | None = None
        """Why the guest can't be reached any more; None while it can."""
        self.silent = False
        """Whether the last question that was waited for has not been answered, and nothing has come since."""
        self._events = events or (lambda event: None)
        self._connection = connection
        self._session = secrets.randbits(64)
        self._number = 0
        self._waiting: dict[int, Answer] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        # A guest that does not read must not hold us up for ever; what was sent in part is dropped by the next frame's delimiter.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
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
    ) -> Channel:
        """Connect to the socket and wait until the agent answers; the guest may still be booting.

        Raises:
            TimeoutError: it does not answer within ``timeout`` seconds.
            OSError: the virtual machine has ended (``alive`` says no), or its socket cannot be reached.
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

    def call(self, operation: bytes, *arguments: Any, timeout: float = PATIENCE) -> Any:
        """Ask and wait for the answer.

        Raises:
            OSError: the operation failed in the guest (with its errno and path).
            GuestError: the guest has died, does not answer, or has run out of something.
            TimeoutError: the operation itself came to the end of its time.
        """
        return self.end(self.begin(operation, *arguments), timeout)

    def begin(self, operation: bytes, *arguments: Any) -> Answer:
        """Ask; ``end`` waits for the answer. Raises GuestError when the guest has died."""
        answer = Answer(operation.decode(), arguments)
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
            raise GuestError(f"guest {self.name} takes no more questions; it has not read for {PATIENCE:.0f} s") from None
        except OSError as error:
            self._forget(answer)
            raise GuestError(self.lost or f"guest {self.name} has died: {error.strerror}") from None
        return answer

    def end(self, answer: Answer, timeout: float) -> Any:
        """Wait for an answer, from a guest that is silent for a moment only; raises as ``call``."""
        timeout = min(timeout, HASTE) if self.silent else timeout
        if not answer.done.wait(timeout):
            self.silent = True
            self._forget(answer)
            raise GuestError(f"guest {self.name} did not answer '{answer.question()}' within {timeout:.0f} s")
        if answer.value is None:
            raise GuestError(self.lost or f"guest {self.name} is no longer connected")
        match answer.value:
            case [b"ok", found]:
                return found
            case [b"os", int(number), bytes(text), bytes(path)] if number:
                words = text.decode(errors="replace")
                if number in _OUT_OF:
                    raise GuestError(f"guest {self.name} cannot '{answer.question()}': {words}")
                raise OSError(number, words, os.fsdecode(path)) if path else OSError(number, words)
            case [b"late", bytes(text)]:
                raise TimeoutError(text.decode(errors="replace"))
            case [b"os", _, bytes(text), _] | [b"bad", bytes(text)]:
                raise OSError(f"guest {self.name} cannot '{answer.question()}': {text.decode(errors='replace')}")
        raise OSError(f"guest {self.name} answered '{answer.question()}' with what no agent says")

    def close(self) -> None:
        """Disconnect; what runs in the guest runs on."""
        self._lose(f"guest {self.name} is no longer connected")
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._connection.close()

    def _forget(self, answer: Answer) -> None:
        with self._lock:
            self._waiting.pop(answer.number, None)

    def _read(self) -> None:
        frames = agent_wire.Frames()
        reason = "its virtual machine has closed the agent's socket"
        try:
            while data := self._connection.recv(1 << 18):
                for session, number, body in frames.feed(data):
                    if session == self._session:  # else an answer to somebody before us
                        self._take(number, body)
        except OSError as error:
            reason = error.strerror or str(error)
        except Exception as error:  # whatever a guest makes us stumble over: those who wait must be told
            reason = f"its agent said what cannot be understood ({error})"
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


class Answer:
    """A question that waits for its answer."""

    def __init__(self, operation: str, arguments: tuple[Any, ...]) -> None:
        self.operation = operation
        self.arguments = arguments
        self.number = 0
        self.done = threading.Event()
        self.value: list[Any] | None = None

    def question(self) -> str:
        """Operation and, where that is all, the path that it is about."""
        first = self.arguments[0] if self.arguments else None
        return f"{self.operation} {os.fsdecode(first)}" if isinstance(first, bytes) else self.operation


EVERY = 5.0
"""Seconds between two questions; a wait that is shorter costs the guest none."""


@contextlib.contextmanager
def felt(ask: Callable[[], object], give_up: Callable[[], object], every: float = EVERY) -> Iterator[None]:
    """While the body runs, ``ask`` the guest something every so many seconds; once it raises OSError, ``give_up`` ends the body's wait.

    Both are called in a thread of their own.
    """
    over = threading.Event()

    def feel() -> None:
        while not over.wait(every):
            try:
                ask()
            except OSError:
                if not over.is_set():
                    give_up()
                return

    threading.Thread(target=feel, name="pgherd-pulse", daemon=True).start()
    try:
        yield
    finally:
        over.set()
