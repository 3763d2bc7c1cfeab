"""Signing in with the token, where one is asked for: beyond loopback, or on it by ``--token``."""

from __future__ import annotations

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgherd.ui.app_state import AppState, site_of
from pgherd.ui.security import COOKIE

_AFTER_A_WRONG_TOKEN = 0.5


async def sign_in(request: Request) -> Response:
    """The form; or, with the token in the address that was printed, straight in."""
    site = site_of(request)
    token = request.query_params.get("token", "")
    if site.door.token is None:
        return RedirectResponse("/", 303)
    return await _let_in(site, token, wrong=False) if token else site.page("sign_in.html.j2", wrong=False)


async def signed_in(request: Request) -> Response:
    """What was typed."""
    form = await request.form(max_files=0, max_fields=5)
    return await _let_in(site_of(request), str(form.get("token", "")), wrong=True)


async def _let_in(site: AppState, token: str, *, wrong: bool) -> Response:
    if not site.door.opens_for(token.strip()):
        await anyio.sleep(_AFTER_A_WRONG_TOKEN)
        return site.page("sign_in.html.j2", status=401, wrong=wrong or bool(token))
    answer = RedirectResponse("/", 303)
    answer.set_cookie(COOKIE, site.door.session, httponly=True, samesite="strict", path="/")
    return answer
