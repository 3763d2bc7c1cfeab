"""Usage of the machine's swap areas, and of the compressed swap device of a run (zram)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from pgherd.host.kernel_files import number
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

OURS = "swap:ours"
"""Entity of the swap area that the run has created."""


class SwapSampler:
    """Size and usage of each swap area, from /proc/swaps (proc(5)), if the run has created one.

    The area of the run has the entity ``OURS``. Any other area is ``swap:NAME``, which shows whether pages went there. A guest's
    areas are ``guest-swap:GUEST/NAME``.
    """

    name = "swap"
    metrics = (
        SampledMetric("swap.size", "bytes", "gauge", "size of the area"),
        SampledMetric("swap.used", "bytes", "gauge", "used space in the area"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return the file, with the path of the run's area as its tag."""
        return [] if view.swap is None else [SampleSource(self.name, "swap", "file", "/proc/swaps", tag=view.swap.path)]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per area. The file counts in kB of 1024 bytes."""
        prefix = f"{source.entity}/" if source.entity.startswith("guest-swap:") else "swap:"
        lines = raw.splitlines()
        if not lines or not lines[0].startswith("Filename"):
            raise ValueError(f"'{raw[:40]}' is not the text of /proc/swaps")
        for line in lines[1:]:
            fields = line.split()
            if len(fields) < 5:
                raise ValueError(f"'{line[:40]}' is not a line of /proc/swaps")
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[0])
            entity = OURS if path == source.tag and prefix == "swap:" else f"{prefix}{posixpath.basename(path)}"
            yield entity, {"swap.size": number(fields[-3]) * 1024, "swap.used": number(fields[-2]) * 1024}


_MM_STAT_COLUMNS = ("zram.orig_data", "zram.compr_data", "zram.mem_used", "zram.mem_limit", "zram.mem_used_max", "zram.same_pages")


class ZramSampler:
    """The first six columns of ``mm_stat`` (Documentation/admin-guide/blockdev/zram.rst of the kernel).

    The device serves the whole machine, so its values belong to no single container, and no container is charged for its
    memory. ``zram.orig_data ÷ zram.mem_used`` is the effective compression ratio, because it includes the allocator's loss.
    """

    name = "zram"
    metrics = (
        SampledMetric(
            "zram.orig_data", "bytes", "gauge", "memory swapped out to the device, before compression, without same-filled pages"
        ),
        SampledMetric("zram.compr_data", "bytes", "gauge", "memory swapped out to the device, after compression"),
        SampledMetric("zram.mem_used", "bytes", "gauge", "memory used by the device, allocator loss included"),
        SampledMetric("zram.mem_limit", "bytes", "gauge", "memory limit of the device; 0: no limit"),
        SampledMetric("zram.mem_used_max", "bytes", "gauge", "largest memory used by the device so far"),
        SampledMetric("zram.same_pages", "pages", "gauge", "same-filled pages, which take no memory"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        if view.swap is None or view.swap.zram is None:
            return []
        return [SampleSource(self.name, f"zram:zram{view.swap.zram}", "file", f"/sys/block/zram{view.swap.zram}/mm_stat")]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        fields = raw.split()
        if len(fields) < len(_MM_STAT_COLUMNS):
            raise ValueError(f"'{raw[:40]}' is not the text of mm_stat")
        yield source.entity, {name: number(text) for name, text in zip(_MM_STAT_COLUMNS, fields, strict=False)}


SWAP, ZRAM = SwapSampler(), ZramSampler()
SAMPLERS = (SWAP, ZRAM)
