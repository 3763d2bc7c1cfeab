"""Completion of an io-profile request: memory relative to the database, checkpoints, devices of data and WAL, and the length of trials."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pgherd.host import block_trace, paths, storage
from pgherd.host.facts import gather
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import prepared_study
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.requests import VARIANT_NAME, parse_variant, plain, variant_text
from pgherd.studies.compare import prepare as comparison
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.io_profile.options import IoProfileOptions, IoProfileRequest
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.workloads.registry import find

SINGLE_SERVER = "db01"
"""Name of the only variant, if nothing is compared and no server of a list is chosen."""
DEFAULT_SCALE = 50
"""Default scale of pgbench, about 750 MB. Checkpoints write a large part of it, and it is loaded within half a minute."""
CHECKPOINT_TIMEOUT_S = 30.0
"""Default seconds between checkpoints: the minimum of checkpoint_timeout."""
CHECKPOINTS, COMPARED_CHECKPOINTS = 3, 2
REPEATS = 3
WARMUP_S = 5.0
IO_BOUND_S = 20.0
IO_BOUND_MEMORY = 512 * 2**20
IO_BOUND_CLIENTS_PER_CORE = 8
MAX_CLIENTS = 32
MEMORY_TO_DATABASE = 2
"""Default memory as a multiple of the database. E11 has 32 GB of memory for a database of 15 GB."""
MIN_MEMORY = 512 * 2**20
_ROUND = 64 * 2**20
_COMPARISON = ("metric", "max_blocks", "precision", "equivalence_margin")
_STUDY_FIELDS = {"checkpoints", "checkpoint_timeout", "compare_setting", "variant", "memory_ratio", "repeats", "min_repeats"} | {
    *_COMPARISON
}
_OVERHEAD_S = 6.0
"""Additional seconds of a trial: restore, start and reading of the trace."""

_AS_IT_IS = (
    "The server is profiled as it is: its WAL, checkpoints and I/O are those of its statistics, because its devices and its log are not "
    "visible here."
)
_UNCHANGED = "pgherd does not change its settings; leave one out"
_ONLY_OWN = {
    "memory_ratio": "pgherd neither limits its memory nor creates tables on it; leave one out",
    "compare_setting": _UNCHANGED,
    "checkpoint_timeout": _UNCHANGED,
    "checkpoints": "pgherd does not set the time between its checkpoints; give --duration instead",
}
"""Option of this study that applies only to servers that pgherd starts → reason why it is refused for an existing one, and a remedy."""


class _Comparison(CompareRequest):
    """Comparison request with the expected bottleneck, which determines the size of shared buffers."""

    bound_by: Literal["cpu", "io"] = "cpu"


def prepare(node: Node, request: IoProfileRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    existing = _loads_existing(request)
    variants = _variants(request)
    _require_applicable(request, variants)
    facts = gather(node)
    untraced = "" if request.memory_ratio is None else block_trace.refused(node)
    trace = request.trace_io or (request.memory_ratio is not None and not untraced)
    set_fields, notes = _fields(request, facts, variants, trace=trace, existing=existing)
    try:
        prepared = _completed(node, set_fields, variants, request, dry, existing=existing)
    except CapabilityError:
        if request.memory is not None or request.memory_ratio is not None or "memory" not in set_fields:
            raise
        del set_fields["memory"]
        notes = [*notes[1:], "Warning: memory is not limited to twice the database as in E11, because limits need control groups."]
        prepared = _completed(node, set_fields, variants, request, dry, existing=existing)
    assert isinstance(prepared.options, CompareOptions)
    timeout = None if request.memory_ratio or existing else _checkpoint_timeout(request)
    options = IoProfileOptions(
        **prepared.options.model_dump(exclude={"repeats", "memory_ratio", "checkpoint_timeout", "trace_unavailable"}),
        repeats=request.repeats or REPEATS,
        memory_ratio=request.memory_ratio,
        checkpoint_timeout=timeout,
        trace_unavailable=untraced,
    )
    notes += [_AS_IT_IS] if existing else _devices(node, options)
    return replace(prepared, study="io-profile", options=options, defaults_chosen=(*prepared.defaults_chosen, *notes))


def _loads_existing(request: IoProfileRequest) -> bool:
    """Return True if the servers exist already, and False if pgherd starts them.

    Raises:
        UsageError: only some of the variants name an existing server, or an option sets something of it.
    """
    named = [name for name, changes in map(parse_variant, request.variant) if {"dsn", "servers"} & {plain(key) for key in changes}]
    if not request.dsn and request.servers is None and not (len(request.variant) > 1 and len(named) == len(request.variant)):
        if named and len(request.variant) == 1:
            raise UsageError(f"--variant {named[0]} names an existing server, and there is no other variant; give --dsn instead")
        if named:
            raise UsageError(
                f"variant '{named[0]}' names an existing server, but pgherd starts that of another variant; give --servers FILE, and "
                "server=NAME in every variant"
            )
        return False
    for option, reason in _ONLY_OWN.items():
        if getattr(request, option) is not None:
            given = "--dsn" if request.servers is None else "--servers"
            raise UsageError(f"--{option.replace('_', '-')} does not go with {given}: the server is external, and {reason}")
    return True


def _require_applicable(request: IoProfileRequest, variants: Sequence[str]) -> None:
    """Require that the options of a comparison are given only with variants, and ``repeats`` only without. Raises UsageError."""
    if variants and request.repeats is not None:
        raise UsageError(f"--repeats {request.repeats}: a comparison counts blocks, not repeats; give --max-blocks")
    given = [name for name in _COMPARISON if getattr(request, name) != IoProfileRequest.model_fields[name].default]
    if given and not variants:
        raise UsageError(
            f"--{given[0].replace('_', '-')} applies only to a comparison; leave it out, or add --compare-setting or --variant"
        )


def _fields(
    request: IoProfileRequest, facts: HostFacts, variants: Sequence[str], *, trace: bool, existing: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the options of each variant's request, and sentences on the choices. The first sentence is on memory."""
    set_fields: dict[str, Any] = {name: getattr(request, name) for name in request.model_fields_set - _STUDY_FIELDS}
    cores = request.host_cores or facts.cores
    set_fields.setdefault("client_placement", "outside")
    set_fields["trace_io"] = trace
    notes: list[str] = []
    if existing:
        set_fields = _with_load(set_fields, cores, _trial_seconds(request, variants, CHECKPOINT_TIMEOUT_S))
    elif request.memory_ratio is not None:
        set_fields, notes = _io_bound(request, set_fields, cores)
    else:
        set_fields, notes = _cached(request, set_fields, cores, variants)
    # Options without a value get their default when the request is completed.
    return {name: value for name, value in set_fields.items() if value is not None}, notes


def _with_load(set_fields: Mapping[str, Any], cores: float, seconds: float) -> dict[str, Any]:
    """Return the options with the default load of a cached database, in trials of so many seconds."""
    defaults = {"workload": "tpcb-like", "clients": max(4, min(MAX_CLIENTS, round(4 * cores))), "warmup": f"{WARMUP_S:g}s"}
    return {**defaults, **set_fields, "duration": f"{seconds:g}s"}


def _trial_seconds(request: IoProfileRequest, variants: Sequence[str], timeout: float) -> float:
    """Return the length of a trial with enough checkpoints, if they are ``timeout`` seconds apart."""
    checkpoints = request.checkpoints or (COMPARED_CHECKPOINTS if variants else CHECKPOINTS)
    return request.duration if request.duration is not None else checkpoints * timeout + 5


def _cached(
    request: IoProfileRequest, set_fields: dict[str, Any], cores: float, variants: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    timeout = _checkpoint_timeout(request)
    seconds = _trial_seconds(request, variants, timeout)
    set_fields = _with_load(set_fields, cores, seconds)
    set_fields.setdefault("vcpus", cores)
    if not request.init_script and request.scale is None and request.workload in ("tpcb-like", "simple-update", "select-only"):
        set_fields["scale"] = max(DEFAULT_SCALE, set_fields["clients"])
    notes = []
    if request.memory is None and not request.init_script:
        size = find("pgbench" if request.workload in ("tpcb-like", "simple-update", "select-only") else request.workload).size_estimate(
            set_fields.get("scale") or request.scale or DEFAULT_SCALE
        )
        if size is not None:
            memory = max(MIN_MEMORY, math.ceil(MEMORY_TO_DATABASE * size / _ROUND) * _ROUND)
            set_fields["memory"] = str(memory)
            notes.append(f"Memory {format_bytes(memory)}: {MEMORY_TO_DATABASE} × the database, as in E11.")
    names = {text.partition("=")[0].strip().lower() for text in request.set}
    chosen = [] if "checkpoint_timeout" in names else [f"checkpoint_timeout={timeout:g}s"]
    set_fields["set"] = (*chosen, *request.set)
    varied = {plain(key) for text in variants for key in parse_variant(text)[1]}
    if chosen and "checkpoint_timeout" not in varied:
        limit = "more if WAL reaches max_wal_size" if "max_wal_size" in names | varied else "max_wal_size is large enough"
        notes.append(
            f"checkpoint_timeout {timeout:g} s: a trial of {format_seconds(seconds)} holds about {seconds / timeout:.1f} checkpoints "
            f"({limit})."
        )
    return set_fields, notes


def _io_bound(request: IoProfileRequest, set_fields: dict[str, Any], cores: float) -> tuple[dict[str, Any], list[str]]:
    if "workload" in request.model_fields_set and request.workload != "random-block":
        raise UsageError(f"--memory-ratio needs the workload random-block, but --workload is {request.workload}; leave one of them out")
    assert request.memory_ratio is not None
    memory = request.memory if request.memory is not None else IO_BOUND_MEMORY
    set_fields |= {"workload": "random-block", "memory": str(memory), "bound_by": "io"}
    set_fields["scale"] = request.scale or math.ceil(request.memory_ratio * memory / 2**20)
    set_fields.setdefault("clients", max(4, min(MAX_CLIENTS, round(IO_BOUND_CLIENTS_PER_CORE * cores))))
    set_fields.setdefault("vcpus", cores)
    set_fields.setdefault("warmup", f"{WARMUP_S:g}s")
    set_fields.setdefault("duration", f"{IO_BOUND_S:g}s")
    return set_fields, [
        f"A database of {set_fields['scale']} MiB, {request.memory_ratio:g} × the memory of {format_bytes(memory)}, "
        "read and updated at random."
    ]


def _completed(
    node: Node, set_fields: dict[str, Any], variants: Sequence[str], request: IoProfileRequest, dry: bool, *, existing: bool
) -> PreparedStudy:
    """Complete a single server as a density study, or several variants as a comparison.

    The options are those of a comparison in both cases. Existing servers stay in their state.
    """
    if variants:
        comparison_options = {name: getattr(request, name) for name in _COMPARISON if name in request.model_fields_set}
        blocks = {} if request.max_blocks or request.time_budget else {"max_blocks": _min_blocks(len(variants))}
        fields = {
            **({} if existing else {"start_state": "fresh", "interleave": "trials"}),
            **set_fields,
            **comparison_options,
            **blocks,
            "equivalence_margin": request.equivalence_margin,
            "variant": tuple(variants),
        }
        return comparison.prepare(node, _Comparison.model_validate(fields), dry)
    state = "fresh" if request.workload != "select-only" and request.memory_ratio is None else "restarted"
    fields = {**({} if existing else {"start_state": state}), **set_fields, "databases": (1,)}
    prepared = prepared_study.prepare(node, "density", DensityRequest.model_validate(fields), dry=dry)
    options = prepared.options
    assert isinstance(options, DensityOptions)
    options = options.model_copy(update={"repeats": 1})
    name = (request.server if existing else None) or SINGLE_SERVER
    variant = Variant(name=name, study="density", options=options.model_dump(mode="json"))
    each = options.duration + options.warmup + _OVERHEAD_S
    budget = request.time_budget if request.time_budget is not None else 1.5 * each * (request.repeats or REPEATS) + 30
    single = IoProfileOptions(
        variants=(variant,),
        baseline=name,
        time_budget=budget,
        fixed_budget=request.time_budget is not None,
        seed=options.seed,
        thresholds=options.thresholds,
    )
    return replace(prepared, options=single)


def _min_blocks(variants: int) -> int:
    """Return the minimum number of blocks for a significant difference.

    The probability that all pairs have the same sign by chance is then below each variant's share of 5 %.
    """
    return math.ceil(math.log2(2 * max(1, variants - 1) / 0.05))


def _variants(request: IoProfileRequest) -> tuple[str, ...]:
    """Return the variants as texts. ``--compare-setting NAME=A,B`` gives a variant for each value, named after it or its place.

    A value in double quotes may contain commas.
    """
    if request.compare_setting is None:
        return request.variant
    if request.variant:
        raise UsageError("--compare-setting and --variant both define variants; give only one of them")
    name, equals, values_text = request.compare_setting.partition("=")
    try:
        values = [value.strip() for value in next(csv.reader([values_text], skipinitialspace=True, strict=True), [])]
    except csv.Error:
        values = []
    if not name.strip() or not equals or not values or not all(values):
        raise UsageError(
            f"--compare-setting {request.compare_setting}: write it as SETTING=VALUE,VALUE, such as checkpoint_completion_target=0.5,0.9; "
            "a value with commas is in double quotes"
        )
    if len(values) < 2:
        raise UsageError(
            f"--compare-setting {request.compare_setting}: a comparison needs two or more values; add one, such as "
            f"{request.compare_setting},…"
        )
    plain_values = all(map(VARIANT_NAME.fullmatch, values))
    names = values if plain_values else [f"value-{number}" for number in range(1, len(values) + 1)]
    return tuple(variant_text(variant, {name.strip(): value}) for variant, value in zip(names, values, strict=True))


def _checkpoint_timeout(request: IoProfileRequest) -> float:
    timeout = request.checkpoint_timeout if request.checkpoint_timeout is not None else CHECKPOINT_TIMEOUT_S
    if not 30 <= timeout <= 86400:
        raise UsageError(
            f"--checkpoint-timeout {timeout:g} s: the range of checkpoint_timeout is 30 s to 1 day; for more frequent checkpoints lower "
            "max_wal_size, such as with --set max_wal_size=64MB"
        )
    return timeout


def _devices(node: Node, options: IoProfileOptions) -> list[str]:
    """Return sentences on the devices of data and WAL of every variant, as far as they are known before the run."""
    variants: dict[str, list[str]] = {}
    for variant in options.variants:
        variants.setdefault(_device_sentence(node, DensityOptions.model_validate(variant.options)), []).append(variant.name)
    return [sentence if len(variants) == 1 else f"{', '.join(names)}: {sentence}" for sentence, names in variants.items()]


def _device_sentence(node: Node, options: DensityOptions) -> str:
    """Return the sentence on the devices of a variant."""
    volumes = {volume.name: volume for volume in options.volumes}
    data = volumes.get(options.roles.get("data", ""))
    wal = volumes.get(options.roles.get("wal", ""), data)
    spaces = [volumes[name] for name in options.tablespaces]
    with_wal, wal_name = [volume for volume in (data, *spaces) if _one_device(node, volume, wal)], _device(node, wal)
    space_devices = f"; tables and indexes on {', '.join(dict.fromkeys(_device(node, space) for space in spaces))}" if spaces else ""
    if not with_wal:
        return f"Data on {_device(node, data)}, WAL on {wal_name}{space_devices}."
    if data in with_wal:
        contents, devices = "data and WAL", f"{wal_name}{space_devices}"
    else:
        contents, devices = "WAL and a tablespace", f"{wal_name}; data on {_device(node, data)}{space_devices}"
    return (
        f"Warning: {contents} are on one device ({devices}), so that their I/O cannot be separated; put WAL on another device with "
        "--wal-volume."
    )


def _one_device(node: Node, one: Volume | None, other: Volume | None) -> bool:
    """Return True if two volumes are the same, or directories on the same device. None is the default directory of servers."""
    directories = all(volume is None or volume.kind == "directory" for volume in (one, other))
    return one == other or (directories and _device(node, one) == _device(node, other))


def _device(node: Node, volume: Volume | None) -> str:
    """Return the name of a volume's device. None is the default directory of servers."""
    if volume is not None and volume.kind == "loop":
        return f"loop device '{volume.name}'"
    if volume is not None and volume.kind == "device":
        return str(volume.path)
    cache = paths.cache_dir()
    directory = str(next(path for path in (cache, *cache.parents) if path.exists()) if volume is None else volume.path)
    devices = storage.devices_of(node, [directory])
    return devices[directory].name if directory in devices else "no visible block device"
