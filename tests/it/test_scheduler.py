"""`--scheduler` with real servers: what Linux says about the processes of a trial, and of the script that repeats it."""

from __future__ import annotations

import contextlib
import os
import subprocess
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
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            policy = int(fields[41 - 3])  # field 41 of proc(5); the first one after the name is field 3
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
