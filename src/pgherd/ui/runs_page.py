"""The list of runs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pgherd.ui import listing
from pgherd.ui.app_state import site_of


def runs(request: Request) -> Response:
    """All runs, or those that are asked for."""
    site = site_of(request)
    asked = listing.wanted(request.query_params)
    found = site.index.runs()
    part = request.headers.get("hx-target") == "runs"
    return site.page(
        "runs_part.html.j2" if part else "runs.html.j2",
        asked=asked,
        shown=listing.listed(found, asked),
        choices=listing.choices(found),
        grades=listing.GRADES,
        states=listing.STATES,
    )
