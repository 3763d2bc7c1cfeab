"""What the hypervisors of a trial's guests took of the host's CPU for themselves: a part of the platform (E2), not the databases'. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pgherd.study.emulation import EMULATED_METRIC

QEMU_PART, MANAGER_PART = "QEMU", "balloon-manager"
"""Names of these parts of the platform: what QEMU uses beside running vCPUs, and the balloon manager."""


def hypervisor_cpu(metrics: Mapping[str, Mapping[str, float]]) -> float | None:
    """Cores that the guests' hypervisors used beside running vCPUs; None where there is no guest, where it was not seen of all, and where
    processors were emulated: the emulation cannot be told from what it emulates."""
    guests = [of for entity, of in metrics.items() if entity.startswith("guest:")]
    if not guests or any(of.get(EMULATED_METRIC) != 0 or not {"qemu.cpu", "qemu.cpu_guest"} <= set(of) for of in guests):
        return None
    return math.fsum(max(of["qemu.cpu"] - of["qemu.cpu_guest"], 0.0) for of in guests)
