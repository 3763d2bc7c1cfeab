"""Hosts as users have them: uids without an entry, read-only cgroups, inherited limits, and advice that must fit the cause."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.host.cgroup_parent import remedy
from reports import REMEDIES, Remedy

UNKNOWN_UID = 54321
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
    text = remedy(row.number, uid=row.uid, container=row.container, version=row.version)
    assert row.right in text
    assert row.uid != 0 or "run pgherd as root," not in text


@as_root
def test_doctor_and_a_study_agree_about_a_uid_without_an_entry(place: Path) -> None:
    place.chmod(0o777)
    change = f"exec setpriv --reuid={UNKNOWN_UID} --regid=0 --clear-groups"
    doctor = pgherd("doctor", before=change, directory=place)
    if "Permission denied" in doctor.stderr:
        pytest.skip("the interpreter is below a directory that other users cannot enter")
    assert f"uid {UNKNOWN_UID} has no entry among the users of this host" in doctor.stdout
    study = pgherd("density", "--databases", "1", "--dry-run", before=change, directory=place)
    assert study.returncode == 3 and f"uid {UNKNOWN_UID} has no entry" in study.stderr and "getent passwd" in study.stderr, study
    homeless = pgherd("density", "--databases", "1", "--dry-run", before=change, directory=place, home=False)
    assert homeless.returncode == 3 and "has no home directory" in homeless.stderr and "set HOME" in homeless.stderr, homeless
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
def test_a_hard_limit_that_is_too_low_is_refused_before_the_run_and_the_advised_one_is_enough(place: Path) -> None:
    study = ("scaling", "--clients", "1,500", "--runtime", "process", "--dry-run")
    refused = pgherd(*study, before="ulimit -Sn 300; ulimit -Hn 400; exec", directory=place)
    assert refused.returncode == 3 and "pgbench needs 56" in refused.stderr and "the hard limit of this process is 400" in refused.stderr
    needed = re.search(r"ulimit -Hn (\d+)", refused.stderr)
    assert needed, refused
    followed = pgherd(*study, before=f"ulimit -Sn 300; ulimit -Hn {needed[1]}; exec", directory=place)
    assert followed.returncode == 0, followed
