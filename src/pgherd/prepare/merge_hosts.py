"""What the hosts of a cluster have each prepared for themselves, as one. Pure.

A study without databases says itself what each host does. So its request is completed on every host: a tool or a directory that one
of them does not have is told before anything begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.prepare import merge_variants
from pgherd.prepare.prepared_study import Prepared


def joined(prepared: Mapping[str, Prepared], options: Model) -> Prepared:
    """Host → what it has prepared, in the cluster's order; ``options`` are those of the run on all of them.

    Sentences that do not go for every host are said with the names of those that they go for; a device that is formatted is named
    with its host. ``disk`` and ``memory`` are of all hosts together; the rest is the first host's.

    Raises:
        UsageError: the hosts would run what they start under different accounts.
    """
    first = next(iter(prepared.values()))
    accounts = {host: one.surroundings.run_as or "the agent's own account" for host, one in prepared.items()}
    if len(set(accounts.values())) > 1:
        raise UsageError(
            f"what is started would run as {versions_text(accounts)}; name an account that all hosts have with --run-as, "
            "or start all agents as the same user"
        )
    tools = {tool: {host: one.tools.get(tool, "none") for host, one in prepared.items()} for tool in first.tools}
    return replace(
        first,
        options=options,
        choices=merge_variants.choices({host: one.choices for host, one in prepared.items()}),
        host_changes=_changes({host: one.host_changes for host, one in prepared.items()}),
        confirm=_changes({host: one.confirm for host, one in prepared.items()}),
        typed=tuple(f"{host}:{device}" for host, one in prepared.items() for device in one.typed),
        tools={tool: versions_text(found) for tool, found in tools.items()},
        disk=sum(one.disk for one in prepared.values()),
        memory=sum(one.memory for one in prepared.values()),
    )


def _changes(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every change once, saying on which hosts it is made."""
    hosts: dict[str, list[str]] = {}
    for host, changes in said.items():
        for change in dict.fromkeys(changes):
            hosts.setdefault(change, []).append(host)
    everywhere = f"on each of the {len(said)} hosts"
    return tuple(f"{everywhere if len(on) == len(said) else 'on ' + ', '.join(on)}: {change}" for change, on in hosts.items())


def versions_text(versions: Mapping[str, str]) -> str:
    """Host → version, as one text: the version that all of them have, or each host's."""
    if len(set(versions.values())) == 1:
        return next(iter(versions.values()))
    return ", ".join(f"{version} on {host}" for host, version in versions.items())


def same_options(options: Mapping[str, Model]) -> Model:
    """Those of the first host: of studies whose options do not depend on the host."""
    return next(iter(options.values()))
