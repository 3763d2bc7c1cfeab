"""Hosts of a run: the share of each that it may use, their roles in a cluster, and a warning about their disks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.host import block_devices
from pgherd.model import placement
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.prepare.variants import parse_variant, plain
from pgherd.study.cluster_options import ClusterRequest
from pgherd.study.database_options import FREE_SHARE


def cores_of(cores: float | None, facts: HostFacts, this: str = "this host") -> float:
    """Return the cores of ``--host-cores``, by default all cores of the host. Raises UsageError if the host has fewer."""
    requested = facts.cores if cores is None else cores
    if requested > facts.cores:
        raise UsageError(f"--host-cores {requested:g} is more than {this} has ({facts.cores:g}); lower it")
    return requested


def one_host(cores: float | None, memory: int | None, facts: HostFacts, name: str = "") -> tuple[float, int]:
    """Return the cores and the memory (bytes) that a run may use on one host.

    They are ``--host-cores`` and ``--host-memory``. The defaults are all cores and most of the free memory.

    Raises:
        UsageError: the host has less.
    """
    this = f"host {name}" if name else "this host"
    share_cores = cores_of(cores, facts, this)
    size = int(facts.memory_available * FREE_SHARE) if memory is None else memory
    if size > facts.memory:
        raise UsageError(f"--host-memory {format_bytes(size)} is more than {this} has ({format_bytes(facts.memory)}); lower it")
    return share_cores, size


@dataclass(frozen=True)
class HostShare:
    """Cores and memory (bytes) that a run may use.

    On several ``hosts`` they are sums, and the rule ``placement`` distributes the containers. Without ``hosts`` it is the share of this
    host.
    """

    cores: float
    memory: int
    hosts: tuple[Host, ...] = ()
    placement: str = "spread"

    @property
    def largest(self) -> float:
        """Maximum number of cores of one container."""
        return max((host.cores or 0.0 for host in self.hosts), default=self.cores)

    @property
    def smallest(self) -> float:
        """Cores of the smallest host. A default for containers must fit on every host."""
        return min((host.cores or 0.0 for host in self.hosts), default=self.cores)

    def holds(self, each: int) -> int:
        """Return the number of containers with ``each`` bytes that fit in the memory."""
        if not self.hosts:
            return self.memory // each
        return sum((host.memory or 0) // each for host in self.hosts)

    def most_on_one(self, many: int, vcpus: float) -> int:
        """Return the number of containers on the fullest host, if there are ``many`` in total."""
        if not self.hosts:
            return many
        return max(self._counts(many, vcpus).values())

    def memory_of_each(self, many: int, vcpus: float) -> int:
        """Return the memory (bytes) of each of ``many`` containers, if all have the same and the hosts must hold them."""
        if not self.hosts:
            return self.memory // many
        counts = self._counts(many, vcpus)
        return min((host.memory or 0) // counts[host.name] for host in self.hosts if counts[host.name])

    def _counts(self, many: int, vcpus: float) -> dict[str, int]:
        try:
            return placement.counts(many, self.hosts, Container(name="c", vcpus=vcpus), self.placement)
        except ValueError as error:
            raise UsageError(f"--placement {self.placement}: {error}") from None


def choose_share(
    facts: HostFacts, cores: float | None = None, memory: int | None = None, over: tuple[Host, ...] = (), placement: str = "spread"
) -> HostShare:
    """Return the share of a run of this host, see ``one_host``, or of the hosts in ``over``. Raises UsageError if this host has less."""
    if not over:
        return HostShare(*one_host(cores, memory, facts))
    return HostShare(sum(host.cores or 0.0 for host in over), sum(host.memory or 0 for host in over), over, placement)


Use = Literal["together", "one", "in turn"]
"""Use of a cluster by a study.

'together': the study uses all hosts as one large host. 'one': the study runs on one host. 'in turn': each block of trials runs on one
host, and the next block runs on the next host.
"""


@dataclass(frozen=True)
class HostRoles:
    """Hosts with a role. ``carry`` are the hosts of servers, in the order of their blocks. ``client`` is the host for clients only."""

    carry: tuple[Host, ...]
    client: Host | None = None


def choose_roles(use: Use, request: ClusterRequest, hosts: Sequence[Host]) -> HostRoles:
    """Choose the hosts of a request among all ``hosts`` of a cluster.

    The rule of ``--placement`` selects candidates: hosts with its label, or hosts that it lists. Otherwise the candidates are all hosts
    except the client host. For 'one', the study runs on the candidate with most cores, or on the first candidate with ``pack``.

    Raises:
        UsageError: the rule does not fit the hosts, lists several hosts for 'one', leaves no host for servers, or ``--hosts`` names
            unknown hosts.
    """
    client = _client(request, hosts)
    others = [host for host in hosts if host != client]
    if not others:
        raise UsageError(f"--client-host {client_of(request)} is the cluster's only host: no host remains for a server; leave it out")
    try:
        named = placement.named(request.placement, others)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if use == "together":  # exclude hosts that the rule leaves unused, because their cores and memory must not count for containers
        return HostRoles(tuple(host for host in _between(request, others) if host in named), client)
    if request.placement == "pack":
        return HostRoles((named[0],), client)
    if use == "in turn":
        return HostRoles(tuple(named), client)
    if request.placement.startswith("listed:") and len(named) > 1:
        raise UsageError(
            f"--placement {request.placement} names {len(named)} hosts, but the study runs on one; name one, such as "
            f"listed:*={named[0].name}"
        )
    return HostRoles((max(named, key=lambda host: host.cores or 0.0),), client)  # the first of equal hosts


def _between(request: ClusterRequest, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts that ``--hosts`` names, or all hosts without it. Raises UsageError for unknown hosts."""
    names: tuple[str, ...] = getattr(request, "hosts", ())
    unknown = sorted(set(names) - {host.name for host in hosts})
    if unknown:
        raise UsageError(
            f"--hosts names {', '.join(unknown)}, but the cluster has {', '.join(host.name for host in hosts)}; name some of these"
        )
    return tuple(host for host in hosts if not names or host.name in names)


def client_of(request: ClusterRequest) -> str | None:
    """Return the ``--client-host`` of a request, or None."""
    name: str | None = getattr(request, "client_host", None)
    return name


def _client(request: ClusterRequest, hosts: Sequence[Host]) -> Host | None:
    name = client_of(request)
    if name is None:
        return None
    client = next((host for host in hosts if host.name == name), None)
    if client is None:
        raise UsageError(f"--client-host {name} is not one of {', '.join(host.name for host in hosts)}; name one of these")
    if "client_placement" in request.model_fields_set and getattr(request, "client_placement", None) == "inside":
        raise UsageError(
            f"--client-placement inside runs clients next to the server, but --client-host {name} is another host; leave one of them out"
        )
    for variant, changes in map(parse_variant, getattr(request, "variant", ())):
        if any(plain(key) == "client_placement" for key in changes):
            raise UsageError(
                f"variant '{variant}': client-placement cannot differ between variants, because all clients run on --client-host {name}; "
                "leave one of them out"
            )
    return client


def describe_roles(use: Use, roles: HostRoles, hosts: Sequence[Host]) -> list[str]:
    """Describe the chosen hosts for the plan. Return an empty list if a study uses all hosts together."""
    names = ", ".join(host.name for host in roles.carry)
    used = {host.name for host in (*roles.carry, *([roles.client] if roles.client else []))}
    idle = [host.name for host in hosts if host.name not in used]
    unused = f"; {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} not used" if idle else ""
    messages = []
    if len(roles.carry) == 1 and use != "together":
        messages.append(f"Host {names} runs the servers{unused}. If it is lost, the run stops, and 'pgherd resume' continues it.")
    elif use == "together" and idle:
        messages.append(f"{unused.removeprefix('; ')}.")
    elif use == "in turn":
        messages.append(f"Blocks take turns on {names}{unused}: each runs on one host from its first trial to its last.")
    if roles.client is not None:
        messages.append(
            f"Clients run on host {roles.client.name}, which runs no server. They connect over TCP, with scram-sha-256 and TLS."
        )
    return messages


LARGE_READ_AHEAD = 2**20
"""Read-ahead in bytes above which the warning appears. The default of Linux is 128 kB."""


def warn_of_read_ahead(node: Node, facts: HostFacts, place: str) -> list[str]:
    """Return a warning if the device below the directory ``place`` has a large read-ahead. Return an empty list if it is unknown.

    When the kernel reads an evicted page of a program, it also reads the pages around it, up to the read-ahead. It also reads ahead in
    a file that is read sequentially. If memory is short, these extra pages evict pages that are needed.
    """
    below = block_devices.devices_of(node, [place]).get(place)
    disk = next((device for device in facts.devices if below is not None and device.number == below.number), None)
    if disk is None or disk.read_ahead is None or disk.read_ahead <= LARGE_READ_AHEAD:
        return []
    return [
        "Warning: trials may be much slower than on other disks, or hang, if memory is short: the databases' device "
        f"{disk.name} reads up to {format_bytes(disk.read_ahead)} ahead (Linux's default is 128 kB), and these pages evict needed pages. "
        f"As root, 'echo 128 > /sys/block/{disk.name}/queue/read_ahead_kb' changes it until the next boot."
    ]
