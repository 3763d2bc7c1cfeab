"""Whether Prometheus' node_exporter runs on this host: where it does, its figures stand beside ours."""

from __future__ import annotations

import http.client
import re

ADDRESS = "127.0.0.1"
PORT = 9100
_TIMEOUT = 0.5
_MOST = 4 << 20
_BUILD = re.compile(rb'^node_exporter_build_info\{[^}]*version="([^"]*)"', re.MULTILINE)


def find(port: int = PORT) -> tuple[str, str] | None:
    """The address and version of a node_exporter on this host's loopback; None where none answers there."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=_TIMEOUT)
    try:
        # One collector only: the whole of it is work for the host that is about to be measured. Its build is told all the same.
        connection.request("GET", "/metrics?collect[]=time")
        found = _BUILD.search(connection.getresponse().read(_MOST))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None if found is None else (f"{ADDRESS}:{port}", found[1].decode(errors="replace"))
