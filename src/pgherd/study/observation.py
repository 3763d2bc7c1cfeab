"""One trial's numbers: throughput, fairness, latency, and where the CPU went."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.analysis.stability import jain, min_max
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.emulation import EMULATED_METRIC

IOWAIT_SHARE = 0.10
"""Share of CPU time spent waiting for storage from which on storage counts as the limit, if CPU is not."""
_STACKED = ("dm-", "md", "loop", "zram")


@dataclass(frozen=True)
class CpuBreakdown:
    """CPU in cores over one phase, each None where it was not seen.

    ``loaded`` is that of the containers under load; ``databases`` that of all containers without clients and sampling
    backends; ``clients`` the drivers', inside and outside, unless they have a host of their own; ``pgherd`` its own with its
    sampling backends; ``platform`` everything else that used the host, of which ``named`` are the parts with a name. Of guests, what
    their hypervisors use beside running vCPUs and the balloon manager's CPU are the platform's.
    """

    loaded: float | None
    databases: float | None
    clients: float | None
    pgherd: float | None
    platform: float | None
    iowait: float | None
    idle: float | None
    steal: float | None
    total: float | None
    named: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """One finished trial. Latencies are in ms, medians over the databases; ``given`` is the share of their given CPU
    that the loaded containers used; ``limited_by`` is quota, host, clients, rate, storage or unknown; ``notpm`` is the sum of
    the databases' committed new orders per minute, None where there is no such script."""

    key: str
    databases: int
    clean: bool
    throughput: float
    jain: float | None
    min_max: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    cpu: CpuBreakdown
    cpu_per_tx: float | None
    given: float | None
    limited_by: str
    notpm: float | None = None


def observe(options: DatabaseOptions, result: TrialResult) -> Observation | None:
    """The numbers of a trial; None when it has none (it failed, or nothing ran)."""
    seconds = sum(phase.seconds for phase in result.phases)
    if result.error is not None or seconds <= 0 or not any(phase.targets for phase in result.phases):
        return None
    weights = [phase.seconds / seconds for phase in result.phases]
    throughput = sum(w * phase.throughput for w, phase in zip(weights, result.phases, strict=True))
    shares: dict[str, float] = {}
    for w, phase in zip(weights, result.phases, strict=True):
        for target in phase.targets:
            shares[target.target] = shares.get(target.target, 0.0) + w * target.throughput
    cpu = _average([_window(plan, phase) for plan, phase in zip(result.trial.phases, result.phases, strict=False)], weights)
    databases = int(result.trial.point.get("databases", len(shares)))
    given = None if cpu.loaded is None else cpu.loaded / (len(shares) * options.vcpus)
    return Observation(
        key=result.trial.key(),
        databases=databases,
        clean=not result.tainted,
        throughput=throughput,
        jain=jain(list(shares.values())),
        min_max=min_max(list(shares.values())),
        p50=median_latency(result, "p50"),
        p95=median_latency(result, "p95"),
        p99=median_latency(result, "p99"),
        cpu=cpu,
        cpu_per_tx=None if cpu.loaded is None or throughput <= 0 else 1000 * cpu.loaded / throughput,
        given=given,
        notpm=_notpm(result, weights),
        limited_by=_limit(options, result, databases, throughput, cpu, given),
    )


def device_sum(phase: PhaseResult, *names: str) -> float | None:
    """The sum of these metrics over the host's block devices; None where no device was seen to have them.

    Devices that pass on to others what they are asked would be counted twice: they count only where there are no others (in a
    container). Of several hosts a device is ``disk:HOST/NAME``.
    """
    seen = {
        entity: math.fsum(metrics[name] for name in names)
        for entity, metrics in phase.metrics.items()
        if entity.startswith("disk:") and all(name in metrics for name in names)
    }
    plain = [value for entity, value in seen.items() if not re.split("[:/]", entity)[-1].startswith(_STACKED)]
    return math.fsum(plain or seen.values()) if seen else None


def median_latency(result: TrialResult, name: str) -> float | None:
    """Median over databases and windows of each one's own percentile; None unless every database has it."""
    values = [getattr(target.latency, name) for phase in result.phases for target in phase.targets]
    return None if not values or any(value is None for value in values) else float(statistics.median(values))


def _notpm(result: TrialResult, weights: Sequence[float]) -> float | None:
    rates = [phase.notpm for phase in result.phases]
    if all(rate is None for rate in rates):
        return None
    return sum(w * (rate or 0.0) for w, rate in zip(weights, rates, strict=True))


def _window(plan: Phase, phase: PhaseResult) -> CpuBreakdown:
    metrics = phase.metrics
    containers = {entity.removeprefix("container:"): m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "container:", m)}
    loaded_names = {target.target.split("/")[1] for target in phase.targets if target.target.count("/") == 3}
    known = bool(loaded_names) and loaded_names <= set(containers)
    inside, outside = _clients(plan, phase)
    backends = sum(m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "backend:", m))
    own = metrics.get("pgherd", {}).get("cpu.usage")
    named = {entity.removeprefix("platform:"): m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "platform:", m)}
    host = metrics.get("host", {})
    busy = phase.busy_cores()
    steal, idle, iowait = (host.get(f"cpu.{name}") for name in ("steal", "idle", "iowait"))
    total = None if busy is None or idle is None else busy + idle + (iowait or 0.0) + (steal or 0.0)
    contained = sum(containers.values()) if known else None
    if contained is not None and (hypervisors := hypervisor_cpu(metrics)) is not None:
        named[QEMU_PART] = hypervisors
        contained = max(contained - hypervisors, 0.0)
    if own is not None:
        own = max(own - named.get(MANAGER_PART, 0.0), 0.0)
    databases = platform = None
    if contained is not None and inside is not None:
        databases = max(contained - inside - backends, 0.0)
    if contained is not None and outside is not None and busy is not None and own is not None:
        # Two clocks (the host's ticks, the groups' nanoseconds) can disagree by a little: what is used up cannot be negative.
        platform = max(busy - contained - outside - own, 0.0)
    return CpuBreakdown(
        loaded=sum(containers[name] for name in loaded_names) if known else None,
        databases=databases,
        clients=None if inside is None or outside is None else inside + outside,
        pgherd=None if own is None else own + backends,
        platform=platform,
        iowait=iowait,
        idle=idle,
        steal=steal,
        total=total,
        named=named,
    )


def _has(entity: str, prefix: str, metrics: dict[str, float]) -> bool:
    return entity.startswith(prefix) and "cpu.usage" in metrics


def _clients(plan: Phase, phase: PhaseResult) -> tuple[float | None, float | None]:
    """CPU that the drivers took from the servers' host, inside the containers and outside; None where one of them was not seen."""
    sums: dict[str, float | None] = {"inside": 0.0, "outside": 0.0}
    for target in phase.targets:
        load = plan.loads.get(target.target)
        if load and load.host is not None:
            continue
        place = load.place if load else "inside"
        used = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)
        before = sums[place]
        sums[place] = None if used is None or before is None else before + used
    return sums["inside"], sums["outside"]


def _average(windows: Sequence[CpuBreakdown], weights: Sequence[float]) -> CpuBreakdown:
    def mean(take: Callable[[CpuBreakdown], float | None]) -> float | None:
        values = [take(window) for window in windows]
        seen = [value for value in values if value is not None]
        return sum(w * value for w, value in zip(weights, seen, strict=True)) if len(seen) == len(values) else None

    names = sorted({name for window in windows for name in window.named})
    return CpuBreakdown(
        loaded=mean(lambda w: w.loaded),
        databases=mean(lambda w: w.databases),
        clients=mean(lambda w: w.clients),
        pgherd=mean(lambda w: w.pgherd),
        platform=mean(lambda w: w.platform),
        iowait=mean(lambda w: w.iowait),
        idle=mean(lambda w: w.idle),
        steal=mean(lambda w: w.steal),
        total=mean(lambda w: w.total),
        named={name: sum(w * window.named.get(name, 0.0) for w, window in zip(weights, windows, strict=True)) for name in names},
    )


def _limit(options: DatabaseOptions, result: TrialResult, databases: int, throughput: float, cpu: CpuBreakdown, given: float | None) -> str:
    """What kept the throughput from being higher, as far as it can be seen."""
    if options.rate is not None:
        # The verdict looks at every database; their sum alone could hide one that starves.
        judged = [verdict.result for verdict in result.verdicts if verdict.check == "rate-met"]
        if judged == ["pass"] or (not judged and throughput >= options.thresholds.rate_met * options.rate * databases):
            return "rate"
    unused = None if cpu.total is None or cpu.idle is None else (cpu.idle + (cpu.iowait or 0.0)) / cpu.total
    if unused is not None and unused <= 1 - options.thresholds.host_full:
        return "host"
    if cpu.loaded is not None and cpu.loaded >= options.thresholds.host_full * options.cores:
        return "host"
    if options.cpu_mode != "none" and given is not None and given >= options.thresholds.cpu_bound:
        return "quota"
    failed = {verdict.check for verdict in result.verdicts if verdict.result == "fail"}
    if "not-client-bound" in failed:
        return "clients"
    bound = any(verdict.check == "io-bound" and verdict.result == "pass" for verdict in result.verdicts)
    waiting = cpu.total is not None and cpu.iowait is not None and cpu.iowait / cpu.total >= IOWAIT_SHARE
    return "storage" if bound or waiting else "unknown"


QEMU_PART, MANAGER_PART = "QEMU", "balloon-manager"
"""Names of these parts of the platform: what QEMU uses beside running vCPUs, and the balloon manager."""


def hypervisor_cpu(metrics: Mapping[str, Mapping[str, float]]) -> float | None:
    """Cores that the guests' hypervisors used beside running vCPUs; None where there is no guest, where it was not seen of all, and where
    processors were emulated: the emulation cannot be told from what it emulates."""
    guests = [of for entity, of in metrics.items() if entity.startswith("guest:")]
    if not guests or any(of.get(EMULATED_METRIC) != 0 or not {"qemu.cpu", "qemu.cpu_guest"} <= set(of) for of in guests):
        return None
    return math.fsum(max(of["qemu.cpu"] - of["qemu.cpu_guest"], 0.0) for of in guests)
