"""Checks of a trial: observed values against expected ones. Pure.

A check is 'unknown', never 'pass', if its value cannot be observed. ``pgherd.model.analysis`` has the thresholds. ``judge`` is for a
finished trial. ``pgherd.runner.memory_checks`` also serves a failed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE, rounds_of, steady_window
from pgherd.drivers.command import VALUE, patterns_of
from pgherd.model.analysis import Check, CheckResult, Thresholds
from pgherd.model.deployment import Server
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Phase
from pgherd.model.placement import pinned_cpus
from pgherd.model.prometheus import CONTAINER_CPU, NODE_CPU, NODE_READS
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.model.units import format_bytes
from pgherd.postgres import huge_pages
from pgherd.study.kernel_io import KERNEL_IO_PART, kernel_io
from pgherd.study.objectives import lag_excess, least_completed
from pgherd.study.observation import HERE, MANAGER_PART, host_device_sum, hosts_of_servers, seconds_of, why_unseen

_SEE_OUTPUT = "see its stdout and stderr in the trial's directory"


def judge(trial: Trial, phases: list[PhaseResult], facts: HostFacts, thresholds: Thresholds, clock_jump: float) -> list[Check]:
    """Return all checks of a finished trial: its declared intents, then noise. The worst phase decides each."""
    checks: list[Check] = []
    for intent in trial.validity_checks:
        checks.append(_worst(phases, [_INTENTS[intent](trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    if any(_required_pages(server, _taken(trial, phase)) for phase in phases for _, _, server in trial.deployment.servers()):
        checks.append(_worst(phases, [_huge_pages(trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    noise: list[Callable[[Trial, int, PhaseResult, HostFacts, Thresholds], Check]] = [
        _overlap, _length, _errors, _steal, _background_cpu, _checkpoints, _no_autovacuum
    ]  # fmt: skip
    for check in noise if _has_servers(trial) else noise[:-2]:  # the last two need servers
        if check in (_length, _overlap) and trial.open_ended:
            continue  # its duration is not planned, and may differ between hosts
        checks.append(_worst(phases, [check(trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    if any(container.cpu_mode == "cpuset" for _, container in trial.deployment.containers()):
        checks.append(_worst(phases, [_shared_cpus(trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    if all(phase.slices is None and _saturates(phase) for phase in trial.phases):
        checks.append(_worst(phases, [_steady(phase) for phase in phases]))
    lasting = [_without_single(trial, number, phase) for number, phase in enumerate(phases)]
    if len(phases) > 1 and any(phase.targets for phase in lasting):
        checks.append(switch_skew(lasting, thresholds))
    checks.append(_clock(clock_jump, thresholds))
    return checks


def _worst(phases: list[PhaseResult], checks: list[Check]) -> Check:
    """Return the check of the worst phase, with the phase's name. The first of equal ones decides."""
    worst = max(checks, key=lambda check: check.gravity)
    if len(phases) == 1 or worst.result == "pass":
        return worst
    alike = tuple(phase.phase for phase, check in zip(phases, checks, strict=True) if check.gravity == worst.gravity)
    first = f"phase {alike[0]}" + (f", the first of {len(alike)} such" if len(alike) > 1 else "") + f" of {len(phases)}"
    failed = alike if worst.result == "fail" else ()
    return worst.model_copy(update={"observed": f"{worst.observed} ({first})", "failed_phases": failed})


def check_of(
    check: str, ok: bool | None, observed: str, expected: str, reason: str = "", *, validity: bool = False, warn: bool = False
) -> Check:
    """Return a check whose condition held (True), did not hold (False), or could not be observed (None)."""
    result: CheckResult = "unknown" if ok is None else "pass" if ok else "fail"
    return Check(
        name=check,
        kind="validity" if validity else "noise",
        result=result,
        observed=observed,
        expected=expected,
        reason=reason if result != "pass" else "",
        severity="warn" if warn else "taint",
    )


def _cpus(phase: PhaseResult, facts: HostFacts, host: str) -> float:
    return facts.logical_cpus or facts.cores if host == HERE else phase.metrics[host]["cpu.online"]


def _steal_share(phase: PhaseResult, facts: HostFacts, host: str = HERE) -> float | None:
    stolen = phase.metrics.get(host, {}).get("cpu.steal")
    return None if stolen is None else stolen / _cpus(phase, facts, host)


def _host_utilization(phase: PhaseResult, facts: HostFacts, host: str = HERE) -> float | None:
    """Return the used share of the host's CPUs, including steal, or None if unknown."""
    busy = phase.busy_cores(host)
    return None if busy is None else busy / _cpus(phase, facts, host) + (_steal_share(phase, facts, host) or 0.0)


def _budget(trial: Trial, facts: HostFacts) -> float:
    return trial.deployment.hosts[0].cores or facts.cores


def _loaded_containers(trial: Trial, number: int) -> Iterator[tuple[str, float | None]]:
    """Yield (container, allocated vCPUs) of the containers under load in a phase."""
    targets = set(trial.phases[number].loads)
    names = set()
    for address, _, container, _, _ in trial.deployment.databases():
        if str(address) in targets and container.name not in names:
            names.add(container.name)
            yield container.name, container.vcpus if container.cpu_limited else None


def _cpu_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"each loaded container at ≥ {limits.min_cpu_used:.0%} of its vCPUs, or the host at ≥ {limits.host_full:.0%}"
    if unknown := why_unseen(trial, number, phase, NODE_CPU):
        return check_of("cpu-bound", None, "the server's CPU is not seen", expected, unknown, validity=True)
    utilizations = [_host_utilization(phase, facts, host) for host in hosts_of_servers(trial, number, phase)]
    utilization = None if None in utilizations else min(share or 0.0 for share in utilizations)
    cores = facts.logical_cpus or facts.cores
    shares: dict[str, float] = {}
    unseen: list[str] = []
    loaded = 0.0
    for name, vcpus in _loaded_containers(trial, number):
        metrics = phase.metrics.get(f"container:{name}", {})
        used, vcpus = metrics.get("cpu.usage"), vcpus or metrics.get("cpu.limit")
        loaded += used or 0.0
        if vcpus is not None and used is None:
            unseen.append(name)
        elif vcpus is not None and used is not None:
            shares[name] = used / vcpus
    budget = _budget(trial, facts)
    if budget < cores:  # the run may use a part of the host: it is full when the containers use all of that
        utilization = max(utilization or 0.0, loaded / budget)
    observed = f"host at {utilization:.1%}" if utilization is not None else "host CPU not seen"
    if shares:
        lowest = min(shares, key=lambda name: shares[name])
        observed = f"containers at {shares[lowest]:.1%} ({lowest}, the lowest) of their vCPUs, {observed}"
    used_up = min(shares.values(), default=1.0) >= limits.min_cpu_used
    if (shares and used_up and not unseen) or (utilization is not None and utilization >= limits.host_full):
        return check_of("cpu-bound", True, observed, expected, validity=True)
    if unseen and used_up:
        return check_of("cpu-bound", None, observed, expected, f"{_abbreviated(unseen)}: its CPU could not be read", validity=True)
    has_cpu_data = bool(shares) or utilization is not None
    reason = "something other than CPU limited the databases: clients, locks or I/O" if has_cpu_data else "CPU use could not be read"
    return check_of("cpu-bound", False if has_cpu_data else None, observed, expected, reason, validity=True)


def _abbreviated(names: list[str]) -> str:
    """Return the first name and the number of further ones."""
    return names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _servers(trial: Trial, number: int, phase: PhaseResult) -> Iterator[tuple[str, dict[str, float]]]:
    targets = set(trial.phases[number].loads)
    names = set()
    for address, _, container, server, _ in trial.deployment.databases():
        name = f"{container.name}/{server.name}"
        if str(address) in targets and name not in names:
            names.add(name)
            yield name, phase.metrics.get(f"server:{name}", {})


def _cached(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"hit ratio ≥ {limits.min_hit_ratio:.1%} in every database and ≤ {limits.max_device_reads:g} device reads per transaction"
    ratios, unseen, missed = {}, [], 0.0
    for name, metrics in _servers(trial, number, phase):
        hit, read = metrics.get("db.blks_hit"), metrics.get("db.blks_read")
        if hit is None or read is None:
            unseen.append(name)
        elif hit + read > 0:
            ratios[name] = hit / (hit + read)
            missed += read
    # Disks of an unseen server cannot be observed, but they served at most as many reads as the server missed blocks.
    unseen_disks = why_unseen(trial, number, phase, NODE_READS)
    reads = missed if unseen_disks else host_device_sum(trial, number, phase, "reads")
    if not ratios or reads is None or phase.throughput <= 0:
        return check_of("cached", None, "no buffer statistics or device counters", expected, "they could not be read", validity=True)
    # The devices serve the whole host. The databases caused at most as many reads as they missed blocks.
    lowest, per_tx = min(ratios, key=lambda name: ratios[name]), min(reads, missed) / phase.throughput
    observed = f"hit ratio {ratios[lowest]:.2%} ({lowest}, the lowest), at most {per_tx:.3g} device reads per transaction"
    ok: bool | None = ratios[lowest] >= limits.min_hit_ratio and per_tx <= limits.max_device_reads
    if unseen_disks and ratios[lowest] >= limits.min_hit_ratio and not ok:
        return check_of("cached", None, observed, expected, f"its disks cannot be observed: {unseen_disks}", validity=True)
    if ok and unseen:
        return check_of("cached", None, observed, expected, f"{_abbreviated(unseen)}: its statistics could not be read", validity=True)
    return check_of("cached", ok, observed, expected, "the data does not fit shared_buffers; raise it or lower --scale", validity=True)


def _io_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"≥ {limits.min_device_reads:g} device reads per transaction"
    unknown = why_unseen(trial, number, phase, NODE_READS)
    reads = None if unknown else host_device_sum(trial, number, phase, "reads")
    if reads is None or phase.throughput <= 0:
        return check_of("io-bound", None, "device counters not seen", expected, unknown or "/proc/diskstats has no device", validity=True)
    missed = [metrics.get("db.blks_read") for _, metrics in _servers(trial, number, phase)]
    # The devices serve the whole host. The databases caused at most as many reads as they missed blocks.
    per_tx = min([reads] if None in missed else [reads, sum(read or 0.0 for read in missed)]) / phase.throughput
    reason = "the data came from a cache; raise --scale or lower --memory"
    met = per_tx >= limits.min_device_reads
    return check_of("io-bound", met, f"{per_tx:.3g} device reads per transaction", expected, reason, validity=True)


def _not_client_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"every driver below {limits.max_client_cpu:.0%} of what its threads can get"
    loads = trial.phases[number].loads
    vcpus_of = dict(_loaded_containers(trial, number))
    shares = {}
    for target in phase.targets:
        used = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)
        load = loads[target.target]
        vcpus = vcpus_of.get(target.target.split("/")[1]) if load.client_placement == "inside" and "/" in target.target else None
        if used is not None:
            shares[target.target] = used / phase.loaded(target) / min(load.threads, vcpus or load.threads)
    if len(shares) < len(phase.targets) or not shares:
        return check_of("not-client-bound", None, "drivers' CPU not seen", expected, "it could not be read", validity=True)
    highest = max(shares, key=lambda name: shares[name])
    observed = f"{shares[highest]:.1%} ({highest}, the highest)"
    reason = "the driver's threads are the limit, not the database; give it more with --threads"
    ok: bool | None = shares[highest] < limits.max_client_cpu
    if facts.cores < facts.logical_cpus:  # pgherd is in a container with a quota, which its drivers share
        together = sum(driver_cpu(target, phase) for target in phase.targets if loads[target.target].host is None) / facts.cores
        expected += f", and all below {limits.host_full:.0%} of the {facts.cores:g} cores of pgherd's container"
        observed += f", all at {together:.1%} of its cores"
        if ok and together >= limits.host_full:
            ok, reason = False, "the drivers use all CPU of pgherd's container: raise its limit, or load less"
    if any(load.host is not None for load in loads.values()):  # this host runs only drivers
        utilization = _host_utilization(phase, facts)
        expected += f", and their host below {limits.host_full:.0%}"
        observed += ", their host not seen" if utilization is None else f", their host at {utilization:.1%}"
        if ok and (utilization is None or utilization >= limits.host_full):
            ok = None if utilization is None else False
            reason = (
                "its CPU use could not be read" if utilization is None else "the clients' host is full: give it more CPUs, or load less"
            )
    return check_of("not-client-bound", ok, observed, expected, reason, validity=True)


_LATE = "the databases could not keep up; latency includes the time that transactions waited for their turn"


def _rate_achieved(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    loads = trial.phases[number].loads
    due = {t.target: rate * phase.seconds for t in phase.targets if (rate := loads[t.target].rate) is not None}
    expected = (
        f"≥ {limits.min_rate_achieved:.0%} of the rate in every database, less three standard deviations of random arrivals, and a "
        f"schedule lag that grows by at most {1 - limits.min_rate_achieved:.0%} of the time"
    )
    if not due:
        return check_of("rate-achieved", None, "no load has a rate", expected, "give one with --rate", validity=True)
    completed = {t.target: t.transactions for t in phase.targets if t.target in due}
    lowest = min(due, key=lambda name: completed[name] / due[name])
    behind = {
        t.target: growth for t in phase.targets if t.target in due and (growth := lag_excess(t, loads[t.target], phase.seconds)) is not None
    }
    latest = max(behind, key=lambda name: behind[name], default=None)
    if latest is not None and behind[latest] > 1 - limits.min_rate_achieved:
        observed = f"schedule lag grew by {behind[latest]:.1%} of the time ({latest}, the fastest)"
        return check_of("rate-achieved", False, observed, expected, _LATE, validity=True)
    ok = all(completed[name] >= least_completed(due[name], limits.min_rate_achieved) for name in due)
    observed = (
        f"{completed[lowest] / due[lowest]:.1%} ({completed[lowest]:.0f} of {due[lowest]:.0f} transactions due, {lowest}, the lowest)"
    )
    return check_of("rate-achieved", ok, observed, expected, _LATE, validity=True)


def _required_pages(server: Server, taken: bool) -> str | None:
    """Return 'reserved', 'transparent' or 'ordinary' if a server's settings and trial require it. Otherwise, return None.

    ``taken``: a server has taken reserved pages that were free. Then all servers with ``huge_pages = try`` must have some.
    """
    if huge_pages.requires_huge_pages(server.settings) or (taken and not huge_pages.refuses_huge_pages(server.settings)):
        return "reserved"
    if server.transparent_huge_pages:
        return "transparent"
    if huge_pages.refuses_huge_pages(server.settings) and server.transparent_huge_pages is False:
        return "ordinary"
    return None


def _taken(trial: Trial, phase: PhaseResult) -> bool:
    readings = [phase.metrics.get(f"server:{container.name}/{server.name}", {}) for _, container, server in trial.deployment.servers()]
    return any(reading.get("pages.reserved", 0.0) > 0 for reading in readings)


def _huge_pages(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected, worst = "", (2.0, "no server's shared memory was seen")
    for _, container, server in trial.deployment.servers():
        required, name = _required_pages(server, _taken(trial, phase)), f"{container.name}/{server.name}"
        if required is None:
            continue
        pages = "ordinary pages" if required == "ordinary" else f"{required} huge pages"
        expected = f"≥ {limits.min_huge_page_share:.0%} of the shared memory in use on {pages}"
        metrics = phase.metrics.get(f"server:{name}", {})
        mapped = metrics.get("pages.mapped", 0.0)
        if mapped <= 0:
            return check_of(
                "huge-pages", None, f"{name}: not seen", expected, "/proc/PID/smaps of the server could not be read", validity=True
            )
        huge = metrics.get("pages.huge", 0.0) / mapped
        size = format_bytes(metrics.get("pages.size", 0.0))
        observed = f"{huge:.1%} of {format_bytes(mapped)} on huge pages ({name}, mapped in pages of {size})"
        worst = min(worst, (1 - huge if required == "ordinary" else huge, observed))
    reason = "the kernel gave the server other pages than requested: memory may be fragmented, a setting of the host takes precedence, or "
    reason += "huge_pages is 'try' and other servers took the pages first"
    return check_of("huge-pages", worst[0] >= limits.min_huge_page_share, worst[1], expected, reason, validity=True)


def _overlap(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    reason = "some databases started late or ended early, so the others shared the host with fewer"
    return check_of(
        "overlap", phase.overlap >= limits.min_overlap, f"{phase.overlap:.1%} of the period", f"≥ {limits.min_overlap:.0%}", reason
    )


def _length(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    """Check the length of a phase. pgherd's clock ends it, so an overrun shows that pgherd, and perhaps other processes,
    could not run.
    """
    planned = trial.phases[number].seconds
    expected = f"≤ {limits.max_overrun:.0%} longer than planned"
    observed = f"{phase.seconds:.1f} s of {planned:g} s planned"
    # A busy host may take 0.5 s to wake this process.
    ok = phase.seconds <= planned * (1 + limits.max_overrun) + 0.5
    reason = "the host did not schedule pgherd in time, so the measured period differs from the plan; with CAP_SYS_NICE, or rtprio 1 in "
    reason += "limits.conf, pgherd runs before other processes"
    return check_of("on-schedule", ok, observed, expected, reason)


def _errors(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    failed = sum(target.failed for target in phase.targets)
    reason = "see the drivers' stderr in the trial's directory"
    return check_of(
        "no-failed-transactions",
        failed <= limits.max_failed_transactions,
        f"{failed} failed transactions",
        f"≤ {limits.max_failed_transactions:.0f}",
        reason,
    )


def _steal(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    """Check the CPU time that the hypervisor withheld.

    Variants in time slices lose the same, in random order and a fraction of a second apart. In simulated studies
    (benchmarks/steal_pairs.py) 40 % of steal then gives neither false alarms above the nominal share nor a bias, whatever the length of
    the bursts. A variant that loses a tenth more, because it needs more CPU, is biased by a ninth of the steal: by 0.6 % at the limit
    of 5 %, and 1.1 % at 10 %. A load of devices is not limited by CPU unless the host's CPU is full. Below that, the hypervisor's
    own work for its I/O counts as steal, and is a warning only.
    """
    paired = trial.phases[number].slices is not None
    limit = max(limits.max_steal, limits.max_paired_steal) if paired else limits.max_steal
    expected = f"≤ {limit:.1%} of the host's CPU time" + (" (the variants lost the same)" if paired else "")
    unknown = why_unseen(trial, number, phase, NODE_CPU)
    servers = [] if unknown else [_steal_share(phase, facts, host) for host in hosts_of_servers(trial, number, phase)]
    shares = [_steal_share(phase, facts), *servers]
    if None in shares:
        return check_of("steal", None, "not seen", expected, "the kernel does not report steal")
    share = max(share or 0.0 for share in shares)
    if unknown and share <= limit:
        return check_of("steal", None, f"{share:.2%} here, not seen at the server", expected, unknown)
    utilization = _host_utilization(phase, facts)
    if _loads_devices(trial, number) and share > limit and utilization is not None and utilization < limits.host_full:
        expected += f" (warning only, because I/O is the limit: the host's CPU is below {limits.host_full:.0%})"
        reason = "the hypervisor used CPU time, which includes its work for this I/O"
        return check_of("steal", False, f"{share:.2%}, host at {utilization:.1%}", expected, reason, warn=True)
    return check_of("steal", share <= limit, f"{share:.2%}", expected, "the hypervisor gave CPU time to other guests")


def _loads_devices(trial: Trial, number: int) -> bool:
    """Return whether a phase's load should be limited by devices: it is of fio, or databases that should be I/O-bound."""
    return "io-bound" in trial.validity_checks or {load.driver for load in trial.phases[number].loads.values()} == {"fio"}


def _has_servers(trial: Trial) -> bool:
    return any(True for _ in trial.deployment.servers())


def _background_cpu(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"≤ {limits.max_background_cpu:.1%} of the host's CPU time"
    busy = phase.busy_cores()
    containers = [m["cpu.usage"] for e, m in phase.metrics.items() if e.startswith("container:") and "cpu.usage" in m]
    # Without servers there are no containers, and the drivers' kernel time cannot be separated from other programs' CPU.
    no_servers = not _has_servers(trial)
    unknown = why_unseen(trial, number, phase, NODE_CPU, CONTAINER_CPU)
    if busy is None or not (containers or no_servers) or unknown:
        return check_of("background-cpu", None, "containers' CPU not seen", expected, unknown or "this runtime cannot account for it")
    hosts = hosts_of_servers(trial, number, phase)
    if HERE not in hosts:  # the load runs here, and the servers elsewhere
        used = {host: sum(phase.metrics[f"container:{name}"]["cpu.usage"] for name in names) for host, names in hosts.items()}
        others = max(((phase.busy_cores(host) or 0.0) - used[host]) / _cpus(phase, facts, host) for host in hosts)
        ok = others <= limits.max_background_cpu
        return check_of("background-cpu", ok, f"{max(others, 0):.2%}", expected, "other processes used the server's host")
    loads = trial.phases[number].loads
    outside = [driver_cpu(t, phase) for t in phase.targets if loads[t.target].client_placement == "outside"]
    platform = {e: m.get("cpu.usage", 0.0) for e, m in phase.metrics.items() if e == "pgherd" or e.startswith("platform:")}
    platform.pop(f"platform:{MANAGER_PART}", None)  # the manager is a thread of pgherd
    platform[f"platform:{KERNEL_IO_PART}"] = kernel_io(phase) or 0.0  # the sample has the threads of the whole host
    share = (busy - sum(containers) - sum(outside) - sum(platform.values())) / (facts.logical_cpus or facts.cores)
    reason = "other processes used the host"
    return check_of("background-cpu", share <= limits.max_background_cpu, f"{max(share, 0):.2%}", expected, reason, warn=no_servers)


def _shared_cpus(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    """Check that no loaded containers share a CPU while another CPU of the run has none."""
    loaded = {name for name, _ in _loaded_containers(trial, number)}
    expected = "no two loaded containers on one CPU while another one has none"
    for host in trial.deployment.hosts:
        if not all(container.cpu_mode == "cpuset" and container.vcpus and container.cpus is None for container in host.containers):
            continue
        cores = int(host.cores or facts.cores)
        users: dict[int, list[str]] = {cpu: [] for cpu in range(cores)}
        for container, cpus in zip(host.containers, pinned_cpus([c.vcpus or 1 for c in host.containers], cores), strict=True):
            for cpu in cpus if container.name in loaded else ():
                users[cpu].append(container.name)
        crowd, idle = max(users.values(), key=len), sum(not names for names in users.values())
        if len(crowd) > 1 and idle:
            observed = f"{_abbreviated(crowd)} on the same CPU, {idle} of {cores} CPUs without a loaded container"
            return check_of("shared-cpus", False, observed, expected, "the choice of the databases, not the host, limits the throughput")
    return check_of("shared-cpus", True, "loaded containers are spread over the CPUs", expected)


def _rate_of(phase: PhaseResult, trial: Trial, number: int, *names: str) -> float | None:
    rates = [sum(m.get(name, 0.0) for name in names) for _, m in _servers(trial, number, phase) if names[0] in m]
    return sum(rates) if rates else None


def _checkpoints(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    read_only = all(load.read_only for load in trial.phases[number].loads.values())
    expected = f"≤ {limits.max_checkpoints:.0f} in the window" + ("" if read_only else " (warning only, because the load writes)")
    rate = _rate_of(phase, trial, number, "checkpoint.timed", "checkpoint.requested")
    if rate is None:
        return check_of("no-checkpoint", None, "not seen", expected, "the servers' statistics could not be read", warn=True)
    count = rate * phase.seconds
    # Statistics are as coarse as the sampling period: less than half a checkpoint is none.
    ok = count < limits.max_checkpoints + 0.5
    return check_of("no-checkpoint", ok, f"{count:.0f} checkpoints", expected, "a checkpoint wrote in the window", warn=True)


def _no_autovacuum(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    expected = f"≤ {limits.max_autovacuum_workers:.0f} autovacuum workers at work"
    workers = [m["vacuum.workers"] for _, m in _servers(trial, number, phase) if "vacuum.workers" in m]
    if not workers:
        return check_of("no-autovacuum", None, "not seen", expected, "the servers' statistics could not be read", warn=True)
    return check_of(
        "no-autovacuum",
        sum(workers) <= limits.max_autovacuum_workers,
        f"{sum(workers):.2g} on average",
        expected,
        "autovacuum ran",
        warn=True,
    )


def _saturates(phase: Phase) -> bool:
    """Return whether all loads of a phase make as many transactions as they can, so that their throughput shows the state of the host."""
    return bool(phase.loads) and all(load.driver == "pgbench" and load.rate is None for load in phase.loads.values())


def _steady(phase: PhaseResult) -> Check:
    """Check that throughput neither wanders nor drifts within the window, by the rule that ``disk`` and ``density`` also use."""
    expected = f"{ROUNDS} parts of the window range by at most {RANGE:.0%} and drift by at most {SLOPE:.0%}"
    rounds = rounds_of(seconds_of([phase]))
    window = steady_window(rounds)
    if window is None:
        return check_of("steady", None, "not seen", expected, f"the window has fewer than {ROUNDS} whole seconds", warn=True)
    observed = f"range {window.range:.1%}, drift {window.excursion:+.1%}"
    if phase.throughput * phase.seconds < ROUNDS * _MIN_COUNT:
        return check_of("steady", None, observed, expected, f"with fewer than {_MIN_COUNT} transactions, parts differ by chance", warn=True)
    reason = "the load starts on another level, or moves between levels: a longer --duration and --warmup tell more"
    return check_of("steady", window.steady, observed, expected, reason, warn=True)


_MIN_COUNT = 1000
"""Minimum number of transactions of a part of a window. It then varies by 3 % by chance."""


def _without_single(trial: Trial, number: int, phase: PhaseResult) -> PhaseResult:
    """Return a phase without loads that end by themselves, which begin when they like."""
    loads = trial.phases[number].loads
    return phase.model_copy(update={"targets": [target for target in phase.targets if not loads[target.target].ends_itself]})


def worst_switch(phases: Sequence[PhaseResult]) -> PhaseResult:
    """Return the phase with the largest skew, preferring those in which some of it was counted."""
    return max(phases, key=lambda phase: (_began_in_period(phase), -1.0 if phase.skew is None else phase.skew))


def _began_in_period(phase: PhaseResult) -> bool:
    """Return whether a target's new load began only within the measured period."""
    return any(target.first >= phase.start for target in phase.targets)


def switch_skew(phases: Sequence[PhaseResult], limits: Thresholds) -> Check:
    """Check that all targets switched together. The worst phase decides."""
    worst = _switch_skew(worst_switch(phases), limits)
    alike = [
        phase.phase for phase in phases if (check := _switch_skew(phase, limits)).result == "fail" and check.severity == worst.severity
    ]
    return worst.model_copy(update={"failed_phases": tuple(alike)}) if worst.result == "fail" else worst


def _switch_skew(phase: PhaseResult, limits: Thresholds) -> Check:
    """Check that all targets started a phase's load together. Skew within the warm-up, which is not counted, is a
    warning only.
    """
    expected = f"≤ {limits.max_switch_skew * 1000:.0f} ms between the targets' first transactions"
    if phase.skew is None:
        single = len(phase.targets) == 1
        return check_of("switch-skew", True if single else None, "a single target" if single else "not seen", expected, "no target began")
    counted = _began_in_period(phase)
    observed = f"{phase.skew * 1000:.0f} ms ({phase.phase}), {'some of it counted' if counted else 'all before the measured period'}"
    reason = "clients connect one after another, on some databases later: a longer --warmup keeps that out of the measured period"
    return check_of("switch-skew", phase.skew <= limits.max_switch_skew, observed, expected, reason, warn=not counted)


def _clock(jump: float, limits: Thresholds) -> Check:
    reason = "the wall clock was set during the trial; timestamps cannot be trusted"
    return check_of(
        "clock-step", abs(jump) <= limits.max_clock_step, f"moved {jump * 1000:.0f} ms", f"≤ {limits.max_clock_step * 1000:.0f} ms", reason
    )


def exit_code(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    """Check that every command that ended by itself returned 0. If a command that should run on ends early, the trial
    fails.
    """
    codes = {target.target: code for target in phase.targets if (code := target.values.get("exit_code")) is not None}
    expected = "exit code 0 of every command"
    if not codes:
        return check_of("exit-code", True, "each ran until it was stopped", expected, validity=True)
    failed = {target: code for target, code in codes.items() if code != 0}
    if not failed:
        return check_of("exit-code", True, "exit code 0", expected, validity=True)
    failures = ", ".join(f"{_code(code)} on {target}" for target, code in failed.items())
    return check_of("exit-code", False, failures, expected, _SEE_OUTPUT, validity=True)


def values_found(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Check:
    """Check that every value to extract from an output was there, as a number."""
    loads = trial.phases[number].loads
    missing = [
        f"{name} on {target.target}"
        for target in phase.targets
        for name in patterns_of(loads[target.target])
        if f"{VALUE}{name}" not in target.values
    ]
    expected = "a number for every --extract"
    if missing:
        return check_of("values-extracted", False, f"not found: {', '.join(missing)}", expected, _SEE_OUTPUT, validity=True)
    return check_of("values-extracted", True, "all found", expected, validity=True)


def driver_cpu(target: TargetResult, phase: PhaseResult) -> float:
    """Return the cores that a driver used in the window.

    A command's processes are not sampled, but their total CPU is known when it has ended. The mean over its lifetime
    is used.
    """
    sampled = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", 0.0)
    return max(sampled, target.client_cpu or 0.0) if target.driver == "command" else sampled


def _code(code: float) -> str:
    return f"exit code {code:.0f}" if code >= 0 else f"signal {-code:.0f}"


_INTENTS: dict[ValidityCheck, Callable[[Trial, int, PhaseResult, HostFacts, Thresholds], Check]] = {
    "cpu-bound": _cpu_bound,
    "cached": _cached,
    "io-bound": _io_bound,
    "not-client-bound": _not_client_bound,
    "rate-achieved": _rate_achieved,
    "exit-code": exit_code,
    "values-extracted": values_found,
}
