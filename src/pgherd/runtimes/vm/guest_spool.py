"""Readings of a guest in the host's spool: converted to the host's clock and to names that do not clash.

**Names.** The entity ``host`` of a sampler in a guest becomes ``guest:NAME``, its block devices become ``guest-disk:NAME/vda``, its swap
areas ``guest-swap:NAME/DEVICE``. The process tree of a container would be counted twice, because the host counts the full virtual machine
as that container, so it becomes ``guest-container:…``. Drivers and servers keep their names, because they run in one place only.

**Clock.** Round trips measure the guest's clock, at least at the start and the end of the readings. One measurement calls the guest several
times. The answer with the shortest round trip counts, and bounds the offset. Between two measurements the offset changes linearly (both:
pgherd.model.clock_offset). An emulated guest's clock may have another rate, which ``GuestClock.drift`` reports.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgherd.model.clock_offset import between, bounds
from pgherd.node.protocol import SampleSource
from pgherd.node.sampling import reading_line
from pgherd.runtimes.vm.agent_tasks import RECORD


@dataclass(frozen=True)
class GuestSpool:
    """Spooled lines of a guest's sampling loop (format: ``Node.sample``, instants of the guest's clock), with its name and clock.

    ``renames`` maps further entities of its sources. It applies before the rules of this module.
    """

    name: str
    lines: Iterable[str]
    clock: GuestClock
    renames: Mapping[str, str] = field(default_factory=dict)


def entity(name: str, name_in_guest: str, renames: Mapping[str, str] | None = None) -> str:
    """Return the name on the host of an entity that was read in guest ``name``."""
    if renames and name_in_guest in renames:
        return renames[name_in_guest]
    kind, colon, rest = name_in_guest.partition(":")
    if name_in_guest == "host":
        return f"guest:{name}"
    if kind in ("disk", "swap", "zram", "run-cgroup"):
        return f"guest-{kind}:{name}{'/' if colon else ''}{rest}"
    return f"guest-{name_in_guest}" if kind == "container" else name_in_guest


def merge(host: Iterable[str], guests: Sequence[GuestSpool]) -> Iterator[str]:
    """Return the lines of the host's spool and of each guest's as one spool that ``metrics.spool`` can read.

    The indices of a guest's sources follow the host's. Torn lines are passed on unchanged, and the reader of the spool counts them.
    """
    first = 0
    for line in host:
        first = max(first, _next_index(line))
        yield _with_newline(line)
    yield from _shifted(guests, first)


def append(spool: Path, guests: Sequence[GuestSpool]) -> None:
    """Append the guests' lines to the host's spool file, as ``merge`` does. Raises OSError."""
    with open(spool, encoding="utf-8") as host:
        first = max((_next_index(line) for line in host), default=0)
    with open(spool, "a", encoding="utf-8") as file:
        file.writelines(_shifted(guests, first))


def _shifted(guests: Sequence[GuestSpool], first: int) -> Iterator[str]:
    for guest in guests:
        next_index = first
        for line in guest.lines:
            document = _document(line)
            if document is None:
                yield _with_newline(line)
                continue
            if "sources" in document:
                document["first"] = int(document["first"]) + first
                document["sources"] = [
                    [source[0], entity(guest.name, source[1], guest.renames), *source[2:]] for source in document["sources"]
                ]
                next_index = max(next_index, document["first"] + len(document["sources"]))
            else:
                document["i"] = int(document["i"]) + first
                if not first <= document["i"] < next_index:
                    continue  # not announced: it would count as a reading of another guest
                document["t"] = round(guest.clock.host(float(document["t"])), 6)
            yield _line(document)
        first = next_index


def _next_index(line: str) -> int:
    """Return the first index after those that a line announces, or 0 for another line."""
    document = _document(line) if '"sources"' in line else None
    return int(document["first"]) + len(document["sources"]) if document is not None and "sources" in document else 0


def _with_newline(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"


def announcement(sources: Sequence[SampleSource], first: int) -> str:
    """Return the line that declares the sources of the next indices."""
    return _line({"sources": [[s.sampler, s.entity, s.kind, s.where, s.tag] for s in sources], "first": first})


def lines(records: bytes) -> tuple[list[str], bytes]:
    """Return an agent's records as lines of a spool, and the incomplete rest."""
    spool_lines = []
    at = 0
    while at + RECORD.size <= len(records):
        when, index, size = RECORD.unpack_from(records, at)
        end = at + RECORD.size + size
        if end > len(records):
            break
        text = records[at + RECORD.size : end].decode(errors="replace")
        spool_lines.append((reading_line(when / 1e9, index, text) if index >= 0 else reading_line(when / 1e9, ~index, None, text)) + "\n")
        at = end
    return spool_lines, records[at:]


def _document(line: str) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    valid = isinstance(document, dict) and ({"sources", "first"} <= document.keys() or {"t", "i", "raw"} <= document.keys())
    return document if valid else None


def _line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


Ask = Callable[[], tuple[float, float]]
"""Call of the guest: returns its clock at the arrival of the request and at the departure of the answer (seconds since the epoch)."""

TRIES = 8


@dataclass(frozen=True)
class GuestClockOffset:
    """Offset of a guest's clock: at the host's instant ``at`` it showed ``offset`` seconds more, ± ``uncertainty``."""

    at: float
    offset: float
    uncertainty: float


def measure(ask: Ask, tries: int = TRIES, clock: Callable[[], float] = time.time) -> GuestClockOffset:
    """Call the guest ``tries`` times and use the answer with the shortest round trip. Raises what ``ask`` raises."""
    best: GuestClockOffset | None = None
    for _ in range(tries):
        t1 = clock()
        t2, t3 = ask()
        t4 = clock()
        low, high = bounds(t1, t2, t3, t4)
        offset = GuestClockOffset((t1 + t4) / 2, (low + high) / 2, abs(high - low) / 2)
        if best is None or offset.uncertainty < best.uncertainty:
            best = offset
    if best is None:
        raise ValueError("a clock measurement needs at least one call")
    return best


class GuestClock:
    """Conversion between the two clocks, by the measurements so far."""

    def __init__(self) -> None:
        """Before the first measurement conversions raise ValueError."""
        self.measured: list[GuestClockOffset] = []

    def add(self, offset: GuestClockOffset) -> None:
        """Add a measurement. They are kept in the order of their instants."""
        self.measured.insert(bisect_right([measurement.at for measurement in self.measured], offset.at), offset)

    def offset(self, at: float) -> float:
        """Return the seconds by which the guest is ahead at an instant of the host's clock."""
        return between([(measurement.at, measurement.offset) for measurement in self.measured], at)

    def guest(self, at: float) -> float:
        """Return the guest's clock at an instant of the host's."""
        return at + self.offset(at)

    def host(self, at: float) -> float:
        """Return the host's clock at an instant of the guest's: the inverse of ``guest``."""
        return at - between([(measurement.at + measurement.offset, measurement.offset) for measurement in self.measured], at)

    @property
    def uncertainty(self) -> float:
        """Maximum error of a converted instant in seconds: that of the worst measurement. Changes between measurements are not included."""
        if not self.measured:
            raise ValueError("the guest's clock has not been measured")
        return max(measurement.uncertainty for measurement in self.measured)

    @property
    def drift(self) -> float | None:
        """Seconds that the guest gains per second of the host between the first and the last measurement. None within their uncertainty."""
        if len(self.measured) < 2:
            return None
        first, last = self.measured[0], self.measured[-1]
        changed = last.offset - first.offset
        if abs(changed) <= first.uncertainty + last.uncertainty or last.at <= first.at:
            return None
        return changed / (last.at - first.at)
