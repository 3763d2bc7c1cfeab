"""Roles of a cluster's hosts in a study: hosts of the servers, and the host of the clients. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.model import placing
from pgherd.model.deployment import Host
from pgherd.model.errors import UsageError
from pgherd.prepare.variants import parse_variant, plain
from pgherd.study.cluster_options import ClusterRequest

Use = Literal["together", "one", "in turn"]
"""Use of a cluster by a study.

'together': the study uses all hosts as one large host. 'one': the study runs on one host. 'in turn': each block of trials runs on one
host, and the next block runs on the next host.
"""


@dataclass(frozen=True)
class Roles:
    """Hosts with a role. ``carry`` are the hosts of servers, in the order of their blocks. ``client`` is the host for clients only."""

    carry: tuple[Host, ...]
    client: Host | None = None


def choose(use: Use, asked: ClusterRequest, hosts: Sequence[Host]) -> Roles:
    """Choose the hosts of a request among all ``hosts`` of a cluster.

    The rule of ``--placement`` selects candidates: hosts with its label, or hosts that it lists. Otherwise the candidates are all hosts
    except the client host. For 'one', the study runs on the candidate with most cores, or on the first candidate with ``pack``.

    Raises:
        UsageError: the rule does not fit the hosts, lists several hosts for 'one', leaves no host for servers, or ``--hosts`` names
            unknown hosts.
    """
    client = _client(asked, hosts)
    others = [host for host in hosts if host != client]
    if not others:
        raise UsageError(f"--client-host {client_of(asked)} is the cluster's only host: no host remains for a server; leave it out")
    try:
        named = placing.named(asked.placement, others)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if use == "together":  # exclude hosts that the rule leaves unused, because their cores and memory must not count for containers
        return Roles(tuple(host for host in _between(asked, others) if host in named), client)
    if asked.placement == "pack":
        return Roles((named[0],), client)
    if use == "in turn":
        return Roles(tuple(named), client)
    if asked.placement.startswith("listed:") and len(named) > 1:
        raise UsageError(
            f"--placement {asked.placement} names {len(named)} hosts, but the study runs on one; name one, such as listed:*={named[0].name}"
        )
    return Roles((max(named, key=lambda host: host.cores or 0.0),), client)  # the first of equal hosts


def _between(asked: ClusterRequest, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts that ``--hosts`` names, or all hosts without it. Raises UsageError for unknown hosts."""
    names: tuple[str, ...] = getattr(asked, "hosts", ())
    unknown = sorted(set(names) - {host.name for host in hosts})
    if unknown:
        raise UsageError(
            f"--hosts names {', '.join(unknown)}, but the cluster has {', '.join(host.name for host in hosts)}; name some of these"
        )
    return tuple(host for host in hosts if not names or host.name in names)


def client_of(asked: ClusterRequest) -> str | None:
    """Return the ``--client-host`` of a request, or None."""
    name: str | None = getattr(asked, "client_host", None)
    return name


def _client(asked: ClusterRequest, hosts: Sequence[Host]) -> Host | None:
    name = client_of(asked)
    if name is None:
        return None
    client = next((host for host in hosts if host.name == name), None)
    if client is None:
        raise UsageError(f"--client-host {name} is not one of {', '.join(host.name for host in hosts)}; name one of these")
    if "client_placement" in asked.model_fields_set and getattr(asked, "client_placement", None) == "inside":
        raise UsageError(
            f"--client-placement inside runs clients next to the server, but --client-host {name} is another host; leave one of them out"
        )
    for variant, changes in map(parse_variant, getattr(asked, "variant", ())):
        if any(plain(key) == "client_placement" for key in changes):
            raise UsageError(
                f"variant '{variant}': client-placement cannot differ between variants, because all clients run on --client-host {name}; "
                "leave one of them out"
            )
    return client


def sentences(use: Use, roles: Roles, hosts: Sequence[Host]) -> list[str]:
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
