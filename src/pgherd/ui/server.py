"""Web server: listening address, token, and preparations for the first page."""

from __future__ import annotations

import errno
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import python_multipart  # noqa: F401 - reads forms: if it is missing, report that at the start and not at the first form
import uvicorn

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.text import clean
from pgherd.ui import rendering, sample_queries
from pgherd.ui.app import application
from pgherd.ui.app_state import AppState
from pgherd.ui.security import LARGEST_HEADERS, AccessPolicy

LOOPBACK = "127.0.0.1"
PORT = 8765


@dataclass(frozen=True)
class ServerAddress:
    """Address of the pages, and the token that they require."""

    address: str
    token: str

    @property
    def sign_in_url(self) -> str:
        """Address to open: it contains the token."""
        return f"{self.address}sign-in?token={self.token}"


def serve(runs: Path, announce: Callable[[ServerAddress], None], *, listen: str = LOOPBACK, port: int = PORT) -> None:
    """Serve the runs in a directory until a signal arrives. ``announce`` receives the address when it accepts connections.

    Raises:
        UsageError: the address does not belong to this machine, or the port is in use.
        CapabilityError: this user may not use the port.
        KeyboardInterrupt: a signal ended the server.
    """
    listening = _listen(listen, port)
    with listening:
        host, number = listening.getsockname()[:2]
        state = AppState.for_runs(runs, AccessPolicy.for_server(host, number))
        config = uvicorn.Config(
            application(state),
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,  # the client is the connected peer, not one that a header names
            log_level="warning",
            access_log=False,  # an address may contain the token
            server_header=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=LARGEST_HEADERS,
        )
        threading.Thread(target=make_ready, args=(state,), name="pgherd-ui-ready", daemon=True).start()
        address = ServerAddress(f"http://{_shown(listen, host)}:{number}/", state.policy.token)
        _UvicornServer(config, lambda: announce(address)).run(sockets=[listening])


class _UvicornServer(uvicorn.Server):
    """Server that calls ``started_up`` when it has started. From then on a signal ends it gracefully."""

    def __init__(self, config: uvicorn.Config, started_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._started_up = started_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._started_up()


def _listen(address: str, port: int) -> socket.socket:
    """Open a socket that accepts connections."""
    try:
        family, kind, protocol, _, endpoint = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise UsageError(f"--listen '{address}' is no address of this machine: {getattr(error, 'strerror', None) or error}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(endpoint)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {address} is in use; choose another with --port, or --port 0 for a free one") from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise CapabilityError(f"this user may not listen on port {port} of {address}; choose one above 1023 with --port") from None
        raise UsageError(f"--listen '{address}' is no address of this machine: {error.strerror}") from None
    return listening


def _shown(listen: str, host: str) -> str:
    """Return the name for the printed address: ``listen``, or the host name if the server listens on every address."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host if listen == "localhost" else listen  # noqa: S104 (only compared)
    return f"[{name}]" if ":" in name else name


def make_ready(state: AppState) -> None:
    """Do the work that would delay the first page: read the index, open DuckDB, parse the templates, bundle the charts library."""
    try:
        state.index.runs()
        sample_queries.make_ready()
        for name in rendering.environment().list_templates(extensions=["j2"]):
            rendering.environment().get_template(name)
        rendering.vega()
    except Exception as error:  # the page that needs it reports the cause
        print(clean(f"pgherd: preparation of the pages failed: {type(error).__name__}: {error}"), file=sys.stderr)
