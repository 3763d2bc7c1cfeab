"""Ctrl-C, SIGTERM and SIGHUP: each ends what runs in order, once.

The first signal raises KeyboardInterrupt in the main thread. Further ones are only taken note of: what the first one set
going takes everything back, and must not itself be cut short. A KeyboardInterrupt can get lost where Python has nobody
to raise it to (a destructor), or come out of a library as that library's own error; so the signal is also remembered.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = b"\nEnding already; everything is being taken back.\n"

# Signals belong to the process, and so do these.
_asked = False
_undisturbed = 0


def asked() -> bool:
    """Whether a signal has asked us to end."""
    return _asked


def insist() -> None:
    """Raise KeyboardInterrupt (again) when a signal has asked us to end."""
    if _asked:
        raise KeyboardInterrupt


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the block with KeyboardInterrupt at the first signal, and let no later one disturb.

    A signal that was ignored when we were started (nohup, a background job) stays ignored. Once a signal has come the
    handlers stay for good: all that is left to the process is its last message.
    """
    global _asked
    _asked = False
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _interrupt)
    try:
        yield
    except BaseException as error:
        if _asked and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    finally:
        if not _asked:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let a signal wait for the end of the block: for what no signal may leave half done, such as taking things back.

    Signals raise in the main thread alone, so in any other this does nothing.
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
        insist()


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _asked
    if not _asked:
        _asked = True
        if not _undisturbed:
            raise KeyboardInterrupt
    with contextlib.suppress(OSError):
        os.write(2, _PATIENCE)
