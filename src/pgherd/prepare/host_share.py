"""How much of this host, or of all hosts of a cluster together, a run may use."""

from __future__ import annotations

from pgherd.model import placing
from pgherd.model.deployment import Container
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.study.database_options import FREE_SHARE, DatabaseRequest


def cores_of(cores: float | None, facts: HostFacts, this: str = "this host") -> float:
    """The cores that were asked for by ``--host-cores``, else all that the host has; raises UsageError when it has fewer."""
    given = facts.cores if cores is None else cores
    if given > facts.cores:
        raise UsageError(f"--host-cores {given:g} is more than {this} has to use ({facts.cores:g})")
    return given


def one_host(cores: float | None, memory: str | None, facts: HostFacts, name: str = "") -> tuple[float, int]:
    """Cores and memory (bytes) of one host: what was asked for by ``--host-cores`` and ``--host-memory``, else all cores and most of the
    free memory.

    Raises:
        UsageError: the host has less.
    """
    this = f"host {name}" if name else "this host"
    given = cores_of(cores, facts, this)
    size = int(facts.memory_available * FREE_SHARE) if memory is None else parse_bytes(memory)
    if size > facts.memory:
        raise UsageError(f"--host-memory {format_bytes(size)} is more than {this} has ({format_bytes(facts.memory)})")
    return given, size


def budget(asked: DatabaseRequest, facts: HostFacts) -> tuple[float, int]:
    """Cores and memory (bytes) of the run: of this host, or of all hosts that the request is spread over. Raises UsageError."""
    if not asked.over:
        return one_host(asked.host_cores, asked.host_memory or None, facts)
    return sum(host.cores or 0.0 for host in asked.over), sum(host.memory or 0 for host in asked.over)


def largest(asked: DatabaseRequest, cores: float) -> float:
    """The most cores that one container can be given."""
    return max((host.cores or 0.0 for host in asked.over), default=cores)


def smallest(asked: DatabaseRequest, cores: float) -> float:
    """The cores of the smallest host: what is chosen for a container is chosen so that every host holds some."""
    return min((host.cores or 0.0 for host in asked.over), default=cores)


def holds(asked: DatabaseRequest, memory: int, each: int) -> int:
    """How many containers of so much memory each (bytes) the budget of ``memory`` holds."""
    if not asked.over:
        return memory // each
    return sum((host.memory or 0) // each for host in asked.over)


def most_on_one(asked: DatabaseRequest, many: int, vcpus: float) -> int:
    """Of so many containers, how many the fullest host gets."""
    if not asked.over:
        return many
    return max(_counts(asked, many, vcpus).values())


def share(asked: DatabaseRequest, memory: int, many: int, vcpus: float) -> int:
    """The memory (bytes) that each of so many containers can have alike."""
    if not asked.over:
        return memory // many
    found = _counts(asked, many, vcpus)
    return min((host.memory or 0) // found[host.name] for host in asked.over if found[host.name])


def _counts(asked: DatabaseRequest, many: int, vcpus: float) -> dict[str, int]:
    hosts = asked.over
    try:
        return placing.counts(many, hosts, Container(name="c", vcpus=vcpus), asked.placement)
    except ValueError as error:
        raise UsageError(f"--placement {asked.placement}: {error}") from None
