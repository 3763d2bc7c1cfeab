"""What a host shows of a trial while it measures it: the last readings of a few samplers, and what its drivers have told.

All samples stay on the host until the trial is over, so that the network is quiet; this little is for whoever watches
(pgherd.distributed.relay asks for it).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from pgherd.drivers.registry import tells
from pgherd.metrics.spool import Latest, SpoolReading
from pgherd.model.trial import Trial
from pgherd.store.live import SPOOL, Lines, output_name

SHOWN = frozenset({"cpu", "memory", "diskstats", "cgroup_cpu", "cgroup_memory", "processes"})
"""Samplers whose readings are passed on: those that are shown while a run is watched."""


@dataclass(frozen=True)
class Glimpse:
    """What has been read and told on one host since the glimpse before; all instants are of that host's clock.

    ``told`` holds a phase's index, a target, its driver, and whole lines of that driver's stderr.
    """

    readings: list[SpoolReading]
    told: list[tuple[int, str, str, str]]


class Lookout:
    """Takes glimpses of one trial."""

    def __init__(self, part: Trial, directory: Path, scratch: Path) -> None:
        """``directory`` is where samples are spooled, ``scratch`` where drivers write; nothing need be there yet."""
        self._latest = Latest(Lines(directory / SPOOL), SHOWN)
        self._outputs = [
            (number, target, load.driver, Lines(scratch / output_name(number, target) / "stderr"))
            for number, phase in enumerate(part.phases)
            for target, load in phase.loads.items()
            if tells(load.driver)
        ]
        self._lock = threading.Lock()

    def take(self) -> Glimpse:
        """What has been added since; of the readings in between nothing is parsed."""
        with self._lock:
            told = []
            for number, target, driver, lines in self._outputs:
                said = b"".join(line + b"\n" for line in lines)
                if said:
                    told.append((number, target, driver, said.decode(errors="replace")))
            return Glimpse(self._latest.added(), told)
