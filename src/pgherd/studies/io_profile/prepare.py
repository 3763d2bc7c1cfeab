"""Completion of an io-profile request: memory relative to the database, checkpoints, devices of data and WAL, and the length of trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pgherd.host import block_devices, block_trace, paths
from pgherd.host.facts import gather
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes, format_seconds, parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import registry
from pgherd.prepare.prepared_study import Prepared
from pgherd.prepare.variants import parse_variant, plain
from pgherd.studies.compare import prepare as comparison
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.io_profile.options import StorageOptions, StorageRequest
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.workloads.registry import find

ALONE = "db01"
"""Name of the only variant, if nothing is compared."""
SCALE = 50
"""Default scale of pgbench, about 750 MB. Checkpoints write a large part of it, and it is loaded within half a minute."""
EVERY = 30.0
"""Default seconds between checkpoints: the minimum of checkpoint_timeout."""
CHECKPOINTS, COMPARED_CHECKPOINTS = 3, 2
REPEATS = 3
RAMP = 5.0
BOUND_SECONDS = 20.0
BOUND_MEMORY = 512 * 2**20
BOUND_CLIENTS_PER_CORE = 8
MOST_CLIENTS = 32
TIMES_DATABASE = 2
"""Default memory as a multiple of the database. E11 has 32 GB of memory for a database of 15 GB."""
LEAST_MEMORY = 512 * 2**20
_ROUND = 64 * 2**20
_COMPARISON = ("metric", "max_blocks", "precision", "equivalence_margin")
_OWN = {"checkpoints", "checkpoint_timeout", "compare_setting", "variant", "memory_ratio", "repeats"} | {*_COMPARISON}
_EXTRA = 6.0
"""Additional seconds of a trial: restore, start and reading of the trace."""


class _Comparison(CompareRequest):
    """Comparison request with the expected bottleneck, which determines the size of shared buffers."""

    bound_by: Literal["cpu", "io"] = "cpu"


def prepare(node: Node, asked: StorageRequest, dry: bool) -> Prepared:
    """Complete the request for this host; see ``prepare.registry.prepare`` for what it raises."""
    variants = _variants(asked)
    facts = gather(node)
    untraced = "" if asked.memory_ratio is None else block_trace.refused(node)
    given, notes = _fields(asked, facts, variants, trace=asked.trace_io or (asked.memory_ratio is not None and not untraced))
    try:
        prepared = _completed(node, given, variants, asked, dry)
    except CapabilityError:
        if asked.memory is not None or asked.memory_ratio is not None or "memory" not in given:
            raise
        del given["memory"]
        notes = [*notes[1:], "Warning: memory is not limited to twice the database as in E11, because limits need control groups."]
        prepared = _completed(node, given, variants, asked, dry)
    assert isinstance(prepared.options, CompareOptions)
    every = None if asked.memory_ratio else _every(asked)
    options = StorageOptions(
        **prepared.options.model_dump(exclude={"repeats", "io_bound", "every", "untraced"}),
        repeats=asked.repeats or REPEATS,
        io_bound=asked.memory_ratio,
        every=every,
        untraced=untraced,
    )
    return replace(prepared, study="io-profile", options=options, choices=(*prepared.choices, *notes, *_devices(node, options)))


def _fields(asked: StorageRequest, facts: HostFacts, variants: Sequence[str], *, trace: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the options of each variant's request, and sentences on the choices. The first sentence is on memory."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in asked.model_fields_set - _OWN}
    cores = asked.host_cores or facts.cores
    given.setdefault("client_placement", "outside")
    given["trace_io"] = trace
    if asked.memory_ratio is not None:
        given, notes = _io_bound(asked, given, cores)
    else:
        given, notes = _cached(asked, given, cores, variants)
    # Options without a value get their default when the request is completed.
    return {name: value for name, value in given.items() if value is not None}, notes


def _cached(asked: StorageRequest, given: dict[str, Any], cores: float, variants: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    every = _every(asked)
    checkpoints = asked.checkpoints or (COMPARED_CHECKPOINTS if variants else CHECKPOINTS)
    given.setdefault("workload", "tpcb-like")
    given.setdefault("vcpus", cores)
    given.setdefault("clients", max(4, min(MOST_CLIENTS, round(4 * cores))))
    if not asked.init_script and asked.scale is None and asked.workload in ("tpcb-like", "simple-update", "select-only"):
        given["scale"] = max(SCALE, given["clients"])
    notes = []
    if asked.memory is None and not asked.init_script:
        size = find("pgbench" if asked.workload in ("tpcb-like", "simple-update", "select-only") else asked.workload).size_estimate(
            given.get("scale") or asked.scale or SCALE
        )
        if size is not None:
            memory = max(LEAST_MEMORY, math.ceil(TIMES_DATABASE * size / _ROUND) * _ROUND)
            given["memory"] = str(memory)
            notes.append(f"Memory {format_bytes(memory)}: {TIMES_DATABASE} × the database, as in E11.")
    given.setdefault("warmup", f"{RAMP:g}s")
    seconds = parse_seconds(asked.duration) if asked.duration else checkpoints * every + 5
    given["duration"] = f"{seconds:g}s"
    names = {text.partition("=")[0].strip().lower() for text in asked.set}
    chosen = [] if "checkpoint_timeout" in names else [f"checkpoint_timeout={every:g}s"]
    given["set"] = (*chosen, *asked.set)
    varied = {plain(key) for text in variants for key in parse_variant(text)[1]}
    if chosen and "checkpoint_timeout" not in varied:
        limit = "more if WAL reaches max_wal_size" if "max_wal_size" in names | varied else "max_wal_size is large enough"
        notes.append(
            f"checkpoint_timeout {every:g} s: a trial of {format_seconds(seconds)} holds about {seconds / every:.1f} checkpoints ({limit})."
        )
    return given, notes


def _io_bound(asked: StorageRequest, given: dict[str, Any], cores: float) -> tuple[dict[str, Any], list[str]]:
    if "workload" in asked.model_fields_set and asked.workload != "random-block":
        raise UsageError(f"--memory-ratio needs the workload random-block, but --workload is {asked.workload}; leave one of them out")
    assert asked.memory_ratio is not None
    memory = parse_bytes(asked.memory) if asked.memory else BOUND_MEMORY
    given |= {"workload": "random-block", "memory": str(memory), "bound_by": "io"}
    given["scale"] = asked.scale or math.ceil(asked.memory_ratio * memory / 2**20)
    given.setdefault("clients", max(4, min(MOST_CLIENTS, round(BOUND_CLIENTS_PER_CORE * cores))))
    given.setdefault("vcpus", cores)
    given.setdefault("warmup", f"{RAMP:g}s")
    given.setdefault("duration", f"{BOUND_SECONDS:g}s")
    return given, [
        f"A database of {given['scale']} MiB, {asked.memory_ratio:g} × the memory of {format_bytes(memory)}, read and updated at random."
    ]


def _completed(node: Node, given: dict[str, Any], variants: Sequence[str], asked: StorageRequest, dry: bool) -> Prepared:
    """Complete a single server as a density study, or several variants as a comparison.

    The options are those of a comparison in both cases.
    """
    if variants:
        comparison_options = {name: getattr(asked, name) for name in _COMPARISON if name in asked.model_fields_set}
        blocks = {} if asked.max_blocks or asked.time_budget else {"max_blocks": _least_blocks(len(variants))}
        request = {
            **given,
            **comparison_options,
            **blocks,
            "equivalence_margin": asked.equivalence_margin,
            "variant": tuple(variants),
            "start_state": "fresh",
        }
        return comparison.prepare(node, _Comparison.model_validate({"interleave": "trials", **request}), dry)
    request = {
        "start_state": "fresh" if asked.workload != "select-only" and asked.memory_ratio is None else "restarted",
        **given,
        "databases": (1,),
    }
    prepared = registry.prepare(node, "density", DensityRequest.model_validate(request), dry=dry)
    options = prepared.options
    assert isinstance(options, DensityOptions)
    options = options.model_copy(update={"repeats": 1, "repeats_one": 1})
    arm = Variant(name=ALONE, study="density", options=options.model_dump(mode="json"))
    each = options.seconds + options.ramp + _EXTRA
    budget = parse_seconds(asked.time_budget) if asked.time_budget else 1.5 * each * (asked.repeats or REPEATS) + 30
    single = StorageOptions(arms=(arm,), baseline=ALONE, budget_seconds=budget, seed=options.seed, thresholds=options.thresholds)
    return replace(prepared, options=single)


def _least_blocks(variants: int) -> int:
    """Return the minimum number of blocks for a significant difference.

    The probability that all pairs have the same sign by chance is then below each variant's share of 5 %.
    """
    return math.ceil(math.log2(2 * max(1, variants - 1) / 0.05))


def _variants(asked: StorageRequest) -> tuple[str, ...]:
    """Return the variants as texts. ``--compare-setting NAME=A,B`` gives a variant for each value, named after it."""
    if asked.compare_setting is None:
        return asked.variant
    if asked.variant:
        raise UsageError("--compare-setting and --variant both define variants; give only one of them")
    name, equals, rest = asked.compare_setting.partition("=")
    values = [value.strip() for value in rest.split(",")]
    if not name.strip() or not equals or not all(values):
        raise UsageError(
            f"--compare-setting {asked.compare_setting}: write it as SETTING=VALUE,VALUE, such as checkpoint_completion_target=0.5,0.9"
        )
    if len(values) < 2:
        raise UsageError(
            f"--compare-setting {asked.compare_setting}: a comparison needs two or more values; add one, such as {name}={values[0]},…"
        )
    return tuple(f"{value}:{name.strip()}={value}" for value in values)


def _every(asked: StorageRequest) -> float:
    every = parse_seconds(asked.checkpoint_timeout) if asked.checkpoint_timeout else EVERY
    if not 30 <= every <= 86400:
        raise UsageError(
            f"--checkpoint-timeout {every:g} s: the range of checkpoint_timeout is 30 s to 1 day; for more frequent checkpoints lower "
            "max_wal_size, such as with --set max_wal_size=64MB"
        )
    return every


def _devices(node: Node, options: StorageOptions) -> list[str]:
    """Return sentences on the devices of data and WAL of every variant, as far as they are known before the run."""
    variants: dict[str, list[str]] = {}
    for arm in options.arms:
        variants.setdefault(_device_sentence(node, DensityOptions.model_validate(arm.options)), []).append(arm.name)
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
    devices = block_devices.devices_of(node, [directory])
    return devices[directory].name if directory in devices else "no visible block device"
