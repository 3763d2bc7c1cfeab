import errno
import os
from pathlib import Path

import pytest

from pgherd.cluster.interfaces import named
from pgherd.model.analysis import Analysis, Check, Proposal, Thresholds
from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host
from pgherd.model.errors import LostServerError, PgherdError, TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.runner import loop
from pgherd.runner.execute import local_backend as backends
from pgherd.runner.execute.local_backend import LocalBackend
from pgherd.runner.progress import RunObserver
from pgherd.store.run_directory import RunDirectory


def trial(repeat, may_die=False):
    phases = [{"name": "p", "seconds": 1, "loads": {}}]
    return Trial.model_validate(
        {"point": {"databases": 1}, "repeat": repeat, "deployment": {"hosts": []}, "phases": phases, "failure_expected": may_die}
    )


class Study:
    """Wants ``count`` trials, ``batch`` at a time, of which those ``dying`` are about whether servers live."""

    name, options = "density", Model

    def __init__(self, count=3, batch=2, dying=()):
        self.count, self.batch, self.dying = count, batch, dying

    def propose(self, options, results):
        done = len(results)
        if done >= self.count:
            return Proposal(stop="enough")
        return Proposal(trials=tuple(trial(n, n in self.dying) for n in range(done, min(done + self.batch, self.count))))

    def analyse(self, options, results):
        return Analysis(answer=f"{len(results)} trials", grade="A")


class FakeBackend:
    """Does nothing; ``troubles`` maps a trial's repeat to what is raised when it is brought about."""

    def __init__(self, scratch: Path, troubles=()):
        self.node, self.facts, self.scratch, self.watched = LocalNode(), None, scratch, []
        self.troubles = dict(troubles)
        self.distrusted = 0

    def guests(self):
        return {}

    def apply(self, trial):
        if trial.repeat in self.troubles:
            raise self.troubles[trial.repeat]
        return self, "1 kept"

    def settings(self, target=None):
        return {"work_mem": "8MB"}

    def readings(self):
        return {"server:a/pg": {"pages.size": 4096.0}}

    def stop_phase_targets(self):
        self.rested = True

    def mark_unhealthy(self):
        self.distrusted += 1

    def oom_kills(self):
        return ()


@pytest.fixture(autouse=True)
def _played(monkeypatch):
    """Phases take no time, and leave a file as a spool would."""

    def play(node, trial, stage, directory, scratch, watcher, watched, elsewhere):
        (directory / "raw").write_text(f"of repeat {trial.repeat}")
        return [PhaseResult(phase="p", start=1.0, end=2.0, overlap=1.0, targets=[])], 0.0

    monkeypatch.setattr(backends.phases, "run", play)
    monkeypatch.setattr(backends.trial_checks, "judge", lambda *_: [])


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "runs", "density")
    directory.save(RunRecord(run=directory.name, study="density", options={}, started=1.0, pgherd="0"))
    return directory


def execute(run, tmp_path, study=None, troubles=(), backend=None):
    backend = backend or FakeBackend(tmp_path / "scratch", troubles)
    return loop.execute(run, run.record(), study or Study(), Model(), LocalBackend(backend), Thresholds(), RunObserver())


def test_all_proposals_are_run_and_logged(run, tmp_path):
    record = execute(run, tmp_path)
    assert record == run.record()
    assert record.state == "finished" and record.error is None and record.analysis.answer == "3 trials"
    assert [result.id for result in run.results()] == ["0001", "0002", "0003"]
    assert [(entry.after, entry.trials, entry.stop) for entry in record.proposals] == [
        (0, ["databases=1#0", "databases=1#1"], None),
        (2, ["databases=1#2"], None),
        (3, [], "enough"),
    ]
    assert record.timing["measured"] == 3.0 and record.settings == {"work_mem": "8MB"}
    assert not list((tmp_path / "scratch").glob("*")), "what drivers wrote there has been moved or is not wanted"


def test_a_busy_machine_s_run_names_the_command_that_measures_again(run, tmp_path, monkeypatch):
    busy = Check(name="background-cpu", kind="noise", result="fail", observed="40 %", expected="≤ 5 %")
    monkeypatch.setattr(backends.trial_checks, "judge", lambda *_: [busy])
    monkeypatch.setattr(Study, "analyse", lambda *_: Analysis(answer="tainted", grade="C"))
    run.save(run.record().model_copy(update={"command": ["pgherd", "density", "--points", "1,2"]}))
    (said,) = execute(run, tmp_path).analysis.next_steps
    assert said.startswith("Rerun on an idle machine") and said.endswith("(background-cpu): pgherd density --points 1,2")


def _bytes(run):
    return {path: path.read_bytes() for path in run.path.glob("trials/*/*")}


def test_an_interrupted_run_goes_on_where_it_ended(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path, troubles={2: KeyboardInterrupt()})
    assert run.record().state == "interrupted" and run.record().error == "interrupted by the user"
    assert not list(run.path.glob("trials/*.partial"))
    before = _bytes(run)
    assert len(before) == 4
    record = execute(run, tmp_path)
    assert record.state == "finished" and record.error is None
    assert [result.trial.repeat for result in run.results()] == [0, 1, 2]
    assert {path: data for path, data in _bytes(run).items() if path in before} == before
    assert [entry.after for entry in record.proposals] == [0, 2, 2, 3]


def test_what_was_said_of_some_trials_is_not_said_of_a_run_that_goes_on(run, tmp_path):
    for analysis in (None, Analysis(answer="of two trials", grade="B")):
        run.save(run.record().model_copy(update={"analysis": analysis}))
        with pytest.raises(KeyboardInterrupt):
            execute(run, tmp_path, troubles={2: KeyboardInterrupt()})
        assert len(run.results()) == 2 and run.record().analysis is None


def test_a_failed_trial_is_recorded_and_the_run_goes_on(run, tmp_path):
    backend = FakeBackend(tmp_path / "scratch", {1: TrialError("the server died\nits last words")})
    record = execute(run, tmp_path, backend=backend)
    results = run.results()
    assert record.state == "finished"
    assert [result.error for result in results] == [None, "the server died\nits last words", None]
    assert results[1].tainted and not results[1].phases
    assert backend.distrusted == 1, "what is up is not to be taken for healthy"


def test_what_is_ended_for_want_of_memory_is_a_finding_and_ends_no_run(run, tmp_path):
    backend = FakeBackend(tmp_path / "scratch", {number: TrialError(f"no {number}") for number in range(9)})
    kill = OomKill(container="a", processes=1, time=5.0)
    backend.oom_kills = lambda: (kill,)
    record = execute(run, tmp_path, Study(5, 5), backend=backend)
    assert record.state == "finished"
    assert [result.oom_kills for result in run.results()] == [(kill,)] * 5


def test_a_run_of_which_no_trial_succeeds_ends(run, tmp_path):
    with pytest.raises(PgherdError, match="3 trials in a row failed; last error: no 2"):
        execute(run, tmp_path, Study(9, 9), {number: TrialError(f"no {number}") for number in range(9)})
    assert run.record().state == "failed" and "no 2" in run.record().error
    assert len(run.results()) == 3


def test_trials_that_may_die_do_not_end_a_run(run, tmp_path):
    dying = {number: TrialError(f"no {number}") for number in range(4)}
    assert execute(run, tmp_path, Study(5, 5, dying=range(4)), dying).state == "finished"


def test_trials_that_need_a_lost_server_do_not_end_a_run(run, tmp_path):
    assert execute(run, tmp_path, Study(9, 9), {number: LostServerError(f"no {number}") for number in range(8)}).state == "finished"
    assert [result.error for result in run.results()][-2:] == ["no 7", None]


def test_trials_that_may_die_do_not_hide_that_no_other_succeeds(run, tmp_path):
    with pytest.raises(PgherdError, match="3 trials in a row failed; last error: no 4"):
        execute(run, tmp_path, Study(9, 9, dying=(1, 3)), {number: TrialError(f"no {number}") for number in range(9)})


def test_failures_among_successes_do_not_end_it(run, tmp_path):
    failing = {number: TrialError("no") for number in range(9) if number % 3}
    assert execute(run, tmp_path, Study(9, 9), failing).state == "finished"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/spool.jsonl"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        RuntimeError("IO Error: Could not write file: No space left on device"),
    ],
)
def test_a_full_disk_ends_it_and_says_how_to_go_on(run, tmp_path, error):
    with pytest.raises(PgherdError, match=rf"the disk is full \(.*\); free some space, then 'pgherd resume {run.argument}'"):
        execute(run, tmp_path, troubles={1: error})
    assert run.record().state == "failed" and "the disk is full" in run.record().error
    assert [result.id for result in run.results()] == ["0001"]
    assert not list(run.path.glob("trials/*.partial"))


def test_a_full_disk_of_a_host_is_said_to_be_that_host_s(run, tmp_path):
    error = named(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "b")
    with pytest.raises(PgherdError, match=r"^the disk is full \(a file on host b\); free some space, then 'pgherd resume"):
        execute(run, tmp_path, troubles={1: error})


def test_why_it_ended_is_told_even_where_it_cannot_be_written(run, tmp_path, monkeypatch):
    backend = FakeBackend(tmp_path / "scratch", {0: OSError(errno.ENOSPC, "No space left on device")})
    saved = run.save

    def save(record):
        if record.state == "failed":
            raise OSError(errno.ENOSPC, "No space left on device")
        saved(record)

    monkeypatch.setattr(run, "save", save)
    with pytest.raises(PgherdError, match="the disk is full"):
        execute(run, tmp_path, backend=backend)
    assert run.record().state == "running", "which 'pgherd list' shows as killed, and resume goes on with"


def test_a_defect_is_recorded_and_not_swallowed(run, tmp_path):
    with pytest.raises(ZeroDivisionError):
        execute(run, tmp_path, troubles={1: ZeroDivisionError("of mine")})
    assert run.record().state == "failed" and run.record().error == "of mine"


def test_an_analysis_that_fails_does_not_leave_the_run_running(run, tmp_path):
    study = Study()
    study.analyse = lambda options, results: 1 / 0
    with pytest.raises(ZeroDivisionError):
        execute(run, tmp_path, study)
    assert run.record().state == "failed" and len(run.results()) == 3


def test_a_trial_that_failed_because_of_a_signal_is_no_failed_trial(run, tmp_path, monkeypatch):
    """Such as a library's own error for an interrupted call."""
    backend = FakeBackend(tmp_path / "scratch", {1: TrialError("the query was cancelled")})
    apply = backend.apply

    def interrupted(trial):
        monkeypatch.setattr(interruption, "_asked", trial.repeat == 1)
        return apply(trial)

    backend.apply = interrupted
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path, backend=backend)
    assert run.record().state == "interrupted" and len(run.results()) == 1


def test_numbers_go_on_beyond_those_that_are_there(run, tmp_path):
    """A trial that cannot be read may have been removed by hand, as the message of 'show' says."""
    execute(run, tmp_path)
    for file in (run.path / "trials/0002").iterdir():
        file.unlink()
    (run.path / "trials/0002").rmdir()
    study = Study(4, 1)
    execute(run, tmp_path, study)
    assert [result.id for result in run.results()] == ["0001", "0003", "0004", "0005"]


class Verifying(FakeBackend):
    """Finds the database of repeat 1 inconsistent."""

    verified = ()

    def readings(self):
        return {}

    def verify(self, trial):
        self.verified = (*self.verified, trial.repeat)
        if trial.repeat == 1:
            raise TrialError("condition 4 does not hold")


@pytest.mark.parametrize("asked", [True, False])
def test_an_inconsistent_database_fails_the_trial_where_it_is_checked(run, tmp_path, asked):
    database = {"workload": "orders", "verify": asked}
    container = {"name": "a", "servers": [{"bin": "/b", "version": "18.6", "databases": [database]}]}

    class Shop(Study):
        def propose(self, options, results):
            proposal = super().propose(options, results)
            deployment = trial(0).deployment.model_validate({"hosts": [{"containers": [container]}]})
            return proposal.model_copy(
                update={"trials": tuple(one.model_copy(update={"deployment": deployment}) for one in proposal.trials)}
            )

    backend = Verifying(tmp_path / "scratch")
    execute(run, tmp_path, Shop(), backend=backend)
    assert backend.verified == ((0, 1, 2) if asked else ())
    assert [result.error for result in run.results()] == [None, "condition 4 does not hold" if asked else None, None]
    assert backend.distrusted == int(asked)


def test_trials_that_lost_all_their_hosts_do_not_end_the_run(run, tmp_path):
    def without(wanted):
        return wanted.model_copy(update={"phases": (wanted.phases[0].model_copy(update={"loads": {}}),)})

    loads = {"local": Load(driver="fio")}
    troubles = {number: TrialError("host b is lost") for number in range(4)}

    class Asking(Study):
        def propose(self, options, results):
            found = super().propose(options, results)
            deployment = Deployment(hosts=(Host(),))
            phases = (Phase(name="p", seconds=1, loads=loads),)
            asked = tuple(t.model_copy(update={"deployment": deployment, "phases": phases}) for t in found.trials)
            return found.model_copy(update={"trials": asked})

    backend = LocalBackend(FakeBackend(tmp_path / "scratch", troubles))
    backend.placed = without
    record = loop.execute(run, run.record(), Asking(count=5), Model(), backend, Thresholds(), RunObserver())
    assert record.state == "finished" and [result.error for result in run.results()] == ["host b is lost"] * 4 + [None]
