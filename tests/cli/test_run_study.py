import contextlib
import errno
import io
import os
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from pgherd import __version__
from pgherd.cli import run_study as module
from pgherd.cli.console import CleanConsole
from pgherd.cli.output import yes_option
from pgherd.cli.run_study import TerminalProgress, resume, resumed_on, run_study
from pgherd.distributed.cluster_backend import ClusterBackend
from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.reservation import reserve
from pgherd.model.analysis import Check
from pgherd.model.errors import CapabilityError, PgherdError, UsageError
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.report.data_files import notices
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.density.options import DensityOptions


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def test_an_unknown_study_starts_nothing(tmp_path):
    with pytest.raises(UsageError, match="no study 'nothing'"):
        run_study("nothing", {}, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_only_reported_again(runs, name, capsys):
    directory = RunDirectory(runs / name)
    record = directory.record()
    directory.save(record.model_copy(update={"environment": RunEnvironment(runtime="process", cores=1, memory=2**30)}))
    assert resume(directory, report=False, as_json=False) == 0
    assert record.analysis.answer.split()[0] in capsys.readouterr().out


def test_what_a_run_left_that_was_killed_after_its_last_trial_is_taken_back(runs, name, capsys, monkeypatch):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"environment": RunEnvironment(runtime="process", cores=1, memory=2**30)}))
    monkeypatch.setattr(module, "clean", lambda *_: ["removed its work directory"])
    assert resume(directory, report=False, as_json=False) == 0
    errors = capsys.readouterr().err
    assert "removed its work directory" in errors and "Resuming" not in errors


def test_interrupted_while_the_report_is_made_says_how_to_come_to_it(runs, name, capsys, monkeypatch):
    directory = RunDirectory(runs / name)
    record = directory.record()
    directory.save(record.model_copy(update={"environment": RunEnvironment(runtime="process", cores=1, memory=2**30)}))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pgherd.report.write_report.build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resume(directory, report=True, as_json=False)
    trials = len(directory.results())
    assert f"Interrupted; {trials} finished trials are kept. Resume with: pgherd resume {directory.path}\n" in capsys.readouterr().err


def test_a_run_that_is_alive_is_not_resumed(runs, name, monkeypatch):
    directory = RunDirectory(runs / name)
    surroundings = RunEnvironment(runtime="process", cores=1, memory=2**30)
    options = {"host_cores": 1, "host_memory": 2**30, "vcpus": 1, "pg_bin": "/pg", "pg_version": "18.1", "databases": [1]}
    directory.save(directory.record().model_copy(update={"environment": surroundings, "state": "running", "options": options}))
    with directory.locked(), pytest.raises(PgherdError, match="being executed by another"):
        resume(RunDirectory(directory.path), report=False, as_json=False)


def resumed(record, facts, done):
    return resumed_on(record, dict.fromkeys(record.hosts, facts), done)


def test_a_run_that_goes_on_where_the_host_has_changed_says_so(runs, name):
    record = RunDirectory(runs / name).record().model_copy(update={"pgherd": __version__})
    (facts,) = record.hosts.values()
    again = facts.model_copy(update={"memory_available": 1, "core_note": "steal, 3 % since boot"})
    assert resumed(record, again, 5) == record, "what changes from minute to minute is no other host"
    other = facts.model_copy(update={"kernel": "6.9.9", "cores": facts.cores + 2})
    (text,) = notices(resumed(record, other, 5))
    assert notices(resumed(record, other, 1)) == [text.replace("5 trials", "1 trial")]
    assert text.startswith("After 5 trials, the run was resumed after changes (cores was ")
    assert f"kernel was {facts.kernel}, now 6.9.9" in text
    assert "cores was" in text and text.endswith("): results before and after may differ")
    mixed = resumed(record, other, 5)
    assert resumed(mixed, other, 9) == mixed, "on the same other host once more"
    assert notices(resumed(mixed, facts.model_copy(update={"kernel": "7.0"}), 9))[1].startswith("After 9 trials")
    begun_anew = resumed(record, other, 0)
    assert notices(begun_anew) == [] and list(begun_anew.hosts.values()) == [other], "no number is of the host as it was"


def test_a_run_that_goes_on_with_another_pgherd_says_so(runs, name):
    record = RunDirectory(runs / name).record().model_copy(update={"pgherd": "0.0.9"})
    (facts,) = record.hosts.values()
    (text,) = notices(resumed(record, facts, 5))
    assert text.startswith(f"After 5 trials, the run was resumed after changes (pgherd was 0.0.9, now {__version__})")
    assert resumed(record, facts, 0).pgherd == __version__


CLUSTER = Cluster.model_validate({"address": "mine", "hosts": [{"name": "a"}, {"name": "b"}]})


def test_a_run_that_goes_on_on_changed_hosts_of_a_cluster_names_them(runs, name, monkeypatch):
    directory = RunDirectory(runs / name)
    environment = RunEnvironment(runtime="cgroup", cores=2, memory=1, cluster=CLUSTER)
    (facts,) = directory.record().hosts.values()
    backend = ClusterBackend(None, CLUSTER, name, environment, {}, None)
    backend.facts = {"a": facts, "b": facts.model_copy(update={"kernel": "6.9.9"})}
    monkeypatch.setattr(module, "open_backend", lambda *_: contextlib.nullcontext((backend, None)))
    monkeypatch.setattr(module, "execute", lambda directory, record, *_: record)
    record = directory.record().model_copy(update={"pgherd": __version__, "hosts": {"a": facts, "b": facts}})
    watcher = TerminalProgress(Console(file=io.StringIO()))
    (text,) = notices(module._execute(None, directory, record, None, environment, watcher))
    assert f"the run was resumed after changes (b kernel was {facts.kernel}, now 6.9.9)" in text


@pytest.mark.parametrize(("cluster", "recorded"), [(None, "18.1 (Debian 18.1-1)"), (CLUSTER, "18.1")])
def test_the_build_of_postgresql_is_recorded_where_it_is_one(monkeypatch, cluster, recorded):
    monkeypatch.setattr(module.installations, "choose", lambda node, bin_: SimpleNamespace(build="18.1 (Debian 18.1-1)"))
    options = DensityOptions(host_cores=2, host_memory=2**30, vcpus=1, pg_bin="/pg", pg_version="18.1", databases=(1,))
    environment = RunEnvironment(runtime="process", cores=1, memory=1, cluster=cluster)
    assert module._installations("density", options, None, environment) == {"/pg": recorded}


class Completed(Exception):
    """The preparation has begun."""


@pytest.mark.parametrize(
    ("reserved_cores", "study", "options", "dry_run", "refused"),
    [
        (None, "density", {"host_cores": 0.1}, False, True),
        (None, "consolidation", {"preset": "E4"}, False, True),
        (0.1, "density", {}, False, True),
        (0.1, "density", {"host_cores": 0.1}, False, False),
        (0.1, "consolidation", {"preset": "E4"}, False, False),
        (None, "density", {}, True, False),
        (None, "density", {"cluster": "mine"}, False, False),
        (None, "density", {"dsn": "host=h"}, False, False),
        (None, "database-size", {}, False, False),
    ],
)
def test_a_run_that_another_one_excludes_prepares_nothing(tmp_path, monkeypatch, reserved_cores, study, options, dry_run, refused):
    def complete(*_, **__):
        raise Completed("the first run is disturbed")

    monkeypatch.setattr(module, "complete", complete)
    error, message = (CapabilityError, r" are not available: run first \(pid") if refused else (Completed, "disturbed")
    with reserve(paths.state_dir(), "first", reserved_cores, 1, gather(LocalNode())), pytest.raises(error, match=message):
        run_study(study, options, runs=tmp_path / "runs", dry_run=dry_run)


class Paused:
    """Progress that is written nowhere."""

    def __init__(self):
        self.notes, self.asleep = [], False

    def note(self, text):
        self.notes.append(text)

    @contextlib.contextmanager
    def paused(self):
        self.asleep = True
        yield
        self.asleep = False


def test_what_changes_the_host_is_asked_for_on_a_terminal_only(monkeypatch):
    watcher, request = Paused(), []
    module.confirm_changes((), watcher.note, watcher.paused)
    with pytest.raises(UsageError, match="this run changes the host: 99 pages; a word.* give --yes"):
        module.confirm_changes(("99 pages", "a word"), watcher.note, watcher.paused)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(module.sys, stream, SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(module.click, "confirm", lambda question, abort, err: request.append((question, abort, err, watcher.asleep)))
    module.confirm_changes(("99 pages",), watcher.note, watcher.paused)
    assert request == [("Continue?", True, True, True)] and "99 pages" in watcher.notes[-1] and not watcher.asleep


def test_yes_agrees_beforehand():
    @click.command()
    @yes_option
    def verb():
        module.confirm_changes(("99 pages",), Paused().note, Paused().paused)

    assert CliRunner().invoke(verb, ["--yes"]).exit_code == 0
    assert isinstance(CliRunner().invoke(verb, []).exception, UsageError)


def trial(databases=8):
    phase = {"warmup": 1, "seconds": 9}
    return Trial.model_validate({"point": {"databases": databases}, "deployment": {"hosts": []}, "phases": [phase]})


def result(databases=8, error=None, failed=()):
    target = TargetResult(target="t", driver="pgbench", transactions=9000, throughput=1000, first=0, last=9)
    phases = [] if error else [PhaseResult(phase="steady", start=0, end=9, overlap=1, targets=[target])]
    verdicts = [Check(name=check, kind="noise", result="fail", observed="3 %", expected="2 %") for check in failed]
    return TrialResult(id="0001", trial=trial(databases), started=0, ended=10.5, phases=phases, checks=verdicts, error=error)


def said(*, terminal=False, **of_result):
    out = io.StringIO()
    with TerminalProgress(Console(file=out, force_terminal=terminal, width=120)) as watcher:
        watcher.setup("looking")
        watcher.planned(3, 30)
        watcher.trial(trial(), 1)
        watcher.finished(result(**of_result))
        watcher.note("a [note]")
    return out.getvalue()


def test_a_pipe_gets_one_line_per_trial():
    assert said().splitlines() == ["3 trials planned, about 32 s", "  0001  8 databases      1,000 tps", "a [note]"]


def test_one_is_singular():
    assert "1 database " in said(databases=1)


def test_taint_and_failure_are_said():
    assert "tainted: steal" in said(failed=("steal",))
    assert "failed: it died" in said(error="it died")


def test_a_terminal_is_left_as_it_was():
    text = said(terminal=True)
    assert "1,000 tps" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor comes back


class Dying(io.StringIO):
    """Stream that fails with the error of this number, once it is set."""

    number = 0

    def flush(self):
        if self.number:
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC])
def test_progress_that_cannot_be_printed_ends_no_run(monkeypatch, number, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    monkeypatch.setenv("TERM", "xterm")
    console = CleanConsole(stderr=True)
    console.file = Dying()
    with TerminalProgress(console) as watcher:
        console.file.number = number
        watcher.planned(3, 30)
        watcher.trial(trial(), 1)
        watcher.finished(result())
        watcher.note("a note")
    printed = console.file.getvalue()
    console.file.number = 0
    watcher.note("a later note")
    assert console.quiet and console.file.getvalue() == printed


def test_a_probe_has_readings_instead_of_throughput():
    out = io.StringIO()
    probed = Trial.model_validate({"point": {"scale": 10}, "deployment": {"hosts": []}, "phases": [], "probe": "database-size"})
    with TerminalProgress(Console(file=out, width=120)) as watcher:
        watcher.planned(1, 0)
        watcher.trial(probed, 1)
        watcher.finished(TrialResult(id="0001", trial=probed, started=0, ended=1, probe={"database_bytes": 157 * 2**20}))
    assert "  0001  scale 10         database 157 MB\n" in out.getvalue()
