"""CPU that the kernel used for the I/O of the servers: a part of the platform's overhead (E2), not work of other programs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pgherd.model.device_io import DeviceIo
from pgherd.model.result import PhaseResult

KERNEL_IO_PART = "kernel-io"
"""Named part of the platform."""
STACKED = ("dm-", "md", "loop", "zram")
"""Name prefixes of devices that pass their requests to other devices."""


def kernel_io(phase: PhaseResult) -> float | None:
    """Return the CPU of kernel threads and interrupts for the servers' devices in a phase, in cores. None if threads were not seen.

    Threads count by the share of all devices' requests that the servers' devices completed. Time in interrupts counts by the share
    of those requests in all events: requests and soft interrupts of other kinds (timers, network). A kernel that counts interrupts
    by the tick has those that interrupted a container in the container's time already, so only the share outside is taken. Such a
    kernel has no time in hardware interrupts, because they do not end before the tick is counted.
    """
    threads = phase.metrics.get(f"platform:{KERNEL_IO_PART}", {}).get("cpu.usage")
    if threads is None:
        return None
    requests, below = _requests(phase.metrics), _below_servers(phase.io)
    total = math.fsum(requests.values())
    if total <= 0:
        return 0.0
    # Without a view of the devices, such as in an old run, all of them count as the servers'.
    own = math.fsum(rate for number, rate in requests.items() if number in below) if below else total
    used = threads * own / total
    host = phase.metrics.get("host", {})
    others = host.get("softirqs.other")
    if others is None:
        return used
    hard, soft = host.get("cpu.irq", 0.0), host.get("cpu.softirq", 0.0)
    outside = 1.0
    if hard == 0 and host.get("cpu.online"):
        contained = math.fsum(m.get("cpu.usage", 0.0) for entity, m in phase.metrics.items() if entity.startswith("container:"))
        outside = max(1 - contained / host["cpu.online"], 0.0)
    return used + (hard + soft) * outside * own / (total + others)


def _requests(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return device number → requests per second of the devices that pass none on. The number is ``HOST/8:0`` on several hosts."""
    rates = {}
    for entity, values in metrics.items():
        host, _, name = entity.removeprefix("disk:").rpartition("/")
        if entity.startswith("disk:") and not name.startswith(STACKED) and {"major", "minor", "reads", "writes"} <= set(values):
            number = f"{host}/" * bool(host) + f"{values['major']:.0f}:{values['minor']:.0f}"
            rates[number] = math.fsum(values.get(kind, 0.0) for kind in ("reads", "writes", "flushes"))
    return rates


def _below_servers(io: DeviceIo | None) -> set[str]:
    """Return the numbers of the devices with the servers' files, and of the devices below these."""
    return {number for view in io.devices for number in (view.number, *view.below)} if io else set()
