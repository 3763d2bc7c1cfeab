"""Merge of the preparations of a cluster's hosts into one. Pure functions.

A study without databases decides itself which part of it each host runs. Its request is therefore completed on every host. So a tool or a
directory that a host lacks is reported before the run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.prepare import merge_variants
from pgherd.prepare.prepared_study import Prepared


def joined(prepared: Mapping[str, Prepared], options: Model) -> Prepared:
    """Merge the preparations of all hosts (host → preparation, in the cluster's order). ``options`` are those of the whole run.

    A message that does not apply to every host names its hosts. A device to format is named with its host. ``disk`` and ``memory`` are
    sums over all hosts. All other fields are from the first host.

    Raises:
        UsageError: the hosts would start programs as different users.
    """
    first = next(iter(prepared.values()))
    users = {host: part.surroundings.run_as or "the agent's user" for host, part in prepared.items()}
    if len(set(users.values())) > 1:
        raise UsageError(
            f"programs would run as different users: {versions_text(users)}; set --run-as to a user that all hosts have, "
            "or start all agents as the same user"
        )
    tools = {tool: {host: part.tools.get(tool, "none") for host, part in prepared.items()} for tool in first.tools}
    return replace(
        first,
        options=options,
        choices=merge_variants.choices({host: part.choices for host, part in prepared.items()}),
        host_changes=_changes({host: part.host_changes for host, part in prepared.items()}),
        confirm=_changes({host: part.confirm for host, part in prepared.items()}),
        typed=tuple(f"{host}:{device}" for host, part in prepared.items() for device in part.typed),
        tools={tool: versions_text(versions) for tool, versions in tools.items()},
        disk=sum(part.disk for part in prepared.values()),
        memory=sum(part.memory for part in prepared.values()),
    )


def _changes(by_host: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return every change once, with the names of its hosts."""
    hosts: dict[str, list[str]] = {}
    for host, changes in by_host.items():
        for change in dict.fromkeys(changes):
            hosts.setdefault(change, []).append(host)
    everywhere = f"on each of the {len(by_host)} hosts"
    return tuple(f"{everywhere if len(on) == len(by_host) else 'on ' + ', '.join(on)}: {change}" for change, on in hosts.items())


def versions_text(versions: Mapping[str, str]) -> str:
    """Return one text for versions by host: the common version, or the version of each host."""
    if len(set(versions.values())) == 1:
        return next(iter(versions.values()))
    return ", ".join(f"{version} on {host}" for host, version in versions.items())


def same_options(options: Mapping[str, Model]) -> Model:
    """Return the options of the first host, for studies whose options do not depend on the host."""
    return next(iter(options.values()))
