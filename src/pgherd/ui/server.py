"""The web server: where it listens, who needs a token, and what it makes ready before the first page is asked for."""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import python_multipart  # noqa: F401 - what reads forms; without it only the first form would tell that it is missing
import uvicorn

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.ui import assets, sample_queries
from pgherd.ui.app import application
from pgherd.ui.app_state import AppState
from pgherd.ui.rendering import environment
from pgherd.ui.security import LARGEST_HEADERS, AccessPolicy, loopback

LOOPBACK = "127.0.0.1"
PORT = 8765


@dataclass(frozen=True)
class ServerAddress:
    """Where the pages are. ``token`` None: none is needed."""

    address: str
    token: str | None = None

    @property
    def sign_in(self) -> str:
        """The address to open: with the token, where one is needed."""
        return self.address if self.token is None else f"{self.address}sign-in?token={self.token}"


def serve(runs: Path, announce: Callable[[ServerAddress], None], *, listen: str = LOOPBACK, port: int = PORT, token: bool = False) -> None:
    """Serve the runs in a directory until a signal ends it; ``announce`` hears where, once it can be reached.

    Beyond loopback, and wherever ``token`` is asked for, a new token is made.

    Raises:
        UsageError: the address is not one of this machine, or the port is taken.
        CapabilityError: this account may not use the port.
        KeyboardInterrupt: a signal ended it.
    """
    listening = _listen(listen, port)
    with listening:
        host, number = listening.getsockname()[:2]
        secret = secrets.token_urlsafe(32) if token or not loopback([host]) else None
        site = AppState.of(runs, AccessPolicy.of(host, secret))
        config = uvicorn.Config(
            application(site),
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,  # who asks is who is connected, not whom a header names
            log_level="warning",
            access_log=False,  # an address may hold the token
            server_header=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=LARGEST_HEADERS,
        )
        threading.Thread(target=make_ready, args=(site,), name="pgherd-ui-ready", daemon=True).start()
        where = ServerAddress(f"http://{_shown(listen, host)}:{number}/", secret)
        _UvicornServer(config, lambda: announce(where)).run(sockets=[listening])


class _UvicornServer(uvicorn.Server):
    """Says when it has begun: from then on a signal ends it in order."""

    def __init__(self, config: uvicorn.Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._begun()


def _listen(address: str, port: int) -> socket.socket:
    """A socket that already takes connections."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise UsageError(f"--listen '{address}' is no address of this machine: {getattr(error, 'strerror', None) or error}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {address} is taken; choose another with --port, or --port 0 for any that is free") from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise CapabilityError(f"this account may not listen on port {port} of {address}; choose one above 1023 with --port") from None
        raise UsageError(f"--listen '{address}' is no address of this machine: {error.strerror}") from None
    return made


def _shown(listen: str, host: str) -> str:
    """The name in the address that is printed: what was asked for, unless that was every address."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host if listen == "localhost" else listen
    return f"[{name}]" if ":" in name else name


def make_ready(site: AppState) -> None:
    """Do what would make the first page wait: read the index of the runs, open the engine that reads samples, read the templates, put
    the charts library together. Raises nothing."""
    try:
        site.index.runs()
        sample_queries.make_ready()
        for name in environment().list_templates(extensions=["j2"]):
            environment().get_template(name)
        assets.vega()
    except Exception as error:  # the page that needs it says what is wrong
        print(f"pgherd: not made ready: {type(error).__name__}: {error}", file=sys.stderr)
