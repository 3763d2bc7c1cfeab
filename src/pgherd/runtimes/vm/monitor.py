"""QEMU's monitor (QMP) with plain calls: the library's event loop runs in one thread for all guests."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pgherd.model.errors import CapabilityError, TrialError

if TYPE_CHECKING:
    from qemu.qmp import QMPClient
    from qemu.qmp.message import Message

_T = TypeVar("_T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_open: weakref.WeakSet[Monitor] = weakref.WeakSet()


def _running_loop() -> asyncio.AbstractEventLoop:
    """The loop in its thread, started when it is first needed; it ends with the process."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="pgherd-qmp", daemon=True).start()
        return _loop


def _wait(work: Coroutine[Any, Any, _T], timeout: float) -> _T:
    """Have the loop do it, and wait; raises TimeoutError."""
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout), _running_loop())
    try:
        return future.result(timeout + 1.0)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError from None


def _client(name: str) -> QMPClient:
    try:
        from qemu.qmp import QMPClient
    except ImportError:
        raise CapabilityError("QEMU is driven by the library qemu.qmp, which is missing; pip install 'pgherd[vm]'") from None
    # A guest that ends in the middle of a command is told of by our own message.
    logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)

    class Client(QMPClient):
        """The library's own hooks write every message out for its log, whether that is kept or not: half of a call's CPU time."""

        def _cb_outbound(self, msg: Message) -> Message:
            return msg

        def _cb_inbound(self, msg: Message) -> Message:
            return msg

    return Client(name)


@atexit.register
def _close_all() -> None:
    """A loop that ends with open connections complains of them."""
    for monitor in list(_open):
        monitor.close()


class Monitor:
    """The monitor of one QEMU. Calls may come from any thread; QEMU answers them one after the other."""

    def __init__(self, path: str, name: str) -> None:
        """``path`` of its socket; raises CapabilityError where the library is missing."""
        self._path, self._name = path, name
        self._qmp = _client(name)
        # The library would keep every event for ever, for whoever asks: nobody does, and a balloon that moves makes one a second.
        self._qmp.events.event_filter = lambda event: False
        self._connected = False
        self.lost = False
        """Whether the connection has broken; another monitor may connect again, if QEMU still runs."""
        _open.add(self)

    def connect(self, timeout: float = 10.0) -> None:
        """Connect; raises TrialError."""
        from qemu.qmp import QMPError

        try:
            _wait(self._qmp.connect(self._path), timeout)
        except (QMPError, OSError, TimeoutError) as error:
            raise TrialError(f"the monitor of guest {self._name} cannot be reached: {str(error) or 'no answer'}") from None
        self._connected = True

    def execute(self, command: str, arguments: dict[str, Any] | None = None, timeout: float = 10.0) -> Any:
        """Run one command of QMP and return its value; raises TrialError with QEMU's own words."""
        from qemu.qmp import ExecuteError, QMPError
        from qemu.qmp.error import QMPError as AnyError
        from qemu.qmp.protocol import StateError

        try:
            return _wait(self._qmp.execute(command, arguments), timeout)
        except ExecuteError as error:
            raise TrialError(f"QEMU of guest {self._name} refuses {command}: {error}") from None
        except TimeoutError:
            raise TrialError(f"QEMU of guest {self._name} did not answer {command} within {timeout:g} s") from None
        except (QMPError, AnyError, StateError, OSError) as error:
            self.lost = True
            raise TrialError(f"QEMU of guest {self._name} has gone away during {command}: {error}") from None

    def close(self) -> None:
        """Close the connection; nothing happens if it is closed."""
        if self._connected:
            self._connected = False
            try:
                _wait(self._qmp.disconnect(), 5.0)
            except Exception:  # whatever the library says of a connection that QEMU has closed is of no use
                logging.getLogger(__name__).debug("closing the monitor of guest %s", self._name, exc_info=True)
