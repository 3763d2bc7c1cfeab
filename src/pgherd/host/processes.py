"""Processes by pid and start time, because the kernel reuses pids."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from pgherd.node.protocol import Command, Node


def stat_fields(node: Node, pid: int | str) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from 'state' on (proc(5) field 3).

    The result is None after its end.
    """
    try:
        text = node.read(f"/proc/{pid}/stat").decode(errors="replace")
    except OSError:
        return None
    # The second field, the program's name in parentheses, may contain blanks and parentheses.
    return text.rpartition(")")[2].split()


def start_time(node: Node, pid: int | str) -> int | None:
    """Return the start time in clock ticks since boot.

    The result is None for a process that has ended, and for a zombie.
    """
    fields = stat_fields(node, pid)
    if fields is None or len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def users(node: Node, pid: int | str) -> set[int]:
    """Return the real, effective, saved and file system uid. The result is empty after the end of the process."""
    try:
        status = node.read(f"/proc/{pid}/status").decode(errors="replace")
    except OSError:
        return set()
    line = next((line for line in status.splitlines() if line.startswith("Uid:")), "")
    return {int(uid) for uid in line.split()[1:]}


def boot_id(node: Node) -> str:
    """Return the kernel's identifier of this boot.

    Start times are comparable only within one boot.
    """
    try:
        return node.read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""


def kill(node: Node, pids: Sequence[int]) -> None:
    """Send SIGKILL to processes, which may have ended already."""
    if pids:
        # The shell's builtin, because not every machine has a program of that name. The script is constant.
        script = 'for pid; do kill -s KILL "$pid" 2>/dev/null; done; :'
        node.run(Command(("/bin/sh", "-c", script, "sh", *map(str, pids))))


def working_in(node: Node, directory: str, names: Sequence[str]) -> list[int]:
    """Return the pids of programs with these names that work in ``directory``.

    Only root can read the working directory of other users' processes.
    """
    pattern = re.sub(r"([][*?\\])", r"\\\1", directory)  # -lname takes a pattern
    argv = (
        "find",
        "/proc",
        "-maxdepth",
        "2",
        "-name",
        "cwd",
        "(",
        "-lname",
        pattern,
        "-o",
        "-lname",
        f"{pattern}/*",
        ")",
        "-printf",
        "%h\n",
    )
    pids = [path.removeprefix("/proc/") for path in node.run(Command(argv)).out.splitlines()]
    return [int(pid) for pid in pids if pid.isdigit() and _name(node, pid) in names]


def topmost(node: Node, names: Sequence[str]) -> list[int]:
    """Return the pids of processes with these names whose parent has another name."""
    pids = [name for name in node.listdir("/proc") if name.isdigit() and _name(node, name) in names]
    parents = {pid: fields[1] for pid in pids if (fields := stat_fields(node, pid)) is not None}
    return sorted(int(pid) for pid, parent in parents.items() if parent not in parents)


def _name(node: Node, pid: str) -> str:
    try:
        return node.read(f"/proc/{pid}/comm").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_until(done: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll until ``done()`` is true; False after ``seconds``."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return True


def counted(number: int) -> str:
    """Format a number of processes: ``1 process``, ``3 processes``."""
    return f"{number} process{'' if number == 1 else 'es'}"
