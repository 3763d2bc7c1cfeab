"""What all QEMUs are asked every second: QMP in plain code, over a monitor that each guest has for it alone.

By the library that drives QEMU (``monitor``) the balloon manager took 2.4 times the CPU (measured with both in turn: docs/vm-balloon.md),
and here CPU of the host that is measured is what counts. What the library is there for is not needed: without out-of-band commands QEMU
answers in the order in which it was asked (docs/interop/qmp-spec of QEMU). One thread reads for all guests, so that one that does not
answer holds up no other.
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

Asked = tuple[str, dict[str, Any] | None]
"""A command of QMP and its arguments (None: it has none)."""
QUESTIONS_THREAD = "pgherd-questions"
"""The name of the one thread that reads all answers, which lasts as long as the process."""
_MOST = 1 << 18
_LONGEST_LINE = 10 << 20
"""Bytes: what is longer and has not ended is no answer, and would be kept for ever."""
_T = TypeVar("_T")
_started = threading.Lock()
_ready: select.epoll | None = None
_connected: dict[int, Questions] = {}


def _answers() -> select.epoll:
    """What the thread waits on, which is started when it is first needed."""
    global _ready
    with _started:
        if _ready is None:
            made = select.epoll()
            try:
                threading.Thread(target=_read, args=(made,), name=QUESTIONS_THREAD, daemon=True).start()
            except BaseException:
                made.close()
                raise
            _ready = made
        return _ready


def _read(ready: select.epoll) -> None:
    while True:
        for number, _ in ready.poll():
            one = _connected.get(number)
            if one is not None:
                one.receive()


@dataclass
class _Question:
    commands: Sequence[Asked]
    settle: Callable[[list[Any] | TrialError], None]
    answers: list[Any] = field(default_factory=list)


class Questions:
    """Questions to one QEMU, connected with when the first is asked, and again after that has broken. Any thread may ask."""

    def __init__(self, path: str, name: str) -> None:
        """``path`` of the monitor's socket; ``name`` stands in messages."""
        self._path, self._name = path, name
        self._connection: socket.socket | None = None
        self._connections = 0
        self._rest = b""
        self._asked: deque[_Question] = deque()
        self._heard: dict[str, int] = {}
        self._lock = threading.RLock()

    def ask(self, commands: Sequence[Asked], then: Callable[[list[Any]], _T]) -> Future[_T]:
        """Have commands run one after the other, and return at once. The future gives what ``then``, called in the thread that reads,
        makes of their values, or raises TrialError. It waits for as long as QEMU runs and does not answer."""
        asked: Future[_T] = Future()

        def settle(found: list[Any] | TrialError) -> None:
            try:
                if isinstance(found, TrialError):
                    raise found
                asked.set_result(then(found))
            except Exception as error:
                asked.set_exception(error)

        with self._lock:
            try:
                if self._connection is None:
                    self._connect()
                self._send(commands, settle)
            except (OSError, RuntimeError) as error:  # RuntimeError: the thread that reads cannot be started
                self._lose(str(error))
                settle(TrialError(f"the monitor of guest {self._name} cannot be reached: {error}"))
        return asked

    def heard(self, event: str) -> object:
        """What differs from any former answer once QEMU has told of an event of this name since, or was connected with anew."""
        return self._connections, self._heard.setdefault(event, 0)

    def close(self) -> None:
        """Close the connection; nothing happens if there is none."""
        with self._lock:
            self._lose("its monitor was closed")

    def receive(self) -> None:
        """Take what QEMU has said; for the thread that reads."""
        with self._lock:
            if self._connection is None:
                return
            try:
                data = self._connection.recv(_MOST)
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
                if len(self._rest) > _LONGEST_LINE:
                    raise ValueError("a line without an end")
            except BlockingIOError:
                return
            except Exception as error:  # whatever one QEMU makes us stumble over: the thread reads for all guests
                self._lose(f"{type(error).__name__}: {error}")
            else:
                if not data:
                    self._lose("it has closed its monitor")

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)  # first: where others wait for QEMU to accept them, a blocking one would wait behind them
            connection.connect(self._path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._connections += 1
        _connected[connection.fileno()] = self
        _answers().register(connection.fileno(), select.EPOLLIN)
        self._send([("qmp_capabilities", None)], lambda found: None)

    def _send(self, commands: Sequence[Asked], settle: Callable[[list[Any] | TrialError], None]) -> None:
        assert self._connection is not None
        said = [json.dumps({"execute": command, "arguments": arguments or {}}) for command, arguments in commands]
        self._connection.sendall("\n".join(said).encode() + b"\n")
        self._asked.append(_Question(commands, settle))

    def _take(self, said: dict[str, Any]) -> None:
        if "event" in said:
            if said["event"] in self._heard:  # others nobody has asked for
                self._heard[said["event"]] += 1
        elif "return" in said or "error" in said:
            question = self._asked[0]
            question.answers.append(said)
            if len(question.answers) == len(question.commands):
                found = self._found(question)  # before it is taken out: of one that cannot be understood who asked is told by ``_lose``
                self._asked.popleft()
                question.settle(found)

    def _found(self, question: _Question) -> list[Any] | TrialError:
        for (command, _), answer in zip(question.commands, question.answers, strict=True):
            if "error" in answer:
                return TrialError(f"QEMU of guest {self._name} refuses {command}: {answer['error'].get('desc', answer['error'])}")
        return [answer["return"] for answer in question.answers]

    def _lose(self, why: str) -> None:
        """Without a connection from now on; who still waits for an answer is told ``why``."""
        connection, self._connection, self._rest = self._connection, None, b""
        if connection is not None:
            del _connected[connection.fileno()]
            if _ready is not None:
                with contextlib.suppress(OSError):
                    _ready.unregister(connection.fileno())
            connection.close()
        left, self._asked = self._asked, deque()
        for question in left:
            question.settle(TrialError(f"QEMU of guest {self._name} has not answered {question.commands[0][0]}: {why}"))
