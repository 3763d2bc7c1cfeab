"""Limits of tasks, which are processes and threads: ``pids.max`` of cgroups (cgroup-v2.rst) and RLIMIT_NPROC (getrlimit(2))."""

from __future__ import annotations

import os
import pwd
import re
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgherd.host.cgroup_parent import CgroupHierarchies, enclosing_limits, read_layout
from pgherd.host.kernel_files import names_in, text_of
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

RESERVE = 64
"""Tasks that the advised limit leaves for the rest of the group or the user."""


@dataclass(frozen=True)
class TaskLimit:
    """Limit of tasks, of which ``used`` exist. ``setting`` raises it, with ``{}`` for the new value."""

    name: str
    maximum: int
    used: int
    setting: str


def task_limits(node: Node, account: str | None, *, in_cgroups: bool) -> list[TaskLimit]:
    """Return the limits of servers that run as ``account`` (None: the current user). ``in_cgroups``: they get cgroups of their own."""
    return [
        *_of_groups(node, read_layout(node), in_cgroups),
        *_of_user(node, os.geteuid() if account is None else pwd.getpwnam(account).pw_uid),
    ]


def require_tasks(count: int, limits: Iterable[TaskLimit]) -> None:
    """Require that ``count`` further tasks can start. Raises CapabilityError with each limit that is too low."""
    low = [limit for limit in limits if limit.used + count > limit.maximum]
    if low:
        values = " and ".join(f"{limit.name} is {limit.maximum}, of which {limit.used} are in use" for limit in low)
        settings = " and ".join(limit.setting.format(limit.used + count + RESERVE) for limit in low)
        raise CapabilityError(
            f"a trial needs at least {count} processes and threads, but {values}; raise it as root ({settings}), or use fewer databases or "
            "clients"
        )


def _of_groups(node: Node, layout: CgroupHierarchies, in_cgroups: bool) -> list[TaskLimit]:
    hierarchy = layout.v1.get("pids", layout.v2)
    if hierarchy is None or (in_cgroups and "pids" not in layout.v1 and _leave_their_group(node, layout)):
        return []
    values = [(directory, text_of(node, f"{directory}/pids.max")) for directory in hierarchy.chain()]
    return [
        TaskLimit(
            f"pids.max of {directory}",
            int(text),
            int(text_of(node, f"{directory}/pids.current") or 0),
            f"echo {{}} >{directory}/pids.max, TasksMax= of the service or --pids-limit of the container",
        )
        for directory, text in values
        if text.isdigit()
    ]


def _leave_their_group(node: Node, layout: CgroupHierarchies) -> bool:
    """Return True if the cgroups of servers are at the top of cgroup v2 (``cgroup_parent.find``), outside the group of any container."""
    at_root = layout.v2 is not None and not node.exists(f"{layout.v2.mount}/cgroup.type")
    return at_root and os.geteuid() == 0 and not enclosing_limits(node, layout).exist


def _of_user(node: Node, uid: int) -> list[TaskLimit]:
    """Return the limit of a user, which servers and drivers inherit from this process. Root has none."""
    maximum = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if uid == 0 or maximum == resource.RLIM_INFINITY:
        return []
    statuses = [text_of(node, f"/proc/{pid}/status") for pid in names_in(node, "/proc") if pid.isdigit()]
    return [TaskLimit(f"the limit of uid {uid} (ulimit -u)", maximum, _tasks(statuses, uid), "ulimit -u {}, or LimitNPROC= of the service")]


def _tasks(statuses: Sequence[str], uid: int) -> int:
    """Return the number of tasks of a real uid, from the texts of /proc/PID/status (proc(5))."""
    ours = (status for status in statuses if re.search(rf"^Uid:\t{uid}\t", status, re.MULTILINE))
    return sum(int(match[1]) for status in ours if (match := re.search(r"^Threads:\t(\d+)$", status, re.MULTILINE)))
