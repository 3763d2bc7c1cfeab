"""Hosts as users have them: uids without an entry, read-only cgroups, inherited limits, and advice that must fit the cause."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.cgroup_parent import read_layout, remedy
from pgherd.host.facts import parse_process_limits
from pgherd.node.local import LocalNode
from reports import ACCOUNTS, OPEN_FILES, REMEDIES, TASKS, Account, OpenFiles, Remedy, Tasks

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the uid and to mount")


def pgherd(*words: str, before: str, directory: Path, home: bool = True) -> subprocess.CompletedProcess[str]:
    """Run pgherd in a directory, after other commands of a shell, with the directory as HOME or without HOME."""
    environment = {name: value for name, value in os.environ.items() if name != "HOME" and not name.startswith(("XDG_", "PGHERD_"))}
    environment |= {"COLUMNS": "1000"} | ({"HOME": str(directory)} if home else {})
    program = f'{before} "$@"'
    argv = ["unshare", "--mount", "sh", "-c", program, "sh", sys.executable, "-m", "pgherd", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=directory, timeout=120)


@pytest.mark.parametrize("row", REMEDIES, ids=lambda row: row.report)
def test_advice_fits_the_cause(row: Remedy) -> None:
    text = remedy(row.number, uid=row.uid, container=row.container, version=row.version, delegated=row.delegated)
    assert row.right in text
    assert row.uid != 0 or "run pgherd as root," not in text


@as_root
@pytest.mark.parametrize("row", ACCOUNTS, ids=lambda row: row.report)
def test_doctor_and_a_study_agree_about_an_account(row: Account, place: Path) -> None:
    place.chmod(0o777)
    change = f"exec setpriv --reuid={row.uid} --regid=0 --clear-groups"
    doctor = pgherd("doctor", before=change, directory=place, home=row.home)
    if "Permission denied" in doctor.stderr:
        pytest.skip("the interpreter is below a directory that other users cannot enter")
    assert row.doctor in doctor.stdout, doctor
    study = pgherd("density", "--databases", "1", "--dry-run", before=change, directory=place, home=row.home)
    assert study.returncode == 3 and not [part for part in row.right if part not in study.stderr], study
    assert not (place / "~").exists()


@as_root
def test_following_the_advice_makes_cgroups_writable(place: Path) -> None:
    """In a mount namespace of its own, cgroups are hidden or read-only. Then the advice for a host without a container is followed."""
    find = "from pgherd.host import cgroup_parent as c; from pgherd.node.local import LocalNode\n"
    find += "try: print(c.find(LocalNode()).version)\nexcept c.CgroupUnavailable as error: print('unavailable', error)"

    def found(*steps: str) -> list[str]:
        script = "\n".join(("set -e", *('"$1" -c "$2"' if step == "find" else step for step in steps)))
        argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, find]
        finished = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert finished.returncode == 0, finished
        return finished.stdout.splitlines()

    (usual,) = found("find")
    if usual.startswith("unavailable"):
        pytest.skip(usual)
    hidden, restored = found("mount -t tmpfs -o ro tmpfs /sys/fs/cgroup", "find", "umount /sys/fs/cgroup", "find")
    assert hidden.startswith("unavailable") and "run pgherd as root" not in hidden and "boot with" not in hidden
    assert restored == usual
    groups = "$(findmnt -rn -o TARGET -t cgroup,cgroup2)"
    frozen, thawed = found(
        f"for g in {groups}; do mount -o remount,ro,bind $g; done",
        "find",
        f"for g in {groups}; do mount -o remount,rw,bind $g; done",
        "find",
    )
    assert frozen.startswith("unavailable") and "Read-only file system" in frozen
    assert thawed == usual


def test_a_driver_with_many_clients_gets_the_open_files_that_it_needs() -> None:
    """The soft limit of a login is low. Other commands keep it, and a hard limit is named before the command starts."""
    code = """
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.node.process import require_open_files
count = ["sh", "-c", "ulimit -Sn"]
print(LocalNode().run(Command(count, open_files=300)).out.strip(), LocalNode().run(Command(count)).out.strip())
try:
    require_open_files(500, "pgbench")
except Exception as error:
    print(type(error).__name__, error)
"""
    limited = ["sh", "-c", 'ulimit -Sn 128 && ulimit -Hn 400 && exec "$@"', "sh", sys.executable, "-c", code]
    finished = subprocess.run(limited, capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines()[0] == "300 128"
    assert "CapabilityError pgbench needs 500 open files, but the hard limit of this process is 400" in finished.stdout


@as_root
@pytest.mark.parametrize("row", OPEN_FILES, ids=lambda row: row.report)
def test_a_limit_of_open_files_is_raised_or_refused_before_the_run_and_the_advised_one_is_enough(row: OpenFiles, place: Path) -> None:
    study = ("scaling", "--clients", f"1,{row.clients}", "--runtime", "process", "--dry-run")
    limited = pgherd(*study, before=f"ulimit -Sn {row.soft}; ulimit -Hn {row.hard}; exec", directory=place)
    if row.right is None:
        assert limited.returncode == 0, limited
        return
    assert limited.returncode == 3 and not [part for part in row.right if part not in limited.stderr], limited
    needed = re.search(r"ulimit -Hn (\d+)", limited.stderr)
    assert needed, limited
    followed = pgherd(*study, before=f"ulimit -Sn {row.soft}; ulimit -Hn {needed[1]}; exec", directory=place)
    assert followed.returncode == 0, followed


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup with the pids controller."""
    layout = read_layout(LocalNode())
    hierarchy = layout.v1.get("pids", layout.v2)
    if hierarchy is None:
        pytest.skip("no cgroups are mounted")
    path = Path(hierarchy.own_dir, f"pgherd-test-tasks-{os.getpid()}")
    path.mkdir()
    try:
        if not (path / "pids.max").exists():
            pytest.skip("the controller pids is not enabled for new groups")
        yield path
    finally:
        path.rmdir()


@as_root
@pytest.mark.parametrize("row", TASKS, ids=lambda row: row.report)
def test_a_limit_of_processes_is_refused_before_the_run_and_the_advised_one_is_enough(row: Tasks, group: Path, place: Path) -> None:
    def limited(value: int) -> subprocess.CompletedProcess[str]:
        steps = {
            "pids.max": f"echo {value} >{group}/pids.max; echo $$ >{group}/cgroup.procs",
            "ulimit -u": f"prlimit --pid $$ --nproc={value}",
        }
        study = ("scaling", "--clients", f"1,{row.clients}", "--runtime", "process", "--dry-run")
        return pgherd(*study, before=f"{steps[row.limit]}; exec", directory=place)

    ended = limited(row.value)
    if row.right is None:
        assert ended.returncode == 0, ended
        return
    assert ended.returncode == 3 and not [part for part in row.right if part not in ended.stderr], ended
    for _ in range(3):  # the user may run servers of others, which come and go
        advised = re.search(r"echo (\d+) >|ulimit -u (\d+)", ended.stderr)
        assert advised, ended
        ended = limited(int(advised[1] or advised[2]))
        if ended.returncode == 0:
            break
    assert ended.returncode == 0, ended


def test_limits_of_a_shell_are_named() -> None:
    """A CPU time of 60 s would end each server, and a file size of 1 MB each database."""
    shell = "ulimit -St 60; ulimit -Sf 1024; ulimit -Sv 8000000; cat /proc/self/limits"
    limited = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert parse_process_limits(limited) == [
        "cpu time of a process (ulimit -t) is 60 seconds",
        "file size of a process (ulimit -f) is 1048576 bytes",
        "address space of a process (ulimit -v) is 8192000000 bytes",
    ]
    unlimited = re.sub(r"^(Max (?:cpu time|file size|data size|address space) +)\d+ ", r"\1unlimited ", limited, flags=re.MULTILINE)
    assert parse_process_limits(unlimited) == []
