"""TCP ports of this machine that nobody uses."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection


def free_ports(address: str, count: int, taken: Collection[int] = ()) -> list[int]:
    """So many different TCP ports of this address that nobody listens on at this moment, and that are not ``taken`` either."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found: list[int] = []
    with contextlib.ExitStack() as held:  # all of them until the end: what is released may be had again
        while len(found) < count:
            probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.bind((address, 0))
            port = int(probe.getsockname()[1])
            if port not in taken:
                found.append(port)
    return found
