"""Reading a spool: the append-only text file that a node's sampling loop writes (format: ``Node.sample``).

**Several sources of one metric.** A container without a control group is described by one source per pid. Readings are
of entities, so such sources are added up here: each of their readings gives the sum of what all of them said last.
Counters are added from each further source's first reading on (what a process used before it was watched is no
increase); a process that has ended keeps its part of a counter and loses its part of a gauge. A source that is
announced twice is one source.

**Parsed already.** A reading that comes from another host has ``values`` (metric → value) instead of ``raw``: it was parsed, and added
up, where it was read. Its source says only what it is of.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pgherd.metrics.registry import metric, samplers
from pgherd.node.protocol import Source

SpoolReading = tuple[float, str, str, dict[str, float]]
"""(seconds since the epoch, sampler, entity, metric → value)."""


@dataclass
class Failures:
    """How often reading or parsing one source failed, and the last reason."""

    count: int = 0
    last: str = ""


def readings(lines: Iterable[str | bytes]) -> Iterator[SpoolReading]:
    """All readings of a spool's lines (an open file will do), in the order in which they were written."""
    return iter(Spool(lines))


class Spool:
    """An iterator over the readings of a spool, lazily, in the order in which they were written.

    While it is iterated, ``failures`` counts by source the readings with an error, and ``torn`` counts lines that are
    not whole (the last line of a killed process). A raw text that its sampler does not understand, or of a sampler that
    this version does not have, is a failure.
    """

    def __init__(self, lines: Iterable[str | bytes], only: Collection[str] | None = None) -> None:
        """Lines of the file; an open file will do. ``only``: pass over the readings of other samplers than these."""
        self.failures: dict[Source, Failures] = {}
        self.torn = 0
        self._lines = lines
        self._only = only
        self._sources: dict[int, Source] = {}
        self._sums: dict[tuple[str, str, str], _Sum] = {}

    def __iter__(self) -> Iterator[SpoolReading]:
        """All readings."""
        known = samplers()
        for line in self._lines:
            try:
                document = json.loads(line)
                if "sources" in document:
                    self._announce(document)
                    continue
                t, source, values = float(document["t"]), self._sources[int(document["i"])], document.get("values")
                raw = document["raw"] if values is None else None
                if not isfinite(t) or not isinstance(values, dict | None):
                    raise ValueError("a reading without an instant, or of nothing")
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
                if source.sampler not in known:
                    raise ValueError(f"there is no sampler '{source.sampler}'")
                text = raw if isinstance(raw, str) else json.dumps(raw)
                found = list(known[source.sampler].parse(text, source))
            except (ValueError, RecursionError) as error:
                self._fail(source, str(error))
                continue
            for entity, values in found:
                yield t, source.sampler, entity, {name: self._sum(source, entity, name, value) for name, value in values.items()}

    def _announce(self, document: dict[str, Any]) -> None:
        first = int(document["first"])
        for offset, (sampler, entity, kind, where, tag) in enumerate(document["sources"]):
            if not all(isinstance(text, str) for text in (sampler, entity, kind, where, tag)):
                raise ValueError("a source is announced by five texts")
            self._sources[first + offset] = Source(sampler, entity, kind, where, tag=tag)

    def _fail(self, source: Source, reason: str) -> None:
        failures = self.failures.setdefault(source, Failures())
        failures.count += 1
        failures.last = reason
        for (sampler, entity, name), total in self._sums.items():
            if sampler == source.sampler and entity == source.entity and metric(name).kind == "gauge":
                total.last.pop(source, None)

    def _sum(self, source: Source, entity: str, name: str, value: float) -> float:
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
        return sum(last - total.base[one] for one, last in total.last.items())


@dataclass
class _Sum:
    """What each source said last, and what is not counted of it."""

    last: dict[Source, float] = field(default_factory=dict)
    base: dict[Source, float] = field(default_factory=dict)
