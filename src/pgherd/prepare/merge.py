"""Merge of several preparations into one: those of a run's variants, or of a cluster's hosts. Pure.

Differences are labelled with the variants or hosts to which they apply. A study without databases decides itself which part of it each host
runs. Its request is therefore completed on every host. So a tool or a directory that a host lacks is reported before the run starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pgherd.model.base import Model
from pgherd.model.deployment import VmMemoryPolicy, Volume
from pgherd.model.errors import UsageError
from pgherd.model.run import RunEnvironment, Swap
from pgherd.model.units import format_bytes
from pgherd.postgres.settings import SettingRow
from pgherd.prepare.prepared_study import PreparedStudy, VolumeContents
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.shared_options import StudyOptions
from pgherd.study.study import study_of

Options = TypeVar("Options", bound=Model)

COMMON = {
    "run_as": "the user that servers run as (--run-as)",
    "track": "the list of tracked processes and cgroups (--track)",
    "trace_io": "tracing of block requests (--trace-io)",
    "swap": "the run's swap (--swap)",
}
"""Field of the environment that has one value per run → its label in messages."""


def choices(by_variant: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return every sentence once. A sentence that does not apply to all variants starts with the names of its variants."""
    names_of: dict[str, list[str]] = {}
    for name, sentences in by_variant.items():
        for sentence in dict.fromkeys(sentences):
            names_of.setdefault(sentence, []).append(name)
    return tuple(sentence if len(names) == len(by_variant) else f"{', '.join(names)}: {sentence}" for sentence, names in names_of.items())


def settings(by_variant: Mapping[str, Sequence[SettingRow]]) -> tuple[SettingRow, ...]:
    """Return every setting once. Settings that differ are first, with each variant's value after its name."""
    tables = {variant: {row.name: row for row in rows} for variant, rows in by_variant.items()}
    common, differing = [], []
    for setting in dict.fromkeys(name for table in tables.values() for name in table):
        rows = [table.get(setting) for table in tables.values()]
        first = next(row for row in rows if row is not None)
        if all(row is not None and row.value == first.value for row in rows):
            common.append(first)
        else:
            values = "; ".join(f"{name}: {row.value if row else 'the default'}" for name, row in zip(tables, rows, strict=True))
            differing.append(SettingRow(setting, values, first.default, "differs between the variants"))
    return (*differing, *common)


def logged_alike(by_variant: Mapping[str, Options]) -> dict[str, Options]:
    """Return the options of all variants with equal fractions of logged transactions for equal scripts and rates.

    The common fraction is the smallest one. Each fraction is derived from a measured transaction time, so it includes noise.
    Different fractions would slow the variants unequally.
    """
    fractions: dict[object, list[float]] = {}
    for options in by_variant.values():
        for load in _loads(options):
            fractions.setdefault((load.scripts, load.rate), []).append(load.sampling)
    return {name: _logged(options, fractions) for name, options in by_variant.items()}


def _loads(options: Model) -> list[DatabaseOptions]:
    """Return the database options of a study: its options, or those of all its variants."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return [load for variant in variants.values() for load in _loads(variant)]
    return [options] if isinstance(options, DatabaseOptions) else []


def _logged(options: Options, fractions: Mapping[object, Sequence[float]]) -> Options:
    """Return the options with the smallest fraction of logged transactions for their scripts and rate."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return options.with_variant_options({name: _logged(variant, fractions) for name, variant in variants.items()})
    if isinstance(options, DatabaseOptions):
        return options.model_copy(update={"sampling": min(fractions[options.scripts, options.rate])})
    return options


def environment(by_variant: Mapping[str, RunEnvironment]) -> RunEnvironment:
    """Return the environment of a run of all variants, based on the first variant (the baseline).

    The budget is the largest budget of all variants.

    Raises:
        UsageError: a property with one value per run differs. All variants would run with the baseline's value.
    """
    base_name, base = next(iter(by_variant.items()))
    for name, variant in by_variant.items():
        for field, label in COMMON.items():
            if getattr(variant, field) != getattr(base, field):
                values = f"{_text(getattr(base, field))} in '{base_name}', {_text(getattr(variant, field))} in '{name}'"
                raise UsageError(f"{label} is the same for a whole run, but it is {values}; use one value, or start a run of each variant")
    runtimes = [variant.runtime for variant in by_variant.values()]
    return base.model_copy(
        update={
            "runtime": "cgroup" if "cgroup" in runtimes else base.runtime,  # opened first, because it can reject the budget
            "cores": max(variant.cores for variant in by_variant.values()),
            "memory": max(variant.memory for variant in by_variant.values()),
            "vm_memory_policy": _guest_memory(by_variant),
        }
    )


def _guest_memory(by_variant: Mapping[str, RunEnvironment]) -> VmMemoryPolicy | None:
    """Return the memory policy of all guests. None: no variant has guests. Raises UsageError if the policies differ."""
    policies = {name: variant.vm_memory_policy for name, variant in by_variant.items() if variant.vm_memory_policy is not None}
    if not policies:
        return None
    base_name, base = next(iter(policies.items()))
    for name, policy in policies.items():
        if (policy.policy, policy.tax) != (base.policy, base.tax):
            values = f"{_policy_text(base)} in '{base_name}' and {_policy_text(policy)} in '{name}'"
            raise UsageError(f"{values}: all guests of a run have one memory policy; compare policies in separate runs")
    return base


def _policy_text(policy: VmMemoryPolicy) -> str:
    return f"vm_memory_policy {policy.policy} (vm_idle_tax {policy.tax:g})"


def _text(value: object) -> str:
    """Return a property of the environment as text for messages."""
    match value:
        case Swap():
            return "none" if value.kind == "none" else f"{value.kind} of {format_bytes(value.size)}"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(map(str, value)) or "none"
    return "the host's default" if value is None else str(value)


def holds(by_variant: Iterable[Sequence[VolumeContents]]) -> tuple[VolumeContents, ...]:
    """Return each content of each volume once, with the largest size of all variants."""
    largest: dict[tuple[Volume, str], VolumeContents] = {}
    for holding in itertools.chain.from_iterable(by_variant):
        key = holding.volume, holding.words
        largest[key] = max(largest.get(key, holding), holding, key=lambda candidate: candidate.bytes)
    return tuple(largest.values())


def changes(by_variant: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return every change of the host once."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(by_variant)))


def join_hosts(prepared: Mapping[str, PreparedStudy], options: Model) -> PreparedStudy:
    """Merge the preparations of all hosts (host → preparation, in the cluster's order). ``options`` are those of the whole run.

    A message that does not apply to every host names its hosts. A device to format is named with its host. ``disk`` and ``memory`` are
    sums over all hosts. All other fields are from the first host.

    Raises:
        UsageError: the hosts would start programs as different users.
    """
    first = next(iter(prepared.values()))
    users = {host: part.environment.run_as or "the agent's user" for host, part in prepared.items()}
    if len(set(users.values())) > 1:
        raise UsageError(
            f"programs would run as different users: {versions_text(users)}; set --run-as to a user that all hosts have, "
            "or start all agents as the same user"
        )
    tools = {tool: {host: part.tools.get(tool, "none") for host, part in prepared.items()} for tool in first.tools}
    return replace(
        first,
        options=options,
        defaults_chosen=choices({host: part.defaults_chosen for host, part in prepared.items()}),
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


def over_hosts(name: str, prepared: Mapping[str, PreparedStudy]) -> PreparedStudy:
    """Merge the studies that the hosts have prepared (host → prepared study) into one for all hosts.

    Raises:
        UsageError: the hosts differ in a value that must be equal.
    """
    join = study_of(name).hook("prepare", "over_hosts") or same_options
    return join_hosts(prepared, join({host: one.options for host, one in prepared.items()}))
