import os

import pytest

from pgherd.host.cgroup_parent import CgroupHierarchies, Hierarchy
from pgherd.metrics.sampler import CgroupView, ProcessView
from pgherd.model.errors import UsageError
from pgherd.runner.deploy.tracked_processes import TrackedGroup, check, parse, watch

V1 = CgroupHierarchies(v1={"cpuacct": Hierarchy("/cg/cpu,cpuacct"), "memory": Hierarchy("/cg/memory")}, v2=Hierarchy("/cg/unified"))
V2 = CgroupHierarchies(v2=Hierarchy("/cg"))
OURS = os.getpid()


class Files:
    """A node whose files are a mapping from path to text."""

    def __init__(self, files):
        self.files = files

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path].encode()

    def exists(self, path):
        return any(name == path or name.startswith(path + "/") for name in self.files)

    def listdir(self, path):
        return sorted({name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(path + "/")})


def process(pid, comm, cmdline="", parent=1, group="/"):
    return {
        f"/proc/{pid}/comm": comm + "\n",
        f"/proc/{pid}/cmdline": cmdline,
        f"/proc/{pid}/stat": f"{pid} ({comm}) S {parent} 1 1",
        f"/proc/{pid}/cgroup": f"3:cpuacct:{group}\n0::{group}\n",
    }


def machine(*, mounts="", groups=(), own="/user.slice/session", **extra):
    files = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": f"3:cpuacct:{own}\n0::{own}\n"}
    for path in groups:
        files[path] = "1\n"
    for part in extra.values():
        files |= part
    return Files(files)


MOUNTS = "30 20 0:1 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n31 20 0:2 / /cg/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("text", "layout", "part"),
    [
        ("process=controller", V1, TrackedGroup("process", "controller")),
        ("process= postgres: checkpointer ", V1, TrackedGroup("process", "postgres: checkpointer")),
        ("cgroup=/system.slice/ssh.service", V1, TrackedGroup("cgroup", "system.slice/ssh.service")),
        ("cgroup=system.slice", V2, TrackedGroup("cgroup", "system.slice")),
        ("cgroup=/cg/memory/system.slice/", V1, TrackedGroup("cgroup", "system.slice")),
        ("cgroup=/cg/system.slice", V2, TrackedGroup("cgroup", "system.slice")),
        ("cgroup=/a/../b", V2, TrackedGroup("cgroup", "b")),
    ],
)
def test_parts_are_read(text, layout, part):
    assert parse((text,), layout) == (part,)
    assert part.entity == f"platform:{part.name}"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("controller",), "write it as process=NAME or cgroup=PATH"),
        (("process=",), "write it as process=NAME"),
        (("unit=x",), "unknown kind 'unit'; write it as"),
        (("process=/usr/bin/qemu",), "without its directory: process=qemu"),
        (("cgroup=/",), "the root group contains all processes; give one below it"),
        (("cgroup=/cg/unified",), "the root group contains all processes; give one below it"),
        (("cgroup=/../..",), "the root group contains all processes; give one below it"),
        (("process=a", "process=a"), "process=a overlaps"),
        (("process=a", "cgroup=/a"), "process=a overlaps"),
        (("cgroup=/a/b", "cgroup=/a"), "cgroup=a/b overlaps and would be counted twice"),
        (("cgroup=/a", "cgroup=/cg/memory/a/b"), "cgroup=a overlaps"),
    ],
)
def test_what_is_no_part_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        parse(texts, V1)


def test_groups_beside_each_other_and_names_that_begin_alike_are_no_overlap():
    assert len(parse(("cgroup=/a/b", "cgroup=/a/bc", "process=a"), V1)) == 3


def test_processes_are_found_by_command_or_program_name_but_ours_are_not():
    node = machine(
        a=process(10, "controller"),
        b=process(11, "python3", "/opt/x/controller\0--flag\0"),
        c=process(12, "controller-2", "controller-2\0"),
        d=process(13, "controller", parent=OURS),
        e=process(OURS, "controller"),
        f=process(14, "controller", parent=13),
        g=process(15, "other", "/bin/other\0controller\0"),
    )
    result = watch(node, ("process=controller",))
    assert result.processes == [ProcessView("platform:controller", 10), ProcessView("platform:controller", 11)]
    assert result.groups == []


def test_a_process_in_a_named_group_is_counted_there_only():
    node = machine(
        mounts=MOUNTS,
        groups=("/cg/cpuacct/sys/cpuacct.usage",),
        a=process(10, "x", group="/sys/deep"),
        b=process(11, "x", group="/system"),
    )
    result = watch(node, ("process=x", "cgroup=/sys"))
    assert result.processes == [ProcessView("platform:x", 11)]
    assert result.groups == [CgroupView("platform:sys", {"cpuacct": "/cg/cpuacct/sys"})]


def test_a_group_that_only_version_2_has_is_read_there():
    node = machine(mounts=MOUNTS, groups=("/cg/unified/sys/cpu.stat",))
    assert watch(node, ("cgroup=/sys",)).groups == [CgroupView("platform:sys", {"v2": "/cg/unified/sys"})]


def test_what_is_gone_is_left_out_and_nothing_named_reads_nothing():
    assert watch(machine(mounts=MOUNTS), ("process=x", "cgroup=/sys")).processes == []
    assert watch(Files({}), ()).groups == []


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        ("process=absent", None, "no process outside pgherd has this name now"),
        ("cgroup=/absent", None, "no such cgroup with a CPU counter"),
        ("cgroup=/user.slice", None, "this cgroup contains pgherd and what it measures"),
        ("cgroup=/user.slice/session", None, "this cgroup contains pgherd and what it measures"),
        ("cgroup=/sys", "/cg/cpuacct/sys/deep", "this cgroup contains pgherd and what it measures"),
    ],
)
def test_what_cannot_be_accounted_for_is_said_before_anything_is_measured(text, base, message):
    groups = [f"/cg/cpuacct/{name}/cpuacct.usage" for name in ("sys", "user.slice", "user.slice/session")]
    with pytest.raises(UsageError, match=message):
        check(machine(mounts=MOUNTS, groups=groups), (text,), base)


def test_what_is_there_passes_the_check():
    node = machine(mounts=MOUNTS, groups=("/cg/cpuacct/sys/cpuacct.usage",), a=process(10, "x"))
    check(node, ("cgroup=/sys", "process=x"), "/cg/cpuacct")
