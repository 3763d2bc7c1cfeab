import os

import pytest

from pgherd.host.block_devices import Device, chain, device, devices_of
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

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
PATHS = {"/data": (0, 25), "/tmp": (0, 30), "/wal": (7, 0), "/plain": (8, 1), "/images/disk": (8, 1)}


class Node(LocalNode):
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


NODE = Node()


def test_a_partition_is_its_whole_device():
    assert devices_of(NODE, ["/plain"]) == {"/plain": Device("8:0", "sda")}


def test_a_file_system_with_numbers_of_its_own_lies_where_it_is_mounted_from():
    assert devices_of(NODE, ["/data"])["/data"].name == "sda"


def test_what_lies_on_no_device_or_is_not_there_is_absent():
    assert devices_of(NODE, ["/tmp", "/gone"]) == {}
    assert devices_of(NODE, []) == {}


def test_what_a_loop_device_and_a_volume_lie_on():
    loop = devices_of(NODE, ["/wal"])["/wal"]
    assert (loop.name, [one.name for one in chain(NODE, loop)]) == ("loop0", ["sda"])
    volume = device(NODE, "253:0")
    assert volume is not None and [one.name for one in chain(NODE, volume)] == ["sda"]


def test_a_number_that_the_kernel_does_not_show():
    assert device(NODE, "9:9") is None


def test_this_host(tmp_path):
    found = devices_of(LocalNode(), [str(tmp_path)])
    if not found:
        pytest.skip("temporary files are on no block device here")
    assert found[str(tmp_path)].number.count(":") == 1
