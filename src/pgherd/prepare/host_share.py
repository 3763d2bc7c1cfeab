"""Host share of a run: the cores and the memory that it may use on this host, or on all its hosts together."""

from __future__ import annotations

from pgherd.model import placing
from pgherd.model.deployment import Container
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.study.database_options import FREE_SHARE, DatabaseRequest


def cores_of(cores: float | None, facts: HostFacts, this: str = "this host") -> float:
    """Return the cores of ``--host-cores``, by default all cores of the host. Raises UsageError if the host has fewer."""
    requested = facts.cores if cores is None else cores
    if requested > facts.cores:
        raise UsageError(f"--host-cores {requested:g} is more than {this} has ({facts.cores:g}); lower it")
    return requested


def one_host(cores: float | None, memory: str | None, facts: HostFacts, name: str = "") -> tuple[float, int]:
    """Return the cores and the memory (bytes) that a run may use on one host.

    They are ``--host-cores`` and ``--host-memory``. The defaults are all cores and most of the free memory.

    Raises:
        UsageError: the host has less.
    """
    this = f"host {name}" if name else "this host"
    share_cores = cores_of(cores, facts, this)
    size = int(facts.memory_available * FREE_SHARE) if memory is None else parse_bytes(memory)
    if size > facts.memory:
        raise UsageError(f"--host-memory {format_bytes(size)} is more than {this} has ({format_bytes(facts.memory)}); lower it")
    return share_cores, size


def budget(asked: DatabaseRequest, facts: HostFacts) -> tuple[float, int]:
    """Return the cores and the memory (bytes) of a run, on this host or on all hosts of the request. Raises UsageError."""
    if not asked.over:
        return one_host(asked.host_cores, asked.host_memory or None, facts)
    return sum(host.cores or 0.0 for host in asked.over), sum(host.memory or 0 for host in asked.over)


def largest(asked: DatabaseRequest, cores: float) -> float:
    """Return the maximum number of cores of one container."""
    return max((host.cores or 0.0 for host in asked.over), default=cores)


def smallest(asked: DatabaseRequest, cores: float) -> float:
    """Return the cores of the smallest host. A default for containers must fit on every host."""
    return min((host.cores or 0.0 for host in asked.over), default=cores)


def holds(asked: DatabaseRequest, memory: int, each: int) -> int:
    """Return the number of containers with ``each`` bytes that fit in a budget of ``memory`` bytes."""
    if not asked.over:
        return memory // each
    return sum((host.memory or 0) // each for host in asked.over)


def most_on_one(asked: DatabaseRequest, many: int, vcpus: float) -> int:
    """Return the number of containers on the fullest host, if there are ``many`` in total."""
    if not asked.over:
        return many
    return max(_counts(asked, many, vcpus).values())


def share(asked: DatabaseRequest, memory: int, many: int, vcpus: float) -> int:
    """Return the memory (bytes) of each of ``many`` containers, if all have the same and a budget of ``memory`` bytes must hold them."""
    if not asked.over:
        return memory // many
    counts = _counts(asked, many, vcpus)
    return min((host.memory or 0) // counts[host.name] for host in asked.over if counts[host.name])


def _counts(asked: DatabaseRequest, many: int, vcpus: float) -> dict[str, int]:
    hosts = asked.over
    try:
        return placing.counts(many, hosts, Container(name="c", vcpus=vcpus), asked.placement)
    except ValueError as error:
        raise UsageError(f"--placement {asked.placement}: {error}") from None
