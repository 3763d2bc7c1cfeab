"""State shared by all pages: runs, access policy, started processes; and access to requests and forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pgherd.store.run_directory import RunDirectory
from pgherd.ui.jobs import Jobs
from pgherd.ui.rendering import render
from pgherd.ui.security import FORM_TOKEN, AccessPolicy
from pgherd.ui.shown_runs import LiveRuns, RunCache, RunIndex

MAX_FIELDS = 100


@dataclass
class AppState:
    """Objects that all requests share."""

    root: Path
    policy: AccessPolicy
    index: RunIndex
    jobs: Jobs
    cache: RunCache
    live: LiveRuns

    @classmethod
    def for_runs(cls, root: Path, policy: AccessPolicy) -> AppState:
        """Return the initial state for the runs in a directory."""
        return cls(root, policy, RunIndex(root), Jobs(root), RunCache(), LiveRuns())

    def run(self, request: Request) -> RunDirectory:
        """Return the run that the address names. Raises HTTPException (404) if there is none."""
        directory = self.index.directory(request.path_params["run"])
        if directory is None:
            raise HTTPException(404, "There is no run of that name here.")
        return directory

    def page(self, template: str, *, status: int = 200, headers: dict[str, str] | None = None, **context: Any) -> HTMLResponse:
        """Return a response rendered from a template."""
        shared = {"form_token": self.policy.form_token, "form_token_name": FORM_TOKEN, "root": str(self.root)}
        return HTMLResponse(render(template, {**shared, **context}), status, headers)


def state_of(request: Request) -> AppState:
    """Return the state of the server that received a request."""
    state: AppState = request.app.state.site
    return state


async def form_of(request: Request) -> FormData:
    """Return the fields of a form. Raises HTTPException (403) unless a page of this server sent it."""
    form = await request.form(max_files=0, max_fields=MAX_FIELDS)
    if not state_of(request).policy.accepts_form(form.get(FORM_TOKEN)):
        raise HTTPException(403, "This form is not from a page of this server, or it is older than the server: reload the page.")
    return form


def words_of(form: FormData) -> dict[str, str]:
    """Return the text fields of a form by name, without the form token."""
    return {name: value for name, value in form.items() if isinstance(value, str) and name != FORM_TOKEN}
