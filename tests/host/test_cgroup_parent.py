from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host import cgroup_parent
from pgherd.host.cgroup_parent import Hierarchy, enclosing_limits, parse_layout, read_layout
from reports import GROUPS, OTHER_LIMITS, Groups, OtherLimits

SCOPE = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-u1.scope"
UNIFIED = "/sys/fs/cgroup"


def left(root: Path) -> list[Path]:
    return [path for path in root.rglob("pgherd-probe-*") if path.is_dir()]


def test_root_makes_groups_at_the_top_of_v2(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice/session-1.scope")
    base = cgroup_parent.find(node)
    assert (base.version, base.where, base.move, base.enable) == ("v2", UNIFIED, (), ())
    assert {"cpu", "cpuset", "memory", "io"} <= base.controllers
    assert left(tmp_path) == []


def test_the_top_may_have_to_hand_out_controllers_first(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/")  # this process is in the root group, which may contain processes
    base = cgroup_parent.find(node)
    assert base.enable == ("cpu", "cpuset", "io", "memory")
    assert base.move == ()
    assert base.limits_io


def test_root_stays_below_a_limited_group(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/limited.slice/x.scope")
    (tmp_path / "sys/fs/cgroup/limited.slice/memory.max").write_text("1000000")
    assert cgroup_parent.find(node).where == f"{UNIFIED}/limited.slice/x.scope"


def test_an_ordinary_user_uses_the_delegated_scope(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    base = cgroup_parent.find(node)
    assert base.where == UNIFIED + SCOPE
    assert base.move == (os.getpid(),)
    assert base.enable == ("cpu", "cpuset", "io", "memory")
    assert node.group_of(os.getpid()) == SCOPE, "finding changes nothing"
    assert left(tmp_path) == []


def test_processes_of_the_same_session_may_move_with_us(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    node.add_process(4242, SCOPE, session=os.getsid(0))
    assert set(cgroup_parent.find(node).move) == {4242, os.getpid()}


def test_processes_of_others_are_not_moved(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    node.add_process(4242, SCOPE, session=77)
    with pytest.raises(cgroup_parent.CgroupUnavailable, match=r"pid 4242.*systemd-run --user --scope -p Delegate=yes"):
        cgroup_parent.find(node)


def test_without_delegation_the_way_to_it_is_named(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice/user-1000.slice/session-3.scope", may_write="/nowhere")
    with pytest.raises(cgroup_parent.CgroupUnavailable, match="Delegate=yes"):
        cgroup_parent.find(node)


def test_missing_controllers_are_named(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, controllers="memory pids", may_write=UNIFIED + SCOPE)
    with pytest.raises(cgroup_parent.CgroupUnavailable, match=r"was not given the cpu controller.*delegate\.conf.*log in again"):
        cgroup_parent.find(node)
    login = fake.unified(tmp_path / "login", "/user.slice/user-1000.slice/session-3.scope", controllers="memory pids")
    with pytest.raises(cgroup_parent.CgroupUnavailable, match="start it with `systemd-run --user") as error:
        cgroup_parent.find(login)
    assert "delegate.conf" not in str(error.value), "a session has fewer controllers than what systemd-run starts"


def test_a_second_run_in_the_same_scope_uses_the_same_base(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, f"{SCOPE}/{cgroup_parent.LEAF}", may_write=UNIFIED + SCOPE)
    base = cgroup_parent.find(node)
    assert (base.where, base.move, base.enable) == (UNIFIED + SCOPE, (), ())


def test_a_container_with_its_own_namespace(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/", namespace=True)
    base = cgroup_parent.find(node)
    assert base.where == UNIFIED
    assert base.move == (os.getpid(),), "a namespace's top is not the root group: it may not keep processes"


def test_no_cgroups_at_all(tmp_path: Path, fake) -> None:
    with pytest.raises(cgroup_parent.CgroupUnavailable, match="mount -t cgroup2 cgroup2"):
        cgroup_parent.find(fake.FakeNode(tmp_path))


V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def v1_files(limit: str) -> dict[str, str]:
    return {
        "/proc/self/mountinfo": V1,
        "/proc/self/cgroup": "4:memory:/a/b\n3:cpu,cpuacct:/a\n",
        "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": limit,
        "/sys/fs/cgroup/cpu,cpuacct/a/cpu.shares": "1024\n",
    }


def test_v1_at_the_top(tmp_path: Path, fake) -> None:
    base = cgroup_parent.find(fake.FakeNode(tmp_path, v1_files("9223372036854771712")))
    assert base.version == "v1"
    assert base.parents == {"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory"}
    assert left(tmp_path) == []


def test_v1_below_a_limited_group(tmp_path: Path, fake) -> None:
    base = cgroup_parent.find(fake.FakeNode(tmp_path, v1_files("1073741824")))
    assert base.parents["memory"] == "/sys/fs/cgroup/memory/a/b"
    assert base.parents["cpu"] == "/sys/fs/cgroup/cpu,cpuacct/a"


def test_sweep_removes_only_probes_of_the_dead(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice")
    node.add_process(31)
    for pid in (30, 31):
        node.make_dir(f"{UNIFIED}/pgherd-probe-{pid}")
    node.make_dir(f"{UNIFIED}/pgherd-run")
    assert cgroup_parent.sweep(node) == [f"removed probe group {UNIFIED}/pgherd-probe-30"]
    assert [path.name for path in left(tmp_path)] == ["pgherd-probe-31"]
    assert (tmp_path / "sys/fs/cgroup/pgherd-run").exists()


def test_the_layout_of_this_machine_reads(fake) -> None:
    from pgherd.node.local import LocalNode

    assert cgroup_parent.read_layout(LocalNode()).kind in ("v1", "v2", "hybrid", "none")


def test_v1_does_without_what_was_not_delegated(tmp_path: Path, fake) -> None:
    """Only cpu and memory below the group of this process: no cpuset, and no pressure figures from the unified hierarchy."""
    files = v1_files("9223372036854771712")
    files["/proc/self/mountinfo"] += (
        "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    files["/proc/self/cgroup"] += "2:cpuset:/\n0::/\n"
    node = fake.FakeNode(tmp_path, files)
    make = node.make_dir

    def refuse(path: str, **options) -> None:
        if "/a/" not in path:
            raise PermissionError(13, "Permission denied", path)
        make(path, **options)

    node.make_dir = refuse
    base = cgroup_parent.find(node)
    assert set(base.parents) == {"cpu", "cpuacct", "memory"}
    assert base.parents["memory"] == "/sys/fs/cgroup/memory/a/b"
    assert "cpuset" not in base.controllers


CAPTURED = Path(__file__).parents[1] / "fixtures/host/kvm-guest"

# Composed after the kernel's documents: a systemd machine on v1 with joined controllers, seen from inside a container
# without a cgroup namespace, so that the mounts show the container's own group as their root.
V1_IN_CONTAINER = """\
612 611 0:29 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,cpu,cpuacct
613 611 0:30 /docker/ab12 /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:12 - cgroup cgroup rw,memory
614 611 0:31 /docker/ab12 /sys/fs/cgroup/systemd ro,nosuid,nodev,noexec,relatime master:9 - cgroup cgroup rw,xattr,name=systemd
"""
V1_OWN = "11:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12/inner\n1:name=systemd:/docker/ab12\n0::/system.slice/containerd.service\n"

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V2_OWN = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u1.scope\n"


def test_captured_hybrid() -> None:
    layout = parse_layout((CAPTURED / "proc/self/mountinfo").read_text(), (CAPTURED / "proc/self/cgroup").read_text())
    assert layout.kind == "hybrid"
    assert layout.manager == "v1"
    assert layout.v1["memory"].own_dir == "/sys/fs/cgroup/memory/agent.slice/job-1"
    assert layout.v1["cpu"].own_dir == "/sys/fs/cgroup/cpu"
    assert layout.v2 == Hierarchy("/sys/fs/cgroup/unified", "/", "/")
    assert "name=systemd" not in layout.v1


def test_v1_with_joined_controllers_in_a_container() -> None:
    layout = parse_layout(V1_IN_CONTAINER, V1_OWN)
    assert (layout.kind, layout.manager) == ("v1", "v1")
    assert layout.v1["cpu"] == layout.v1["cpuacct"]
    assert layout.v1["cpu"].own_dir == "/sys/fs/cgroup/cpu,cpuacct/inner"
    assert layout.v1["memory"].own_dir == "/sys/fs/cgroup/memory"


def test_v2_alone() -> None:
    layout = parse_layout(V2, V2_OWN)
    assert (layout.kind, layout.manager) == ("v2", "v2")
    assert layout.v2 is not None
    chain = list(layout.v2.chain())
    assert chain[0].endswith("/run-u1.scope")
    assert chain[-1] == "/sys/fs/cgroup"
    assert len(chain) == 6


def test_v2_beside_v1_without_cpu_and_memory_manages() -> None:
    layout = parse_layout(V2 + "31 23 0:27 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls\n", V2_OWN + "2:net_cls:/\n")
    assert (layout.kind, layout.manager) == ("hybrid", "v2")


def test_memory_on_v1_and_cpu_on_v2_has_no_manager() -> None:
    layout = parse_layout(V2 + "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", V2_OWN + "2:memory:/\n")
    assert layout.manager is None


def test_nothing_mounted() -> None:
    layout = parse_layout("22 27 0:21 / /proc rw,relatime - proc proc rw\n", "")
    assert (layout.kind, layout.manager) == ("none", None)


def test_a_group_outside_of_what_is_mounted_falls_back_to_the_mount() -> None:
    assert Hierarchy("/sys/fs/cgroup", "/", "/../../other").own_dir == "/sys/fs/cgroup"
    assert Hierarchy("/sys/fs/cgroup", "/docker/a", "/docker/ab").own_dir == "/sys/fs/cgroup"


def test_mount_points_with_blanks() -> None:
    layout = parse_layout(V2.replace("/sys/fs/cgroup ", "/mnt/c\\040g "), V2_OWN)
    assert layout.v2 is not None
    assert layout.v2.mount == "/mnt/c g"


@given(st.text(), st.text())
def test_foreign_text_gives_an_empty_layout_and_no_error(mountinfo: str, own: str) -> None:
    assert parse_layout(mountinfo, own).kind in ("none", "v1", "v2", "hybrid")


def limited(tmp_path: Path, fake, files: dict[str, str]) -> Any:
    """A machine on which this process is in /a.slice/b.scope, with these files below the root of cgroup v2."""
    node = fake.unified(tmp_path, "/a.slice/b.scope")
    for name, text in files.items():
        (tmp_path / "sys/fs/cgroup" / name).write_text(f"{text}\n")
    return node


@pytest.mark.parametrize("row", GROUPS, ids=lambda row: row.report)
def test_surrounding_takes_the_tightest_of_the_chain(row: Groups, tmp_path: Path, fake) -> None:
    node = limited(tmp_path, fake, row.files)
    limits = enclosing_limits(node, read_layout(node))
    cores, memory, group = row.right
    assert (limits.cores, limits.memory, limits.memory_dir) == (cores, memory, group and f"{UNIFIED}/{group}")


@pytest.mark.parametrize("row", OTHER_LIMITS, ids=lambda row: row.report)
def test_limits_of_io_swap_and_huge_pages_are_kept_and_named(row: OtherLimits, tmp_path: Path, fake) -> None:
    node = limited(tmp_path, fake, row.files)
    limits = enclosing_limits(node, read_layout(node))
    assert [text.replace(f"{UNIFIED}/", "") for text in limits.others] == row.right and limits.exist == bool(row.right)
    assert cgroup_parent.find(node).where == (f"{UNIFIED}/a.slice/b.scope" if row.right else UNIFIED)


def test_v1_limits_of_io_and_swap(tmp_path: Path, fake) -> None:
    blkio = "615 611 0:32 /docker/ab12 /sys/fs/cgroup/blkio ro,nosuid,nodev,noexec,relatime master:13 - cgroup cgroup rw,blkio\n"
    files = {
        "/proc/self/mountinfo": V1_IN_CONTAINER + blkio,
        "/proc/self/cgroup": V1_OWN + "12:blkio:/docker/ab12/inner\n",
        "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "1073741824\n",
        "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device": "",
        "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device": "8:0 100\n",
        "/sys/fs/cgroup/blkio/inner/blkio.throttle.write_iops_device": "8:16 50\n",
        "/sys/fs/cgroup/blkio/inner/blkio.throttle.io_serviced": "8:16 Total 5\n",
    }
    node = fake.FakeNode(tmp_path, files)
    assert enclosing_limits(node, read_layout(node)).others == (
        "blkio.throttle.write_iops_device of /sys/fs/cgroup/blkio/inner is 8:16 50",
        "blkio.throttle.write_iops_device of /sys/fs/cgroup/blkio is 8:0 100",
        "memory.memsw.limit_in_bytes of /sys/fs/cgroup/memory is 1073741824",
    )


def test_v1_limits(tmp_path: Path, fake) -> None:
    files = {
        "/proc/self/mountinfo": V1_IN_CONTAINER,
        "/proc/self/cgroup": V1_OWN,
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us": "25000\n",
        "/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us": "50000\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    node = fake.FakeNode(tmp_path, files)
    limits = enclosing_limits(node, read_layout(node))
    assert limits.cores == pytest.approx(0.5)
    assert limits.memory is None


def test_no_limits_where_nothing_is_to_be_read(tmp_path: Path, fake) -> None:
    node = fake.FakeNode(tmp_path)
    assert enclosing_limits(node, read_layout(node)).cores is None
