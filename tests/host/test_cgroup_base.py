from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.host import cgroup_base, cgroup_layout

SCOPE = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-u1.scope"
UNIFIED = "/sys/fs/cgroup"


def left(root: Path) -> list[Path]:
    return [path for path in root.rglob("pgherd-probe-*") if path.is_dir()]


def test_root_makes_groups_at_the_top_of_v2(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice/session-1.scope")
    base = cgroup_base.find(node)
    assert (base.version, base.where, base.move, base.enable) == ("v2", UNIFIED, (), ())
    assert {"cpu", "cpuset", "memory", "io"} <= base.controllers
    assert left(tmp_path) == []


def test_the_top_may_have_to_hand_out_controllers_first(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/")  # our process stands in the root group, which may hold processes
    base = cgroup_base.find(node)
    assert base.enable == ("cpu", "cpuset", "memory")
    assert base.move == ()
    assert "io" not in base.controllers


def test_root_stays_below_a_limited_group(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/limited.slice/x.scope")
    (tmp_path / "sys/fs/cgroup/limited.slice/memory.max").write_text("1000000")
    assert cgroup_base.find(node).where == f"{UNIFIED}/limited.slice/x.scope"


def test_an_ordinary_user_uses_the_delegated_scope(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    base = cgroup_base.find(node)
    assert base.where == UNIFIED + SCOPE
    assert base.move == (os.getpid(),)
    assert base.enable == ("cpu", "cpuset", "memory")
    assert node.group_of(os.getpid()) == SCOPE, "finding changes nothing"
    assert left(tmp_path) == []


def test_processes_of_the_same_session_may_move_with_us(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    node.add_process(4242, SCOPE, session=os.getsid(0))
    assert set(cgroup_base.find(node).move) == {4242, os.getpid()}


def test_processes_of_others_are_not_moved(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, may_write=UNIFIED + SCOPE)
    node.add_process(4242, SCOPE, session=77)
    with pytest.raises(cgroup_base.NoBase, match=r"pid 4242.*systemd-run --user --scope -p Delegate=yes"):
        cgroup_base.find(node)


def test_without_delegation_the_way_to_it_is_named(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice/user-1000.slice/session-3.scope", may_write="/nowhere")
    with pytest.raises(cgroup_base.NoBase, match="Delegate=yes"):
        cgroup_base.find(node)


def test_missing_controllers_are_named(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, SCOPE, controllers="memory pids", may_write=UNIFIED + SCOPE)
    with pytest.raises(cgroup_base.NoBase, match="was not given the cpu controller"):
        cgroup_base.find(node)


def test_a_second_run_in_the_same_scope_uses_the_same_base(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, f"{SCOPE}/{cgroup_base.LEAF}", may_write=UNIFIED + SCOPE)
    base = cgroup_base.find(node)
    assert (base.where, base.move, base.enable) == (UNIFIED + SCOPE, (), ())


def test_a_container_with_its_own_namespace(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/", namespace=True)
    base = cgroup_base.find(node)
    assert base.where == UNIFIED
    assert base.move == (os.getpid(),), "a namespace's top is not the root group: it may not keep processes"


def test_no_cgroups_at_all(tmp_path: Path, fake) -> None:
    with pytest.raises(cgroup_base.NoBase, match="mount cgroup2"):
        cgroup_base.find(fake.FakeNode(tmp_path))


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
    base = cgroup_base.find(fake.FakeNode(tmp_path, v1_files("9223372036854771712")))
    assert base.version == "v1"
    assert base.parents == {"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory"}
    assert left(tmp_path) == []


def test_v1_below_a_limited_group(tmp_path: Path, fake) -> None:
    base = cgroup_base.find(fake.FakeNode(tmp_path, v1_files("1073741824")))
    assert base.parents["memory"] == "/sys/fs/cgroup/memory/a/b"
    assert base.parents["cpu"] == "/sys/fs/cgroup/cpu,cpuacct/a"


def test_sweep_removes_only_probes_of_the_dead(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/user.slice")
    node.add_process(31)
    for pid in (30, 31):
        node.make_dir(f"{UNIFIED}/pgherd-probe-{pid}")
    node.make_dir(f"{UNIFIED}/pgherd-run")
    assert cgroup_base.sweep(node) == [f"removed probe group {UNIFIED}/pgherd-probe-30"]
    assert [path.name for path in left(tmp_path)] == ["pgherd-probe-31"]
    assert (tmp_path / "sys/fs/cgroup/pgherd-run").exists()


def test_the_layout_of_this_machine_reads(fake) -> None:
    from pgherd.node.local import LocalNode

    assert cgroup_layout.read_layout(LocalNode()).kind in ("v1", "v2", "hybrid", "none")


def test_v1_does_without_what_was_not_delegated(tmp_path: Path, fake) -> None:
    """Only cpu and memory below a group of ours: no cpuset, and no pressure figures from the unified hierarchy."""
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
    base = cgroup_base.find(node)
    assert set(base.parents) == {"cpu", "cpuacct", "memory"}
    assert base.parents["memory"] == "/sys/fs/cgroup/memory/a/b"
    assert "cpuset" not in base.controllers
