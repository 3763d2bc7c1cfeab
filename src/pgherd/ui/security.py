"""Who may ask what: every request passes here first, and what is refused never reaches a page.

The dangers of a local web page are other web pages in the same browser (they can send requests here, and by DNS rebinding even read the
answers), other people on the network, and data that somebody else has made. So:

- the ``Host`` header must name this server: one of its names, or an address, which no DNS answer can stand for;
- what another site's page sends is refused: a browser says so by ``Sec-Fetch-Site``, and by ``Origin``; following a link here is allowed;
- whatever changes something is a POST with a form token that only our own pages hold;
- off loopback a token is required, and kept as a cookie that no other site's request carries;
- on loopback only this process's own account (and root) is answered, since anybody on the machine can connect there;
- paths, query strings and bodies have a size beyond which they are not read;
- answers carry a content security policy: no inline script, nothing from elsewhere, no framing.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgherd.ui.peers import owner_of_peer

COOKIE = "pgherd-session"
FORM_TOKEN = "form_token"
LONGEST_PATH = 1024
LONGEST_QUERY = 8192
LARGEST_BODY = 64 * 1024
LARGEST_HEADERS = 32 * 1024
_TOO_LARGE = f"The body is larger than {LARGEST_BODY // 1024} kB."
_READING = ("GET", "HEAD")
_OPEN = ("/sign-in", "/static/")
"""What may be had without having signed in."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class AccessPolicy:
    """What is known about who may come in. ``token`` None: none is needed, since the server listens on loopback."""

    names: frozenset[str]
    token: str | None = None
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    accounts: frozenset[int] | None = None
    """Numeric accounts that are answered on loopback; None: all of them."""

    @classmethod
    def of(cls, address: str, token: str | None) -> AccessPolicy:
        """For a server that listens on this address."""
        own = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()} if token else {"localhost"}
        accounts = None if token else frozenset({os.geteuid(), 0})
        return cls(frozenset({*own, address.lower()}), token, accounts=accounts)

    def knows_host(self, header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        try:
            name = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        if not name or "@" in header:
            return False
        if name.lower().rstrip(".") in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.token is not None

    def opens_for(self, token: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def signed_in(self, connection: HTTPConnection) -> bool:
        """Whether a request needs no token, or its browser has shown it."""
        held = connection.cookies.get(COOKIE, "")
        return self.token is None or hmac.compare_digest(held.encode(), self.session.encode())

    def genuine(self, form_token: object) -> bool:
        """Whether a form came from one of our own pages."""
        return isinstance(form_token, str) and hmac.compare_digest(form_token.encode(), self.form_token.encode())


class Guard:
    """ASGI middleware that refuses what ``Door`` does not let in, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, door: AccessPolicy, owner: Callable[[Scope], int | None] = owner_of_peer) -> None:
        """Guard this application."""
        self._app = app
        self._door = door
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks anything else
        refused = self._refuse(scope)
        sender = _with_headers(send)
        if refused is not None:
            await refused(scope, receive, sender)
            return
        await self._app(scope, _Limited(receive), sender)

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to what is refused; None: let it in."""
        connection, headers, door = HTTPConnection(scope), Headers(scope=scope), self._door
        if len(scope.get("raw_path") or scope["path"].encode()) > LONGEST_PATH or len(scope["query_string"]) > LONGEST_QUERY:
            return _no(414, "The address is too long.")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
            return _no(431, "The headers are too long.")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not door.knows_host(hosts[0]):
            return _no(421, "This server does not go by that name; use the address that 'pgherd ui' printed.")
        if door.accounts is not None and (owner := self._owner(scope)) is not None and owner not in door.accounts:
            return _no(
                403, "This page belongs to another account of this machine. 'pgherd ui --token' makes one for whoever has its token."
            )
        if (why := _foreign(scope["method"], headers, hosts[0])) is not None:
            return _no(403, why)
        if not door.signed_in(connection) and not scope["path"].startswith(_OPEN):
            if scope["method"] in _READING and "hx-request" not in headers:
                return RedirectResponse("/sign-in", 303)
            return _no(401, "Sign in first.")
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > LARGEST_BODY:
            return _no(413, _TOO_LARGE)
        return None


class _Limited:
    """Passes a body on, up to the limit: one without a stated length may go on and on."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > LARGEST_BODY:
            raise HTTPException(413, _TOO_LARGE)
        return message


def _foreign(method: str, headers: Headers, host: str) -> str | None:
    """Why a request comes from another site and is refused; None: it does not, or does no harm.

    Fetch metadata (W3C): ``Sec-Fetch-Site`` is set by the browser, and no page can change it.
    """
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    if method not in _READING:
        origin = headers.get("origin")
        if origin is not None and not _same(origin, host):
            return "This came from another site's page."
        if site not in (None, "same-origin", "none"):
            return "This came from another site's page."
        if origin is None and site is None:
            return "There is no word of which page this came from (neither Origin nor Sec-Fetch-Site)."
        return None
    if site in ("cross-site", "same-site") and mode != "navigate":
        return "This came from another site's page."
    return None


def _same(origin: str, host: str) -> bool:
    """Whether an origin is this server; a proxy before it may speak TLS."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender


def _no(code: int, why: str) -> PlainTextResponse:
    return PlainTextResponse(f"{why}\n", code)


def loopback(addresses: Iterable[str]) -> bool:
    """Whether all of these are addresses of this machine alone."""
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
