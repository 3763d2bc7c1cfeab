"""The host's CPU time, context switches and forks, from /proc/stat (documentation: proc(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second in which /proc counts CPU time (100 on all current Linux ports, so also on another node)."""

_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_OTHERS = {"ctxt": "ctxt", "processes": "forks", "procs_running": "procs_running", "procs_blocked": "procs_blocked"}


class CpuSampler:
    """All CPUs of the host summed.

    The kernel counts guests' time in user and nice as well as in columns of their own. Here it is counted once, in
    ``cpu.user``, niced guests included; ``cpu.nice`` is without them; so the eight metrics add up to the CPUs' time, but
    for what a kernel that counts by ticks misses (``CONFIG_TICK_CPU_ACCOUNTING``: time in use is sampled, idle time is
    measured). ``cpu.online`` tells how much there is.
    """

    name = "cpu"
    metrics = (
        Metric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        Metric("cpu.nice", "s", "counter", "CPU time in user mode at low priority, guests excluded"),
        Metric("cpu.system", "s", "counter", "CPU time in the kernel, interrupts excluded"),
        Metric("cpu.idle", "s", "counter", "CPU time idle"),
        Metric("cpu.iowait", "s", "counter", "CPU time idle while a task of that CPU waited for I/O"),
        Metric("cpu.irq", "s", "counter", "CPU time in hardware interrupts"),
        Metric("cpu.softirq", "s", "counter", "CPU time in soft interrupts"),
        Metric("cpu.steal", "s", "counter", "time in which the hypervisor ran something else though this host wanted to run"),
        Metric("cpu.online", "CPUs", "gauge", "CPUs that are online"),
        Metric("ctxt", "switches", "counter", "context switches"),
        Metric("forks", "tasks", "counter", "tasks created"),
        Metric("procs_running", "tasks", "gauge", "tasks that run or want to"),
        Metric("procs_blocked", "tasks", "gauge", "tasks blocked on I/O"),
    )

    def sources(self, view: View) -> list[Source]:
        """/proc/stat."""
        return [Source(self.name, "host", "file", "/proc/stat")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; columns that an old kernel lacks are zero."""
        values: dict[str, float] = {}
        online = 0
        for line in raw.splitlines():
            key, _, rest = line.partition(" ")
            if key == "cpu":
                columns = [number(text) / TICKS for text in rest.split()[: len(_COLUMNS)]]
                times = dict(zip(_COLUMNS, columns + [0.0] * (len(_COLUMNS) - len(columns)), strict=True))
                times["user"] += times["guest_nice"]
                times["nice"] = max(0.0, times["nice"] - times["guest_nice"])
                values |= {f"cpu.{name}": times[name] for name in _COLUMNS[:8]}
            elif key.startswith("cpu") and key[3:].isdigit():
                online += 1
            elif key in _OTHERS:
                values[_OTHERS[key]] = number(rest.strip())
        if "cpu.user" not in values:
            raise ValueError(f"no 'cpu' line in a text that begins with '{raw[:40]}'")
        if online:
            values["cpu.online"] = float(online)
        yield source.entity, values


SAMPLER = CpuSampler()
