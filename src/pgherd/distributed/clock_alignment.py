"""One clock for all hosts, the driver's: readings of the hosts' clock offsets, and the window in which all hosts
measured. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.model.clock_offset import between
from pgherd.model.errors import TrialError
from pgherd.runner.execute.measurement_window import CommonWindow


@dataclass
class Clocks:
    """Offsets of the hosts' clocks to the driver's (host − driver, s), measured before, during and after a trial.

    Between two readings a clock is assumed to drift evenly. Before the first and after the last reading its offset is
    constant. ``beats`` are offsets from the heartbeats during the trial. They have one round trip each, which is too
    imprecise for counting, but reveals a clock that was set.
    """

    readings: list[Mapping[str, HostClockOffset]] = field(default_factory=list)
    beats: Mapping[str, Sequence[HostClockOffset]] = field(default_factory=dict)

    def add(self, offsets: Mapping[str, HostClockOffset]) -> None:
        """Add a reading that is later than the previous ones."""
        self.readings.append(offsets)

    def of(self, host: str) -> list[HostClockOffset]:
        """Return a host's readings in order of time."""
        return [reading[host] for reading in self.readings if host in reading]

    def offset(self, host: str, at: float) -> float:
        """Return host time − driver time at an instant of the driver's clock. Raises KeyError if it was never measured."""
        offsets = self.of(host)
        if not offsets:
            raise KeyError(host)
        return between([(offset.at, offset.seconds) for offset in offsets], at)

    def to_host(self, host: str, at: float) -> float:
        """Convert an instant of the driver's clock to the host's."""
        return at + self.offset(host, at)

    def to_driver(self, host: str, at: float) -> float:
        """Convert an instant of the host's clock to the driver's. A drift of 0.1 % changes less than the offset's
        uncertainty.
        """
        return at - self.offset(host, at - self.offset(host, at))

    def uncertainty(self, host: str) -> float | None:
        """Return the maximum error of the offset (s), or None if it was never measured."""
        return max((offset.uncertainty for offset in self.of(host)), default=None)

    def unsure(self, hosts: Collection[str]) -> float:
        """Return the maximum error of differences between instants of these hosts (s). It is 0 for a single host."""
        return 2 * max((self.uncertainty(host) or 0.0 for host in hosts), default=0.0) if len(hosts) > 1 else 0.0

    def drift(self, host: str) -> float:
        """Return the minimum change of the offset between readings or heartbeats that their uncertainty does not explain
        (s).
        """
        offsets = [*self.of(host), *self.beats.get(host, ())]
        highest_minimum = max((offset.seconds - offset.uncertainty for offset in offsets), default=0.0)
        lowest_maximum = min((offset.seconds + offset.uncertainty for offset in offsets), default=0.0)
        return max(0.0, highest_minimum - lowest_maximum)


@dataclass(frozen=True)
class CommonPhase:
    """One phase on all hosts, in the driver's time: the window in which all hosts generated load.

    ``began`` has the start of each host with load in this phase. ``skew`` is the difference between these starts (s),
    including the clocks' uncertainty, and None for fewer than two hosts. ``overlap`` is the window less that
    uncertainty, divided by the planned period.
    """

    start: float
    end: float
    began: Mapping[str, float]
    skew: float | None
    overlap: float


def together(
    spans: Mapping[str, Sequence[CommonWindow]], loaded: Mapping[str, Sequence[int]], clocks: Clocks, *, open_ended: bool = False
) -> list[CommonPhase]:
    """Return the window common to all hosts for each phase. ``loaded`` are the numbers of the phases in which a host had
    load.

    An ``open_ended`` phase lasts on each host as long as its drivers. Its window is then from the first start to the
    last end, and ``overlap`` is the share of it in which all ran.

    Raises:
        TrialError: there is no instant at which all of them generated load.
    """
    windows = []
    for number in range(len(next(iter(spans.values()), ()))):
        by_host = {host: host_spans[number] for host, host_spans in spans.items()}
        began = {host: clocks.to_driver(host, span.earliest) for host, span in by_host.items() if number in loaded.get(host, ())}
        firsts = {host: clocks.to_driver(host, span.first) for host, span in by_host.items()}
        lasts = {host: clocks.to_driver(host, span.last) for host, span in by_host.items()}
        start, end = max(firsts.values()), min(lasts.values())
        if end <= start and not open_ended:
            late, early = max(firsts, key=lambda host: firsts[host]), min(lasts, key=lambda host: lasts[host])
            raise TrialError(
                f"the hosts never generated load at the same time in phase {number + 1}: {late} began after {early} had ended; "
                "increase --duration, or synchronize the clocks"
            )
        uncertainty = clocks.unsure(by_host)
        planned = max(span.planned for span in by_host.values())
        common = max(0.0, end - start - uncertainty)
        if open_ended:
            start, end = min(firsts.values()), max(lasts.values())
            planned = max(end - start, 1e-9)
        skew = max(began.values()) - min(began.values()) + uncertainty if len(began) > 1 else None
        windows.append(CommonPhase(start, end, began, skew, common / planned))
    return windows
