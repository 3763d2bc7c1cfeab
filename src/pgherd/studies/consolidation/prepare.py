"""Completion of a consolidation request: scale and memory of the databases, the plan of clients, swap and the balloon."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import GuestMemory, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes, parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import balloon_build, huge_pages
from pgherd.postgres import settings as server_settings
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import Row
from pgherd.prepare import guests, hosts, servers
from pgherd.prepare.containers import Containers, choose_cpu, choose_memory, choose_swap, complete_limits, with_swap
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.guests import budget_for
from pgherd.prepare.load import database_size
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.volumes import disk_space
from pgherd.prepare.workspace import Workspace
from pgherd.studies.consolidation import load_patterns, prepare_guests
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions, ConsolidationRequest
from pgherd.studies.consolidation.propose import points, shared_buffers
from pgherd.workloads.registry import find

_MB, _GB = 2**20, 2**30
SHARE = _GB
"""Default memory of each database. With 75 % of it in shared buffers, 30 clients still fit into the rest."""
DATABASE = 0.75
"""Default size of a database as a share of its memory. E4 has 3 GB in 4 GB."""
HOST = 11 / 8
"""Default memory of the host as a multiple of the configured memory. E4 has 8 GB configured on 12 GB, of which an idle container takes
1 GB."""
CPU = 0.75
"""Default share of the host's cores for the containers of all databases. E4 has 2 × 3 vCPUs on 8 cores, and the rest is for clients."""
PERIOD = "8s"
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
    "schemes": (1, 2, 3, 4),
    "shared_buffers_percent": (25, 75),
}
"""The set-up of E4. Its host has 12 GB, of which an idle container takes 1 GB."""
PAPERS: dict[str, dict[str, Any]] = {
    "E4": E4,
    "E5": E4 | {"overcommit": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55), "overcommit_by": "locked"},
    "E6": E4 | {"overcommit": (0.0, 0.3), "overcommit_by": "locked"},
}

# Memory that cannot be reclaimed: the idle processes of a server, and the private pages of a backend.
_LEAST_SERVER, _LEAST_BACKEND = 12 * _MB, _MB


def prepare(node: Node, request: ConsolidationRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.registry.prepare`` for what it raises."""
    request = _published(request)
    databases = request.databases or 2
    plan, high, low = _load(request, databases)
    schemes, buffers, rates = _schemes(request.schemes), _percents(request.shared_buffers_percent), _rates(request.overcommit)
    with prepare_databases(node, request, dry) as preparation:
        workspace, facts, runtime = preparation.workspace, preparation.facts, preparation.runtime
        policy = None if preparation.guests is None else preparation.guests.policy
        servers.require_own(preparation.servers.external, "consolidation compares containers that it makes itself")
        scale, share, about_share = _scale_and_memory(request, databases, facts.memory_available, policy)
        load = replace(preparation.load, scale=scale)
        host = preparation.share
        cpu = choose_cpu(preparation.containers, CPU * host.cores / databases)
        if any(name.partition("=")[0].strip() == "shared_buffers" for name in request.set):
            raise UsageError("--set shared_buffers: consolidation varies this setting; give --shared-buffers-percent instead")
        least = databases * share if policy is None else budget_for(databases, share, policy.overhead)
        _require_budget(host.memory, databases, share, least)
        if request.host_memory is None:
            # At most the share of E4, because memory that is withheld in a trial may have to be locked, and other runs may need the rest.
            host = replace(host, memory=min(host.memory, max(int(databases * share * HOST), least)))
        preparation = replace(preparation, load=load, containers=replace(preparation.containers, share=host))
        limited = runtime == "cgroup" or (policy is not None and guests.in_groups(node, workspace.journal, facts))
        if not limited:
            _require_limits_unused(preparation.containers, request.swap, any(rates))
        size = database_size(workspace, preparation.servers, load)
        # Scheme 1 uses a template with all databases. The other schemes use a template with one database.
        copies = (databases if 1 in schemes else 0) + (set(schemes) != {1})
        copies *= 2 if policy is not None else 1  # a disk image of each template is built too
        disk = disk_space(
            workspace,
            preparation.volumes,
            databases,
            size.bytes,
            writes=not load.read_only,
            lower="--databases or --scale",
            templates=copies,
        )
        settings = servers.choose_settings(
            workspace,
            preparation.servers,
            size.bytes,
            load_patterns.max_connections(plan),
            None,
            cached=False,
        )
        balloon = BalloonChoice()
        if BALLOON in schemes:
            balloon = _balloon(workspace, preparation.servers.usable, runtime, any(facts.huge_pages.values()), settings.settings)
        if balloon.unavailable and set(schemes) == {BALLOON}:
            raise CapabilityError(f"scheme {BALLOON} is not available: {balloon.unavailable}")
        memory = share if limited or policy is not None else None
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        swap, about_swap = None, list[str]()
        if limited:
            swap, about_swap = choose_swap(
                node,
                request,
                size=databases * share,
                overcommitted=any(rates),
                cache=workspace.cache,
                facts=facts,
                budget=host.memory,
            )
        options = ConsolidationOptions(
            **database_options(preparation, limits, size, settings),
            databases=databases,
            schemes=schemes,
            unavailable={BALLOON: balloon.unavailable} if balloon.unavailable else {},
            buffers=buffers,
            rates=rates,
            share=share,
            high=high,
            low=low,
            pattern=request.pattern,
            plan=plan,
            blocks=request.repeats or 1,
            repeats=request.repeats or 1,
            seconds=parse_seconds(request.period_length or PERIOD),
            ramp=parse_seconds(request.warmup or "0s"),
            threads=request.threads or 1,
            swap=swap,
            staging=request.overcommit_by,
            balloon=balloon.settings,
            working_sets=tuple(parse_bytes(text) for text in request.working_set_size),
        )
        options = options.model_copy(update={"max_reruns": max(2, len(points(options)) * options.blocks // 8)})
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
                *disk.messages,
                *settings.messages,
                *balloon.messages,
                *limits.messages,
                *about_swap,
                *_check_memory(options, policy),
                *(hosts.warn_of_read_ahead(node, facts, str(workspace.directory)) if any(rates) else []),
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


def _buffers_row(percents: tuple[int, ...], *, given: bool) -> Row:
    values = f"{'/'.join(f'{percent}' for percent in percents)} % of each server's share of memory"
    return Row("shared_buffers", values, "128MB", "set by --shared-buffers-percent" if given else "as E4")


def _published(request: ConsolidationRequest) -> ConsolidationRequest:
    """Return the request with the values of its preset, if it has one. Options that the user sets override the preset."""
    if request.preset is None:
        return request
    preset = PAPERS[request.preset]
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
    high, low = request.busy_clients or 30, request.quiet_clients or 2
    return load_patterns.client_plan(request.pattern, databases=databases, periods=request.periods, high=high, low=low), high, low


def _schemes(requested: tuple[int, ...] | None) -> tuple[int, ...]:
    schemes = requested or tuple(SCHEMES)
    unknown = [scheme for scheme in schemes if scheme not in SCHEMES]
    if unknown:
        known = ", ".join(f"{number} ({label})" for number, label in SCHEMES.items())
        raise UsageError(f"--schemes {unknown[0]}: there is no such scheme; use {known}")
    return tuple(sorted(set(schemes)))


def _percents(requested: tuple[int, ...] | None) -> tuple[int, ...]:
    percents = requested or (25, 75)
    wrong = [percent for percent in percents if not 1 <= percent <= 90]
    if wrong:
        raise UsageError(
            f"--shared-buffers-percent {wrong[0]}: give shared buffers as 1 to 90 % of a server's share of memory, such as 25,75"
        )
    return tuple(sorted(set(percents)))


def _rates(requested: tuple[float, ...] | None) -> tuple[float, ...]:
    """Return the overcommitment rates in ascending order, with the baseline 0."""
    rates = requested or (0.0,)
    wrong = [rate for rate in rates if not 0 <= rate < 1]
    if wrong:
        raise UsageError(
            f"--overcommit {wrong[0]:g}: a rate of overcommitment is 1 − available ÷ configured memory, at least 0 and below 1, such as 0.3"
        )
    return tuple(sorted({0.0, *rates}))


def _scale_and_memory(
    request: ConsolidationRequest, databases: int, memory_available: int, policy: GuestMemory | None
) -> tuple[int, int, list[str]]:
    """Return the scale, each database's memory (bytes), and messages. If one of the two is not given, it follows from the other."""
    size_of = find(request.workload).size_estimate
    messages = []
    if request.memory is not None:
        share = parse_bytes(request.memory)
    else:
        free = parse_bytes(request.host_memory) if request.host_memory else int(memory_available * 0.8)
        held = 0 if request.scale is None else int((size_of(request.scale) or 0) / DATABASE)
        most = free // databases if policy is None else guests.largest_guest(databases, free, policy.overhead)
        share = max(min(SHARE, most), held) // (64 * _MB) * 64 * _MB or 64 * _MB
        messages.append(f"Memory of {format_bytes(share)} for each database; total: {format_bytes(share * databases)}.")
    if request.scale is not None:
        return request.scale, share, messages
    scale = 1
    while (size_of(scale + 1) or share) <= share * DATABASE:
        scale += 1
    what = f"Scale {scale} (warehouses)" if request.workload == "orders" else f"Scale {scale}"
    messages.append(f"{what}: about {format_bytes(size_of(scale) or 0)} in each database, of its {format_bytes(share)}.")
    return scale, share, messages


def _require_budget(budget: int, databases: int, share: int, least: int) -> None:
    """Require that the configured memory fits into the host's ``budget`` (bytes).

    ``least`` is the memory in bytes that all databases need on the host. With guests it includes hypervisors and the reserve.
    """
    if least > budget:
        overhead = f" and need {format_bytes(least)} with their guests' hypervisors and the reserve" if least > databases * share else ""
        raise UsageError(
            f"{databases} databases of {format_bytes(share)} are {format_bytes(databases * share)} of configured memory{overhead}, more "
            f"than the host's budget of {format_bytes(budget)}; lower --memory or --databases, or raise --host-memory. To test less "
            "memory than is configured, use --overcommit"
        )


def _check_memory(options: ConsolidationOptions, policy: GuestMemory | None) -> list[str]:
    """Require enough memory for each container, and for all servers at the highest overcommitment rate.

    Return warnings if the memory may be insufficient.

    Raises:
        UsageError: the memory is certainly insufficient.
    """
    if policy is not None:
        prepare_guests.require_fit(options, policy)
    messages = []
    for percent in options.buffers:
        for scheme in options.runnable:
            messages += _check_container(options, scheme, percent)
    clients = max(sum(period) for period in zip(*options.plan, strict=True))
    servers = 1 if options.runnable == (1,) else options.databases
    least = servers * _LEAST_SERVER + clients * _LEAST_BACKEND
    needed, safe = options.needed(), options.honest()
    for rate in options.rates:
        left = options.available(rate)
        if left < least:
            raise UsageError(
                f"--overcommit {rate:g} leaves {format_bytes(left)} of {format_bytes(options.configured)}, but {servers} servers with "
                f"{clients} clients need about {format_bytes(least)} even if they cache nothing; lower the rate, --busy-clients or "
                "--databases, or raise --memory"
            )
        if needed is not None and safe is not None and left < needed and rate > 0:
            raise UsageError(
                f"--overcommit {rate:g} leaves {format_bytes(left)}, but the working sets need {format_bytes(needed)}: above "
                f"{safe:.0%} every scheme has too little memory; lower the rate, or leave --working-set-size out to measure the effect"
            )
    if safe is not None and needed is not None:
        messages.append(
            f"Working sets of {format_bytes(needed)} in total leave {format_bytes(options.configured - needed)} of "
            f"{format_bytes(options.configured)} unused: overcommitment is safe up to {safe:.0%}."
        )
    elif any(options.rates):
        messages.append(
            "Warning: the safe overcommitment rate is not known; measure the working sets with 'pgherd working-set', and give them with "
            "--working-set-size."
        )
    if options.swap is not None and options.swap.kind == "none" and any(options.rates):
        messages += _warn_of_no_swap(options)
    return messages


def _warn_of_no_swap(options: ConsolidationOptions) -> list[str]:
    if capabilities_of(options.runtime).own_kernel:
        return [
            "Warning: without swap only the balloon can reclaim memory from a guest. If that is not enough, the kernel kills guests, and "
            "these trials measure that. --swap zram or file provides space for their pages."
        ]
    pinned = max(options.buffers) * options.configured // 100
    over = [rate for rate in options.rates if rate > 0 and options.available(rate) < pinned]
    if not over:
        return []
    return [
        f"Warning: without swap shared buffers cannot leave memory: at {over[0]:.0%} and {max(options.buffers)} % buffers the "
        "kernel kills servers, and these trials measure that. --swap zram or file provides space for their pages."
    ]


def _check_container(options: ConsolidationOptions, scheme: int, percent: int) -> list[str]:
    """Return a warning if a container may be too small for its servers. Raises UsageError if it certainly is."""
    if options.container_memory is None:
        return []
    memory = options.share if scheme in APART else options.configured
    rows = [(row,) for row in options.plan] if scheme in APART else [options.plan]
    clients = max(max(sum(period) for period in zip(*plan, strict=True)) for plan in rows)
    servers = options.databases if scheme == 2 else 1
    buffers = shared_buffers(options, scheme, percent)
    system, usual = (guests.LEAST_SYSTEM, guests.GUEST_SYSTEM) if capabilities_of(options.runtime).own_kernel else (0, 0)
    least = servers * (buffers + _LEAST_SERVER) + clients * _LEAST_BACKEND + system
    where = f"scheme {scheme} with {percent} % buffers and {clients} clients"
    if least > memory:
        raise UsageError(
            f"{where} needs at least {format_bytes(least)} in a container of {format_bytes(memory)}; raise --memory, or lower "
            "--shared-buffers-percent or --busy-clients"
        )
    likely = (
        usual
        + servers * server_settings.memory_needed(buffers, 0)
        + clients * (server_settings.memory_needed(buffers, 1) - server_settings.memory_needed(buffers, 0))
    )
    if likely <= memory:
        return []
    return [f"Warning: {where} may need {format_bytes(likely)} when all buffers are in use, but its container has {format_bytes(memory)}."]


@dataclass(frozen=True)
class BalloonChoice:
    """Balloon of the servers of scheme 4: the settings that enable it, or the reason if it is unavailable, and messages."""

    settings: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    messages: tuple[str, ...] = ()


def _balloon(
    workspace: Workspace, installation: Installation, runtime: RuntimeName, host_has_huge_pages: bool, chosen: dict[str, str]
) -> BalloonChoice:
    """Return the balloon for servers with the ``chosen`` settings.

    No other function of the study depends on the build of pg_balloon.
    """
    node, cache = workspace.node, str(workspace.cache)
    page_settings: dict[str, str] = {}
    messages: tuple[str, ...] = ()
    if huge_pages.insists(chosen):
        return BalloonChoice(unavailable=f"pg_balloon does not support huge pages, and huge_pages = {chosen['huge_pages']} is set")
    if not huge_pages.declines(chosen):
        if host_has_huge_pages and not capabilities_of(runtime).own_kernel:  # a guest does not use the pages of the host
            messages = (
                f"Warning: this host has huge pages. Scheme {BALLOON} does not use them, because pg_balloon does not support them, but "
                "other schemes may; add --set huge_pages=off, so that only the balloon makes the difference.",
            )
        page_settings["huge_pages"] = "off"
    try:
        if workspace.dry and balloon_build.find_balloon(node, installation, cache) is None:
            missing = balloon_build.missing(node, installation)
            if missing:
                return BalloonChoice(unavailable=f"pg_balloon cannot be built: {missing}", messages=messages)
            return BalloonChoice(
                {"shared_preload_libraries": balloon_build.NAME} | page_settings,
                messages=(*messages, "pg_balloon will be built for scheme 4."),
            )
        library = balloon_build.ensure_balloon(node, installation, cache, account=workspace.account)
    except CapabilityError as error:
        warning = f"Warning: scheme {BALLOON} is not available: {error}."
        return BalloonChoice(unavailable=str(error), messages=(*messages, warning))
    with_balloon = balloon_build.with_balloon(chosen | page_settings, library, {"enabled": "on"})
    return BalloonChoice({name: value for name, value in with_balloon.items() if chosen.get(name) != value}, messages=messages)
