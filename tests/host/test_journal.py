from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.host import journal as journals
from pgherd.host import processes, shared_settings
from pgherd.host.journal import Journal, clean, parse
from pgherd.host.undo_actions import Kill, ReleaseSharedMemory, RemoveTree
from pgherd.model.errors import CapabilityError, PgherdError
from pgherd.node.local import LocalNode

NODE = LocalNode()

# Another process: makes a tree, a process and a knob under a journal, reports it, and waits to be killed.
OWNER = """
import subprocess, sys, time
from pathlib import Path
from pgherd.host import processes, shared_settings
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import Kill, ReleaseSetting
from pgherd.node.local import LocalNode
base = Path(sys.argv[1])
shared_settings.LEDGER = base / "holds.json"
node = LocalNode()
journal = Journal.open(node, base / "state", "doomed")
journal.make_tree(str(base / "work"))
(base / "work/data").mkdir()
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
journal.note(Kill(pid=child.pid, start=processes.start_time(node, child.pid)))
journal.note(ReleaseSetting(key="k"))
shared_settings.choose(node, "k", str(base / "knob"), "during")
print(child.pid, flush=True)
time.sleep(300)
"""


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_settings, "LEDGER", tmp_path / "holds.json")
    return tmp_path / "holds.json"


def owner(base: Path) -> tuple[subprocess.Popen[str], int]:
    (base / "knob").write_text("before")
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(base)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_kill_9_then_clean_leaves_nothing(tmp_path: Path) -> None:
    process, child = owner(tmp_path)
    try:
        text = clean(NODE, tmp_path / "state")
        assert text == [f"left run doomed alone: it is running (pid {process.pid})"]
        assert (tmp_path / "work/data").is_dir()
        assert journals.running(NODE, tmp_path / "state") == ["doomed"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    assert journals.running(NODE, tmp_path / "state") == []
    text = clean(NODE, tmp_path / "state")
    assert text == [
        f"ended process {child} (run doomed)",
        f"wrote before back to {tmp_path}/knob (run doomed)",
        f"removed {tmp_path}/work (run doomed)",
    ]
    assert processes.start_time(NODE, child) is None
    assert (tmp_path / "knob").read_text() == "before"
    assert not (tmp_path / "work").exists()
    assert list((tmp_path / "state/journal").glob("*.jsonl")) == []
    assert clean(NODE, tmp_path / "state") == []


def test_an_owner_that_lives_is_left_alone_in_its_own_process_too(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "mine")
    journal.make_tree(str(tmp_path / "work"))
    assert clean(NODE, tmp_path) == [f"left run mine alone: it is running (pid {os.getpid()})"]
    assert journal.close() == [f"removed {tmp_path}/work"]
    assert clean(NODE, tmp_path) == []


def test_a_locked_journal_is_of_a_running_run(tmp_path: Path) -> None:
    """A process in another container is not listed here."""
    journal = Journal.open(NODE, tmp_path, "mine")
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    path.write_text(path.read_text().replace(f'"pid": {os.getpid()},', '"pid": 9999999,'))
    assert journals.running(NODE, tmp_path) == ["mine"]
    path.write_text('{"schema": "pgherd/journal/9"}\n')
    assert journals.running(NODE, tmp_path) == [path.stem], "a newer version of pgherd runs it"
    journal.close()
    assert journals.running(NODE, tmp_path) == []


def test_a_marker_is_on_disk_before_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    synced: dict[str, str] = {}

    def fsync(number: int) -> None:
        file = Path(f"/proc/self/fd/{number}").resolve()
        synced[file.name] = file.read_text()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        journal.make_tree(str(tmp_path / "tree"))
    assert synced[".pgherd"] == journal.id
    journal.close()


def test_a_marker_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")

    def full(number: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(journals, "write_all", full)
        journal.make_tree(str(tmp_path / "tree"))
    assert (tmp_path / "tree/.pgherd").read_bytes() == b""
    assert journal.close() == [f"removed {tmp_path}/tree"]
    assert not (tmp_path / "tree").exists() and not list((tmp_path / "journal").glob("*.jsonl"))


def test_the_note_is_on_disk_before_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    synced: list[int] = []
    monkeypatch.setattr(journals.os, "fsync", synced.append)
    journal.note(RemoveTree(path="/x"))
    assert synced == [journal._number]
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    assert '"kind": "remove_tree"' in path.read_text()


def test_play_goes_backwards_within_each_kind(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    outer, inner = str(tmp_path / "a"), str(tmp_path / "a/b")
    journal.make_tree(outer)
    journal.note(Kill(pid=999_999_9, start=1))
    journal.make_tree(inner)
    assert [x.kind for x in journal.pending()] == ["kill", "remove_tree", "remove_tree"]
    assert journal.play() == [f"removed {inner}", f"removed {outer}"]
    assert journal.play() == []


def test_done_entries_are_not_played(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    number = journal.make_tree(str(tmp_path / "keep"))
    journal.done(number)
    assert journal.close() == []
    assert (tmp_path / "keep").is_dir()


def test_what_can_not_be_undone_stays_in_the_journal(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/file").write_text("precious")
    journal.note(RemoveTree(path=str(tmp_path / "foreign")))
    (sentence,) = journal.close()
    assert sentence.startswith("not undone:")
    assert (tmp_path / "foreign/file").read_text() == "precious"
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    assert len(parse(path.read_text())[1]) == 1


def test_a_tree_that_exists_is_not_taken_over(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    with pytest.raises(FileExistsError):
        journal.make_tree(str(tmp_path))
    assert journal.pending() == []


def test_every_truncation_of_a_journal_reads(tmp_path: Path) -> None:
    """Torn anywhere, a journal gives a prefix of what was noted, and never an error."""
    journal = Journal.open(NODE, tmp_path, "run")
    for index in range(3):
        journal.note(ReleaseSharedMemory(data_directory=f"/data{index}ü\n"))
    journal.done(2)
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    text = path.read_text()
    complete = {1, 2, 3}
    for length in range(len(text) + 1):
        owner, entries = parse(text[:length])
        assert set(entries) <= complete
        assert owner is None or owner.run == "run"
        assert owner is not None or not entries
    assert set(parse(text)[1]) == {1, 3}


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "write", lambda number, data: write(number, data[:7]))  # the disk is full
        with pytest.raises(OSError, match="No space left"):
            journal.note(RemoveTree(path="/lost"))
    journal.note(RemoveTree(path="/kept"))
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    assert [undo.path for undo in parse(path.read_text())[1].values()] == ["/kept"]


def test_clean_appends_after_a_torn_line(tmp_path: Path) -> None:
    process, _ = owner(tmp_path)
    process.kill()
    process.wait()
    (path,) = (tmp_path / "state/journal").glob("*.jsonl")
    path.write_text(path.read_text() + '{"id": 9, "un')
    (tmp_path / "work/.pgherd").write_text("of somebody else")
    (last,) = [sentence for sentence in clean(NODE, tmp_path / "state") if "not undone" in sentence]
    assert "has no .pgherd file" in last
    entries = parse(path.read_text())[1]
    assert [undo.kind for undo in entries.values()] == ["remove_tree"]


def test_a_journal_of_a_newer_pgherd_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    path = tmp_path / "journal/new.jsonl"
    path.write_text(json.dumps({"schema": "pgherd/journal/9"}) + "\n")
    (sentence,) = clean(NODE, tmp_path)
    assert "pgherd/journal/9" in sentence
    assert path.exists()


def test_an_empty_journal_goes_silently(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/empty.jsonl").touch()
    assert clean(NODE, tmp_path) == []
    assert not (tmp_path / "journal/empty.jsonl").exists()


def test_after_a_boot_pids_and_knobs_are_left_alone(tmp_path: Path, ledger: Path) -> None:
    process, child = owner(tmp_path)
    process.kill()
    process.wait()
    try:
        (path,) = (tmp_path / "state/journal").glob("*.jsonl")
        for file in (path, ledger):
            file.write_text(file.read_text().replace(processes.boot_id(NODE), "00000000-0000-0000-0000-000000000000"))
        assert clean(NODE, tmp_path / "state") == [f"removed {tmp_path}/work (run doomed)"]
        assert processes.start_time(NODE, child) is not None
        assert (tmp_path / "knob").read_text() == "during"
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_unwritable_state_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CapabilityError, match="XDG_STATE_HOME"):
        Journal.open(NODE, tmp_path / "file", "run")


def test_nothing_to_clean_without_a_state_directory(tmp_path: Path) -> None:
    assert clean(NODE, tmp_path / "missing") == []


def test_ctrl_c_waits_until_all_is_taken_back(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from pgherd.node import interruption
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import RemoveTree
from pgherd.node.local import LocalNode
base = Path(sys.argv[1])
play = RemoveTree.play
def interrupted(self, scene):
    os.kill(os.getpid(), signal.SIGINT)
    return play(self, scene)
RemoveTree.play = interrupted
with interruption.ended_by_signals():
    journal = Journal.open(LocalNode(), base / "state", "run")
    journal.make_tree(str(base / "one"))
    journal.make_tree(str(base / "two"))
    try:
        journal.close()
        print("not ended")
    except KeyboardInterrupt:
        print("ended")
"""
    finished = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert finished.stdout == "ended\n", finished.stderr
    assert not list(tmp_path.glob("[ot][nw]*")) and not list((tmp_path / "state/journal").glob("*.jsonl"))


STRANGER = 54321
"""A uid without an account."""


@pytest.fixture
def forged(tmp_path: Path) -> Path:
    """A journal that asks for the removal of a directory of ours, whose marker it knows."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".pgherd").write_text("id")
    (precious / "file").touch()
    owner = {"schema": "pgherd/journal/1", "journal": "id", "run": "r", "pid": 999_999_9, "start": 1, "boot": "x", "at": 0.0}
    (tmp_path / "journal").mkdir(mode=0o700)
    path = tmp_path / "journal/forged.jsonl"
    path.write_text(json.dumps(owner) + "\n" + json.dumps({"id": 1, "undo": {"kind": "remove_tree", "path": str(precious)}}) + "\n")
    path.chmod(0o600)
    return path


def test_the_forged_journal_would_be_played_if_it_were_ours(tmp_path: Path, forged: Path) -> None:
    assert clean(NODE, tmp_path) == [f"removed {tmp_path}/precious (run r)"]


@pytest.mark.parametrize(
    ("machine", "same_boot", "played"),
    [
        (("f" * 32, "elsewhere"), False, False),
        (("f" * 32, "elsewhere"), True, True),  # another container on this machine
        (("a" * 32, "former-name"), False, True),
        (("f" * 32, "here"), False, True),  # a machine without a disk
        ((), False, True),  # of a former version
    ],
)
@pytest.mark.parametrize("running", [False, True])
def test_a_journal_of_another_machine_is_not_played(
    tmp_path: Path,
    forged: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: tuple[str, ...],
    same_boot: bool,
    played: bool,
    running: bool,
) -> None:
    """Both have the same home directory."""
    header, entries = forged.read_text().split("\n", 1)
    owner = {**json.loads(header), "machine": machine, "boot": processes.boot_id(NODE) if same_boot else "x"}
    forged.write_text(f"{json.dumps(owner)}\n{entries}")
    monkeypatch.setattr(journals, "machine_names", lambda node: ("a" * 32, "here"))
    with forged.open() as file:
        if running:
            fcntl.flock(file, fcntl.LOCK_EX)
        messages = clean(NODE, tmp_path)
    if running:
        assert messages == (["left run r alone: it is running (pid 9999999)"] if played else [])
    elif played:
        assert messages == [f"removed {tmp_path}/precious (run r)"]
    else:
        assert messages == ["left run r alone: it ran on elsewhere; run 'pgherd clean' there"]
    assert (tmp_path / "precious/file").exists() == forged.exists() == (running or not played)


def test_the_names_of_a_machine(tmp_path: Path) -> None:
    """A container may have no machine-id, or one that its image has not set yet."""
    (tmp_path / "id").write_text("a" * 32 + "\n")
    (tmp_path / "unset").write_text("uninitialized\n")
    (tmp_path / "empty").touch()
    (tmp_path / "name").write_text("here\n")

    class Machine(LocalNode):
        def __init__(self, machine_id: str) -> None:
            self.machine_id = machine_id

        def read(self, path: str) -> bytes:
            return (tmp_path / {"/etc/machine-id": self.machine_id, "/proc/sys/kernel/hostname": "name"}[path]).read_bytes()

    assert journals.machine_names(Machine("id")) == ("a" * 32, "here")
    assert {journals.machine_names(Machine(kind)) for kind in ("unset", "empty", "missing")} == {("here",)}
    assert journals.machine_names(NODE)


@pytest.mark.parametrize("kind", ["another user's file", "another user's directory", "a writable file", "a writable directory", "a link"])
def test_a_journal_that_others_can_write_is_not_played(tmp_path: Path, forged: Path, kind: str) -> None:
    if os.geteuid() != 0 and "another user" in kind:
        pytest.skip("files of another user need root")
    match kind:
        case "another user's file":
            os.chown(forged, STRANGER, STRANGER)
        case "another user's directory":
            os.chown(forged.parent, STRANGER, STRANGER)
        case "a writable file":
            forged.chmod(0o620)
        case "a writable directory":
            forged.parent.chmod(0o777)
        case "a link":
            forged.rename(tmp_path / "elsewhere")
            forged.symlink_to(tmp_path / "elsewhere")
    (sentence,) = clean(NODE, tmp_path)
    assert sentence.startswith(f"not undone: {forged.parent if 'directory' in kind else forged}: ")
    assert journals.running(NODE, tmp_path) == []
    assert (tmp_path / "precious/file").exists()
    if "directory" in kind:
        with pytest.raises(PgherdError):
            Journal.open(NODE, tmp_path, "run")


def test_what_is_played_is_what_was_locked(tmp_path: Path, forged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of that name may be another one by then."""
    lock = journals.try_lock

    def exchanged(number: int) -> bool:
        text = forged.read_text()
        forged.unlink()
        forged.write_text(text.replace("precious", "another"))
        return lock(number)

    (tmp_path / "another").mkdir()
    (tmp_path / "another/.pgherd").write_text("id")
    monkeypatch.setattr(journals, "try_lock", exchanged)
    assert clean(NODE, tmp_path) == [f"removed {tmp_path}/precious (run r)"]
    assert (tmp_path / "another").exists()
