"""Mounts, direct I/O and block devices. The text of mountinfo is composed after its documentation (proc_pid_mountinfo(5))."""

import errno
import os

import pytest

from pgherd.host import storage
from pgherd.host.storage import Device, device, devices_below, devices_of
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

# ---- mounted file systems


TEXT = """\
22 28 0:21 / /proc rw,nosuid shared:11 - proc proc rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
40 28 8:17 / /mnt/a\\040b ro,noatime shared:3 master:4 - xfs /dev/sdb1 rw
41 28 0:44 / /mnt/share rw - nfs4 host:/export ro
42 28 8:33 / /mnt/a\\040b rw - ext4 /dev/sdc1 rw
torn line
"""


class MountsNode(LocalNode):
    def read(self, path):
        return TEXT.encode() if path == "/proc/self/mountinfo" else super().read(path)


def test_every_line_is_a_mount():
    found = storage.parse_mounts(TEXT)
    assert [one.target for one in found] == ["/proc", "/", "/mnt/a b", "/mnt/share", "/mnt/a b"]
    assert [one.read_only for one in found] == [False, False, True, True, False], "of the mount or of its file system"
    assert (found[2].number, found[2].kind, found[2].source) == ("8:17", "xfs", "/dev/sdb1")


def test_blanks_beyond_ascii_are_part_of_a_name():
    (found,) = storage.parse_mounts("9 1 8:1 / /media/ann/Disque\u00a0dur\u2028 rw - vfat /dev/sdb1 ro\n")
    assert found.target == "/media/ann/Disque\u00a0dur\u2028" and found.read_only


def test_a_path_lies_on_the_innermost_and_the_last_that_covers_it():
    assert storage.mount_of(MountsNode(), "/mnt/a b/x").source == "/dev/sdc1"
    assert storage.mount_of(MountsNode(), "/mnt/a bc").target == "/"
    assert storage.mount_at(MountsNode(), "/mnt/a b/").number == "8:33" and storage.mount_at(MountsNode(), "/mnt") is None


def test_what_is_mounted_in_a_directory():
    assert storage.mounts_below(MountsNode(), "/mnt") == ["/mnt/a b", "/mnt/share", "/mnt/a b"]
    assert storage.mounts_below(MountsNode(), "/mnt/sha") == [] and storage.mounts_below(MountsNode(), "/mnt/share") == ["/mnt/share"]


def test_this_machine_has_a_root():
    assert storage.mount_at(LocalNode(), "/").target == "/"


def test_a_device_is_known_by_its_number_whatever_stat_writes(tmp_path, monkeypatch):
    """stat(1) before coreutils 9 writes device numbers in hex only."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    assert storage.device_number(LocalNode(), str(link)) == "1:3", "Documentation/admin-guide/devices.txt"
    assert storage.device_number(LocalNode(), str(tmp_path / "none")) == ""
    node = MountsNode()
    for out, number in (("fd:10\n", "253:16"), ("?r:?r\n", "")):
        monkeypatch.setattr(node, "run", lambda command, out=out: Completed(code=0, out=out, err="", cpu=0.0))
        assert storage.device_number(node, "/dev/vdb") == number


# ---- direct I/O


def test_nothing_is_left_behind(tmp_path):
    assert storage.direct_io_works(str(tmp_path)) in (True, False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_a_name_where_there_are_none_without(tmp_path, monkeypatch):
    opened, real = [], os.open

    def named_only(path, flags, *rest):
        opened.append(path)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        return real(path, flags & ~os.O_DIRECT, *rest)

    monkeypatch.setattr(os, "open", named_only)
    assert storage.direct_io_works(str(tmp_path)) is True
    assert len(opened) == 2 and list(tmp_path.iterdir()) == []


def test_a_file_system_that_refuses_it(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EINVAL, "no direct I/O")

    monkeypatch.setattr(os, "open", refuse)
    assert storage.direct_io_works(str(tmp_path)) is False


# ---- block devices


SYS = {
    "/sys/dev/block/8:0/uevent": "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk",
    "/sys/dev/block/8:1/uevent": "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition",
    "/sys/dev/block/8:1/partition": "1",
    "/sys/dev/block/8:1/../dev": "8:0",
    "/sys/dev/block/253:0/uevent": "DEVNAME=dm-0",
    "/sys/dev/block/253:0/slaves/sda1/dev": "8:1",
    "/sys/dev/block/7:0/uevent": "DEVNAME=loop0",
    "/sys/dev/block/7:0/loop/backing_file": "/images/disk (deleted)",
    "/sys/class/block/sda1/dev": "8:1",
    "/proc/self/mountinfo": "29 1 0:25 / /data rw - btrfs /dev/sda1 rw\n30 1 0:30 / /tmp rw - tmpfs tmpfs rw\n",
}
PATHS = {"/data": (0, 47), "/tmp": (0, 30), "/wal": (7, 0), "/plain": (8, 1), "/images/disk": (8, 1)}


class DevicesNode(LocalNode):
    def read(self, path):
        if path not in SYS:
            raise FileNotFoundError(path)
        return SYS[path].encode()

    def exists(self, path):
        return path in SYS

    def listdir(self, path):
        names = sorted({key.removeprefix(f"{path}/").split("/")[0] for key in SYS if key.startswith(f"{path}/")})
        if not names:
            raise FileNotFoundError(path)
        return names

    def run(self, command, timeout=60.0):
        wanted = list(command.argv)[list(command.argv).index("--") + 1 :]
        lines = [f"{os.makedev(*PATHS[path])} {path}" for path in wanted if path in PATHS]
        return Completed(0, "\n".join(lines), "")


NODE = DevicesNode()


def test_a_partition_is_its_whole_device():
    assert devices_of(NODE, ["/plain"]) == {"/plain": Device("8:0", "sda")}


def test_a_file_system_with_numbers_of_its_own_lies_where_it_is_mounted_from():
    assert devices_of(NODE, ["/data"])["/data"].name == "sda"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"/sys/fs/btrfs/1234/devices/sda1/dev": "8:1"}, ["/data"]),
        ({"/sys/fs/btrfs/1234/devices/sda1/dev": "8:1", "/sys/fs/btrfs/1234/devices/sdb1/dev": "8:17"}, []),
        ({"/sys/fs/btrfs/9/devices/sdc1/dev": "8:33", "/sys/fs/btrfs/9/devices/sdd1/dev": "8:49"}, ["/data"]),
        ({"/proc/self/mountinfo": "29 1 0:25 / /data rw - bcachefs /dev/sda1:/dev/sdb1 rw\n"}, []),
    ],
)
def test_a_file_system_on_several_devices_lies_on_no_one_of_them(monkeypatch, changes, found):
    """mountinfo names one device of a btrfs. Half of the bytes through it would look like a cache."""
    for path, text in changes.items():
        monkeypatch.setitem(SYS, path, text)
    assert list(devices_of(NODE, ["/data"])) == found


def test_what_lies_on_no_device_or_is_not_there_is_absent():
    assert devices_of(NODE, ["/tmp", "/gone"]) == {}
    assert devices_of(NODE, []) == {}


def test_what_a_loop_device_and_a_volume_lie_on():
    loop = devices_of(NODE, ["/wal"])["/wal"]
    assert (loop.name, [one.name for one in devices_below(NODE, loop)]) == ("loop0", ["sda"])
    volume = device(NODE, "253:0")
    assert volume is not None and [one.name for one in devices_below(NODE, volume)] == ["sda"]


def test_a_number_that_the_kernel_does_not_show():
    assert device(NODE, "9:9") is None


def test_this_host(tmp_path):
    found = devices_of(LocalNode(), [str(tmp_path)])
    if not found:
        pytest.skip("temporary files are on no block device here")
    assert found[str(tmp_path)].number.count(":") == 1
