"""Completion of a request for a mix of tenants: classes of the file, each completed as a request for one of its databases.

The file has one entry for each class, with its part of the mix and options of its databases. Options of the command line apply to classes
that do not have them::

    classes:
      - name: small
        share: 0.8                    # or count: 8
        vcpus: 0.25
        memory: 256MB
        scale: 5
        workload: tpcb-like           # or script and init_script
        rate: 20                      # or clients, without a rate
        slo: p99=50ms
        activity: {kind: daily, profile: [0.2, …]}    # constant without it; see tenant_activity

A class with ``activity: idle`` has no rate, objective or clients.
"""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, field_validator

from pgherd.host import cgroup_parent, paths
from pgherd.host.facts import gather
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import Duration, format_bytes
from pgherd.node.protocol import Node
from pgherd.prepare import merge, prepared_study
from pgherd.prepare.hosts import choose_share
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.requests import first_fault, read_yaml
from pgherd.prepare.volumes import DISK_RESERVE
from pgherd.studies.density.objective import requested_sizes
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.density.prepare_tenant_table import table_of_tenants
from pgherd.studies.density.tenant_activity import PHASES, Activity
from pgherd.studies.density.tenant_mix import CLASS_NAME, TenantClass, class_of, phases_of, shares, tenant_names
from pgherd.studies.density.tenants import IDLE_SERVERS, REFERENCES, largest_mix, needs, only_idle, reference_seconds, who_keeps
from pgherd.study.database_options import DEFAULT_BUDGET, EXISTING_SERVERS, target
from pgherd.study.objectives import (
    BLOCK_S,
    BLOCKS,
    LOG_LINES,
    PROBE_BLOCKS,
    block_seconds,
    describe_search,
    parse_objectives,
    shortest_block,
)

OF_A_CLASS = (
    *("vcpus", "memory", "scale", "workload", "script", "init_script", "read_only", "clients", "threads", "rate", "slo", "partitions"),
    *("think_time", "zipf", "update_percent", "protocol", "cpu_mode", "cpu_weight", "iops", "io_bandwidth"),
)
"""Options of a database that a class may have."""
_LISTS = ("script", "slo")
_OF_A_LOAD = frozenset({"rate", "slo", "clients", "threads"})
"""Options that an idle class does not have."""
IDLE_S = 60.0
"""Default time in seconds of a trial if all classes are idle: a period of autovacuum's launcher."""
_OF_THE_RUN = frozenset({"tenants", "tenants_from", "databases", "efficiency", "time_budget", "repeats", "min_repeats"})
_NOT_WITH_TENANTS = (
    *(*EXISTING_SERVERS, "cluster", "client_host", "soak", "price", "huge_pages", "vm_huge_pages", "check_consistency"),
    *("data_volume", "wal_volume", "temp_volume", "tablespace_volume"),
)
"""Options that need one kind of database, or that no test covers for several kinds."""
SUM_TOLERANCE = 1e-6
PHASE_S = 2.0
"""Default length of a phase in seconds, if a trial has several."""
SEARCH_BLOCKS = 6
"""Blocks of the search, in addition to those of the two deciding numbers, for which the default time budget has room."""


DOCUMENT_TEXT = "The run's inputs/tenants.yaml has the classes; a changed copy is a file for --tenants."


class ListedClass(Model):
    """Part of a class in the mix, as the user lists it."""

    name: str = Field(pattern=CLASS_NAME)
    share: float | None = Field(None, gt=0, le=1)
    count: int | None = Field(None, ge=1)
    activity: Activity = Activity()

    @field_validator("activity", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value


def prepare(node: Node, request: DensityRequest, dry: bool) -> PreparedStudy:
    """Complete a request for a mix of tenants; see ``prepare.prepared_study.prepare`` for what it raises."""
    option = _require_supported(request)
    file = Path(getattr(request, option))
    share = choose_share(gather(node), request.host_cores, request.host_memory)
    seed = request.seed if request.seed is not None else random.randrange(2**31)
    # All classes get the same share of the host, although its free memory changes while they are completed one after the other.
    base: dict[str, Any] = {name: getattr(request, name) for name in request.model_fields_set - _OF_THE_RUN}
    base |= {"databases": (1,), "seed": seed, "host_memory": str(share.memory)}
    table = None if request.tenants is not None else table_of_tenants(file, request, share, seed, limited=_limits_memory(node, request))
    listed = read_classes(file, read_yaml(file) if table is None else yaml.safe_load(table.document), base)
    by_class = {one.name: _complete(node, file, one, each, dry) for one, each in listed}
    classes = tuple(_class(one, by_class[one.name]) for one, _ in listed)
    candidates, most = _candidates(request, classes, by_class, seed)
    options = _options(request, by_class, classes, candidates, most, seed).model_copy(update={"tenant_table": table})
    counts = Counter(class_of(target(name)) for name, _ in tenant_names(classes, candidates[-1], seed))
    missing = next((one for one in classes if not counts[one.name]), None)
    if missing is not None:
        part = float(shares([one.weight for one in classes])[classes.index(missing)])
        raise UsageError(
            f"{file}: class '{missing.name}' has a share of {part:.3g}, so none of {candidates[-1]} tenants is of this class; raise its "
            "share, or --databases or --host-memory"
        )
    first = next(iter(by_class.values()))
    return replace(
        first,
        options=options,
        environment=merge.environment({name: each.environment for name, each in by_class.items()}),
        defaults_chosen=(*merge.choices({name: each.defaults_chosen for name, each in by_class.items()}), *_messages(options, counts)),
        settings=merge.settings({name: each.settings for name, each in by_class.items()}),
        host_changes=merge.changes(each.host_changes for each in by_class.values()),
        confirm=merge.changes(each.confirm for each in by_class.values()),
        disk=_disk(by_class, counts),
        memory=sum(counts[name] * each.memory for name, each in by_class.items()),
    )


def _limits_memory(node: Node, request: DensityRequest) -> bool:
    """Return whether containers get a memory limit. True with --memory, so that a host that cannot limit it is reported."""
    if request.memory is not None or request.runtime == "process":
        return request.memory is not None
    try:
        cgroup_parent.find(node)
    except cgroup_parent.CgroupUnavailable:
        return False
    return True


def _require_supported(request: DensityRequest) -> str:
    """Return the option that gives the tenants. Raises UsageError if both are given, or an option that does not go with tenants."""
    if request.tenants is not None and request.tenants_from is not None:
        raise UsageError("--tenants and --tenants-from exclude each other: a file of classes, or a table to make them from; give one")
    by = "tenants" if request.tenants is not None else "tenants_from"
    given = next((name for name in _NOT_WITH_TENANTS if name in request.model_fields_set and getattr(request, name)), None)
    if given is not None or request.runtime == "vm":
        option = "--runtime vm" if given is None else f"--{given.replace('_', '-')}"
        other = f"--{by.replace('_', '-')}"
        raise UsageError(f"{option} does not go with {other}, which starts servers of several kinds on this host; leave one of them out")
    return by


# ---- the file


def read_classes(path: Path, document: object, base: Mapping[str, Any]) -> list[tuple[ListedClass, DensityRequest]]:
    """Return each class of the file's document with the request for one of its databases. ``base`` has the options of the run.

    Raises:
        UsageError: an entry is invalid. The message names the class.
    """
    if not isinstance(document, dict) or set(document) != {"classes"}:
        keys = ", ".join(map(str, document)) if isinstance(document, dict) else type(document).__name__
        raise UsageError(f"{path}: a file of tenants is a mapping with 'classes' only, but it is {keys or 'empty'}")
    entries = document["classes"]
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}: 'classes' is a list with at least one class, but it is {entries!r}")
    labels = [_label(path, number, entry) for number, entry in enumerate(entries, 1)]
    listed = [_read_part(label, entry) for label, entry in zip(labels, entries, strict=True)]
    names = [one.name for one in listed]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"{path}: class '{name}' is both number {names.index(name) + 1} and number {index + 1}; rename one")
    _require_one_kind(path, listed)
    phases, seconds = max(PHASES[one.activity.kind] for one in listed), base.get("duration", PHASE_S)
    if phases > 1:  # a percentile is that of all phases, so a short phase is no fault
        base = {key: value for key, value in base.items() if key != "duration"}
    read = []
    for label, one, entry in zip(labels, listed, entries, strict=True):
        request = _read_request(label, one, entry, base)
        if phases > 1 and request.slo:
            request = _with_phases(label, one, request, phases, seconds)
        read.append((one, request))
    return read


def _label(path: Path, number: int, entry: Any) -> str:
    """Return the class of an entry in words for messages."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"{path}: class '{name}'" if isinstance(name, str) and name else f"{path}: class number {number}"


def _read_part(label: str, entry: Any) -> ListedClass:
    """Return the part of a class in the mix."""
    if not isinstance(entry, dict):
        raise UsageError(f"{label} is a mapping with 'name' and 'share', but it is {entry!r}")
    try:
        one = ListedClass.model_validate({key: value for key, value in entry.items() if key not in OF_A_CLASS})
    except ValidationError as error:
        raise UsageError(f"{label}: {first_fault(error)}") from None
    if (one.share is None) == (one.count is None):
        both = f"share {one.share:g} and count {one.count}" if one.share is not None else "neither share nor count"
        raise UsageError(f"{label} has {both}; give one of them")
    return one


def _read_request(label: str, one: ListedClass, entry: Mapping[str, Any], base: Mapping[str, Any]) -> DensityRequest:
    """Return the request for one database of a class: its options, and those of the run that it does not have."""
    given = {key: [value] if key in _LISTS and isinstance(value, str) else value for key, value in entry.items() if key in OF_A_CLASS}
    conflicting = {"script", "init_script", "read_only"} if "workload" in given else {"workload"} if "script" in given else set()
    if one.activity.kind == "idle":
        conflicting |= _OF_A_LOAD
        if loaded := sorted(_OF_A_LOAD & set(given)):
            raise UsageError(f"{label} is idle, so it has no {loaded[0]}; leave it out")
    values = {key: value for key, value in base.items() if key not in conflicting} | given
    if not values.get("slo"):
        values.setdefault("duration", f"{BLOCK_S:g}s")  # with an objective, blocks may be longer
    try:
        request = DensityRequest.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"{label}: {first_fault(error)}") from None
    if request.vcpus is None:
        raise UsageError(f"{label} has no vcpus; give them there, or --vcpus for all classes")
    if one.activity.needs_rate and request.rate is None:
        raise UsageError(f"{label} has activity {one.activity.kind}, which multiplies a rate, and no rate; give one")
    return request


def _with_phases(label: str, one: ListedClass, request: DensityRequest, phases: int, seconds: float) -> DensityRequest:
    """Return the request of a class with the time in which a tenant alone logs enough for its objectives.

    Raises:
        UsageError: an objective is invalid, or all phases of a trial together are too short.
    """
    try:
        objectives = parse_objectives(request.slo)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None
    rate = request.rate or float(LOG_LINES)
    logged = math.fsum(min(rate * one.activity.factor(0, 1, phase, phases, 0), LOG_LINES) for phase in range(phases)) / phases
    needed = shortest_block(objectives, logged) / phases
    if needed > seconds:
        highest = max(objectives, key=lambda objective: objective.percentile)
        raise UsageError(
            f"{label}: --slo {highest.name}: a tenant logs {logged * phases * seconds:.0f} transactions in {phases} phases of "
            f"{seconds:g} s, but {highest.name} requires {shortest_block(objectives, 1)}; give --duration {math.ceil(needed)}s, the length "
            "of a phase, or the class a higher rate"
        )
    return request.model_copy(update={"duration": Duration(max(BLOCK_S, float(shortest_block(objectives, rate))))})


def _require_one_kind(path: Path, classes: Sequence[ListedClass]) -> None:
    """Require that all classes have a share, and that shares sum to 1, or that all classes have a count."""
    by_share = [one for one in classes if one.share is not None]
    if not by_share:
        return
    if len(by_share) < len(classes):
        other = next(one for one in classes if one.share is None)
        first = by_share[0]
        raise UsageError(
            f"{path}: class '{first.name}' has share {first.share:g} and class '{other.name}' has count {other.count}; give all classes a "
            "share, or all a count"
        )
    total = math.fsum(one.share or 0.0 for one in classes)
    if abs(total - 1) > SUM_TOLERANCE:
        parts = ", ".join(f"{one.name} {one.share:g}" for one in classes)
        raise UsageError(f"{path}: the shares of the classes sum to {total:g} and not to 1 ({parts}); change them, or give counts")


# ---- completion


def _complete(node: Node, path: Path, one: ListedClass, request: DensityRequest, dry: bool) -> PreparedStudy:
    """Complete the request for one database of a class."""
    try:
        prepared = prepared_study.prepare(node, "density", request, dry=dry)
    except (UsageError, CapabilityError) as error:
        raise type(error)(f"{path}: class '{one.name}': {error}") from None
    if request.memory is None and getattr(prepared.options, "container_memory", None) is not None:
        raise UsageError(f"{path}: class '{one.name}' has no memory; give it there, or --memory for all classes")
    about_search = describe_search(prepared.options, "1 to 1 databases") if isinstance(prepared.options, DensityOptions) else []
    return replace(prepared, defaults_chosen=tuple(text for text in prepared.defaults_chosen if text not in about_search))


def _class(one: ListedClass, prepared: PreparedStudy) -> TenantClass:
    options = prepared.options
    fields = {name: getattr(options, name) for name in type(options).model_fields if name in TenantClass.model_fields}
    return TenantClass.model_validate(fields | {"name": one.name, "weight": one.share or one.count, "activity": one.activity})


def _candidates(
    request: DensityRequest, classes: Sequence[TenantClass], by_class: Mapping[str, PreparedStudy], seed: int
) -> tuple[tuple[int, ...], int]:
    """Return the numbers of tenants that the search may try, and how many of the first 2 × the largest one memory holds.

    Raises:
        UsageError: memory does not hold a requested number, or it is below 1.
    """
    budget = by_class[classes[0].name].environment.memory
    all_idle = only_idle(classes)
    mix = [(one.weight, _used_vcpus(one, all_idle), by_class[one.name].memory) for one in classes]
    requested = request.databases or ((max(IDLE_SERVERS, len(classes)),) if all_idle else None)
    wanted, most = largest_mix(requested, classes[0].host_cores, mix, budget, seed)
    if request.databases and most < wanted:
        raise UsageError(
            f"--databases {wanted}: memory of {format_bytes(budget)} (--host-memory) holds {most} tenants of the mix; lower --databases, "
            "or the memory or scale of a class"
        )
    if request.databases and min(request.databases) < 1:
        raise UsageError(f"--databases {min(request.databases)}: the minimum is 1")
    if all_idle:
        return request.databases or (min(wanted, most),), most
    return requested_sizes(request.databases or (min(wanted, most),)), most


def _used_vcpus(one: TenantClass, all_idle: bool) -> float:
    """Return the vCPUs by which a class fills the host. Next to others, an idle one uses none."""
    return 0.0 if one.idle and not all_idle else one.vcpus


def _options(
    request: DensityRequest,
    by_class: Mapping[str, PreparedStudy],
    classes: tuple[TenantClass, ...],
    candidates: tuple[int, ...],
    most: int,
    seed: int,
) -> DensityOptions:
    """Return the options of the run: those of the first class, without what belongs to a class."""
    first = by_class[classes[0].name].options
    assert isinstance(first, DensityOptions)
    parts, all_idle = shares([one.weight for one in classes]), only_idle(classes)
    phases, given = phases_of(classes), "duration" in request.model_fields_set
    lengths = [block_seconds(one, one.rate or float(LOG_LINES)) or one.duration for one in classes if one.objectives]
    # The percentile of several phases is that of all their transactions.
    shortest = IDLE_S if all_idle else BLOCK_S
    duration = float(request.duration) if given else max([shortest, *lengths]) if phases == 1 else PHASE_S
    repeats = request.planned_repeats(REFERENCES if all_idle else BLOCKS if phases == 1 else PROBE_BLOCKS)
    references = REFERENCES * math.fsum(reference_seconds(one, duration) + request.warmup for one in classes if not one.idle)
    search = DEFAULT_BUDGET if phases == 1 else (2 * repeats + SEARCH_BLOCKS) * phases * (duration + request.warmup)
    if all_idle:  # a second for the start and the first query of each server, and as much again
        search = 2 * repeats * sum(duration + request.warmup + size for size in candidates)
    return DensityOptions.model_validate(
        {
            **{name: getattr(first, name) for name in DensityOptions.model_fields},
            "scripts": (),
            "init": None,
            "init_data": None,
            "objectives": (),
            "rate": None,
            "container_memory": None,
            "tenants": classes,
            "start_state": min((one.start_state for one in classes), key=("fresh", "restarted", "warm").index),
            "databases": candidates,
            "max_databases_in_memory": most,
            "vcpus": sum(float(part) * _used_vcpus(one, all_idle) for part, one in zip(parts, classes, strict=True)),
            "efficiency": request.efficiency,
            "duration": duration,
            "repeats": repeats,
            "fixed_repeats": request.repeats is not None,
            "time_budget": request.time_budget or max(DEFAULT_BUDGET, search) + references,
            "seed": seed,
        }
    )


def _messages(options: DensityOptions, counts: Mapping[str, int]) -> list[str]:
    largest = max(options.databases)
    mix = ", ".join(f"{counts[one.name]} {one.name}" for one in options.tenants)
    phases, daily = phases_of(options.tenants), [one.name for one in options.tenants if one.activity.kind == "daily"]
    times = f"{phases} phases of {options.duration:g} s" if phases > 1 else f"{options.duration:g} s"
    table = options.tenant_table
    about = [] if table is None else [table.summary(), *map(str, table.classes), *table.notes, DOCUMENT_TEXT]
    if only_idle(options.tenants):
        numbers = ", ".join(map(str, options.databases))
        trials = f"{options.repeats} trial{'' if options.repeats == 1 else 's'} of {options.duration:g} s"
        return [*about, f"{numbers} idle servers at a time: {trials}, each followed by a first query of every server."]
    day = [f"A day of class {', '.join(daily)} takes {phases * options.duration:g} s, and an hour is a phase."] if daily else []
    return [
        *about,
        *day,
        f"Search over 1 to {largest} tenants (at most {mix}), after {REFERENCES} trials of each class alone: blocks of "
        f"{times}, {options.repeats} at the two deciding numbers.",
    ]


def plan_lines(options: DensityOptions) -> list[str]:
    """Return the dry-run output: each class with its limits, its load and what it has to keep."""
    lines = []
    for one, part in zip(options.tenants, shares([one.weight for one in options.tenants]), strict=True):
        limits = [f"{one.vcpus:g} vCPU"] + ([] if one.container_memory is None else [format_bytes(one.container_memory)])
        scripts = ", ".join(script.source.removeprefix("builtin:") for script in one.scripts)
        load = f"{scripts} of scale {one.scale}, " + ("idle" if one.idle else f"{one.clients} client{'' if one.clients == 1 else 's'}")
        lines.append(f"Class {one.name}, {100 * float(part):.3g} % of the tenants: {', '.join(limits)}; {load}.")
        if one.idle:
            continue
        active = "" if one.activity.kind == "constant" else f" Activity: {one.activity.kind}."
        lines.append(f"  {who_keeps(one)} has to keep {needs(options, one)}.{active}")
    if options.tenant_table is not None:
        lines += ["The classes as a file for --tenants:", *options.tenant_table.document.splitlines()]
    return lines


def _disk(by_class: Mapping[str, PreparedStudy], counts: Mapping[str, int]) -> int:
    """Return the disk space of all tenants and of a template for each class. Raises UsageError if there is less.

    That of a prepared class is for one tenant and the template.
    """
    need = sum(each.disk * (counts[name] + 1) // 2 for name, each in by_class.items())
    cache = paths.cache_dir()
    free = shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free
    if need + DISK_RESERVE > free:
        raise UsageError(
            f"{sum(counts.values())} tenants need {format_bytes(need)} below {cache}, which has {format_bytes(free)} free; lower "
            "--databases or the scale of a class, or set XDG_CACHE_HOME to a larger disk"
        )
    return need
