"""Effect of moving single databases of a plan: use of the hosts before and after, and the constraints that it breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.demand import Array, Demand
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import Plan, PlanOptions, Rule, make_problem
from pgherd.analysis.host_prediction import Row, host_names, host_rows, latency_classes
from pgherd.analysis.packing import TOLERANCE, Hosts
from pgherd.model.errors import UsageError

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class PlacedFleet:
    """Input of a plan, and the placement that it has.

    Attributes:
        demand: of the databases.
        classes: of hosts.
        rules: constraints of databases.
        options: conditions of the plan.
        hosts: host → its class, in the order of the plan.
        placement: database → host. Refused databases are missing.
    """

    demand: Demand
    classes: tuple[HostClass, ...]
    rules: tuple[Rule, ...]
    options: PlanOptions
    hosts: Mapping[str, str]
    placement: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan, demand: Demand, classes: Sequence[HostClass], rules: Sequence[Rule], options: PlanOptions) -> PlacedFleet:
        """Return the fleet of a plan with this input."""
        hosts = {str(row["host"]): str(row["class"]) for row in plan.hosts}
        return cls(demand, tuple(classes), tuple(rules), options, hosts, plan.placement)


@dataclass(frozen=True, eq=False)
class Effect:
    """Effect of moves.

    Attributes:
        moves: database, its host before ('': none) and after, in order.
        hosts: names of the hosts that change.
        rows: of each of them a row before and one after, which ``placement`` names.
        before: highest use of each of them and slot over the resources, shape (hosts, slots).
        after: the same after the moves.
        broken: constraints that are broken after the moves, as sentences without a full stop.
    """

    moves: list[tuple[str, str, str]]
    hosts: list[str]
    rows: list[Row]
    before: Array
    after: Array
    broken: list[str]


def placed_hosts(fleet: PlacedFleet) -> Hosts:
    """Return the hosts of a fleet with their databases.

    Raises:
        UsageError: the placement is not one of these hosts and databases, or as ``make_plan``.
    """
    problem = make_problem(fleet.demand, fleet.classes, fleet.rules, fleet.options)
    classes = {host.name: c for c, host in enumerate(fleet.classes)}
    if not set(fleet.hosts.values()) <= set(classes):
        raise UsageError("a host of the plan has a class that its input lacks")
    hosts = Hosts(problem, [classes[name] for name in fleet.hosts.values()])
    if host_names(hosts, fleet.classes) != list(fleet.hosts):
        raise UsageError("the hosts of the plan have other names than those of its input")
    numbers, databases = {name: h for h, name in enumerate(fleet.hosts)}, {name: d for d, name in enumerate(fleet.demand.names)}
    for database, host in fleet.placement.items():
        if database not in databases or host not in numbers:
            raise UsageError("the placement of the plan has a database or a host that its input lacks")
        hosts.put(databases[database], numbers[host])
    return hosts


def effect(fleet: PlacedFleet, hosts: Hosts, moves: Sequence[tuple[str, str]]) -> Effect:
    """Return the effect of moves, each a database and the host that it moves to. ``hosts`` are those of ``placed_hosts``.

    Raises:
        UsageError: there is no such database or host, or the database is on this host.
    """
    names, before, after = list(fleet.hosts), hosts.copy(), hosts.copy()
    made, changed = [], set()
    for database, target in moves:
        if database not in fleet.demand.names or target not in fleet.hosts:
            raise UsageError(
                f"the plan has no {'host' if database in fleet.demand.names else 'database'} of this name; choose a listed one"
            )
        d, h = fleet.demand.names.index(database), names.index(target)
        source = int(after.where[d])
        if source == h:
            raise UsageError(f"database {database} is on {target} already; choose another host")
        if source >= 0:
            after.take(d)
        after.put(d, h)
        made.append((database, names[source] if source >= 0 else "", target))
        changed |= {h, source} - {-1}
    only = sorted(changed)
    rows: list[Row] = []
    for placement, placed in (("before", before), ("after", after)):
        found = host_rows(
            fleet.demand,
            fleet.classes,
            placed,
            latency_classes(fleet.demand, fleet.classes, placed),
            headroom=fleet.options.headroom,
            growth=fleet.options.growth,
            only=only,
        )
        rows += [{"host": row["host"], "placement": placement, **row} for row in found]
    rows.sort(key=lambda row: names.index(str(row["host"])))
    use = np.stack([placed.used[only].reshape(len(only), -1, hosts.problem.slots).max(axis=1) for placed in (before, after)])
    return Effect(made, [names[h] for h in only], rows, use[0], use[1], broken_constraints(fleet, after))


def broken_constraints(fleet: PlacedFleet, hosts: Hosts) -> list[str]:
    """Return the constraints that a placement breaks, as sentences without a full stop."""
    names, problem = list(fleet.hosts), hosts.problem
    index = {name: d for d, name in enumerate(fleet.demand.names)}
    broken: list[str] = []
    together: dict[tuple[str, int], list[str]] = {}
    for rule in fleet.rules:
        d = index[rule.database]
        h = int(hosts.where[d])
        if h < 0:
            continue
        labels = fleet.classes[int(hosts.klass[h])].labels
        lacking = [f"{key}={value}" for key, value in rule.labels.items() if labels.get(key) != value]
        broken += [f"database {rule.database} requires {', '.join(lacking)}, which {names[h]} lacks"] if lacking else []
        if problem.pinned.get(d, place := (int(hosts.klass[h]), hosts.number[h])) != place:
            broken.append(f"database {rule.database} is pinned to {rule.pin}")
        for group in rule.apart:
            together.setdefault((group, h), []).append(rule.database)
    for (group, h), members in together.items():
        if len(members) > 1:
            more = ", …" if len(members) > _SHOWN else ""
            broken.append(f"databases {', '.join(members[:_SHOWN])}{more} must be apart ({group}), and share {names[h]}")
    spare = set(fleet.hosts) - set(fleet.placement.values()) if fleet.options.lost_hosts else set()
    broken += [f"{names[h]} is a spare host for the loss of another" for h in range(len(names)) if names[h] in spare and hosts.members(h)]
    return broken + [_overload(fleet, hosts, int(h)) for h in np.flatnonzero(hosts.excess() > 0)]


def _overload(fleet: PlacedFleet, hosts: Hosts, h: int) -> str:
    """Return a sentence on the highest use of an overloaded host. A resource that fails at its capacity comes first."""
    slots, used = hosts.problem.slots, hosts.used[h]
    failing = used * np.repeat(~hosts.problem.soft, slots)
    cell = int((failing if failing.max() > 1 + TOLERANCE else used).argmax())
    resource, slot = fleet.demand.resources[cell // slots], fleet.demand.slots[cell % slots]
    return f"{list(fleet.hosts)[h]} exceeds its capacity: {100 * used[cell]:.4g}% of {resource} at {slot}"
