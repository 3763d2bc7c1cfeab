"""What the kernel's log says of processes that were ended for want of memory: who, when, and at whose limit.

Format: mm/oom_kill.c of the kernel, ``dump_oom_summary`` (since Linux 5.0): one line per victim that begins with ``oom-kill:``. Many
in a short time are not all logged; control groups count every one (pgherd.host.cgroups.oom_kills).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgherd.host.cgroup_layout import text_of
from pgherd.node.protocol import Command, Node

_LINE = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\] oom-kill:(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Victim:
    """A process that was ended: when (seconds since the epoch), its name and pid, its control group, and the group whose limit was
    reached ('' where the whole machine had no memory left)."""

    at: float
    process: str
    pid: int
    group: str
    limited: str


def victims(node: Node, since: float) -> list[Victim]:
    """Those since an instant (seconds since the epoch), in order of time; empty where the log is not to be read (it takes root)."""
    try:
        done = node.run(Command(("dmesg", "--raw")))
    except (OSError, TimeoutError):
        return []
    uptime = text_of(node, "/proc/uptime").split()
    if done.code or not uptime:
        return []
    return [one for one in parse(done.out, node.now() - float(uptime[0])) if one.at >= since]


def parse(log: str, boot: float) -> list[Victim]:
    """Victims in the text of the log; ``boot`` is the instant from which it counts seconds. The log's clock may run a little apart."""
    found = []
    for stamp, line in _LINE.findall(log):
        fields = dict(re.findall(r"(\w+)=([^,]*)", line))
        if fields.get("pid", "").isdigit():
            limited = fields.get("oom_memcg", "")
            found.append(Victim(boot + float(stamp), fields.get("task", ""), int(fields["pid"]), fields.get("task_memcg", ""), limited))
    return found
