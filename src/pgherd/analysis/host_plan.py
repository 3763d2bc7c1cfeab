"""Plan of a fleet: its placement on classes of hosts, what limits each host, and a prediction for each host and slot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pgherd.analysis.demand import FULL_STOPS, MEMORY, RESOURCES, Array, Demand
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_prediction import MAX_LOST, Row, host_names, host_rows, latency_classes, latency_findings
from pgherd.analysis.packing import TOLERANCE, Hosts, Move, Numbers, Packing, Problem, flattened, host_mix, months_until_full, pack, replan
from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyClass
from pgherd.model.text import clean

LARGER = 0.1
"""Enlargement of one resource of all hosts by which purchases are compared."""
MAX_NUMBER = 100_000
"""Largest number in the name of a host of a class without a count."""


@dataclass(frozen=True)
class Rule:
    """What restricts the placement of a database. ``row`` is its row in the input.

    Attributes:
        apart: groups. Two databases of a group never share a host.
        labels: that its host must have.
        pin: name of its host.
        host: name of the host that it is on now.
    """

    database: str
    row: int
    apart: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    pin: str = ""
    host: str = ""


@dataclass(frozen=True)
class PlanOptions:
    """Conditions of a plan. The bounds apply to options from a file.

    Attributes:
        minimize: number of hosts, or their price.
        headroom: share of each capacity that stays free.
        risk: share of the slots of a host in which CPU, IOPS and WAL may exceed their capacity.
        lost_hosts: hosts that may fail together, with their databases restarted on spare hosts.
        max_moves: most moves from the present placement. None: place anew.
        growth: of the demand per month.
        seed: of the order of placement.
    """

    minimize: Literal["hosts", "price"] = "hosts"
    headroom: Annotated[float, Field(ge=0, lt=1)] = 0.0
    risk: Annotated[float, Field(ge=0, lt=1)] = 0.0
    lost_hosts: Annotated[int, Field(ge=0)] = 0
    max_moves: int | None = None
    growth: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Plan:
    """Placement with its prediction.

    Attributes:
        answer: in one sentence.
        findings: name → finding.
        hosts: a row for each host: name, class, databases, bottleneck, slot, use, months until it is full, effect of its loss.
        placement: database → host. Refused databases are missing.
        refusals: a row for each refused database, with the smallest change that admits it.
        moves: a row for each move.
        purchases: a row for each resource, with the bound if all hosts had more of it.
        use: highest use of each host and slot over the resources, as a share of the usable capacity, shape (hosts, slots).
        before: the same of the present placement, or of packing by peaks, and its name.
        resource: bottleneck of each host and slot, as an index of the demand's resources.
        latency: latency class of each slot, of each host with a measured limit.
        warnings: what the reader must know.
        complete: no database is refused, and no host is overloaded.
    """

    answer: str
    findings: dict[str, Finding]
    hosts: list[Row]
    placement: dict[str, str]
    refusals: list[Row]
    moves: list[Row]
    purchases: list[Row]
    use: Array
    before: Array
    before_name: str
    resource: Array
    latency: dict[str, list[LatencyClass]]
    warnings: list[str]
    complete: bool


def make_plan(demand: Demand, classes: Sequence[HostClass], rules: Sequence[Rule], options: PlanOptions) -> Plan:
    """Place the databases and predict the use of each host.

    Raises:
        UsageError: a constraint contradicts another, a database is larger than any host, or a capacity is missing.
    """
    problem = make_problem(demand, classes, rules, options)
    before: Hosts | None = None
    moves: list[Move] = []
    if options.max_moves is None:
        packing = pack(problem, options.seed)
    else:
        before = _present(problem, demand, classes, rules)
        hosts, moves, refused = replan(before.copy(), options.max_moves, host_names(before, classes))
        packing = Packing(hosts, host_mix(problem), refused)
    peaks, means = pack(flattened(problem, "peak"), options.seed), pack(flattened(problem, "mean"), options.seed)
    if before is None and not peaks.refused:
        before = _again(problem, peaks.hosts)
    hosts, spares = _with_spares(packing, options, kept=options.max_moves is not None)
    names = host_names(hosts, classes)
    findings = _findings(problem, packing, hosts, peaks, means, options, demand)
    latency = latency_classes(demand, classes, hosts)
    findings |= latency_findings([latency[name] for h, name in enumerate(names) if name in latency and h not in spares])
    rows = host_rows(demand, classes, hosts, latency, headroom=options.headroom, growth=options.growth)
    refusals = _refusals(problem, demand, hosts, names, packing.refused, spares, options.headroom)
    overloaded = [names[h] for h in np.flatnonzero(hosts.excess() > 0)]
    cells = hosts.used.reshape(len(names), len(demand.resources), -1)
    return Plan(
        answer=_answer(findings, len(demand.names), len(refusals), overloaded, options, len(moves)),
        findings=findings,
        hosts=rows,
        placement={demand.names[d]: names[h] for d, h in enumerate(hosts.where) if h >= 0},
        refusals=refusals,
        moves=[{"database": demand.names[m.database], "from": names[m.source], "to": names[m.target], "gain": m.gain} for m in moves],
        purchases=_purchases(problem, demand, packing, options),
        use=cells.max(axis=1),
        before=np.zeros((0, problem.slots), np.float32)
        if before is None
        else before.used.reshape(len(before.klass), len(demand.resources), -1).max(axis=1),
        before_name="present placement" if options.max_moves is not None else "packed by peaks",
        resource=cells.argmax(axis=1).astype(np.float32),
        latency=latency,
        warnings=_warnings(demand, classes, hosts, options),
        complete=not refusals and not overloaded,
    )


# ---- the problem, and what contradicts itself


def make_problem(demand: Demand, classes: Sequence[HostClass], rules: Sequence[Rule], options: PlanOptions) -> Problem:
    """Return the databases and classes of hosts of a plan as a problem of packing. Raises UsageError as ``make_plan``."""
    _check_classes(demand, classes, options)
    capacity = np.array([[host.capacity[name].value for name in demand.resources] for host in classes]) * (1 - options.headroom)
    index = {name: i for i, name in enumerate(demand.names)}
    eligible = np.ones((len(demand.names), len(classes)), np.bool_)
    groups: dict[str, list[int]] = {}
    pinned: dict[int, tuple[int, int]] = {}
    for rule in rules:
        if rule.database not in index:
            raise UsageError(f"row {rule.row}: database {rule.database} has no demand; add its demand or remove the row")
        database = index[rule.database]
        eligible[database] = [rule.labels.items() <= host.labels.items() for host in classes]
        if not eligible[database].any():
            wanted = ", ".join(f"{key}={value}" for key, value in rule.labels.items())
            raise UsageError(f"row {rule.row}: database {rule.database} requires {wanted}, and no class of hosts has these labels")
        for group in rule.apart:
            groups.setdefault(group, []).append(database)
        if rule.pin:
            pinned[database] = _host_of(rule.pin, classes, rule)
            if not eligible[database, pinned[database][0]]:
                raise UsageError(
                    f"row {rule.row}: database {rule.database} is pinned to {rule.pin}, whose class lacks a label that it requires"
                )
            eligible[database] &= np.arange(len(classes)) == pinned[database][0]
    for group, members in groups.items():
        pins = [pinned[d] for d in members if d in pinned]
        if len(set(pins)) < len(pins):
            raise UsageError(f"two databases of '{group}' must be apart, and are pinned to one host; remove a pin")
    problem = Problem(
        demand=demand.high,
        capacity=capacity,
        price=np.array([host.price if options.minimize == "price" else 1.0 for host in classes], dtype=np.float64),
        counts=tuple(None if host.count is None else max(host.count - options.lost_hosts, 0) for host in classes),
        eligible=eligible,
        soft=np.array([name not in FULL_STOPS for name in demand.resources]),
        slots_over=math.floor(options.risk * demand.high.shape[2] + 1e-9),
        apart=tuple(tuple(members) for members in groups.values() if len(members) > 1),
        pinned=pinned,
    )
    _check_sizes(problem, demand, classes, options.headroom)
    for pin in sorted(set(pinned.values())):
        members = [d for d, one in pinned.items() if one == pin]
        if not problem.holds((problem.scaled[members].sum(axis=0) * problem.weights[pin[0]])[None])[0]:
            raise UsageError(f"{classes[pin[0]].host_name(pin[1])} cannot carry the {len(members)} databases pinned to it; remove a pin")
    return problem


def _check_classes(demand: Demand, classes: Sequence[HostClass], options: PlanOptions) -> None:
    names = [host.name for host in classes]
    if len(set(names)) < len(names):
        raise UsageError(f"two classes of hosts are called {next(n for n in names if names.count(n) > 1)}; give each its name")
    listed = [name for host in classes for name in host.names]
    for name in listed:
        if listed.count(name) > 1:
            raise UsageError(f"two hosts are called {name}; give each its name")
        if owner := next((host for host in classes if _generated(name, host) is not None), None):
            raise UsageError(f"{name} is also the name that a further host of class {owner.name} gets; rename the host or the class")
    for host in classes:
        for resource in demand.resources:
            if resource not in host.capacity:
                raise UsageError(f"class {host.name} has no capacity of {resource}, which the demand has; add it, or leave the column out")
        if options.minimize == "price" and host.price is None:
            raise UsageError(f"class {host.name} has no price; add it, or minimize the number of hosts")


def _host_of(name: str, classes: Sequence[HostClass], rule: Rule) -> tuple[int, int]:
    """Return class and number of a host by its name."""
    for c, host in enumerate(classes):
        if name in host.names:
            return c, host.names.index(name)
        if (number := _generated(name, host)) is not None:
            return c, number
    if len(classes) == 1:
        raise UsageError(f"row {rule.row}: there is no host {name}; list it in the names of class {classes[0].name}")
    raise UsageError(f"row {rule.row}: there is no host {name}; list it in the names of its class")


def _generated(name: str, host: HostClass) -> int | None:
    """Return the number from 0 of the host of this class whose generated name this is. None: it is none."""
    prefix, _, number = name.rpartition("-")
    known = prefix == host.name and number.isdecimal() and len(host.names) < int(number) <= (host.count or MAX_NUMBER)
    return int(number) - 1 if known else None


def _check_sizes(problem: Problem, demand: Demand, classes: Sequence[HostClass], headroom: float) -> None:
    """Raise UsageError for a database that fits on no class that it may be on, with the smallest change."""
    for database in np.flatnonzero(~problem.fitting.any(axis=1)):
        allowed = np.flatnonzero(problem.eligible[database])
        lacking = {int(c): (problem.scaled[database] * problem.weights[c]).max() for c in allowed}
        best = min(lacking, key=lambda c: lacking[c])
        cell = int((problem.scaled[database] * problem.weights[best]).argmax())
        resource, slot = demand.resources[cell // problem.slots], demand.slots[cell % problem.slots]
        row = f"row {demand.rows[database]}: " if demand.rows else ""
        raise UsageError(
            f"{row}database {demand.names[database]} needs {problem.scaled[database, cell]:,.4g} {RESOURCES[resource]} of {resource} "
            f"at {slot}, and a host of class {classes[best].name}, the largest that it may be on, has "
            f"{problem.capacity[best, cell // problem.slots]:,.4g}{' after the headroom' if headroom else ''}; "
            "add a larger class or split the database"
        )


def _present(problem: Problem, demand: Demand, classes: Sequence[HostClass], rules: Sequence[Rule]) -> Hosts:
    """Return the present placement. Every host that a name of a class or a rule has exists, up to the largest number."""
    index = {name: i for i, name in enumerate(demand.names)}
    where = {index[rule.database]: _host_of(rule.host, classes, rule) for rule in rules if rule.host}
    if not where:
        raise UsageError("no database has a host, so there is no present placement to start from; fill the column host, or place anew")
    count = [len(host.names) for host in classes]
    for c, number in [*where.values(), *problem.pinned.values()]:
        count[c] = max(count[c], number + 1)
    hosts = Hosts(problem, [c for c, many in enumerate(count) for _ in range(many)])
    of = {(int(c), number): h for h, (c, number) in enumerate(zip(hosts.klass, hosts.number, strict=True))}
    for database, place in where.items():
        hosts.put(database, of[place])
    return hosts


def _again(problem: Problem, hosts: Hosts) -> Hosts:
    """Return a placement of a flattened problem with the demand of every slot."""
    again = Hosts(problem, hosts.klass.tolist())
    for database, host in enumerate(hosts.where):
        if host >= 0:
            again.put(database, int(host))
    return again


def _with_spares(packing: Packing, options: PlanOptions, *, kept: bool) -> tuple[Hosts, set[int]]:
    """Return the hosts without empty ones, and with the spare hosts, whose numbers are the second value.

    ``lost_hosts`` spare hosts of a class replace any of that class, and of smaller ones. ``kept``: hosts exist, so empty ones stay and are
    the spare ones.
    """
    problem, old = packing.hosts.problem, packing.hosts
    if kept:
        return old, {h for h in range(len(old.klass)) if not old.members(h)}
    used = [h for h in range(len(old.klass)) if old.members(h) or any(old._of_pin.get(pin) == h for pin in problem.pinned.values())]
    counts = np.bincount(old.klass[used], minlength=len(problem.price))
    # A pin names a host by its number, so lower numbers of the class stay.
    for c, number in problem.pinned.values():
        counts[c] = max(counts[c], number + 1)
    extra = [0] * len(counts)
    for c in map(int, np.flatnonzero(counts)):
        larger = [
            s
            for s in map(int, np.flatnonzero(counts))
            if s != c
            and (problem.capacity[s] >= problem.capacity[c]).all()
            and not (problem.eligible[:, c] & ~problem.eligible[:, s]).any()
            and (s < c or (problem.capacity[s] > problem.capacity[c]).any() or (problem.eligible[:, s] & ~problem.eligible[:, c]).any())
        ]
        extra[c] = 0 if larger else options.lost_hosts
    new = Hosts(problem, [c for c, count in enumerate(counts) for _ in range(count + extra[c])])
    places = {(int(c), n): h for h, (c, n) in enumerate(zip(new.klass, new.number, strict=True))}
    for c in range(len(counts)):
        of_class = [h for h in used if old.klass[h] == c]
        fixed = {old.number[h] for h in of_class if any(d in problem.pinned for d in old.members(h))}
        free = iter(n for n in itertools.count() if n not in fixed)
        for h in of_class:
            number = old.number[h] if old.number[h] in fixed else next(free)
            for database in old.members(h):
                new.put(database, places[c, number])
    return new, {h for h in range(len(new.klass)) if not new.members(h)}


# ---- findings


def _price(mix: Numbers | Sequence[int], problem: Problem) -> float:
    return float(np.dot(mix, problem.price))


def _findings(
    problem: Problem, packing: Packing, hosts: Hosts, peaks: Packing, means: Packing, options: PlanOptions, demand: Demand
) -> dict[str, Finding]:
    unit = "hosts" if options.minimize == "hosts" else "price"
    counts = np.bincount(hosts.klass, minlength=len(problem.price)).astype(np.float64)
    spare = options.lost_hosts
    empty = sum(not hosts.members(h) for h in range(len(hosts.klass)))
    bound: float | None = None
    if packing.bound is not None:
        bound = _price(packing.bound, problem) + spare * float(problem.price.min())
    cost, n = _price(counts, problem), len(demand.names)
    findings = {
        "hosts": Finding(value=int(counts.sum()), unit="hosts", n=n, method="placement", note=f"{empty} of them spare" if empty else ""),
        "lower_bound": Finding(
            value=bound,
            unit=unit,
            n=n,
            method="volume by slot and resource, integer program over the classes",
            note="no placement needs less" if bound is not None else "no mix of the hosts has the volume of all databases",
        ),
    }
    if options.minimize == "price":
        findings["price"] = Finding(value=cost, unit="price", n=n, method="sum over the hosts")
    above = None if not bound else cost / bound - 1
    findings["above_bound"] = Finding(
        value=above, unit="fraction", n=n, method=f"{unit} ÷ lower bound − 1", note="" if bound else "no lower bound"
    )
    for name, found in (("peaks", peaks), ("means", means)):
        many = None if found.refused else len(found.hosts.klass) + spare
        findings[f"hosts_by_{name}"] = Finding(
            value=many, unit="hosts", n=n, method=f"the same placement of one slot with the {name} of each database",
            note="" if many else "it refuses databases",
        )  # fmt: skip
    if not means.refused:
        over = (_again(problem, means.hosts).used > 1 + 1e-5).reshape(len(means.hosts.klass), -1, problem.slots).any(axis=1)
        findings["overloaded_by_means"] = Finding(
            value=float(over.mean()), unit="fraction", n=over.size, method="share of host slots above the capacity if packed by means"
        )
    full = hosts.used.max(axis=1)
    findings["highest_use"] = Finding(
        value=float(full.max()), unit="fraction", n=len(full), method="highest use of a host in a slot, of the capacity without headroom"
    )
    months = [months_until_full(float(use), options.growth) for use in full if use > 0]
    first = min(months, default=math.inf)
    findings["months_until_first_full"] = (
        Finding(value=first, unit="months", n=len(months), method=f"{options.growth:.3g} growth per month, first host above its capacity")
        if math.isfinite(first)
        else Finding(value=None, unit="months", n=0, note="no growth was given")
    )
    return findings


def _answer(
    findings: Mapping[str, Finding], databases: int, refused: int, overloaded: Sequence[str], options: PlanOptions, moves: int
) -> str:
    hosts, bound, peaks = (findings[name].value for name in ("hosts", "lower_bound", "hosts_by_peaks"))
    priced = f" at a price of {findings['price'].value:,.6g}" if "price" in findings else ""
    if refused:
        note = f" ({findings['hosts'].note})" if findings["hosts"].note else ""
        return f"{refused} of {databases} databases do not fit on the hosts given; the others fit on {hosts:g}{note}."
    if overloaded:
        return f"{len(overloaded)} of {hosts:g} hosts are overloaded, and {moves} moves do not change that: {', '.join(overloaded[:5])}."
    text = f"{databases} databases fit on {hosts:g} host{'' if hosts == 1 else 's'}"
    text += f" ({findings['hosts'].note})" if findings["hosts"].note else ""
    text += priced
    text += f" with {moves} moves" if options.max_moves is not None else ""
    text += f"; no placement needs less than {bound:,.6g}" if bound is not None else ""
    return text + (f", and packing by peaks needs {peaks:g} hosts." if peaks is not None else ".")


def _refusals(
    problem: Problem,
    demand: Demand,
    hosts: Hosts,
    names: Sequence[str],
    refused: Sequence[int],
    spares: Collection[int],
    headroom: float,
) -> list[Row]:
    """Return for each refused database the host that lacks least for it, and all that it lacks. Spare hosts stay empty."""
    rows: list[Row] = []
    for database in refused:
        able = np.array([h for h in hosts.candidates(database) if h not in spares], np.int64)
        if not len(able):
            rows.append(
                {"database": demand.names[database], "change": "one more host: the others hold a database that it must be apart from"}
            )
            continue
        after = hosts.used[able] + problem.scaled[database] * problem.weights[hosts.klass[able]]
        best = int(after.max(axis=1).argmin())
        changes = []
        for number, resource in enumerate(demand.resources):
            uses = after[best, number * problem.slots : (number + 1) * problem.slots]
            slot = int(uses.argmax())
            if uses[slot] > 1 + TOLERANCE:
                lacking = (float(uses[slot]) - 1) * float(problem.capacity[hosts.klass[able[best]], number]) / (1 - headroom)
                changes.append(f"{lacking:,.3g} {RESOURCES[resource]} more {resource} at {demand.slots[slot]}")
        change = f"{' and '.join(changes)} on {names[able[best]]}, or one more host"
        rows.append({"database": demand.names[database], "change": change})
    return rows


def _purchases(problem: Problem, demand: Demand, packing: Packing, options: PlanOptions) -> list[Row]:
    """Return the lower bound if all hosts had a tenth more of one resource."""
    if packing.bound is None:
        return []
    before = _price(packing.bound, problem)
    spare = options.lost_hosts * float(problem.price.min())
    rows: list[Row] = []
    for resource in demand.resources:
        capacity = problem.capacity.copy()
        more = [r for r, other in enumerate(demand.resources) if other == resource or {other, resource} == MEMORY]
        capacity[:, more] *= 1 + LARGER
        mix = host_mix(replace(problem, capacity=capacity))
        after = before if mix is None else _price(mix, problem)
        rows.append({"resource": resource, "lower_bound": after + spare, "saved": before - after})
    return sorted(rows, key=lambda row: -float(str(row["saved"])))


def _warnings(demand: Demand, classes: Sequence[HostClass], hosts: Hosts, options: PlanOptions) -> list[str]:
    warnings = [*demand.notes, *dict.fromkeys(clean(note) for host in classes for note in host.notes)]
    if demand.unknown:
        values = sum(one.values for one in demand.unknown)
        names = len({one.database for one in demand.unknown})
        warnings.append(
            f"Unknown values: {values}, of {names} of the databases. Each counts as its upper bound, so hosts may be emptier than planned"
        )
    if demand.days == 1:
        warnings.append("The demand is of one day, so its variation from day to day is unknown")
    measured = {name for host in classes for name, one in host.capacity.items() if one.low is not None or one.n}
    stated = [name for name in demand.resources if name not in measured]
    if stated:
        warnings.append(f"The capacity of {', '.join(stated)} is stated without an interval: nothing measured supports it")
    if len(hosts.klass) > MAX_LOST:
        warnings.append(f"The loss of a host was simulated for the {MAX_LOST} hosts with the highest use")
    pinned = len(hosts.problem.pinned)
    if options.lost_hosts and pinned:
        warnings.append(f"{pinned} pinned databases cannot restart on a spare host")
    return warnings


def as_document(plan: Plan, demand: Demand) -> dict[str, Any]:
    """Return the plan as the document of ``--json``, without its schema."""
    return {
        "answer": plan.answer,
        "complete": plan.complete,
        "findings": plan.findings,
        "hosts": plan.hosts,
        "placement": plan.placement,
        "refusals": plan.refusals,
        "moves": plan.moves,
        "purchases": plan.purchases,
        "slots": list(demand.slots),
        "latency": plan.latency,
        "use": {str(row["host"]): [round(float(value), 4) for value in use] for row, use in zip(plan.hosts, plan.use, strict=True)},
        "unknown": [vars(one) for one in demand.unknown],
        "warnings": plan.warnings,
    }
