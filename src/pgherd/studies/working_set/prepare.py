"""Completing a working-set request: which sizes of memory and of shared buffers, how long, and what a knee needs of its surroundings."""

from __future__ import annotations

import math
from typing import Any

from pgherd.model.deployment import RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes, parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import configuration
from pgherd.prepare import read_ahead, vm_memory_policy
from pgherd.prepare import swap as prepare_swap
from pgherd.prepare.container_limits import Limits
from pgherd.prepare.database_preparation import Preparation, preparation
from pgherd.prepare.prepared_study import Prepared
from pgherd.runtimes.vm.qemu import LEAST_MEMORY
from pgherd.studies.working_set.options import LEAST_BUFFERS, MB, SCALE, WorkingSetOptions, WorkingSetRequest, least_beside

CLIENTS = (30, 2)
"""As E7."""
POINTS = 6
BUDGET = 265.0
"""Seconds for all trials of a default run; a longer plan gets PER_TRIAL more for each trial than its load, and times SPARE for sizes near
the knees."""
PER_TRIAL = 4.0
SPARE = 1.3
PAPER: dict[str, Any] = {
    "workload": "orders",
    "scale": 30,
    "clients": (30, 2),
    "shared_buffers": "1GB",
    "configured_memory": "4GB",
    "initial_sizes": 8,
    "repeats": 2,
    "duration": "3m",
    "warmup": "1m",
    "time_budget": "10h",
}
"""E7's set-up, for containers in place of virtual machines."""
ROOM = 1.2
"""The largest container has so many times the memory that holds the database beside its shared buffers: a plateau must be seen."""


def prepare(node: Node, asked: WorkingSetRequest, dry: bool) -> Prepared:
    """Complete a working-set request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    asked = _request(asked)
    clients = asked.clients or CLIENTS
    if min(clients) < 1 or len(set(clients)) < len(clients):
        raise UsageError(f"--clients {','.join(map(str, clients))}: give different numbers of clients, each at least 1")
    with preparation(node, asked, dry) as ground:
        if ground.runtime not in ("cgroup", "vm"):
            raise CapabilityError(
                "a working set is measured by limiting a container's memory, which needs the cgroup runtime; 'pgherd doctor' says what "
                "would make it possible here; or use --runtime vm"
            )
        policy = ground.guest_memory
        guest = policy is not None
        ground.choices.extend(_words(asked, ground.facts, guest))
        size = ground.database_bytes()
        most = (ground.memory if policy is None else vm_memory_policy.largest(1, ground.memory, policy.overhead)) // MB
        least = LEAST_MEMORY // MB if guest else 1
        database, buffers = math.ceil(size / MB), _buffers(asked, size)
        selected = ground.settings(size, max(clients), None, cached=False)
        memory_sizes = _memory_sizes(asked, database, buffers, clients, most, ground.runtime)
        buffer_sizes = _buffer_sizes(asked, database, most)
        difference = None if asked.extra_memory is None else _mb(asked.extra_memory, "--extra-memory")
        _insist_made(asked, memory_sizes, buffer_sizes, difference, least)
        swap = _swap(ground, asked, max([*memory_sizes, *buffer_sizes]) * MB)
        ground.choices.extend(_unwarmed(asked, ground.facts, guest, memory_sizes, min(buffers, database)))
        options = WorkingSetOptions(
            **{
                **ground.options(_limits(ground), selected, most * MB if guest else None),
                "precision": asked.precision,
                "state": _state(ground),
            },
            clients=clients,
            sweeps=tuple(dict.fromkeys(asked.vary)),
            buffers=buffers,
            memory_sizes=memory_sizes if "memory" in asked.vary else (),
            buffer_sizes=buffer_sizes if "buffers" in asked.vary else (),
            difference=difference,
            most=most,
            least=least,
            configured=_configured(asked, ground, size, clients),
            database=database,
            refine=not (asked.memory_sizes or asked.shared_buffers_sizes),
            swap=swap,
            threads=asked.threads or max(1, math.ceil(_limits(ground).vcpus)),
            repeats=asked.repeats or 1,
            seconds=parse_seconds(asked.duration or "3s"),
            ramp=parse_seconds(asked.warmup or "0s"),
        )
        ground.choices.append(_plan(options))
        ground.choices.extend(read_ahead.words(node, ground.facts, str(ground.work)))
        if options.budget_seconds is None:
            options = options.model_copy(update={"budget_seconds": _budget(options)})
        largest = max([*options.memory_sizes, *options.buffer_sizes]) * MB
        prepared = ground.prepared("working-set", options, selected, disk=ground.disk(1, size), memory=min(ground.memory, largest))
    return prepare_swap.with_swap(prepared, swap)


def _request(asked: WorkingSetRequest) -> WorkingSetRequest:
    """The request over E7's set-up where that is asked for, with this study's own defaults, and without what it sets itself."""
    if asked.preset is not None:
        asked = WorkingSetRequest.model_validate(PAPER | {name: getattr(asked, name) for name in asked.model_fields_set})
    if any(name.lower() == "shared_buffers" for name in configuration.parse_set(asked.set)):
        raise UsageError("--set shared_buffers: the study varies it; say with --shared-buffers what it is while memory is varied")
    changes: dict[str, object] = {}
    if asked.workload == "random-block" and not asked.script and not asked.init_script:
        changes["update_percent"] = asked.update_percent or 0
        changes["scale"] = asked.scale or SCALE
    return asked.model_copy(update=changes)


def _insist_made(
    asked: WorkingSetRequest, memory_sizes: tuple[int, ...], buffer_sizes: tuple[int, ...], difference: int | None, least: int
) -> None:
    """That no container is asked for which is too small to be made at all (MB); raises UsageError."""
    smallest = {"--memory-sizes": memory_sizes[0]} if "memory" in asked.vary else {}
    if "buffers" in asked.vary and difference is not None:
        smallest["--extra-memory"] = buffer_sizes[0] + difference
    for option, size in smallest.items():
        if size < least:
            raise UsageError(f"{option}: a guest of {size} MB does not come up, it needs {least} MB; give larger ones")


def _words(asked: WorkingSetRequest, facts: HostFacts, guest: bool) -> list[str]:
    """What the reader must know of the load and of swap."""
    said = []
    if asked.workload == "random-block" and not asked.update_percent:
        said.append("Reads only (--update-percent 0): waiting for commits would hide what reading costs.")
    if guest:
        said.append(
            "Guests have no swap: one that is smaller than its server's own memory does not get slow, its kernel ends processes. E7's had "
            "some; sizes that do not live are shown as such."
        )
    elif asked.swap in ("zram", "file"):
        pass  # what is made for the run is said where it is completed
    elif facts.swap and asked.swap is None:
        said.append(
            f"Swap: {format_bytes(facts.swap)}, as this host has it: containers with too little memory swap, which slows them down."
        )
    else:
        said.append(
            f"No swap{'' if asked.swap else ' on this host'}: a container smaller than its server's own memory does not get slow, it is "
            "ended by the kernel. E7's virtual machines had swap (--swap file makes some for the run); sizes that do not live are shown as "
            "such."
        )
    return said


def _unwarmed(asked: WorkingSetRequest, facts: HostFacts, guest: bool, memory_sizes: tuple[int, ...], warmed: int) -> list[str]:
    """That servers which swap cannot well be warmed in less memory than the ``warmed`` MB that are read into shared buffers: containers
    have their size from the start here (why that is slow: pgherd.runner.deploy.budget)."""
    swaps = not guest and (bool(facts.swap) if asked.swap is None else asked.swap != "none")
    if "memory" not in asked.vary or not swaps or memory_sizes[0] >= warmed:
        return []
    return [
        f"Warning: {memory_sizes[0]} MB of memory is less than the {warmed} MB that are read into shared buffers before a trial, and with "
        "swap that may hardly come to an end; give larger --memory-sizes, or lower --shared-buffers."
    ]


def _swap(ground: Preparation, asked: WorkingSetRequest, size: int) -> Swap | None:
    """Swap of the run's own, of ``size`` bytes unless another size is asked for; None where none is asked for: the containers then use
    the host's, if it has any."""
    if asked.swap is not None and ground.runtime == "vm":
        raise UsageError(f"--swap {asked.swap} is for containers under cgroup: of a guest that is alone nothing is swapped; leave it out")
    found, said = prepare_swap.complete(
        ground.node, asked, size=size, overcommitted=False, cache=ground.cache, facts=ground.facts, budget=ground.memory
    )
    ground.choices.extend(said)
    return None if asked.swap is None else found


def _limits(ground: Preparation) -> Limits:
    """The whole host's budget without a quota, unless something else was asked for; a guest has whole vCPUs in any case."""
    if ground.asked.vcpus is None and ground.asked.cpu_mode is None and ground.runtime != "vm":
        return Limits(ground.cores, "none")
    return ground.limits(ground.cores)


def _state(ground: Preparation) -> str:
    """What writes is restored for every trial: its tables grow, and E7's sizes are to see the same database. A guest is booted for every
    trial: a server that is restarted in it would find its files in the guest's page cache."""
    if ground.runtime == "vm":
        if ground.asked.start_state != "fresh" and "start_state" in ground.asked.model_fields_set:
            raise UsageError(
                f"--start-state {ground.asked.start_state} would leave files in a guest's page cache; leave it out: guests are booted anew"
            )
        return "fresh"
    if "start_state" in ground.asked.model_fields_set or ground.read_only:
        return ground.asked.start_state
    if ground.own is not None and ground.own.read_only:
        return "restarted"
    ground.choices.append("The load writes: each trial begins with a fresh copy of the database.")
    return "fresh"


def _mb(text: str, option: str, least: int = 0) -> int:
    size = parse_bytes(text) // MB
    if size < least:
        raise UsageError(f"{option} {text}: sizes count whole MB here, at least {least}")
    return size


def _buffers(asked: WorkingSetRequest, size: int) -> int:
    """Half of the database: the container is then twice its buffers where its memory is short, which is where E7 saw a dip."""
    if asked.shared_buffers is not None:
        return _mb(asked.shared_buffers, "--shared-buffers", 1)
    return max(LEAST_BUFFERS, size // 2 // MB)


def _memory_sizes(
    asked: WorkingSetRequest, database: int, buffers: int, clients: tuple[int, ...], most: int, runtime: RuntimeName
) -> tuple[int, ...]:
    """An even spread from what a server needs to live to what holds the database in its shared buffers and in the page cache, and twice the
    shared buffers."""
    if asked.memory_sizes:
        return _given(asked.memory_sizes, "--memory-sizes", most)
    low = round(buffers * 1.05) + least_beside(min(clients), runtime)
    high = min(most, round(ROOM * (buffers + database)) + least_beside(max(clients), runtime))
    if high < 1.2 * low:
        raise UsageError(
            f"containers from {low} to {high} MB are no range to find a knee in: the host's budget is {most} MB and shared buffers are "
            f"{buffers} MB; raise --host-memory, or lower --shared-buffers or --scale"
        )
    sizes = _spread(low, high, asked.initial_sizes or POINTS)
    half = 2 * buffers
    if low < half < high and all(abs(size - half) > 0.05 * half for size in sizes):
        sizes = tuple(sorted({*sizes, half}))
    return sizes


def _buffer_sizes(asked: WorkingSetRequest, database: int, most: int) -> tuple[int, ...]:
    """From an eighth of the database to a quarter more than it; each by the same factor larger than the one before."""
    if asked.shared_buffers_sizes:
        return _given(asked.shared_buffers_sizes, "--shared-buffers-sizes", most)
    low, high = max(LEAST_BUFFERS, database // 8), min(most, max(round(1.25 * database), 4 * LEAST_BUFFERS))
    points = asked.initial_sizes or POINTS
    return tuple(sorted({round(low * (high / low) ** (index / (points - 1))) for index in range(points)}))


def _spread(low: int, high: int, points: int) -> tuple[int, ...]:
    return tuple(sorted({round(low + (high - low) * index / (points - 1)) for index in range(points)}))


def _given(texts: tuple[str, ...], option: str, most: int) -> tuple[int, ...]:
    sizes = tuple(sorted({_mb(text, option, 1) for text in texts}))
    if sizes[-1] > most:
        raise UsageError(f"{option}: {sizes[-1]} MB is more than the run may use ({most} MB); raise --host-memory, or lower it")
    return sizes


def _configured(asked: WorkingSetRequest, ground: Preparation, size: int, clients: tuple[int, ...]) -> int:
    """What each database would be given: enough to hold it whole in shared buffers, unless something else was said."""
    if asked.configured_memory is not None:
        return _mb(asked.configured_memory, "--configured-memory", 1)
    whole = ground.memory_needed(size, max(clients)) // MB
    ground.choices.append(
        f"Headroom is counted against {whole} MB for each database, which hold it in shared buffers; say --configured-memory."
    )
    return whole


def _plan(options: WorkingSetOptions) -> str:
    parts = []
    if options.memory_sizes:
        parts.append(
            f"container memory from {options.memory_sizes[0]} to {options.memory_sizes[-1]} MB with shared_buffers of {options.buffers} MB"
        )
    if options.buffer_sizes:
        beyond = "what the first sweep says" if options.difference is None else f"{options.difference} MB"
        parts.append(
            f"shared_buffers from {options.buffer_sizes[0]} to {options.buffer_sizes[-1]} MB in containers that are larger by {beyond}"
        )
    return f"Sweeps: {'; '.join(parts)}."


def _budget(options: WorkingSetOptions) -> float:
    trials = sum(len(options.sizes(sweep)) for sweep in options.sweeps) * len(options.clients) * options.repeats
    return max(BUDGET, trials * (options.seconds + options.ramp + PER_TRIAL) * SPARE)
