import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgherd.model.errors import PgherdError, RunDirectoryError, UsageError
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import LoggedProposal, RunRecord
from pgherd.model.trial import Trial
from pgherd.node.files import Directory
from pgherd.store import run_directory
from pgherd.store.run_directory import RunDirectory

NOBODY = 65534
AS_NOBODY = ("setpriv", "--reuid=65534", "--clear-groups")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


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
    assert run.drop_partial() == (["0001"], [])
    assert list((run.path / "trials").iterdir()) == []


def test_an_unfinished_trial_that_cannot_be_removed_is_named(run, monkeypatch):
    """For example one of root, after ``sudo pgherd resume`` of a user's run was killed."""
    run.begin_trial("0001")
    partial = run.begin_trial("0002")
    remove_tree = Directory.remove_tree

    def refused(directory, name):
        if name == "0002.partial":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        remove_tree(directory, name)

    monkeypatch.setattr(Directory, "remove_tree", refused)
    sentence = f"{partial} cannot be removed (Permission denied); remove it by hand"
    with pytest.raises(RunDirectoryError) as raised:
        run.begin_trial("0002")
    assert str(raised.value) == sentence
    assert run.drop_partial() == (["0001"], [sentence])
    if os.geteuid() == 0:
        os.chown(partial, NOBODY, NOBODY)
        assert run.drop_partial() == ([], [sentence.replace("by hand", "as user 'nobody'")])


def test_a_run_is_found_by_path_name_part_or_as_the_last(run, tmp_path):
    for word in (str(run.path), f"{run.path}/.", run.name, run.name[-4:], "last"):
        assert RunDirectory.find(word, tmp_path).name == run.name


def test_a_run_that_is_not_there_is_said_with_those_that_are(run, tmp_path):
    with pytest.raises(RunDirectoryError, match=f"no run 'nothing' in .*{run.name}"):
        RunDirectory.find("nothing", tmp_path)


def test_the_newest_is_the_last_in_any_time_zone(tmp_path, monkeypatch):
    """A run of a shell in Berlin, then one of a container in UTC."""
    names = []
    for zone in ("Europe/Berlin", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        made = RunDirectory.create(tmp_path, "density")
        made.save(record(made.name))
        names.append(made.name)
        time.sleep(1.1)
    monkeypatch.undo()
    time.tzset()
    assert RunDirectory.find("last", tmp_path).name == names[-1]


@pytest.mark.parametrize(
    ("root", "written"), [("pgherd-runs", "NAME"), ("/srv/my runs", "'/srv/my runs/NAME'"), ("runs", "runs/NAME"), (".", "./NAME")]
)
def test_a_run_is_an_argument_that_finds_it_again(root, written):
    name = "20260131-120000-density-0001"
    assert RunDirectory(Path(root) / name).argument == written.replace("NAME", name)


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


def test_a_record_of_the_former_schema_that_lacks_its_parts_is_refused(run):
    (run.path / "run.json").write_text('{"schema": "pgherd/run/1", "run": "x"}')
    with pytest.raises(RunDirectoryError, match="is no record of a run: KeyError"):
        run.record()


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


def test_runs_killed_before_their_record_was_written_are_dropped(run, tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    abandoned = RunDirectory.create(tmp_path, "density")
    assert RunDirectory.drop_abandoned(tmp_path) == ([], []), "its process may be about to write it"
    os.utime(abandoned.path, (1, 1))
    os.utime(run.path, (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refused)
        assert RunDirectory.drop_abandoned(tmp_path) == ([], [f"{abandoned.path} cannot be removed (Permission denied); remove it by hand"])
    assert RunDirectory.drop_abandoned(tmp_path) == ([abandoned.name], [])
    assert not abandoned.path.exists() and run.path.exists()
    assert RunDirectory.drop_abandoned(tmp_path / "missing") == ([], [])


def test_trials_are_numbered_beyond_those_that_are_there(run):
    assert run.next_trial() == "0001"
    run.begin_trial("0001")
    assert run.next_trial() == "0001", "an unfinished one does not count"
    run.finish_trial(result(1))
    run.begin_trial("0003")
    run.finish_trial(result(3))
    assert run.next_trial() == "0004"


def give(path, uid=NOBODY):
    """Give a directory with its contents to another user."""
    for place in (path, *path.rglob("*")):
        os.chown(place, uid, uid, follow_symlinks=False)


def let_in(path):
    """Let other users enter a directory of the test."""
    for place in (path, *path.parents):
        if place.stat().st_mode & 0o005 != 0o005:
            place.chmod(0o755)


@pytest.fixture
def secret(tmp_path):
    """A file that a run directory must not change."""
    file = tmp_path / "secret"
    file.write_text("secret")
    yield file
    assert file.read_text() == "secret"


def test_names_come_before_paths(run, tmp_path, monkeypatch):
    """A directory 'last' or one named as a run, which another user laid here, is not meant."""
    here = tmp_path / "here"
    other = RunDirectory.create(here / "elsewhere", "exec")
    other.save(record(other.name))
    monkeypatch.chdir(here)
    for name in ("last", run.name[-4:]):
        shutil.copytree(other.path, here / name)
        assert RunDirectory.find(name, tmp_path).name == run.name
        assert RunDirectory.find(f"./{name}", tmp_path).record() == record(other.name)
    with pytest.raises(RunDirectoryError, match=r"a path of a run contains a slash: \./elsewhere"):
        RunDirectory.find("elsewhere", tmp_path)


@as_root
def test_last_is_no_run_that_another_user_added(run, tmp_path):
    later = tmp_path / "20991231-000000-exec-ffff"
    shutil.copytree(run.path, later)
    give(later)
    assert RunDirectory.find("last", tmp_path).name == run.name
    os.chown(tmp_path, NOBODY, NOBODY)
    assert RunDirectory.find("last", tmp_path).name == later.name, "the user named the directory of another user"


@as_root
def test_a_link_of_another_user_is_no_run(run, tmp_path):
    link = tmp_path / "20991231-000000-density-ffff"
    link.symlink_to(run.path)
    assert len(RunDirectory.all(tmp_path)) == 2
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert [found.name for found in RunDirectory.all(tmp_path)] == [run.name]


def test_no_link_is_written_through(run, secret):
    for name in ("run.json.tmp", "lock"):
        (run.path / name).symlink_to(secret)
    (run.path / "tables").mkdir()
    (run.path / "tables/x.csv.tmp").symlink_to(secret)
    (run.path / "tables/x.csv").symlink_to(secret)
    run.save(record(run.name))
    run.write("tables/x.csv", b"a,b")
    assert (run.path / "tables/x.csv").read_bytes() == b"a,b"
    with pytest.raises(PgherdError, match="lock is a link"), run.locked():
        pass
    (run.path / "figures").symlink_to(secret.parent)
    with pytest.raises(PgherdError, match="figures is a link"):
        run.write("figures/secret", b"changed")
    with pytest.raises(PgherdError, match="figures is a link"):
        run.remove("figures/secret")
    run.begin_trial("0001")
    (run.path / "trials/0001.partial/trial.json").symlink_to(secret)
    run.finish_trial(result(1))
    assert run.results() == [result(1)]


def test_unfinished_trials_are_not_removed_through_a_link(run, tmp_path):
    (tmp_path / "trials/0001.partial").mkdir(parents=True)
    shutil.rmtree(run.path / "trials")
    (run.path / "trials").symlink_to(tmp_path / "trials")
    for change in (run.drop_partial, lambda: run.begin_trial("0001")):
        with pytest.raises(PgherdError, match="trials is a link"):
            change()
    assert (tmp_path / "trials/0001.partial").exists()


@as_root
def test_a_run_of_another_user_is_not_written(run, tmp_path):
    give(run.path)
    os.utime(run.path, (1, 1))
    for change in (
        lambda: run.save(record(run.name)),
        lambda: run.write("tables/x.csv", b""),
        lambda: run.begin_trial("0001"),
        lambda: run.finish_trial(result(1)),
        run.drop_partial,
        lambda: run.locked().__enter__(),
    ):
        with pytest.raises(RunDirectoryError, match="belongs to user 'nobody', and pgherd does not write into it"):
            change()
    run.discard_unless_begun()
    (run.path / "run.json").unlink()
    assert RunDirectory.drop_abandoned(tmp_path) == ([], [])
    assert sorted(path.name for path in run.path.iterdir()) == ["trials"]


@as_root
def test_the_caller_of_sudo_is_no_other_user(run, monkeypatch):
    give(run.path, 54321)
    assert not run.is_ours() and "belongs to uid 54321" in (run.distrust() or "")
    monkeypatch.setenv("SUDO_UID", "54321")
    run.save(record(run.name))
    assert run.is_ours()


@as_root
def test_what_others_can_change_is_known(run, tmp_path):
    tmp_path.chmod(0o755)
    assert run.distrust() is None
    (run.path / "inputs/a").mkdir(parents=True)
    script = run.path / "inputs/a/x.sql"
    script.write_text("SELECT 1")
    for path in (run.path / "run.json", run.path / "inputs/a", script, run.path / "trials"):
        mode = path.stat().st_mode
        path.chmod(0o777)
        assert f"other users can write to {path} (mode 0777)" == run.distrust()
        path.chmod(mode)
        os.chown(path, NOBODY, NOBODY)
        assert f"{path} belongs to user 'nobody'" == run.distrust()
        os.chown(path, 0, 0)
    tmp_path.chmod(0o777)
    assert "other users can write to" in (run.distrust() or "")


@as_root
def test_a_lock_of_any_account_does_not_hold_a_run(run, tmp_path):
    """Who can open a lock file can lock it."""
    with run.locked():
        assert stat.S_IMODE((run.path / "lock").stat().st_mode) == 0o600
    let_in(tmp_path)
    held = subprocess.run([*AS_NOBODY, "flock", "--nonblock", "--shared", run.path / "lock", "true"], capture_output=True, text=True)
    assert held.returncode and "Permission denied" in held.stderr


@contextmanager
def holding(path, uid):
    """Another user holds the lock of a file that it can open."""
    words = [
        "setpriv",
        f"--reuid={uid}",
        "--clear-groups",
        "flock",
        "--nonblock",
        "--no-fork",
        str(path),
        "sh",
        "-c",
        "echo; exec sleep 60",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@as_root
def test_a_lock_that_a_former_pgherd_left_open_holds_no_run(run, tmp_path):
    let_in(tmp_path)
    run.path.chmod(0o755)
    lock = run.path / "lock"
    lock.touch()
    lock.chmod(0o644)
    with holding(lock, NOBODY):
        assert not run.alive()
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        with run.locked():
            assert run.alive()


def test_a_lock_that_a_former_pgherd_holds_becomes_private(run):
    lock = run.path / "lock"
    with open(lock, "w") as file:
        lock.chmod(0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run.alive() and stat.S_IMODE(lock.stat().st_mode) == 0o600
        with pytest.raises(PgherdError, match="being executed by another"), run.locked():
            pass
    assert not run.alive()


@as_root
def test_the_holder_of_a_lock_must_be_the_owner_of_the_run(run, tmp_path):
    let_in(tmp_path)
    run.path.chmod(0o755)
    lock = run.path / "lock"
    lock.touch()
    lock.chmod(0o644)
    for path in (run.path, lock):
        os.chown(path, NOBODY, NOBODY)
    with holding(lock, NOBODY):
        assert run.alive()
    with holding(lock, NOBODY - 1):
        assert not run.alive()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o644, "the run of another user is not changed"


@as_root
def test_another_user_who_obstructs_a_run_is_named(run, tmp_path):
    """It has opened the lock file before the owner made it private."""
    let_in(tmp_path)
    run.path.chmod(0o755)
    lock = run.path / "lock"
    lock.touch()
    lock.chmod(0o644)
    with holding(lock, NOBODY):
        lock.chmod(0o600)
        assert not run.alive()
        with pytest.raises(PgherdError, match=rf"another user's process \d+ \(.*\) holds .* remove the file {lock}"), run.locked():
            pass


@as_root
def test_another_user_sees_whether_a_run_is_alive(run, tmp_path):
    let_in(tmp_path)
    run.path.chmod(0o755)  # its owner shares it

    def alive():
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os._exit(10 + run.alive())
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    with run.locked():
        assert alive() == 11
    assert alive() == 10


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_special_files_hang_nobody(run, kind):
    def lay(path):
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")

    lay(run.path / "lock")
    assert not run.alive()
    run.begin_trial("0001")
    run.finish_trial(result(1))
    lay(run.path / "trials/0001/trial.json")
    with pytest.raises(RunDirectoryError, match="trial.json cannot be read"):
        run.results()
    lay(run.path / "run.json")
    with pytest.raises(RunDirectoryError, match="run.json cannot be read"):
        run.record()
    assert RunDirectory.all(run.path.parent) == []


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "[" + "0," * 6_000_000 + "0]", "[" + "{}," * 6_000_000 + "{}]"], ids=lambda text: text[:6]
)
def test_hostile_json_is_refused_in_little_time_and_memory(run, text):
    run.begin_trial("0001")
    run.finish_trial(result(1))
    (run.path / "run.json").write_text(text)
    (run.path / "trials/0001/trial.json").write_text('{"phases":' + text)
    tracemalloc.start()
    began = time.process_time()
    for read in (run.record, run.results):
        with pytest.raises(RunDirectoryError, match="cannot be read"):
            read()
    assert time.process_time() - began < 10 and tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


def test_a_trial_of_three_hours_with_a_hundred_databases_is_read(run):
    target = {"target": "local/db/pg/bench", "driver": "pgbench", "transactions": 1, "throughput": 1, "first": 1, "last": 2}
    phase = {"phase": "load", "start": 1, "end": 2, "overlap": 1, "targets": [{**target, "per_second": [0.0] * (100 * 3 * 3600)}]}
    run.begin_trial("0001")
    run.finish_trial(result(1).model_copy(update={"phases": [PhaseResult.model_validate(phase)]}))
    assert len(run.results()[0].phases[0].targets[0].per_second) == 1_080_000


def test_a_sparse_record_is_not_read(run):
    os.truncate(run.path / "run.json", 2**40)
    with pytest.raises(RunDirectoryError, match="more than 67,108,864 bytes"):
        run.record()


def test_a_trial_names_no_directory_but_its_own(run):
    run.begin_trial("0001")
    file = run.finish_trial(result(1)) / "trial.json"
    file.write_text(file.read_text().replace('"0001"', '"../../secret"'))
    with pytest.raises(RunDirectoryError, match=r"it is of trial '../../secret'"):
        run.results()


def test_a_copy_has_the_record_the_inputs_and_the_finished_trials(run, tmp_path):
    (run.path / "inputs").mkdir()
    (run.path / "inputs/x.sql").write_text("SELECT 1")
    run.begin_trial("0001")
    (run.finish_trial(result(1)) / "log").write_text("a log")
    run.begin_trial("0002")
    options = {"init": f"/there/{run.name}/inputs/x.sql", "scripts": [{"source": "/etc/x.sql"}], "a": f"/{run.name}/inputs/../../x"}
    run.save(record(run.name).model_copy(update={"options": options}))
    (run.path / "report.html").symlink_to("/etc/passwd")
    copy = run.copied(tmp_path / "copies")
    assert copy.path.parent == tmp_path / "copies" and copy.record().run == copy.name != run.name
    assert copy.record().options == options | {"init": str(copy.path / "inputs/x.sql")}
    assert copy.results() == [result(1)] and (copy.path / "trials/0001/log").read_text() == "a log"
    assert sorted(str(path.relative_to(copy.path)) for path in copy.path.rglob("*") if path.is_file()) == [
        "inputs/x.sql",
        "run.json",
        "trials/0001/log",
        "trials/0001/trial.json",
    ]


def test_a_run_with_links_is_not_copied(run, tmp_path):
    (run.path / "inputs").mkdir()
    (run.path / "inputs/x.sql").symlink_to("/etc/shadow")
    with pytest.raises(PgherdError, match=r"x\.sql is a link"):
        run.copied(tmp_path / "copies")
    assert not list((tmp_path / "copies").iterdir())


def test_no_other_user_reads_a_run(tmp_path):
    (tmp_path / "runs").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        directory = RunDirectory.create(tmp_path / "runs", "density")
        directory.write("run.json", b"{}")
    finally:
        os.umask(before)
    assert directory.path.stat().st_mode & 0o777 == (directory.path / "trials").stat().st_mode & 0o777 == 0o700
    assert (directory.path / "run.json").stat().st_mode & 0o777 == 0o600


@as_root
def test_root_creates_no_run_where_others_can_exchange_it(tmp_path, monkeypatch):
    # Files of a trial are written by their paths: whoever renames the run's directory could have root follow links.
    monkeypatch.delenv("SUDO_UID", raising=False)
    foreign, shared, sticky = (tmp_path / name for name in ("foreign", "shared", "sticky"))
    for place, mode in ((foreign, 0o755), (shared, 0o777), (sticky, 0o1777)):
        place.mkdir()
        place.chmod(mode)
    os.chown(foreign, NOBODY, NOBODY)
    for root in (foreign, foreign / "pgherd-runs", shared):
        with pytest.raises(
            UsageError, match=r"other users could exchange the run for links, because .*; add --runs-dir /root/pgherd-runs \(or PGHERD_RUNS"
        ):
            RunDirectory.check_root(root)
        with pytest.raises(UsageError, match="other users could exchange the run"):
            RunDirectory.create(root, "density")
    with pytest.raises(UsageError, match=rf", or trust user 'nobody' with 'SUDO_UID={NOBODY} pgherd …'"):
        RunDirectory.check_root(foreign)
    with pytest.raises(UsageError, match="only root can change, or take the right to write there from the others$"):
        RunDirectory.check_root(shared)
    RunDirectory.check_root(sticky)
    assert RunDirectory.create(sticky, "density").is_ours()
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    RunDirectory.check_root(foreign)
