"""Which account of this machine has the other end of a loopback connection: ``/proc/net/tcp`` (proc_net_tcp.rst) names the owner."""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

from starlette.types import Scope

_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_LOCAL, _REMOTE, _STATE, _OWNER = 1, 2, 3, 7
_TIME_WAIT = "06"
"""A connection in this state belongs to nobody any more; its owner is shown as 0."""


def owner_of_peer(scope: Scope) -> int | None:
    """The numeric account that owns the client's end of a request's connection; None where that cannot be seen."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or server[1] is None:
        return None
    try:
        near, far = ipaddress.ip_address(client[0]), ipaddress.ip_address(server[0])
    except ValueError:
        return None
    if not near.is_loopback:
        return None
    try:
        text = _TABLES[near.version].read_text()
    except OSError:
        return None
    return find_owner(text, endpoint(str(near), client[1]), endpoint(str(far), server[1]))


def endpoint(address: str, port: int) -> str:
    """As the kernel writes it: ``0100007F:1F90``, each word of the address in the machine's own byte order."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def find_owner(table: str, local: str, remote: str) -> int | None:
    """The account of the connection from ``local`` to ``remote`` in the kernel's table; None where it is not there."""
    for line in table.splitlines()[1:]:
        if local not in line:
            continue
        fields = line.split()
        if fields[_LOCAL] == local and fields[_REMOTE] == remote and fields[_STATE] != _TIME_WAIT:
            return int(fields[_OWNER])
    return None
