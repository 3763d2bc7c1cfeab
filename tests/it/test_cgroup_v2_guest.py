"""The cgroup runtime on a kernel that has all controllers on v2: its own tests, run in a guest, by root; and a run of an ordinary user
in a subtree that was delegated to it, as systemd does it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 1500.0
"""Ten times what it takes on two quiet cores, emulation included."""

pytestmark = pytest.mark.timeout(SECONDS + 60)

_spec = importlib.util.spec_from_file_location("guest", Path(__file__).with_name("guest.py"))
assert _spec and _spec.loader
guest = importlib.util.module_from_spec(_spec)
sys.modules["guest"] = guest
_spec.loader.exec_module(guest)

DELEGATED = r"""
set -e
cd /sys/fs/cgroup
all='+cpu +memory +pids +cpuset +io'
echo "$all" > cgroup.subtree_control
mkdir user.slice && echo "$all" > user.slice/cgroup.subtree_control
mkdir user.slice/app.scope
for file in . cgroup.procs cgroup.subtree_control cgroup.threads; do chown nobody user.slice/app.scope/$file; done
mkdir -m 700 /run/home && chown nobody /run/home
# What only root may enter here is a directory of the guest's own once it is changed: the interpreter's way is opened there alone.
for directory in $WAYS; do chmod o+x "$directory"; done
as_user() { (echo 0 > user.slice/app.scope/cgroup.procs; cd /run/home; exec setpriv --reuid nobody --regid nogroup --clear-groups "$@"); }
as_user "$@" && code=0 || code=$?
echo "guest: density ended with $code, and left:" $(find /sys/fs/cgroup -name 'pgherd*') $(pgrep postgres)
"""


def in_guest(argv: list[str], **extra: str) -> guest.Ended:
    environment = {
        "PATH": os.defpath + ":/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "200",
        "HOME": "/run/home",
        "TMPDIR": "/run",
        "XDG_STATE_HOME": "/run/home/state",
        "XDG_CACHE_HOME": "/run/home/cache",
        "PGHERD_RUNS": "/run/home/runs",
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }
    if os.geteuid() != 0:
        pytest.skip("only root can share this machine's files with a guest")
    try:
        return guest.run(argv, environment, str(ROOT), SECONDS)
    except guest.NotToBeHad as error:
        pytest.skip(str(error))


def test_the_runtime_s_own_tests_on_v2() -> None:
    """All of them pass, and none is skipped: on v1 those that need v2 are. A guest has no fio and no block device."""
    tests = ["tests/it/test_cgroup_v2.py", "tests/it/test_cgroup_live.py", "-k", "not fio"]
    plain = ["-q", "-p", "no:cacheprovider", "-o", f"timeout={SECONDS:.0f}", "--basetemp=/run/pytest"]
    ended = in_guest([sys.executable, "-m", "pytest", *plain, *tests])
    closing = re.findall(r"^=*\s*(\d+ passed.*?)\s*=*$", ended.console, re.MULTILINE)
    assert ended.code == 0, ended.console[-6000:]
    assert closing and "skipped" not in closing[-1] and int(closing[-1].split()[0]) >= 14, ended.console[-6000:]


@pytest.mark.long
def test_an_ordinary_user_in_a_delegated_subtree() -> None:
    """Containers are made below the subtree, the run comes to its end, and nothing is left of it."""
    ways = {str(way) for path in (sys.executable, Path(sys.executable).resolve(), ROOT / "src") for way in Path(path).parents}
    request = ["density", "--databases", "1", "--scale", "1", "--vcpus", "0.5", "--no-report"]
    request += ["--repeats", "1", "--duration", "3s", "--warmup", "3s", "--time-budget", "6s"]
    argv = ["/bin/sh", "-c", DELEGATED, "sh", sys.executable, "-P", "-m", "pgherd", *request]
    ended = in_guest(argv, WAYS=" ".join(sorted(ways)))
    text = re.sub(r"\s+", " ", ended.console)
    assert ended.code == 0, ended.console[-6000:]
    assert "Runtime cgroup (the best available here): cgroup v2 below /sys/fs/cgroup/user.slice/app.scope;" in text, text[-6000:]
    assert re.search(r"1 database of 0\.5 vCPU made [\d,]+ tps", text), text[-6000:]
    assert re.search(r"guest: density ended with [01], and left: guest:", text), text[-6000:]


@pytest.mark.long
def test_a_memory_limit_that_changes_on_v2() -> None:
    """pg_balloon makes room for half of the limit while it is loaded, and the kernel kills nothing."""
    request = ["balloon", "limits", "--pools", "balloon", "--swap", "none", "--memory", "256MB", "--limits", "100,50,100", "--scale", "6"]
    request += ["--repeats", "1", "--duration", "30s", "--warmup", "15s", "--time-budget", "1s", "--rate", "20", "--yes", "--json"]
    ended = in_guest([sys.executable, "-P", "-m", "pgherd", *request], PYTHONPATH=str(ROOT / "src"), XDG_STATE_HOME="", XDG_CACHE_HOME="")
    found = re.search(r"^\{$.*?^\}$", ended.console, re.MULTILINE | re.DOTALL)
    assert ended.code in (0, 1) and found, ended.console[-6000:]
    document = json.loads(found[0])
    (pool,) = document["tables"]["pools"]
    assert pool["killed"] == "0 of 1", document["tables"]
    assert [row["refused"] for row in document["tables"]["balloon-limits"]] == ["0 of 1"] * 2, document["tables"]
