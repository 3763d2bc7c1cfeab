"""Completion of a density request: databases, limits, points, load and durations."""

from __future__ import annotations

import math

from pgherd.analysis.stability import LEAST_WINDOWS
from pgherd.model.capabilities import capabilities_of
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes, format_seconds, parse_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import host_share, vm_memory_policy
from pgherd.prepare.container_limits import Limits
from pgherd.prepare.database_preparation import Preparation, preparation
from pgherd.prepare.prepared_study import Prepared
from pgherd.runtimes.balloon_law import moves
from pgherd.studies.density.options import E1_VCPUS, SMALL_HOST_CORES, SOAK_WINDOW, DensityOptions, DensityRequest, choose_points
from pgherd.studies.density.propose import planned
from pgherd.study.database_options import DEFAULT_BUDGET

E1_MEMORY = 8 * 2**30
_ROUND = 64 * 2**20
_LARGER = 1.5
"""Recommended size of a database that does not fit into memory, as a multiple of the memory."""


def prepare(node: Node, request: DensityRequest, dry: bool) -> Prepared:
    """Complete a density request for this host; see ``prepare.registry.prepare`` for what it raises."""
    with preparation(node, request, dry) as ground:
        if request.databases != (1,):
            ground.require_own(
                "density creates databases on this host, and none on an external server; use 'pgherd scaling' or 'pgherd compare' to "
                "load an existing database"
            )
        # Default vCPUs of a database: four as in E1, or an eighth of a small host.
        smallest = host_share.smallest(request, ground.cores)
        limits = ground.limits(E1_VCPUS if smallest >= SMALL_HOST_CORES else smallest / 8)
        clients = request.clients or max(2, round(2 * limits.vcpus))
        threads = request.threads or max(1, min(clients, math.ceil(limits.vcpus)))
        soak = _soak_seconds(request)
        if threads > clients:
            raise UsageError(f"--threads {threads} is more than --clients {clients}; pgbench needs at least one client per thread")
        size = ground.database_bytes()
        cached = request.bound_by == "cpu"
        need = ground.memory_needed(size, clients, cached=cached)
        points, memory, max_databases = _points_and_memory(ground, request, limits, need)
        disk = ground.disk(max(points), size, "--scale" if request.databases == (1,) else "--databases or --scale")
        selected = ground.settings(size, clients, memory, cached=cached)
        if not cached:
            ground.choices.extend(_cached_warnings(ground, size, memory))
        options = DensityOptions(
            **ground.options(limits, selected, memory),
            clients=clients,
            threads=threads,
            databases=points,
            max_databases_in_memory=max_databases,
            over=request.over,
            placement=request.placement,
            repeats=request.repeats,
            single_database_repeats=request.repeats + 2,
            seconds=parse_seconds(request.duration),
            ramp=parse_seconds(request.warmup),
            efficiency=request.efficiency,
            bound_by=request.bound_by,
            soak_seconds=soak,
        )
        if options.budget_seconds is None and options.soak_seconds is None:
            under_load = sum(trial.seconds() for trial in planned(options))
            options = options.model_copy(update={"budget_seconds": max(DEFAULT_BUDGET, under_load * 1.15)})
        return ground.prepared("density", options, selected, disk=disk, memory=(memory or need) * max(points))


def _cached_warnings(ground: Preparation, size: int, memory: int | None) -> list[str]:
    """Return a warning if databases of an I/O-bound run fit into memory.

    ``size`` is the size of a database and ``memory`` that of a container, in bytes. Without a limit (None) a single database can use the
    page cache of the whole host.
    """
    available, owner = (ground.facts.memory, "this host's") if memory is None else (memory, "its container's")
    if size > available:
        return []
    larger = "a larger database" if ground.asked.init_script else f"--scale {math.ceil(_LARGER * available * ground.scale / size)} or more"
    return [
        f"Warning: a database of {format_bytes(size)} fits into {owner} memory of {format_bytes(available)}. There are almost no "
        f"disk reads, and the trials are not I/O-bound; give {larger}, or lower --memory."
    ]


def _soak_seconds(request: DensityRequest) -> float | None:
    """Return the duration of the soak in seconds, or None. Raises UsageError if it is too short to judge stability."""
    if request.soak is None:
        return None
    seconds = parse_seconds(request.soak)
    if seconds < LEAST_WINDOWS * SOAK_WINDOW:
        window, minimum = format_seconds(SOAK_WINDOW), format_seconds(LEAST_WINDOWS * SOAK_WINDOW)
        raise UsageError(
            f"--soak {request.soak} is too short: stability is judged over at least {LEAST_WINDOWS} windows of {window}; give at "
            f"least {minimum}"
        )
    return seconds


def _points_and_memory(
    ground: Preparation, request: DensityRequest, limits: Limits, need: int
) -> tuple[tuple[int, ...], int | None, int | None]:
    """Return the numbers of databases, the memory limit of each container, and the number of databases that fit into memory.

    Raises:
        UsageError: the user requests a number below 1, or more databases than fit into memory.
        CapabilityError: not even one database fits into memory.
    """
    if ground.theirs is not None:
        return (1,), None, None
    limit_each, budget = ground.container_memory(), ground.memory
    overhead = _hypervisor(ground)
    limit = host_share.holds(request, budget, (limit_each or need) + overhead)
    requested = tuple(sorted(set(request.databases))) if request.databases else None
    if requested is not None:
        if requested[0] < 1:
            raise UsageError(f"--databases {requested[0]}: the minimum is 1")
        if limit < 1:  # fewer databases would not help, and a variant of a comparison has only one
            raise UsageError(f"{_too_large(limit_each or need, overhead, budget)}; lower --scale or --memory, or raise --host-memory")
        if requested[-1] > limit:
            raise UsageError(
                f"--databases {requested[-1]}: {requested[-1]} databases of {_size(limit_each or need, overhead)} exceed the host's memory "
                f"budget of {format_bytes(budget)}, which holds {limit}; lower --databases, --scale or --memory, or raise --host-memory"
            )
    if limit < 1:
        raise CapabilityError(_too_large(limit_each or need, overhead, budget))
    points = requested or choose_points(ground.cores, limits.vcpus, limit=limit)
    if not capabilities_of(ground.runtime).memory_limit or limit_each is not None:
        return points, limit_each, limit
    policy, largest = ground.guest_memory, max(points)
    each = (
        host_share.share(request, budget, largest, limits.vcpus)
        if policy is None
        else vm_memory_policy.largest(largest, budget, policy.overhead)
    )
    return points, max(min(E1_MEMORY, each) // _ROUND * _ROUND, need), limit


def _hypervisor(ground: Preparation) -> int:
    """Return the memory overhead of each guest's hypervisor in bytes. It is 0 without guests, and with a policy that moves balloons."""
    policy = ground.guest_memory
    return 0 if policy is None or moves(policy.policy) else policy.overhead


def _size(size: int, overhead: int) -> str:
    return format_bytes(size) + (f" and {format_bytes(overhead)} for its QEMU" if overhead else "")


def _too_large(size: int, overhead: int, budget: int) -> str:
    return f"one database needs {_size(size, overhead)}, but the host's memory budget is {format_bytes(budget)}"
