"""Trials grouped by test and volume, and what limited each figure. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.model.result import TrialResult
from pgherd.studies.disk.access import MIX, TESTS, Access
from pgherd.studies.disk.measure import Measured, measure
from pgherd.studies.disk.options import ALL, DiskOptions
from pgherd.study.device_io import MEMORY_FILESYSTEMS

CACHED = 0.9
"""A figure came from a cache where the devices moved less than this share of what fio asked for."""
DEEPER = 1.10
"""The depth was the limit where twice the depth makes more than so many times the I/Os."""
SHARED = 0.9
"""Volumes hold one another back where all at once make less than this share of what they make one after the other."""


@dataclass(frozen=True)
class Group:
    """All trials of one test on one volume, or on all of them. ``used`` are the clean ones, or the tainted where none is clean;
    ``deeper`` those at twice the depth."""

    test: Access
    place: str
    used: tuple[Measured, ...]
    deeper: tuple[Measured, ...]
    tried: int
    tainted: int

    @property
    def clean(self) -> bool:
        """Whether the numbers rest on clean trials."""
        return all(one.clean for one in self.used)

    @property
    def name(self) -> str:
        """The name of its finding: ``random_read_iops``, ``sequential_write_bandwidth``, ``single_read_latency``."""
        return f"{self.test.name.replace('-', '_')}_{self.figure[0]}"

    @property
    def figure(self) -> tuple[str, str, list[float]]:
        """What the test is about: the name, unit and values of its figure."""
        if self.test.figure == "latency":
            return "latency", "ms", self.values(lambda one: one.latency.get("mean"))
        if self.test.figure == "bandwidth":
            return "bandwidth", "MB/s", [one.bytes / 1e6 for one in self.used]
        return "iops", "IOPS", [one.iops for one in self.used]

    def values(self, take: Callable[[Measured], float | None]) -> list[float]:
        """A quantity of every used trial that has it."""
        return [value for one in self.used if (value := take(one)) is not None]

    @property
    def device_share(self) -> float | None:
        """Median share of what fio asked for that the devices moved; None where they were not seen."""
        shares = self.values(lambda one: one.device_share)
        return float(statistics.median(shares)) if shares else None

    @property
    def deeper_ratio(self) -> float | None:
        """I/Os at twice the depth over those at the depth; None where that was not measured on the same hosts."""
        medians = _medians_on_same_hosts(self.deeper, self.used)
        return medians[0] / medians[1] if medians else None

    @property
    def unsteady(self) -> int:
        """Used trials that were not steady."""
        return sum(one.steady is not None and not one.steady.steady for one in self.used)

    @property
    def judged(self) -> int:
        """Used trials long enough to say whether they were steady."""
        return sum(one.steady is not None for one in self.used)


def group(options: DiskOptions, results: Sequence[TrialResult]) -> list[Group]:
    """The points that have at least one finished trial, volume by volume in the tests' order."""
    by_point: dict[tuple[str, str], list[TrialResult]] = {}
    deeper: dict[tuple[str, str], list[Measured]] = {}
    for result in results:
        test, place = str(result.trial.point.get("test", "")), str(result.trial.point.get("volume", ""))
        if test not in TESTS:
            continue
        if "depth" in result.trial.point:
            found = measure(options, result)
            deeper.setdefault((test, place), []).extend([] if found is None else [found])
        else:
            by_point.setdefault((test, place), []).append(result)
    groups = []
    for place in options.places():
        for test in options.tests:
            trials = by_point.get((test, place), [])
            seen = [one for one in (measure(options, trial) for trial in trials) if one is not None]
            used = [one for one in seen if one.clean] or seen
            if used:
                further = deeper.get((test, place), [])
                clean = [one for one in further if one.clean] or further
                groups.append(Group(TESTS[test], place, tuple(used), tuple(clean), len(trials), sum(trial.tainted for trial in trials)))
    return groups


def cached(options: DiskOptions, of: Group) -> bool | None:
    """Whether the figure came from a cache of this host's, as far as is seen; None where it cannot be known."""
    volumes = options.at(of.place)
    if any(one.filesystem in MEMORY_FILESYSTEMS for one in volumes):
        return True
    share = of.device_share
    return None if share is None else share < CACHED


def limited_by(options: DiskOptions, of: Group, alone: Sequence[Group] = ()) -> str:
    """What kept the figure from being higher: cache, rate, latency, host CPU, fio's CPU, queue depth, device, sharing, or unknown.

    ``alone`` are the same test's groups of each volume by itself.
    """
    if cached(options, of):
        return "cache"
    if of.test.name == MIX and (reached(options, of) or 0.0) >= options.thresholds.rate_met:
        return "rate"
    if not of.test.deep:
        return "latency"
    hosts, jobs = of.values(lambda one: one.host), of.values(lambda one: one.job_cpu)
    if hosts and statistics.median(hosts) >= options.thresholds.host_full:
        return "host CPU"
    if jobs and statistics.median(jobs) >= options.thresholds.client_cpu:
        return "fio's CPU"
    if of.place == ALL:
        together = shared(of, alone)
        if together is not None and together < SHARED:
            return "sharing"
        limits = Counter(limited_by(options, one) for one in alone)
        return limits.most_common(1)[0][0] if limits else "unknown"
    ratio = of.deeper_ratio
    if ratio is None:
        return "unknown"
    return "queue depth" if ratio > DEEPER else "device"


def reached(options: DiskOptions, of: Group) -> float | None:
    """The share of its rates that the mix reached, of the direction and volume that reached least; None without a rate."""
    if options.rate is None or of.test.name != MIX:
        return None
    shares = [min(done / due for done, due in zip(one.rates, options.rate, strict=True) if due) for one in of.used if one.rates]
    return float(statistics.median(shares)) if shares else None


def shared(of: Group, alone: Sequence[Group]) -> float | None:
    """I/Os of all volumes at once over the sum of those of each by itself; None where one of these is missing, or was not measured on
    the same hosts."""
    names = {name for one in of.used for name in one.by_volume}
    each = {one.place: one.used for one in alone}
    if not names or not names <= set(each):
        return None
    medians = _medians_on_same_hosts(of.used, *(each[name] for name in names))
    return medians[0] / sum(medians[1:]) if medians else None


def _medians_on_same_hosts(*sides: Sequence[Measured]) -> list[float]:
    """Each side's median I/Os per second, over its trials on the same hosts: the most hosts on which every side has a trial. None of
    them where there are no such hosts: sums over different hosts are not to be compared."""
    common = set[tuple[str, ...]].intersection(*({tuple(sorted(one.by_host)) for one in side} for side in sides))
    if not common:
        return []
    hosts = max(sorted(common), key=len)
    return [float(statistics.median(one.iops for one in side if tuple(sorted(one.by_host)) == hosts)) for side in sides]
