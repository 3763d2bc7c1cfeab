"""Which hosts of a cluster a study uses, and what for: those that carry its servers, and the one on which its clients run. Pure."""

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
"""What a cluster is to a study. 'together': its hosts are one large host. 'one': a choice of hosts, one of which the study runs on.
'in turn': every block of trials runs on one host, the next on the next."""


@dataclass(frozen=True)
class Roles:
    """The hosts that ``carry`` servers, in the order in which they take turns, and the one of the clients, if they have one."""

    carry: tuple[Host, ...]
    client: Host | None = None


def choose(use: Use, asked: ClusterRequest, hosts: Sequence[Host]) -> Roles:
    """Which of all ``hosts`` of a cluster a request uses.

    The rule of ``--placement`` says among which hosts: those with its label, those that it lists, else all but the clients'. Of these
    'one' is the first that is listed, or the one with most cores; with ``pack`` the first of the cluster.

    Raises:
        UsageError: the rule does not fit, names several hosts for one, no host is left for the servers, or ``--between`` names others.
    """
    client = _client(asked, hosts)
    others = [host for host in hosts if host != client]
    if not others:
        raise UsageError(f"--client-host {client_of(asked)} is the cluster's only host: none is left for a server; leave it out")
    try:
        named = placing.named(asked.placement, others)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if use == "together":  # what no container can lie on must not count as room for one
        carry = tuple(host for host in _between(asked, others) if host in named)
        if not carry:
            raise UsageError(f"--placement {asked.placement} leaves none of the hosts that --between names; leave one of them out")
        return Roles(carry, client)
    if asked.placement == "pack":
        return Roles((named[0],), client)
    if use == "in turn":
        return Roles(tuple(named), client)
    if asked.placement.startswith("listed:") and len(named) > 1:
        raise UsageError(
            f"--placement {asked.placement} names {len(named)} hosts, but the study runs on one; name one, such as listed:*={named[0].name}"
        )
    return Roles((max(named, key=lambda host: host.cores or 0.0),), client)  # the first of those that are equal


def _between(asked: ClusterRequest, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Those of the hosts that the request is about; all where it names none."""
    wanted: tuple[str, ...] = getattr(asked, "hosts", ())
    unknown = sorted(set(wanted) - {host.name for host in hosts})
    if unknown:
        raise UsageError(f"--between names {', '.join(unknown)}, but the cluster has {', '.join(host.name for host in hosts)}")
    return tuple(host for host in hosts if not wanted or host.name in wanted)


def client_of(asked: ClusterRequest) -> str | None:
    """The host of the clients as the request has it; None: it has none."""
    found: str | None = getattr(asked, "client_host", None)
    return found


def _client(asked: ClusterRequest, hosts: Sequence[Host]) -> Host | None:
    name = client_of(asked)
    if name is None:
        return None
    found = next((host for host in hosts if host.name == name), None)
    if found is None:
        raise UsageError(f"--client-host {name} is not one of {', '.join(host.name for host in hosts)}")
    if "client_placement" in asked.model_fields_set and getattr(asked, "client_placement", None) == "inside":
        raise UsageError(f"--client-placement inside is beside the server, and --client-host {name} is another host; leave one of them out")
    for variant, changes in map(parse_variant, getattr(asked, "variant", ())):
        if any(plain(key) == "client_placement" for key in changes):
            raise UsageError(
                f"variant '{variant}': client-place cannot differ between variants: the clients of all run on --client-host {name}; "
                "leave one of them out"
            )
    return found


def sentences(use: Use, roles: Roles, hosts: Sequence[Host]) -> list[str]:
    """What the plan says of the choice; nothing where a study simply runs on all."""
    names = ", ".join(host.name for host in roles.carry)
    used = {host.name for host in (*roles.carry, *([roles.client] if roles.client else []))}
    idle = [host.name for host in hosts if host.name not in used]
    rest = f"; {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} not used" if idle else ""
    found = []
    if len(roles.carry) == 1 and use != "together":
        found.append(f"Host {names} carries the servers{rest}. The run ends if it is lost, and 'pgherd resume' goes on with it.")
    elif use == "together" and idle:
        found.append(f"{rest.removeprefix('; ')}.")
    elif use == "in turn":
        found.append(f"Blocks take turns on {names}{rest}: each runs on one host from its first trial to its last.")
    if roles.client is not None:
        found.append(f"Clients run on host {roles.client.name}, which carries no server: over TCP, with scram-sha-256 and TLS.")
    return found
