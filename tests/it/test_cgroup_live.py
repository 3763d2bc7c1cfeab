"""Control groups of this machine's own kernel, whichever version holds the cpu and memory controllers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pgherd.host import cgroup_parent, processes
from pgherd.host.cgroups import CgroupLimits, HostGroup, IoLimit
from pgherd.host.facts import gather
from pgherd.host.journal import Journal, clean
from pgherd.host.storage import devices_of
from pgherd.model.deployment import Container, Host
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.runtimes.host_runtimes import CgroupRuntime

NODE = LocalNode()
MEMORY = 64 << 20
NotUndone = Callable[[list[str]], list[str]]


@pytest.fixture
def base() -> cgroup_parent.CgroupParent:
    try:
        return cgroup_parent.find(NODE)
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def group(base: cgroup_parent.CgroupParent, tmp_path: Path, not_undone: NotUndone) -> Iterator[HostGroup]:
    journal = Journal.open(NODE, tmp_path, "test")
    host = HostGroup(NODE, journal, base, f"test-{os.getpid()}")
    host.make(CgroupLimits())
    try:
        yield host
    finally:
        assert not_undone(host.close()) == []
        assert not_undone(journal.close()) == []


def memory_limit(groups: dict[str, str]) -> int:
    path = f"{groups['memory']}/memory.limit_in_bytes" if "memory" in groups else f"{groups['v2']}/memory.max"
    return int(NODE.read(path))


def test_a_quota_limits(group: HostGroup) -> None:
    """A busy loop of one second of wall time under a quarter of a core uses about a quarter of a second of CPU."""
    groups = group.add("db01", CgroupLimits(cores=0.25))
    loop = "import time\nbegun, end = time.process_time(), time.monotonic() + 1\nwhile time.monotonic() < end: pass\n"
    loop += "print(time.process_time() - begun)"
    done = NODE.run(Command((sys.executable, "-S", "-c", loop), join=group.join("db01")))
    assert done.code == 0, done.err
    # On a crowded machine it may get less than its quota, but never more; one period's grace at each end.
    assert 0.05 <= float(done.out) <= 0.35
    statistics = dict(
        line.split() for line in NODE.read(f"{groups['cpu'] if 'cpu' in groups else groups['v2']}/cpu.stat").decode().splitlines()
    )
    assert int(statistics["nr_throttled"]) > 0


def test_weights_divide_a_cpu(group: HostGroup, tmp_path: Path) -> None:
    """Of two busy loops on one CPU, that of three times the weight gets about three times the CPU time."""
    cpu, there = min(os.sched_getaffinity(0)), tmp_path / "there"
    there.mkdir()
    # A start takes seconds in an emulated guest: each waits until both are there.
    loop = "import os, sys, time\nopen(sys.argv[1], 'w').close()\nwhile len(os.listdir('.')) < 2: time.sleep(0.001)\n"
    loop += "begun, used = time.monotonic(), time.process_time()\nwhile time.monotonic() < begun + 2: pass\n"
    loop += "print(time.process_time() - used)"

    def used(name: str) -> float:
        done = NODE.run(Command((sys.executable, "-S", "-c", loop, name), join=group.join(name), cpus=(cpu,), cwd=str(there)))
        assert done.code == 0, done.err
        return float(done.out)

    group.add("heavy", CgroupLimits(weight=300))
    group.add("light", CgroupLimits(weight=100))
    with ThreadPoolExecutor(2) as pool:
        heavy, light = pool.map(used, ("heavy", "light"))
    assert 2 < heavy / light < 4, (heavy, light)


def test_limits_read_back_and_change(group: HostGroup) -> None:
    groups = group.add("db01", CgroupLimits(cores=0.5, memory=MEMORY, weight=200))
    assert memory_limit(groups) == MEMORY
    if "cpu" in groups:
        assert NODE.read(f"{groups['cpu']}/cpu.cfs_quota_us") == b"50000\n"
        assert NODE.read(f"{groups['cpu']}/cpu.shares") == b"2048\n"
    else:
        assert NODE.read(f"{groups['v2']}/cpu.max") == b"50000 100000\n"
        assert NODE.read(f"{groups['v2']}/cpu.weight") == b"200\n"
    short = group.add("db02", CgroupLimits(cores=0.5, period=0.02))
    if "cpu" in short:
        assert [NODE.read(f"{short['cpu']}/cpu.cfs_{what}_us") for what in ("quota", "period")] == [b"10000\n", b"20000\n"]
    else:
        assert NODE.read(f"{short['v2']}/cpu.max") == b"10000 20000\n"
    group.change("db01", CgroupLimits(memory=2 * MEMORY))
    assert memory_limit(groups) == 2 * MEMORY
    group.change(None, CgroupLimits(memory=4 * MEMORY))
    assert memory_limit(group.groups()) == 4 * MEMORY


def test_memory_is_limited(group: HostGroup) -> None:
    """Twice the limit, all of it touched, ends in a kill or in swap, but never in more memory than the limit."""
    groups = group.add("db01", CgroupLimits(memory=MEMORY))
    script = f"b = bytearray({2 * MEMORY})\nb[::4096] = b'x' * len(b[::4096])\n"
    script += "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS:')).split()[1])"
    done = NODE.run(Command((sys.executable, "-S", "-c", script), join=group.join("db01")))
    peak = f"{groups['memory']}/memory.max_usage_in_bytes" if "memory" in groups else f"{groups['v2']}/memory.peak"
    if NODE.exists(peak):
        assert int(NODE.read(peak)) <= MEMORY
    if done.code != -signal.SIGKILL:
        assert done.code == 0 and gather(NODE).swap > 0, done
        assert int(done.out) * 1024 <= MEMORY, "the rest is in swap"


def test_a_container_of_a_run_without_swap_has_none(base: cgroup_parent.CgroupParent, tmp_path: Path, not_undone: NotUndone) -> None:
    """Also one that is smaller than the run: the run's limit of memory and swap under v1 would leave it some."""
    journal = Journal.open(NODE, tmp_path, "test")
    host = HostGroup(NODE, journal, base, f"noswap-{os.getpid()}")
    host.make(CgroupLimits(memory=4 * MEMORY, swap=0))
    try:
        groups = host.add("db01", CgroupLimits(memory=MEMORY))
        assert host.try_memory("db01", MEMORY // 2)
        limits = [f"{groups.get('memory')}/memory.memsw.limit_in_bytes", f"{groups.get('v2')}/memory.swap.max"]
        found = [int(NODE.read(path)) for path in limits if NODE.exists(path)]
        if not found:
            pytest.skip("the kernel does not count swap")
        assert found == ([MEMORY // 2] if "memory" in groups else [0])
    finally:
        assert not_undone(host.close()) == []
        assert not_undone(journal.close()) == []


def test_a_process_is_inside_before_it_execs(group: HostGroup) -> None:
    group.add("db01", CgroupLimits())
    done = NODE.run(Command(("cat", "/proc/self/cgroup"), join=group.join("db01")))
    inside = [line for line in done.out.splitlines() if line.endswith(f"/{group.name}/db01")]
    assert len(inside) == len(group.join("db01"))


def test_remove_ends_what_runs_inside(group: HostGroup) -> None:
    groups = group.add("db01", CgroupLimits())
    process = NODE.spawn(Command(("sleep", "300"), join=group.join("db01")))
    assert processes.wait_until(lambda: str(process.pid).encode() in NODE.read(f"{next(iter(groups.values()))}/cgroup.procs").split())
    group.remove("db01")
    assert process.wait(5) == -signal.SIGKILL
    assert not any(NODE.exists(path) for path in groups.values())


OWNER = """
import sys, time
from pathlib import Path
from pgherd.host import cgroup_parent
from pgherd.host.cgroups import CgroupLimits, HostGroup
from pgherd.host.journal import Journal
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
node = LocalNode()
host = HostGroup(node, Journal.open(node, Path(sys.argv[1]), "doomed"), cgroup_parent.find(node), sys.argv[2])
host.make(CgroupLimits())
host.add("db01", CgroupLimits(cores=0.5))
host.add("db02", CgroupLimits(cores=0.5))
# Out of the reach of the owner's own death: the group alone holds it.
node.run(Command(("/bin/sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo"), join=host.join("db01")))
print(*host.groups().values(), flush=True)
time.sleep(300)
"""


@pytest.mark.usefixtures("base")
def test_clean_after_kill_9_of_the_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), f"doomed-{os.getpid()}"], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    paths = owner.stdout.readline().split()
    assert paths
    inside = NODE.read(f"{paths[0]}/db01/cgroup.procs").split()
    assert len(inside) == 1
    owner.kill()
    owner.wait()

    said = clean(NODE, tmp_path)

    assert "ended 1 process in it" in said[0]
    assert [path for path in paths if NODE.exists(path)] == []
    assert processes.start_time(NODE, int(inside[0])) is None
    assert clean(NODE, tmp_path) == []


@pytest.mark.usefixtures("base")
def test_the_runtime_from_open_to_close(tmp_path: Path, not_undone: NotUndone) -> None:
    journal = Journal.open(NODE, tmp_path, "test")
    facts = gather(NODE)
    runtime = CgroupRuntime(NODE, journal, facts, f"rt-{os.getpid()}")
    able = runtime.capabilities()
    assert (able.available, able.cpu_quota, able.memory_limit, able.accounting) == (True, True, True, True)
    runtime.open(Host(memory=4 * MEMORY))
    try:
        room = runtime.create(Container(name="db01", runtime="cgroup", vcpus=0.5, cpu_mode="quota", memory=MEMORY))
        assert memory_limit(dict(room.groups)) == MEMORY
        pinned = runtime.create(Container(name="db02", runtime="cgroup", vcpus=1, cpu_mode="cpuset"))
        done = NODE.run(Command(("grep", "Cpus_allowed_list", "/proc/self/status"), join=pinned.join, cpus=pinned.cpus))
        assert len(done.out.split()[1].split(",")) == 1
        assert "-" not in done.out.split()[1]
        if "v2" in room.groups:
            assert NODE.exists(f"{room.groups['v2']}/cpu.pressure") == NODE.exists("/proc/pressure/cpu")
        runtime.destroy("db01")
        assert not NODE.exists(room.join[0])
    finally:
        runtime.close()
    assert not_undone(journal.close()) == []
    assert not any(NODE.exists(path) for path in pinned.groups.values())


def test_a_container_may_ask_for_more_cores_than_its_host_has(
    base: cgroup_parent.CgroupParent, tmp_path: Path, not_undone: NotUndone
) -> None:
    """v1 refuses a child more than its parent; the runtime grants what comes to the same."""
    journal = Journal.open(NODE, tmp_path, "test")
    host = HostGroup(NODE, journal, base, f"over-{os.getpid()}")
    host.make(CgroupLimits(cores=0.5))
    try:
        groups = host.add("db01", CgroupLimits(cores=4))
        if "cpu" in groups:
            assert NODE.read(f"{groups['cpu']}/cpu.cfs_quota_us") == b"50000\n"
    finally:
        assert not_undone(host.close()) == []
        journal.close()


def test_fio_reads_and_writes_at_the_limit(group: HostGroup, base: cgroup_parent.CgroupParent, tmp_path: Path) -> None:
    """The limit counts direct I/O of a process in the group. Buffered writes are not part of this test: v1 does not limit them."""
    device = devices_of(NODE, [str(tmp_path)]).get(str(tmp_path))
    if not base.limits_io or device is None or shutil.which("fio") is None:
        pytest.skip("needs fio, a block device and the io or blkio controller")
    group.add("db01", CgroupLimits())
    job = ("fio", "--name=x", "--filename=file", "--size=16M", "--direct=1", "--bs=8k", "--ioengine=psync", "--output-format=json")

    def measured(rw: str, seconds: int = 3) -> dict[str, float]:
        timed = (*job, f"--rw={rw}", "--time_based", f"--runtime={seconds}")
        done = NODE.run(Command(timed, cwd=str(tmp_path), join=group.join("db01")))
        assert done.code == 0, done.err
        return json.loads(done.out)["jobs"][0][rw.removeprefix("rand")]

    NODE.run(Command((*job, "--rw=write"), cwd=str(tmp_path)))
    group.limit_io("db01", IoLimit((device.number,), iops=100))
    for rw in ("randread", "randwrite"):
        assert 20 <= measured(rw)["iops"] <= 130, "a disturbed machine may give less, and a limit never gives more"
    group.limit_io("db01", IoLimit((device.number,), bandwidth=1 << 20))
    for rw in ("randread", "randwrite"):
        assert 0.2 * (1 << 20) <= measured(rw)["bw_bytes"] <= 1.3 * (1 << 20)
    group.limit_io("db01", IoLimit((device.number,)))
    assert measured("randread", 1)["iops"] > 130, "the limit was lifted"
