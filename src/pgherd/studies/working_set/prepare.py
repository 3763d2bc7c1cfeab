"""Completion of a working-set request: sizes of memory and of shared buffers, durations, swap and start state."""

from __future__ import annotations

import math
from typing import Any

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.model.units import Size, format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import configuration
from pgherd.postgres.huge_pages import require_no_huge_pages
from pgherd.prepare import hosts, servers
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.guests import largest_guest
from pgherd.prepare.hosts import ContainerCpu, Containers, choose_cpu, choose_swap, complete_limits, with_swap
from pgherd.prepare.load import DatabaseLoad
from pgherd.prepare.prepared_study import PreparedStudy, Workspace
from pgherd.prepare.volumes import disk_space
from pgherd.runtimes.vm.qemu import MIN_MEMORY_BYTES
from pgherd.studies.working_set.options import (
    DEFAULT_SCALE,
    MB,
    MIN_SHARED_BUFFERS_MB,
    SWEEPS,
    WorkingSetOptions,
    WorkingSetRequest,
    min_extra_memory,
)

CLIENTS = (30, 2)
"""Default numbers of clients, as in E7."""
INITIAL_SIZES = 6
MIN_BUDGET_S = 265.0
"""Time budget in seconds of a default run. A longer plan gets PER_TRIAL_S seconds for each trial in addition to its load. The sum is
multiplied by BUDGET_FACTOR, for additional sizes near the knees."""
PER_TRIAL_S = 4.0
BUDGET_FACTOR = 1.3
PRESET_E7: dict[str, Any] = {
    "workload": "orders",
    "scale": 30,
    "clients": (30, 2),
    "shared_buffers": "1GB",
    "configured_memory": "4GB",
    "initial_sizes": 8,
    "min_repeats": 2,
    "duration": "3m",
    "warmup": "1m",
    "time_budget": "10h",
}
"""The set-up of E7, with containers instead of virtual machines."""
MAX_SIZE_FACTOR = 1.2
"""Size of the largest container, as a multiple of the database plus shared buffers. The curve must include its plateau."""


def prepare(node: Node, request: WorkingSetRequest, dry: bool) -> PreparedStudy:
    """Complete a working-set request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    request = _with_preset(request)
    clients = request.clients or CLIENTS
    if min(clients) < 1 or len(set(clients)) < len(clients):
        raise UsageError(f"--clients {','.join(map(str, clients))}: give different numbers of clients, each at least 1")
    with prepare_databases(node, request, dry) as preparation:
        facts, share, runtime, load = preparation.facts, preparation.share, preparation.runtime, preparation.load
        workspace, guest = preparation.workspace, preparation.guests is not None
        if not capabilities_of(runtime).memory_limit:
            raise CapabilityError(
                "a working set is measured by limiting a container's memory, which needs the cgroup runtime; 'pgherd doctor' shows what "
                "is missing on this host; or use --runtime vm"
            )
        notes = _notes(request, facts, guest)
        size = servers.database_size(workspace, preparation.servers, load)
        guests = preparation.guests
        maximum = (share.memory if guests is None else largest_guest(1, share.memory, guests.policy.overhead)) // MB
        minimum = MIN_MEMORY_BYTES // MB if guest else 1
        database, buffers = math.ceil(size.bytes / MB), _buffers(request.shared_buffers, size.bytes)
        settings = servers.choose_settings(workspace, preparation.servers, size.bytes, max(clients), None, cached=False)
        require_no_huge_pages(settings.settings)
        memory_sizes = _memory_sizes(request, database, buffers, clients, maximum, runtime)
        extra_memory = None if request.extra_memory is None else _mb(request.extra_memory, "--extra-memory")
        buffer_sizes = _buffer_sizes(request, database, maximum, extra_memory or 0) if "shared-buffers" in request.vary else ()
        _require_bootable(request, memory_sizes, buffer_sizes, extra_memory, minimum)
        with_buffers = [each + (extra_memory or 0) for each in buffer_sizes]
        swap, about_swap = _swap(workspace, request, max([*memory_sizes, *with_buffers]) * MB, runtime, facts, share.memory)
        unwarmed = _warn_of_unwarmed(request, facts, guest, memory_sizes, min(buffers, database))
        cpu = _cpu(preparation.containers)
        limits = complete_limits(cpu, maximum * MB if guest else None, runtime, settings.settings, settings.huge_pages)
        state, about_state = _start_state(request, load, runtime)
        whole = servers.memory_needed(preparation.servers, runtime, size.bytes, max(clients)) // MB
        configured, about_configured = _configured(request.configured_memory, whole)
        options = WorkingSetOptions(
            **{**database_options(preparation, limits, size, settings), "precision": request.precision, "start_state": state},
            clients=clients,
            vary=tuple(sweep for sweep in SWEEPS if sweep in request.vary),
            shared_buffers=buffers,
            memory_sizes=memory_sizes if "memory" in request.vary else (),
            shared_buffers_sizes=buffer_sizes,
            extra_memory=extra_memory,
            max_container=maximum,
            min_container=minimum,
            configured_memory=configured,
            database_size=database,
            refine=request.adds_sizes,
            swap=swap,
            threads=request.threads or max(1, math.ceil(cpu.vcpus)),
            repeats=request.planned_repeats(1),
            fixed_repeats=request.repeats is not None,
            duration=request.duration,
            warmup=request.warmup,
        )
        if options.time_budget is None:
            options = options.model_copy(update={"time_budget": _budget(options)})
        disk = disk_space(
            workspace,
            preparation.volumes,
            1,
            size.bytes,
            writes=not load.read_only,
            settings=settings.settings,
            loaded=preparation.loaded(settings.settings),
        )
        prepared = complete(
            preparation,
            "working-set",
            options,
            size=size,
            settings=settings,
            disk=disk,
            memory=min(share.memory, max([*options.memory_sizes, *with_buffers]) * MB),
            messages=(
                *notes,
                *size.messages,
                *settings.messages,
                *about_swap,
                *unwarmed,
                *_warn_of_flat_curve(request, memory_sizes, buffers, database),
                *limits.messages,
                *about_state,
                *about_configured,
                _plan(options),
                *hosts.warn_of_read_ahead(node, facts, str(workspace.directory)),
            ),
        )
    return with_swap(prepared, swap)


def _with_preset(request: WorkingSetRequest) -> WorkingSetRequest:
    """Return the request with the values of its preset, if it has one, and with the defaults of this study.

    Raises:
        UsageError: the user sets shared_buffers, which the study varies.
    """
    if request.preset is not None:
        preset = {name: value for name, value in PRESET_E7.items() if name != "min_repeats" or request.repeats is None}
        request = WorkingSetRequest.model_validate(preset | {name: getattr(request, name) for name in request.model_fields_set})
    if any(name.lower() == "shared_buffers" for name in configuration.parse_set(request.set)):
        raise UsageError("--set shared_buffers: the study varies this setting; set its value for the memory sweep with --shared-buffers")
    changes: dict[str, object] = {}
    if request.workload == "random-block" and not request.script and not request.init_script:
        changes["update_percent"] = request.update_percent or 0
        changes["scale"] = request.scale or DEFAULT_SCALE
    return request.model_copy(update=changes)


def _require_bootable(
    request: WorkingSetRequest, memory_sizes: tuple[int, ...], buffer_sizes: tuple[int, ...], extra_memory: int | None, minimum: int
) -> None:
    """Require that the smallest container can be created. Sizes are in MB. Raises UsageError if it cannot."""
    smallest = {"--memory-sizes": memory_sizes[0]} if "memory" in request.vary else {}
    if "shared-buffers" in request.vary and extra_memory is not None:
        smallest["--extra-memory"] = buffer_sizes[0] + extra_memory
    for option, size in smallest.items():
        if size < minimum:
            raise UsageError(f"{option}: a guest of {size} MB cannot boot, because it needs at least {minimum} MB; give larger sizes")


def _notes(request: WorkingSetRequest, facts: HostFacts, guest: bool) -> list[str]:
    """Return notes on the load and on swap."""
    notes = []
    if request.workload == "random-block" and not request.update_percent:
        notes.append("Reads only (--update-percent 0): commit waits would hide the cost of reads.")
    if guest:
        notes.append(
            "Guests have no swap. In a guest that is smaller than the memory of its server, the kernel kills processes. The guests of E7 "
            "had swap. Sizes that run out of memory are marked."
        )
    elif request.swap in ("zram", "file"):
        pass  # choose_swap adds a note on the swap that pgherd creates
    elif facts.swap and request.swap is None:
        notes.append(f"Swap: {format_bytes(facts.swap)} of this host. Containers with too little memory swap, and become slower.")
    else:
        notes.append(
            f"No swap{'' if request.swap else ' on this host'}: the kernel kills a container that is smaller than the memory of its "
            "server. The virtual machines of E7 had swap (--swap file creates it for the run). Sizes that run out of memory are marked."
        )
    return notes


def _warn_of_unwarmed(request: WorkingSetRequest, facts: HostFacts, guest: bool, memory_sizes: tuple[int, ...], warmed: int) -> list[str]:
    """Return a warning if the smallest container is too small to warm its server.

    The server reads ``warmed`` MB into shared buffers before a trial. Containers have their final size from the start, so that this
    swaps (pgherd.runner.deploy.memory_budget explains why it is slow).
    """
    swaps = not guest and (bool(facts.swap) if request.swap is None else request.swap != "none")
    if "memory" not in request.vary or not swaps or memory_sizes[0] >= warmed:
        return []
    return [
        f"Warning: {memory_sizes[0]} MB of memory is less than the {warmed} MB that are read into shared buffers before a trial. With "
        "swap this can take very long; give larger --memory-sizes, or lower --shared-buffers."
    ]


def _warn_of_flat_curve(request: WorkingSetRequest, memory_sizes: tuple[int, ...], buffers: int, database: int) -> list[str]:
    """Return a warning if shared buffers hold the database (both in MB) in every container of the memory sweep."""
    if "memory" not in request.vary or buffers < database or memory_sizes[0] < database:
        return []
    return [
        f"Warning: shared buffers of {buffers} MB hold the whole database of {database} MB, so that the curve of container memory is flat; "
        "lower --shared-buffers, or use a larger database."
    ]


def _swap(
    workspace: Workspace, request: WorkingSetRequest, size: int, runtime: RuntimeName, facts: HostFacts, budget: int
) -> tuple[Swap | None, list[str]]:
    """Return the swap to create for the run (None: the user requests none), and messages.

    ``size`` is the default size in bytes. Without swap of the run, the containers use the swap of the host, if it has any.
    """
    if request.swap is not None and capabilities_of(runtime).own_kernel:
        raise UsageError(
            f"--swap {request.swap} applies only to the cgroup runtime: the host swaps nothing of a single guest; leave --swap out"
        )
    swap, messages = choose_swap(workspace.node, request, size=size, overcommitted=False, cache=workspace.cache, facts=facts, budget=budget)
    return None if request.swap is None else swap, messages


def _cpu(containers: Containers) -> ContainerCpu:
    """Return the CPU limit of the server.

    The default is all cores of the host's share without a quota. Guests always have a whole number of vCPUs.
    """
    if containers.vcpus is None and containers.cpu_mode is None and not capabilities_of(containers.runtime).whole_vcpus:
        return ContainerCpu(containers.share.cores, "none")
    return choose_cpu(containers, containers.share.cores)


def _start_state(request: WorkingSetRequest, load: DatabaseLoad, runtime: RuntimeName) -> tuple[State, list[str]]:
    """Return the start state of the servers, and a message if the load determines it.

    The database of a load that writes is restored for every trial. Otherwise its tables would grow, and each size would measure a
    different database. A guest boots for every trial, because a restarted server would find its files in the guest's page cache.
    """
    if capabilities_of(runtime).own_kernel:
        if request.start_state != "fresh" and "start_state" in request.model_fields_set:
            raise UsageError(
                f"--start-state {request.start_state} would leave files in a guest's page cache; leave it out, so that guests reboot"
            )
        return "fresh", []
    if "start_state" in request.model_fields_set or load.read_only:
        return request.start_state, []
    if load.mix is not None and load.mix.read_only:
        return "restarted", []
    return "fresh", ["The load writes: each trial starts with a fresh copy of the database."]


def _mb(given: Size, option: str, minimum: int = 0) -> int:
    size = given // MB
    if size < minimum:
        raise UsageError(f"{option} {given}: give a whole number of MB, at least {minimum}")
    return size


def _buffers(requested: Size | None, size: int) -> int:
    """Return shared buffers in MB. The default is half of the database.

    A container of twice its shared buffers is then short of memory. E7 shows the double-buffering dip at that size.
    """
    if requested is not None:
        return _mb(requested, "--shared-buffers", 1)
    return max(MIN_SHARED_BUFFERS_MB, size // 2 // MB)


def _memory_sizes(
    request: WorkingSetRequest, database: int, buffers: int, clients: tuple[int, ...], maximum: int, runtime: RuntimeName
) -> tuple[int, ...]:
    """Return the container sizes in MB, evenly spaced.

    The smallest one is the minimum of a running server. The largest one holds the database both in shared buffers and in the page
    cache. Twice the shared buffers is always included, because the double-buffering dip is there.
    """
    if request.memory_sizes:
        return _given(request.memory_sizes, "--memory-sizes", maximum, 0)
    low = round(buffers * 1.05) + min_extra_memory(min(clients), runtime)
    high = min(maximum, round(MAX_SIZE_FACTOR * (buffers + database)) + min_extra_memory(max(clients), runtime))
    if high < 1.2 * low:
        raise UsageError(
            f"containers from {low} to {high} MB are too small a range for a knee: the host's budget is {maximum} MB and shared buffers "
            f"are {buffers} MB; raise --host-memory, or lower --shared-buffers or --scale"
        )
    sizes = _spread(low, high, request.initial_sizes or INITIAL_SIZES)
    dip = 2 * buffers
    if low < dip < high and all(abs(size - dip) > 0.05 * dip for size in sizes):
        sizes = tuple(sorted({*sizes, dip}))
    return sizes


def _buffer_sizes(request: WorkingSetRequest, database: int, maximum: int, extra: int) -> tuple[int, ...]:
    """Return the sizes of shared buffers in MB, in a geometric series from 12.5 % to 125 % of the database.

    Containers are larger by ``extra``, which is 0 if it is the result of the first sweep.
    """
    if request.shared_buffers_sizes:
        return _given(request.shared_buffers_sizes, "--shared-buffers-sizes", maximum, extra)
    low, high = max(MIN_SHARED_BUFFERS_MB, database // 8), min(maximum - extra, max(round(1.25 * database), 4 * MIN_SHARED_BUFFERS_MB))
    if high < low:
        raise UsageError(
            f"shared buffers from {low} MB{_with(extra)} are more than the run may use ({maximum} MB); raise --host-memory, or lower "
            "--extra-memory or --scale"
        )
    points = request.initial_sizes or INITIAL_SIZES
    return tuple(sorted({round(low * (high / low) ** (index / (points - 1))) for index in range(points)}))


def _spread(low: int, high: int, count: int) -> tuple[int, ...]:
    return tuple(sorted({round(low + (high - low) * index / (count - 1)) for index in range(count)}))


def _given(requested: tuple[Size, ...], option: str, maximum: int, extra: int) -> tuple[int, ...]:
    sizes = tuple(sorted({_mb(size, option, 1) for size in requested}))
    if sizes[-1] + extra > maximum:
        raise UsageError(
            f"{option}: {sizes[-1]} MB{_with(extra)} is more than the run may use ({maximum} MB); raise --host-memory, or give smaller "
            "sizes"
        )
    return sizes


def _with(extra: int) -> str:
    return f" with --extra-memory of {extra} MB" if extra else ""


def _configured(requested: Size | None, whole: int) -> tuple[int, list[str]]:
    """Return the configured memory of each database in MB, and a message. The default holds the ``whole`` database in shared buffers."""
    if requested is not None:
        return _mb(requested, "--configured-memory", 1), []
    message = f"Headroom is relative to {whole} MB per database, enough to hold it in shared buffers; change this with --configured-memory."
    return whole, [message]


def _plan(options: WorkingSetOptions) -> str:
    parts = []
    if options.memory_sizes:
        parts.append(
            f"container memory from {options.memory_sizes[0]} to {options.memory_sizes[-1]} MB with shared_buffers of "
            f"{options.shared_buffers} MB"
        )
    if options.shared_buffers_sizes:
        extra = "the result of the first sweep" if options.extra_memory is None else f"{options.extra_memory} MB"
        parts.append(
            f"shared_buffers from {options.shared_buffers_sizes[0]} to {options.shared_buffers_sizes[-1]} MB in containers that are larger "
            f"by {extra}"
        )
    return f"Sweeps: {'; '.join(parts)}."


def _budget(options: WorkingSetOptions) -> float:
    trials = sum(len(options.sizes(sweep)) for sweep in options.vary) * len(options.clients) * options.repeats
    return max(MIN_BUDGET_S, trials * (options.duration + options.warmup + PER_TRIAL_S) * BUDGET_FACTOR)
