"""Completing a study of the storage: a server with memory of twice its database (or a fraction of it), checkpoints that fit into a
trial, WAL on a device of its own where one is named, and trials several checkpoints long."""

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
"""The name of the only arm where nothing is compared."""
SCALE = 50
"""pgbench's: about 750 MB, of which checkpoints write a good part, and which is loaded within half a minute."""
EVERY = 30.0
"""Seconds from one checkpoint to the next: the least that checkpoint_timeout takes."""
CHECKPOINTS, COMPARED_CHECKPOINTS = 3, 2
REPEATS = 3
RAMP = 5.0
BOUND_SECONDS = 20.0
BOUND_MEMORY = 512 * 2**20
BOUND_CLIENTS_PER_CORE = 8
MOST_CLIENTS = 32
TIMES_DATABASE = 2
"""As E11: 32 GB of memory for a database of 15 GB."""
LEAST_MEMORY = 512 * 2**20
_ROUND = 64 * 2**20
_OWN = {"checkpoints", "checkpoint_every", "compare", "variant", "io_bound", "metric", "blocks", "precision", "equivalence", "repeats"}
_COMPARISON = ("metric", "blocks", "precision", "equivalence")
_EXTRA = 6.0
"""Seconds that a trial needs beyond its load: restoring, starting, reading the trace."""


class _Comparison(CompareRequest):
    """A comparison of servers that may be meant to be bound by I/O, which decides how large their buffers are."""

    intent: Literal["cpu-bound", "io-bound"] = "cpu-bound"


def prepare(node: Node, asked: StorageRequest, dry: bool) -> Prepared:
    """Complete the request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    variants = _variants(asked)
    facts = gather(node)
    untraced = "" if asked.io_bound is None else block_trace.refused(node)
    given, said = _fields(asked, facts, variants, trace=asked.trace or (asked.io_bound is not None and not untraced))
    try:
        prepared = _completed(node, given, variants, asked, dry)
    except CapabilityError:
        if asked.memory is not None or asked.io_bound is not None or "memory" not in given:
            raise
        del given["memory"]
        said = [*said[1:], "Warning: memory is not limited (that needs control groups), so it is not twice the database's size as in E11."]
        prepared = _completed(node, given, variants, asked, dry)
    assert isinstance(prepared.options, CompareOptions)
    every = None if asked.io_bound else _every(asked)
    options = StorageOptions(
        **prepared.options.model_dump(exclude={"repeats", "io_bound", "every", "untraced"}),
        repeats=asked.repeats or REPEATS,
        io_bound=asked.io_bound,
        every=every,
        untraced=untraced,
    )
    return replace(prepared, study="io-profile", options=options, choices=(*prepared.choices, *said, *_devices(node, options)))


def _fields(asked: StorageRequest, facts: HostFacts, variants: Sequence[str], *, trace: bool) -> tuple[dict[str, Any], list[str]]:
    """What the arms' own study is asked for, and sentences; the first is on memory."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in asked.model_fields_set - _OWN}
    cores = asked.cores or facts.cores
    given.setdefault("client_place", "outside")
    given["trace"] = trace
    if asked.io_bound is not None:
        given, said = _io_bound(asked, given, cores)
    else:
        given, said = _cached(asked, given, cores, variants)
    # One arm's own seed and budget are the study's.
    return {name: value for name, value in given.items() if value is not None}, said


def _cached(asked: StorageRequest, given: dict[str, Any], cores: float, variants: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    every = _every(asked)
    many = asked.checkpoints or (COMPARED_CHECKPOINTS if variants else CHECKPOINTS)
    given.setdefault("workload", "tpcb-like")
    given.setdefault("vcpus", cores)
    given.setdefault("clients", max(4, min(MOST_CLIENTS, round(4 * cores))))
    if not asked.init and asked.scale is None and asked.workload in ("tpcb-like", "simple-update", "select-only"):
        given["scale"] = max(SCALE, given["clients"])
    said = []
    if asked.memory is None and not asked.init:
        size = find("pgbench" if asked.workload in ("tpcb-like", "simple-update", "select-only") else asked.workload).size_estimate(
            given.get("scale") or asked.scale or SCALE
        )
        if size is not None:
            memory = max(LEAST_MEMORY, math.ceil(TIMES_DATABASE * size / _ROUND) * _ROUND)
            given["memory"] = str(memory)
            said.append(f"Memory {format_bytes(memory)}: {TIMES_DATABASE} × the database, as in E11.")
    given.setdefault("ramp", f"{RAMP:g}s")
    seconds = parse_seconds(asked.seconds) if asked.seconds else many * every + 5
    given["seconds"] = f"{seconds:g}s"
    names = {text.partition("=")[0].strip().lower() for text in asked.set}
    chosen = [] if "checkpoint_timeout" in names else [f"checkpoint_timeout={every:g}s"]
    given["set"] = (*chosen, *asked.set)
    varied = {plain(key) for text in variants for key in parse_variant(text)[1]}
    if chosen and "checkpoint_timeout" not in varied:
        more = "more, where WAL reaches max_wal_size" if "max_wal_size" in names | varied else "max_wal_size is large enough for that"
        said.append(
            f"checkpoint_timeout {every:g} s: a trial of {format_seconds(seconds)} holds about {seconds / every:.1f} checkpoints ({more})."
        )
    return given, said


def _io_bound(asked: StorageRequest, given: dict[str, Any], cores: float) -> tuple[dict[str, Any], list[str]]:
    if "workload" in asked.model_fields_set and asked.workload != "random-block":
        raise UsageError(
            f"--io-bound reads single blocks at random: its workload is random-block, not {asked.workload}; leave one of them out"
        )
    assert asked.io_bound is not None
    memory = parse_bytes(asked.memory) if asked.memory else BOUND_MEMORY
    given |= {"workload": "random-block", "memory": str(memory), "intent": "io-bound"}
    given["scale"] = asked.scale or math.ceil(asked.io_bound * memory / 2**20)
    given.setdefault("clients", max(4, min(MOST_CLIENTS, round(BOUND_CLIENTS_PER_CORE * cores))))
    given.setdefault("vcpus", cores)
    given.setdefault("ramp", f"{RAMP:g}s")
    given.setdefault("seconds", f"{BOUND_SECONDS:g}s")
    return given, [
        f"A database of {given['scale']} MiB, {asked.io_bound:g} × the memory of {format_bytes(memory)}, read and updated at random."
    ]


def _completed(node: Node, given: dict[str, Any], variants: Sequence[str], asked: StorageRequest, dry: bool) -> Prepared:
    """One arm by the study of databases, or a comparison; its options are a comparison's in both cases."""
    if variants:
        own = {name: getattr(asked, name) for name in _COMPARISON if name in asked.model_fields_set}
        blocks = {} if asked.blocks or asked.budget else {"blocks": _least_blocks(len(variants))}
        request = {**given, **own, **blocks, "equivalence": asked.equivalence, "variant": tuple(variants), "state": "fresh"}
        return comparison.prepare(node, _Comparison.model_validate({"arrangement": "one-at-a-time", **request}), dry)
    request = {"state": "fresh" if asked.workload != "select-only" and asked.io_bound is None else "restarted", **given, "points": (1,)}
    prepared = registry.prepare(node, "density", DensityRequest.model_validate(request), dry=dry)
    options = prepared.options
    assert isinstance(options, DensityOptions)
    options = options.model_copy(update={"repeats": 1, "repeats_one": 1})
    arm = Variant(name=ALONE, study="density", options=options.model_dump(mode="json"))
    each = options.seconds + options.ramp + _EXTRA
    budget = parse_seconds(asked.budget) if asked.budget else 1.5 * each * (asked.repeats or REPEATS) + 30
    single = StorageOptions(arms=(arm,), baseline=ALONE, budget_seconds=budget, seed=options.seed, thresholds=options.thresholds)
    return replace(prepared, options=single)


def _least_blocks(variants: int) -> int:
    """The fewest blocks that can decide anything: so many pairs all of one sign are rarer than each variant's part of 5 %."""
    return math.ceil(math.log2(2 * max(1, variants - 1) / 0.05))


def _variants(asked: StorageRequest) -> tuple[str, ...]:
    """The variants' texts; ``--compare NAME=A,B`` is one for each value, called by it."""
    if asked.compare is None:
        return asked.variant
    if asked.variant:
        raise UsageError("--compare and --variant say the same thing in two ways; give one of them")
    name, equals, rest = asked.compare.partition("=")
    values = [value.strip() for value in rest.split(",")]
    if not name.strip() or not equals or not all(values):
        raise UsageError(f"--compare {asked.compare}: write it as SETTING=VALUE,VALUE, such as checkpoint_completion_target=0.5,0.9")
    if len(values) < 2:
        raise UsageError(f"--compare {asked.compare}: one value cannot be compared; give two or more, such as {name}={values[0]},…")
    return tuple(f"{value}:{name.strip()}={value}" for value in values)


def _every(asked: StorageRequest) -> float:
    every = parse_seconds(asked.checkpoint_every) if asked.checkpoint_every else EVERY
    if not 30 <= every <= 86400:
        raise UsageError(
            f"--checkpoint-every {every:g} s: checkpoint_timeout is between 30 s and a day; for shorter ones let WAL bring them about, "
            "such as by --set max_wal_size=64MB"
        )
    return every


def _devices(node: Node, options: StorageOptions) -> list[str]:
    """On which devices data and WAL of every arm will lie, as far as that is known before they are there."""
    said: dict[str, list[str]] = {}
    for arm in options.arms:
        said.setdefault(_where(node, DensityOptions.model_validate(arm.options)), []).append(arm.name)
    return [sentence if len(said) == 1 else f"{', '.join(names)}: {sentence}" for sentence, names in said.items()]


def _where(node: Node, one: DensityOptions) -> str:
    """The sentence of one arm."""
    volumes = {volume.name: volume for volume in one.all_volumes}
    data = volumes.get(one.all_roles.get("data", ""))
    wal = volumes.get(one.all_roles.get("wal", ""), data)
    spaces = [volumes[name] for name in one.tablespaces]
    with_wal, wal_name = [volume for volume in (data, *spaces) if _one_device(node, volume, wal)], _device(node, wal)
    told = f"; tables and indexes on {', '.join(dict.fromkeys(_device(node, space) for space in spaces))}" if spaces else ""
    if not with_wal:
        return f"Data on {_device(node, data)}, WAL on {wal_name}{told}."
    if data in with_wal:
        what, where = "data and WAL", f"{wal_name}{told}"
    else:
        what, where = "WAL and a tablespace", f"{wal_name}; data on {_device(node, data)}{told}"
    return (
        f"Warning: {what} lie on one device ({where}): what each of them does to it is not told apart; name another place with "
        "--wal-dir DIR or --wal-on."
    )


def _one_device(node: Node, one: Volume | None, other: Volume | None) -> bool:
    """Whether two volumes (None: where servers lie without one) are one, or directories on one device."""
    directories = all(volume is None or volume.kind == "directory" for volume in (one, other))
    return one == other or (directories and _device(node, one) == _device(node, other))


def _device(node: Node, volume: Volume | None) -> str:
    """The device of a volume, or of where servers lie without one."""
    if volume is not None and volume.kind == "loop":
        return f"loop device '{volume.name}'"
    if volume is not None and volume.kind == "device":
        return str(volume.path)
    cache = paths.cache_dir()
    place = str(next(path for path in (cache, *cache.parents) if path.exists()) if volume is None else volume.path)
    found = block_devices.devices_of(node, [place])
    return found[place].name if place in found else "no block device that is visible"
