"""Interruption by Ctrl-C, SIGTERM and SIGHUP, with an orderly end.

The first signal raises KeyboardInterrupt in the main thread. Later signals are only recorded, because they must not
interrupt the undo of host changes. A KeyboardInterrupt can get lost: Python cannot raise it from a destructor, and a
library may convert it to another error. Therefore the signal is also stored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LATER_SIGNAL_MESSAGE = b"\nEnding already; changes to the host are being undone.\n"

# Signals belong to the process, so these variables are global.
_asked = False
_undisturbed = 0


def requested() -> bool:
    """Return whether a signal has been received."""
    return _asked


def check() -> None:
    """Raise KeyboardInterrupt (again) if a signal has been received."""
    if _asked:
        raise KeyboardInterrupt


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the block with KeyboardInterrupt at the first signal; ignore later ones.

    A signal that was ignored at the start of the process (nohup, a background job) stays ignored. After a signal, the
    handlers remain installed, because the process only prints its last message.
    """
    global _asked
    _asked = False
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    previous = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, _interrupt)
    try:
        yield
    except BaseException as error:
        if _asked and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    finally:
        if not _asked:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delay a signal until the end of the block, such as an undo.

    In other threads than the main one this has no effect, because signals raise only in the main thread.
    """
    global _undisturbed
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked_before = _asked
    _undisturbed += 1
    try:
        yield
    finally:
        _undisturbed -= 1
    if not _undisturbed and not asked_before:
        check()


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _asked
    if not _asked:
        _asked = True
        if not _undisturbed:
            raise KeyboardInterrupt
    with contextlib.suppress(OSError):
        os.write(2, _LATER_SIGNAL_MESSAGE)
