from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.host import journal as journals
from pgherd.host import processes
from pgherd.host.journal import Journal, clean, parse
from pgherd.host.undo_actions import Kill, RemoveTree, Write
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

NODE = LocalNode()

# Another process: makes a tree, a process and a knob under a journal, reports it, and waits to be killed.
OWNER = """
import subprocess, sys, time
from pathlib import Path
from pgherd.host import processes
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import Kill, Write
from pgherd.node.local import LocalNode
base = Path(sys.argv[1])
node = LocalNode()
journal = Journal.open(node, base / "state", "doomed")
journal.make_tree(str(base / "work"))
(base / "work/data").mkdir()
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
journal.note(Kill(pid=child.pid, start=processes.start_time(node, child.pid)))
journal.note(Write(path=str(base / "knob"), value="before"))
(base / "knob").write_text("during")
print(child.pid, flush=True)
time.sleep(300)
"""


def owner(base: Path) -> tuple[subprocess.Popen[str], int]:
    (base / "knob").write_text("before")
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(base)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_kill_9_then_clean_leaves_nothing(tmp_path: Path) -> None:
    process, child = owner(tmp_path)
    try:
        said = clean(NODE, tmp_path / "state")
        assert said == [f"left run doomed alone: it is running (pid {process.pid})"]
        assert (tmp_path / "work/data").is_dir()
        assert journals.running(NODE, tmp_path / "state") == ["doomed"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    assert journals.running(NODE, tmp_path / "state") == []
    said = clean(NODE, tmp_path / "state")
    assert said == [
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


def test_the_note_is_on_disk_before_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    synced: list[int] = []
    monkeypatch.setattr(journals.os, "fsync", synced.append)
    journal.note(Write(path="/x", value="1"))
    assert synced == [journal._number]
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    assert '"kind": "write"' in path.read_text()


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
        journal.note(Write(path=f"/knob{index}", value="ü\n"))
    journal.done(2)
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    text = path.read_text()
    whole = {1, 2, 3}
    for length in range(len(text) + 1):
        owner, entries = parse(text[:length])
        assert set(entries) <= whole
        assert owner is None or owner.run == "run"
        assert owner is not None or not entries
    assert set(parse(text)[1]) == {1, 3}


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "write", lambda number, data: write(number, data[:7]))  # the disk is full
        with pytest.raises(OSError, match="No space left"):
            journal.note(Write(path="/lost", value=""))
    journal.note(Write(path="/kept", value=""))
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


def test_after_a_boot_pids_and_knobs_are_left_alone(tmp_path: Path) -> None:
    process, child = owner(tmp_path)
    process.kill()
    process.wait()
    try:
        (path,) = (tmp_path / "state/journal").glob("*.jsonl")
        path.write_text(path.read_text().replace(processes.boot_id(NODE), "00000000-0000-0000-0000-000000000000"))
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
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout == "ended\n", done.stderr
    assert not list(tmp_path.glob("[ot][nw]*")) and not list((tmp_path / "state/journal").glob("*.jsonl"))
