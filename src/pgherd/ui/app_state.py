"""What all pages share: the runs, who may come in, what was started, and how a page is answered."""

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
from pgherd.ui.run_cache import RunCache
from pgherd.ui.run_index import RunIndex
from pgherd.ui.security import FORM_TOKEN, AccessPolicy
from pgherd.ui.watching import LiveRuns

MOST_FIELDS = 100


@dataclass
class AppState:
    """The server's state."""

    root: Path
    door: AccessPolicy
    index: RunIndex
    jobs: Jobs
    reader: RunCache
    watching: LiveRuns

    @classmethod
    def of(cls, root: Path, door: AccessPolicy) -> AppState:
        """For the runs in this directory."""
        return cls(root, door, RunIndex(root), Jobs(root), RunCache(), LiveRuns())

    def run(self, request: Request) -> RunDirectory:
        """The run that the address names. Raises HTTPException (404) where there is none."""
        found = self.index.directory(request.path_params["run"])
        if found is None:
            raise HTTPException(404, "There is no run of that name here.")
        return found

    def page(self, template: str, *, status: int = 200, headers: dict[str, str] | None = None, **context: Any) -> HTMLResponse:
        """An answer from a template."""
        shared = {"form_token": self.door.form_token, "form_token_name": FORM_TOKEN, "root": str(self.root), "signed": self.door.token}
        return HTMLResponse(render(template, {**shared, **context}), status, headers)


def site_of(request: Request) -> AppState:
    """The server's state."""
    site: AppState = request.app.state.site
    return site


async def form_of(request: Request) -> FormData:
    """The fields of one of our own forms. Raises HTTPException (403) where it is not ours."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    if not site_of(request).door.genuine(form.get(FORM_TOKEN)):
        raise HTTPException(
            403, "This form is not from a page of this server, or from one before it was started anew: load the page again."
        )
    return form


def words_of(form: FormData) -> dict[str, str]:
    """A form's texts by name, the form token left out."""
    return {name: value for name, value in form.items() if isinstance(value, str) and name != FORM_TOKEN}
