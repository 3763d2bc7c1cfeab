import io

from rich.console import Console

from pgherd.cli.progress import TerminalProgress
from pgherd.model.analysis import Check
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial


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


def test_a_probe_has_readings_instead_of_throughput():
    out = io.StringIO()
    probed = Trial.model_validate({"point": {"scale": 10}, "deployment": {"hosts": []}, "phases": [], "probe": "database-size"})
    with TerminalProgress(Console(file=out, width=120)) as watcher:
        watcher.planned(1, 0)
        watcher.trial(probed, 1)
        watcher.finished(TrialResult(id="0001", trial=probed, started=0, ended=1, probe={"database_bytes": 157 * 2**20}))
    assert "  0001  scale 10         database 157 MB\n" in out.getvalue()
