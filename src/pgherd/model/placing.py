"""Which container lies on which host of a cluster. Pure: the same containers, hosts and rule always give the same."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pgherd.model.deployment import Container, Host

RULES = "spread, pack, label:KEY=VALUE, or listed:CONTAINER=HOST,…"
"""The rules as a message names them."""


def check(rule: str, hosts: Sequence[Host]) -> None:
    """Raise ValueError, in words for the user, where a rule is none or names what these hosts do not have."""
    kind, _, rest = rule.partition(":")
    if kind == "label" and "=" in rest:
        _labelled(rest, hosts)
    elif kind == "listed" and rest:
        known = {host.name for host in hosts}
        for _, host in _listed(rest):
            if host not in known:
                raise ValueError(f"placement '{rule}' names host {host}, which is not one of {', '.join(sorted(known))}")
    elif rule not in ("spread", "pack"):
        raise ValueError(f"'{rule}' is not a placement; it is {RULES}")


def place(containers: Iterable[Container], hosts: Sequence[Host], rule: str = "spread") -> dict[str, str]:
    """Container → host, both by name.

    ``spread`` puts each container where the smallest share of the cores is then given out, so that equal hosts take turns;
    ``pack`` fills one host's cores and memory before it begins with the next. ``label:KEY=VALUE`` spreads over the hosts that have
    this label. ``listed:CONTAINER=HOST,…`` says it one by one; a container may be a pattern (``db0*``), and the first that fits
    counts. Where memory is limited, a host that has no room left is passed over as long as another has.

    Raises:
        ValueError: as ``check``; or a container is not listed.
    """
    check(rule, hosts)
    kind, _, rest = rule.partition(":")
    if kind == "listed":
        return {container.name: _by_list(container.name, rest) for container in containers}
    loads = [_Load(host) for host in (_labelled(rest, hosts) if kind == "label" else hosts)]
    return _packed(containers, loads) if kind == "pack" else _spread(containers, loads)


def _packed(containers: Iterable[Container], loads: Sequence[_Load]) -> dict[str, str]:
    found = {}
    for container in containers:
        able = [one for one in loads if one.has_memory(container)] or loads
        best = next((one for one in able if one.has_cores(container)), None) or min(able, key=_Load.share)
        best.take(container)
        found[container.name] = best.host.name
    return found


def _spread(containers: Iterable[Container], loads: Sequence[_Load]) -> dict[str, str]:
    """The host whose share is the smallest with the container, then without it, then the first: among hosts of as many cores that is
    the one that has given out the fewest, which a heap knows, so that a thousand containers on a hundred hosts take no time."""
    heaps: dict[float, list[tuple[float, int]]] = {}  # by cores: those given out, and the host's number
    for number, one in enumerate(loads):
        heaps.setdefault(one.host.cores or 1.0, []).append((0.0, number))
    found = {}
    for container in containers:
        full: list[tuple[list[tuple[float, int]], tuple[float, int]]] = []
        tops = []
        for heap in heaps.values():
            while heap and not loads[heap[0][1]].has_memory(container):
                full.append((heap, heapq.heappop(heap)))
            if heap:
                tops.append(heap)
        if not tops:  # nobody has room: then as if all had
            for heap, entry in full:
                heapq.heappush(heap, entry)
            full, tops = [], list(heaps.values())
        heap = min(tops, key=lambda one: loads[one[0][1]].rank(container, one[0][1]))
        _, number = heapq.heappop(heap)
        loads[number].take(container)
        heapq.heappush(heap, (loads[number].cores, number))
        for other, entry in full:
            heapq.heappush(other, entry)
        found[container.name] = loads[number].host.name
    return found


def named(rule: str, hosts: Sequence[Host]) -> list[Host]:
    """The hosts that a rule speaks of: those with the label, those that are listed, in the order in which they are; else all.

    Raises:
        ValueError: as ``check``.
    """
    check(rule, hosts)
    kind, _, rest = rule.partition(":")
    if kind == "label":
        return _labelled(rest, hosts)
    if kind == "listed":
        known = {host.name: host for host in hosts}
        return [known[name] for name in dict.fromkeys(host for _, host in _listed(rest))]
    return list(hosts)


def counts(many: int, hosts: Sequence[Host], container: Container, rule: str = "spread") -> dict[str, int]:
    """Host → how many of so many containers like this one it gets, called db01, db02 …; raises as ``place``."""
    width = max(2, len(str(many)))
    where = place([container.model_copy(update={"name": f"db{n:0{width}d}"}) for n in range(1, many + 1)], hosts, rule)
    found = dict.fromkeys((host.name for host in hosts), 0)
    for host in where.values():
        found[host] += 1
    return found


def in_turn(where: Mapping[str, str], order: Sequence[str], cores: Mapping[str, float]) -> list[str]:
    """The containers in an order in which any first N of them are spread over the hosts by their cores.

    ``order`` is that of the containers among those of one host; hosts of one share follow each other as they come in it.
    """
    waiting: dict[str, list[str]] = {}
    for name in order:
        waiting.setdefault(where[name], []).append(name)
    for names in waiting.values():
        names.reverse()  # the next one is taken from the end
    # (share with one more, taken, place): equal shares go to the host that has fewer.
    turn = [(1 / cores[host], 0, number, host) for number, host in enumerate(waiting)]
    heapq.heapify(turn)
    found = []
    while turn:
        _, taken, number, host = heapq.heappop(turn)
        found.append(waiting[host].pop())
        if waiting[host]:
            heapq.heappush(turn, ((taken + 2) / cores[host], taken + 1, number, host))
    return found


class _Load:
    """What of a host is given out."""

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
    """One of no known size counts as one core."""
    return container.vcpus or 1.0


def _labelled(rest: str, hosts: Sequence[Host]) -> list[Host]:
    key, _, value = rest.partition("=")
    chosen = [host for host in hosts if host.labels.get(key) == value]
    if not chosen:
        have = sorted({f"{name}={text}" for host in hosts for name, text in host.labels.items()})
        raise ValueError(f"no host has the label {rest}; there are {', '.join(have) or 'none'}")
    return chosen


def _listed(rest: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in rest.split(",")]
    if not all(name and host for name, _, host in pairs):
        raise ValueError(f"'listed:{rest}' is not a list of CONTAINER=HOST, separated by commas")
    return [(name, host) for name, _, host in pairs]


def _by_list(name: str, rest: str) -> str:
    for pattern, host in _listed(rest):
        if fnmatchcase(name, pattern):
            return host
    raise ValueError(f"placement 'listed:{rest}' says nothing of container {name}; a last *=HOST takes all others")
