"""Starting, stopping and resuming: a plan first, what it does to the host, and a word of agreement."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgherd.model.errors import PgherdError
from pgherd.report.formatting import clean
from pgherd.ui import jobs
from pgherd.ui.app_state import form_of, site_of, words_of
from pgherd.ui.jobs import Job, Plan
from pgherd.ui.study_forms import LONGEST_SECONDS, StudyForm, study_forms

_MOST_TRIALS = 60
_LONGEST = 200


def studies(request: Request) -> Response:
    """The studies that can be started from here, and what was started."""
    site = site_of(request)
    return site.page("start.html.j2", offers=list(study_forms().values()), jobs=site.jobs.jobs())


def form(request: Request) -> Response:
    """The options of a study."""
    offer = _offer(request)
    asked = request.query_params
    filled = {field.name: asked.get(field.name, "")[:_LONGEST] if asked else field.filled for field in offer.fields}
    return site_of(request).page("start_form.html.j2", offer=offer, values=filled, problem="")


async def plan(request: Request) -> Response:
    """What the study would do, with the button that starts it; or the form again with what is wrong."""
    site, offer, given = site_of(request), _offer(request), words_of(await form_of(request))
    try:
        made = await run_in_threadpool(site.jobs.plan, offer.study, given)
    except PgherdError as error:
        text = clean(error)
        values = {field.name: given.get(field.name, "")[:_LONGEST] for field in offer.fields}
        return site.page("start_form.html.j2", status=400, offer=offer, values=values, problem=f"{text[:1].upper()}{text[1:]}.")
    return site.page("plan.html.j2", offer=offer, plan=made, again=urlencode(given), shown=_shown(made), longest=LONGEST_SECONDS)


async def start(request: Request) -> Response:
    """Start the plan that was shown."""
    site, given = site_of(request), words_of(await form_of(request))
    planned = site.jobs.planned(given.get("plan", ""))
    job = await run_in_threadpool(lambda: site.jobs.start(planned, agreed=given.get("agreed") == "yes"))
    return RedirectResponse(f"/started/{job.id}", 303)


def job(request: Request) -> Response:
    """What was started, until its run is there to look at."""
    found = _job(request)
    if found.run is not None and found.code is None:
        return RedirectResponse(f"/runs/{found.run}", 303)
    return site_of(request).page("started.html.j2", job=found, said=clean_lines(found.said()))


def job_state(request: Request) -> Response:
    """The same as a part of its page."""
    found = _job(request)
    if found.run is not None:
        return Response(headers={"HX-Redirect": f"/runs/{found.run}"})
    return site_of(request).page("started_part.html.j2", job=found, said=clean_lines(found.said()))


def stopping(request: Request) -> Response:
    """Ask before a run is stopped."""
    site = site_of(request)
    directory = site.run(request)
    return site.page("confirm.html.j2", run=directory.name, action="stop", title="Stop this run?", **_STOP)


async def stop_run(request: Request) -> Response:
    """Stop it."""
    await form_of(request)
    directory = site_of(request).run(request)
    await run_in_threadpool(jobs.stop, directory)
    return RedirectResponse(f"/runs/{directory.name}", 303)


def resuming(request: Request) -> Response:
    """Ask before a run is gone on with."""
    site = site_of(request)
    directory = site.run(request)
    return site.page("confirm.html.j2", run=directory.name, action="resume", title="Go on with this run?", **_RESUME)


async def resume_run(request: Request) -> Response:
    """Go on with it."""
    await form_of(request)
    site = site_of(request)
    directory = site.run(request)
    started = await run_in_threadpool(site.jobs.resume, directory)
    return RedirectResponse(f"/started/{started.id}", 303)


_STOP: dict[str, Any] = {
    "text": "The trial that runs is given up; finished trials are kept, servers are stopped and every change of the host is taken back. "
    "The run can be gone on with later.",
    "button": "Stop it",
}
_RESUME: dict[str, Any] = {
    "text": "What an interrupted run left on the host is cleaned up first. Then its remaining trials are run as it was begun: with its "
    "options, its budget of cores and memory, and the changes of the host that were agreed to then. Finished trials are kept.",
    "button": "Go on with it",
}


def clean_lines(text: str) -> list[str]:
    """What a process has said, line by line, without control characters."""
    return [clean(line) for line in text.splitlines() if line.strip()]


def _offer(request: Request) -> StudyForm:
    found = study_forms().get(request.path_params["study"])
    if found is None:
        raise HTTPException(404, "That study is not started from here.")
    return found


def _job(request: Request) -> Job:
    found = site_of(request).jobs.job(request.path_params["job"])
    if found is None:
        raise HTTPException(404, "Nothing of that name was started since 'pgherd ui' was.")
    return found


def _shown(plan: Plan) -> dict[str, Any]:
    """Of the plan's document what the page shows."""
    document = plan.document
    trials = [trial for trial in document.get("trials") or () if isinstance(trial, dict)]
    deployment = document.get("deployment") or {}
    return {
        "trials": trials[:_MOST_TRIALS],
        "count": len(trials),
        "worst": document.get("worst_case_trials") or len(trials),
        "seconds": plan.seconds,
        "disk": int(document.get("disk_bytes") or 0),
        "memory": int(document.get("memory_bytes") or 0),
        "changes": [clean(text) for text in document.get("host_changes") or ()],
        "confirm": [clean(text) for text in plan.confirm],
        "choices": [clean(text) for text in document.get("choices") or ()],
        "settings": [setting for setting in document.get("settings") or () if isinstance(setting, dict)],
        "containers": sum(len(host.get("containers") or ()) for host in deployment.get("hosts") or ()),
    }
