"""Web server: routes, sign-in, static files and error pages; its address and token, and preparations for the first page."""

from __future__ import annotations

import errno
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import python_multipart  # noqa: F401 - reads forms: if it is missing, report that at the start and not at the first form
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pgherd.model.errors import CapabilityError, PgherdError, UsageError
from pgherd.model.text import clean
from pgherd.ui import compare_page, placement_page, rendering, run_page, runs_page, sample_queries, samples_page, start_page
from pgherd.ui.app_state import AppState, state_of
from pgherd.ui.security import LARGEST_HEADERS, AccessPolicy, Guard

_IMMUTABLE = "public, max-age=31536000, immutable"
_TITLES = {400: "Invalid request", 403: "Refused", 404: "Not found", 409: "Not possible now", 413: "Too large", 500: "Internal error"}
_WRONG_TOKEN_DELAY_S = 0.5


def application(state: AppState) -> Starlette:
    """Return the application behind its access control."""
    routes = [
        Route("/", runs_page.runs),
        Route("/static/{digest}/{name}", _static),
        Route("/sign-in", _sign_in, methods=["GET"]),
        Route("/sign-in", _sign_in_form, methods=["POST"]),
        Route("/compare", compare_page.compare),
        Route("/placement", placement_page.plans),
        Route("/placement/{plan}", placement_page.plan),
        Route("/placement/{plan}/files/{name}", placement_page.file),
        Route("/runs/{run}", run_page.run),
        Route("/runs/{run}/live", run_page.live),
        Route("/runs/{run}/files/{path:path}", run_page.file),
        Route("/runs/{run}/explore", samples_page.explore),
        Route("/runs/{run}/stop", start_page.stopping, methods=["GET"]),
        Route("/runs/{run}/stop", start_page.stop_run, methods=["POST"]),
        Route("/runs/{run}/resume", start_page.resuming, methods=["GET"]),
        Route("/runs/{run}/resume", start_page.resume_run, methods=["POST"]),
        Route("/start", start_page.studies),
        Route("/start/{study}", start_page.form, methods=["GET"]),
        Route("/start/{study}", start_page.plan, methods=["POST"]),
        Route("/started", start_page.start, methods=["POST"]),
        Route("/started/{job}", start_page.job),
        Route("/started/{job}/state", start_page.job_state),
    ]
    handlers = {HTTPException: _http_error, PgherdError: _pgherd_error, Exception: _internal_error}
    app = Starlette(routes=routes, middleware=[Middleware(Guard, policy=state.policy)], exception_handlers=handlers)
    app.state.site = state
    return app


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    asset = rendering.asset(name)
    if asset is None or rendering.asset_path(name) != request.url.path:
        raise HTTPException(404, "There is no such file.")
    return Response(asset.data, media_type=asset.media_type, headers={"Cache-Control": _IMMUTABLE})


async def _sign_in(request: Request) -> Response:
    """Show the form, or sign in with the token of the printed address."""
    token = request.query_params.get("token", "")
    state = state_of(request)
    return await _check_token(state, token, wrong=False) if token else state.page("sign_in.html.j2", wrong=False)


async def _sign_in_form(request: Request) -> Response:
    form = await request.form(max_files=0, max_fields=5)
    return await _check_token(state_of(request), str(form.get("token", "")), wrong=True)


async def _check_token(state: AppState, token: str, *, wrong: bool) -> Response:
    if not state.policy.accepts_token(token.strip()):
        await anyio.sleep(_WRONG_TOKEN_DELAY_S)
        return state.page("sign_in.html.j2", status=401, wrong=wrong or bool(token))
    response = RedirectResponse("/", 303)
    response.set_cookie(state.policy.cookie, state.policy.session, httponly=True, samesite="strict", path="/")
    return response


def _error(request: Request, status: int, message: str) -> Response:
    title = _TITLES.get(status, "Request failed")
    template = "error_part.html.j2" if "hx-request" in request.headers else "error.html.j2"
    return state_of(request).page(template, status=status, title=title, message=message)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _error(request, 405, "This address does not accept this method.")
    return _error(request, error.status_code, clean(error.detail))


async def _pgherd_error(request: Request, error: Exception) -> Response:
    status = 400 if isinstance(error, UsageError) else 409
    assert isinstance(error, PgherdError)
    suffix = " Not possible on this host." if isinstance(error, CapabilityError) else ""
    text = clean(error)
    return _error(request, status, f"{text[:1].upper()}{text[1:]}.{suffix}".replace("..", "."))


async def _internal_error(request: Request, error: Exception) -> Response:
    print(clean("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return _error(request, 500, f"{type(error).__name__}. The terminal of 'pgherd ui' shows the traceback.")


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
        state = AppState.for_runs(runs, AccessPolicy.for_server(host, number, listen))
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
