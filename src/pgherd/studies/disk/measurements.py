"""Measurements of single trials, and their groups by test and volume with the bottleneck of each."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pgherd.analysis.stability import SteadyWindow, rounds_of, steady_window
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.units import MB_PER_SECOND
from pgherd.studies.disk.options import ALL, MIX, TESTS, AccessPattern, DiskOptions
from pgherd.study.device_io import MEMORY_FILESYSTEMS

UNCACHED_SHARE = 0.9
"""If the devices moved less than this share of the bytes that fio requested, the figure came from a cache."""
DEPTH_GAIN = 1.10
"""If twice the depth gives more than this factor in I/Os, the depth is the bottleneck."""
CONTENTION_SHARE = 0.9
"""If all volumes together reach less than this share of the sum of each alone, they share a bottleneck."""

_DIRECTIONS = ("read", "write")
_PERCENTILES = ("p50", "p95", "p99", "p99_9")


@dataclass(frozen=True)
class HostDiskResult:
    """Result of one of several hosts in a trial.

    ``iops`` and ``bytes`` are per second. ``latency`` is the mean in ms (None: not reported). ``busy`` is the CPU share of the host in
    use (None: not sampled).
    """

    iops: float
    bytes: float
    latency: float | None
    busy: float | None


@dataclass(frozen=True)
class DiskMeasurement:
    """Numbers of one finished trial.

    ``iops`` and ``bytes`` (per second) are sums over its volumes.
    ``latency`` maps mean, p50 … to ms. The mean is over all I/Os, a percentile is that of the slowest volume. A mix has its
    percentiles by direction (``read_p50``).
    ``device_io_share`` is the bytes that the devices moved ÷ the bytes that fio requested (None: not sampled).
    ``job_cpu`` is the mean share of one CPU that fio's jobs on the busiest volume used, ``host_cpu`` the share of the host's CPU in use.
    With several hosts, ``device_io_share`` is the lowest of them and ``host_cpu`` the highest.
    ``rates`` are reads and writes per second of the volume that reached least. ``by_direction`` sums them over all volumes.
    ``by_volume`` has the I/Os per second by volume name, summed over hosts.
    """

    key: str
    clean: bool
    iops: float
    bytes: float
    latency: dict[str, float] = field(default_factory=dict)
    device_io_share: float | None = None
    job_cpu: float | None = None
    host_cpu: float | None = None
    rates: tuple[float, float] | None = None
    by_direction: dict[str, float] = field(default_factory=dict)
    window: SteadyWindow | None = None
    by_volume: dict[str, float] = field(default_factory=dict)
    by_host: dict[str, HostDiskResult] = field(default_factory=dict)


def measure(options: DiskOptions, result: TrialResult) -> DiskMeasurement | None:
    """Return the numbers of a trial, or None if it failed or did no I/O."""
    if result.error is not None or not result.phases or not result.phases[0].targets:
        return None
    phase, point = result.phases[0], result.trial.point
    test, volume = TESTS[str(point["test"])], str(point["volume"])
    iops = phase.throughput
    if iops <= 0:
        return None
    by_host = {host: host_result for host in options.hosts if (host_result := _host_result(phase, host, test)) is not None}
    shares = [_device_io_share(options, volume, phase, host) for host in options.hosts or (None,)]
    known_shares = [share for share in shares if share is not None]
    busy_shares = [host_result.busy for host_result in by_host.values()] if by_host else [_busy_share(phase, "host")]
    return DiskMeasurement(
        key=result.trial.key(),
        clean=not result.tainted,
        iops=iops,
        bytes=sum(_bytes_by_direction(phase.targets).values()),
        latency=_latency(test, phase.targets),
        device_io_share=min(known_shares) if len(known_shares) == len(shares) else None,
        job_cpu=max((target.values["job_cpu"] for target in phase.targets if "job_cpu" in target.values), default=None),
        host_cpu=max((busy for busy in busy_shares if busy is not None), default=None),
        rates=_lowest_rates(phase.targets) if test.rw == "randrw" else None,
        by_direction={
            direction: math.fsum(target.values.get(f"{direction}_iops", 0.0) for target in phase.targets) for direction in _DIRECTIONS
        },
        window=_steady_window(phase.targets),
        by_volume=_by_volume(phase.targets),
        by_host=by_host,
    )


def _bytes_by_direction(targets: Sequence[TargetResult]) -> dict[str, float]:
    """Return the bytes per second that fio read and wrote."""
    return {
        direction: math.fsum(target.values.get(f"{direction}_bytes_per_second", 0.0) for target in targets) for direction in _DIRECTIONS
    }


def _by_volume(targets: Sequence[TargetResult]) -> dict[str, float]:
    iops: dict[str, float] = {}
    for target in targets:
        name = target.target.rpartition("/")[2]
        iops[name] = iops.get(name, 0.0) + target.throughput
    return iops


def _host_result(phase: PhaseResult, host: str, test: AccessPattern) -> HostDiskResult | None:
    """Return the result of a host, or None if it was lost."""
    targets = [target for target in phase.targets if target.target.startswith(f"{host}/")]
    if not targets:
        return None
    return HostDiskResult(
        iops=math.fsum(target.throughput for target in targets),
        bytes=sum(_bytes_by_direction(targets).values()),
        latency=_latency(test, targets).get("mean"),
        busy=_busy_share(phase, f"host:{host}"),
    )


def _latency(test: AccessPattern, targets: Sequence[TargetResult]) -> dict[str, float]:
    directions = [direction for direction in _DIRECTIONS if any(f"{direction}_iops" in target.values for target in targets)]
    latency: dict[str, float] = {}
    means = [
        (target.values[f"{direction}_mean_ms"], target.values[f"{direction}_iops"])
        for target in targets
        for direction in directions
        if f"{direction}_mean_ms" in target.values
    ]
    weight = math.fsum(iops for _, iops in means)
    if weight > 0:
        latency["mean"] = math.fsum(mean * iops for mean, iops in means) / weight
    for direction in directions:
        prefix = f"{direction}_" if test.rw == "randrw" else ""
        for name in _PERCENTILES:
            values = [target.values.get(f"{direction}_{name}_ms") for target in targets]
            reported = [value for value in values if value is not None]
            if reported and len(reported) == len(values):  # the slowest volume is only known if all of them report
                latency[f"{prefix}{name}"] = max(reported)
    return latency


def _device_io_share(options: DiskOptions, volume: str, phase: PhaseResult, host: str | None) -> float | None:
    """Return the bytes that a host's devices moved ÷ the bytes that fio requested there, for the direction with the lower share.

    A share is at most 1, because other programs may use the devices too. None if a device was not sampled.
    """
    volumes = [disk for disk in options.volumes_of(volume) if disk.volume.host == host]
    targets = [target for target in phase.targets if target.target in {disk.volume.target for disk in volumes}]
    if not all(disk.devices for disk in volumes):
        return None
    prefix = "" if host is None else f"{host}/"
    devices = list(dict.fromkeys(disk.devices[0] for disk in volumes))
    shares = []
    for direction, requested in _bytes_by_direction(targets).items():
        if requested <= 0:
            continue
        metrics = [phase.metrics.get(f"disk:{prefix}{device}", {}) for device in devices]
        if any(f"{direction}_bytes" not in values for values in metrics):
            return None
        shares.append(min(1.0, math.fsum(values[f"{direction}_bytes"] for values in metrics) / requested))
    return min(shares, default=None)


def _busy_share(phase: PhaseResult, entity: str) -> float | None:
    busy, online = phase.busy_cores(entity), phase.metrics.get(entity, {}).get("cpu.online")
    return None if busy is None or not online else busy / online


def _lowest_rates(targets: Sequence[TargetResult]) -> tuple[float, float]:
    return (
        min(target.values.get("read_iops", 0.0) for target in targets),
        min(target.values.get("write_iops", 0.0) for target in targets),
    )


def _steady_window(targets: Sequence[TargetResult]) -> SteadyWindow | None:
    """Judge the sum over all volumes, second by second."""
    series = [sum(second) for second in zip(*(target.per_second for target in targets), strict=False)]
    return steady_window(rounds_of(series))


@dataclass(frozen=True)
class DiskTestGroup:
    """Trials of one test on one volume, or on all volumes together.

    ``used`` are the clean trials, or the tainted ones if none is clean. ``double_depth`` are the trials at twice the depth.
    """

    test: AccessPattern
    volume: str
    used: tuple[DiskMeasurement, ...]
    double_depth: tuple[DiskMeasurement, ...]
    tried: int
    tainted: int

    @property
    def clean(self) -> bool:
        """True if the numbers come from clean trials."""
        return all(trial.clean for trial in self.used)

    @property
    def name(self) -> str:
        """Name of the finding: ``random_read_iops``, ``sequential_write_bandwidth``, ``qd1_read_latency``, ``mixed_iops``."""
        test = "mixed" if self.test.name == MIX else self.test.name.replace("-", "_")
        return f"{test}_{self.test.quantity}"

    @property
    def headline(self) -> tuple[str, str, list[float]]:
        """Column, unit and values of the test's main result."""
        if self.test.quantity == "latency":
            return "latency_mean", "ms", self.values(lambda trial: trial.latency.get("mean"))
        if self.test.quantity == "bandwidth":
            return "bandwidth", "MB/s", [trial.bytes / MB_PER_SECOND for trial in self.used]
        return "iops", "IOPS", [trial.iops for trial in self.used]

    def values(self, extract: Callable[[DiskMeasurement], float | None]) -> list[float]:
        """Return a quantity of every used trial that has it."""
        return [value for trial in self.used if (value := extract(trial)) is not None]

    @property
    def device_io_share(self) -> float | None:
        """Median share of the requested bytes that the devices moved. None if the devices were not sampled."""
        shares = self.values(lambda trial: trial.device_io_share)
        return float(statistics.median(shares)) if shares else None

    @property
    def double_depth_ratio(self) -> float | None:
        """I/Os at twice the depth ÷ I/Os at the depth. None if they were not measured on the same hosts."""
        medians = _medians_on_same_hosts(self.double_depth, self.used)
        return medians[0] / medians[1] if medians else None

    @property
    def unsteady(self) -> int:
        """Number of used trials that were not steady."""
        return sum(trial.window is not None and not trial.window.steady for trial in self.used)

    @property
    def judged(self) -> int:
        """Number of used trials that were long enough to judge steadiness."""
        return sum(trial.window is not None for trial in self.used)


def group_trials(options: DiskOptions, results: Sequence[TrialResult]) -> list[DiskTestGroup]:
    """Return the groups with at least one finished trial, volume by volume, in the order of the tests."""
    by_point: dict[tuple[str, str], list[TrialResult]] = {}
    double_depth_by_point: dict[tuple[str, str], list[DiskMeasurement]] = {}
    for result in results:
        test, volume = str(result.trial.point.get("test", "")), str(result.trial.point.get("volume", ""))
        if test not in TESTS:
            continue
        if "depth" in result.trial.point:
            measurement = measure(options, result)
            double_depth_by_point.setdefault((test, volume), []).extend([] if measurement is None else [measurement])
        else:
            by_point.setdefault((test, volume), []).append(result)
    groups = []
    for volume in options.targets():
        for test in options.tests:
            trials = by_point.get((test, volume), [])
            finished = [measurement for measurement in (measure(options, trial) for trial in trials) if measurement is not None]
            used = [trial for trial in finished if trial.clean] or finished
            if used:
                double_depth = double_depth_by_point.get((test, volume), [])
                used_double_depth = [trial for trial in double_depth if trial.clean] or double_depth
                tainted = sum(trial.tainted for trial in trials)
                groups.append(DiskTestGroup(TESTS[test], volume, tuple(used), tuple(used_double_depth), len(trials), tainted))
    return groups


def is_cached(options: DiskOptions, group: DiskTestGroup) -> bool | None:
    """Return True if the figure came from a cache of this host, or None if that is unknown."""
    if any(disk.filesystem in MEMORY_FILESYSTEMS for disk in options.volumes_of(group.volume)):
        return True
    share = group.device_io_share
    return None if share is None else share < UNCACHED_SHARE


def bottleneck(options: DiskOptions, group: DiskTestGroup, single_volumes: Sequence[DiskTestGroup] = ()) -> str:
    """Return the bottleneck: cache, rate-limit, latency, host-cpu, fio-cpu, iodepth, device, contention or unknown.

    ``single_volumes`` are the groups of the same test on each volume alone.
    """
    if is_cached(options, group):
        return "cache"
    if group.test.name == MIX and (rate_achieved(options, group) or 0.0) >= options.thresholds.min_rate_achieved:
        return "rate-limit"
    if not group.test.deep:
        return "latency"
    host_shares, job_shares = group.values(lambda trial: trial.host_cpu), group.values(lambda trial: trial.job_cpu)
    if host_shares and statistics.median(host_shares) >= options.thresholds.host_full:
        return "host-cpu"
    if job_shares and statistics.median(job_shares) >= options.thresholds.max_client_cpu:
        return "fio-cpu"
    if group.volume == ALL:
        share = concurrent_vs_sum(group, single_volumes)
        if share is not None and share < CONTENTION_SHARE:
            return "contention"
        counts = Counter(bottleneck(options, single) for single in single_volumes)
        return counts.most_common(1)[0][0] if counts else "unknown"
    ratio = group.double_depth_ratio
    if ratio is None:
        return "unknown"
    return "iodepth" if ratio > DEPTH_GAIN else "device"


def rate_achieved(options: DiskOptions, group: DiskTestGroup) -> float | None:
    """Return the share of its rates that the mix reached, for the direction and volume that reached least. None without a rate."""
    if options.rate_iops is None or group.test.name != MIX:
        return None
    shares = [
        min(actual / requested for actual, requested in zip(trial.rates, options.rate_iops, strict=True) if requested)
        for trial in group.used
        if trial.rates
    ]
    return float(statistics.median(shares)) if shares else None


def concurrent_vs_sum(group: DiskTestGroup, single_volumes: Sequence[DiskTestGroup]) -> float | None:
    """Return the I/Os of all volumes together ÷ the sum of each volume alone.

    None if a volume was not measured alone, or not on the same hosts.
    """
    names = {name for trial in group.used for name in trial.by_volume}
    trials_by_volume = {single.volume: single.used for single in single_volumes}
    if not names or not names <= set(trials_by_volume):
        return None
    medians = _medians_on_same_hosts(group.used, *(trials_by_volume[name] for name in names))
    return medians[0] / sum(medians[1:]) if medians else None


def _medians_on_same_hosts(*trial_sets: Sequence[DiskMeasurement]) -> list[float]:
    """Return the median I/Os per second of each set, over its trials on the largest set of hosts that all sets have.

    Empty if there are no such hosts, because sums over different hosts cannot be compared.
    """
    common = set[tuple[str, ...]].intersection(*({tuple(sorted(trial.by_host)) for trial in trials} for trials in trial_sets))
    if not common:
        return []
    hosts = max(sorted(common), key=len)
    return [float(statistics.median(trial.iops for trial in trials if tuple(sorted(trial.by_host)) == hosts)) for trials in trial_sets]
