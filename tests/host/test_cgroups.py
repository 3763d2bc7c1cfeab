from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.host import cgroup_parent
from pgherd.host.cgroups import CgroupLimits, HostGroup, IoLimit, quota_us
from pgherd.host.journal import Journal, clean
from pgherd.model.errors import CapabilityError

SCOPE = "/user.slice/user@1000.service/app.slice/run-u1.scope"
UNIFIED = "/sys/fs/cgroup"


@pytest.fixture
def scope(tmp_path: Path, fake):
    """A node with a process in a delegated scope, the directory of that scope, and a journal."""
    node = fake.unified(tmp_path / "root", SCOPE, may_write=UNIFIED + SCOPE)
    return node, tmp_path / "root" / (UNIFIED + SCOPE).lstrip("/"), Journal.open(node, tmp_path / "state", "run")


def test_groups_with_limits_below_a_delegated_scope(scope) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits(cores=1.5, memory=1 << 30))
    groups = host.add("db01", CgroupLimits(cores=0.25, cpus=(0, 2), memory=512 << 20, weight=200))

    assert groups == {"v2": f"{UNIFIED}{SCOPE}/pgherd-ab12/db01"}
    assert host.join("db01") == (f"{UNIFIED}{SCOPE}/pgherd-ab12/db01/cgroup.procs",)
    assert (directory / "pgherd-ab12/cpu.max").read_text() == "150000 100000"
    assert (directory / "pgherd-ab12/memory.max").read_text() == str(1 << 30)
    child = directory / "pgherd-ab12/db01"
    assert (child / "cpu.max").read_text() == "25000 100000"
    assert (child / "memory.max").read_text() == str(512 << 20)
    assert (child / "cpu.weight").read_text() == "200"
    assert (child / "cpuset.cpus").read_text() == "0,2"
    assert node.group_of(os.getpid()) == f"{SCOPE}/pgherd-leaf"

    host.change("db01", CgroupLimits(memory=256 << 20))
    assert (child / "memory.max").read_text() == str(256 << 20)
    assert (child / "cpu.max").read_text() == "25000 100000"


def test_close_restores_the_scope_as_it_was(scope) -> None:
    node, directory, journal = scope
    node.add_process(4242, SCOPE, session=os.getsid(0))
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    host.add("db01", CgroupLimits())
    node.add_process(5000, f"{SCOPE}/pgherd-ab12/db01")
    assert node.group_of(4242) == f"{SCOPE}/pgherd-leaf"

    assert host.close() == []
    assert node.killed == [5000]
    assert node.group_of(os.getpid()) == node.group_of(4242) == SCOPE
    assert (directory / "cgroup.subtree_control").read_text() == ""
    assert [path.name for path in directory.iterdir() if path.is_dir()] == []
    assert journal.pending() == []


def test_remove_ends_what_runs_in_one_container_only(scope) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    for name, pid in (("db01", 5001), ("db02", 5002)):
        host.add(name, CgroupLimits())
        node.add_process(pid, f"{SCOPE}/pgherd-ab12/{name}")
    host.remove("db01")
    assert node.killed == [5001]
    assert not (directory / "pgherd-ab12/db01").exists()
    assert (directory / "pgherd-ab12/db02").exists()
    host.remove("db01")  # twice is once


def test_the_journal_alone_undoes_everything(scope, tmp_path: Path) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    host.add("db01", CgroupLimits())
    node.add_process(5000, f"{SCOPE}/pgherd-ab12/db01")
    os.close(journal._number)  # the owner's lock is gone, as when it was killed
    (path,) = (tmp_path / "state/journal").glob("*.jsonl")
    path.write_text(path.read_text().replace(f'"pid": {os.getpid()}', '"pid": 999998'))

    text = clean(node, tmp_path / "state")
    assert [sentence for sentence in text if "not undone" in sentence] == []
    assert any("ended 1 process in it" in sentence for sentence in text)
    assert node.killed == [5000]
    assert node.group_of(os.getpid()) == SCOPE
    assert (directory / "cgroup.subtree_control").read_text() == ""
    assert [path.name for path in directory.iterdir() if path.is_dir()] == []
    assert clean(node, tmp_path / "state") == []


def test_the_first_of_two_runs_leaves_the_scope_to_the_second(scope, tmp_path: Path) -> None:
    node, directory, journal = scope
    first = HostGroup(node, journal, cgroup_parent.find(node), "first")
    first.make(CgroupLimits())
    other = Journal.open(node, tmp_path / "state", "other")
    second = HostGroup(node, other, cgroup_parent.find(node), "second")
    second.make(CgroupLimits())

    (failed,) = first.close()
    assert "another run" in failed
    assert (directory / "pgherd-second").exists()
    assert "cpu" in (directory / "cgroup.subtree_control").read_text()
    assert second.close() == []
    assert journal.play() == [f"restored cgroup {UNIFIED}{SCOPE}"]
    assert node.group_of(os.getpid()) == SCOPE


def test_controllers_that_another_program_uses_by_now_stay(tmp_path: Path, fake) -> None:
    """As when Docker starts a container with CPUs during a run of root."""
    node = fake.unified(tmp_path / "root", "/")
    journal = Journal.open(node, tmp_path / "state", "run")
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    node.make_dir(f"{UNIFIED}/docker")
    node.write(f"{UNIFIED}/docker/cgroup.subtree_control", b"+cpuset")

    assert host.close() == []
    assert node.read(f"{UNIFIED}/cgroup.subtree_control") == b"cpuset"
    assert journal.pending() == [] and not node.exists(f"{UNIFIED}/pgherd-ab12")


def test_processes_stay_in_the_leaf_while_another_program_uses_controllers(scope) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    node.make_dir(f"{UNIFIED}{SCOPE}/docker")
    node.write(f"{UNIFIED}{SCOPE}/docker/cgroup.subtree_control", b"+cpu")

    (failed,) = host.close()
    assert "another program" in failed and "pgherd clean" in failed
    assert node.group_of(os.getpid()) == f"{SCOPE}/pgherd-leaf"
    node.remove_dir(f"{UNIFIED}{SCOPE}/docker")
    assert journal.play() == [f"restored cgroup {UNIFIED}{SCOPE}"]
    assert node.group_of(os.getpid()) == SCOPE and (directory / "cgroup.subtree_control").read_text() == ""


def test_a_failure_half_way_takes_back_what_was_done(scope) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    with pytest.raises(CapabilityError, match="below the minimum"):
        host.make(CgroupLimits(cores=0.001))
    assert [path.name for path in directory.iterdir() if path.is_dir()] == []
    assert node.group_of(os.getpid()) == SCOPE
    assert journal.pending() == []


def test_a_group_of_that_name_is_not_taken_over(scope) -> None:
    node, _, journal = scope
    node.make_dir(f"{UNIFIED}{SCOPE}/pgherd-ab12")
    with pytest.raises(CapabilityError, match="pgherd clean"):
        HostGroup(node, journal, cgroup_parent.find(node), "ab12").make(CgroupLimits())
    assert node.exists(f"{UNIFIED}{SCOPE}/pgherd-ab12")


def test_cpuset_without_the_controller(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path / "root", SCOPE, controllers="cpu memory", may_write=UNIFIED + SCOPE)
    host = HostGroup(node, Journal.open(node, tmp_path / "state", "run"), cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    with pytest.raises(CapabilityError, match="Delegate=cpuset"):
        host.add("db01", CgroupLimits(cpus=(0,)))
    assert not node.exists(f"{UNIFIED}{SCOPE}/pgherd-ab12/db01")


@pytest.mark.parametrize(("cores", "quota"), [(0.25, 25_000), (4, 400_000), (0.01, 1_000), (1 / 3, 33_333)])
def test_quota(cores: float, quota: int) -> None:
    assert quota_us(cores) == quota


def test_a_quota_in_shorter_periods() -> None:
    assert quota_us(0.95, 0.02) == 19_000 and quota_us(0.05, 0.02) == 1_000
    assert quota_us(1.33333, 0.02) / 20_000 <= quota_us(1.33333) / 100_000, "a group in one of as many cores"
    with pytest.raises(CapabilityError, match=r"0\.04.*0\.05"):
        quota_us(0.04, 0.02)


def test_a_quota_below_what_the_kernel_takes() -> None:
    with pytest.raises(CapabilityError, match=r"0\.005.*0\.01"):
        quota_us(0.005)


def test_io_limits_are_written_and_lifted_under_v2(scope) -> None:
    node, directory, journal = scope
    host = HostGroup(node, journal, cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    host.add("db01", CgroupLimits())
    host.limit_io("db01", IoLimit(("254:0",), iops=500, bandwidth=1 << 20))
    assert (directory / "pgherd-ab12/db01/io.max").read_text() == "254:0 rbps=1048576 wbps=1048576 riops=500 wiops=500"
    host.limit_io("db01", IoLimit(("254:0",)))
    assert (directory / "pgherd-ab12/db01/io.max").read_text() == "254:0 rbps=max wbps=max riops=max wiops=max"


def test_no_io_limit_without_the_controller(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path / "root", SCOPE, may_write=UNIFIED + SCOPE, controllers="cpu memory")
    host = HostGroup(node, Journal.open(node, tmp_path / "state", "run"), cgroup_parent.find(node), "ab12")
    host.make(CgroupLimits())
    host.add("db01", CgroupLimits())
    with pytest.raises(CapabilityError, match=r"container db01: the io controller is not available in .*; delegate it"):
        host.limit_io("db01", IoLimit(("254:0",), iops=500))
