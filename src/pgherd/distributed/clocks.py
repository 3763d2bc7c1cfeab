"""One clock for all hosts: the driver's. Readings of the hosts' offsets, and the window in which all of them measured. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.cluster.remote import Offset
from pgherd.model.clock_offset import between
from pgherd.model.errors import TrialError
from pgherd.runner.play.driven import Common


@dataclass
class Clocks:
    """Offsets of the hosts' clocks against the driver's (host − driver, s), as they were measured before, during and after a trial.

    Between two readings a clock is taken to drift evenly; before the first and after the last it keeps what they say. ``beats``: what the
    signs of life meanwhile showed of each host's clock. One round trip each is too rough to count by, but shows a clock that was set.
    """

    readings: list[Mapping[str, Offset]] = field(default_factory=list)
    beats: Mapping[str, Sequence[Offset]] = field(default_factory=dict)

    def add(self, offsets: Mapping[str, Offset]) -> None:
        """One more reading, later than those before it."""
        self.readings.append(offsets)

    def of(self, host: str) -> list[Offset]:
        """A host's readings in order of time."""
        return [reading[host] for reading in self.readings if host in reading]

    def offset(self, host: str, at: float) -> float:
        """Host time − driver time at an instant of the driver's clock; raises KeyError where it was never measured."""
        found = self.of(host)
        if not found:
            raise KeyError(host)
        return between([(one.at, one.seconds) for one in found], at)

    def to_host(self, host: str, at: float) -> float:
        """The host's clock at an instant of the driver's."""
        return at + self.offset(host, at)

    def to_driver(self, host: str, at: float) -> float:
        """The driver's clock at an instant of the host's: a drift of a thousandth changes the offset by less than it is known."""
        return at - self.offset(host, at - self.offset(host, at))

    def uncertainty(self, host: str) -> float | None:
        """How far the offset may be from the truth (s); None where it was never measured."""
        return max((one.uncertainty for one in self.of(host)), default=None)

    def unsure(self, hosts: Collection[str]) -> float:
        """By how much more than it seems instants of these hosts may lie apart (s); of one host alone they lie as its clock says."""
        return 2 * max((self.uncertainty(host) or 0.0 for host in hosts), default=0.0) if len(hosts) > 1 else 0.0

    def drift(self, host: str) -> float:
        """By how much the offset changed between two readings, or signs of life, beyond what their uncertainty allows, at most (s)."""
        found = [*self.of(host), *self.beats.get(host, ())]
        least = max((one.seconds - one.uncertainty for one in found), default=0.0)
        most = min((one.seconds + one.uncertainty for one in found), default=0.0)
        return max(0.0, least - most)


@dataclass(frozen=True)
class Together:
    """One phase on all hosts, in the driver's clock: the window in which all of them made load, when each began, what was planned.

    ``began`` holds the hosts that had load in this phase; ``skew`` is how far apart they began (s), clocks' uncertainty included, and
    None with fewer than two of them. ``overlap`` is the window less that uncertainty over the planned period.
    """

    start: float
    end: float
    began: Mapping[str, float]
    skew: float | None
    overlap: float


def together(
    spans: Mapping[str, Sequence[Common]], loaded: Mapping[str, Sequence[int]], clocks: Clocks, *, open_ended: bool = False
) -> list[Together]:
    """For each phase the window common to all hosts; ``loaded`` are the numbers of the phases in which a host had any load.

    A phase that is ``open_ended`` lasts on each host for as long as its drivers do: its window is then from the first start to the
    last end, and ``overlap`` says for which share of that all of them ran.

    Raises:
        TrialError: there is no instant at which all of them made load.
    """
    found = []
    for number in range(len(next(iter(spans.values()), ()))):
        here = {host: own[number] for host, own in spans.items()}
        began = {host: clocks.to_driver(host, one.earliest) for host, one in here.items() if number in loaded.get(host, ())}
        firsts = {host: clocks.to_driver(host, one.first) for host, one in here.items()}
        lasts = {host: clocks.to_driver(host, one.last) for host, one in here.items()}
        start, end = max(firsts.values()), min(lasts.values())
        if end <= start and not open_ended:
            late, early = max(firsts, key=lambda host: firsts[host]), min(lasts, key=lambda host: lasts[host])
            raise TrialError(
                f"the hosts never made load together in phase {number + 1}: {late} began after {early} had ended; "
                "a longer --seconds, or clocks that agree, would mend it"
            )
        unsure = clocks.unsure(here)
        planned = max(one.planned for one in here.values())
        common = max(0.0, end - start - unsure)
        if open_ended:
            start, end = min(firsts.values()), max(lasts.values())
            planned = max(end - start, 1e-9)
        skew = max(began.values()) - min(began.values()) + unsure if len(began) > 1 else None
        found.append(Together(start, end, began, skew, common / planned))
    return found
