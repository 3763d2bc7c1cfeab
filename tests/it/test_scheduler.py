"""`--scheduler` with real servers: policies of the processes of a trial, of its printed script and on a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_BATCH = 3
"""SCHED_BATCH as a number in /proc/PID/stat."""
_NAMES = ("postmaster", "backend", "pgbench")


def _policies(ancestor: int) -> dict[str, int] | None:
    """Policies of a measured pgbench, its postmaster and a backend below this process. None while there is not one of each."""
    found: dict[str, int] = {}
    for pid in _descendants(ancestor):
        words, policy = _words(pid), _policy(pid)
        if words and policy is not None:
            program = Path(words[0]).name
            if program == "postgres" and "-D" in words:
                found["postmaster"] = policy
            elif words[0].startswith("postgres: ") and " bench [local]" in words[0] and "postgres bench" in words[0]:
                found["backend"] = policy
            elif program == "pgbench" and "-T" in words:
                found["pgbench"] = policy
    return found if set(found) == set(_NAMES) else None


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _policy(pid: int) -> int | None:
    """Return field 41 of proc(5), the policy of a process. None if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[41 - 3])  # the first one after the name is field 3
    return None


@pytest.mark.parametrize(
    ("scheduler", "batch"),
    [("batch", _NAMES), ("batch-servers", _NAMES[:2]), ("batch-clients", _NAMES[2:]), ("normal", ())],
)
def test_servers_and_clients_run_under_the_policy(pgherd, tmp_path, scheduler, batch):
    running = pgherd.start_density("--scheduler", scheduler, "--databases", "1", "--duration", "3s", "--repeats", "1")
    policies = pgherd.wait_until(lambda: _policies(running.pid) or running.poll() is not None)
    assert policies == {name: _BATCH if name in batch else 0 for name in _NAMES}, running.communicate() if policies is True else policies
    ended = pgherd.end(running)
    assert ended.code in (0, 1), ended
    shown = pgherd("show", "last", "1", "--repro-script")
    assert shown.code == 0, shown
    script = tmp_path / "repeat.sh"
    script.write_text(shown.out)
    repeated = subprocess.Popen(["sh", str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        again = pgherd.wait_until(lambda: _policies(repeated.pid) or repeated.poll() is not None)
    finally:
        said = repeated.communicate(timeout=60)[0]
    assert again == policies, said
    assert repeated.returncode == 0, said


def test_each_host_of_a_cluster_applies_the_policy(cluster):
    bed = cluster("a", "b")
    words = ("density", "--cluster", "default", "--host-cores", "1", "--host-memory", "1GB", "--vcpus", "0.5", "--scale", "1")
    words += ("--databases", "2", "--repeats", "1", "--duration", "5s", "--time-budget", "1s", "--no-report", "--scheduler", "batch")
    running = bed.start(*words)
    found: dict[tuple[str, str], set[int]] = {}
    while running.poll() is None:
        clients = {name: [pid for pid in bed.pids(name, "pgbench") if _program(pid) == "pgbench" and "-T" in _words(pid)] for name in "ab"}
        if all(clients.values()):
            servers = {name: [pid for pid in bed.pids(name, "postgres") if _program(pid) == "postgres"] for name in clients}
            for program, pids_of in (("pgbench", clients), ("postgres", servers)):
                for name, pids in pids_of.items():
                    found.setdefault((name, program), set()).update(policy for pid in pids if (policy := _policy(pid)) is not None)
        time.sleep(0.1)
    out, err = running.communicate()
    assert running.returncode in (0, 1), out + err
    assert found == {(name, program): {_BATCH} for name in ("a", "b") for program in ("pgbench", "postgres")}


def _words(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _program(pid: int) -> str:
    """Return the program's name. A server process has a title such as ``postgres: checkpointer``."""
    words = _words(pid)
    return Path(words[0].partition(":")[0]).name if words else ""
