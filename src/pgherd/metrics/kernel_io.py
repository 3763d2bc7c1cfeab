"""CPU time of kernel threads that do I/O, from the totals by name of pgherd.node.kernel_threads."""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.host.kernel_files import TICKS, number
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

ENTITY = "platform:kernel-io"
"""Part of the platform. Its samples are the threads of the whole host; pgherd.study.kernel_io takes the share of the servers' devices."""


class KernelIoSampler:
    """Kernel threads of the block layer, writeback, journals and stacked devices. Interrupts are part of the entity ``host``."""

    name = "kernel_io"
    metrics = (SampledMetric("cpu.usage", "s", "counter", "CPU time used"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Only where servers run. A guest's own threads are part of its container."""
        return [SampleSource(self.name, ENTITY, "kernel-threads", "")] if view.servers else []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading. Names may contain spaces, so the last word of a line is the number of ticks."""
        yield source.entity, {"cpu.usage": sum(number(line.rpartition(" ")[2]) for line in raw.splitlines()) / TICKS}


SAMPLER = KernelIoSampler()
