"""A guest's pulse, felt while something waits for it on a way of its own.

A statement to a server in a guest may take minutes, so it has no deadline. But when the guest is frozen no answer will ever come, and
nobody ends the wait: the host's end of the forwarded port is QEMU's, whose kernel keeps the connection up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

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
