"""One trial's numbers: what fio counted, what the devices did meanwhile, whether it was steady. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgherd.analysis.steady_window import SteadyWindow, rounds_of, steady_window
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.disk.access import TESTS, Access
from pgherd.studies.disk.options import DiskOptions

_SIDES = ("read", "write")
_TOLD = ("mean", "p50", "p95", "p99", "p99_9")


@dataclass(frozen=True)
class Measured:
    """One finished trial. ``iops`` and ``bytes`` (per second) are sums over its volumes. ``latency`` in ms by name (mean, p50 …): the
    mean over all I/Os; of percentiles the slowest volume's, and of a mix the reads' (``read_p50``) and the writes' apart.
    ``device_share`` is what the devices moved over what fio asked for (None: not seen). ``job_cpu`` is the share of one CPU that
    the busiest fio job used, ``host`` the share of the host's CPU that was in use. ``rates`` are reads and writes per second of
    the volume that reached least."""

    key: str
    clean: bool
    iops: float
    bytes: float
    latency: dict[str, float] = field(default_factory=dict)
    device_share: float | None = None
    job_cpu: float | None = None
    host: float | None = None
    rates: tuple[float, float] | None = None
    steady: SteadyWindow | None = None
    by_volume: dict[str, float] = field(default_factory=dict)


def measure(options: DiskOptions, result: TrialResult) -> Measured | None:
    """The numbers of a trial; None where it has none."""
    if result.error is not None or not result.phases or not result.phases[0].targets:
        return None
    phase, point = result.phases[0], result.trial.point
    test, place = TESTS[str(point["test"])], str(point["volume"])
    iops = phase.throughput
    if iops <= 0:
        return None
    moved = {side: math.fsum(t.values.get(f"{side}_bytes_per_second", 0.0) for t in phase.targets) for side in _SIDES}
    names = list(dict.fromkeys(one.devices[0] for one in options.at(place) if one.devices))
    seen = all(one.devices for one in options.at(place))
    return Measured(
        key=result.trial.key(),
        clean=not result.tainted,
        iops=iops,
        bytes=sum(moved.values()),
        latency=_latency(test, phase.targets),
        device_share=_device_share(phase, names, moved) if seen else None,
        job_cpu=max((t.values["job_cpu"] for t in phase.targets if "job_cpu" in t.values), default=None),
        host=_host(phase),
        rates=_rates(phase.targets) if test.rw == "randrw" else None,
        steady=_steady(phase.targets),
        by_volume={t.target: t.throughput for t in phase.targets},
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


def _device_share(phase: PhaseResult, names: Sequence[str], moved: dict[str, float]) -> float | None:
    """Bytes that the devices moved over those that fio asked for, of the direction that has less of them; at most 1 each, since
    others may use the devices too."""
    shares = []
    for side, asked in moved.items():
        if asked <= 0:
            continue
        metrics = [phase.metrics.get(f"disk:{name}", {}) for name in names]
        if any(f"{side}_bytes" not in one for one in metrics):
            return None
        shares.append(min(1.0, math.fsum(one[f"{side}_bytes"] for one in metrics) / asked))
    return min(shares, default=None)


def _host(phase: PhaseResult) -> float | None:
    busy, online = phase.busy_cores(), phase.metrics.get("host", {}).get("cpu.online")
    return None if busy is None or not online else busy / online


def _rates(targets: Sequence[TargetResult]) -> tuple[float, float]:
    return (min(t.values.get("read_iops", 0.0) for t in targets), min(t.values.get("write_iops", 0.0) for t in targets))


def _steady(targets: Sequence[TargetResult]) -> SteadyWindow | None:
    """Of the sum over all volumes, by second."""
    series = [sum(each) for each in zip(*(t.per_second for t in targets), strict=False)]
    return steady_window(rounds_of(series))
