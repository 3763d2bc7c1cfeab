"""Prediction for the hosts of a placement: use with its interval, bottleneck, latency class, misses, and the effect of a loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from pgherd.analysis.demand import Array, Demand
from pgherd.analysis.host_class import HostClass, ResourceCapacity, miss_probability
from pgherd.analysis.packing import Flags, Hosts, Problem, months_until_full
from pgherd.model.analysis import Finding
from pgherd.model.load import LatencyClass

MAX_LOST = 200
"""Most hosts whose loss is simulated. Of more hosts, those with the highest use are."""
_CLASSES: tuple[LatencyClass, ...] = ("within", "near", "beyond")

Row = dict[str, Finding | str | int | float | None]


def host_names(hosts: Hosts, classes: Sequence[HostClass]) -> list[str]:
    """Return the name of each host."""
    return [classes[c].host_name(number) for c, number in zip(hosts.klass, hosts.number, strict=True)]


def host_rows(
    demand: Demand,
    classes: Sequence[HostClass],
    hosts: Hosts,
    latency: Mapping[str, Sequence[LatencyClass]],
    *,
    headroom: float,
    growth: float,
    only: Sequence[int] | None = None,
) -> list[Row]:
    """Return a row for each host, or for ``only`` these: name, class, databases, bottleneck, slot, use, and effect of its loss.

    ``headroom`` and ``growth`` are those of the plan's options.
    """
    problem, names = hosts.problem, host_names(hosts, classes)
    lost = _losses(hosts, only)
    rows: list[Row] = []
    for h in range(len(names)) if only is None else only:
        klass, members = classes[int(hosts.klass[h])], hosts.members(h)
        cell = int(hosts.used[h].argmax())
        resource = demand.resources[cell // problem.slots]
        value = float(hosts.used[h, cell])
        low = float(demand.low.reshape(len(demand.names), -1)[members, cell].sum(dtype=np.float64) * problem.weights[hosts.klass[h], cell])
        use = _use(value, low, klass.capacity[resource], demand.days)
        months = months_until_full(value, growth)
        needs = hosts.used[h].reshape(-1, problem.slots).max(axis=1) * (1 - headroom)
        rows.append(
            {
                "host": names[h],
                "class": klass.name,
                "databases": len(members),
                "bottleneck": resource if members else "",
                "slot": demand.slots[cell % problem.slots] if members else "",
                "use": use,
                "slots_above": int(_over(hosts.used[h], problem).sum()),
                **({"latency": max(latency[names[h]], key=_CLASSES.index)} if names[h] in latency else {}),
                "miss_probability": miss_probability(klass, dict(zip(demand.resources, needs.tolist(), strict=True))),
                "unplaced_if_lost": lost.get(h),
                "months_until_full": months if math.isfinite(months) else None,
            }
        )
    return rows


def latency_classes(demand: Demand, classes: Sequence[HostClass], hosts: Hosts) -> dict[str, list[LatencyClass]]:
    """Return the latency class of each slot of each host whose class has a limit."""
    if "cpu_cores" not in demand.resources:
        return {}
    problem, r = hosts.problem, demand.resources.index("cpu_cores")
    found = {}
    for h, name in enumerate(host_names(hosts, classes)):
        limit, c = classes[int(hosts.klass[h])].latency, int(hosts.klass[h])
        if limit is not None:
            cores = hosts.used[h, r * problem.slots : (r + 1) * problem.slots] * problem.capacity[c, r]
            found[name] = [limit.classify(float(value)) for value in cores]
    return found


def latency_findings(latency: Sequence[Sequence[LatencyClass]]) -> dict[str, Finding]:
    """Return the share of slots in each latency class. ``latency`` has the classes of the slots of each host."""
    slots = list(itertools.chain.from_iterable(latency))
    method = "share of the slots of hosts with databases in this class of the measured latency curve"
    return {f"slots_{one}": Finding(value=slots.count(one) / len(slots), unit="fraction", n=len(slots), method=method)
            for one in _CLASSES if slots}  # fmt: skip


def _over(used: Array, problem: Problem) -> Flags:
    """Return in which slots a host is above a capacity."""
    return np.asarray((used > 1 + 1e-5).reshape(-1, problem.slots).any(axis=0))


def _use(value: float, low: float, capacity: ResourceCapacity, days: int) -> Finding:
    """Return the highest use of a host with the interval of its demand and its capacity."""
    low = low * capacity.value / (capacity.high or capacity.value)
    high = value * capacity.value / (capacity.low or capacity.value)
    parts = [f"percentiles over {days} days, of all databases at once"] if days > 1 else []
    parts += ["interval of the measured capacity"] if capacity.low or capacity.high else []
    exact = math.isclose(low, high, rel_tol=1e-6)
    return Finding(
        value=value,
        unit="fraction",
        low=None if exact else min(low, value),
        high=None if exact else max(high, value),
        n=days,
        method="sum of the databases ÷ usable capacity" + (f"; {', '.join(parts)}" if parts else ""),
        note="no interval: one day, no unknown value, and a capacity without interval" if exact else "",
    )


def _losses(hosts: Hosts, only: Sequence[int] | None) -> dict[int, int]:
    """Return host → databases that fit on no other host if it fails. All other databases stay on their host."""
    order = np.argsort(-hosts.used.max(axis=1), kind="stable") if only is None else only
    busy = [h for h in order if hosts.members(int(h))][:MAX_LOST]
    lost = {}
    for host in map(int, busy):
        members = hosts.members(host)
        sizes = hosts.problem.scaled[members] @ hosts.problem.weights[hosts.klass[host]]
        for database in members:
            hosts.take(database)
        left = [members[i] for i in np.argsort(-sizes, kind="stable") if not hosts.place(members[i], [host])]
        for database in members:
            if hosts.where[database] >= 0:
                hosts.take(database)
        for database in members:
            hosts.put(database, host)
        lost[host] = len(left)
    return lost
