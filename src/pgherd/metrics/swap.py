"""How full each swap area of the machine is, from /proc/swaps (proc(5)); read where a run has made one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

OURS = "swap:ours"
"""The entity of the area that the run has made."""


class SwapSampler:
    """The run's own area is ``swap:ours``, any other ``swap:NAME``: whether pages went to somebody else's is seen so. A guest's are
    ``guest-swap:GUEST/NAME``."""

    name = "swap"
    metrics = (
        Metric("swap.size", "bytes", "gauge", "size of the area"),
        Metric("swap.used", "bytes", "gauge", "of it, in use"),
    )

    def sources(self, view: View) -> list[Source]:
        """One file, with the path of our own area as its tag."""
        return [] if view.swap is None else [Source(self.name, "swap", "file", "/proc/swaps", tag=view.swap.path)]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per area; the file counts in kB of 1024 bytes."""
        area = f"{source.entity}/" if source.entity.startswith("guest-swap:") else "swap:"
        lines = raw.splitlines()
        if not lines or not lines[0].startswith("Filename"):
            raise ValueError(f"'{raw[:40]}' is not the text of /proc/swaps")
        for line in lines[1:]:
            fields = line.split()
            if len(fields) < 5:
                raise ValueError(f"'{line[:40]}' is not a line of /proc/swaps")
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[0])
            entity = OURS if path == source.tag and area == "swap:" else f"{area}{posixpath.basename(path)}"
            yield entity, {"swap.size": number(fields[-3]) * 1024, "swap.used": number(fields[-2]) * 1024}


SAMPLER = SwapSampler()
