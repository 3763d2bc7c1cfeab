"""The application: which address is answered by which page, and what an error looks like."""

from __future__ import annotations

import sys
import traceback

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgherd.model.errors import CapabilityError, PgherdError, UsageError
from pgherd.report.formatting import clean
from pgherd.ui import assets, compare_page, run_page, runs_page, samples_page, sign_in_page, start_page
from pgherd.ui.app_state import AppState, site_of
from pgherd.ui.security import Guard

_FOREVER = "public, max-age=31536000, immutable"
_TITLES = {400: "That cannot be done", 403: "Refused", 404: "Not found", 409: "Not now", 413: "Too large", 500: "A defect of pgherd"}


def application(site: AppState) -> Starlette:
    """The whole of it, guarded."""
    routes = [
        Route("/", runs_page.runs),
        Route("/static/{digest}/{name}", _static),
        Route("/sign-in", sign_in_page.sign_in, methods=["GET"]),
        Route("/sign-in", sign_in_page.signed_in, methods=["POST"]),
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
    handlers = {HTTPException: _http_error, PgherdError: _pgherd_error, Exception: _defect}
    app = Starlette(routes=routes, middleware=[Middleware(Guard, door=site.door)], exception_handlers=handlers)
    app.state.site = site
    return app


def _static(request: Request) -> Response:
    found = assets.asset(request.path_params["name"])
    if found is None or assets.address(request.path_params["name"]) != request.url.path:
        raise HTTPException(404, "There is no such file.")
    return Response(found.data, media_type=found.media_type, headers={"Cache-Control": _FOREVER})


def _error(request: Request, status: int, message: str) -> Response:
    title = _TITLES.get(status, "That did not work")
    template = "error_part.html.j2" if "hx-request" in request.headers else "error.html.j2"
    return site_of(request).page(template, status=status, title=title, message=message)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _error(request, 405, "That address takes no such request.")
    return _error(request, error.status_code, clean(error.detail))


async def _pgherd_error(request: Request, error: Exception) -> Response:
    status = 400 if isinstance(error, UsageError) else 409
    assert isinstance(error, PgherdError)
    also = " This host cannot do that." if isinstance(error, CapabilityError) else ""
    text = clean(error)
    return _error(request, status, f"{text[:1].upper()}{text[1:]}.{also}".replace("..", "."))


async def _defect(request: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    return _error(request, 500, f"{type(error).__name__}. What went wrong stands where 'pgherd ui' was started.")
