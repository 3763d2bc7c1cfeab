"""One trial's numbers: what fio counted, what the devices did meanwhile, whether it was steady. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgherd.analysis.stability import SteadyWindow, rounds_of, steady_window
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.disk.access import TESTS, Access
from pgherd.studies.disk.options import DiskOptions

_SIDES = ("read", "write")
_TOLD = ("mean", "p50", "p95", "p99", "p99_9")


@dataclass(frozen=True)
class HostShare:
    """What one of several hosts did in a trial: I/Os and bytes per second, mean latency (ms; None: not told), the share of its CPU that
    was in use (None: not seen)."""

    iops: float
    bytes: float
    latency: float | None
    busy: float | None


@dataclass(frozen=True)
class Measured:
    """One finished trial. ``iops`` and ``bytes`` (per second) are sums over its volumes. ``latency`` in ms by name (mean, p50 …): the
    mean over all I/Os; of percentiles the slowest volume's, and of a mix the reads' (``read_p50``) and the writes' apart.
    ``device_share`` is what the devices moved over what fio asked for (None: not seen). ``job_cpu`` is the share of one CPU that
    the busiest fio job used, ``host`` the share of the host's CPU that was in use. ``rates`` are reads and writes per second of
    the volume that reached least, ``sides`` those of all volumes together, by direction. Of several hosts, ``device_share`` and
    ``host`` are of the one that has least, and most; ``by_host`` holds what each of them did, and ``by_volume`` I/Os per second of
    all volumes of a name."""

    key: str
    clean: bool
    iops: float
    bytes: float
    latency: dict[str, float] = field(default_factory=dict)
    device_share: float | None = None
    job_cpu: float | None = None
    host: float | None = None
    rates: tuple[float, float] | None = None
    sides: dict[str, float] = field(default_factory=dict)
    steady: SteadyWindow | None = None
    by_volume: dict[str, float] = field(default_factory=dict)
    by_host: dict[str, HostShare] = field(default_factory=dict)


def measure(options: DiskOptions, result: TrialResult) -> Measured | None:
    """The numbers of a trial; None where it has none."""
    if result.error is not None or not result.phases or not result.phases[0].targets:
        return None
    phase, point = result.phases[0], result.trial.point
    test, place = TESTS[str(point["test"])], str(point["volume"])
    iops = phase.throughput
    if iops <= 0:
        return None
    moved = _moved(phase.targets)
    by_host = {host: share for host in options.hosts if (share := _of_host(phase, host, test)) is not None}
    shares = [_device_share(options, place, phase, host) for host in options.hosts or (None,)]
    known = [share for share in shares if share is not None]
    busy = [share.busy for share in by_host.values()] if by_host else [_busy(phase, "host")]
    return Measured(
        key=result.trial.key(),
        clean=not result.tainted,
        iops=iops,
        bytes=sum(moved.values()),
        latency=_latency(test, phase.targets),
        device_share=min(known) if len(known) == len(shares) else None,
        job_cpu=max((t.values["job_cpu"] for t in phase.targets if "job_cpu" in t.values), default=None),
        host=max((one for one in busy if one is not None), default=None),
        rates=_rates(phase.targets) if test.rw == "randrw" else None,
        sides={side: math.fsum(t.values.get(f"{side}_iops", 0.0) for t in phase.targets) for side in _SIDES},
        steady=_steady(phase.targets),
        by_volume=_by_volume(phase.targets),
        by_host=by_host,
    )


def _moved(targets: Sequence[TargetResult]) -> dict[str, float]:
    """Bytes per second that fio read and wrote."""
    return {side: math.fsum(t.values.get(f"{side}_bytes_per_second", 0.0) for t in targets) for side in _SIDES}


def _by_volume(targets: Sequence[TargetResult]) -> dict[str, float]:
    found: dict[str, float] = {}
    for target in targets:
        name = target.target.rpartition("/")[2]
        found[name] = found.get(name, 0.0) + target.throughput
    return found


def _of_host(phase: PhaseResult, host: str, test: Access) -> HostShare | None:
    """None where the host took no part: it was lost."""
    targets = [target for target in phase.targets if target.target.startswith(f"{host}/")]
    if not targets:
        return None
    return HostShare(
        iops=math.fsum(target.throughput for target in targets),
        bytes=sum(_moved(targets).values()),
        latency=_latency(test, targets).get("mean"),
        busy=_busy(phase, f"host:{host}"),
    )


def _latency(test: Access, targets: Sequence[TargetResult]) -> dict[str, float]:
    sides = [side for side in _SIDES if any(f"{side}_iops" in t.values for t in targets)]
    found: dict[str, float] = {}
    means = [(t.values[f"{side}_mean_ms"], t.values[f"{side}_iops"]) for t in targets for side in sides if f"{side}_mean_ms" in t.values]
    weight = math.fsum(iops for _, iops in means)
    if weight > 0:
        found["mean"] = math.fsum(mean * iops for mean, iops in means) / weight
    for side in sides:
        prefix = f"{side}_" if test.rw == "randrw" else ""
        for name in _TOLD[1:]:
            values = [t.values.get(f"{side}_{name}_ms") for t in targets]
            told = [value for value in values if value is not None]
            if told and len(told) == len(values):  # a slowest volume is known only where all are
                found[f"{prefix}{name}"] = max(told)
    return found


def _device_share(options: DiskOptions, place: str, phase: PhaseResult, host: str | None) -> float | None:
    """Bytes that a host's devices moved over those that fio asked for there, of the direction that has less of them; at most 1 each,
    since others may use the devices too. None where not all of them were seen."""
    volumes = [one for one in options.at(place) if one.volume.host == host]
    targets = [target for target in phase.targets if target.target in {one.volume.target for one in volumes}]
    if not all(one.devices for one in volumes):
        return None
    within = "" if host is None else f"{host}/"
    names = list(dict.fromkeys(one.devices[0] for one in volumes))
    shares = []
    for side, asked in _moved(targets).items():
        if asked <= 0:
            continue
        metrics = [phase.metrics.get(f"disk:{within}{name}", {}) for name in names]
        if any(f"{side}_bytes" not in one for one in metrics):
            return None
        shares.append(min(1.0, math.fsum(one[f"{side}_bytes"] for one in metrics) / asked))
    return min(shares, default=None)


def _busy(phase: PhaseResult, entity: str) -> float | None:
    busy, online = phase.busy_cores(entity), phase.metrics.get(entity, {}).get("cpu.online")
    return None if busy is None or not online else busy / online


def _rates(targets: Sequence[TargetResult]) -> tuple[float, float]:
    return (min(t.values.get("read_iops", 0.0) for t in targets), min(t.values.get("write_iops", 0.0) for t in targets))


def _steady(targets: Sequence[TargetResult]) -> SteadyWindow | None:
    """Of the sum over all volumes, by second."""
    series = [sum(each) for each in zip(*(t.per_second for t in targets), strict=False)]
    return steady_window(rounds_of(series))
