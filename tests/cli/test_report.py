import json
import os
import re
import shlex
from contextlib import ExitStack

import pytest

from pgherd.cli import report
from pgherd.cli.main import run
from pgherd.store.run_directory import KILLED, RunDirectory
from pgherd.studies.density.options import DensityOptions

KNOWN = DensityOptions(host_cores=2, host_memory=2**32, vcpus=0.25, pg_bin="/b", pg_version="18.6", databases=(1, 8)).model_dump(
    mode="json"
)


def test_a_report_is_made_again_from_the_directory_alone(runs, name, capsys):
    assert run(["report", "last", "--runs-dir", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == [name]
    page = (runs / name / "report.html").read_text()
    assert "<svg" in page and not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_several_runs_are_overlaid(runs, name, tmp_path, capsys):
    assert run(["report", name, name, "--runs-dir", str(runs), "--output", str(tmp_path / "two.html")]) == 0
    assert (tmp_path / "two.html").read_text().count("<svg") >= 1


def test_a_run_that_was_interrupted_is_overlaid_with_what_it_has(runs, name, tmp_path):
    directory, out = RunDirectory(runs / name), tmp_path / "two.html"
    for options, answer in ((KNOWN, "Capacity: "), ({"from": "the future"}, "No answer: this run is interrupted")):
        directory.save(directory.record().model_copy(update={"state": "running", "analysis": None, "options": options}))
        assert run(["report", name, name, "--runs-dir", str(runs), "--output", str(out)]) == 0
        assert answer in out.read_text()
        assert directory.record().analysis is None, "laying over changes no run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nothing"], "no run 'nothing'"),
        (["report", "last", "--output", "x.html"], "--output is a directory for the report of one run"),
        (["report", "last", "last", "--png"], "--png writes the figures of one run"),
    ],
)
def test_what_cannot_be_reported_is_said(runs, name, capsys, arguments, message):
    assert run([*arguments, "--runs-dir", str(runs)]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_trials_has_no_report(tmp_path, runs, name, capsys):
    record = RunDirectory(runs / name).record()
    empty = RunDirectory.create(tmp_path / "other", "density")
    empty.save(record.model_copy(update={"run": empty.name}))
    assert run(["report", empty.name, "--runs-dir", str(tmp_path / "other")]) == 2
    assert "has no finished trial to report; resume it with" in capsys.readouterr().err


def test_a_run_of_other_options_keeps_its_own_analysis_or_says_so(runs, name, capsys):
    directory = RunDirectory(runs / name)
    record = directory.record().model_copy(update={"pgherd": "99.0"})
    directory.save(record.model_copy(update={"options": {"from": "the future"}}))
    assert run(["report", name, "--runs-dir", str(runs)]) == 0
    assert directory.record().analysis == record.analysis
    directory.save(record.model_copy(update={"options": {"from": "the future"}, "analysis": None}))
    assert run(["report", name, "--runs-dir", str(runs)]) == 2
    assert "with options that this version does not have" in capsys.readouterr().err


def test_tainted_trials_are_measured_again_by_resuming_what_is_not_finished(runs, name):
    directory = RunDirectory(runs / name)
    results = [result for result in directory.results() if any(v.name == "steal" and v.taints for v in result.checks)]
    assert results, "the made-up run was on a busy machine"
    resumed = f"pgherd resume {shlex.quote(str(runs / name))}"
    for state, command, soak in (
        ("interrupted", resumed, None),
        ("interrupted", "pgherd density", 600.0),
        ("finished", "pgherd density", None),
    ):
        options = KNOWN | {"soak_seconds": soak}
        record = directory.record().model_copy(
            update={"state": state, "analysis": None, "options": options, "command": ["pgherd", "density"]}
        )
        directory.save(record)
        assert run(["report", name, "--runs-dir", str(runs)]) == 0
        next_step = directory.record().analysis.next_steps[0]
        goes_on = command == resumed
        assert next_step.startswith("Resume this run" if goes_on else "Rerun on an idle machine")
        assert next_step.endswith(f" (steal){'; it reruns them within its time budget' if goes_on else ''}: {command}")
        assert command in (runs / name / "report.html").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_run_of_another_user_is_reported_elsewhere_only(runs, name, tmp_path, capsys):
    """A run directory of somebody, with links to files of root in the places that are written."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    directory = RunDirectory(runs / name)
    record = directory.record().model_copy(update={"state": "interrupted"})
    directory.save(record)
    (directory.path / "tables").mkdir()
    for link in ("run.json.tmp", "report.html.tmp", "report.html", "report.json", "tables/databases.csv.tmp"):
        (directory.path / link).symlink_to(secret)
    for path in (directory.path, *directory.path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in directory.path.rglob("*"))
    assert run(["report", name, "--runs-dir", str(runs)]) == 2
    assert f"run {name} belongs to user 'nobody', and pgherd does not write into it; --output DIR" in capsys.readouterr().err
    assert run(["report", name, "--runs-dir", str(runs), "--output", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0] == str(tmp_path / "out/report.html")
    assert "<svg" in (tmp_path / "out/report.html").read_text() and list((tmp_path / "out/tables").glob("*.csv"))
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in directory.path.rglob("*")) == before
    assert secret.read_text() == "secret"


def test_links_in_a_run_of_ours_are_replaced(runs, name, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for link in ("run.json.tmp", "report.html.tmp", "report.html"):
        (runs / name / link).symlink_to(secret)
    assert run(["report", name, "--runs-dir", str(runs)]) == 0
    assert secret.read_text() == "secret" and (runs / name / "report.html").stat().st_size > 1000


def test_a_run_that_ends_meanwhile_keeps_its_record(runs, name, monkeypatch):
    directory = RunDirectory(runs / name)
    finished = directory.record()
    directory.save(finished.model_copy(update={"state": "running", "analysis": None, "ended": None, "options": KNOWN}))
    execution, results = ExitStack(), RunDirectory.results

    def ends(this):
        """The results, read while the run's process writes its record and ends."""
        directory.save(finished)
        execution.close()
        return results(this)

    monkeypatch.setattr(RunDirectory, "results", ends)
    with execution:
        execution.enter_context(directory.locked())
        assert run(["report", name, "--runs-dir", str(runs)]) == 0
    assert directory.record() == finished


def test_a_killed_run_is_analysed_and_saved_under_its_lock(runs, name, monkeypatch):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "running", "analysis": None, "options": KNOWN}))
    locked, analysed = [], report._analysed

    def look(this, *rest):
        locked.append(this.alive())
        return analysed(this, *rest)

    monkeypatch.setattr(report, "_analysed", look)
    assert run(["report", name, "--runs-dir", str(runs)]) == 0
    record = directory.record()
    assert locked == [True] and not directory.alive()
    assert (record.state, record.error) == ("interrupted", KILLED) and record.analysis is not None


def test_a_run_that_is_reported_elsewhere_is_not_locked(runs, name, tmp_path):
    (runs / name).chmod(0o500)
    try:
        assert run(["report", name, "--runs-dir", str(runs), "--output", str(tmp_path / "out")]) == 0
    finally:
        (runs / name).chmod(0o700)
    assert not (runs / name / "lock").exists()


def test_a_directory_is_no_file_for_several_runs(runs, name, tmp_path, capsys):
    assert run(["report", name, name, "--runs-dir", str(runs), "--output", str(tmp_path)]) == 2
    assert "--output is a file for several runs" in capsys.readouterr().err
