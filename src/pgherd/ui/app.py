"""Web application: routes, sign-in, static files and error pages."""

from __future__ import annotations

import sys
import traceback

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pgherd.model.errors import CapabilityError, PgherdError, UsageError
from pgherd.model.text import clean
from pgherd.ui import compare_page, rendering, run_page, runs_page, samples_page, start_page
from pgherd.ui.app_state import AppState, state_of
from pgherd.ui.security import Guard

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
