"""Results of one phase on several hosts merged into one, and their metrics into one table; and checks of a trial on several hosts. Pure.

A check keeps its name. The worst host decides it and is named: *fail* before *unknown* before *pass*. ``overlap`` and
``switch-skew`` are checked again over all hosts.

All instants of the result are in the driver's clock. Entities with several hosts (``pgherd.model.result.PhaseResult``
has those of one host):

- ``container:NAME``, ``server:CONTAINER/SERVER``, ``backend:…`` and ``driver:TARGET`` keep their names, because a
  container's name is unique in
a deployment.
- ``host`` becomes ``host:NAME`` for each host, and ``host`` is the total. Samplers read amounts or rates of a host
  (CPU seconds per second,
bytes, pages, tasks), which are summed, including CPUs and memory. Only pressure (``psi.…``, seconds per second, at
most 1 per host) is averaged, weighted by the hosts' CPUs.
- ``run-cgroup`` (the cgroup around a host's containers) likewise: ``run-cgroup:NAME`` and the sum ``run-cgroup``.
- ``pgherd`` is the agents' cost: ``pgherd:HOST`` and the sum ``pgherd``.
- ``platform:NAME`` is ``platform:HOST/NAME`` for each host in the samples. A phase's table has only the sum
  ``platform:NAME``, because studies
sum all entities of this kind.
- ``disk:NAME`` and other devices (``swap:…``, ``zram:…``) become ``KIND:HOST/NAME``, because devices of different
  hosts are unrelated.
- ``container:locked-memory`` exists on each host; it is the sum ``container:locked-memory``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pgherd.distributed.clock_alignment import Clocks, CommonPhase
from pgherd.metrics.cgroup import LOCKED, RUN_CGROUP
from pgherd.model.analysis import Check, Thresholds
from pgherd.model.device_io import Checkpoint, DeviceIo, DeviceView, TraceCost
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import MemoryBalance, OomKill, PhaseResult, TargetResult
from pgherd.model.trial import Trial
from pgherd.runner import trial_checks

_Value = TypeVar("_Value")


def merge(results: Mapping[str, Sequence[PhaseResult]], windows: Sequence[CommonPhase], clocks: Clocks) -> list[PhaseResult]:
    """Return one result per phase from host → results of all phases. Targets are collected, metrics merged as above."""
    return [_phase({host: phases[number] for host, phases in results.items()}, window, clocks) for number, window in enumerate(windows)]


def _phase(parts: Mapping[str, PhaseResult], window: CommonPhase, clocks: Clocks) -> PhaseResult:
    targets = [_target(target, host, clocks) for host, part in parts.items() for target in part.targets]
    return PhaseResult(
        phase=next(iter(parts.values())).phase,
        start=window.start,
        end=window.end,
        overlap=min(window.overlap, 1.0),
        targets=targets,
        skew=_skew({host: part for host, part in parts.items() if part.targets}, targets, clocks),
        metrics=merged({host: part.metrics for host, part in parts.items()}),
        memory=_memory({host: part.memory for host, part in parts.items()}, clocks),
        limited_after=_union(part.limited_after for part in parts.values()),
        limit_wait=max(part.limit_wait for part in parts.values()),
        waits=_union(part.waits for part in parts.values()),
        statements=_union(part.statements for part in parts.values()),
        prometheus=[view for part in parts.values() for view in part.prometheus],
        io=_io({host: _without_others_latency(part, host) for host, part in parts.items()}),
    )


def _union(tables: Iterable[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return all entries. Their keys are containers or servers, whose names are unique in a deployment."""
    return {name: value for table in tables for name, value in table.items()}


def _without_others_latency(part: PhaseResult, host: str) -> DeviceIo | None:
    """Return the host's I/O view, without latency by checkpoint if it loads databases of other hosts.

    The checkpoints of those are not known here, so all transactions would count as outside of them.
    """
    others = any(target.target.count("/") == 3 and not target.target.startswith(f"{host}/") for target in part.targets)
    return part.io.model_copy(update={"latency": {}}) if part.io is not None and others else part.io


def _skew(parts: Mapping[str, PhaseResult], targets: Sequence[TargetResult], clocks: Clocks) -> float | None:
    """Return the difference between the starts of all hosts' targets. It exceeds that of each host, and that between the
    hosts' first targets.
    """
    if len(targets) < 2:
        return None
    if len(parts) == 1:  # one clock needs no conversion
        return next(iter(parts.values())).skew
    firsts = [target.first for target in targets]
    return max(firsts) - min(firsts) + clocks.unsure(parts)


def _target(target: TargetResult, host: str, clocks: Clocks) -> TargetResult:
    first, last = clocks.to_driver(host, target.first), clocks.to_driver(host, target.last)
    ahead = target.first - first
    turns = [turn.model_copy(update={"begun": turn.begun - ahead, "ended": turn.ended - ahead}) for turn in target.slices]
    return target.model_copy(update={"first": first, "last": last, "slices": turns, "clock_ahead": ahead})


def _memory(accounts: Mapping[str, MemoryBalance | None], clocks: Clocks) -> MemoryBalance | None:
    """Return the account of the host with the largest gap, because each host's memory must be accounted for by itself."""
    known = {host: account for host, account in accounts.items() if account is not None}
    if not known:
        return None
    worst = max(known, key=lambda host: abs(known[host].worst))
    return known[worst].model_copy(update={"worst_at": clocks.to_driver(worst, known[worst].worst_at)})


def kills(parts: Mapping[str, Sequence[OomKill]], clocks: Clocks) -> tuple[OomKill, ...]:
    """Return the OOM kills on all hosts, in order of time."""
    converted = [
        kill.model_copy(update={"time": _at(clocks, host, kill.time)}) for host, host_kills in parts.items() for kill in host_kills
    ]
    return tuple(sorted(converted, key=lambda kill: kill.time))


def _at(clocks: Clocks, host: str, at: float) -> float:
    return clocks.to_driver(host, at) if clocks.of(host) else at


def _io(views: Mapping[str, DeviceIo | None]) -> DeviceIo | None:
    """Merge I/O views: devices are named ``HOST/…``, latency histograms are summed, and latencies by second are averaged
    over the hosts.
    """
    known = {host: view for host, view in views.items() if view is not None}
    if not known:
        return None
    devices: list[DeviceView] = []
    checkpoints: list[Checkpoint] = []
    latency: dict[str, dict[int, int]] = {}
    for host, view in known.items():
        devices += [
            device.model_copy(
                update={
                    "number": f"{host}/{device.number}",
                    "name": f"{host}/{device.name}",
                    "below": [f"{host}/{number}" for number in device.below],
                }
            )
            for device in view.devices
        ]
        checkpoints += view.checkpoints
        for kind, histogram in view.latency.items():
            total = latency.setdefault(kind, {})
            for bucket, count in histogram.items():
                total[bucket] = total.get(bucket, 0) + count
    return DeviceIo.model_validate(
        {
            "devices": devices,
            "checkpoints": sorted(checkpoints, key=lambda checkpoint: checkpoint.start),
            "trace": _trace([view.trace for view in known.values() if view.trace is not None]),
            "latency": latency,
            "latency_by_second": _mean_series([view.latency_by_second for view in known.values()]),
            "missing": [f"{host}: {text}" for host, view in known.items() for text in view.missing],
        }
    )


def _trace(costs: Sequence[TraceCost]) -> TraceCost | None:
    if not costs:
        return None
    cpu = [cost.cpu for cost in costs if cost.cpu is not None]
    return TraceCost(
        cpu=sum(cpu) if len(cpu) == len(costs) else None,
        events=sum(cost.events for cost in costs),
        lost=sum(cost.lost for cost in costs),
        incomplete=sum(cost.incomplete for cost in costs),
    )


def _mean_series(series: Sequence[Sequence[float | None]]) -> list[float | None]:
    means: list[float | None] = []
    for second in range(max(map(len, series), default=0)):
        values = [value for host_series in series if second < len(host_series) and (value := host_series[second]) is not None]
        means.append(sum(values) / len(values) if values else None)
    return means


Table = Mapping[str, Mapping[str, float]]

_UNIQUE = ("container:", "server:", "backend:", "driver:")
_TOTALS = ("host", RUN_CGROUP, "pgherd")


def qualified(entity: str, host: str) -> str:
    """Return the entity's name in the samples of several hosts."""
    if entity in _TOTALS:
        return f"{entity}:{host}"
    if entity == f"container:{LOCKED}":
        return f"container:{LOCKED}:{host}"
    kind, colon, name = entity.partition(":")
    if entity.startswith(_UNIQUE):
        return entity
    return f"{kind}:{host}/{name}" if colon else f"{entity}:{host}"


def device_of(entity: str, hosts: Collection[str | None]) -> bool:
    """Return whether it is a device, or a similar entity with a host's prefix, of one of these hosts."""
    host, slash, _ = entity.partition(":")[2].partition("/")
    return bool(slash) and host in hosts and not entity.startswith(_UNIQUE)


def merged(tables: Mapping[str, Table]) -> dict[str, dict[str, float]]:
    """Merge tables of entities by host into one, as described above."""
    table_of_all: dict[str, dict[str, float]] = {}
    sums: dict[str, list[tuple[Mapping[str, float], float]]] = {}
    for host, table in tables.items():
        cores = table.get("host", {}).get("cpu.online", 1.0)
        for entity, values in table.items():
            if entity in _TOTALS or entity.startswith("platform:") or entity == f"container:{LOCKED}":
                sums.setdefault(entity, []).append((values, cores))
            if not entity.startswith("platform:") and entity != f"container:{LOCKED}":
                table_of_all[qualified(entity, host)] = dict(values)
    for entity, parts in sums.items():
        table_of_all[entity] = _total(parts)
    return dict(sorted(table_of_all.items()))


def _total(parts: Sequence[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Sum the metrics of all hosts. Metrics that a host lacks are omitted, because a partial sum would look like a
    complete one.
    """
    names = set(parts[0][0]).intersection(*(values for values, _ in parts[1:]))
    total = {}
    for name in sorted(names):
        if name.startswith("psi."):
            weights = sum(weight for _, weight in parts)
            total[name] = sum(values[name] * weight for values, weight in parts) / weights
        else:
            total[name] = sum(values[name] for values, _ in parts)
    return total


CLOCK_OFFSET = "clock-offset"
START_SKEW = "start-skew"
ALL_HOSTS = "all-hosts-present"

_OF_TARGETS = ("overlap", "no-failed-transactions", "no-checkpoint", "no-autovacuum", "steady", "switch-skew")
"""Checks of the loaded targets. They do not apply to a phase, or a host, without load."""
_OF_ALL_HOSTS = ("overlap", "switch-skew")


@dataclass(frozen=True)
class ClusterObservations:
    """Observations that need all hosts. ``lost`` maps missing hosts to the reason.

    In an ``open_ended`` trial each host ends when it has finished. That is a result, so it is not checked.
    """

    windows: Sequence[CommonPhase]
    clocks: Clocks
    lost: Mapping[str, str] = field(default_factory=dict)
    open_ended: bool = False


def loaded(trial: Trial) -> list[int]:
    """Return the numbers of the phases in which a part has load."""
    return [number for number, phase in enumerate(trial.phases) if phase.loads]


def of_part(part: Trial, phases: list[PhaseResult], facts: HostFacts, limits: Thresholds, jump: float) -> list[Check]:
    """Return one host's checks of its part. In phases without load here, only the host itself is checked."""
    numbers = loaded(part)
    if len(numbers) == len(phases):
        return trial_checks.judge(part, phases, facts, limits, jump)
    bare = part.model_copy(update={"validity_checks": ()})
    checks = [check for check in trial_checks.judge(bare, phases, facts, limits, jump) if check.name not in _OF_TARGETS]
    if numbers:
        busy = part.model_copy(update={"phases": tuple(part.phases[number] for number in numbers)})
        of_busy = trial_checks.judge(busy, [phases[number] for number in numbers], facts, limits, jump)
        names = {check.name for check in checks}
        of_targets = [check for check in of_busy if check.name in _OF_TARGETS or (check.kind == "validity" and check.name not in names)]
        checks = of_targets + checks
    return checks


def together(
    parts: Mapping[str, Sequence[Check]], phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds
) -> list[Check]:
    """Return all checks of the trial from host → its checks."""
    checks = worst_of({host: [check for check in host_checks if check.name not in _OF_ALL_HOSTS] for host, host_checks in parts.items()})
    if not seen.open_ended:
        checks.append(_overlap(phases, seen, limits))
    if len(phases) > 1:
        checks.append(_switch_skew(phases, seen, limits))
    if len(parts) > 1:
        checks += [_clock_offset(list(parts), seen.clocks, limits), _start_skew(seen.windows, limits)]
    checks.append(all_hosts(list(parts), seen.lost))
    return checks


def worst_of(parts: Mapping[str, Sequence[Check]]) -> list[Check]:
    """Return for each check that of the worst host."""
    names = dict.fromkeys(check.name for host_checks in parts.values() for check in host_checks)
    return [_worst({host: check for host, host_checks in parts.items() for check in host_checks if check.name == name}) for name in names]


def _worst(by_host: Mapping[str, Check]) -> Check:
    """Return the worst check with its host's name. If all hosts passed, it is the first host's."""
    host = max(by_host, key=lambda name: by_host[name].gravity)
    worst = by_host[host]
    if len(by_host) == 1 and worst.result == "pass":
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}"})
    if worst.result == "pass":
        others = f"{len(by_host) - 1} other host{'' if len(by_host) == 2 else 's'}"
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}; {others} passed too"})
    alike = [name for name, check in by_host.items() if check.result == worst.result and name != host]
    also = f"; so do {', '.join(alike)}" if alike and worst.result == "fail" else ""
    texts = {"observed": f"{host}: {worst.observed}", "reason": f"host {host}: {worst.reason}{also}"}
    return worst.model_copy(
        update={**texts, "failed_phases": _failed_phases([check for check in by_host.values() if check.result == "fail"])}
    )


def _failed_phases(failed: Sequence[Check]) -> tuple[str, ...]:
    """Return the phases that failed on any host, or none if a check failed as a whole."""
    return (
        tuple(dict.fromkeys(name for check in failed for name in check.failed_phases))
        if all(check.failed_phases for check in failed)
        else ()
    )


def _check(check: str, ok: bool | None, observed: str, expected: str, reason: str) -> Check:
    result = "unknown" if ok is None else "pass" if ok else "fail"
    return Check.model_validate(
        {"name": check, "kind": "noise", "result": result, "observed": observed, "expected": expected, "reason": "" if ok else reason}
    )


def _overlap(phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds) -> Check:
    worst = min(phases, key=lambda phase: phase.overlap)
    observed = f"{worst.overlap:.1%} of the period ({worst.phase}), {_over_all(seen)}"
    reason = "some databases started late or ended early, so the others shared the hosts with fewer"
    short = tuple(phase.phase for phase in phases if phase.overlap < limits.min_overlap) if len(phases) > 1 else ()
    return _check("overlap", worst.overlap >= limits.min_overlap, observed, f"≥ {limits.min_overlap:.0%}", reason).model_copy(
        update={"failed_phases": short}
    )


def _switch_skew(phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds) -> Check:
    """Check the skew over the targets of all hosts, whose instants are in one clock here."""
    check = trial_checks.switch_skew(phases, limits)
    worst = trial_checks.worst_switch(phases)
    if worst.skew is None:
        return check
    last = max(worst.targets, key=lambda target: target.first).target
    return check.model_copy(update={"observed": f"{check.observed}, {last} the last, {_over_all(seen)}"})


def _over_all(seen: ClusterObservations) -> str:
    hosts = sorted({host for reading in seen.clocks.readings for host in reading})
    uncertainty = max((known for host in hosts if (known := seen.clocks.uncertainty(host)) is not None), default=0.0)
    return f"over all hosts, with their clocks known to {_ms(uncertainty)}"


def _ms(seconds: float) -> str:
    """Return text such as ``1.23 ms`` or ``1234 ms``, never with an exponent."""
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def _clock_offset(hosts: Sequence[str], clocks: Clocks, limits: Thresholds) -> Check:
    expected = f"each host's clock offset known to ± {limits.max_clock_uncertainty * 1000:g} ms, before and after"
    uncertainties = {host: clocks.uncertainty(host) for host in hosts}
    missing = [host for host, uncertainty in uncertainties.items() if uncertainty is None]
    if missing:
        return _check(CLOCK_OFFSET, None, f"not measured on {', '.join(missing)}", expected, "these hosts did not respond in time")
    errors = {host: (uncertainty or 0.0) + clocks.drift(host) for host, uncertainty in uncertainties.items()}
    worst = max(errors, key=lambda host: errors[host])
    offset = clocks.of(worst)[-1].seconds
    observed = f"{worst}: {1000 * offset:+.2f} ms ± {_ms(errors[worst])}, the least certain"
    reason = "the network to this host is slow or uneven, or its clock was set, so windows of different hosts cannot be matched"
    return _check(CLOCK_OFFSET, errors[worst] <= limits.max_clock_uncertainty, observed, expected, reason)


def _start_skew(windows: Sequence[CommonPhase], limits: Thresholds) -> Check:
    expected = f"≤ {limits.max_start_skew * 1000:g} ms between the first and the last host to begin a phase"
    skews = {number: window.skew for number, window in enumerate(windows, 1) if window.skew is not None}
    if not skews:
        return _check(START_SKEW, True, "no phase loads more than one host", expected, "")
    worst = max(skews, key=lambda number: skews[number])
    began = windows[worst - 1].began
    last = max(began, key=lambda host: began[host])
    observed = f"{_ms(skews[worst])} (phase {worst}; {last} was the last)"
    reason = f"host {last} did not start its drivers at the agreed instant, or they took long to connect"
    return _check(START_SKEW, skews[worst] <= limits.max_start_skew, observed, expected, reason)


def all_hosts(hosts: Sequence[str], lost: Mapping[str, str]) -> Check:
    """Check that the trial ran on every host of its run."""
    total = len(hosts) + len(lost)
    observed = f"{len(hosts)} of {total}" + (f"; missing {', '.join(lost)}" if lost else "")
    reason = "; ".join(f"host {host} was lost ({reason}), so the others took over its share" for host, reason in lost.items())
    return _check(ALL_HOSTS, not lost, observed, "every host of the run", reason)
