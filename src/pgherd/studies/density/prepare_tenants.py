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

from pydantic import Field, ValidationError, field_validator

from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.prepare import merge, prepared_study
from pgherd.prepare.hosts import choose_share
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.requests import first_fault, read_yaml
from pgherd.prepare.volumes import DISK_RESERVE
from pgherd.studies.density.objective import MOST_FULL
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.density.tenant_activity import PHASES, Activity
from pgherd.studies.density.tenant_mix import CLASS_NAME, TenantClass, class_of, draw, phases_of, shares, tenant_names
from pgherd.studies.density.tenants import REFERENCES, needs
from pgherd.study.database_options import DEFAULT_BUDGET, EXISTING_SERVERS, target
from pgherd.study.objectives import BLOCK_S, BLOCKS, LOG_LINES, PROBE_BLOCKS, block_seconds, describe_search

OF_A_CLASS = (
    *("vcpus", "memory", "scale", "workload", "script", "init_script", "read_only", "clients", "threads", "rate", "slo", "partitions"),
    *("think_time", "zipf", "update_percent", "protocol", "cpu_mode", "cpu_weight", "iops", "io_bandwidth"),
)
"""Options of a database that a class may have."""
_LISTS = ("script", "slo")
_OF_THE_RUN = frozenset({"tenants", "databases", "efficiency", "time_budget", "repeats", "min_repeats"})
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


class ListedClass(Model):
    """Part of a class in the mix, as the user lists it."""

    name: str = Field(pattern=CLASS_NAME)
    share: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    count: int | None = Field(None, ge=1)
    activity: Activity = Activity()

    @field_validator("activity", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value


def prepare(node: Node, request: DensityRequest, file: str, dry: bool) -> PreparedStudy:
    """Complete a request for a mix of tenants; see ``prepare.prepared_study.prepare`` for what it raises."""
    _require_supported(request)
    share = choose_share(gather(node), request.host_cores, request.host_memory)
    seed = request.seed if request.seed is not None else random.randrange(2**31)
    # All classes get the same share of the host, although its free memory changes while they are completed one after the other.
    base: dict[str, Any] = {name: getattr(request, name) for name in request.model_fields_set - _OF_THE_RUN}
    base |= {"databases": (1,), "seed": seed, "host_memory": str(share.memory)}
    listed = read_classes(Path(file), base)
    by_class = {one.name: _complete(node, Path(file), one, each, dry) for one, each in listed}
    classes = tuple(_class(one, by_class[one.name]) for one, _ in listed)
    candidates, most = _candidates(request, classes, by_class, seed)
    options = _options(request, by_class, classes, candidates, most, seed)
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


def _require_supported(request: DensityRequest) -> None:
    given = next((name for name in _NOT_WITH_TENANTS if name in request.model_fields_set and getattr(request, name)), None)
    if given is not None or request.runtime == "vm":
        option = "--runtime vm" if given is None else f"--{given.replace('_', '-')}"
        raise UsageError(f"{option} does not go with --tenants, which starts servers of several kinds on this host; leave one of them out")


# ---- the file


def read_classes(path: Path, base: Mapping[str, Any]) -> list[tuple[ListedClass, DensityRequest]]:
    """Read the classes, and return each with the request for one of its databases. ``base`` has the options of the run.

    Raises:
        UsageError: the file cannot be read, or an entry is invalid. The message names the class.
    """
    document = read_yaml(path)
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
    if any(PHASES[one.activity.kind] > 1 for one in listed):  # a percentile is that of all phases, so a short phase is no fault
        base = {key: value for key, value in base.items() if key != "duration"}
    return [(one, _read_request(label, one, entry, base)) for label, one, entry in zip(labels, listed, entries, strict=True)]


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
    """Return the numbers of tenants that the search may try, and the largest number that memory holds.

    Raises:
        UsageError: memory does not hold a requested number, or it is below 1.
    """
    budget, parts = by_class[classes[0].name].environment.memory, shares([one.weight for one in classes])
    mean = sum(float(part) * one.vcpus for part, one in zip(parts, classes, strict=True))
    wanted = max(request.databases) if request.databases else max(2, math.ceil(MOST_FULL * classes[0].host_cores / mean))
    used, most = 0, 0
    for index in draw(parts, wanted, seed):
        used += by_class[classes[index].name].memory
        if used > budget:
            break
        most += 1
    if request.databases and most < wanted:
        raise UsageError(
            f"--databases {wanted}: memory of {format_bytes(budget)} (--host-memory) holds {most} tenants of the mix; lower --databases, "
            "or the memory or scale of a class"
        )
    if request.databases and min(request.databases) < 1:
        raise UsageError(f"--databases {min(request.databases)}: the minimum is 1")
    return tuple(sorted({1, *request.databases})) if request.databases else tuple(range(1, most + 1)), most


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
    parts = shares([one.weight for one in classes])
    phases, given = phases_of(classes), "duration" in request.model_fields_set
    lengths = [block_seconds(one, one.rate or float(LOG_LINES)) or one.duration for one in classes if one.objectives]
    # The percentile of several phases is that of all their transactions.
    duration = float(request.duration) if given else max([BLOCK_S, *lengths]) if phases == 1 else PHASE_S
    repeats = request.planned_repeats(BLOCKS if phases == 1 else PROBE_BLOCKS)
    references = REFERENCES * len(classes) * (duration + request.warmup)
    search = DEFAULT_BUDGET if phases == 1 else (2 * repeats + SEARCH_BLOCKS) * phases * (duration + request.warmup)
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
            "vcpus": sum(float(part) * one.vcpus for part, one in zip(parts, classes, strict=True)),
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
    day = [f"A day of class {', '.join(daily)} takes {phases * options.duration:g} s, and an hour is a phase."] if daily else []
    return [
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
        load = f"{scripts} of scale {one.scale}, {one.clients} client{'' if one.clients == 1 else 's'}"
        lines.append(f"Class {one.name}, {100 * float(part):.3g} % of the tenants: {', '.join(limits)}; {load}.")
        active = "" if one.activity.kind == "constant" else f" Activity: {one.activity.kind}."
        lines.append(f"  Each has to keep {needs(options, one)}.{active}")
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
