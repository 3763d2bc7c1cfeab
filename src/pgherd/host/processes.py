"""Processes by pid and start time, so that a recycled pid is never mistaken for the process it once named."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from pgherd.node.protocol import Command, Node


def stat_fields(node: Node, pid: int | str) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` from 'state' on (proc(5): field 3 is index 0); None when it is gone."""
    try:
        text = node.read(f"/proc/{pid}/stat").decode(errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may itself hold blanks and parentheses.
    return text.rpartition(")")[2].split()


def start_time(node: Node, pid: int | str) -> int | None:
    """When it started, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    fields = stat_fields(node, pid)
    if fields is None or len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def boot_id(node: Node) -> str:
    """The kernel's random identifier of this boot: start times compare within one boot only."""
    try:
        return node.read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""


def kill(node: Node, pids: Sequence[int]) -> None:
    """Send SIGKILL; those that have ended meanwhile are no error."""
    if pids:
        # The shell's own kill: not every machine has a program of that name. The script is constant.
        script = 'for pid; do kill -s KILL "$pid" 2>/dev/null; done; :'
        node.run(Command(("/bin/sh", "-c", script, "sh", *map(str, pids))))


def working_in(node: Node, directory: str, names: Sequence[str]) -> list[int]:
    """Pids of the programs with one of these names whose working directory is ``directory`` or lies in it.

    Of processes of other users only root sees the working directory.
    """
    plain = re.sub(r"([][*?\\])", r"\\\1", directory)  # find takes a pattern
    looked = ("find", "/proc", "-maxdepth", "2", "-name", "cwd", "(", "-lname", plain, "-o", "-lname", f"{plain}/*", ")", "-printf", "%h\n")
    pids = [path.removeprefix("/proc/") for path in node.run(Command(looked)).out.splitlines()]
    return [int(pid) for pid in pids if pid.isdigit() and _name(node, pid) in names]


def topmost(node: Node, names: Sequence[str]) -> list[int]:
    """Pids of the processes with one of these names whose parent has another: the postmasters among PostgreSQL's."""
    pids = [name for name in node.listdir("/proc") if name.isdigit() and _name(node, name) in names]
    parents = {pid: fields[1] for pid in pids if (fields := stat_fields(node, pid)) is not None}
    return sorted(int(pid) for pid, parent in parents.items() if parent not in parents)


def _name(node: Node, pid: str) -> str:
    try:
        return node.read(f"/proc/{pid}/comm").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_until(done: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll until ``done()``; False when it has not come true within ``seconds``."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return True


def counted(number: int) -> str:
    """``1 process``, ``3 processes``."""
    return f"{number} process{'' if number == 1 else 'es'}"
