"""What may stand in the journal, and what is left alone. Real mounts: tests/host/test_file_systems.py."""

import pytest
from pydantic import ValidationError

from pgherd.host import mounts, undo_mounts
from pgherd.host.mounts import Mount
from pgherd.host.undo import UNDO, RemoveTree
from pgherd.host.undo_base import MARKER, Scene
from pgherd.host.undo_mounts import DetachLoop, Unmount, WipeFileSystem
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

MARK = "01234567-89ab-cdef-0123-456789abcdef"


class Node(LocalNode):
    """Notes commands; ``out`` is what each program says."""

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
    monkeypatch.setattr(mounts, "mounts", lambda node: [Mount("8:1", "/w/pgherd-1/l", "ext4", "/dev/sdz1", False)])
    with pytest.raises(OSError, match="/dev/sdz1 is mounted at /w/pgherd-1/l and not /dev/loop3"):
        Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(Scene(node, "id"))
    assert [call[0] for call in node.calls] == ["stat"]


def test_what_stays_mounted_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(mounts, "mounts", lambda node: [Mount("7:3", "/w/pgherd-1/l", "ext4", "/dev/loop3", False)])
    monkeypatch.setattr(undo_mounts, "PATIENCE", 0.02)
    with pytest.raises(OSError, match="cannot be unmounted.*fuser --mount"):
        Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(Scene(Node(), "id"))


def test_no_mount_and_no_loop_survives_a_boot():
    node = Node()
    assert Unmount(target="/w/pgherd-1/l", source="/dev/loop3").play(Scene(node, "id", same_boot=False)) is None
    assert DetachLoop(path="/w/pgherd-1/l.img").play(Scene(node, "id", same_boot=False)) is None
    assert node.calls == []


def test_a_device_with_another_file_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(mounts, "mounts", lambda node: [])
    node = Node(blkid="ffffffff-89ab-cdef-0123-456789abcdef\n")
    assert WipeFileSystem(device="/dev/sdb", mark=MARK).play(Scene(node, "id")) is None
    assert [call[0] for call in node.calls] == ["blkid"]
    node = Node(blkid=f"{MARK}\n")
    assert WipeFileSystem(device="/dev/sdb", mark=MARK).play(Scene(node, "id")) == "emptied /dev/sdb"


def test_a_device_that_is_still_mounted_keeps_its_file_system(monkeypatch):
    monkeypatch.setattr(mounts, "mounts", lambda node: [Mount("8:16", "/w", "ext4", "/dev/sdb", False)])
    with pytest.raises(OSError, match="still mounted at /w"):
        WipeFileSystem(device="/dev/sdb", mark=MARK).play(Scene(Node(blkid=f"{MARK}\n"), "id"))


def test_a_device_is_known_by_its_number_where_it_was_named_by_a_link(monkeypatch):
    """``mount /dev/disk/by-id/x`` stands as /dev/sdb in mountinfo; stat gives the number, 8:16, in hex."""
    mounted = [Mount("8:16", "/w/pgherd-1/l", "ext4", "/dev/sdb", False)]
    monkeypatch.setattr(mounts, "mounts", lambda node: list(mounted))
    node = Node(stat="8:10\n", blkid=f"{MARK}\n")
    with pytest.raises(OSError, match="still mounted at /w/pgherd-1/l"):
        WipeFileSystem(device="/dev/disk/by-id/x", mark=MARK).play(Scene(node, "id"))

    def run(command, timeout=60.0):
        if command.argv[0] == "umount":
            mounted.clear()
        return Completed(0, "8:10\n", "")

    monkeypatch.setattr(node, "run", run)
    assert Unmount(target="/w/pgherd-1/l", source="/dev/disk/by-id/x").play(Scene(node, "id")) == "unmounted /w/pgherd-1/l"


def test_a_directory_in_which_something_is_mounted_is_left_alone(tmp_path, monkeypatch):
    tree = tmp_path / "pgherd-x"
    tree.mkdir()
    (tree / MARKER).write_text("mine")
    monkeypatch.setattr(mounts, "mounts", lambda node: [Mount("8:1", f"{tree}/l", "ext4", "/dev/sdz1", False)])
    with pytest.raises(OSError, match="something is still mounted at .*/l"):
        RemoveTree(path=str(tree)).play(Scene(LocalNode(), "mine"))
    assert (tree / MARKER).exists()
