"""What the host's balloon manager itself costs, from the lines that it writes beside what it saw (pgherd.runtimes.balloon_manager).

It is CPU of pgherd's own process that a platform of virtual machines needs whoever measures it, and so a part of the platform (E2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source


class BalloonManagerSampler:
    """Readings of ``platform:balloon-manager``."""

    name = "balloon_manager"
    metrics = (Metric("cpu.usage", "s", "counter", "CPU time used"),)

    def sources(self, view: View) -> list[Source]:
        """None: the manager writes its lines itself."""
        return []

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading: the CPU of all its threads."""
        try:
            yield source.entity, {"cpu.usage": float(json.loads(raw)["cpu"])}
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"'{raw[:40]}' is not what the balloon manager writes ({error})") from None


SAMPLER = BalloonManagerSampler()
