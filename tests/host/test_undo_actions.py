from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgherd.host import processes, storage
from pgherd.host import undo_actions as undo_kinds
from pgherd.host.storage import Mount
from pgherd.host.undo_actions import (
    MARKER,
    UNDO,
    DetachLoop,
    Kill,
    ReleaseSetting,
    ReleaseSharedMemory,
    RemoveCgroup,
    RemoveTree,
    RestoreSubtree,
    UndoContext,
    Unmount,
    WipeFileSystem,
    absolute,
)
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

NODE = LocalNode()


def test_a_recycled_pid_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        start = processes.start_time(NODE, process.pid)
        assert start is not None
        assert Kill(pid=process.pid, start=start + 1).play(UndoContext(NODE, "id")) is None
        assert process.poll() is None
        assert Kill(pid=process.pid, start=start).play(UndoContext(NODE, "id")) == f"ended process {process.pid}"
        assert process.wait() == -9
        assert Kill(pid=process.pid, start=start).play(UndoContext(NODE, "id")) is None


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_pids_with_a_meaning_of_their_own_are_refused(pid: int) -> None:
    with pytest.raises(ValidationError):
        Kill(pid=pid, start=1)


def test_a_tree_goes_only_with_its_own_journal(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "data/base").mkdir(parents=True)
    (tree / MARKER).write_text("mine\n")
    for journal, path in (("other", tree), ("mine", tree / "data")):
        with pytest.raises(OSError, match="has no .pgherd file"):
            RemoveTree(path=str(path)).play(UndoContext(NODE, journal))
    assert (tree / "data/base").exists(), "the marker of a directory around it is not its own"
    assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "mine")) == f"removed {tree}"
    assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "mine")) is None


def test_a_removal_that_was_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """The marker may have been the first file to go."""
    tree = tmp_path / "tree"
    half_gone = tmp_path / "tree.removed-mine"
    (half_gone / "data").mkdir(parents=True)
    assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "other")) is None
    assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "mine")) == f"removed {tree}"
    assert list(tmp_path.iterdir()) == []


def test_programs_that_still_work_in_a_tree_are_waited_for_and_others_left_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree[1]"
    (tree / "data").mkdir(parents=True)
    (tree / MARKER).write_text("mine")
    program = tmp_path / "postgres"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "0.5"], cwd=tree / "data") as server, subprocess.Popen(["sleep", "60"], cwd=tree) as shell:
        assert processes.working_in(NODE, str(tree), ["postgres"]) == [server.pid]
        assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "mine")) == f"removed {tree}"
        assert server.wait() == 0, "it ended by itself"
        assert shell.poll() is None
        shell.kill()


@pytest.mark.parametrize("marker", ["missing", "empty"])
def test_an_empty_tree_goes_without_a_complete_marker(tmp_path: Path, marker: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    if marker == "empty":
        (tree / MARKER).touch()
    assert RemoveTree(path=str(tree)).play(UndoContext(NODE, "mine")) == f"removed {tree}"
    assert not tree.exists()


@pytest.mark.parametrize("kind", ["with another file", "another user's", "a link"])
def test_an_empty_marker_permits_nothing_more(tmp_path: Path, kind: str) -> None:
    if os.geteuid() != 0 and kind == "another user's":
        pytest.skip("files of another user need root")
    marker = tmp_path / "tree" / MARKER
    marker.parent.mkdir()
    marker.touch()
    if kind == "with another file":
        (tmp_path / "tree/file").touch()
    elif kind == "another user's":
        os.chown(marker, 54321, 54321)
    else:
        marker.rename(tmp_path / "elsewhere")
        marker.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="has no .pgherd file"):
        RemoveTree(path=str(tmp_path / "tree")).play(UndoContext(NODE, "mine"))
    assert os.path.lexists(marker)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (tmp_path / MARKER).write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        RemoveTree(path=str(tmp_path / "link")).play(UndoContext(NODE, "mine"))
    assert (tmp_path / "precious/file").exists()


@pytest.mark.parametrize("path", ["/", "relative", "/a/../b", "/a//b", "/a/"])
def test_only_plain_absolute_paths_are_removed(path: str) -> None:
    with pytest.raises(ValidationError):
        RemoveTree(path=path)


@pytest.mark.parametrize("path", ["/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/pgherd-x/../system.slice"])
def test_only_our_own_groups_are_removed(path: str) -> None:
    with pytest.raises(ValidationError):
        RemoveCgroup(paths=(path,))


@pytest.mark.parametrize("kind", ["another user's", "a link", "writable by others"])
def test_a_marker_that_others_can_write_is_none(tmp_path: Path, kind: str) -> None:
    if os.geteuid() != 0 and kind == "another user's":
        pytest.skip("files of another user need root")
    (tmp_path / "tree/data").mkdir(parents=True)
    marker = tmp_path / "tree" / MARKER
    marker.write_text("mine")
    if kind == "another user's":
        os.chown(marker, 54321, 54321)
    elif kind == "a link":
        marker.rename(tmp_path / "elsewhere")
        marker.symlink_to(tmp_path / "elsewhere")
    else:
        marker.chmod(0o666)
    with pytest.raises(OSError, match="has no .pgherd file"):
        RemoveTree(path=str(tmp_path / "tree")).play(UndoContext(NODE, "mine"))
    assert (tmp_path / "tree/data").exists()


def test_no_undo_writes_to_any_path() -> None:
    with pytest.raises(ValidationError):
        UNDO.validate_python({"kind": "write", "path": "/etc/sudoers.d/x", "value": "mallory ALL=(ALL) NOPASSWD: ALL"})


def test_a_missing_data_directory_has_nothing_to_release(tmp_path: Path) -> None:
    assert ReleaseSharedMemory(data_directory=str(tmp_path / "gone")).play(UndoContext(NODE, "id")) is None


def test_every_kind_survives_the_way_through_the_journal() -> None:
    for undo in (
        Kill(pid=5, start=6),
        RemoveCgroup(paths=("/sys/fs/cgroup/pgherd-a",)),
        ReleaseSetting(key="k"),
        ReleaseSharedMemory(data_directory="/d"),
        RemoveTree(path="/t"),
    ):
        assert UNDO.validate_json(UNDO.dump_json(undo)) == undo


def test_processes_in_nested_groups_are_ended_first(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/")
    top = "/sys/fs/cgroup/pgherd-a"
    for pid, group in ((51, top), (52, f"{top}/db01"), (53, f"{top}/db01/deep")):
        node.make_dir(group)
        node.add_process(pid, group.removeprefix("/sys/fs/cgroup"))
    assert RemoveCgroup(paths=(top,)).play(UndoContext(node, "id")) == f"removed cgroup {top} and ended 3 processes in it"
    assert sorted(node.killed) == [51, 52, 53]
    assert not node.exists(top)
    assert RemoveCgroup(paths=(top,)).play(UndoContext(node, "id")) is None


def test_controllers_after_a_boot_belong_to_others(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/system.slice")
    undo = RestoreSubtree(group="/sys/fs/cgroup", controllers=("cpuset", "io"))
    assert undo.play(UndoContext(node, "id", same_boot=False)) is None
    assert node.read("/sys/fs/cgroup/cgroup.subtree_control") == b"cpu cpuset io memory pids"
    assert undo.play(UndoContext(node, "id")) == "restored cgroup /sys/fs/cgroup"
    assert node.read("/sys/fs/cgroup/cgroup.subtree_control") == b"cpu memory pids"


@pytest.mark.parametrize("path", ["relative", "/", "/a/../b", "/a//b", ""])
def test_only_plain_absolute_paths_may_stand_in_the_journal(path):
    with pytest.raises(ValueError, match="plain absolute"):
        absolute(path)
    assert absolute("/a/b") == "/a/b"


MARK = "01234567-89ab-cdef-0123-456789abcdef"


class Node(LocalNode):
    """Records commands; ``out`` has the output of each program."""

    def __init__(self, **out):
        self.calls, self.out = [], out

    def run(self, command, timeout=60.0):
        self.calls.append(list(command.argv))
        return Completed(0, self.out.get(command.argv[0], ""), "")

    def exists(self, path):
        return True


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Unmount(target="/mnt/data", source="/dev/sdb"),
        lambda: Unmount(target="pgherd-x", source="/dev/sdb"),
        lambda: DetachLoop(path="/home/me/disk.img"),
        lambda: WipeFileSystem(device="/etc/passwd", mark=MARK),
        lambda: WipeFileSystem(device="/dev/sdb", mark="*"),
    ],
)
def test_only_what_lies_in_ours_may_stand_in_the_journal(wrong):
    with pytest.raises(ValidationError):
        wrong()


@pytest.mark.parametrize(
    "undo",
    [
        Unmount(target="/w/pgherd-volume-1/l", source="/dev/loop3"),
        DetachLoop(path="/w/pgherd-volume-1/l.img"),
        WipeFileSystem(device="/dev/sdb", mark=MARK),
    ],
)
def test_all_are_kinds_of_undo_that_come_before_directories_go(undo):
    assert UNDO.validate_json(undo.model_dump_json()) == undo and undo.rank < RemoveTree.rank


def test_what_somebody_else_has_mounted_there_is_left_alone(monkeypatch):
    node = Node()
    monkeypatch.setattr(storage, "mounts", lambda node: [Mount("8:1", "/w/pgherd-1/l", "ext4", "/dev/sdz1", False)])
    with pytest.raises(OSError, match="/dev/sdz1 is mounted at /w/pgherd-1/l and not /dev/loop3"):
        Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(UndoContext(node, "id"))
    assert [call[0] for call in node.calls] == ["stat"]


def test_what_stays_mounted_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(storage, "mounts", lambda node: [Mount("7:3", "/w/pgherd-1/l", "ext4", "/dev/loop3", False)])
    monkeypatch.setattr(undo_kinds, "_UNMOUNT_TIMEOUT_S", 0.02)
    with pytest.raises(OSError, match="cannot be unmounted.*fuser --mount"):
        Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(UndoContext(Node(), "id"))


def test_no_mount_and_no_loop_survives_a_boot():
    node = Node()
    assert Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(UndoContext(node, "id", same_boot=False)) is None
    assert DetachLoop(path="/w/pgherd-1/l.img").play(UndoContext(node, "id", same_boot=False)) is None
    assert node.calls == []


class Disks(Node):
    """``marks`` has the UUID of the file system on each device."""

    def __init__(self, marks):
        super().__init__()
        self.marks = marks

    def run(self, command, timeout=60.0):
        out = super().run(command).out
        if command.argv[:2] == ("blkid", "--uuid"):
            out = next((f"{device}\n" for device, mark in self.marks.items() if mark == command.argv[2]), "")
        elif command.argv[0] == "blkid":
            out = self.marks[command.argv[-1]]
        return Completed(0, out, "")

    def exists(self, path):
        return path in self.marks


OTHER = MARK.replace("0", "f")


@pytest.mark.parametrize(
    ("marks", "erased"),
    [
        ({"/dev/sdb": OTHER}, None),
        ({"/dev/sdb": MARK}, "/dev/sdb"),
        ({"/dev/sdb": MARK, "/dev/sdc": OTHER}, "/dev/sdb"),
        ({"/dev/sdb": OTHER, "/dev/sdc": MARK}, "/dev/sdc"),
        ({"/dev/sdc": MARK}, "/dev/sdc"),
    ],
)
def test_only_the_device_with_the_file_system_is_erased(monkeypatch, marks, erased):
    monkeypatch.setattr(storage, "mounts", lambda node: [])
    node = Disks(marks)
    said = WipeFileSystem(device="/dev/sdb", mark=MARK).play(UndoContext(node, "id", same_boot=False))
    assert said == (erased and f"erased {erased}")
    written = [call for call in node.calls if call[0] in ("dd", "wipefs")]
    assert len(written) == (2 if erased else 0) and all(erased in " ".join(call) for call in written)


def test_a_device_that_is_missing_is_said():
    with pytest.raises(OSError, match="/dev/sdb is missing, .* attach it"):
        WipeFileSystem(device="/dev/sdb", mark=MARK).play(UndoContext(Disks({"/dev/sdc": OTHER}), "id"))


def test_a_device_that_is_still_mounted_keeps_its_file_system(monkeypatch):
    monkeypatch.setattr(storage, "mounts", lambda node: [Mount("8:16", "/w", "ext4", "/dev/sdb", False)])
    with pytest.raises(OSError, match="still mounted at /w"):
        WipeFileSystem(device="/dev/sdb", mark=MARK).play(UndoContext(Node(blkid=f"{MARK}\n"), "id"))


def test_a_device_is_known_by_its_number_where_it_was_named_by_a_link(monkeypatch):
    """``mount /dev/disk/by-id/x`` is listed as /dev/sdb in mountinfo; stat gives the number, 8:16, in hex."""
    mounted = [Mount("8:16", "/w/pgherd-1/l", "ext4", "/dev/sdb", False)]
    monkeypatch.setattr(storage, "mounts", lambda node: list(mounted))
    node = Node(stat="8:10\n", blkid=f"{MARK}\n")
    with pytest.raises(OSError, match="still mounted at /w/pgherd-1/l"):
        WipeFileSystem(device="/dev/disk/by-id/x", mark=MARK).play(UndoContext(node, "id"))

    def run(command, timeout=60.0):
        if command.argv[0] == "umount":
            mounted.clear()
        return Completed(0, "8:10\n", "")

    monkeypatch.setattr(node, "run", run)
    assert Unmount(target="/w/pgherd-1/l", source="/dev/disk/by-id/x").play(UndoContext(node, "id")) == "unmounted /w/pgherd-1/l"


def test_a_directory_in_which_something_is_mounted_is_left_alone(tmp_path, monkeypatch):
    tree = tmp_path / "pgherd-x"
    tree.mkdir()
    (tree / MARKER).write_text("mine")
    monkeypatch.setattr(storage, "mounts", lambda node: [Mount("8:1", f"{tree}/l", "ext4", "/dev/sdz1", False)])
    with pytest.raises(OSError, match="something is still mounted at .*/l"):
        RemoveTree(path=str(tree)).play(UndoContext(LocalNode(), "mine"))
    assert (tree / MARKER).exists()
