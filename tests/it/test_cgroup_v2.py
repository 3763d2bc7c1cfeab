"""The rules of cgroup v2 that the simulated tree of tests/host stands on, asked of a real kernel.

Any controller serves: on a machine whose cpu and memory controllers sit on v1, one that is left on v2 will do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import cgroup_parent
from pgherd.host.cgroup_parent import read_layout
from pgherd.host.cgroups import CgroupLimits, HostGroup
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import RemoveCgroup, RestoreSubtree, UndoContext
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Process

NODE = LocalNode()


@pytest.fixture
def top(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A fresh v2 group that was given a controller, and that controller's name."""
    layout = read_layout(NODE)
    if layout.v2 is None:
        pytest.skip("cgroup v2 is not mounted")
    mount = layout.v2.mount
    controllers = NODE.read(f"{mount}/cgroup.controllers").decode().split()
    if not controllers:
        pytest.skip("no controller is left on cgroup v2")
    name = next((x for x in ("hugetlb", "pids", "misc") if x in controllers), controllers[0])
    journal = Journal.open(NODE, tmp_path, "test")
    path = f"{mount}/pgherd-v2test-{os.getpid()}"
    enabled = name in NODE.read(f"{mount}/cgroup.subtree_control").decode().split()
    try:
        if not enabled:
            journal.note(RestoreSubtree(group=mount, controllers=(name,)))
            NODE.write(f"{mount}/cgroup.subtree_control", f"+{name}".encode())
        journal.note(RemoveCgroup(paths=(path,)))
        NODE.make_dir(path, mode=0o755)
    except OSError as error:
        journal.close()
        pytest.skip(f"no group can be made at the top of cgroup v2: {error}")
    try:
        yield path, name
    finally:
        remaining = [sentence for sentence in journal.close() if "not undone" in sentence]
        if remaining and all("holds the groups of another run" in sentence for sentence in remaining):
            # A pgherd that runs beside the tests keeps the journal from restoring this, as it should; nothing of it uses it.
            NODE.write(f"{mount}/cgroup.subtree_control", f"-{name}".encode())
            remaining = []
        assert not remaining
        assert not NODE.exists(path)


def sleeper(group: str) -> Process:
    process = NODE.spawn(Command(("sleep", "300"), join=(f"{group}/cgroup.procs",)))
    while str(process.pid).encode() not in NODE.read(f"{group}/cgroup.procs").split():
        assert process.poll() is None
    return process


def test_a_group_with_processes_hands_out_nothing(top: tuple[str, str]) -> None:
    path, name = top
    process = sleeper(path)
    with pytest.raises(OSError) as refused:
        NODE.write(f"{path}/cgroup.subtree_control", f"+{name}".encode())
    assert refused.value.errno == errno.EBUSY
    process.signal(9)
    process.wait(5)


def test_an_empty_request_changes_nothing(top: tuple[str, str]) -> None:
    """With it we find out whether we may write."""
    path, _ = top
    NODE.write(f"{path}/cgroup.subtree_control", b"\n")
    assert NODE.read(f"{path}/cgroup.subtree_control").strip() == b""


def test_processes_move_into_a_leaf_and_back(top: tuple[str, str]) -> None:
    path, name = top
    process = sleeper(path)
    leaf = f"{path}/{cgroup_parent.LEAF}"
    NODE.make_dir(leaf, mode=0o755)
    NODE.write(f"{leaf}/cgroup.procs", str(process.pid).encode())
    NODE.write(f"{path}/cgroup.subtree_control", f"+{name}".encode())
    with pytest.raises(OSError) as refused:
        NODE.write(f"{path}/cgroup.procs", str(process.pid).encode())
    assert refused.value.errno == errno.EBUSY

    undo = RestoreSubtree(group=path, controllers=(name,), leaf=leaf)
    assert undo.play(UndoContext(NODE, "id")) == f"restored cgroup {path}"
    assert NODE.read(f"{path}/cgroup.procs").split() == [str(process.pid).encode()]
    assert NODE.read(f"{path}/cgroup.subtree_control").strip() == b""
    assert not NODE.exists(leaf)
    assert process.poll() is None, "nothing is killed"
    process.signal(9)
    process.wait(5)


def test_removal_kills_in_nested_groups(top: tuple[str, str]) -> None:
    path, _ = top
    NODE.make_dir(f"{path}/a/b", mode=0o755)
    running = [sleeper(path), sleeper(f"{path}/a"), sleeper(f"{path}/a/b")]
    text = RemoveCgroup(paths=(path,)).play(UndoContext(NODE, "id"))
    assert text is not None
    assert "3 processes" in text
    assert [process.wait(5) for process in running] == [-9, -9, -9]


def test_a_group_below_the_top_has_a_type(top: tuple[str, str]) -> None:
    """By its absence we know the root group, which may hold processes and hand out controllers at once."""
    path, _ = top
    assert NODE.exists(f"{path}/cgroup.type")


def test_a_host_group_on_v2(tmp_path: Path) -> None:
    layout = read_layout(NODE)
    if layout.manager != "v2":
        pytest.skip(f"cpu and memory sit on {layout.manager or 'no version'}, not on v2; tests/host runs this path on a simulated tree")
    try:
        base = cgroup_parent.find(NODE, layout)
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    control = f"{base.where}/cgroup.subtree_control"
    before = NODE.read(control).split()
    journal = Journal.open(NODE, tmp_path, "test")
    host = HostGroup(NODE, journal, base, f"v2test-{os.getpid()}")
    host.make(CgroupLimits(memory=1 << 30))
    try:
        group = host.add("db01", CgroupLimits(cores=0.5, memory=64 << 20))["v2"]
        assert {b"cpu", b"memory"} <= set(NODE.read(f"{group}/cgroup.controllers").split())
        assert NODE.read(f"{group}/cpu.max") == b"50000 100000\n"
    finally:
        assert host.close() == []
        assert journal.close() == []
    assert NODE.read(control).split() == before
