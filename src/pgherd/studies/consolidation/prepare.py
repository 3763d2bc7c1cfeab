"""Completion of a consolidation request: scale and memory of the databases, the plan of clients, swap and the balloon.

The dry-run output of the study is here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import settings as server_settings
from pgherd.postgres.huge_pages import require_no_huge_pages
from pgherd.postgres.settings import SettingRow
from pgherd.prepare import guests, hosts, servers
from pgherd.prepare.balloon import BalloonChoice, choose_balloon
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.guests import budget_for
from pgherd.prepare.hosts import Containers, choose_cpu, choose_memory, choose_swap, complete_limits, with_swap
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.volumes import disk_space
from pgherd.runtimes import balloon_controller
from pgherd.runtimes.balloon_controller import moves
from pgherd.runtimes.balloon_manager import entitlement_of
from pgherd.runtimes.vm.qemu import MIN_MEMORY_BYTES
from pgherd.studies.consolidation import load_patterns
from pgherd.studies.consolidation.options import (
    BALLOON,
    DEDICATED,
    E4_LAYOUTS,
    LAYOUTS,
    ONE_SERVER,
    SHARED_CONTAINER,
    SHARED_DATABASE,
    ConsolidationOptions,
    ConsolidationRequest,
    Layout,
)
from pgherd.studies.consolidation.propose import deploy, points, shared_buffers
from pgherd.workloads.registry import find

_MB, _GB = 2**20, 2**30
DEFAULT_MEMORY = _GB
"""Default memory of each database. With 75 % of it in shared buffers, 30 clients still fit into the rest."""
DATABASE_SHARE = 0.75
"""Default size of a database as a share of its memory. E4 has 3 GB in 4 GB."""
HOST_RATIO = 11 / 8
"""Default memory of the host as a multiple of the configured memory. E4 has 8 GB configured on 12 GB, of which an idle container takes
1 GB."""
CPU_SHARE = 0.75
"""Default share of the host's cores for the containers of all databases. E4 has 2 × 3 vCPUs on 8 cores, and the rest is for clients."""
PERIOD_LENGTH_S = 8.0
E4: dict[str, Any] = {
    "databases": 2,
    "host_cores": 8.0,
    "host_memory": "11GB",
    "vcpus": 3.0,
    "memory": "4GB",
    "scale": 30,
    "busy_clients": 30,
    "quiet_clients": 2,
    "periods": 4,
    "period_length": "10m",
    "warmup": "40s",
    "schemes": E4_LAYOUTS,
    "shared_buffers_percent": (25, 75),
}
"""The set-up of E4. Its host has 12 GB, of which an idle container takes 1 GB."""
PRESETS: dict[str, dict[str, Any]] = {
    "E4": E4,
    "E5": E4 | {"overcommit": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55), "overcommit_by": "mlock"},
    "E6": E4 | {"overcommit": (0.0, 0.3), "overcommit_by": "mlock"},
}

# Memory that cannot be reclaimed: the idle processes of a server, and the private pages of a backend.
_MIN_SERVER_BYTES, _MIN_BACKEND_BYTES = 12 * _MB, _MB


def prepare(node: Node, request: ConsolidationRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    request = _with_preset(request)
    databases = request.databases or 2
    plan, busy, quiet = _load(request, databases)
    layouts, buffers, levels = _layouts(request.schemes), _percents(request.shared_buffers_percent), _levels(request.overcommit)
    with prepare_databases(node, request, dry) as preparation:
        workspace, facts, runtime = preparation.workspace, preparation.facts, preparation.runtime
        policy = None if preparation.guests is None else preparation.guests.policy
        servers.require_own(preparation.servers.external, "consolidation compares containers that it makes itself")
        scale, share, about_share = _scale_and_memory(request, databases, facts.memory_available, policy)
        load = replace(preparation.load, scale=scale)
        host = preparation.share
        cpu = choose_cpu(preparation.containers, CPU_SHARE * host.cores / databases)
        if any(name.partition("=")[0].strip().lower() == "shared_buffers" for name in request.set):
            raise UsageError("--set shared_buffers: consolidation varies this setting; give --shared-buffers-percent instead")
        minimum = databases * share if policy is None else budget_for(databases, share, policy.overhead)
        _require_budget(host.memory, databases, share, minimum)
        if request.host_memory is None:
            # At most the share of E4, because memory that is withheld in a trial may have to be locked, and other runs may need the rest.
            host = replace(host, memory=min(host.memory, max(int(databases * share * HOST_RATIO), minimum)))
        preparation = replace(preparation, load=load, containers=replace(preparation.containers, share=host))
        limited = runtime == "cgroup" or (policy is not None and guests.in_groups(node, workspace.journal, facts))
        if not limited:
            _require_limits_unused(preparation.containers, request.swap, any(levels))
        size = servers.database_size(workspace, preparation.servers, load)
        # Layouts with one server have a template each, with all databases. The other layouts use a template with one database.
        copies = sum(databases for layout in layouts if layout in ONE_SERVER) + (not set(layouts) <= set(ONE_SERVER))
        copies *= 2 if policy is not None else 1  # a disk image of each template is built too
        settings = servers.choose_settings(
            workspace,
            preparation.servers,
            size.bytes,
            load_patterns.max_connections(plan),
            None,
            cached=False,
        )
        require_no_huge_pages(settings.settings)
        balloon = BalloonChoice()
        if BALLOON in layouts:
            balloon = choose_balloon(workspace, preparation.servers.usable, settings.settings, f"layout {BALLOON}")
        if balloon.unavailable and set(layouts) == {BALLOON}:
            raise CapabilityError(f"layout {BALLOON} is not available: {balloon.unavailable}")
        memory = share if limited or policy is not None else None
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        swap, about_swap = None, list[str]()
        if limited:
            swap, about_swap = choose_swap(
                node,
                request,
                size=databases * share,
                overcommitted=any(levels),
                cache=workspace.cache,
                facts=facts,
                budget=host.memory,
            )
        options = ConsolidationOptions(
            **database_options(preparation, limits, size, settings),
            databases=databases,
            schemes=layouts,
            unavailable={BALLOON: balloon.unavailable} if balloon.unavailable else {},
            shared_buffers_percent=buffers,
            overcommit=levels,
            share=share,
            busy_clients=busy,
            quiet_clients=quiet,
            pattern=request.pattern,
            plan=plan,
            repeats=request.repeats or 1,
            duration=PERIOD_LENGTH_S if request.period_length is None else request.period_length,
            warmup=request.warmup,
            threads=request.threads or 1,
            swap=swap,
            overcommit_by=request.overcommit_by,
            balloon=balloon.settings,
            working_set_size=request.working_set_size,
        )
        options = options.model_copy(update={"max_reruns": max(2, len(points(options)) * options.repeats // 8)})
        deployments = [deploy(options, layout, buffers[0], 0.0) for layout in options.runnable]
        contents = {server.databases for deployment in deployments for _, _, server in deployment.servers()}
        disk = disk_space(
            workspace,
            preparation.volumes,
            databases,
            size.bytes,
            writes=not load.read_only,
            settings=settings.settings,
            lower="--databases or --scale",
            templates=copies,
            loaded=preparation.loaded(settings.settings, contents),
        )
        prepared = complete(
            preparation,
            "consolidation",
            options,
            size=size,
            settings=replace(settings, rows=(*settings.rows, _buffers_row(buffers, given=bool(request.shared_buffers_percent)))),
            disk=disk,
            memory=options.configured,
            messages=(
                *about_share,
                *([] if limited or policy is not None else [_warn_of_no_limit(share)]),
                *size.messages,
                *settings.messages,
                *balloon.messages,
                *limits.messages,
                *about_swap,
                *_check_memory(options, policy),
                *(hosts.warn_of_read_ahead(node, facts, str(workspace.directory)) if any(levels) else []),
            ),
        )
    return with_swap(prepared, options.swap)


def _require_limits_unused(containers: Containers, swap: str | None, overcommitted: bool) -> None:
    """Require that no option needs limited memory, on a host without control groups. Raises CapabilityError."""
    choose_memory(containers)
    group = "control groups around the guests" if capabilities_of(containers.runtime).own_kernel else "the cgroup runtime"
    if overcommitted:
        raise CapabilityError(f"--overcommit above 0 needs {group}; 'pgherd doctor' shows what is missing on this host")
    if swap is not None:
        raise CapabilityError(f"--swap {swap} needs {group}: without control groups memory is not limited")


def _warn_of_no_limit(share: int) -> str:
    return (
        f"Warning: without control groups the memory of containers is not limited; shared buffers are sized for {format_bytes(share)} "
        "per database."
    )


def _buffers_row(percents: tuple[int, ...], *, given: bool) -> SettingRow:
    values = f"{'/'.join(f'{percent}' for percent in percents)} % of each server's share of memory"
    return SettingRow("shared_buffers", values, "128MB", "set by --shared-buffers-percent" if given else "as E4")


def _with_preset(request: ConsolidationRequest) -> ConsolidationRequest:
    """Return the request with the values of its preset, if it has one. Options that the user sets override the preset."""
    if request.preset is None:
        return request
    preset = PRESETS[request.preset]
    if load_patterns.is_listed(request.pattern):  # the pattern defines the clients of each period
        preset = {name: value for name, value in preset.items() if name not in ("busy_clients", "quiet_clients", "periods")}
    return ConsolidationRequest.model_validate(preset | {name: getattr(request, name) for name in request.model_fields_set})


def _load(request: ConsolidationRequest, databases: int) -> tuple[load_patterns.Plan, int, int]:
    """Return the clients of each database in each period, those of a busy database, and those of a quiet one."""
    if load_patterns.is_listed(request.pattern):
        for option, value in (("--busy-clients", request.busy_clients), ("--quiet-clients", request.quiet_clients)):
            if value is not None:
                raise UsageError(f"{option} {value} needs a named pattern, but --pattern {request.pattern} lists clients; leave one out")
        plan = load_patterns.client_plan(request.pattern, databases=databases, periods=request.periods, high=0, low=0)
        return plan, *load_patterns.client_range(plan)
    busy, quiet = request.busy_clients or 30, request.quiet_clients or 2
    return load_patterns.client_plan(request.pattern, databases=databases, periods=request.periods, high=busy, low=quiet), busy, quiet


def _layouts(requested: tuple[Layout, ...] | None) -> tuple[Layout, ...]:
    """Return the layouts, in the order of E4's schemes."""
    return tuple(layout for layout in LAYOUTS if layout in (requested or E4_LAYOUTS))


def _percents(requested: tuple[int, ...] | None) -> tuple[int, ...]:
    percents = requested or (25, 75)
    wrong = [percent for percent in percents if not 1 <= percent <= 90]
    if wrong:
        raise UsageError(
            f"--shared-buffers-percent {wrong[0]}: give shared buffers as 1 to 90 % of a server's share of memory, such as 25,75"
        )
    return tuple(sorted(set(percents)))


def _levels(requested: tuple[float, ...] | None) -> tuple[float, ...]:
    """Return the overcommitment levels in ascending order, with the baseline 0."""
    levels = requested or (0.0,)
    wrong = [level for level in levels if not 0 <= level < 1]
    if wrong:
        raise UsageError(
            f"--overcommit {wrong[0]:g}: overcommitment is 1 − available ÷ configured memory, at least 0 and below 1, such as 0.3"
        )
    return tuple(sorted({0.0, *levels}))


def _scale_and_memory(
    request: ConsolidationRequest, databases: int, memory_available: int, policy: VmMemoryPolicy | None
) -> tuple[int, int, list[str]]:
    """Return the scale, each database's memory (bytes), and messages. If one of the two is not given, it follows from the other."""
    size_of = find(request.workload).size_estimate
    messages = []
    if request.memory is not None:
        share: int = request.memory
    else:
        free = request.host_memory if request.host_memory is not None else int(memory_available * 0.8)
        needed_share = 0 if request.scale is None else int((size_of(request.scale) or 0) / DATABASE_SHARE)
        limit = free // databases if policy is None else guests.largest_guest(databases, free, policy.overhead)
        share = max(min(DEFAULT_MEMORY, limit), needed_share) // (64 * _MB) * 64 * _MB or 64 * _MB
        messages.append(f"Memory of {format_bytes(share)} for each database; total: {format_bytes(share * databases)}.")
    if request.scale is not None:
        return request.scale, share, messages
    scale = 1
    while (size_of(scale + 1) or share) <= share * DATABASE_SHARE:
        scale += 1
    label = f"Scale {scale} (warehouses)" if request.workload == "orders" else f"Scale {scale}"
    messages.append(f"{label}: about {format_bytes(size_of(scale) or 0)} in each database, of its {format_bytes(share)}.")
    return scale, share, messages


def _require_budget(budget: int, databases: int, share: int, minimum: int) -> None:
    """Require that the configured memory fits into the host's ``budget`` (bytes).

    ``minimum`` is the memory in bytes that all databases need on the host. With guests it includes hypervisors and the reserve.
    """
    if minimum > budget:
        overhead = (
            f" and need {format_bytes(minimum)} with their guests' hypervisors and the reserve" if minimum > databases * share else ""
        )
        raise UsageError(
            f"{databases} databases of {format_bytes(share)} are {format_bytes(databases * share)} of configured memory{overhead}, more "
            f"than the host's budget of {format_bytes(budget)}; lower --memory or --databases, or raise --host-memory. To test less "
            "memory than is configured, use --overcommit"
        )


def _check_memory(options: ConsolidationOptions, policy: VmMemoryPolicy | None) -> list[str]:
    """Require enough memory for each container, and for all servers at the highest overcommitment level.

    Return warnings if the memory may be insufficient.

    Raises:
        UsageError: the memory is certainly insufficient.
    """
    if policy is not None:
        require_guests_fit(options, policy)
    messages = []
    for percent in options.shared_buffers_percent:
        for layout in options.runnable:
            messages += _check_container(options, layout, percent)
    clients = max(sum(period) for period in zip(*options.plan, strict=True))
    servers = 1 if set(options.runnable) <= set(ONE_SERVER) else options.databases
    minimum = servers * _MIN_SERVER_BYTES + clients * _MIN_BACKEND_BYTES
    needed, safe = options.needed(), options.max_safe_overcommit()
    for level in options.overcommit:
        remaining = options.available_memory(level)
        if remaining < minimum:
            raise UsageError(
                f"--overcommit {level:g} leaves {format_bytes(remaining)} of {format_bytes(options.configured)}, but {servers} servers "
                f"with {clients} clients need about {format_bytes(minimum)} even if they cache nothing; lower it, --busy-clients or "
                "--databases, or raise --memory"
            )
        if needed is not None and safe is not None and remaining < needed and level > 0:
            messages.append(
                f"Warning: --overcommit {level:g} leaves {format_bytes(remaining)}, and the working sets need {format_bytes(needed)}: "
                f"above {safe:.0%} every layout has too little memory, and the run measures what that costs."
            )
    if safe is not None and needed is not None:
        messages.append(
            f"Working sets of {format_bytes(needed)} in total leave {format_bytes(options.configured - needed)} of "
            f"{format_bytes(options.configured)} unused: overcommitment is safe up to {safe:.0%}."
        )
    elif any(options.overcommit):
        messages.append(
            "Warning: the maximum safe overcommitment is not known; measure the working sets with 'pgherd working-set', and give them with "
            "--working-set-size."
        )
    if options.swap is not None and options.swap.kind == "none" and any(options.overcommit):
        messages += _warn_of_no_swap(options)
    return messages


def _warn_of_no_swap(options: ConsolidationOptions) -> list[str]:
    if capabilities_of(options.runtime).own_kernel:
        return [
            "Warning: without swap only the balloon can reclaim memory from a guest. If that is not enough, the kernel kills guests, and "
            "these trials measure that. --swap zram or file provides space for their pages."
        ]
    largest = max(options.shared_buffers_percent)
    pinned = largest * options.configured // 100
    over = [level for level in options.overcommit if level > 0 and options.available_memory(level) < pinned]
    if not over:
        return []
    return [
        f"Warning: without swap shared buffers cannot leave memory: at {over[0]:.0%} and {largest} % buffers the "
        "kernel kills servers, and these trials measure that. --swap zram or file provides space for their pages."
    ]


def _check_container(options: ConsolidationOptions, layout: str, percent: int) -> list[str]:
    """Return a warning if a container may be too small for its servers. Raises UsageError if it certainly is."""
    if options.container_memory is None:
        return []
    memory = options.share if layout in DEDICATED else options.configured
    rows = [(row,) for row in options.plan] if layout in DEDICATED else [options.plan]
    clients = max(max(sum(period) for period in zip(*plan, strict=True)) for plan in rows)
    servers = options.databases if layout == SHARED_CONTAINER else 1
    buffers = shared_buffers(options, layout, percent)
    system, usual = (guests.LEAST_SYSTEM, guests.GUEST_SYSTEM) if capabilities_of(options.runtime).own_kernel else (0, 0)
    minimum = servers * (buffers + _MIN_SERVER_BYTES) + clients * _MIN_BACKEND_BYTES + system
    description = f"layout {layout} with {percent} % buffers and {clients} clients"
    if minimum > memory:
        raise UsageError(
            f"{description} needs at least {format_bytes(minimum)} in a container of {format_bytes(memory)}; raise --memory, or lower "
            "--shared-buffers-percent or --busy-clients"
        )
    likely = (
        usual
        + servers * server_settings.memory_needed(buffers, 0)
        + clients * (server_settings.memory_needed(buffers, 1) - server_settings.memory_needed(buffers, 0))
    )
    if likely <= memory:
        return []
    return [
        f"Warning: {description} may need {format_bytes(likely)} when all buffers are in use, but its container has {format_bytes(memory)}."
    ]


# ---- memory of guests


def require_guests_fit(options: ConsolidationOptions, policy: VmMemoryPolicy) -> None:
    """Require that the guests can boot, and that the memory at every overcommitment level covers their guaranteed minimum.

    Raises:
        UsageError: the memory is insufficient. The message names the options to change.
    """
    if options.share < MIN_MEMORY_BYTES:
        raise UsageError(
            f"--memory {format_bytes(options.share)}: a guest needs {format_bytes(MIN_MEMORY_BYTES)} to boot, and its server needs "
            "additional memory; raise --memory"
        )
    for layout in options.runnable:
        for level in options.overcommit:
            remaining = options.available_memory(level)
            entitlements = [entitlement_of(container, policy.overhead) for container in _guests(options, layout)]
            overhead = sum(guest.overhead for guest in entitlements)
            if remaining <= overhead:
                raise UsageError(
                    f"--overcommit {level:g} leaves {format_bytes(remaining)}, but the hypervisors of layout {layout} need "
                    f"{format_bytes(overhead)}; lower it, or raise --memory"
                )
            together, minima = (
                balloon_controller.for_guests(entitlements, remaining, policy.reserve),
                sum(guest.minimum for guest in entitlements),
            )
            if moves(policy.policy) and minima > together:
                raise UsageError(
                    f"--overcommit {level:g} leaves {format_bytes(remaining)}, of which {format_bytes(together)} remain for the guests of "
                    f"layout {layout} after hypervisors and the reserve, but their guaranteed minimum is {format_bytes(minima)}; lower it, "
                    "raise --memory, or use --vm-memory-policy static"
                )


def _memory_of_guest(options: ConsolidationOptions, layout: str, policy: VmMemoryPolicy) -> str:
    """Describe how a layout's guests share memory, such as ``its balloon leaves it at least 1 GB of its 4 GB``."""
    guest = entitlement_of(_guests(options, layout)[0], policy.overhead)
    if moves(policy.policy):
        return f"its balloon leaves it at least {format_bytes(guest.minimum)} of its {format_bytes(guest.memory)}"
    method = "it reports free pages" if policy.policy == "free-page-reporting" else "its balloon keeps its size"
    return f"{method}, and the host compresses or swaps its pages when memory is short"


def _guests(options: ConsolidationOptions, layout: str) -> list[Container]:
    return [container for _, container in deploy(options, layout, options.shared_buffers_percent[0], 0.0).containers()]


# ---- dry run


def plan_lines(options: ConsolidationOptions, trials: Sequence[Trial], guest_memory: VmMemoryPolicy | None = None) -> list[str]:
    """Return the dry-run output: a line for each layout, the memory of the host, and the plan of clients.

    ``guest_memory`` is the memory policy of the guests, if there are any.
    """
    lines = []
    for layout in options.schemes:
        layout_trials = [trial for trial in trials if trial.point["layout"] == layout]
        if layout in options.unavailable:
            lines.append(f"Layout {layout} is not available: {options.unavailable[layout]}.")
        elif layout_trials:
            each = f"; memory of each guest: {_memory_of_guest(options, layout, guest_memory)}" if guest_memory is not None else ""
            lines.append(f"Layout {layout}: {_deployment(layout_trials)}{each}.")
    remaining = [f"{100 * level:g} %: {format_bytes(options.available_memory(level))}" for level in options.overcommit if level > 0]
    limited = "configured" if options.container_memory is not None else "assumed (no limit is enforced)"
    memory = f"Memory: {format_bytes(options.configured)} {limited}, {format_bytes(options.host_memory)} on the host"
    lines.append(memory + (f"; available when overcommitted by {', '.join(remaining)}." if remaining else "."))
    lines.append(
        f"Load: {options.workload} of scale {options.scale} in each database, clients {options.client_placement} the containers: "
        f"{load_patterns.format_plan(options.plan)} in periods of {format_seconds(options.duration)}, "
        f"each after {format_seconds(options.warmup)} of warm-up."
    )
    return lines


def _deployment(trials: Sequence[Trial]) -> str:
    deployment = trials[0].deployment
    containers = [each for _, each in deployment.containers()]
    container = containers[0]
    limits: list[str] = [container.runtime]
    if container.vcpus and container.cpu_mode != "none":
        limits.append(f"{container.vcpus:g} vCPU by {container.cpu_mode}")
    elif container.vcpus and capabilities_of(container.runtime).whole_vcpus:
        limits.append(f"{container.vcpus:g} vCPU")
    if container.memory:
        limits.append(format_bytes(container.memory))
    kind = "guest" if capabilities_of(container.runtime).own_kernel else "container"
    servers, databases = len(container.servers), len(container.servers[0].databases)
    contents = _count(databases, "schema" if trials[0].point["layout"] == SHARED_DATABASE else "database")
    sizes = sorted({server.settings["shared_buffers"] for trial in trials for *_, server in trial.deployment.servers()}, key=_megabytes)
    return (
        f"{_count(len(containers), kind)} ({', '.join(limits)}), in each {_count(servers, 'server')} of PostgreSQL "
        f"{container.servers[0].version} with {contents}; shared_buffers {', '.join(sizes)}"
    )


def _megabytes(text: str) -> int:
    return int(text.removesuffix("MB"))


def _count(number: int, label: str) -> str:
    return f"{number} {label}{'' if number == 1 else 's'}"
