from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host.cgroup_layout import Hierarchy, parse_layout, read_layout, surrounding

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


def test_surrounding_takes_the_tightest_of_the_chain(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/a.slice/b.scope")
    top = tmp_path / "sys/fs/cgroup"
    (top / "a.slice/cpu.max").write_text("150000 100000\n")
    (top / "a.slice/memory.max").write_text("4294967296\n")
    (top / "a.slice/b.scope/memory.max").write_text("8589934592\n")
    limits = surrounding(node, read_layout(node))
    assert limits.cores == pytest.approx(1.5)
    assert limits.memory == 4 << 30
    assert limits.memory_dir == "/sys/fs/cgroup/a.slice"


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
    limits = surrounding(node, read_layout(node))
    assert limits.cores == pytest.approx(0.5)
    assert limits.memory is None


def test_no_limits_where_nothing_is_to_be_read(tmp_path: Path, fake) -> None:
    node = fake.FakeNode(tmp_path)
    assert surrounding(node, read_layout(node)).cores is None
