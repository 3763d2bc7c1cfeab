"""The metrics of several hosts' phases in one table of entities. Pure.

Which entity means what where there are several hosts (docs: pgherd.model.result.PhaseResult has those of one):

- ``container:NAME``, ``server:CONTAINER/SERVER``, ``backend:…`` and ``driver:TARGET`` keep their names: a container's name stands once
  in a deployment, whatever host it lies on.
- ``host`` becomes ``host:NAME`` for each host, and ``host`` is the whole. All that the samplers read of a host is an amount or a rate
  of one (CPU seconds per second, bytes, pages, tasks), and amounts are added up, CPUs and memory included; only the shares of time of
  pressure figures (``psi.…``, seconds per second, of which no host has more than one) are averaged, by the hosts' CPUs.
- ``budget`` (the group around a host's containers) likewise: ``budget:NAME`` and, added up, ``budget``.
- ``pgherd`` is the agents' cost: ``pgherd:HOST`` and, added up, ``pgherd``.
- ``platform:NAME``: ``platform:HOST/NAME`` stands for each host in the samples; a phase's table holds the sum under
  ``platform:NAME`` alone, because studies add up all entities of this kind.
- ``disk:NAME`` and other devices (``swap:…``, ``zram:…``) become ``KIND:HOST/NAME``: devices of different hosts have nothing to do with
  each other.
- ``container:locked-memory`` is the one container that each host has: it is ``container:locked-memory`` added up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pgherd.metrics.cgroup import BUDGET, LOCKED

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
