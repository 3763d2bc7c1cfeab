"""The last reading of everything in a growing spool, without parsing what lies between: a look once in a while must be cheap."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from pgherd.metrics.registry import metric
from pgherd.metrics.sampler import Metric
from pgherd.metrics.spool import Spool, SpoolReading

_READING = re.compile(rb'\{"t":[0-9.]+,"i":(\d+),')
"""How the sampling loop begins the line of a reading."""


class Last(NamedTuple):
    """A metric's last reading: the instant (seconds since the epoch), the entity, the metric, the value."""

    t: float
    entity: str
    metric: Metric
    value: float


class Latest:
    """The last readings of a spool, each time that they are asked for."""

    def __init__(self, lines: Iterable[bytes], only: Collection[str] | None = None) -> None:
        """``lines``: those added since it was iterated last, each time that it is iterated (pgherd.store.live.Lines). ``only``: pass
        over the readings of other samplers than these."""
        self.spool = Spool(_Skipping(lines), only)
        """What could not be read is counted here, as far as it was looked at."""
        self._last: dict[tuple[str, str], Last] = {}

    def added(self) -> list[SpoolReading]:
        """What has been added since one last asked, here or by ``read``: of each source the last reading, and its very first."""
        return list(self.spool)

    def read(self) -> list[Last]:
        """Take in what has been added; the last reading of each metric of each entity."""
        for t, _, entity, values in self.spool:
            for name, value in values.items():
                self._last[entity, name] = Last(t, entity, metric(name), value)
        return list(self._last.values())


class _Skipping:
    """Of each source's new lines the last, and the very first: where several sources make one metric, that is where each begins."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self._seen: set[bytes] = set()

    def __iter__(self) -> Iterator[bytes]:
        last: dict[bytes, bytes] = {}
        for line in self._lines:
            match = _READING.match(line)
            if match is None or match[1] not in self._seen:
                if match is not None:
                    self._seen.add(match[1])
                yield line
            else:
                last.pop(match[1], None)
                last[match[1]] = line  # in the order in which they were written
        yield from last.values()
