"""Reader of a spool: the append-only text file that a node's sampling loop writes (format: ``Node.sample``).

**Several sources of one metric.** A container without a cgroup has one source per pid. Readings are of entities, so such sources are
added up here: each of their readings gives the sum of the last values of all of them. Counters are added from the first reading
of each further source on, because CPU time used before sampling is no increase. A process that has exited keeps its part of a
counter and loses its part of a gauge. A source that is announced twice is one source.

**Parsed readings.** A reading from another host has ``values`` (metric → value) instead of ``raw``: it was parsed and added up on that
host. Its source then names only sampler and entity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from pgherd.metrics.sampler import SampledMetric, metric, samplers
from pgherd.node.protocol import SampleSource

SpoolReading = tuple[float, str, str, dict[str, float]]
"""(seconds since the epoch, sampler, entity, metric → value)."""


@dataclass
class SourceFailures:
    """Number of failed reads and parses of one source, and the last reason."""

    count: int = 0
    last: str = ""


def readings(lines: Iterable[str | bytes]) -> Iterator[SpoolReading]:
    """Yield all readings of a spool's lines, such as an open file, in the order in which they were written."""
    return iter(Spool(lines))


class Spool:
    """Lazy iterator over the readings of a spool, in the order in which they were written.

    During iteration, ``failures`` counts readings with an error by source, and ``torn`` counts incomplete lines, such as
    the last line of a killed process. Text that its sampler cannot parse is a failure, and so is a sampler that this
    version does not have.
    """

    def __init__(self, lines: Iterable[str | bytes], only: Collection[str] | None = None) -> None:
        """Prepare to read.

        Args:
            lines: lines of the file. An open file is allowed.
            only: names of samplers. Readings of other samplers are skipped.
        """
        self.failures: dict[SampleSource, SourceFailures] = {}
        self.torn = 0
        self._lines = lines
        self._only = only
        self._sources: dict[int, SampleSource] = {}
        self._sums: dict[tuple[str, str, str], _Sum] = {}

    def __iter__(self) -> Iterator[SpoolReading]:
        by_name = samplers()
        for line in self._lines:
            try:
                document = json.loads(line)
                if "sources" in document:
                    self._announce(document)
                    continue
                t, source, values = float(document["t"]), self._sources[int(document["i"])], document.get("values")
                raw = document["raw"] if values is None else None
                if not isfinite(t) or not isinstance(values, dict | None):
                    raise ValueError("a reading needs a finite instant and a mapping of values")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                self.torn += bool(line.strip())
                continue
            if self._only is not None and source.sampler not in self._only:
                continue
            if values is not None:
                yield t, source.sampler, source.entity, values
                continue
            try:
                if raw is None:
                    raise ValueError(str(document.get("error", "no reason given")))
                if source.sampler not in by_name:
                    raise ValueError(f"there is no sampler '{source.sampler}'")
                text = raw if isinstance(raw, str) else json.dumps(raw)
                parsed = list(by_name[source.sampler].parse(text, source))
            except (ValueError, RecursionError) as error:
                self._fail(source, str(error))
                continue
            for entity, values in parsed:
                yield t, source.sampler, entity, {name: self._sum(source, entity, name, value) for name, value in values.items()}

    def _announce(self, document: dict[str, Any]) -> None:
        first = int(document["first"])
        for offset, (sampler, entity, kind, where, tag) in enumerate(document["sources"]):
            if not all(isinstance(text, str) for text in (sampler, entity, kind, where, tag)):
                raise ValueError("a source is announced by five strings")
            self._sources[first + offset] = SampleSource(sampler, entity, kind, where, tag=tag)

    def _fail(self, source: SampleSource, reason: str) -> None:
        failures = self.failures.setdefault(source, SourceFailures())
        failures.count += 1
        failures.last = reason
        for (sampler, entity, name), total in self._sums.items():
            if sampler == source.sampler and entity == source.entity and metric(name).kind == "gauge":
                total.last.pop(source, None)

    def _sum(self, source: SampleSource, entity: str, name: str, value: float) -> float:
        key = (source.sampler, entity, name)
        total = self._sums.get(key)
        if total is None:
            total = self._sums[key] = _Sum()
        if source not in total.last:
            late = bool(total.base) and metric(name).kind == "counter"
            total.base.setdefault(source, value if late else 0.0)
        total.last[source] = value
        if len(total.last) == 1:
            return value - total.base[source]
        return sum(last - total.base[source] for source, last in total.last.items())


@dataclass
class _Sum:
    """Last value of each source, and the base that is subtracted from it."""

    last: dict[SampleSource, float] = field(default_factory=dict)
    base: dict[SampleSource, float] = field(default_factory=dict)


_READING = re.compile(rb'\{"t":[0-9.]+,"i":(\d+),')
"""Start of a reading's line, as the sampling loop writes it."""


class LatestReading(NamedTuple):
    """Last reading of a metric: instant (seconds since the epoch), entity, metric, value."""

    t: float
    entity: str
    metric: SampledMetric
    value: float


class LatestReadings:
    """Last readings in a growing spool. Lines in between are not parsed, because a live view must be cheap."""

    def __init__(self, lines: Iterable[bytes], only: Collection[str] | None = None) -> None:
        """Prepare to read.

        Args:
            lines: yields the lines added since its last iteration (pgherd.store.live_state.TailReader).
            only: names of samplers. Readings of other samplers are skipped.
        """
        self.spool = Spool(_LastLines(lines), only)
        """Counts the failures and torn lines among the parsed lines."""
        self._last: dict[tuple[str, str], LatestReading] = {}

    def added(self) -> list[SpoolReading]:
        """Return the readings added since the last call of ``added`` or ``read``: each source's last one, and its very first."""
        return list(self.spool)

    def read(self) -> list[LatestReading]:
        """Read the added lines, and return the last reading of each metric of each entity."""
        for t, _, entity, values in self.spool:
            for name, value in values.items():
                self._last[entity, name] = LatestReading(t, entity, metric(name), value)
        return list(self._last.values())


class _LastLines:
    """The last of each source's new lines, and its very first.

    If several sources make one metric, the first line is the base of each source's counter.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self._sources: set[bytes] = set()

    def __iter__(self) -> Iterator[bytes]:
        last: dict[bytes, bytes] = {}
        for line in self._lines:
            match = _READING.match(line)
            if match is None or match[1] not in self._sources:
                if match is not None:
                    self._sources.add(match[1])
                yield line
            else:
                last.pop(match[1], None)
                last[match[1]] = line  # keeps the order of writing
        yield from last.values()
