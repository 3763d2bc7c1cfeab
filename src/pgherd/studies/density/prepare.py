"""Completion of a density request: databases, limits, points, load and durations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgherd.analysis.stability import LEAST_WINDOWS
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import VmMemoryPolicy
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.fleet import FleetServer
from pgherd.model.trial import Trial
from pgherd.model.units import Duration, format_bytes, format_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import servers
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.guests import largest_guest
from pgherd.prepare.hosts import HostShare, choose_cpu, choose_memory, complete_limits
from pgherd.prepare.load import DatabaseLoad
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.volumes import disk_space
from pgherd.runtimes.balloon_controller import moves
from pgherd.studies.density import prepare_tenants
from pgherd.studies.density.objective import choose_sizes, requested_sizes
from pgherd.studies.density.options import (
    E1_VCPUS,
    SOAK_WINDOW,
    DensityOptions,
    DensityRequest,
    choose_points,
    default_clients,
    default_vcpus,
)
from pgherd.studies.density.propose import planned
from pgherd.study.database_options import DEFAULT_BUDGET
from pgherd.study.objectives import describe_search, objective_fields

E1_MEMORY = 8 * 2**30
_ROUND = 64 * 2**20
ONLY_ITS_OWN = (
    "density compares numbers of databases, and creates none on an external server; name several with --dsn or --servers, or use "
    "'pgherd scaling' or 'pgherd compare' for one"
)
FLEET_POINTS = 12
"""Maximum number of points of a list of servers."""
_LARGER = 1.5
"""Recommended size of a database that does not fit into memory, as a multiple of the memory."""


def prepare(node: Node, request: DensityRequest, dry: bool) -> PreparedStudy:
    """Complete a density request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if request.tenants is not None or request.tenants_from is not None:
        return prepare_tenants.prepare(node, request, dry)
    _require_long_enough(request.soak)
    if request.slo and request.soak is not None:
        raise UsageError("--slo and --soak exclude each other: a soak measures one number of databases; give one of them")
    sought = objective_fields(request)
    cached = request.bound_by == "cpu"
    with prepare_databases(node, request, dry, several_servers=request.databases != (1,)) as preparation:
        share, load, runtime, guests = preparation.share, preparation.load, preparation.runtime, preparation.guests
        fleet = preparation.servers.fleet
        if request.databases != (1,) and not fleet:
            servers.require_own(preparation.servers.external, ONLY_ITS_OWN)
        cpu = choose_cpu(preparation.containers, default_vcpus(share.smallest))
        clients, threads = _clients_and_threads(request.clients, request.threads, _capacity(fleet) if fleet else cpu.vcpus)
        size = servers.database_size(preparation.workspace, preparation.servers, load)
        need = servers.memory_needed(preparation.servers, runtime, size.bytes, clients, cached=cached)
        if preparation.servers.external is None:
            limit = choose_memory(preparation.containers)
            policy = None if guests is None else guests.policy
            max_databases = _most_databases(share, limit or need, policy, request.databases)
            if sought:
                given = request.databases
                points = requested_sizes(given) if given else choose_sizes(share.cores, cpu.vcpus, max_databases)
            else:
                points = tuple(sorted(set(request.databases or choose_points(share.cores, cpu.vcpus, request.efficiency, max_databases))))
            memory = limit
            if limit is None and capabilities_of(runtime).memory_limit:
                memory = _equal_memory(share, cpu.vcpus, policy, max(points), need)
        else:
            points, memory, max_databases = _points_of_fleet(request.databases, max(1, len(fleet))), None, None
            points = requested_sizes(request.databases or (len(fleet) or 1,)) if sought else points
        settings = servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, clients, memory, cached=cached)
        disk = disk_space(
            preparation.workspace,
            preparation.volumes,
            share.most_on_one(max(points), preparation.containers.vcpus or 1.0),
            size.bytes,
            writes=not load.read_only,
            settings=settings.settings,
            lower="--scale" if request.databases == (1,) else "--databases or --scale",
            loaded=preparation.loaded(settings.settings),
        )
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        options = DensityOptions(
            **database_options(preparation, limits, size, settings),
            clients=clients,
            threads=threads,
            databases=points,
            max_databases_in_memory=max_databases,
            over=request.over,
            placement=request.placement,
            cpu_nodes=preparation.facts.cpu_nodes[: math.ceil(share.cores)],
            fleet=fleet,
            repeats=request.planned_repeats(3),
            fixed_repeats=request.repeats is not None,
            duration=request.duration,
            warmup=request.warmup,
            efficiency=request.efficiency,
            bound_by=request.bound_by,
            soak_seconds=request.soak,
        ).model_copy(update=sought)
        return complete(
            preparation,
            "density",
            _with_budget(options),
            size=size,
            settings=settings,
            disk=disk,
            memory=(memory or need) * max(points),
            messages=(
                *describe_search(options, f"1 to {max(points)} databases"),
                *size.messages,
                *settings.messages,
                *([] if cached else _warn_if_cached(load, size.bytes, memory, preparation.facts.memory)),
                *limits.messages,
            ),
        )


def plan_lines(options: DensityOptions, trials: Sequence[Trial], guest_memory: object = None) -> list[str]:
    """Return the dry-run output of a mix: its classes. Empty: the general output describes equal databases."""
    return prepare_tenants.plan_lines(options) if options.tenants else []


def _points_of_fleet(requested: tuple[int, ...] | None, servers: int) -> tuple[int, ...]:
    """Return the numbers of listed servers to load: those of ``--databases``, or about twelve from 1 to all of them.

    Raises:
        UsageError: a number is below 1, or more than the servers.
    """
    if requested is None:
        count = min(servers, FLEET_POINTS)
        return tuple(sorted({round(1 + i * (servers - 1) / max(count - 1, 1)) for i in range(count)}))
    if min(requested) < 1 or max(requested) > servers:
        wrong = min(requested) if min(requested) < 1 else max(requested)
        raise UsageError(f"--databases {wrong}: --servers lists {servers}; give numbers from 1 to {servers}")
    return tuple(sorted(set(requested)))


def _capacity(fleet: Sequence[FleetServer]) -> float:
    """Return the mean capacity (cores) of listed servers, or that of E1 if the list does not have all."""
    stated = [server.capacity for server in fleet if server.capacity is not None]
    return sum(stated) / len(stated) if len(stated) == len(fleet) else E1_VCPUS


def _clients_and_threads(clients: int | None, threads: int | None, vcpus: float) -> tuple[int, int]:
    """Return the numbers of clients and of pgbench's threads of each database. Raises UsageError for more threads than clients."""
    clients = clients or default_clients(vcpus)
    threads = threads or max(1, min(clients, math.ceil(vcpus)))
    if threads > clients:
        raise UsageError(f"--threads {threads} is more than --clients {clients}; pgbench needs at least one client per thread")
    return clients, threads


def _with_budget(options: DensityOptions) -> DensityOptions:
    """Set the default time budget, which increases with the number of planned trials. A soak has none."""
    if options.time_budget is not None or options.soak_seconds is not None:
        return options
    under_load = sum(trial.seconds() for trial in planned(options))
    return options.model_copy(update={"time_budget": max(DEFAULT_BUDGET, under_load * 1.15)})


def _warn_if_cached(load: DatabaseLoad, size: int, memory: int | None, host_memory: int) -> list[str]:
    """Return a warning if databases of an I/O-bound run fit into memory.

    ``size`` is the size of a database and ``memory`` that of a container, in bytes. Without a limit (None) a single database can use the
    page cache of the whole host.
    """
    available, owner = (host_memory, "this host's") if memory is None else (memory, "its container's")
    if size > available:
        return []
    larger = "a larger database" if load.init else f"--scale {math.ceil(_LARGER * available * load.scale / size)} or more"
    return [
        f"Warning: a database of {format_bytes(size)} fits into {owner} memory of {format_bytes(available)}. There are almost no "
        f"disk reads, and the trials are not I/O-bound; give {larger}, or lower --memory."
    ]


def _require_long_enough(soak: Duration | None) -> None:
    """Require that a soak is long enough to judge stability. Raises UsageError if it is too short."""
    if soak is not None and soak < LEAST_WINDOWS * SOAK_WINDOW:
        window, minimum = format_seconds(SOAK_WINDOW), format_seconds(LEAST_WINDOWS * SOAK_WINDOW)
        raise UsageError(
            f"--soak {soak} is too short: stability is judged over at least {LEAST_WINDOWS} windows of {window}; give at least {minimum}"
        )


def _most_databases(share: HostShare, each: int, policy: VmMemoryPolicy | None, requested: tuple[int, ...] | None) -> int:
    """Return the number of databases with ``each`` bytes of memory that fit into the share. Require that the requested numbers fit.

    Raises:
        UsageError: the user requests a number below 1, or more databases than fit into memory.
        CapabilityError: not even one database fits into memory.
    """
    # A policy that moves balloons takes the memory of hypervisors from the guests.
    overhead = 0 if policy is None or moves(policy.policy) else policy.overhead
    limit = share.holds(each + overhead)
    if requested:
        if min(requested) < 1:
            raise UsageError(f"--databases {min(requested)}: the minimum is 1")
        if limit < 1:  # fewer databases would not help, and a variant of a comparison has only one
            raise UsageError(f"{_too_large(each, overhead, share.memory)}; lower --scale or --memory, or raise --host-memory")
        if max(requested) > limit:
            raise UsageError(
                f"--databases {max(requested)}: {max(requested)} databases of {_size(each, overhead)} exceed the host's memory "
                f"budget of {format_bytes(share.memory)}, which holds {limit}; lower --databases, --scale or --memory, or raise "
                "--host-memory"
            )
    if limit < 1:
        raise CapabilityError(_too_large(each, overhead, share.memory))
    return limit


def _equal_memory(share: HostShare, vcpus: float, policy: VmMemoryPolicy | None, largest: int, need: int) -> int:
    """Return the default memory limit (bytes) of each of at most ``largest`` containers, whose servers ``need`` so many bytes."""
    each = share.memory_of_each(largest, vcpus) if policy is None else largest_guest(largest, share.memory, policy.overhead)
    return max(min(E1_MEMORY, each) // _ROUND * _ROUND, need)


def _size(size: int, overhead: int) -> str:
    return format_bytes(size) + (f" and {format_bytes(overhead)} for its QEMU" if overhead else "")


def _too_large(size: int, overhead: int, budget: int) -> str:
    return f"one database needs {_size(size, overhead)}, but the host's memory budget is {format_bytes(budget)}"
