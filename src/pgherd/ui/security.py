"""Access control of the web page. Every request passes here before it reaches a page.

A local web page is exposed to three risks. Other web pages in the same browser can send requests to it, and by DNS rebinding even read
the responses. Other users of this machine and of the network can connect. Runs may contain data of unknown origin. Therefore:

- Every request requires the token of this process, on loopback too, because any user of the machine can connect there. The browser
  keeps it as a cookie that no request from another site carries.
- The ``Host`` header must name this server by one of its names or by an IP address, which no DNS response can replace.
- Requests from pages of other sites are refused. A browser marks them by ``Sec-Fetch-Site`` and ``Origin``. Links to here work.
- Every change is a POST with a form token that only pages of this server contain.
- Paths, query strings, headers and bodies have a maximum size.
- Responses carry a content security policy: no inline script, no external resources, no framing.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "pgherd-session"
"""Start of the cookie's name. The port follows, because a browser sends cookies of one host to all its ports."""
FORM_TOKEN = "form_token"
LONGEST_PATH = 1024
LONGEST_QUERY = 8192
LARGEST_BODY = 64 * 1024
LARGEST_HEADERS = 32 * 1024
_BODY_TOO_LARGE = f"The body is larger than {LARGEST_BODY // 1024} kB."
_OTHER_SITE = "This request came from the page of another site."
_READING = ("GET", "HEAD")
_PUBLIC = ("/sign-in", "/static/")
"""Paths that do not require a session."""

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
    """Names and secrets of one server. ``remote`` means that it listens beyond loopback, so any IP address may name it."""

    names: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    remote: bool = False
    cookie: str = COOKIE
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @classmethod
    def for_server(cls, address: str, port: int, listen: str = "") -> AccessPolicy:
        """Return the policy of a server that listens on this address, with a new token. ``listen`` is its name as the user gave it."""
        remote = not is_loopback(address)
        names = {"localhost", address.lower()} | ({listen.lower().rstrip(".")} if listen else set())
        if remote:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(names), remote=remote, cookie=f"{COOKIE}-{port}")

    def knows_host(self, header: str) -> bool:
        """Return True if a ``Host`` header names this server."""
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
        return address.is_loopback or self.remote

    def accepts_token(self, token: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def signed_in(self, connection: HTTPConnection) -> bool:
        """Return True if a request carries the session's cookie."""
        return hmac.compare_digest(connection.cookies.get(self.cookie, "").encode(), self.session.encode())

    def accepts_form(self, form_token: object) -> bool:
        """Return True if a form is from a page of this server."""
        return isinstance(form_token, str) and hmac.compare_digest(form_token.encode(), self.form_token.encode())


class Guard:
    """ASGI middleware that refuses requests against the policy, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no page uses another protocol
        refusal = self._refuse(scope)
        sender = _with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, sender)
            return
        await self._app(scope, _Limited(receive), sender)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the response to a refused request, or None to let it pass."""
        connection, headers, policy = HTTPConnection(scope), Headers(scope=scope), self._policy
        if len(scope.get("raw_path") or scope["path"].encode()) > LONGEST_PATH or len(scope["query_string"]) > LONGEST_QUERY:
            return _refusal(414, "The address is too long.")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
            return _refusal(431, "The headers are too long.")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not policy.knows_host(hosts[0]):
            return _refusal(421, "Unknown server name: use the address that 'pgherd ui' printed.")
        if (reason := _cross_site(scope["method"], headers, hosts[0])) is not None:
            return _refusal(403, reason)
        if not policy.signed_in(connection) and not scope["path"].startswith(_PUBLIC):
            if scope["method"] in _READING and "hx-request" not in headers:
                return RedirectResponse("/sign-in", 303)
            return _refusal(401, "Sign in first.")
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > LARGEST_BODY:
            return _refusal(413, _BODY_TOO_LARGE)
        return None


class _Limited:
    """Receiver that stops at the maximum size of a body, because a body without a declared length may be endless."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > LARGEST_BODY:
            raise HTTPException(413, _BODY_TOO_LARGE)
        return message


def _cross_site(method: str, headers: Headers, host: str) -> str | None:
    """Return why a request is refused as one of another site, or None.

    The browser sets ``Sec-Fetch-Site``, and no page can change it (W3C Fetch Metadata).
    """
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    if method not in _READING:
        origin = headers.get("origin")
        if origin is not None and not _same_origin(origin, host):
            return _OTHER_SITE
        if site not in (None, "same-origin", "none"):
            return _OTHER_SITE
        if origin is None and site is None:
            return "The request names no page of origin (neither Origin nor Sec-Fetch-Site)."
        return None
    if site in ("cross-site", "same-site") and mode != "navigate":
        return _OTHER_SITE
    return None


def _same_origin(origin: str, host: str) -> bool:
    """Compare an origin with this server. Its scheme may be https, because a proxy may add TLS."""
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


def _refusal(status: int, reason: str) -> PlainTextResponse:
    return PlainTextResponse(f"{reason}\n", status)


def is_loopback(address: str) -> bool:
    """Return True if only this machine can connect to the IP address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
