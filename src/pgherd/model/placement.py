"""Placement of containers on the hosts of a cluster. Deterministic: the same input gives the same placement."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pgherd.model.deployment import Container, Host

RULES = "spread, pack, label:KEY=VALUE, or listed:CONTAINER=HOST,…"
"""Placement rules, as listed in messages."""


def check(rule: str, hosts: Sequence[Host]) -> None:
    """Raise ValueError if the rule is unknown or names hosts or labels that do not exist."""
    kind, _, rest = rule.partition(":")
    if kind == "label" and "=" in rest:
        _labelled(rest, hosts)
    elif kind == "listed" and rest:
        names = {host.name for host in hosts}
        for _, host in _listed(rest):
            if host not in names:
                raise ValueError(f"placement '{rule}' names unknown host {host}; hosts: {', '.join(sorted(names))}")
    elif rule not in ("spread", "pack"):
        raise ValueError(f"unknown placement '{rule}'; use {RULES}")


def place(containers: Iterable[Container], hosts: Sequence[Host], rule: str = "spread") -> dict[str, str]:
    """Return the host of each container, both by name.

    ``spread`` uses the host with the smallest share of allocated cores, so that equal hosts alternate. ``pack`` fills the cores
    and memory of one host before the next. ``label:KEY=VALUE`` spreads over the hosts with this label.
    ``listed:CONTAINER=HOST,…`` lists them. A container may be a pattern (``db0*``), and the first match applies. A host without
    enough free memory is skipped while another host has enough.

    Raises:
        ValueError: as ``check``, or a container is not listed.
    """
    check(rule, hosts)
    kind, _, rest = rule.partition(":")
    if kind == "listed":
        return {container.name: _by_list(container.name, rest) for container in containers}
    loads = [_Load(host) for host in (_labelled(rest, hosts) if kind == "label" else hosts)]
    return _packed(containers, loads) if kind == "pack" else _spread(containers, loads)


def _packed(containers: Iterable[Container], loads: Sequence[_Load]) -> dict[str, str]:
    placement = {}
    for container in containers:
        candidates = [load for load in loads if load.has_memory(container)] or loads
        best = next((load for load in candidates if load.has_cores(container)), None) or min(candidates, key=_Load.share)
        best.take(container)
        placement[container.name] = best.host.name
    return placement


def _spread(containers: Iterable[Container], loads: Sequence[_Load]) -> dict[str, str]:
    """Choose the host with the smallest share including the container, then without it, then the first host.

    Among hosts with equally many cores this is the host with the fewest allocated cores. One heap for each number of cores
    finds it, so that 1,000 containers on 100 hosts take negligible time.
    """
    heaps: dict[float, list[tuple[float, int]]] = {}  # by cores: allocated cores and the host's index
    for number, load in enumerate(loads):
        heaps.setdefault(load.host.cores or 1.0, []).append((0.0, number))
    placement = {}
    for container in containers:
        full: list[tuple[list[tuple[float, int]], tuple[float, int]]] = []
        candidates = []
        for heap in heaps.values():
            while heap and not loads[heap[0][1]].has_memory(container):
                full.append((heap, heapq.heappop(heap)))
            if heap:
                candidates.append(heap)
        if not candidates:  # no host has room: ignore memory
            for heap, entry in full:
                heapq.heappush(heap, entry)
            full, candidates = [], list(heaps.values())
        heap = min(candidates, key=lambda heap: loads[heap[0][1]].rank(container, heap[0][1]))
        _, number = heapq.heappop(heap)
        loads[number].take(container)
        heapq.heappush(heap, (loads[number].cores, number))
        for other, entry in full:
            heapq.heappush(other, entry)
        placement[container.name] = loads[number].host.name
    return placement


def named(rule: str, hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts that a rule refers to: hosts with the label, listed hosts in order of first mention, otherwise all.

    Raises:
        ValueError: as ``check``.
    """
    check(rule, hosts)
    kind, _, rest = rule.partition(":")
    if kind == "label":
        return _labelled(rest, hosts)
    if kind == "listed":
        by_name = {host.name: host for host in hosts}
        return [by_name[name] for name in dict.fromkeys(host for _, host in _listed(rest))]
    return list(hosts)


def counts(many: int, hosts: Sequence[Host], container: Container, rule: str = "spread") -> dict[str, int]:
    """Return how many of ``many`` containers like this one, named db01, db02 …, each host gets. Raises as ``place``."""
    width = max(2, len(str(many)))
    where = place([container.model_copy(update={"name": f"db{n:0{width}d}"}) for n in range(1, many + 1)], hosts, rule)
    by_host = dict.fromkeys((host.name for host in hosts), 0)
    for host in where.values():
        by_host[host] += 1
    return by_host


def balanced(order: Sequence[str], resources: Mapping[str, tuple[str, ...]], capacity: Mapping[str, float], count: int) -> list[str]:
    """Choose ``count`` containers so that the load of everything that they share is even.

    Each choice is the container whose most loaded resource stays lowest, relative to its capacity. Between equal ones, the container whose
    resources have less load now is chosen: of two servers on one host and one on another, two choices load both hosts. Containers with the
    same resources are chosen in their order, and the order also decides between resources that are equal in both.

    Args:
        order: all containers.
        resources: what each container shares with others: its host, its CPUs.
        capacity: capacity of each resource, such as a host's cores. A CPU has 1.
        count: number of containers to choose.
    """
    waiting: dict[tuple[str, ...], deque[tuple[int, str]]] = {}
    for position, name in enumerate(order):
        waiting.setdefault(resources[name], deque()).append((position, name))
    load = dict.fromkeys(capacity, 0)
    chosen = []

    def shares(group: tuple[str, ...], more: int) -> list[float]:
        return sorted(((load[name] + more) / capacity[name] for name in group), reverse=True)

    for _ in range(count):
        best = min(
            (group for group, queue in waiting.items() if queue),
            key=lambda group: (shares(group, 1), shares(group, 0), waiting[group][0][0]),
        )
        chosen.append(waiting[best].popleft()[1])
        for name in best:
            load[name] += 1
    return chosen


def pinned_cpus(vcpus: Sequence[float], cores: float) -> list[tuple[int, ...]]:
    """Return the CPUs that containers with whole CPUs get, as indices into the run's CPUs: in turn, again from the first after the last.

    ``pgherd.runtimes.runtime.CpuAssignment`` assigns them like this at the start of the containers.
    """
    assigned, start, total = [], 0, max(int(cores), 1)
    for count in map(int, vcpus):
        assigned.append(tuple(sorted({(start + index) % total for index in range(count)})))
        start = (start + count) % total
    return assigned


class _Load:
    """Allocated cores and memory of one host."""

    def __init__(self, host: Host) -> None:
        self.host, self.cores, self.memory = host, 0.0, 0

    def share(self) -> float:
        return self.cores / (self.host.cores or 1.0)

    def rank(self, container: Container, number: int) -> tuple[float, float, int]:
        return (self.cores + _cores(container)) / (self.host.cores or 1.0), self.share(), number

    def has_cores(self, container: Container) -> bool:
        return self.host.cores is None or self.cores + _cores(container) <= self.host.cores + 1e-9

    def has_memory(self, container: Container) -> bool:
        return self.host.memory is None or container.memory is None or self.memory + container.memory <= self.host.memory

    def take(self, container: Container) -> None:
        self.cores += _cores(container)
        self.memory += container.memory or 0


def _cores(container: Container) -> float:
    """Return the container's cores. One without a limit counts as one core."""
    return container.vcpus or 1.0


def _labelled(label: str, hosts: Sequence[Host]) -> list[Host]:
    key, _, value = label.partition("=")
    chosen = [host for host in hosts if host.labels.get(key) == value]
    if not chosen:
        labels = sorted({f"{name}={text}" for host in hosts for name, text in host.labels.items()})
        raise ValueError(f"no host has the label {label}; existing labels: {', '.join(labels) or 'none'}")
    return chosen


def _listed(text: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and host for name, _, host in pairs):
        raise ValueError(f"'listed:{text}' is not a comma-separated list of CONTAINER=HOST")
    return [(name, host) for name, _, host in pairs]


def _by_list(name: str, text: str) -> str:
    for pattern, host in _listed(text):
        if fnmatchcase(name, pattern):
            return host
    raise ValueError(f"placement 'listed:{text}' has no host for container {name}; add *=HOST as the last entry")
