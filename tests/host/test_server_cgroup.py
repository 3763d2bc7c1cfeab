"""The cgroup of a server that was there before: by path, process and container, as systemd and the container engines name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host import server_cgroup
from pgherd.host.server_cgroup import container_of
from pgherd.model.errors import UsageError

ID = "7f2c1d0e9b8a7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d"
OTHER = "7f2c1d" + "0" * 58
UNIFIED = "/sys/fs/cgroup"
POD = "kubepods-burstable-pod3f1b9c52_6f0e_4c59_9d7b_0f3b2a7c8d1e.slice"
# /proc/PID/cgroup of PostgreSQL below each engine, and the container's group.
V2 = {
    "docker": (f"0::/system.slice/docker-{ID}.scope\n", f"/system.slice/docker-{ID}.scope"),
    "docker-in-it": (f"0::/system.slice/docker-{ID}.scope/init.scope\n", f"/system.slice/docker-{ID}.scope"),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container\n", f"/machine.slice/libpod-{ID}.scope"),
    "podman-rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container\n",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
    ),
    "kubernetes-containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/{POD}/cri-containerd-{ID}.scope\n",
        f"/kubepods.slice/kubepods-burstable.slice/{POD}/cri-containerd-{ID}.scope",
    ),
    "kubernetes-crio": (
        f"0::/kubepods.slice/kubepods-burstable.slice/{POD}/crio-{ID}.scope\n",
        f"/kubepods.slice/kubepods-burstable.slice/{POD}/crio-{ID}.scope",
    ),
    "kubernetes-cgroupfs": (
        f"0::/kubepods/besteffort/pod3f1b9c52-6f0e-4c59-9d7b-0f3b2a7c8d1e/{ID}\n",
        f"/kubepods/besteffort/pod3f1b9c52-6f0e-4c59-9d7b-0f3b2a7c8d1e/{ID}",
    ),
    "containerd-with-cgroupfs": (
        f"0::/system.slice/containerd.service/{POD}:cri-containerd:{ID}\n",
        f"/system.slice/containerd.service/{POD}:cri-containerd:{ID}",
    ),
}
MOUNTS_V1 = "".join(
    f"{30 + number} 25 0:{40 + number} / /sys/fs/cgroup/{name} rw,nosuid - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("cpu,cpuacct", "memory", "blkio", "cpuset"))
)


def unified(root: Path, fake, groups: dict[int, str]):
    """A v2 machine: pgherd in a session, and processes 4711 and on in other groups."""
    node = fake.unified(root, "/user.slice/session-1.scope")
    for pid, text in groups.items():
        directory = root / "proc" / str(pid)
        directory.mkdir(parents=True)
        (directory / "cgroup").write_text(text)
        path = Path(str(root) + UNIFIED + text.strip().removeprefix("0::"))
        while path != Path(str(root) + UNIFIED):
            path.mkdir(parents=True, exist_ok=True)
            (path / "cgroup.procs").touch()
            path = path.parent
    return node


@pytest.mark.parametrize("engine", V2)
def test_a_container_is_found_by_the_first_digits_of_its_id(tmp_path: Path, fake, engine: str) -> None:
    text, group = V2[engine]
    monitor = f"0::/machine.slice/libpod-conmon-{ID}.scope\n"
    node = unified(tmp_path, fake, {4711: text, 4712: monitor})
    (tmp_path / f"{UNIFIED}{group}/io.stat".lstrip("/")).write_text("")
    found = server_cgroup.resolve(node, f"container:{ID[:12]}")
    assert found.path == group
    assert found.groups == {"v2": UNIFIED + group, "io": UNIFIED + group}
    assert container_of(text.strip().removeprefix("0::")) == ID


def test_a_systemd_service_is_found_by_its_process_its_path_and_its_directory(tmp_path: Path, fake) -> None:
    service = "/system.slice/system-postgresql.slice/postgresql@15-main.service"
    node = unified(tmp_path, fake, {4711: f"0::{service}\n"})
    slice_, top = Path(str(tmp_path) + UNIFIED + service).parent, Path(str(tmp_path) + UNIFIED + service)
    (slice_ / "cpu.max").write_text("150000 100000\n")
    (top / "cpu.max").write_text("max 100000\n")
    (top / "memory.max").write_text("2147483648\n")
    for text in ("pid:4711", service, UNIFIED + service):
        found = server_cgroup.resolve(node, text)
        assert (found.path, found.groups) == (service, {"v2": UNIFIED + service})
        assert (found.cores, found.memory) == (1.5, 2**31), "the slice's quota limits the service"
    (top / "cpuset.cpus.effective").write_text("2\n")
    assert server_cgroup.resolve(node, service).cores == 1
    assert container_of(service) is None


def test_v1_has_a_directory_per_controller(tmp_path: Path, fake) -> None:
    path = f"/docker/{ID}"
    files = {
        "/proc/self/mountinfo": MOUNTS_V1,
        "/proc/self/cgroup": "9:cpuset:/\n8:blkio:/user.slice\n4:memory:/user.slice\n3:cpu,cpuacct:/user.slice\n",
        "/proc/4711/cgroup": f"9:cpuset:/\n8:blkio:{path}\n4:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:{path}\n",
        f"/sys/fs/cgroup/cpu,cpuacct{path}/cpu.cfs_quota_us": "50000\n",
        f"/sys/fs/cgroup/cpu,cpuacct{path}/cpu.cfs_period_us": "100000\n",
        **{f"/sys/fs/cgroup/{name}{path}/cgroup.procs": "4711\n" for name in ("cpu,cpuacct", "memory", "blkio")},
        "/sys/fs/cgroup/cpuset/cgroup.procs": "1\n",
    }
    node = fake.FakeNode(tmp_path, files)
    found = server_cgroup.resolve(node, f"container:{ID}")
    directories = {"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct", "memory": "memory", "blkio": "blkio"}
    assert found.groups == {name: f"/sys/fs/cgroup/{directory}{path}" for name, directory in directories.items()}
    assert (found.cores, found.memory) == (0.5, None)


def test_what_is_not_the_servers_alone_is_refused(tmp_path: Path, fake) -> None:
    node = unified(tmp_path, fake, {4711: "0::/user.slice/session-1.scope\n", 4712: "0::/\n", 4713: "0::/../other\n"})
    for text, message in (
        ("pid:4711", "contains pgherd and its drivers too"),
        ("/user.slice", "contains pgherd and its drivers too"),
        ("pid:4712", "contains all processes of the host"),
        ("pid:4713", "the cgroup of process 4713 is not visible here"),
        ("pid:9999999", "there is no process 9999999 here"),
        ("/system.slice/gone.service", "there is no cgroup /system.slice/gone.service"),
        (f"container:{ID}", "no process of such a container"),
        ("container:db", "write it as /PATH, pid:N or container:ID"),
        ("db.service", "write it as /PATH, pid:N or container:ID"),
    ):
        with pytest.raises(UsageError, match=message):
            server_cgroup.resolve(node, text)


def test_digits_of_two_containers_are_too_few(tmp_path: Path, fake) -> None:
    node = unified(tmp_path, fake, {4711: V2["docker"][0], 4712: V2["docker"][0].replace(ID, OTHER)})
    with pytest.raises(UsageError, match=r"2 containers .* give more digits"):
        server_cgroup.resolve(node, "container:7f2c1d")
    assert server_cgroup.resolve(node, "container:7f2c1d0e").path.endswith(f"{ID}.scope")


def test_nothing_is_written(tmp_path: Path, fake) -> None:
    node = unified(tmp_path, fake, {4711: V2["podman"][0]})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    node.may_write = "/nowhere"
    server_cgroup.resolve(node, f"container:{ID}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
