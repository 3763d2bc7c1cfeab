"""Packing of databases into hosts: every host must carry the sum of its databases in every slot and resource.

The packing is vector bin packing. A number of hosts is chosen first, by a mixed-integer program over the classes of hosts, and starts at
the lower bound. Databases are placed on it from large to small, each where the sum of ``use ** 6`` over slots and resources grows least,
so that databases with peaks at different times share a host. Moves and exchanges then relieve overloaded hosts. If that fails, the next
try has more hosts. HiGHS chooses the hosts, because that program has one variable for each class. One with a variable for each database and
host would have millions of them, so HiGHS does not place databases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgherd.analysis.demand import Array

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]

TOLERANCE = 1e-5
"""Share of a capacity by which a sum may exceed it. Sums are of single precision."""
_CANDIDATES = 16
"""Hosts whose growth is computed exactly. The gradient chooses them."""
_PARTNERS = 32
"""Hosts with which an overloaded host may exchange databases, and pairs of databases that are tried with each."""
_BUSY_CELLS = 32
"""Slots and resources with the highest total use. A host that lacks room there is left out without a look at the others."""
_SMALL = 64
"""Number of databases up to which several orders are tried for each number of hosts."""
_ORDERS = 12
"""Orders for a small problem."""
_STEP = 0.0025
"""Smallest share of more volume that is tried for a large problem."""
_HOPELESS = 0.02
"""Share of the volume without a place at which the placement of a large problem ends."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Databases and the classes of hosts that they may be placed on.

    Attributes:
        demand: shape (databases, resources, slots).
        capacity: of a host of each class, after headroom, shape (classes, resources). All above zero.
        price: of a host of each class. All 1: the fewest hosts.
        counts: most hosts of each class. None: any number.
        eligible: which classes each database may be on, shape (databases, classes).
        soft: resources that may exceed their capacity in ``slots_over`` slots of a host.
        slots_over: slots of a host in which soft resources may exceed their capacity.
        apart: groups of databases of which no two may share a host.
        pinned: database → (class, number of the host in it from 0).
    """

    demand: Array
    capacity: Numbers
    price: Numbers
    counts: tuple[int | None, ...]
    eligible: Flags
    soft: Flags
    slots_over: int = 0
    apart: tuple[tuple[int, ...], ...] = ()
    pinned: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        return int(self.demand.shape[2])

    @cached_property
    def scaled(self) -> Array:
        """Demand with one row of resource × slot for each database."""
        return self.demand.reshape(len(self.demand), -1)

    @cached_property
    def weights(self) -> Array:
        """1 ÷ capacity, for each class and resource × slot."""
        return np.repeat(1 / self.capacity, self.slots, axis=1).astype(np.float32)

    @cached_property
    def busy_cells(self) -> Whole:
        """The cells (resource × slot) with the highest total use."""
        total = self.scaled.sum(axis=0, dtype=np.float64) * self.weights.max(axis=0)
        return np.sort(np.argsort(-total, kind="stable")[:_BUSY_CELLS])

    @cached_property
    def fitting(self) -> Flags:
        """Which classes each database may be on and fits on alone."""
        fits = np.empty(self.eligible.shape, np.bool_)
        for c, weights in enumerate(self.weights):
            for start in range(0, len(fits), 4096):
                part = slice(start, start + 4096)
                fits[part, c] = self.holds(self.scaled[part] * weights)
        return self.eligible & fits

    def holds(self, used: Array) -> Flags:
        """Whether a host with this use carries it. ``used`` has the shape (hosts, resource × slot), as shares of the capacity."""
        if not self.slots_over:
            return np.asarray(used.max(axis=1) <= 1 + TOLERANCE)
        over = (used > 1 + TOLERANCE).reshape(len(used), len(self.soft), self.slots)
        hard = over[:, ~self.soft].any(axis=(1, 2))
        return np.asarray(~hard & (over[:, self.soft].any(axis=1).sum(axis=1) <= self.slots_over))

    @cached_property
    def groups_of(self) -> dict[int, tuple[int, ...]]:
        """Database → its groups in ``apart``."""
        groups: dict[int, list[int]] = {}
        for group, members in enumerate(self.apart):
            for database in members:
                groups.setdefault(database, []).append(group)
        return {database: tuple(numbers) for database, numbers in groups.items()}

    def volumes(self, databases: Flags) -> Numbers:
        """Return the least capacity of each resource that these databases use together on any number of hosts.

        It is the sum in the busiest slot. With a risk, a host may ignore ``slots_over`` slots, which are at worst the busiest slots of each
        of its databases, so that soft resources count the mean of the others.
        """
        part = self.demand[databases]
        volumes = part.sum(axis=0, dtype=np.float64).max(axis=1)
        if self.slots_over:
            kept = self.slots - self.slots_over
            mean = np.sort(part, axis=2)[:, :, :kept].sum(axis=(0, 2), dtype=np.float64) / max(kept, 1)
            volumes = np.where(self.soft, mean, volumes)
        return np.asarray(volumes)


def host_mix(problem: Problem, extra: float = 0.0) -> tuple[int, ...] | None:
    """Return the cheapest number of hosts of each class that has the volume of all databases. Each row asks for ``1 + extra`` times it.

    With no extra it is a lower bound of every placement. The program also has a row for each set of classes that some databases are
    confined to, for each group that must be apart, for databases of which no two fit on one host, and for pinned ones. None: the counts
    are too small.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    classes = len(problem.price)
    rows: list[Numbers] = []
    least: list[float] = []
    patterns, pattern_of = np.unique(problem.fitting, axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    unions = {tuple(row) for row in patterns}
    unions |= {tuple(np.logical_or(a, b)) for a, b in itertools.combinations(patterns, 2)} if len(patterns) <= 64 else set()
    for union in sorted({*unions, (True,) * classes}):
        allowed = np.array(union)
        inside: Flags = np.array([not (row & ~allowed).any() for row in patterns], dtype=np.bool_)[pattern_of]
        if not inside.any():
            continue
        for r, volume in enumerate(problem.volumes(inside).tolist()):
            rows.append(np.asarray(np.where(allowed, problem.capacity[:, r], 0.0) / problem.capacity[:, r].max(), dtype=np.float64))
            least.append(float(volume) / float(problem.capacity[:, r].max()))
        rows.append(allowed.astype(np.float64))
        least.append(_apart(problem, inside, allowed))
    for group in problem.apart:
        rows.append(np.asarray(problem.fitting[list(group)].any(axis=0), dtype=np.float64))
        least.append(len(group))
    low = np.zeros(classes)
    for c, number in problem.pinned.values():
        low[c] = max(low[c], number + 1)
    high = [np.inf if count is None else max(count, low[c]) for c, count in enumerate(problem.counts)]
    # A host more than the fewest is worse than any difference in price below a millionth.
    found = milp(
        problem.price + 1e-6 * problem.price.max(),
        constraints=LinearConstraint(np.array(rows), np.array(least) * (1 + extra) - TOLERANCE, np.inf),
        integrality=np.ones(classes, dtype=np.int64),
        bounds=Bounds(low, high),
    )
    return None if found.x is None else tuple(round(x) for x in found.x)


def _apart(problem: Problem, inside: Flags, allowed: Flags) -> float:
    """Return the most databases of a slot and resource of which no two fit on one host, because each needs more than half of it."""
    if problem.slots_over:
        return 1.0
    half = np.repeat(problem.capacity[allowed].max(axis=0) / 2, problem.slots) * (1 + TOLERANCE)
    return float(max(1, (problem.scaled[inside] > half).sum(axis=0).max()))


class Hosts:
    """Hosts with the databases placed on them.

    Attributes:
        klass: class of each host.
        number: number of each host in its class, from 0.
        used: use of each host as a share of its capacity, shape (hosts, resource × slot).
        where: host of each database. -1: none.
    """

    def __init__(self, problem: Problem, klass: Sequence[int]) -> None:
        """Set up empty hosts of these classes."""
        self.problem = problem
        self.klass = np.array(klass, dtype=np.int64)
        seen: dict[int, itertools.count[int]] = {}
        self.number = [next(seen.setdefault(int(c), itertools.count())) for c in self.klass]
        self.used = np.zeros((len(klass), problem.scaled.shape[1]), np.float32)
        self.where = np.full(len(problem.demand), -1, np.int64)
        self._steep = np.zeros_like(self.used)
        self._busiest = np.zeros((len(problem.busy_cells), len(klass)), np.float32)  # a maximum over columns is the fast one
        self._members: list[set[int]] = [set() for _ in klass]
        self._of_class = [np.flatnonzero(self.klass == c) for c in range(len(problem.price))]
        self._held: dict[tuple[int, int], int] = {}  # group and host → databases of the group there
        self._of_pin = {(int(c), n): h for h, (c, n) in enumerate(zip(self.klass, self.number, strict=True))}

    def copy(self) -> Hosts:
        """Return an independent copy."""
        new = Hosts(self.problem, self.klass.tolist())
        new.number = list(self.number)
        new.used, new.where, new._steep = self.used.copy(), self.where.copy(), self._steep.copy()
        new._busiest = self._busiest.copy()
        new._members = [set(members) for members in self._members]
        new._held = dict(self._held)
        return new

    def members(self, host: int) -> list[int]:
        """Return the databases on a host, in ascending order."""
        return sorted(self._members[host])

    def load(self, database: int, host: int) -> Array:
        """Return the use of a database as a share of this host's capacity."""
        loaded: Array = self.problem.scaled[database] * self.problem.weights[self.klass[host]]
        return loaded

    def put(self, database: int, host: int) -> None:
        """Place a database on a host, whether or not it fits."""
        self.where[database] = host
        self._members[host].add(database)
        for group in self.problem.groups_of.get(database, ()):
            self._held[group, host] = self._held.get((group, host), 0) + 1
        self._refresh(host, self.used[host] + self.load(database, host))

    def take(self, database: int) -> int:
        """Remove a database from its host, and return this host."""
        host = int(self.where[database])
        self.where[database] = -1
        self._members[host].discard(database)
        for group in self.problem.groups_of.get(database, ()):
            self._held[group, host] -= 1
        # The sum is computed again, because differences of single precision drift.
        rest = self.members(host)
        self._refresh(host, self.problem.scaled[rest].sum(axis=0, dtype=np.float64) * self.problem.weights[self.klass[host]])
        return host

    def _refresh(self, host: int, used: Array | Numbers) -> None:
        self.used[host] = used
        squared = self.used[host] ** 2
        self._steep[host] = squared * squared * self.used[host]
        self._busiest[:, host] = self.used[host, self.problem.busy_cells]

    def excess(self) -> Numbers:
        """Return what each host lacks: 0 if it carries its databases, otherwise the sum of its use above the capacity."""
        over = np.maximum(self.used - 1 - TOLERANCE, 0).sum(axis=1, dtype=np.float64)
        return np.where(self.problem.holds(self.used), 0.0, over)

    def allows(self, database: int, host: int) -> bool:
        """Whether labels, pins and groups permit the database there. Capacity is another question."""
        pin = self.problem.pinned.get(database)
        if pin is not None and self._of_pin.get(pin) != host:
            return False
        return bool(self.problem.eligible[database, self.klass[host]]) and not any(
            self._held.get((group, host)) for group in self.problem.groups_of.get(database, ())
        )

    def candidates(self, database: int) -> Whole:
        """Return the hosts that ``allows`` and that the database fits on alone."""
        pin = self.problem.pinned.get(database)
        if pin is not None:
            host = self._of_pin.get(pin)
            return np.array([] if host is None or not self.allows(database, host) else [host], dtype=np.int64)
        hosts = np.concatenate([self._of_class[c] for c in np.flatnonzero(self.problem.fitting[database])] or [np.array([], np.int64)])
        groups = self.problem.groups_of.get(database, ())
        if groups:
            hosts = np.array([h for h in hosts if not any(self._held.get((group, h)) for group in groups)], dtype=np.int64)
        return np.asarray(hosts)

    def place(self, database: int, without: Sequence[int] = (), *, opened: bool = True) -> bool:
        """Place a database on the host that it fits on with the least growth. Return False if there is none.

        ``without`` are hosts to leave out. ``opened``: False leaves out empty hosts.
        """
        hosts = self.candidates(database)
        if len(without):
            hosts = hosts[~np.isin(hosts, without)]
        if not opened:
            hosts = hosts[[bool(self._members[h]) for h in hosts]] if len(hosts) else hosts
        hosts = self._with_room(database, hosts)
        if not len(hosts):
            return False
        gradient = self._gradient(database, hosts)
        order = _lowest(gradient, _CANDIDATES)
        start, size = 0, _CANDIDATES
        while start < len(hosts):
            part = hosts[order[start : start + size]]
            before = self.used[part]
            after = before + self.problem.scaled[database] * self.problem.weights[self.klass[part]]
            fits = self.problem.holds(after)
            if fits.any():
                growth = ((after * after) ** 3 - (before * before) ** 3).sum(axis=1)
                self.put(database, int(part[np.argmin(np.where(fits, growth, np.inf))]))
                return True
            start, size = start + size, size * 4
            order = order if len(order) == len(hosts) else np.argsort(gradient, kind="stable")
        return False

    def _gradient(self, database: int, hosts: Whole) -> Array:
        """Return the slope of the growth of each host."""
        gradient = np.empty(len(hosts), np.float32)
        classes = self.klass[hosts]
        for c in np.flatnonzero(self.problem.fitting[database]):
            of_class = classes == c
            load = self.problem.scaled[database] * self.problem.weights[c]
            chosen = hosts[of_class]
            # The product with all hosts is faster than a copy of many rows.
            every = len(chosen) > len(self.klass) // 4
            gradient[of_class] = (self._steep @ load)[chosen] if every else self._steep[chosen] @ load
        return gradient

    def _with_room(self, database: int, hosts: Whole) -> Whole:
        """Leave out hosts that a look at the busiest cells rules out."""
        if self.problem.slots_over or not len(hosts):
            return hosts
        cells = self.problem.busy_cells
        loads = (self.problem.scaled[database, cells] * self.problem.weights[:, cells]).T
        before = self._busiest if len(hosts) == len(self.klass) else self._busiest[:, hosts]
        added = loads if loads.shape[1] == 1 else loads[:, self.klass[hosts]]
        return np.asarray(hosts[(before + added).max(axis=0) <= 1 + TOLERANCE])

    def crowd(self, database: int) -> bool:
        """Place a database that fits nowhere on the host that it overloads least. Return False if no host is permitted."""
        hosts = self.candidates(database)
        if not len(hosts):
            return False
        lacking = np.empty(len(hosts))
        for start in range(0, len(hosts), 512):
            part = hosts[start : start + 512]
            after = self.used[part] + self.problem.scaled[database] * self.problem.weights[self.klass[part]]
            lacking[start : start + 512] = np.maximum(after - 1, 0).sum(axis=1)
        self.put(database, int(hosts[np.argmin(lacking)]))
        return True

    def relieve(self) -> bool:
        """Move and exchange databases until no host is overloaded. Return False if that fails."""
        excess = self.excess()
        for _ in range(20 * len(self.klass) + 100):
            host = int(excess.argmax())
            if not excess[host]:
                return True
            changed = self._move_out(host) or self._exchange(host)
            if not changed:
                return False
            for h in changed:
                excess[h] = 0.0 if self.problem.holds(self.used[[h]])[0] else np.maximum(self.used[h] - 1 - TOLERANCE, 0).sum()
        return False

    def _busy(self, host: int) -> tuple[list[int], Array]:
        """Return the databases on a host that use its overloaded cells, most first, and the overload of each cell."""
        over = np.maximum(self.used[host] - 1, 0)
        members = [database for database in self.members(host) if database not in self.problem.pinned]
        if not members:
            return [], over
        share = (self.problem.scaled[members] * self.problem.weights[self.klass[host]]) @ over
        order = np.argsort(-share, kind="stable")
        return [members[i] for i in order if share[i] > 0], over

    def _move_out(self, host: int) -> list[int]:
        """Move one database to a host that it fits on. Return the two hosts, or none."""
        for database in self._busy(host)[0][:_CANDIDATES]:
            self.take(database)
            if self.place(database, [host]):
                return [host, int(self.where[database])]
            self.put(database, host)
        return []

    def _exchange(self, host: int) -> list[int]:
        """Exchange two databases so that the partner carries its databases and this host lacks less. Return the two hosts, or none."""
        leaving, over = self._busy(host)
        if not leaving:
            return []
        lacking, cells = float(over.sum()), np.flatnonzero(over)
        weights, scaled = self.problem.weights, self.problem.scaled
        own, rest = weights[self.klass[host]], self.used[host, cells] - 1
        mine = scaled[leaving][:, cells] * own[cells]
        room = self.used[:, cells].sum(axis=1)
        partners = [int(h) for h in np.argsort(room, kind="stable") if h != host][:_PARTNERS]
        for partner in partners:
            coming = [database for database in self.members(partner) if database not in self.problem.pinned]
            if not coming:
                continue
            theirs = scaled[coming][:, cells] * own[cells]
            gain = lacking - np.maximum(rest - mine[:, None, :] + theirs[None, :, :], 0).sum(axis=2)
            for flat in np.argsort(-gain, axis=None, kind="stable")[:_PARTNERS]:
                i, j = np.unravel_index(flat, gain.shape)
                if gain[i, j] <= 1e-4 * lacking:
                    break
                change = scaled[leaving[i]] - scaled[coming[j]]
                after = float(np.maximum(self.used[host] - change * own - 1, 0).sum())
                fits = self.problem.holds((self.used[partner] + change * weights[self.klass[partner]])[None])[0]
                if fits and after < (1 - 1e-4) * lacking and self._swapped(leaving[i], coming[j]):
                    return [host, partner]
        return []

    def _swapped(self, one: int, other: int) -> bool:
        """Exchange two databases if labels and groups permit it."""
        host, partner = self.take(one), self.take(other)
        if self.allows(one, partner) and self.allows(other, host):
            self.put(one, partner)
            self.put(other, host)
            return True
        self.put(one, host)
        self.put(other, partner)
        return False

    def add(self, klass: int) -> Hosts:
        """Return hosts with one more empty host of a class."""
        new = Hosts(self.problem, [*self.klass.tolist(), klass])
        for database in range(len(self.where)):
            if self.where[database] >= 0:
                new.put(database, int(self.where[database]))
        return new


def _lowest(values: Array, count: int) -> Whole:
    """Return the start of a stable sort: the indices of at least the ``count`` lowest values. It is faster than to sort all."""
    if len(values) <= 4 * count:
        return np.argsort(values, kind="stable")
    low = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return np.asarray(low[np.argsort(values[low], kind="stable")])


@dataclass(frozen=True, eq=False)
class Packing:
    """A placement of all databases, or of as many as possible.

    Attributes:
        hosts: the hosts with their databases.
        bound: lower bound of the hosts of each class together, as numbers of hosts of the cheapest mix. None: no mix is enough.
        refused: databases that no host can take.
    """

    hosts: Hosts
    bound: tuple[int, ...] | None
    refused: tuple[int, ...] = ()


def pack(problem: Problem, seed: int = 0) -> Packing:
    """Place all databases on the cheapest mix of hosts that is found. The same problem and seed give the same placement."""
    bound = host_mix(problem) if problem.fitting.any(axis=1).all() else None
    if bound is None:
        return _as_many_as_possible(problem, None)
    smallest = 1 / max(sum(bound), 1)
    step = smallest if len(problem.demand) <= _SMALL else max(smallest, _STEP)
    failed, extra = -1.0, 0.0
    tried: set[tuple[int, ...]] = set()
    while True:
        mix = host_mix(problem, extra)
        if mix is None or sum(mix) > 2 * len(problem.demand) + sum(bound):  # even a host for each database does not help
            return _as_many_as_possible(problem, bound)
        found, lacking = (None, 0.0) if mix in tried else attempt(problem, mix, seed)
        tried.add(mix)
        if found is not None:
            break
        failed, extra = extra, extra + max(step, lacking)
    while extra - failed > step * (1 + 1e-9) and failed >= 0:  # a gap of more than a host can hide a number of hosts
        middle = (failed + extra) / 2
        mix = host_mix(problem, middle)
        smaller = None if mix is None or mix in tried else attempt(problem, mix, seed)[0]
        if mix is not None:
            tried.add(mix)
        if smaller is None:
            failed = middle
        else:
            found, extra = smaller, middle
    return Packing(found, bound)


def attempt(problem: Problem, mix: Sequence[int], seed: int = 0) -> tuple[Hosts | None, float]:
    """Place all databases on these numbers of hosts of each class.

    None: no placement was found. The second value is then the share of the volume that found no place.
    """
    klass = [c for c, count in enumerate(mix) for _ in range(count)]
    sizes, lacking = _sizes(problem), 0.0
    generator = np.random.default_rng(seed)
    total = float(sizes.sum())
    for repeat in range(_ORDERS if len(sizes) <= _SMALL else 1):
        order = np.argsort(-sizes * (generator.lognormal(0, 0.3, len(sizes)) if repeat else 1), kind="stable")
        hosts = Hosts(problem, klass)
        left: list[int] = []
        for database in _confined_first(problem, order):
            if not hosts.place(database):
                left.append(database)
                if len(sizes) > _SMALL and sizes[left].sum() > _HOPELESS * total:
                    rest = float(sizes[np.flatnonzero(np.asarray(hosts.where < 0))].sum()) / total
                    return None, rest
        if all(hosts.crowd(database) for database in left) and hosts.relieve():
            return hosts, 0.0
        lacking = float(sizes[left].sum()) / total
    return None, lacking


def _sizes(problem: Problem) -> Numbers:
    """Return the size of each database: its largest share of a host, and its share of the scarce cells."""
    weights = problem.weights[int(np.argmax(problem.capacity.sum(axis=1)))]
    total = problem.scaled.sum(axis=0, dtype=np.float64) * weights
    share = total / max(float(total.max()), 1e-30)
    scarce = (share**4 / max(float(share.sum()), 1e-30)).astype(np.float32) * weights
    largest = np.array([float((row * weights).max()) for row in problem.scaled])
    return np.asarray(largest + problem.scaled @ scarce, dtype=np.float64)


def _confined_first(problem: Problem, order: Whole) -> list[int]:
    """Return the order with pinned databases first, then those with fewer classes."""
    choice = problem.fitting.sum(axis=1)
    return sorted((int(database) for database in order), key=lambda d: (d not in problem.pinned, choice[d]))


def _as_many_as_possible(problem: Problem, bound: tuple[int, ...] | None) -> Packing:
    """Place what fits on all hosts there are. A class without a count gets as many hosts as its databases need alone."""
    limited = tuple(count if count is not None else len(problem.demand) for count in problem.counts)
    alone = np.asarray(problem.fitting.any(axis=1))
    hosts = Hosts(problem, [c for c, count in enumerate(limited) for _ in range(count)])
    refused = [d for d in _confined_first(problem, np.argsort(-_sizes(problem), kind="stable")) if not (alone[d] and hosts.place(d))]
    return Packing(hosts, bound, tuple(sorted(refused)))


@dataclass(frozen=True)
class Move:
    """Database that moves from one host to another, by index, with the reason."""

    database: int
    source: int
    target: int
    gain: str


def replan(hosts: Hosts, most_moves: int, names: Sequence[str]) -> tuple[Hosts, list[Move], tuple[int, ...]]:
    """Improve an existing placement with at most ``most_moves`` moves: relieve overloaded hosts, then empty hosts.

    Databases that are on no host are placed first, and are no moves. Returns the hosts, the moves, and the databases that no host can take.
    """
    moves: list[Move] = []
    new = [int(d) for d in np.argsort(-_sizes(hosts.problem), kind="stable") if hosts.where[d] < 0]
    refused = tuple(sorted(d for d in new if not hosts.place(d)))
    while len(moves) < most_moves:
        excess = hosts.excess()
        move = next(
            (m for h in np.argsort(-excess, kind="stable") if excess[h] > 0 and (m := _relief(hosts, int(h), excess[h], names))), None
        )
        if move is None:
            break
        moves.append(move)
    kept = [h for h in range(len(hosts.klass)) if hosts.members(h)]
    for host in sorted(kept, key=lambda h: (len(hosts.members(h)), h)):
        members = hosts.members(host)
        if not members or len(members) > most_moves - len(moves) or any(d in hosts.problem.pinned for d in members):
            continue
        trial = hosts.copy()
        for database in members:
            trial.take(database)
        if all(trial.place(database, [host], opened=False) for database in members):
            moves += [Move(d, host, int(trial.where[d]), f"empties {names[host]} ({len(members)} moves)") for d in members]
            hosts = trial
    return hosts, moves, refused


def _relief(hosts: Hosts, host: int, lacking: float, names: Sequence[str]) -> Move | None:
    """Move the database off an overloaded host that relieves it most. None: no other host can take one."""
    before = float(hosts.used[host].max())
    for database in hosts._busy(host)[0]:
        hosts.take(database)
        if hosts.place(database, [host]):
            after = float(hosts.used[host].max())
            return Move(database, host, int(hosts.where[database]), f"{names[host]}: highest use {before:.0%} → {after:.0%}")
        hosts.put(database, host)
    return None


def flattened(problem: Problem, how: str) -> Problem:
    """Return the problem with one slot: the ``peak`` or the ``mean`` of each database."""
    reduce = np.max if how == "peak" else np.mean
    return replace(problem, demand=reduce(problem.demand, axis=2, keepdims=True).astype(np.float32), slots_over=0)


def months_until_full(use: float, growth: float) -> float:
    """Return the months until a use (share of the capacity) exceeds 1 at a growth per month (0.03: 3 %). Infinite without growth."""
    if use > 1:
        return 0.0
    return math.inf if growth <= 0 or use <= 0 else -math.log(use) / math.log1p(growth)
