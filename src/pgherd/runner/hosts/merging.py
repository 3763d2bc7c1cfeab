"""The results of one phase on several hosts as one. Pure; all instants of the outcome are in the driver's clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pgherd.metrics.accounting import BUDGET, LOCKED
from pgherd.model.io_view import Checkpoint, DeviceView, IoView, TraceCost
from pgherd.model.result import MemoryAccount, MemoryKill, PhaseResult, TargetResult
from pgherd.runner.hosts.clocks import Clocks, Together


def merge(results: Mapping[str, Sequence[PhaseResult]], windows: Sequence[Together], clocks: Clocks) -> list[PhaseResult]:
    """Host → its results of all phases, in; one result per phase out. Targets are put together, metrics as ``host_metrics`` says."""
    return [_phase({host: own[number] for host, own in results.items()}, window, clocks) for number, window in enumerate(windows)]


def _phase(parts: Mapping[str, PhaseResult], window: Together, clocks: Clocks) -> PhaseResult:
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
    """How far apart the targets of all hosts began, which is more than on any of them, and more than their first ones did."""
    if len(targets) < 2:
        return None
    if len(parts) == 1:  # as its own clock says
        return next(iter(parts.values())).skew
    firsts = [target.first for target in targets]
    return max(firsts) - min(firsts) + clocks.unsure(parts)


def _target(target: TargetResult, host: str, clocks: Clocks) -> TargetResult:
    first, last = clocks.to_driver(host, target.first), clocks.to_driver(host, target.last)
    ahead = target.first - first
    turns = [turn.model_copy(update={"begun": turn.begun - ahead, "ended": turn.ended - ahead}) for turn in target.turns]
    return target.model_copy(update={"first": first, "last": last, "turns": turns, "ahead": ahead})


def _memory(accounts: Mapping[str, MemoryAccount | None], clocks: Clocks) -> MemoryAccount | None:
    """That of the host with the largest gap: every host's memory has to be accounted for by itself."""
    seen = {host: account for host, account in accounts.items() if account is not None}
    if not seen:
        return None
    worst = max(seen, key=lambda host: abs(seen[host].worst))
    return seen[worst].model_copy(update={"worst_at": clocks.to_driver(worst, seen[worst].worst_at)})


def kills(parts: Mapping[str, Sequence[MemoryKill]], clocks: Clocks) -> tuple[MemoryKill, ...]:
    """What the kernels ended, on all hosts, by time."""
    found = [kill.model_copy(update={"at": _at(clocks, host, kill.at)}) for host, own in parts.items() for kill in own]
    return tuple(sorted(found, key=lambda kill: kill.at))


def _at(clocks: Clocks, host: str, at: float) -> float:
    return clocks.to_driver(host, at) if clocks.of(host) else at


def _io(views: Mapping[str, IoView | None]) -> IoView | None:
    """Devices by ``HOST/…``; the histograms of transactions are added up, and the series by second averaged over the hosts."""
    seen = {host: view for host, view in views.items() if view is not None}
    if not seen:
        return None
    devices: list[DeviceView] = []
    checkpoints: list[Checkpoint] = []
    latency: dict[str, dict[int, int]] = {}
    for host, view in seen.items():
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
        for place, histogram in view.latency.items():
            into = latency.setdefault(place, {})
            for bucket, count in histogram.items():
                into[bucket] = into.get(bucket, 0) + count
    return IoView.model_validate(
        {
            "devices": devices,
            "checkpoints": sorted(checkpoints, key=lambda one: one.start),
            "trace": _trace([view.trace for view in seen.values() if view.trace is not None]),
            "latency": latency,
            "latency_by_second": _mean_series([view.latency_by_second for view in seen.values()]),
            "missing": [f"{host}: {text}" for host, view in seen.items() for text in view.missing],
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
    found: list[float | None] = []
    for second in range(max(map(len, series), default=0)):
        values = [value for one in series if second < len(one) and (value := one[second]) is not None]
        found.append(sum(values) / len(values) if values else None)
    return found


Table = Mapping[str, Mapping[str, float]]

_UNIQUE = ("container:", "server:", "backend:", "driver:")
_WHOLE = ("host", BUDGET, "pgherd")


def qualified(entity: str, host: str) -> str:
    """The entity's name in the samples of several hosts."""
    if entity in _WHOLE:
        return f"{entity}:{host}"
    if entity == f"container:{LOCKED}":
        return f"container:{LOCKED}:{host}"
    kind, colon, name = entity.partition(":")
    if entity.startswith(_UNIQUE):
        return entity
    return f"{kind}:{host}/{name}" if colon else f"{entity}:{host}"


def device_of(entity: str, hosts: Collection[str | None]) -> bool:
    """Whether it is a device, or another thing with a name of its own, of one of these hosts."""
    host, slash, _ = entity.partition(":")[2].partition("/")
    return bool(slash) and host in hosts and not entity.startswith(_UNIQUE)


def merged(tables: Mapping[str, Table]) -> dict[str, dict[str, float]]:
    """Host → its own table of entities, in; one table out, as this module says."""
    found: dict[str, dict[str, float]] = {}
    sums: dict[str, list[tuple[Mapping[str, float], float]]] = {}
    for host, table in tables.items():
        cores = table.get("host", {}).get("cpu.online", 1.0)
        for entity, values in table.items():
            if entity in _WHOLE or entity.startswith("platform:") or entity == f"container:{LOCKED}":
                sums.setdefault(entity, []).append((values, cores))
            if not entity.startswith("platform:") and entity != f"container:{LOCKED}":
                found[qualified(entity, host)] = dict(values)
    for entity, parts in sums.items():
        found[entity] = _whole(parts)
    return dict(sorted(found.items()))


def _whole(parts: Sequence[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Metrics that not every host has are left out: a sum over some of the hosts would pass for that of all."""
    names = set(parts[0][0]).intersection(*(values for values, _ in parts[1:]))
    whole = {}
    for name in sorted(names):
        if name.startswith("psi."):
            weights = sum(weight for _, weight in parts)
            whole[name] = sum(values[name] * weight for values, weight in parts) / weights
        else:
            whole[name] = sum(values[name] for values, _ in parts)
    return whole
