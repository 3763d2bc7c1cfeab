import fcntl
import json
import os
import shutil
import time

import pytest

from pgherd.model.errors import PgherdError, RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import LoggedProposal, RunRecord
from pgherd.model.trial import Trial
from pgherd.store import run_directory
from pgherd.store.run_directory import RunDirectory


def record(name):
    return RunRecord(run=name, study="density", options={}, started=1.0, pgherd="0")


def result(number):
    trial = Trial.model_validate({"point": {"databases": 1}, "repeat": number, "deployment": {"hosts": []}, "phases": []})
    return TrialResult(id=f"{number:04d}", trial=trial, started=1, ended=2)


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path, "density")
    directory.save(record(directory.name))
    return directory


def test_what_was_written_is_read_back(run, tmp_path):
    run.begin_trial("0001")
    run.finish_trial(result(1))
    assert run.record() == record(run.name)
    assert run.results() == [result(1)]
    assert [found.name for found in RunDirectory.all(tmp_path)] == [run.name]


def test_a_run_that_nobody_executes_any_more_stands_interrupted(run):
    assert run.standing() == record(run.name).model_copy(update={"state": "interrupted", "error": "its process was killed"})
    with run.locked():
        assert run.standing().state == "running"
    run.save(record(run.name).model_copy(update={"state": "finished"}))
    assert run.standing().state == "finished"
    (run.path / "lock").unlink()
    run.save(record(run.name).model_copy(update={"started": time.time()}))
    assert run.standing().state == "running", "it is about to begin"


def test_an_unfinished_trial_does_not_count_and_is_dropped(run):
    (run.begin_trial("0001") / "spool.jsonl").write_text("half a li")
    assert run.results() == []
    assert run.drop_partial() == ["0001"]
    assert list((run.path / "trials").iterdir()) == []


def test_a_run_is_found_by_path_name_part_or_as_the_last(run, tmp_path):
    for word in (str(run.path), run.name, run.name[-4:], "last"):
        assert RunDirectory.find(word, tmp_path).name == run.name


def test_a_run_that_is_not_there_is_said_with_those_that_are(run, tmp_path):
    with pytest.raises(RunDirectoryError, match=f"no run 'nothing' in .*{run.name}"):
        RunDirectory.find("nothing", tmp_path)


def test_an_ambiguous_part_is_refused(run, tmp_path):
    other = RunDirectory.create(tmp_path, "density")
    other.save(record(other.name))
    with pytest.raises(RunDirectoryError, match="matches 2 runs"):
        RunDirectory.find("density", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ('{"schema": "pgherd/run/2", "ru', "cannot be read"),
        ('{"hello": 1}', "has schema 'None'"),
        ("[]", "has schema 'None'"),
        ('{"schema": "pgherd/run/99"}', "has schema 'pgherd/run/99', but this pgherd reads 'pgherd/run/2'"),
        ('{"schema": "pgherd/run/2"}', "is no record of a run: run: Field required"),
    ],
)
def test_truncated_or_foreign_records_are_told_in_one_message(run, text, message):
    (run.path / "run.json").write_text(text)
    with pytest.raises(RunDirectoryError, match=message) as caught:
        run.record()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("former, study", [("storage", "io-profile"), ("sizes", "database-size"), ("density", "density")])
def test_a_study_is_read_by_its_former_name(run, former, study):
    file = run.path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "study": former}))
    assert run.record().study == study


def test_a_truncated_trial_is_told_with_its_file(run):
    run.begin_trial("0001")
    file = run.finish_trial(result(1)) / "trial.json"
    file.write_text(file.read_text()[:40])
    with pytest.raises(RunDirectoryError, match=r"0001/trial.json cannot be read"):
        run.results()


def test_another_directory_is_not_a_run(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(RunDirectoryError, match="it has no run.json"):
        RunDirectory.find(str(tmp_path / "photos"), tmp_path)


def test_a_root_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another with --runs-dir"):
        RunDirectory.create(tmp_path / "file", "density")


def test_one_run_is_executed_by_one_process(run):
    assert not run.alive()
    with run.locked():
        assert run.alive()
        with pytest.raises(PgherdError, match="being executed by another"), RunDirectory(run.path).locked():
            pass
    assert not run.alive()


def test_whoever_looks_does_not_keep_a_run_from_being_executed(run, monkeypatch):
    with open(run.path / "lock", "w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(run_directory.time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
        with run.locked():
            assert run.alive()


def test_saving_replaces_the_record_whole(run):
    before = json.loads((run.path / "run.json").read_text())
    run.save(record(run.name).model_copy(update={"state": "finished"}))
    assert json.loads((run.path / "run.json").read_text()) == before | {"state": "finished"}
    assert [path.name for path in run.path.iterdir() if path.name.endswith(".tmp")] == []


def test_a_root_that_cannot_hold_runs_is_said_before_anything_is_made(tmp_path):
    (tmp_path / "file").touch()
    for root in (tmp_path / "file/runs", tmp_path / "file"):
        with pytest.raises(UsageError, match="file is not a directory; choose another with --runs-dir DIR"):
            RunDirectory.check_root(root)
    RunDirectory.check_root(tmp_path / "not/yet/there")
    assert not (tmp_path / "not").exists()


def test_a_run_that_never_began_is_discarded_and_one_that_did_is_not(run):
    assert not run.begun()
    proposal = LoggedProposal(at=1.0, after=0, trials=["databases=1#0"])
    run.save(run.record().model_copy(update={"proposals": [proposal]}))
    run.discard_unless_begun()
    assert run.begun() and run.path.exists()
    run.save(record(run.name))
    run.begin_trial("0001")
    run.finish_trial(result(1))
    run.discard_unless_begun()
    assert run.path.exists(), "it has a finished trial"
    shutil.rmtree(run.path / "trials/0001")
    run.discard_unless_begun()
    assert not run.path.exists()


def test_runs_killed_before_their_record_was_written_are_dropped(run, tmp_path):
    abandoned = RunDirectory.create(tmp_path, "density")
    assert RunDirectory.drop_abandoned(tmp_path) == [], "its process may be about to write it"
    os.utime(abandoned.path, (1, 1))
    os.utime(run.path, (1, 1))
    assert RunDirectory.drop_abandoned(tmp_path) == [abandoned.name]
    assert not abandoned.path.exists() and run.path.exists()
    assert RunDirectory.drop_abandoned(tmp_path / "missing") == []


def test_trials_are_numbered_beyond_those_that_are_there(run):
    assert run.next_trial() == "0001"
    run.begin_trial("0001")
    assert run.next_trial() == "0001", "an unfinished one does not count"
    run.finish_trial(result(1))
    run.begin_trial("0003")
    run.finish_trial(result(3))
    assert run.next_trial() == "0004"


def test_no_other_user_reads_a_run(tmp_path):
    before = os.umask(0)
    try:
        directory = RunDirectory.create(tmp_path / "runs", "density")
        directory.write("run.json", b"{}")
    finally:
        os.umask(before)
    assert directory.path.stat().st_mode & 0o777 == (directory.path / "trials").stat().st_mode & 0o777 == 0o700
    assert (directory.path / "run.json").stat().st_mode & 0o777 == 0o600
