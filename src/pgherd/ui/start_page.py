"""Pages that plan, start, stop and resume studies. Host changes require a confirmation."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgherd.model.errors import PgherdError
from pgherd.model.text import clean
from pgherd.ui import jobs
from pgherd.ui.app_state import form_of, state_of, words_of
from pgherd.ui.jobs import Job, RunPlan
from pgherd.ui.study_forms import LONGEST_SECONDS, StudyForm, study_forms

_MOST_TRIALS = 60
_LONGEST = 200


def studies(request: Request) -> Response:
    """Show the studies that the page can start, and the started processes."""
    site = state_of(request)
    return site.page("start.html.j2", offers=list(study_forms().values()), jobs=site.jobs.jobs())


def form(request: Request) -> Response:
    """Show the form with the options of a study."""
    offer = _offer(request)
    query = request.query_params
    filled = {field.name: query.get(field.name, "")[:_LONGEST] if query else field.filled for field in offer.fields}
    return state_of(request).page("start_form.html.j2", offer=offer, values=filled, problem="")


async def plan(request: Request) -> Response:
    """Show the plan of a study with a start button. If an option is wrong, show the form again with the error."""
    site, offer, given = state_of(request), _offer(request), words_of(await form_of(request))
    try:
        made = await run_in_threadpool(site.jobs.plan, offer.study, given)
    except PgherdError as error:
        text = clean(error)
        values = {field.name: given.get(field.name, "")[:_LONGEST] for field in offer.fields}
        return site.page("start_form.html.j2", status=400, offer=offer, values=values, problem=f"{text[:1].upper()}{text[1:]}.")
    return site.page("plan.html.j2", offer=offer, plan=made, again=urlencode(given), shown=_shown(made), longest=LONGEST_SECONDS)


async def start(request: Request) -> Response:
    """Start the plan that was shown."""
    site, given = state_of(request), words_of(await form_of(request))
    planned = site.jobs.planned(given.get("plan", ""))
    job = await run_in_threadpool(lambda: site.jobs.start(planned, agreed=given.get("agreed") == "yes"))
    return RedirectResponse(f"/started/{job.id}", 303)


def job(request: Request) -> Response:
    """Show the output of a started process. Redirect to its run while that is being executed."""
    started = _job(request)
    if started.run is not None and started.code is None:
        return RedirectResponse(f"/runs/{started.run}", 303)
    return state_of(request).page("started.html.j2", job=started, said=clean_lines(started.said()))


def job_state(request: Request) -> Response:
    """Return the output of a started process as a page fragment. Redirect once its run has begun.

    The run of a resuming process is known even if the process fails before the run begins. Then its output is shown, with the error.
    """
    started = _job(request)
    if started.run is not None and (started.code is None or started.resumes is None):
        return Response(headers={"HX-Redirect": f"/runs/{started.run}"})
    return state_of(request).page("started_part.html.j2", job=started, said=clean_lines(started.said()))


def stopping(request: Request) -> Response:
    """Show the confirmation page for stopping a run."""
    site = state_of(request)
    directory = site.run(request)
    return site.page("confirm.html.j2", run=directory.name, action="stop", title="Stop this run?", **_STOP)


async def stop_run(request: Request) -> Response:
    """Stop a run, and redirect to its page."""
    await form_of(request)
    directory = state_of(request).run(request)
    await run_in_threadpool(jobs.stop, directory)
    return RedirectResponse(f"/runs/{directory.name}", 303)


def resuming(request: Request) -> Response:
    """Show the confirmation page for resuming a run."""
    site = state_of(request)
    directory = site.run(request)
    return site.page("confirm.html.j2", run=directory.name, action="resume", title="Resume this run?", **_RESUME)


async def resume_run(request: Request) -> Response:
    """Resume a run, and redirect to its process."""
    await form_of(request)
    site = state_of(request)
    directory = site.run(request)
    started = await run_in_threadpool(site.jobs.resume, directory)
    return RedirectResponse(f"/started/{started.id}", 303)


_STOP: dict[str, Any] = {
    "text": "The current trial is discarded and finished trials are kept. Servers are stopped and all host changes are undone. "
    "The run can be resumed later.",
    "button": "Stop run",
}
_RESUME: dict[str, Any] = {
    "text": "Leftovers of interrupted runs on this host are removed first. The remaining trials then use the options, the cores and "
    "memory, and the confirmed host changes of the original run. Finished trials are kept.",
    "button": "Resume run",
}


def clean_lines(text: str) -> list[str]:
    """Return the non-empty lines of a process's output without control characters."""
    return [clean(line) for line in text.splitlines() if line.strip()]


def _offer(request: Request) -> StudyForm:
    study = request.path_params["study"]
    study_form = study_forms().get(study)
    if study_form is None:
        raise HTTPException(404, "This page does not start that study. Use the command line.")
    return study_form


def _job(request: Request) -> Job:
    started = state_of(request).jobs.job(request.path_params["job"])
    if started is None:
        raise HTTPException(404, "This 'pgherd ui' has started no such process.")
    return started


def _shown(plan: RunPlan) -> dict[str, Any]:
    """Return the parts of the plan's document that the page shows."""
    document = plan.document
    trials = [trial for trial in document.get("trials") or () if isinstance(trial, dict)]
    deployment = document.get("deployment") or {}
    return {
        "trials": trials[:_MOST_TRIALS],
        "count": len(trials),
        "max_trials": document.get("max_trials") or len(trials),
        "seconds": plan.seconds,
        "disk": int(document.get("disk_bytes") or 0),
        "memory": int(document.get("memory_bytes") or 0),
        "changes": [clean(text) for text in document.get("host_changes") or ()],
        "needs_confirmation": [clean(text) for text in plan.needs_confirmation],
        "choices": [clean(text) for text in document.get("defaults_chosen") or ()],
        "settings": [setting for setting in document.get("settings") or () if isinstance(setting, dict)],
        "containers": sum(len(host.get("containers") or ()) for host in deployment.get("hosts") or ()),
    }
