"""Mounts in a text of /proc/PID/mountinfo, composed after the documentation (proc_pid_mountinfo(5))."""

from pgherd.host import mounts
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

TEXT = """\
22 28 0:21 / /proc rw,nosuid shared:11 - proc proc rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
40 28 8:17 / /mnt/a\\040b ro,noatime shared:3 master:4 - xfs /dev/sdb1 rw
41 28 0:44 / /mnt/share rw - nfs4 host:/export ro
42 28 8:33 / /mnt/a\\040b rw - ext4 /dev/sdc1 rw
torn line
"""


class Node(LocalNode):
    def read(self, path):
        return TEXT.encode() if path == "/proc/self/mountinfo" else super().read(path)


def test_every_line_is_a_mount():
    found = mounts.parse_mounts(TEXT)
    assert [one.target for one in found] == ["/proc", "/", "/mnt/a b", "/mnt/share", "/mnt/a b"]
    assert [one.read_only for one in found] == [False, False, True, True, False], "of the mount or of its file system"
    assert (found[2].number, found[2].kind, found[2].source) == ("8:17", "xfs", "/dev/sdb1")


def test_a_path_lies_on_the_innermost_and_the_last_that_covers_it():
    assert mounts.mount_of(Node(), "/mnt/a b/x").source == "/dev/sdc1"
    assert mounts.mount_of(Node(), "/mnt/a bc").target == "/"
    assert mounts.at(Node(), "/mnt/a b/").number == "8:33" and mounts.at(Node(), "/mnt") is None


def test_what_is_mounted_in_a_directory():
    assert mounts.below(Node(), "/mnt") == ["/mnt/a b", "/mnt/share", "/mnt/a b"]
    assert mounts.below(Node(), "/mnt/sha") == [] and mounts.below(Node(), "/mnt/share") == ["/mnt/share"]


def test_this_machine_has_a_root():
    assert mounts.at(LocalNode(), "/").target == "/"


def test_a_device_is_known_by_its_number_whatever_stat_writes(tmp_path, monkeypatch):
    """stat(1) before coreutils 9 writes device numbers in hex only."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    assert mounts.number_of(LocalNode(), str(link)) == "1:3", "Documentation/admin-guide/devices.txt"
    assert mounts.number_of(LocalNode(), str(tmp_path / "none")) == ""
    node = Node()
    for out, number in (("fd:10\n", "253:16"), ("?r:?r\n", "")):
        monkeypatch.setattr(node, "run", lambda command, out=out: Completed(code=0, out=out, err="", cpu=0.0))
        assert mounts.number_of(node, "/dev/vdb") == number
