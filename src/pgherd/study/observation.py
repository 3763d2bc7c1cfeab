"""Numbers of one trial: throughput, fairness, latency, CPU use and bottleneck. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.analysis.stability import jain, min_max
from pgherd.model.analysis import Thresholds
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.guests import EMULATED_METRIC
from pgherd.study.kernel_io import KERNEL_IO_PART, STACKED, kernel_io

IOWAIT_SHARE = 0.10
"""Minimum share of CPU time in iowait at which storage counts as the bottleneck, unless CPU is."""


HERE, HOST_OF, DISK_OF = "host", "server-host:", "server-disk:"
"""Entities: this host, and the host and disks of an external server by Prometheus."""
_UNKNOWN = (
    "the server is external, and its cgroup is not known; --server-cgroup (in a list 'container') names it on this host, --prometheus "
    "elsewhere"
)


def _loaded_external(trial: Trial, number: int) -> list[str]:
    """Return the containers of external servers under load in a phase."""
    loaded = {tuple(target.split("/")[:2]) for target in trial.phases[number].loads}
    return [c.name for host, c in trial.deployment.containers() if c.runtime == "external" and (host.name, c.name) in loaded]


def why_unseen(trial: Trial, number: int, phase: PhaseResult, *series: str) -> str:
    """Return why the containers and hosts of external servers under load in a phase are not observed. '' if they are, or if there are none.

    ``series`` are the series that are needed where Prometheus has the samples.
    """
    for container in _loaded_external(trial, number):
        view = next((view for view in phase.prometheus if view.container == container), None)
        if view is None:
            if "cpu.usage" not in phase.metrics.get(f"container:{container}", {}):
                return _UNKNOWN
            continue
        for name in series:
            if name in view.sparse:
                step = "unknown" if view.step is None else f"{view.step:.3g} s"
                return f"Prometheus has fewer than two samples of {name} in the window (step {step}): use a longer --duration"
            if name not in view.series:
                hint = ", or no container: --server-cgroup names it" if name.startswith("container_") else ""
                return f"Prometheus at {view.url} has no series {name} for {view.match}{hint}"
    return ""


def hosts_of_servers(trial: Trial, number: int, phase: PhaseResult) -> dict[str, list[str]]:
    """Return entity of a host → external containers under load on it. Servers that are not external run on this host.

    Each server has an entity of its host. Of servers on one host, it is that of the first.
    """
    return _hosts(_loaded_external(trial, number), phase) or {HERE: []}


def seen_hosts(trial: Trial, number: int, phase: PhaseResult) -> list[str]:
    """Return the entities of the hosts of servers under load in a phase. Empty if one of them is not observed (``why_unseen``)."""
    return [] if why_unseen(trial, number, phase) else list(hosts_of_servers(trial, number, phase))


def host_sum(trial: Trial, number: int, phase: PhaseResult, name: str) -> float | None:
    """Return the sum of a metric over the hosts of servers under load. None if one of them does not have it."""
    return _sum(phase.metrics.get(host, {}).get(name) for host in seen_hosts(trial, number, phase))


def host_device_sum(trial: Trial, number: int, phase: PhaseResult, *names: str) -> float | None:
    """Return the sum of these metrics over the block devices of the hosts of servers under load. None if one of them does not have them."""
    hosts = seen_hosts(trial, number, phase)
    prefixes = ["disk:" if host == HERE else f"{DISK_OF}{host.removeprefix(HOST_OF)}/" for host in hosts]
    return _sum(device_sum(phase, *names, prefix=prefix) for prefix in prefixes)


def container_sum(phase: PhaseResult, name: str) -> float | None:
    """Return the sum of a metric over the containers under load. None if one of them does not have it."""
    containers = {target.target.split("/")[1] for target in phase.targets if target.target.count("/") == 3}
    return _sum(phase.metrics.get(f"container:{container}", {}).get(name) for container in containers)


def used_share(phase: PhaseResult, host: str = HERE) -> float | None:
    """Return the used share of a host's CPUs, steal included. None if it was not measured."""
    metrics, busy = phase.metrics.get(host, {}), phase.busy_cores(host)
    if busy is None or "cpu.idle" not in metrics:
        return None
    used = busy + metrics.get("cpu.steal", 0.0)
    total = used + metrics["cpu.idle"] + metrics.get("cpu.iowait", 0.0)
    return used / total if total else None


def clients_fill_host(limits: Thresholds, host_cores: float, phase: PhaseResult) -> bool:
    """Return whether this host is full, or the drivers use all of the run's part of it. For clients of servers elsewhere."""
    share = used_share(phase)
    if share is None:
        return False
    drivers = math.fsum(metrics.get("cpu.usage", 0.0) for entity, metrics in phase.metrics.items() if entity.startswith("driver:"))
    return share >= limits.host_full or drivers >= limits.host_full * host_cores


def _hosts(containers: Iterable[str], phase: PhaseResult) -> dict[str, list[str]]:
    hosts_of = {view.container: (view.url, view.match) for view in phase.prometheus}
    first: dict[tuple[str, str], str] = {}
    hosts: dict[str, list[str]] = {}
    for name in containers:
        entity = first.setdefault(hosts_of[name], f"{HOST_OF}{name}") if name in hosts_of else HERE
        hosts.setdefault(entity, []).append(name)
    return hosts


@dataclass(frozen=True)
class CpuBreakdown:
    """CPU use of one phase, in cores. None: not measured.

    Attributes:
        loaded: containers under load.
        databases: all containers, without clients and sampling backends.
        clients: drivers inside and outside the containers. Drivers on a separate client host are not included.
        pgherd: pgherd with its sampling backends.
        platform: all other CPU use of the host. It includes hypervisor overhead and the balloon manager.
        named: parts of ``platform`` that are tracked by name.
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
class SchedulerUse:
    """How the CPU scheduler ran the load of a trial. None: not measured.

    Attributes:
        throttled: share of quota periods in which the loaded containers were throttled.
        runnable: mean number of runnable tasks on the servers' hosts.
        switches_per_tx: context switches of the servers' hosts per transaction.
        system_per_tx: system time of the loaded containers per transaction, in ms.
        client_per_tx: CPU time of the clients on the servers' host per transaction, in ms.
        under_50us: share of the transactions that took less than 0.05 ms.
    """

    throttled: float | None = None
    runnable: float | None = None
    switches_per_tx: float | None = None
    system_per_tx: float | None = None
    client_per_tx: float | None = None
    under_50us: float | None = None


@dataclass(frozen=True)
class Observation:
    """Numbers of one finished trial. Latencies are medians over the databases, in ms.

    Attributes:
        cpu_per_tx: CPU of the loaded containers per transaction, in ms.
        given: CPU use of the loaded containers as a share of their CPU limit.
        bottleneck: cpu-quota, cpuset, vcpus, host-cpu, client-cpu, rate-limit, storage, lock-waits, lwlock-waits or unknown.
        nopm: sum of the databases' committed new orders per minute. None without such a script.
        per_second: total throughput by second, over all phases.
    """

    key: str
    databases: int
    clean: bool
    throughput: float
    jain_index: float | None
    min_max_ratio: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    cpu: CpuBreakdown
    cpu_per_tx: float | None
    given: float | None
    bottleneck: str
    nopm: float | None = None
    scheduler: SchedulerUse = SchedulerUse()
    per_second: tuple[float, ...] = ()


def observe(options: DatabaseOptions, result: TrialResult) -> Observation | None:
    """Return the numbers of a trial. None if it failed or ran no load."""
    seconds = sum(phase.seconds for phase in result.phases)
    if result.error is not None or seconds <= 0 or not any(phase.targets for phase in result.phases):
        return None
    weights = [phase.seconds / seconds for phase in result.phases]
    throughput = sum(w * phase.throughput for w, phase in zip(weights, result.phases, strict=True))
    shares: dict[str, float] = {}
    for w, phase in zip(weights, result.phases, strict=True):
        for target in phase.targets:
            shares[target.target] = shares.get(target.target, 0.0) + w * target.throughput
    cpu = _average([_cpu_breakdown(result.trial, number, phase) for number, phase in enumerate(result.phases)], weights)
    databases = int(result.trial.point.get("databases", len(shares)))
    limit = math.fsum(_cpu_limit(result.phases[-1], target) or options.vcpus for target in shares)
    given = None if cpu.loaded is None else cpu.loaded / limit
    return Observation(
        key=result.trial.key(),
        databases=databases,
        clean=not result.tainted,
        throughput=throughput,
        jain_index=jain(list(shares.values())),
        min_max_ratio=min_max(list(shares.values())),
        p50=median_latency(result, "p50"),
        p95=median_latency(result, "p95"),
        p99=median_latency(result, "p99"),
        cpu=cpu,
        cpu_per_tx=None if cpu.loaded is None or throughput <= 0 else 1000 * cpu.loaded / throughput,
        given=given,
        nopm=_nopm(result, weights),
        scheduler=_scheduler_use(result, throughput, cpu.clients),
        per_second=seconds_of(result.phases),
        bottleneck=_bottleneck(options, result, databases, throughput, cpu, given),
    )


def _cpu_limit(phase: PhaseResult, target: str) -> float | None:
    """Return the CPU limit of an external server's cgroup in cores. None if there is none, or if pgherd sets the limit."""
    return phase.metrics.get(f"container:{target.split('/')[1]}", {}).get("cpu.limit") if target.count("/") == 3 else None


def _scheduler_use(result: TrialResult, throughput: float, clients: float | None) -> SchedulerUse:
    """Return the scheduler's numbers of a trial, as means over its phases by time."""
    if throughput <= 0:
        return SchedulerUse()

    def mean(take: Callable[[int, PhaseResult], float | None]) -> float | None:
        values = [(take(number, phase), phase.seconds) for number, phase in enumerate(result.phases)]
        if any(value is None for value, _ in values):
            return None
        return sum((value or 0.0) * seconds for value, seconds in values) / sum(seconds for _, seconds in values)

    def of_hosts(name: str) -> float | None:
        return mean(lambda number, phase: host_sum(result.trial, number, phase, name))

    def loaded(name: str) -> float | None:
        return mean(lambda _, phase: container_sum(phase, name))

    periods, throttled, system = loaded("cpu.periods"), loaded("cpu.throttled_periods"), loaded("cpu.system")
    switches = of_hosts("context_switches")
    fast = [target.latency.under_50us for phase in result.phases for target in phase.targets]
    known = [share for share in fast if share is not None]
    return SchedulerUse(
        throttled=throttled / periods if periods and throttled is not None else None,
        runnable=of_hosts("procs_running"),
        switches_per_tx=None if switches is None else switches / throughput,
        system_per_tx=None if system is None else 1000 * system / throughput,
        client_per_tx=None if clients is None else 1000 * clients / throughput,
        under_50us=sum(known) / len(known) if known and len(known) == len(fast) else None,
    )


def seconds_of(phases: Sequence[PhaseResult]) -> tuple[float, ...]:
    """Return the sum of the targets' series. A second that one target lacks is left out."""
    totals: list[float] = []
    for phase in phases:
        totals += [math.fsum(values) for values in zip(*(target.per_second for target in phase.targets), strict=False)]
    return tuple(totals)


def device_sum(phase: PhaseResult, *names: str, prefix: str = "disk:") -> float | None:
    """Return the sum of these metrics over the host's block devices. None if no device has all of them.

    ``prefix`` is the start of the devices' entities.

    Stacked devices (dm, md, loop, zram) pass their requests to other devices, so they would count twice. They are included only if
    there are no other devices, as in a container. On several hosts a device is ``disk:HOST/NAME``.
    """
    sums = {
        entity: math.fsum(metrics[name] for name in names)
        for entity, metrics in phase.metrics.items()
        if entity.startswith(prefix) and all(name in metrics for name in names)
    }
    plain = [value for entity, value in sums.items() if not re.split("[:/]", entity)[-1].startswith(STACKED)]
    return math.fsum(plain or sums.values()) if sums else None


def median_latency(result: TrialResult, name: str) -> float | None:
    """Return the median of this percentile over databases and phases. None unless every database has it."""
    values = [getattr(target.latency, name) for phase in result.phases for target in phase.targets]
    return None if not values or any(value is None for value in values) else float(statistics.median(values))


def _nopm(result: TrialResult, weights: Sequence[float]) -> float | None:
    rates = [phase.nopm for phase in result.phases]
    if all(rate is None for rate in rates):
        return None
    return sum(w * (rate or 0.0) for w, rate in zip(weights, rates, strict=True))


def _cpu_breakdown(trial: Trial, number: int, phase: PhaseResult) -> CpuBreakdown:
    metrics = phase.metrics
    containers = {entity.removeprefix("container:"): m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "container:", m)}
    loaded_names = {target.target.split("/")[1] for target in phase.targets if target.target.count("/") == 3}
    measured = bool(loaded_names) and loaded_names <= set(containers)
    inside, outside = _clients(trial.phases[number], phase)
    backends = sum(m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "backend:", m))
    pgherd = metrics.get("pgherd", {}).get("cpu.usage")
    named = {entity.removeprefix("platform:"): m["cpu.usage"] for entity, m in metrics.items() if _has(entity, "platform:", m)}
    if (for_io := kernel_io(phase)) is not None:
        named[KERNEL_IO_PART] = for_io
    # The servers' hosts are not this one where Prometheus has their samples, and unknown where nothing has.
    entities = seen_hosts(trial, number, phase)
    busy = _sum(phase.busy_cores(entity) for entity in entities)
    steal, idle, iowait = (_sum(metrics.get(entity, {}).get(f"cpu.{name}") for entity in entities) for name in ("steal", "idle", "iowait"))
    total = None if busy is None or idle is None else busy + idle + (iowait or 0.0) + (steal or 0.0)
    contained = sum(containers.values()) if measured else None
    if contained is not None and (hypervisors := hypervisor_cpu(metrics)) is not None:
        named[QEMU_PART] = hypervisors
        contained = max(contained - hypervisors, 0.0)
    if pgherd is not None:
        pgherd = max(pgherd - named.get(MANAGER_PART, 0.0), 0.0)
    databases = platform = None
    if contained is not None and inside is not None:
        databases = max(contained - inside - backends, 0.0)
    if contained is not None and outside is not None and busy is not None and pgherd is not None and entities == [HERE]:
        # The host counts ticks and cgroups count nanoseconds. Clip the difference, because the two can disagree slightly.
        platform = max(busy - contained - outside - pgherd, 0.0)
    return CpuBreakdown(
        loaded=sum(containers[name] for name in loaded_names) if measured else None,
        databases=databases,
        clients=None if inside is None or outside is None else inside + outside,
        pgherd=None if pgherd is None else pgherd + backends,
        platform=platform,
        iowait=iowait,
        idle=idle,
        steal=steal,
        total=total,
        named=named,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum. None if there are no values, or if one is None."""
    known = list(values)
    return None if not known or None in known else math.fsum(value or 0.0 for value in known)


def _has(entity: str, prefix: str, metrics: dict[str, float]) -> bool:
    return entity.startswith(prefix) and "cpu.usage" in metrics


def _clients(plan: Phase, phase: PhaseResult) -> tuple[float | None, float | None]:
    """Return the CPU of drivers on the servers' host, inside and outside the containers. None if one driver was not measured."""
    sums: dict[str, float | None] = {"inside": 0.0, "outside": 0.0}
    for target in phase.targets:
        load = plan.loads.get(target.target)
        if load and load.host is not None:
            continue
        placement = load.client_placement if load else "inside"
        used = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)
        previous = sums[placement]
        sums[placement] = None if used is None or previous is None else previous + used
    return sums["inside"], sums["outside"]


def _average(phases: Sequence[CpuBreakdown], weights: Sequence[float]) -> CpuBreakdown:
    def mean(take: Callable[[CpuBreakdown], float | None]) -> float | None:
        values = [take(phase) for phase in phases]
        measured = [value for value in values if value is not None]
        return sum(w * value for w, value in zip(weights, measured, strict=True)) if len(measured) == len(values) else None

    names = sorted({name for phase in phases for name in phase.named})
    return CpuBreakdown(
        loaded=mean(lambda cpu: cpu.loaded),
        databases=mean(lambda cpu: cpu.databases),
        clients=mean(lambda cpu: cpu.clients),
        pgherd=mean(lambda cpu: cpu.pgherd),
        platform=mean(lambda cpu: cpu.platform),
        iowait=mean(lambda cpu: cpu.iowait),
        idle=mean(lambda cpu: cpu.idle),
        steal=mean(lambda cpu: cpu.steal),
        total=mean(lambda cpu: cpu.total),
        named={name: sum(w * phase.named.get(name, 0.0) for w, phase in zip(weights, phases, strict=True)) for name in names},
    )


def _bottleneck(
    options: DatabaseOptions, result: TrialResult, databases: int, throughput: float, cpu: CpuBreakdown, given: float | None
) -> str:
    """Return the bottleneck of a trial, or 'unknown'."""
    if options.rate is not None:
        # The check covers each database. The sum over databases could hide one that does not meet its rate.
        rate_met = [check.result for check in result.checks if check.name == "rate-achieved"]
        if rate_met == ["pass"] or (not rate_met and throughput >= options.thresholds.min_rate_achieved * options.rate * databases):
            return "rate-limit"
    # This host's CPU says nothing of external servers whose own is not seen.
    unseen = options.external and cpu.loaded is None
    if unseen and (waits := _WAITS.get(main_wait(result))):
        return waits
    unused = None if unseen or cpu.total is None or cpu.idle is None else (cpu.idle + (cpu.iowait or 0.0)) / cpu.total
    if unused is not None and unused <= 1 - options.thresholds.host_full:
        return "host-cpu"
    here = not any(phase.prometheus for phase in result.phases)
    if here and cpu.loaded is not None and cpu.loaded >= options.thresholds.host_full * options.host_cores:
        return "host-cpu"
    limited = options.cpu_limited or all(_cpu_limit(phase, target.target) for phase in result.phases for target in phase.targets)
    if limited and given is not None and given >= options.thresholds.min_cpu_used:
        return "cpuset" if options.cpu_mode == "cpuset" else "vcpus" if options.cpu_mode == "none" and options.cpu_limited else "cpu-quota"
    failed = {check.name for check in result.checks if check.result == "fail"}
    if "not-client-bound" in failed:
        return "client-cpu"
    io_bound = any(check.name == "io-bound" and check.result == "pass" for check in result.checks)
    waiting = not unseen and cpu.total is not None and cpu.iowait is not None and cpu.iowait / cpu.total >= IOWAIT_SHARE
    return "storage" if io_bound or waiting else _WAITS.get(main_wait(result), "unknown")


CPU_LIMITS = {"cpu-quota": "CPU quota", "cpuset": "CPU set", "vcpus": "number of vCPUs"}
"""Bottlenecks that are the CPU limit of a container, with their names."""
WAITING_SHARE = 0.5
"""Minimum share of the active sessions that wait in one class at which it counts as the bottleneck, if nothing else is known."""
_WAITS = {"lock": "lock-waits", "lwlock": "lwlock-waits", "io": "storage"}


def main_wait(result: TrialResult) -> str:
    """Return the class of wait events in which most active sessions of external servers were.

    '' without one, if less than one session was active on average, or if waits were not sampled.
    """
    sums: dict[str, float] = {}
    for series in (series for phase in result.phases for series in phase.waits.values()):
        for name, values in series.items():
            sums[name] = sums.get(name, 0.0) + math.fsum(values)
    total = math.fsum(sums.values())
    largest = max(sums, key=lambda name: sums[name], default="")
    seconds = sum(len(next(iter(series.values()))) for phase in result.phases for series in phase.waits.values() if series)
    return largest if seconds and total >= seconds and sums[largest] >= WAITING_SHARE * total else ""


QEMU_PART, MANAGER_PART = "QEMU", "balloon-manager"
"""Named parts of the platform: QEMU's overhead (its CPU without running vCPUs) and the balloon manager."""


def hypervisor_cpu(metrics: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return the hypervisors' CPU overhead in cores: their CPU use without running vCPUs.

    None without guests, if one guest was not measured, or with emulated processors. Emulation runs guest code in QEMU itself, so its
    overhead cannot be separated. The overhead counts as platform, not as databases (E2).
    """
    guests = [values for entity, values in metrics.items() if entity.startswith("guest:")]
    if not guests or any(values.get(EMULATED_METRIC) != 0 or not {"qemu.cpu", "qemu.cpu_guest"} <= set(values) for values in guests):
        return None
    return math.fsum(max(values["qemu.cpu"] - values["qemu.cpu_guest"], 0.0) for values in guests)
