"""Verdicts: what was observed in a trial against what is wanted. Pure.

What cannot be seen is 'unknown', never 'pass'. Thresholds are those of pgherd.model.thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pgherd.drivers.command import VALUE, patterns_of
from pgherd.model.deployment import Server
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Verdict, VerdictResult
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Intent, Trial
from pgherd.model.units import format_bytes
from pgherd.postgres import huge_pages
from pgherd.studies.hypervisor import MANAGER
from pgherd.studies.observe import of_devices

_SEE_OUTPUT = "see its stdout and stderr in the trial's directory"
_NOT_OURS = "the server is somebody else's"


def judge(trial: Trial, phases: list[PhaseResult], facts: HostFacts, thresholds: Thresholds, clock_jump: float) -> list[Verdict]:
    """All verdicts of a finished trial: its declared intents, then noise. The worst phase decides each."""
    found: list[Verdict] = []
    for intent in trial.intents:
        found.append(_worst(phases, [_INTENTS[intent](trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    if any(_asked_pages(server) for _, _, server in trial.deployment.servers()):
        found.append(_worst(phases, [_huge_pages(trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    noise: list[Callable[[Trial, int, PhaseResult, HostFacts, Thresholds], Verdict]] = [
        _overlap, _length, _errors, _steal, _foreign_cpu, _checkpoints, _vacuums
    ]  # fmt: skip
    for check in noise if _has_servers(trial) else noise[:-2]:  # the last two look at servers
        if check in (_length, _overlap) and trial.open_ended:
            continue  # nobody planned how long it lasts, and each host may take its own time
        found.append(_worst(phases, [check(trial, number, phase, facts, thresholds) for number, phase in enumerate(phases)]))
    if len(phases) > 1:
        found.append(switch_skew(phases, thresholds))
    found.append(_clock(clock_jump, thresholds))
    return found


def _worst(phases: list[PhaseResult], verdicts: list[Verdict]) -> Verdict:
    """The verdict of the worst phase, with its name: the first of those that are alike."""
    worst = max(verdicts, key=lambda verdict: verdict.gravity)
    if len(phases) == 1 or worst.result == "pass":
        return worst
    alike = tuple(phase.phase for phase, verdict in zip(phases, verdicts, strict=True) if verdict.gravity == worst.gravity)
    first = f"phase {alike[0]}" + (f", the first of {len(alike)} such" if len(alike) > 1 else "") + f" of {len(phases)}"
    failed = alike if worst.result == "fail" else ()
    return worst.model_copy(update={"observed": f"{worst.observed} ({first})", "failed_in": failed})


def _verdict(
    check: str, ok: bool | None, observed: str, wanted: str, why: str = "", *, intent: bool = False, warn: bool = False
) -> Verdict:
    result: VerdictResult = "unknown" if ok is None else "pass" if ok else "fail"
    return Verdict(
        check=check,
        kind="intent" if intent else "noise",
        result=result,
        observed=observed,
        wanted=wanted,
        why=why if result != "pass" else "",
        severity="warn" if warn else "taint",
    )


def _host(phase: PhaseResult, *names: str) -> float | None:
    metrics = phase.metrics.get("host", {})
    return sum(metrics.get(name, 0.0) for name in names) if names[0] in metrics else None


def _full(phase: PhaseResult, facts: HostFacts) -> float | None:
    """The share of the host's CPUs in use, with what the hypervisor took; None where it was not seen."""
    busy, steal = phase.busy_cores(), _host(phase, "cpu.steal") or 0.0
    return None if busy is None else (busy + steal) / (facts.logical_cpus or facts.cores)


def _budget(trial: Trial, facts: HostFacts) -> float:
    return trial.deployment.hosts[0].cores or facts.cores


def _loaded_containers(trial: Trial, number: int) -> Iterator[tuple[str, float | None]]:
    """(container, given vCPUs) of the containers that are under load in a phase."""
    targets = set(trial.phases[number].loads)
    seen = set()
    for place, _, container, _, _ in trial.deployment.databases():
        if str(place) in targets and container.name not in seen:
            seen.add(container.name)
            yield container.name, container.vcpus if container.cpu_mode != "none" else None


def _theirs(trial: Trial, number: int) -> bool:
    """Whether somebody else's server is under load in a phase: its container and its host are not seen."""
    targets = set(trial.phases[number].loads)
    return any(container.runtime == "external" for place, _, container, _, _ in trial.deployment.databases() if str(place) in targets)


def _cpu_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"each loaded container at ≥ {limits.cpu_bound:.0%} of its vCPUs, or the host at ≥ {limits.host_full:.0%}"
    if _theirs(trial, number):
        return _verdict("cpu-bound", None, "the server's CPU is not seen", wanted, _NOT_OURS, intent=True)
    cores, full = facts.logical_cpus or facts.cores, _full(phase, facts)
    shares: dict[str, float] = {}
    unseen: list[str] = []
    loaded = 0.0
    for name, vcpus in _loaded_containers(trial, number):
        used = phase.metrics.get(f"container:{name}", {}).get("cpu.usage")
        loaded += used or 0.0
        if vcpus is not None and used is None:
            unseen.append(name)
        elif vcpus is not None and used is not None:
            shares[name] = used / vcpus
    budget = _budget(trial, facts)
    if budget < cores:  # a part of the host was given: it is full when the containers have used that up
        full = max(full or 0.0, loaded / budget)
    seen = f"host at {full:.1%}" if full is not None else "host CPU not seen"
    if shares:
        lowest = min(shares, key=lambda name: shares[name])
        seen = f"containers at {shares[lowest]:.1%} ({lowest}, the lowest) of their vCPUs, {seen}"
    used_up = min(shares.values(), default=1.0) >= limits.cpu_bound
    if (shares and used_up and not unseen) or (full is not None and full >= limits.host_full):
        return _verdict("cpu-bound", True, seen, wanted, intent=True)
    if unseen and used_up:
        return _verdict("cpu-bound", None, seen, wanted, f"{_some(unseen)}: its CPU could not be read", intent=True)
    known = bool(shares) or full is not None
    why = "something other than CPU held the databases back: clients, locks or I/O" if known else "CPU use could not be read"
    return _verdict("cpu-bound", False if known else None, seen, wanted, why, intent=True)


def _some(names: list[str]) -> str:
    """The first of these, and how many more there are."""
    return names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _servers(trial: Trial, number: int, phase: PhaseResult) -> Iterator[tuple[str, dict[str, float]]]:
    targets = set(trial.phases[number].loads)
    seen = set()
    for place, _, container, server, _ in trial.deployment.databases():
        name = f"{container.name}/{server.name}"
        if str(place) in targets and name not in seen:
            seen.add(name)
            yield name, phase.metrics.get(f"server:{name}", {})


def _cached(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"hit ratio ≥ {limits.hit_ratio:.1%} in every database and ≤ {limits.device_reads:g} device reads per transaction"
    ratios, unseen, missed = {}, [], 0.0
    for name, metrics in _servers(trial, number, phase):
        hit, read = metrics.get("db.blks_hit"), metrics.get("db.blks_read")
        if hit is None or read is None:
            unseen.append(name)
        elif hit + read > 0:
            ratios[name] = hit / (hit + read)
            missed += read
    # Of somebody else's disks nothing is seen; but they served no more reads than the server missed blocks.
    theirs = _theirs(trial, number)
    reads = missed if theirs else of_devices(phase, "reads")
    if not ratios or reads is None or phase.throughput <= 0:
        return _verdict("cached", None, "no buffer statistics or device counters", wanted, "they could not be read", intent=True)
    # The devices serve the whole host; the databases caused no more reads than they missed blocks.
    lowest, per_tx = min(ratios, key=lambda name: ratios[name]), min(reads, missed) / phase.throughput
    observed = f"hit ratio {ratios[lowest]:.2%} ({lowest}, the lowest), at most {per_tx:.3g} device reads per transaction"
    ok: bool | None = ratios[lowest] >= limits.hit_ratio and per_tx <= limits.device_reads
    if theirs and ratios[lowest] >= limits.hit_ratio and not ok:
        return _verdict("cached", None, observed, wanted, f"{_NOT_OURS}, and its disks are not seen", intent=True)
    if ok and unseen:
        return _verdict("cached", None, observed, wanted, f"{_some(unseen)}: its statistics could not be read", intent=True)
    return _verdict("cached", ok, observed, wanted, "the data does not fit shared_buffers; raise it or lower --scale", intent=True)


def _io_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"≥ {limits.io_bound:g} device reads per transaction"
    reads = None if _theirs(trial, number) else of_devices(phase, "reads")
    if reads is None or phase.throughput <= 0:
        why = _NOT_OURS if _theirs(trial, number) else "/proc/diskstats shows no device here"
        return _verdict("io-bound", None, "device counters not seen", wanted, why, intent=True)
    per_tx = reads / phase.throughput
    why = "the data came from a cache; raise --scale or lower --memory"
    return _verdict("io-bound", per_tx >= limits.io_bound, f"{per_tx:.3g} device reads per transaction", wanted, why, intent=True)


def _not_client_bound(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"every driver below {limits.client_cpu:.0%} of what its threads can get"
    loads = trial.phases[number].loads
    given = dict(_loaded_containers(trial, number))
    shares = {}
    for target in phase.targets:
        used = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)
        load = loads[target.target]
        vcpus = given.get(target.target.split("/")[1]) if load.place == "inside" and "/" in target.target else None
        if used is not None:
            shares[target.target] = used / phase.loaded(target) / min(load.threads, vcpus or load.threads)
    if len(shares) < len(phase.targets) or not shares:
        return _verdict("not-client-bound", None, "drivers' CPU not seen", wanted, "it could not be read", intent=True)
    highest = max(shares, key=lambda name: shares[name])
    observed = f"{shares[highest]:.1%} ({highest}, the highest)"
    why = "the driver's threads are the limit, not the database; give it more with --threads"
    ok: bool | None = shares[highest] < limits.client_cpu
    if any(load.host is not None for load in loads.values()):  # the drivers have a host of their own, and this is it
        full = _full(phase, facts)
        wanted += f", and their host below {limits.host_full:.0%}"
        observed += ", their host not seen" if full is None else f", their host at {full:.1%}"
        if ok and (full is None or full >= limits.host_full):
            ok = None if full is None else False
            why = "its CPU use could not be read" if full is None else "the clients' host is full: give it more CPUs, or load less"
    return _verdict("not-client-bound", ok, observed, wanted, why, intent=True)


def _rate_met(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    loads = trial.phases[number].loads
    due = {t.target: rate * phase.seconds for t in phase.targets if (rate := loads[t.target].rate) is not None}
    wanted = f"≥ {limits.rate_met:.0%} of the rate in every database, less three standard deviations of random arrivals"
    if not due:
        return _verdict("rate-met", None, "no load has a rate", wanted, "give one with --rate", intent=True)
    done = {t.target: t.transactions for t in phase.targets if t.target in due}
    lowest = min(due, key=lambda name: done[name] / due[name])
    # pgbench schedules transactions as a Poisson process: their number in a window scatters by its square root.
    ok = all(done[name] >= limits.rate_met * due[name] - 3 * due[name] ** 0.5 for name in due)
    why = "the databases could not keep up; latency includes the time that transactions waited for their turn"
    observed = f"{done[lowest] / due[lowest]:.1%} ({done[lowest]:.0f} of {due[lowest]:.0f} transactions due, {lowest}, the lowest)"
    return _verdict("rate-met", ok, observed, wanted, why, intent=True)


def _asked_pages(server: Server) -> str | None:
    """'reserved', 'transparent' or 'ordinary': what a server's settings and its trial insist on; None where they leave it open."""
    if huge_pages.insists(server.settings):
        return "reserved"
    if server.transparent_huge_pages:
        return "transparent"
    if huge_pages.declines(server.settings) and server.transparent_huge_pages is False:
        return "ordinary"
    return None


def _huge_pages(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted, worst = "", (2.0, "no server's shared memory was seen")
    for _, container, server in trial.deployment.servers():
        asked, name = _asked_pages(server), f"{container.name}/{server.name}"
        if asked is None:
            continue
        wanted = f"≥ {limits.huge_share:.0%} of the shared memory in use on {asked} {'pages' if asked == 'ordinary' else 'huge pages'}"
        seen = phase.metrics.get(f"server:{name}", {})
        mapped = seen.get("pages.mapped", 0.0)
        if mapped <= 0:
            return _verdict("huge-pages", None, f"{name}: not seen", wanted, "/proc/PID/smaps of the server could not be read", intent=True)
        huge = seen.get("pages.huge", 0.0) / mapped
        size = format_bytes(seen.get("pages.size", 0.0))
        words = f"{huge:.1%} of {format_bytes(mapped)} on huge pages ({name}, mapped in pages of {size})"
        worst = min(worst, (1 - huge if asked == "ordinary" else huge, words))
    why = "the kernel gave the server other pages than were asked for: memory may be in pieces, or a setting of the host overrules"
    return _verdict("huge-pages", worst[0] >= limits.huge_share, worst[1], wanted, why, intent=True)


def _overlap(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    why = "some databases started late or ended early, so that the others had the host to themselves"
    return _verdict("overlap", phase.overlap >= limits.overlap, f"{phase.overlap:.1%} of the period", f"≥ {limits.overlap:.0%}", why)


def _length(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    """A phase is ended by pgherd's own clock: one that lasted longer shows that pgherd, and so perhaps all else, did not get to run."""
    planned = trial.phases[number].seconds
    wanted = f"≤ {limits.late_end:.0%} longer than planned"
    observed = f"{phase.seconds:.1f} s of {planned:g} s planned"
    # Half a second is what a busy host takes to wake us, whatever the plan.
    ok = phase.seconds <= planned * (1 + limits.late_end) + 0.5
    why = "the host did not let pgherd run in time: what was measured then is not what was planned"
    return _verdict("length", ok, observed, wanted, why)


def _errors(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    failed = sum(target.failed for target in phase.targets)
    why = "see the drivers' stderr in the trial's directory"
    return _verdict("errors", failed <= limits.errors, f"{failed} failed transactions", f"≤ {limits.errors:.0f}", why)


def _steal(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"≤ {limits.steal:.1%} of the host's CPU time"
    stolen = _host(phase, "cpu.steal")
    if stolen is None:
        return _verdict("steal", None, "not seen", wanted, "the kernel does not report steal")
    share = stolen / (facts.logical_cpus or facts.cores)
    if _theirs(trial, number) and share <= limits.steal:
        return _verdict("steal", None, f"{share:.2%} here, not seen at the server", wanted, _NOT_OURS)
    return _verdict("steal", share <= limits.steal, f"{share:.2%}", wanted, "the hypervisor gave the CPUs to others meanwhile")


def _has_servers(trial: Trial) -> bool:
    return any(True for _ in trial.deployment.servers())


def _foreign_cpu(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"≤ {limits.foreign_cpu:.1%} of the host's CPU time"
    busy = phase.busy_cores()
    ours = [m["cpu.usage"] for e, m in phase.metrics.items() if e.startswith("container:") and "cpu.usage" in m]
    # Without servers there are no containers: what the drivers cause in the kernel is not told from other programs' CPU.
    alone = not _has_servers(trial)
    if busy is None or not (ours or alone) or _theirs(trial, number):
        return _verdict("foreign-cpu", None, "containers' CPU not seen", wanted, "this runtime cannot account for it")
    loads = trial.phases[number].loads
    outside = [driver_cpu(t, phase) for t in phase.targets if loads[t.target].place == "outside"]
    platform = {e: m.get("cpu.usage", 0.0) for e, m in phase.metrics.items() if e == "pgherd" or e.startswith("platform:")}
    known = sum(platform.values()) - platform.get(f"platform:{MANAGER}", 0.0)  # which is of pgherd's own threads
    share = (busy - sum(ours) - sum(outside) - known) / (facts.logical_cpus or facts.cores)
    why = "other processes used the host meanwhile"
    return _verdict("foreign-cpu", share <= limits.foreign_cpu, f"{max(share, 0):.2%}", wanted, why, warn=alone)


def _count(phase: PhaseResult, trial: Trial, number: int, *names: str) -> float | None:
    rates = [sum(m.get(name, 0.0) for name in names) for _, m in _servers(trial, number, phase) if names[0] in m]
    return sum(rates) if rates else None


def _checkpoints(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    read_only = all(load.read_only for load in trial.phases[number].loads.values())
    wanted = f"≤ {limits.checkpoints:.0f} in the window" + ("" if read_only else " (a writing load: said, not held against it)")
    rate = _count(phase, trial, number, "ckpt.timed", "ckpt.requested")
    if rate is None:
        return _verdict("checkpoints", None, "not seen", wanted, "the servers' statistics could not be read", warn=True)
    count = rate * phase.seconds
    # Statistics reach us with the sampling period's blur: less than half a checkpoint is none.
    ok = count < limits.checkpoints + 0.5
    return _verdict("checkpoints", ok, f"{count:.0f} checkpoints", wanted, "a checkpoint's writes fell into the window", warn=True)


def _vacuums(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    wanted = f"≤ {limits.vacuums:.0f} autovacuum workers at work"
    workers = [m["vacuum.workers"] for _, m in _servers(trial, number, phase) if "vacuum.workers" in m]
    if not workers:
        return _verdict("vacuums", None, "not seen", wanted, "the servers' statistics could not be read", warn=True)
    return _verdict("vacuums", sum(workers) <= limits.vacuums, f"{sum(workers):.2g} on average", wanted, "autovacuum ran", warn=True)


def worst_switch(phases: Sequence[PhaseResult]) -> PhaseResult:
    """The phase that its targets took up furthest apart, of those in which some of that was counted, if there are any."""
    return max(phases, key=lambda phase: (_began_late(phase), -1.0 if phase.skew is None else phase.skew))


def _began_late(phase: PhaseResult) -> bool:
    """Whether some target's new load began only within the measured period."""
    return any(target.first >= phase.start for target in phase.targets)


def switch_skew(phases: Sequence[PhaseResult], limits: Thresholds) -> Verdict:
    """Whether all targets switched together: the verdict of the worst of a trial's phases."""
    worst = _switch_skew(worst_switch(phases), limits)
    alike = [one.phase for one in phases if (each := _switch_skew(one, limits)).result == "fail" and each.severity == worst.severity]
    return worst.model_copy(update={"failed_in": tuple(alike)}) if worst.result == "fail" else worst


def _switch_skew(phase: PhaseResult, limits: Thresholds) -> Verdict:
    """Whether all targets took up a phase's load together. What lies within the ramp-up, which is not counted, is only said."""
    wanted = f"≤ {limits.switch_skew * 1000:.0f} ms between the targets' first transactions"
    if phase.skew is None:
        one = len(phase.targets) == 1
        return _verdict("switch-skew", True if one else None, "a single target" if one else "not seen", wanted, "no target began")
    counted = _began_late(phase)
    observed = f"{phase.skew * 1000:.0f} ms ({phase.phase}), {'some of it counted' if counted else 'all before the measured period'}"
    why = "clients connect one after another, and some databases got theirs later: a longer --ramp keeps it out of what is counted"
    return _verdict("switch-skew", phase.skew <= limits.switch_skew, observed, wanted, why, warn=not counted)


def _clock(jump: float, limits: Thresholds) -> Verdict:
    why = "the wall clock was set during the trial; timestamps cannot be trusted"
    return _verdict("clock", abs(jump) <= limits.clock_jump, f"moved {jump * 1000:.0f} ms", f"≤ {limits.clock_jump * 1000:.0f} ms", why)


def exit_code(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    """Every command that ended by itself ended with 0; one that was told to end had to run until then, or the trial failed."""
    codes = {target.target: code for target in phase.targets if (code := target.values.get("exit_code")) is not None}
    wanted = "exit code 0 of every command"
    if not codes:
        return _verdict("exit-code", True, "each ran until it was stopped", wanted, intent=True)
    bad = {target: code for target, code in codes.items() if code != 0}
    if not bad:
        return _verdict("exit-code", True, "exit code 0", wanted, intent=True)
    failures = ", ".join(f"{_code(code)} on {target}" for target, code in bad.items())
    return _verdict("exit-code", False, failures, wanted, _SEE_OUTPUT, intent=True)


def values_found(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    """Every value that is to be read from an output was there, as a number."""
    loads = trial.phases[number].loads
    missing = [
        f"{name} on {target.target}"
        for target in phase.targets
        for name in patterns_of(loads[target.target])
        if f"{VALUE}{name}" not in target.values
    ]
    wanted = "a number for every --value"
    if missing:
        return _verdict("values-found", False, f"not found: {', '.join(missing)}", wanted, _SEE_OUTPUT, intent=True)
    return _verdict("values-found", True, "all found", wanted, intent=True)


def driver_cpu(target: TargetResult, phase: PhaseResult) -> float:
    """Cores that a driver used in the window, as far as it was seen. A command's own processes are not sampled, but their CPU is known once
    it has waited for them: the mean over its whole life stands for the window."""
    sampled = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", 0.0)
    return max(sampled, target.client_cpu or 0.0) if target.driver == "command" else sampled


def _code(code: float) -> str:
    return f"exit code {code:.0f}" if code >= 0 else f"signal {-code:.0f}"


_INTENTS: dict[Intent, Callable[[Trial, int, PhaseResult, HostFacts, Thresholds], Verdict]] = {
    "cpu-bound": _cpu_bound,
    "cached": _cached,
    "io-bound": _io_bound,
    "not-client-bound": _not_client_bound,
    "rate-met": _rate_met,
    "exit-code": exit_code,
    "values-found": values_found,
}
