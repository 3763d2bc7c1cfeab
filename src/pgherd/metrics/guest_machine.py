"""Whether a guest's processors are emulated, from its hypervisor's command line (/proc/PID/cmdline, proc(5)).

It is read when sampling begins, before any driver does: whoever looks at a run while it is measured must not take what an emulated
processor does for the speed of anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

EMULATED = "emulated"
_SELDOM = 10
"""Ticks between two readings; it does not change."""


class GuestMachineSampler:
    """Readings of ``guest:NAME``."""

    name = "guest_machine"
    metrics = (Metric(EMULATED, "", "gauge", "1 where its processors are emulated (TCG): no rate of what runs in it says anything"),)

    def sources(self, view: View) -> list[Source]:
        """One file of each guest."""
        return [Source(self.name, f"guest:{guest.name}", "file", f"/proc/{guest.pid}/cmdline", every=_SELDOM) for guest in view.guests]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading: the accelerator that follows ``-accel`` (qemu(1))."""
        accelerator = next((after for word, after in pairwise(raw.split("\0")) if word == "-accel"), None)
        if accelerator is None:
            raise ValueError(f"'{raw[:40]}' is no command line of QEMU with an accelerator")
        yield source.entity, {EMULATED: float(accelerator.partition(",")[0] == "tcg")}


SAMPLER = GuestMachineSampler()
