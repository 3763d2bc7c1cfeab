from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.ui import jobs, start_page
from pgherd.ui.jobs import Job, RunPlan

FIRST = "20260131-120000-density-0001"
DOCUMENT = {
    "schema": "pgherd/plan/2",
    "deployment": {"hosts": [{"containers": [{}, {}]}]},
    "trials": [{"trial": "databases=1#0", "state": "warm", "seconds": 6.0, "validity_checks": ["cached"]}],
    "max_trials": 5,
    "seconds": 6.0,
    "disk_bytes": 2**30,
    "memory_bytes": 2**29,
    "host_changes": ["a control group <b>"],
    "needs_confirmation": [],
    "choices": ["runtime process: no control groups can be written"],
    "settings": [{"name": "shared_buffers", "value": "256MB", "default": "128MB", "reason": "it fits"}],
}


@pytest.fixture
def planned(site, monkeypatch):
    """Plans without running pgherd: the document that it would print, by words."""
    observed: list[tuple[str, ...]] = []
    document = dict(DOCUMENT)

    def answer(*text):
        observed.append(text)
        return dict(document)

    monkeypatch.setattr(site.jobs, "_document", answer)
    monkeypatch.setattr(site.jobs, "_spawn", lambda what, words: _ended(site, what, words))
    return observed, document


def _ended(site, what, words) -> Job:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    job = Job("job", what, process, Path(os.devnull), time.time())
    job.words = tuple(words)
    site.jobs._jobs["job"] = job
    return job


def plan_id(text: str) -> str:
    return text.split('name="plan" value="')[1].partition('"')[0]


def test_the_studies_and_their_options(client):
    text = client.get("/start").text
    assert all(f"/start/{study}" in text for study in ("density", "scaling", "database-size"))
    form = client.get("/start/density").text
    assert 'name="databases"' in form and 'for="databases"' in form and "Further options" in form and 'name="set"' not in form


def test_a_plan_says_what_it_does_and_starts_as_shown(post, planned, site):
    observed, _ = planned
    text = post("/start/density", databases="1,2", duration="3s").text
    assert "1 trial, at most 5 with reruns" in text and "A control group &lt;b&gt;" in text and "Start on this host" in text
    assert "<code>pgherd density --databases=1,2 --duration=3s</code>" in text and "shared_buffers" in text
    assert observed[0][:3] == ("density", "--databases=1,2", "--duration=3s") and "--dry-run" in observed[0]
    assert "/start/density?databases=1%2C2&amp;duration=3s" in text
    answer = post("/started", plan=plan_id(text))
    assert answer.status_code == 303 and answer.headers["location"] == "/started/job"
    assert site.jobs._jobs["job"].words[:3] == ("density", "--databases=1,2", "--duration=3s")
    assert post("/started", plan=plan_id(text)).status_code == 400  # a second click starts nothing


def test_the_form_takes_up_what_was_filled_in(client):
    text = client.get("/start/density?databases=1%2C2&scale=%22%3E%3Cb%3E").text
    assert 'value="1,2"' in text and "&gt;&lt;b&gt;" in text and "<b>" not in text.partition("<form")[2]


def test_changes_of_the_host_are_agreed_to_first(post, planned, site):
    planned[1]["needs_confirmation"] = ["512 huge pages of 2 MB are reserved"]
    text = post("/start/hugepages", **{"page-sizes": "none,2MB"}).text
    assert "512 huge pages of 2 MB" in text and "Apply these host changes" in text and "required" in text
    refused = post("/started", plan=plan_id(text))
    assert refused.status_code == 400 and "confirm these changes first" in refused.text
    assert post("/started", plan=plan_id(text), agreed="yes").status_code == 303
    assert "--yes" in site.jobs._jobs["job"].words


def test_what_takes_long_is_left_to_the_command_line(post, planned):
    planned[1]["seconds"] = 7200.0
    text = post("/start/density").text
    assert "Too long for this page" in text and "Start on this host" not in text


@pytest.mark.parametrize(
    "error, message", [(UsageError("--databases: 0 is no number of databases"), "--databases: 0"), (CapabilityError("no fio"), "No fio")]
)
def test_what_cannot_be_planned_is_said_beside_the_form(post, site, monkeypatch, error, message):
    def refuse(*_):
        raise error

    monkeypatch.setattr(site.jobs, "_document", refuse)
    answer = post("/start/density", databases="7", duration="<b>3s")
    assert answer.status_code == 400 and 'role="alert"' in answer.text
    answer = post("/start/density", databases="7")
    assert message in answer.text and 'value="7"' in answer.text


@pytest.mark.parametrize("path", ["/start/density", "/started", f"/runs/{FIRST}/stop", f"/runs/{FIRST}/resume"])
def test_nothing_is_done_for_another_site(client, site, path):
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:8765"}):
        assert client.post(path, data={"plan": "x"}, headers=headers).status_code == 403


def test_an_unknown_option_is_refused(post):
    answer = post("/start/density", set="archive_command=x")
    assert answer.status_code == 400 and "this page has no option" in answer.text.lower()


def test_what_was_started_is_shown_until_its_run_is_there(client, site, post, planned):
    post("/started", plan=plan_id(post("/start/density").text))
    text = client.get("/started/job").text
    assert "Exit code 0 before the study started" in text
    assert "hx-redirect" not in client.get("/started/job/state").headers
    site.jobs._jobs["job"].run = FIRST
    assert client.get("/started/job/state").headers["hx-redirect"] == f"/runs/{FIRST}"
    assert FIRST in client.get("/start").text


def test_stopping_asks_first_and_then_does_it(client, post, runs, monkeypatch):
    assert "Stop this run?" in client.get(f"/runs/{FIRST}/stop").text
    stopped = []
    monkeypatch.setattr(jobs, "stop", lambda directory: stopped.append(directory.name))
    assert post(f"/runs/{FIRST}/stop").headers["location"] == f"/runs/{FIRST}" and stopped == [FIRST]


def test_resuming_asks_first_and_then_does_it(client, post, runs, planned, site):
    file = runs / FIRST / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "interrupted", "analysis": None}))
    assert "Resume this run?" in client.get(f"/runs/{FIRST}/resume").text
    assert post(f"/runs/{FIRST}/resume").headers["location"] == "/started/job"
    assert site.jobs._jobs["job"].words == ("resume", str(runs / FIRST))


def test_the_error_of_a_failed_resume_is_shown(client, post, runs, planned, site, tmp_path, monkeypatch):
    file = runs / FIRST / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "interrupted", "analysis": None}))
    post(f"/runs/{FIRST}/resume")
    job = site.jobs._jobs["job"]
    job.log = tmp_path / "said"
    job.log.write_text("error: 2 cores are not available\n")
    answer = client.get("/started/job/state")
    assert "hx-redirect" not in answer.headers and "error: 2 cores are not available" in answer.text
    assert f'href="/runs/{FIRST}"' in answer.text
    monkeypatch.setattr(site.jobs, "_refresh", lambda job: None)
    job.code = None  # its process still executes the run
    assert client.get("/started/job/state").headers["hx-redirect"] == f"/runs/{FIRST}"


def test_a_finished_run_is_not_resumed(post):
    answer = post(f"/runs/{FIRST}/resume")
    assert answer.status_code == 400 and "nothing to resume" in answer.text


def test_lines_without_control_characters():
    lines = start_page.clean_lines("\x1b[31mred\n\nb")
    assert len(lines) == 2 and "\x1b" not in lines[0] and lines[1] == "b"


def test_a_plan_of_nothing():
    empty = start_page._shown(RunPlan("x", "database-size", (), {}, 0.0))
    assert empty["count"] == 0 and empty["seconds"] == 0.0
