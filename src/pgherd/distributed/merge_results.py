"""Results of one phase on several hosts merged into one, and their metrics into one table of entities. Pure.

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

from collections.abc import Collection, Mapping, Sequence

from pgherd.distributed.clock_alignment import Clocks, CommonPhase
from pgherd.metrics.cgroup import LOCKED, RUN_CGROUP
from pgherd.model.io_view import Checkpoint, DeviceView, IoView, TraceCost
from pgherd.model.result import MemoryAccount, MemoryKill, PhaseResult, TargetResult


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
        io=_io({host: part.io for host, part in parts.items()}),
    )


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
    turns = [turn.model_copy(update={"begun": turn.begun - ahead, "ended": turn.ended - ahead}) for turn in target.turns]
    return target.model_copy(update={"first": first, "last": last, "turns": turns, "ahead": ahead})


def _memory(accounts: Mapping[str, MemoryAccount | None], clocks: Clocks) -> MemoryAccount | None:
    """Return the account of the host with the largest gap, because each host's memory must be accounted for by itself."""
    known = {host: account for host, account in accounts.items() if account is not None}
    if not known:
        return None
    worst = max(known, key=lambda host: abs(known[host].worst))
    return known[worst].model_copy(update={"worst_at": clocks.to_driver(worst, known[worst].worst_at)})


def kills(parts: Mapping[str, Sequence[MemoryKill]], clocks: Clocks) -> tuple[MemoryKill, ...]:
    """Return the OOM kills on all hosts, in order of time."""
    converted = [kill.model_copy(update={"at": _at(clocks, host, kill.at)}) for host, host_kills in parts.items() for kill in host_kills]
    return tuple(sorted(converted, key=lambda kill: kill.at))


def _at(clocks: Clocks, host: str, at: float) -> float:
    return clocks.to_driver(host, at) if clocks.of(host) else at


def _io(views: Mapping[str, IoView | None]) -> IoView | None:
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
    return IoView.model_validate(
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
