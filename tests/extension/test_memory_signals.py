"""The memory signals of pg_balloon, read from trees of captured files."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[1] / "fixtures"
AUTO, CGROUP2, CGROUP1, SYSTEM = range(4)
MB = 1024 * 1024
LEVELS, PATH_SIZE = 32, 200

V2_MOUNT = "30 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
HYBRID_MOUNT = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"


class Memory(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("limit", "usage", "inactive", "active", "refaults", "anonymous_refaults", "swapped", "unclaimed")
    ]


class Level(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char * PATH_SIZE),
        *((name, ctypes.c_int) for name in ("source", "fd_limit", "fd_high", "fd_usage", "fd_stat", "fd_swap")),
        ("memory", Memory),
        *((name, ctypes.c_int64) for name in ("limit_before", "limit_fall")),
    ]


class Reader(ctypes.Structure):
    _fields_ = [
        ("source", ctypes.c_int),
        ("nlevels", ctypes.c_int),
        ("levels", Level * LEVELS),
        *((name, ctypes.c_int) for name in ("fd_vmstat", "fd_memory_pressure", "fd_io_pressure", "fd_any_pressure")),
        ("complete", ctypes.c_bool),
        *((name, ctypes.c_int64) for name in ("stalled", "any_stalled")),
        ("error", ctypes.c_int),
        ("outside", ctypes.c_bool),
        *((name, ctypes.c_double) for name in ("low_watermark", "high_watermark")),
    ]

    def paths(self) -> list[str]:
        return [level.path.decode() for level in self.levels[: self.nlevels]]


class Reading(ctypes.Structure):
    _fields_ = [
        ("tight", ctypes.c_int),
        *((name, ctypes.c_int64) for name in ("limit", "available", "reachable", "reachable_high", "unclaimed")),
        *((name, ctypes.c_int64) for name in ("refaults", "own_refaults", "swapped", "stalled")),
        ("limit_fall", ctypes.c_int64),
    ]


class Rates(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("refaults", "own_refaults", "swapping", "stall")]


@pytest.fixture(scope="session")
def c(pure: ctypes.CDLL) -> ctypes.CDLL:
    text = ctypes.c_char_p
    for name, result, arguments in (
        ("memory_signals_open", ctypes.c_bool, [ctypes.POINTER(Reader), text, ctypes.c_int]),
        ("memory_signals_read", ctypes.c_bool, [ctypes.POINTER(Reader), ctypes.c_bool, ctypes.POINTER(Reading)]),
        ("memory_signals_light_read", ctypes.c_bool, [ctypes.POINTER(Reader), ctypes.POINTER(Reading)]),
        ("memory_signals_compare", None, [*[ctypes.POINTER(Reading)] * 2, ctypes.c_double, ctypes.c_double, ctypes.POINTER(Rates)]),
        ("memory_signals_close", None, [ctypes.POINTER(Reader)]),
        ("memory_signals_files", ctypes.c_int, [ctypes.POINTER(Reader)]),
        ("kernel_field", ctypes.c_int64, [text, text]),
        ("kernel_limit", ctypes.c_int64, [text]),
        ("kernel_some_total", ctypes.c_int64, [text]),
        ("cgroup_path_of_process", ctypes.c_bool, [text, ctypes.c_int, text, ctypes.c_int]),
        ("cgroup_mount", ctypes.c_bool, [text, ctypes.c_int, text, text, ctypes.c_int]),
    ):
        getattr(pure, name).restype, getattr(pure, name).argtypes = result, arguments
    return pure


class Tree:
    """A root directory with the files that the kernel would show."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", (FIXTURES / "metrics/proc-meminfo").read_text())
        self.write("proc/vmstat", (FIXTURES / "metrics/proc-vmstat").read_text())
        self.write("proc/pressure/memory", (FIXTURES / "metrics/proc-pressure-memory").read_text())
        self.write("proc/pressure/io", (FIXTURES / "metrics/proc-pressure-io").read_text())
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", (FIXTURES / "host/kvm-guest/proc/self/mountinfo").read_text())

    def write(self, name: str, text: str) -> None:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def v2_group(self, directory: str, limit: str, used: int, high: str = "max", inactive: int = 0, active: int = 0, swap: int = 0) -> None:
        stat = (FIXTURES / "metrics/v2-memory.stat").read_text()
        lines = [line for line in stat.splitlines() if line.split()[0] not in ("inactive_file", "active_file")]
        files = {
            "memory.max": limit, "memory.high": high, "memory.current": str(used), "memory.swap.current": str(swap),
            "memory.stat": "\n".join([*lines, f"inactive_file {inactive}", f"active_file {active}"]),
            "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            "io.pressure": (FIXTURES / "metrics/v2-io.pressure").read_text(),
        }  # fmt: skip
        for name, text in files.items():
            self.write(f"{directory}/{name}", f"{text}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def read(c: ctypes.CDLL, tree: Tree, source: int = AUTO) -> tuple[Reader, Reading]:
    reader, reading = Reader(), Reading()
    assert c.memory_signals_open(reader, str(tree.root).encode(), source)
    try:
        assert c.memory_signals_read(reader, True, reading)
    finally:
        copied = Reader.from_buffer_copy(reader)
        c.memory_signals_close(reader)
    return copied, reading


def test_a_plain_machine(c, tree):
    reader, reading = read(c, tree)
    assert reader.source == SYSTEM and reader.paths() == ["system"]
    assert reading.limit == 24684096 * 1024 and reading.available == 23931980 * 1024 == reading.reachable
    assert reading.unclaimed == 22364844 * 1024
    assert reading.refaults == 936685 and reading.own_refaults == 0 and reading.swapped == 0
    assert reading.stalled >= 0


def test_a_version_2_group_inside_another_one(c, tree):
    tree.write("proc/self/cgroup", "0::/system.slice/pg.service\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/system.slice/pg.service", str(512 * MB), 300 * MB, inactive=20 * MB, active=30 * MB, swap=5 * MB)
    tree.v2_group("/sys/fs/cgroup/system.slice", "max", 4000 * MB)
    reader, reading = read(c, tree)
    assert reader.source == CGROUP2
    assert reader.paths() == ["/sys/fs/cgroup/system.slice/pg.service", "/sys/fs/cgroup/system.slice", "system"]
    assert (reading.tight, reading.limit, reading.available) == (0, 512 * MB, 262 * MB)
    assert (reading.own_refaults, reading.refaults, reading.swapped) == (17, 17 + 4242, 5 * MB)
    assert reading.stalled == 1000 + 283


def test_the_pressure_of_a_group_with_a_long_path_is_its_own(c, tree):
    """As Kubernetes makes them: the place that is shown is cut off, what is read is not."""
    group = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{'1' * 36}.slice/cri-containerd-{'a' * 120}.scope"
    tree.write("proc/self/cgroup", f"0::{group}\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group(f"/sys/fs/cgroup{group}", str(512 * MB), 300 * MB)
    reader, reading = read(c, tree)
    assert len(f"/sys/fs/cgroup{group}") > PATH_SIZE and f"/sys/fs/cgroup{group}".endswith(reader.paths()[0])
    assert (reading.tight, reading.limit, reading.stalled) == (0, 512 * MB, 1000 + 283)


def test_memory_high_is_a_limit_too(c, tree):
    tree.write("proc/self/cgroup", "0::/pg\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/pg", str(512 * MB), 300 * MB, high=str(400 * MB))
    assert read(c, tree)[1].limit == 400 * MB


def test_a_limit_that_fell_is_noticed_once(c, tree, opened):
    """Also where a light read has met it first; that of another level than the tightest does not count."""
    reading = Reading()

    def fell() -> int:
        assert c.memory_signals_read(opened, True, reading)
        return reading.limit_fall

    assert not fell()
    tree.write("/sys/fs/cgroup/host/pg/memory.max", str(400 * MB))
    assert not c.memory_signals_light_read(opened, reading)
    assert fell() == 112 * MB and not fell()
    tree.write("/sys/fs/cgroup/host/pg/memory.max", str(450 * MB))
    assert not fell(), "it rose"
    tree.write("/sys/fs/cgroup/host/memory.max", str(2000 * MB))
    assert not fell() and reading.tight == 0
    tree.write("/sys/fs/cgroup/host/pg/memory.high", str(350 * MB))
    assert fell() == 100 * MB
    c.memory_signals_close(opened)
    tree.write("/sys/fs/cgroup/host/pg/memory.high", str(340 * MB))
    assert c.memory_signals_open(opened, str(tree.root).encode(), AUTO)
    assert fell() == 10 * MB, "while the files were closed"


def test_the_tightest_level_decides(c, tree):
    """The parent has less to spare than its child; what the child may reach excludes its brothers' active page cache."""
    tree.write("proc/self/cgroup", "0::/host/a\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/host/a", str(512 * MB), 200 * MB, active=10 * MB)
    tree.v2_group("/sys/fs/cgroup/host", str(600 * MB), 580 * MB, inactive=5 * MB, active=40 * MB)
    _, reading = read(c, tree)
    assert (reading.tight, reading.limit, reading.available, reading.reachable) == (1, 600 * MB, 65 * MB, 35 * MB)


def test_each_level_leaves_a_share_of_its_own_limit(c, tree):
    """On a machine of 24 GB, which is tighter, a group may grow to its own limit of 1 GB, not only beyond a share of 24 GB."""
    meminfo = (FIXTURES / "metrics/proc-meminfo").read_text().replace("23931980", f"{6 * 2**20}").replace("22364844", f"{5 * 2**20}")
    tree.write("proc/meminfo", meminfo)
    tree.write("proc/self/cgroup", "0::/a\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/a", str(1024 * MB), 400 * MB)
    opened, reading = Reader(), Reading()
    assert c.memory_signals_open(opened, str(tree.root).encode(), AUTO) and c.memory_signals_read(opened, False, reading)
    total = 24684096 * 1024
    assert (reading.tight, reading.limit, reading.reachable, reading.unclaimed) == (1, total, 624 * MB, 624 * MB)
    opened.low_watermark, opened.high_watermark = 0.02, 0.05
    assert c.memory_signals_read(opened, False, reading)
    assert abs(reading.reachable - 0.02 * total - (624 - 0.02 * 1024) * MB) <= 2
    assert reading.reachable_high == reading.unclaimed
    assert abs(reading.unclaimed - 0.05 * total - (624 - 0.05 * 1024) * MB) <= 2
    c.memory_signals_close(opened)


def test_cgroups_of_an_outer_namespace_are_no_ancestors(c, tree):
    """systemd in a container: the namespace is its own, and the host's cgroups are mounted. Their root has no limit."""
    tree.write("proc/self/cgroup", "0::/\n")
    tree.write("proc/self/mountinfo", V2_MOUNT.replace(" / /sys/fs/cgroup", " /../.. /sys/fs/cgroup"))
    tree.write("/sys/fs/cgroup/memory.stat", "")
    opened = Reader()
    assert not c.memory_signals_open(opened, str(tree.root).encode(), AUTO) and opened.outside and opened.error == 0
    assert c.memory_signals_open(opened, str(tree.root).encode(), SYSTEM) and not opened.outside
    c.memory_signals_close(opened)


def test_a_group_outside_of_the_own_namespace_is_not_that_of_the_namespace(c, tree):
    """The host moved the processes of a container: /proc shows a path above its root, where the mount has the group that they left."""
    tree.write("proc/self/cgroup", "0::/../other\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup", str(512 * MB), 200 * MB)
    opened = Reader()
    assert not c.memory_signals_open(opened, str(tree.root).encode(), AUTO) and opened.outside


@pytest.mark.parametrize(("root", "seen"), [("/docker/id", True), ("/docker", True), ("/docker/i", False), ("/docker/other", False)])
def test_a_group_outside_of_the_mount_is_not_that_of_the_mount(c, tree, root, seen):
    """In the host's cgroup namespace, a container's mount shows its group only. The host may move the processes to another one."""
    tree.write("proc/self/cgroup", "0::/docker/id\n")
    tree.write("proc/self/mountinfo", V2_MOUNT.replace(" / /sys/fs/cgroup", f" {root} /sys/fs/cgroup"))
    tree.v2_group("/sys/fs/cgroup" + "/docker/id".removeprefix(root) if seen else "/sys/fs/cgroup", str(512 * MB), 200 * MB)
    opened = Reader()
    assert c.memory_signals_open(opened, str(tree.root).encode(), AUTO) == seen and opened.outside != seen
    c.memory_signals_close(opened)


def test_a_limit_of_nothing_is_the_tightest(c, tree):
    """memory.high = 0 makes the kernel reclaim all that it can."""
    tree.write("proc/self/cgroup", "0::/a\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/a", str(512 * MB), 200 * MB, high="0")
    reading = read(c, tree)[1]
    assert reading.limit == 1 and reading.available < 0


def test_own_cgroups_over_those_of_an_outer_namespace_are_read(c, tree):
    tree.write("proc/self/cgroup", "0::/\n")
    outer = V2_MOUNT.replace(" / /sys/fs/cgroup", " /../.. /sys/fs/cgroup")
    tree.write("proc/self/mountinfo", outer + V2_MOUNT.replace("30 25", "31 30"))
    tree.v2_group("/sys/fs/cgroup", str(512 * MB), 200 * MB)
    assert read(c, tree)[1].limit == 512 * MB


def test_more_levels_than_are_read_are_an_error(c, tree):
    path = "/a" * LEVELS
    tree.write("proc/self/cgroup", f"0::{path}\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    for depth in range(1, LEVELS + 1):
        tree.v2_group("/sys/fs/cgroup" + "/a" * depth, str(512 * MB), 200 * MB)
    opened = Reader()
    assert not c.memory_signals_open(opened, str(tree.root).encode(), AUTO) and opened.error == errno.ENAMETOOLONG


OTHER_MOUNTS = "".join(f"{number} 25 0:{number} / /mnt/{'x' * 50}{number} rw - ext4 /dev/sda rw\n" for number in range(100, 900))
"""More text than is read."""


def test_a_mount_that_may_follow_what_was_read_is_an_error(c, tree):
    tree.write("proc/self/cgroup", "0::/pg\n")
    tree.v2_group("/sys/fs/cgroup/pg", str(512 * MB), 200 * MB)
    tree.write("proc/self/mountinfo", OTHER_MOUNTS + V2_MOUNT)
    opened = Reader()
    for source in (AUTO, CGROUP2):
        assert not c.memory_signals_open(opened, str(tree.root).encode(), source) and opened.error == errno.EFBIG
    assert read(c, tree, SYSTEM)[0].source == SYSTEM
    tree.write("proc/self/mountinfo", V2_MOUNT + OTHER_MOUNTS)
    assert read(c, tree)[1].limit == 512 * MB


def test_a_mount_of_version_2_does_not_matter_where_version_1_has_the_memory(c, tree):
    tree.write("proc/self/cgroup", "4:memory:/pg\n0::/there\n")
    tree.write("proc/self/mountinfo", V1_MOUNT + OTHER_MOUNTS + HYBRID_MOUNT)
    tree.write("/sys/fs/cgroup/memory/pg/memory.limit_in_bytes", "1000000000\n")
    tree.write("/sys/fs/cgroup/memory/pg/memory.usage_in_bytes", "5\n")
    tree.write("/sys/fs/cgroup/memory/pg/memory.stat", (FIXTURES / "metrics/v1-memory.stat").read_text())
    assert read(c, tree)[0].source == CGROUP1


def test_a_machine_can_be_tighter_than_its_group(c, tree):
    meminfo = (FIXTURES / "metrics/proc-meminfo").read_text().replace("23931980", "100000").replace("974268", "974")
    tree.write("proc/meminfo", meminfo)
    tree.write("proc/self/cgroup", "0::/pg\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/pg", str(512 * MB), 300 * MB)
    reader, reading = read(c, tree)
    assert reader.paths()[reading.tight] == "system" and reading.available == 100000 * 1024


def test_a_container_sees_only_its_part_of_the_hierarchy(c, tree):
    """Version 1 without a namespace of its own: /proc/self/cgroup has the host's path, the mount begins below it."""
    tree.write("proc/self/cgroup", "4:cpu,memory:/docker/1234/pg\n0::/\n")
    tree.write("proc/self/mountinfo", V1_MOUNT.replace("0:32 / /sys", "0:32 /docker/1234 /sys"))
    stat = (FIXTURES / "metrics/v1-memory.stat").read_text()
    for directory, limit in (("", "9223372036854771712"), ("/pg", str(10 * MB))):
        tree.write(f"/sys/fs/cgroup/memory{directory}/memory.limit_in_bytes", f"{limit}\n")
        tree.write(f"/sys/fs/cgroup/memory{directory}/memory.usage_in_bytes", (FIXTURES / "metrics/v1-memory.usage_in_bytes").read_text())
        tree.write(f"/sys/fs/cgroup/memory{directory}/memory.stat", stat)
    reader, reading = read(c, tree)
    assert reader.source == CGROUP1 and reader.paths() == ["/sys/fs/cgroup/memory/pg", "/sys/fs/cgroup/memory", "system"]
    assert (reading.limit, reading.available) == (10 * MB, 10 * MB - 1925120 + 131072 + 90112)
    assert (reading.refaults, reading.own_refaults, reading.swapped) == (54, 0, 0)


def test_a_hybrid_host_has_pressure_in_version_2(c, tree):
    tree.write("proc/self/cgroup", "4:memory:/pg\n0::/there\n")
    tree.write("proc/self/mountinfo", V1_MOUNT + HYBRID_MOUNT)
    tree.write("/sys/fs/cgroup/memory/pg/memory.limit_in_bytes", "1000000000\n")
    tree.write("/sys/fs/cgroup/memory/pg/memory.usage_in_bytes", "5\n")
    tree.write("/sys/fs/cgroup/memory/pg/memory.stat", (FIXTURES / "metrics/v1-memory.stat").read_text())
    tree.write("/sys/fs/cgroup/unified/there/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=41\n")
    tree.write("/sys/fs/cgroup/unified/there/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    reader, reading = read(c, tree)
    assert reader.source == CGROUP1 and reading.stalled == 42


def test_a_source_can_be_asked_for(c, tree):
    reader = Reader()
    assert not c.memory_signals_open(reader, str(tree.root).encode(), CGROUP2)
    assert not c.memory_signals_open(reader, str(tree.root).encode(), CGROUP1)
    assert read(c, tree, SYSTEM)[0].source == SYSTEM


def test_files_are_opened_once_and_closed(c, tree):
    """What changes shows without opening again; a group that is gone is noticed; nothing stays open."""
    tree.write("proc/self/cgroup", "0::/pg\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/pg", str(512 * MB), 300 * MB)
    before = len(os.listdir("/proc/self/fd"))
    reader, reading = Reader(), Reading()
    assert c.memory_signals_open(reader, str(tree.root).encode(), AUTO)
    opened = len(os.listdir("/proc/self/fd"))
    for used in (300, 400):
        tree.write("/sys/fs/cgroup/pg/memory.current", str(used * MB))
        assert c.memory_signals_read(reader, True, reading) and reading.available == (512 - used) * MB
        assert len(os.listdir("/proc/self/fd")) == opened
    tree.write("/sys/fs/cgroup/pg/memory.current", "")
    assert not c.memory_signals_read(reader, True, reading)
    c.memory_signals_close(reader)
    assert len(os.listdir("/proc/self/fd")) == before


PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"


@pytest.fixture
def opened(c, tree):
    """A reader that has read two groups and the machine once, and its tree."""
    tree.write("proc/self/cgroup", "0::/host/pg\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("proc/pressure/memory", PSI.format(500))
    tree.v2_group("/sys/fs/cgroup/host/pg", str(512 * MB), 300 * MB, inactive=20 * MB, active=30 * MB, swap=5 * MB)
    tree.v2_group("/sys/fs/cgroup/host", str(2048 * MB), 600 * MB)
    reader = Reader()
    assert c.memory_signals_open(reader, str(tree.root).encode(), AUTO)
    assert not c.memory_signals_light_read(reader, Reading()), "nothing has been read yet"
    assert c.memory_signals_read(reader, True, Reading())
    yield reader
    c.memory_signals_close(reader)


def test_a_glance_sees_what_is_available_and_reads_no_table(c, tree, opened):
    """Usage is fresh; page cache, refaults and stalls are those of the last reading, whose files may not even be readable now."""
    reading, glance = Reading(), Reading()
    assert c.memory_signals_read(opened, True, reading)
    tree.write("/sys/fs/cgroup/host/pg/memory.current", str(310 * MB))
    for table in (
        "/sys/fs/cgroup/host/pg/memory.stat",
        "/sys/fs/cgroup/host/memory.stat",
        "proc/vmstat",
        "/sys/fs/cgroup/host/pg/io.pressure",
    ):
        tree.write(table, "")
    assert c.memory_signals_light_read(opened, glance)
    assert (reading.available, glance.available, glance.reachable) == (262 * MB, 252 * MB, 252 * MB)
    assert [(item.tight, item.refaults, item.own_refaults, item.swapped, item.stalled) for item in (glance, reading)] == [
        (0, 17 + 4242, 17, 5 * MB, 1000 + 283)
    ] * 2


def test_what_nobody_uses_is_that_of_the_fullest_level(c, tree, opened):
    """Not even as page cache: whatever comes back into memory then comes into a group that is full by itself. A glance sees it too."""
    reading, glance = Reading(), Reading()
    assert c.memory_signals_read(opened, True, reading) and reading.unclaimed == (512 - 300) * MB
    tree.write("/sys/fs/cgroup/host/memory.current", str(1900 * MB))
    assert c.memory_signals_light_read(opened, glance) and glance.unclaimed == (2048 - 1900) * MB
    assert (glance.tight, glance.available) == (1, 148 * MB)
    tree.write("proc/meminfo", "MemTotal: 24684096 kB\nMemFree: 90000 kB\nMemAvailable: 23931980 kB\n")
    assert c.memory_signals_read(opened, True, reading) and (reading.tight, reading.unclaimed) == (1, 90000 * 1024)


def test_what_a_group_uses_less_at_a_glance_is_taken_to_have_been_page_cache(c, tree, opened):
    """It had 20 MB of it that was inactive, and 30 MB that was active: a file of 40 MB may have been dropped, and then memory taken."""
    reading = Reading()
    for used, available in ((260, 262), (300, 222), (200, 312)):
        tree.write("/sys/fs/cgroup/host/pg/memory.current", str(used * MB))
        assert c.memory_signals_light_read(opened, reading) and reading.available == available * MB
    assert c.memory_signals_read(opened, True, reading) and reading.available == 362 * MB


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("proc/pressure/memory", PSI.format(501)),
        ("proc/pressure/memory", ""),
        ("/sys/fs/cgroup/host/pg/memory.max", str(500 * MB)),
        ("/sys/fs/cgroup/host/pg/memory.high", str(500 * MB)),
        ("/sys/fs/cgroup/host/memory.max", str(1024 * MB)),
        ("/sys/fs/cgroup/host/pg/memory.swap.current", str(5 * MB + 4096)),
        ("/sys/fs/cgroup/host/pg/memory.current", ""),
        ("proc/meminfo", "MemTotal: 24684096 kB\nMemAvailable: 23931980 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n"),
    ],
    ids=["waited", "no pressure known", "limit", "high", "limit above", "swap", "gone", "swap of the machine"],
)
def test_a_glance_that_cannot_be_sure_says_so(c, tree, opened, file, text):
    reading = Reading()
    assert c.memory_signals_light_read(opened, reading)
    before = (tree.root / file.lstrip("/")).read_text()
    tree.write(file, text)
    assert not c.memory_signals_light_read(opened, reading)
    tree.write(file, before)
    assert c.memory_signals_read(opened, True, reading) and c.memory_signals_light_read(opened, reading)


def recorded(c: ctypes.CDLL, act: Callable[[], bool]) -> list[int]:
    """The files that it reads, in this order."""
    count = ctypes.c_int.in_dll(c, "recordings")
    count.value = 0
    assert act()
    return list((ctypes.c_int * 1000).in_dll(c, "recorded"))[: count.value]


def test_everybodys_pressure_is_read_before_what_it_is_to_vouch_for(c, opened):
    """Who waits while the levels are being read is then seen by the next glance, and who waits during a glance by the one after it."""
    levels = {opened.levels[number].fd_usage for number in range(2)} | {opened.levels[2].fd_stat}
    for act in (lambda: c.memory_signals_read(opened, True, Reading()), lambda: c.memory_signals_light_read(opened, Reading())):
        files = recorded(c, act)
        assert files[0] == opened.fd_any_pressure and levels <= set(files[1:]) and files.count(opened.fd_any_pressure) == 1


def test_everybodys_pressure_is_not_read_where_no_glance_may_follow(c, opened):
    """Each reading of it loses part of what the kernel has measured, for all who read it."""
    assert opened.fd_any_pressure not in recorded(c, lambda: c.memory_signals_read(opened, False, Reading()))
    assert not c.memory_signals_light_read(opened, Reading()), "nobody knows what it was"
    assert c.memory_signals_read(opened, True, Reading()) and c.memory_signals_light_read(opened, Reading())


def test_what_has_changed_since_the_last_look(c):
    """Per second since then; but what has been swapped out since the last glance only."""
    before, rates = Reading(0, 512 * MB, 9, 9, 9, 9, 100, 10, 5 * MB, 1_000_000), Rates()
    now = Reading(0, 512 * MB, 9, 9, 9, 9, 180, 14, 6 * MB, 1_400_000)
    for since_light, swapping in ((0.8, MB / 0.8), (0.1, MB / 0.1)):
        c.memory_signals_compare(before, now, 0.8, since_light, rates)
        assert (rates.refaults, rates.own_refaults, rates.swapping, rates.stall) == pytest.approx((100, 5, swapping, 0.5))
    c.memory_signals_compare(now, before, 0.8, 0.8, rates)
    assert (rates.refaults, rates.own_refaults, rates.swapping, rates.stall) == (0, 0, 0, 0), "less swapped is no swapping"
    now.stalled = 3_000_000
    c.memory_signals_compare(before, now, 0.8, 0.8, rates)
    assert rates.stall == 1


@pytest.mark.parametrize("before", [None, Reading(1, 512 * MB, 9, 9, 9, 9, 1, 1, 1, 1)], ids=["nothing", "another level"])
def test_without_a_reading_of_the_same_level_nothing_is_known(c, before):
    rates = Rates(1, 1, 1, 1)
    c.memory_signals_compare(before, Reading(0, 512 * MB, 9, 9, 9, 9, 180, 14, 6 * MB, 1_400_000), 0.8, 0.1, rates)
    assert (rates.refaults, rates.own_refaults, rates.swapping, rates.stall) == (-1, -1, 0, -1)


OLD_STAT = "cache 90\nworkingset_refault 3\ninactive_file 7\nactive_file 5\n"
OLD_STAT += "total_swap 0\ntotal_workingset_refault 54\ntotal_inactive_file 7\ntotal_active_file 5\n"
"""As Linux 4.18 and 5.4 write it: one count, of pages of files only."""


@pytest.mark.parametrize(
    ("mount", "group", "refaults"), [(V2_MOUNT, "0::/pg\n", 3), (V1_MOUNT, "4:memory:/pg\n0::/\n", 54)], ids=["v2", "v1"]
)
def test_a_kernel_before_5_9_counts_pages_of_files_only(c, tree, mount, group, refaults):
    tree.write("proc/self/cgroup", group)
    tree.write("proc/self/mountinfo", mount)
    files = {"memory.max": 512 * MB, "memory.current": 500 * MB}
    files |= {"memory.limit_in_bytes": 512 * MB, "memory.usage_in_bytes": 500 * MB}
    for directory in ("/sys/fs/cgroup/pg", "/sys/fs/cgroup/memory/pg"):
        for name, value in files.items():
            tree.write(f"{directory}/{name}", f"{value}\n")
        tree.write(f"{directory}/memory.stat", OLD_STAT)
    assert (read(c, tree)[1].refaults, read(c, tree)[1].own_refaults) == (refaults, -1)


def test_an_old_machine(c, tree):
    """The same of /proc/vmstat; and where there is no count at all, there is none."""
    for text, refaults in (("pgmajfault 9\nworkingset_refault 77\n", 77), ("pgmajfault 9\n", -1)):
        tree.write("proc/vmstat", text)
        reading = read(c, tree, SYSTEM)[1]
        assert (reading.refaults, reading.own_refaults) == (refaults, -1)


def test_counts_that_are_unknown_have_no_rate(c):
    rates = Rates()
    for before, now in ((-1, 5), (5, -1), (-1, -1)):
        old, new = (Reading(0, 512 * MB, 9, 9, 9, 9, 7, count, 1, 1) for count in (before, now))
        c.memory_signals_compare(old, new, 0.8, 0.8, rates)
        assert (rates.refaults, rates.own_refaults) == (0, -1)


@pytest.fixture
def nested(c, tree):
    """A group in another one, and a reader of them that is open."""
    tree.write("proc/self/cgroup", "0::/host/pg\n")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.v2_group("/sys/fs/cgroup/host/pg", str(512 * MB), 300 * MB)
    tree.v2_group("/sys/fs/cgroup/host", str(2048 * MB), 600 * MB)
    return tree


def test_without_free_descriptors_no_level_is_left_out(c, nested):
    """With any number of them: either all files are open, or none is, and the reason is told."""
    before = len(os.listdir("/proc/self/fd")) - 1
    reader = Reader()
    assert c.memory_signals_open(reader, str(nested.root).encode(), AUTO) and reader.error == 0
    needed = c.memory_signals_files(reader)
    assert needed == len(os.listdir("/proc/self/fd")) - 1 - before and reader.nlevels == 3
    c.memory_signals_close(reader)
    taken = {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
    free = [number for number in range(max(taken) + needed + 2) if number not in taken]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for allowed in range(needed + 1):
        reader = Reader()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[allowed], hard))
        try:
            opened = c.memory_signals_open(reader, str(nested.root).encode(), AUTO)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert opened == (allowed == needed) and (reader.error == 0 if opened else reader.error == errno.EMFILE), allowed
        c.memory_signals_close(reader)
        assert len(os.listdir("/proc/self/fd")) - 1 == before


def test_a_level_that_may_not_be_read_is_no_missing_level(c, nested):
    """It could be the one with the limit. A file of pressure is no level."""
    blocked = nested.root / "sys/fs/cgroup/host/memory.max"
    blocked.unlink()
    blocked.symlink_to(blocked)  # fails for root as well
    reader = Reader()
    assert not c.memory_signals_open(reader, str(nested.root).encode(), AUTO) and reader.error == errno.ELOOP


def test_pressure_that_may_not_be_read_is_left_out(c, nested):
    pressure = nested.root / "sys/fs/cgroup/host/pg/memory.pressure"
    pressure.unlink()
    pressure.symlink_to(pressure)
    assert read(c, nested)[1].limit == 512 * MB


def test_a_stall_that_is_not_known(c):
    rates = Rates()
    c.memory_signals_compare(Reading(0, 512 * MB, 9, 9, 9, 9, 1, 1, 1, -1), Reading(0, 512 * MB, 9, 9, 9, 9, 9, 1, 1, 500), 0.8, 0.1, rates)
    assert (rates.refaults, rates.stall) == (10, -1)


def test_the_machines_refaults_are_read_only_where_it_is_the_tightest(c, tree, opened):
    tree.write("proc/vmstat", "workingset_refault_anon 11\nworkingset_refault_file 4\n")
    reading = Reading()
    assert c.memory_signals_read(opened, True, reading) and reading.refaults == 17 + 4242
    tree.write("proc/meminfo", "MemTotal: 24684096 kB\nMemAvailable: 100000 kB\n")
    assert c.memory_signals_read(opened, True, reading)
    assert (reading.tight, reading.refaults, reading.own_refaults) == (2, 15, 17)


def test_without_proc_there_is_nothing(c, tmp_path):
    assert not c.memory_signals_open(Reader(), str(tmp_path).encode(), AUTO)


def test_this_machine(c):
    """Whatever this is, it has memory, and some of it is used."""
    if not Path("/proc/meminfo").exists():
        pytest.skip("there is no /proc/meminfo")
    reader, reading = Reader(), Reading()
    assert c.memory_signals_open(reader, b"", AUTO) and c.memory_signals_read(reader, True, reading)
    c.memory_signals_close(reader)
    assert 0 < reading.available <= reading.limit and reading.reachable <= reading.available


def test_parsers(c):
    assert c.kernel_limit(b"max\n") == 2**63 - 1 == c.kernel_limit(b"9223372036854771712\n")
    assert c.kernel_limit(b"1073741824\n") == 1 << 30
    assert c.kernel_field(b"file 1\ninactive_file 7\n", b"inactive_file") == 7
    assert c.kernel_field(b"inactive_file 7\nfile 1\n", b"file") == 1, "not the end of another key"
    assert c.kernel_field(b"MemFree:  12 kB\n", b"MemFree") == 12
    assert c.kernel_field(b"", b"x") == -1 == c.kernel_field(b"xx 1", b"x")
    assert c.kernel_some_total(b"full avg10=0 total=3\n") == -1
    path, within = ctypes.create_string_buffer(100), ctypes.create_string_buffer(100)
    assert not c.cgroup_path_of_process(b"3:cpu,memory_hog:/x\n", 1, path, 100)
    assert c.cgroup_path_of_process(b"3:cpu,memory:/a:b\n", 1, path, 100) and path.value == b"/a:b"
    assert not c.cgroup_path_of_process(b"0::/" + b"x" * 200, 2, path, 100), "too long"
    assert c.cgroup_mount(V2_MOUNT.encode(), 2, path, within, 100) and (path.value, within.value) == (b"/sys/fs/cgroup", b"/")
    assert not c.cgroup_mount(V2_MOUNT.encode(), 1, path, within, 100)
    escaped = rb"30 23 0:26 /a\040b /mnt/c\134d\04 rw - cgroup2 cgroup2 rw" + b"\n"
    assert c.cgroup_mount(escaped, 2, path, within, 100) and (path.value, within.value) == (rb"/mnt/c\d\04", b"/a b")


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=300).map(lambda raw: raw.replace(b"\0", b"")))
def test_no_text_breaks_a_parser(c, text):
    path, within = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    for version in (1, 2):
        c.cgroup_path_of_process(text, version, path, 64)
        c.cgroup_mount(text, version, path, within, 64)
        c.cgroup_path_of_process(b"0::" + text + b"\n4:memory:" + text, version, path, 64)
        c.cgroup_mount(b"1 2 3 / /x " + text + b" - cgroup2 " + text, version, path, within, 64)
    c.kernel_limit(text)
    c.kernel_field(text, b"a")
    c.kernel_some_total(text)
