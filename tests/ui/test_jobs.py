from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from pgherd.model.errors import CapabilityError, PgherdError, UsageError
from pgherd.store.live_state import LiveState, write_live
from pgherd.store.run_directory import RunDirectory
from pgherd.ui import jobs
from pgherd.ui.jobs import Jobs, RunPlan, stop

FIRST = "20260131-120000-density-0001"

_HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
try:
    print("held", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(42)
"""


@pytest.fixture
def started_jobs(runs, tmp_path):
    return Jobs(runs, tmp_path / "said")


@pytest.fixture
def holder(runs):
    """A process that executes the first run, as far as its lock tells."""
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, str(runs / FIRST / "lock")], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def stubbed(monkeypatch, script: str) -> None:
    monkeypatch.setattr(jobs, "_command", lambda words: [sys.executable, "-c", script, *words])


def test_a_plan_is_the_command_line_s_own(started_jobs, monkeypatch):
    stubbed(monkeypatch, "import json, sys; print(json.dumps({'words': sys.argv[1:], 'seconds': 6, 'needs_confirmation': ['pages']}))")
    plan = started_jobs.plan("density", {"databases": "1,2"})
    assert plan.document["words"][:2] == ["density", "--databases=1,2"] and plan.document["words"][2:5] == [
        "--dry-run",
        "--json",
        "--runs-dir",
    ]
    assert (plan.command, plan.seconds, plan.needs_confirmation, plan.too_long) == ("pgherd density --databases=1,2", 6.0, ["pages"], False)
    assert started_jobs.planned(plan.id) is plan


@pytest.mark.parametrize("code, error", [(2, UsageError), (3, CapabilityError)])
def test_what_the_command_line_refuses_is_refused_in_its_words(started_jobs, monkeypatch, code, error):
    stubbed(monkeypatch, f'print(\'{{"error": "no such thing", "exit_code": {code}}}\')')
    with pytest.raises(error, match="no such thing"):
        started_jobs.plan("density", {})


@pytest.mark.parametrize("script", ["", "print('[')", "import sys; sys.exit(1)"])
def test_what_says_nothing_is_a_message(started_jobs, monkeypatch, script):
    stubbed(monkeypatch, script)
    with pytest.raises(CapabilityError, match="cannot be made"):
        started_jobs.plan("density", {})


def test_plans_are_forgotten(started_jobs, monkeypatch):
    stubbed(monkeypatch, "print('{}')")
    monkeypatch.setattr(started_jobs, "_document", lambda *text: {})
    plans = [started_jobs.plan("database-size", {}) for _ in range(40)]
    with pytest.raises(UsageError, match="this plan has expired"):
        started_jobs.planned(plans[0].id)
    assert started_jobs.planned(plans[-1].id)
    monkeypatch.setattr(time, "monotonic", lambda: plans[-1].made + 1e6)
    with pytest.raises(UsageError):
        started_jobs.planned(plans[-1].id)


def test_a_job_has_a_session_of_its_own_and_a_file_for_what_it_says(started_jobs, monkeypatch):
    stubbed(monkeypatch, "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', sys.argv[1:])")
    job = started_jobs.start(RunPlan("x", "database-size", ("--scales=1",), {}, 0.0), agreed=False)
    job.process.wait(20)
    assert started_jobs.job(job.id).code == 0 and job.said().startswith("True True ['database-size', '--scales=1', '--runs-dir'")
    assert started_jobs.jobs() == [job] and started_jobs.job("other") is None
    assert job.log.stat().st_mode & 0o077 == 0


def test_agreement_is_passed_on_only_where_it_was_asked_for(started_jobs, monkeypatch):
    stubbed(monkeypatch, "pass")
    monkeypatch.setattr(started_jobs, "_spawn", lambda what, words: words)
    asking = RunPlan("x", "density", (), {"needs_confirmation": ["pages"]}, 0.0)
    with pytest.raises(UsageError, match="changes the host: pages"):
        started_jobs.start(asking, agreed=False)
    assert "--yes" in started_jobs.start(asking, agreed=True) and "--yes" not in started_jobs.start(
        RunPlan("x", "density", (), {}, 0.0), agreed=True
    )


def test_long_studies_are_not_started(started_jobs):
    with pytest.raises(UsageError, match="pgherd density"):
        started_jobs.start(RunPlan("x", "density", (), {"seconds": 1e5}, 0.0), agreed=True)


@contextmanager
def reserved(job):
    """The reservation of the first run by the process of a job."""
    state = jobs.paths.state_dir() / "reservations"
    state.mkdir(parents=True)
    with open(state / "unlocked", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump({"run": FIRST, "pid": job.process.pid, "cores": 1.0, "memory": 1}, file)
        file.flush()
        os.rename(file.name, state / f"{FIRST}-{job.process.pid}-x.json")  # the job's thread removes unlocked ones
        yield


def recorded(runs, **fields) -> None:
    record = runs / FIRST / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | fields))


@pytest.fixture
def sleeping(started_jobs, monkeypatch):
    """A job whose process does nothing."""
    stubbed(monkeypatch, "import time; time.sleep(60)")
    job = started_jobs.start(RunPlan("x", "density", (), {}, 0.0), agreed=False)
    yield job
    job.process.kill()
    job.process.wait()


def test_the_run_is_found_by_its_reservation(started_jobs, sleeping, runs):
    assert started_jobs.job(sleeping.id).run is None
    with reserved(sleeping):
        assert started_jobs.job(sleeping.id).run is None  # it has not yet said that it runs
        recorded(runs, state="running")
        assert started_jobs.job(sleeping.id).run == FIRST


def test_a_run_that_may_still_be_removed_is_not_shown(started_jobs, sleeping, runs):
    recorded(runs, state="running", proposals=[])
    with reserved(sleeping):
        assert started_jobs.job(sleeping.id).run is None


def test_the_run_is_known_after_its_end_though_no_page_asked_for_it(started_jobs, sleeping, runs):
    recorded(runs, state="running")
    with reserved(sleeping):
        until = time.monotonic() + 20
        while sleeping.run is None and time.monotonic() < until:
            time.sleep(0.02)
    recorded(runs, state="finished")
    sleeping.process.kill()
    sleeping.process.wait()
    found = started_jobs.job(sleeping.id)
    assert (found.run, found.code) == (FIRST, -9)


def test_what_cannot_be_resumed(started_jobs, runs, holder):
    with pytest.raises(UsageError, match="executed already"):
        started_jobs.resume(RunDirectory(runs / FIRST))
    with pytest.raises(UsageError, match="finished"):
        started_jobs.resume(RunDirectory(runs / "20260131-130000-density-0002"))


def test_what_a_foreign_record_names_is_not_run_from_the_page(started_jobs, monkeypatch, runs):
    """A run directory may come from anybody, and its record says which programs are run."""
    record = runs / FIRST / "run.json"
    document = json.loads(record.read_text()) | {"state": "interrupted"}
    record.write_text(json.dumps(document | {"study": "exec"}))
    with pytest.raises(UsageError, match="cannot be resumed from this page"):
        started_jobs.resume(RunDirectory(runs / FIRST))
    record.write_text(json.dumps(document))
    record.chmod(0o666)
    with pytest.raises(UsageError, match="cannot be resumed from this page, because other users can write to"):
        started_jobs.resume(RunDirectory(runs / FIRST))
    record.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(UsageError, match="cannot be resumed from this page"):
        started_jobs.resume(RunDirectory(runs / FIRST))


def test_a_budget_beyond_laptop_size_is_too_long(started_jobs, monkeypatch):
    stubbed(monkeypatch, "import json; print(json.dumps({'seconds': 6, 'options': {'time_budget': 36000}}))")
    plan = started_jobs.plan("density", {"databases": "1"})
    assert plan.too_long and plan.longest == 36000
    with pytest.raises(UsageError, match="may take 36000 s"):
        started_jobs.start(plan, agreed=True)


def test_without_a_budget_reruns_count(started_jobs, monkeypatch):
    document = {"seconds": 1600, "options": {"time_budget": None}, "trials": [{"seconds": 400}] * 4, "max_trials": 6}
    stubbed(monkeypatch, f"import json; print(json.dumps({document!r}))")
    plan = started_jobs.plan("consolidation", {})
    assert plan.longest == 2400 and plan.too_long


def test_a_resumed_run_is_known_at_the_latest_when_its_process_has_ended(started_jobs, monkeypatch, runs):
    stubbed(monkeypatch, "pass")
    record = runs / FIRST / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"state": "interrupted"}))
    job = started_jobs.resume(RunDirectory(runs / FIRST))
    job.process.wait(20)
    assert started_jobs.job(job.id).run == FIRST


def test_stopping_interrupts_the_process_that_executes_the_run(runs, holder):
    write_live(runs / FIRST, LiveState(pid=holder.pid, written=0.0))
    assert stop(RunDirectory(runs / FIRST)) == holder.pid
    assert holder.wait(20) == 42


def test_without_pidfd_it_is_stopped_too(runs, holder, monkeypatch):
    """Linux before 5.3, and containers whose seccomp profile refuses it."""

    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    write_live(runs / FIRST, LiveState(pid=holder.pid, written=0.0))
    assert stop(RunDirectory(runs / FIRST)) == holder.pid
    assert holder.wait(20) == 42


def test_no_other_process_is_ever_stopped(runs, holder):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        write_live(runs / FIRST, LiveState(pid=bystander.pid, written=0.0))
        with pytest.raises(PgherdError, match="does not execute it"):
            stop(RunDirectory(runs / FIRST))
        assert bystander.poll() is None and holder.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_that_only_opened_the_lock_is_not_stopped(runs, holder):
    with open(runs / FIRST / "lock") as opened:
        bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=opened)
    try:
        write_live(runs / FIRST, LiveState(pid=bystander.pid, written=0.0))
        with pytest.raises(PgherdError, match="does not execute it"):
            stop(RunDirectory(runs / FIRST))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_lock_that_is_a_link_to_a_device_stops_nothing(runs):
    """Every process has /dev/null open, and any user can lock it."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
    (runs / FIRST / "lock").unlink(missing_ok=True)
    (runs / FIRST / "lock").symlink_to("/dev/null")
    try:
        write_live(runs / FIRST, LiveState(pid=bystander.pid, written=0.0))
        with open("/dev/null") as null:
            fcntl.flock(null, fcntl.LOCK_SH)
            with pytest.raises(UsageError, match="not being executed"):
                stop(RunDirectory(runs / FIRST))
        assert not jobs._holds(bystander.pid, runs / FIRST / "lock") and bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_process_of_another_user_than_the_run_is_not_stopped(runs, holder):
    write_live(runs / FIRST, LiveState(pid=holder.pid, written=0.0))
    os.chown(runs / FIRST, 65534, 65534)
    with pytest.raises(PgherdError, match="does not execute it"):
        stop(RunDirectory(runs / FIRST))
    assert holder.poll() is None


def test_nothing_to_stop(runs, holder):
    with pytest.raises(UsageError, match="not being executed"):
        stop(RunDirectory(runs / FIRST))  # no live state
    with pytest.raises(UsageError, match="not being executed"):
        stop(RunDirectory(runs / "20260131-130000-density-0002"))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_live(runs / FIRST, LiveState(pid=gone.pid, written=0.0))
    with pytest.raises(UsageError, match="just ended"):
        stop(RunDirectory(runs / FIRST))


def test_the_environment_says_nothing_of_its_own(monkeypatch):
    monkeypatch.setenv("PGHERD_RUNS", "/elsewhere")
    assert "PGHERD_RUNS" not in jobs._environment() and os.environ["PGHERD_RUNS"]
