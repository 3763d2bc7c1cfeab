"""Completion of a consolidation request: scale and memory of the databases, the plan of clients, swap and the balloon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgherd.model.capabilities import capabilities_of
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes, parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import balloon_build, huge_pages, settings
from pgherd.prepare import read_ahead, vm_memory_policy
from pgherd.prepare import swap as prepare_swap
from pgherd.prepare.container_limits import GUEST_SYSTEM
from pgherd.prepare.database_preparation import Preparation, preparation
from pgherd.prepare.prepared_study import Prepared
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


def prepare(node: Node, asked: ConsolidationRequest, dry: bool) -> Prepared:
    """Complete the request for this host; see ``prepare.registry.prepare`` for what it raises."""
    asked = _published(asked)
    databases = asked.databases or 2
    plan, high, low = _load(asked, databases)
    schemes, buffers, rates = _schemes(asked), _percents(asked), _rates(asked)
    with preparation(node, asked, dry) as ground:
        ground.require_own("consolidation compares containers that it makes itself")
        scale, share = _scale_and_memory(ground, asked, databases)
        asked = asked.model_copy(update={"scale": scale})
        ground = replace(ground, asked=asked, scale=scale)
        limits = ground.limits(CPU * ground.cores / databases)
        if any(name.partition("=")[0].strip() == "shared_buffers" for name in asked.set):
            raise UsageError("--set shared_buffers: consolidation varies this setting; give --shared-buffers-percent instead")
        policy = ground.guest_memory
        guests = policy is not None
        least = databases * share if policy is None else vm_memory_policy.needed(databases, share, policy.overhead)
        _insist_budget(ground, databases, share, least)
        if asked.host_memory is None:
            # At most the share of E4, because memory that is withheld in a trial may have to be locked, and other runs may need the rest.
            ground = replace(ground, memory=min(ground.memory, max(int(databases * share * HOST), least)))
        limited = ground.runtime == "cgroup" or (guests and vm_memory_policy.in_groups(node, ground.journal, ground.facts))
        if not limited:
            ground.container_memory()  # raises CapabilityError if the user sets --memory
            group = "control groups around the guests" if guests else "the cgroup runtime"
            if any(rates):
                raise CapabilityError(f"--overcommit above 0 needs {group}; 'pgherd doctor' shows what is missing on this host")
            if asked.swap is not None:
                raise CapabilityError(f"--swap {asked.swap} needs {group}: without control groups memory is not limited")
        if not limited and not guests:
            ground.choices.append(
                f"Warning: without control groups the memory of containers is not limited; shared buffers are sized for "
                f"{format_bytes(share)} per database."
            )
        size = ground.database_bytes()
        # Scheme 1 uses a template with all databases. The other schemes use a template with one database.
        copies = (databases if 1 in schemes else 0) + (set(schemes) != {1})
        copies *= 2 if guests else 1  # a disk image of each template is built too
        disk = ground.disk(databases, size, "--databases or --scale", copies)
        selected = ground.settings(size, load_patterns.max_connections(plan), None, cached=False)
        unavailable, balloon = _balloon(ground, selected.settings) if BALLOON in schemes else ({}, {})
        if set(schemes) <= set(unavailable):
            raise CapabilityError(f"scheme {BALLOON} is not available: {unavailable[BALLOON]}")
        given = ground.options(limits, selected, share if limited or guests else None)
        options = ConsolidationOptions(
            **given,
            databases=databases,
            schemes=schemes,
            unavailable=unavailable,
            buffers=buffers,
            rates=rates,
            share=share,
            high=high,
            low=low,
            pattern=asked.pattern,
            plan=plan,
            blocks=asked.repeats or 1,
            repeats=asked.repeats or 1,
            seconds=parse_seconds(asked.period_length or PERIOD),
            ramp=parse_seconds(asked.warmup or "0s"),
            threads=asked.threads or 1,
            swap=_swap(ground, asked, rates, databases * share) if limited else None,
            staging=asked.overcommit_by,
            balloon=balloon,
            working_sets=tuple(parse_bytes(text) for text in asked.working_set_size),
        )
        options = options.model_copy(update={"max_reruns": max(2, len(points(options)) * options.blocks // 8)})
        _insist_enough(ground, options)
        if any(rates):
            ground.choices.extend(read_ahead.words(node, ground.facts, str(ground.work)))
        values = f"{'/'.join(f'{percent}' for percent in buffers)} % of each server's share of memory"
        row = settings.Row(
            "shared_buffers", values, "128MB", "set by --shared-buffers-percent" if asked.shared_buffers_percent else "as E4"
        )
        prepared = ground.prepared(
            "consolidation", options, replace(selected, rows=(*selected.rows, row)), disk=disk, memory=options.configured
        )
    return prepare_swap.with_swap(prepared, options.swap)


def _published(asked: ConsolidationRequest) -> ConsolidationRequest:
    """Return the request with the values of its preset, if it has one. Options that the user sets override the preset."""
    if asked.preset is None:
        return asked
    preset = PAPERS[asked.preset]
    if load_patterns.is_listed(asked.pattern):  # the pattern defines the clients of each period
        preset = {name: value for name, value in preset.items() if name not in ("busy_clients", "quiet_clients", "periods")}
    return ConsolidationRequest.model_validate(preset | {name: getattr(asked, name) for name in asked.model_fields_set})


def _load(asked: ConsolidationRequest, databases: int) -> tuple[load_patterns.Plan, int, int]:
    """Return the clients of each database in each period, those of a busy database, and those of a quiet one."""
    if load_patterns.is_listed(asked.pattern):
        for option, value in (("--busy-clients", asked.busy_clients), ("--quiet-clients", asked.quiet_clients)):
            if value is not None:
                raise UsageError(f"{option} {value} needs a named pattern, but --pattern {asked.pattern} lists clients; leave one out")
        plan = load_patterns.client_plan(asked.pattern, databases=databases, periods=asked.periods, high=0, low=0)
        return plan, *load_patterns.client_range(plan)
    high, low = asked.busy_clients or 30, asked.quiet_clients or 2
    return load_patterns.client_plan(asked.pattern, databases=databases, periods=asked.periods, high=high, low=low), high, low


def _schemes(asked: ConsolidationRequest) -> tuple[int, ...]:
    schemes = asked.schemes or tuple(SCHEMES)
    unknown = [scheme for scheme in schemes if scheme not in SCHEMES]
    if unknown:
        known = ", ".join(f"{number} ({label})" for number, label in SCHEMES.items())
        raise UsageError(f"--schemes {unknown[0]}: there is no such scheme; use {known}")
    return tuple(sorted(set(schemes)))


def _percents(asked: ConsolidationRequest) -> tuple[int, ...]:
    percents = asked.shared_buffers_percent or (25, 75)
    wrong = [percent for percent in percents if not 1 <= percent <= 90]
    if wrong:
        raise UsageError(
            f"--shared-buffers-percent {wrong[0]}: give shared buffers as 1 to 90 % of a server's share of memory, such as 25,75"
        )
    return tuple(sorted(set(percents)))


def _rates(asked: ConsolidationRequest) -> tuple[float, ...]:
    """Return the overcommitment rates in ascending order, with the baseline 0."""
    rates = asked.overcommit or (0.0,)
    wrong = [rate for rate in rates if not 0 <= rate < 1]
    if wrong:
        raise UsageError(
            f"--overcommit {wrong[0]:g}: a rate of overcommitment is 1 − available ÷ configured memory, at least 0 and below 1, such as 0.3"
        )
    return tuple(sorted({0.0, *rates}))


def _scale_and_memory(ground: Preparation, asked: ConsolidationRequest, databases: int) -> tuple[int, int]:
    """Return the scale and each database's memory (bytes). If one is not given, it follows from the other."""
    size_of = find(asked.workload).size_estimate
    if asked.memory is not None:
        share = parse_bytes(asked.memory)
    else:
        free = parse_bytes(asked.host_memory) if asked.host_memory else int(ground.facts.memory_available * 0.8)
        held = 0 if asked.scale is None else int((size_of(asked.scale) or 0) / DATABASE)
        policy = ground.guest_memory
        most = free // databases if policy is None else vm_memory_policy.largest(databases, free, policy.overhead)
        share = max(min(SHARE, most), held) // (64 * _MB) * 64 * _MB or 64 * _MB
        ground.choices.append(f"Memory of {format_bytes(share)} for each database; total: {format_bytes(share * databases)}.")
    if asked.scale is not None:
        return asked.scale, share
    scale = 1
    while (size_of(scale + 1) or share) <= share * DATABASE:
        scale += 1
    what = f"Scale {scale} (warehouses)" if asked.workload == "orders" else f"Scale {scale}"
    ground.choices.append(f"{what}: about {format_bytes(size_of(scale) or 0)} in each database, of its {format_bytes(share)}.")
    return scale, share


def _insist_budget(ground: Preparation, databases: int, share: int, least: int) -> None:
    """Require that the configured memory fits into the host's share.

    ``least`` is the memory in bytes that all databases need on the host. With guests it includes hypervisors and the reserve.
    """
    if least > ground.memory:
        overhead = f" and need {format_bytes(least)} with their guests' hypervisors and the reserve" if least > databases * share else ""
        raise UsageError(
            f"{databases} databases of {format_bytes(share)} are {format_bytes(databases * share)} of configured memory{overhead}, more "
            f"than the host's budget of {format_bytes(ground.memory)}; lower --memory or --databases, or raise --host-memory. To test less "
            "memory than is configured, use --overcommit"
        )


def _insist_enough(ground: Preparation, options: ConsolidationOptions) -> None:
    """Require enough memory for each container, and for all servers at the highest overcommitment rate.

    If the memory may be insufficient, a warning is added to the choices.

    Raises:
        UsageError: the memory is certainly insufficient.
    """
    if ground.guest_memory is not None:
        prepare_guests.require_fit(options, ground.guest_memory)
    for percent in options.buffers:
        for scheme in options.runnable:
            _insist_container(ground, options, scheme, percent)
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
        ground.choices.append(
            f"Working sets of {format_bytes(needed)} in total leave {format_bytes(options.configured - needed)} of "
            f"{format_bytes(options.configured)} unused: overcommitment is safe up to {safe:.0%}."
        )
    elif any(options.rates):
        ground.choices.append(
            "Warning: the safe overcommitment rate is not known; measure the working sets with 'pgherd working-set', and give them with "
            "--working-set-size."
        )
    if options.swap is not None and options.swap.kind == "none" and any(options.rates):
        _warn_of_no_swap(ground, options)


def _warn_of_no_swap(ground: Preparation, options: ConsolidationOptions) -> None:
    if capabilities_of(options.runtime).own_kernel:
        ground.choices.append(
            "Warning: without swap only the balloon can reclaim memory from a guest. If that is not enough, the kernel kills guests, and "
            "these trials measure that. --swap zram or file provides space for their pages."
        )
    else:
        pinned = max(options.buffers) * options.configured // 100
        over = [rate for rate in options.rates if rate > 0 and options.available(rate) < pinned]
        if over:
            ground.choices.append(
                f"Warning: without swap shared buffers cannot leave memory: at {over[0]:.0%} and {max(options.buffers)} % buffers the "
                "kernel kills servers, and these trials measure that. --swap zram or file provides space for their pages."
            )


def _insist_container(ground: Preparation, options: ConsolidationOptions, scheme: int, percent: int) -> None:
    if options.container_memory is None:
        return
    memory = options.share if scheme in APART else options.configured
    rows = [(row,) for row in options.plan] if scheme in APART else [options.plan]
    clients = max(max(sum(period) for period in zip(*plan, strict=True)) for plan in rows)
    servers = options.databases if scheme == 2 else 1
    buffers = shared_buffers(options, scheme, percent)
    system, usual = (vm_memory_policy.LEAST_SYSTEM, GUEST_SYSTEM) if capabilities_of(options.runtime).own_kernel else (0, 0)
    least = servers * (buffers + _LEAST_SERVER) + clients * _LEAST_BACKEND + system
    where = f"scheme {scheme} with {percent} % buffers and {clients} clients"
    if least > memory:
        raise UsageError(
            f"{where} needs at least {format_bytes(least)} in a container of {format_bytes(memory)}; raise --memory, or lower "
            "--shared-buffers-percent or --busy-clients"
        )
    likely = (
        usual
        + servers * settings.memory_needed(buffers, 0)
        + clients * (settings.memory_needed(buffers, 1) - settings.memory_needed(buffers, 0))
    )
    if likely > memory:
        ground.choices.append(
            f"Warning: {where} may need {format_bytes(likely)} when all buffers are in use, but its container has {format_bytes(memory)}."
        )


def _balloon(ground: Preparation, chosen: dict[str, str]) -> tuple[dict[int, str], dict[str, str]]:
    """Return the reason if scheme 4 is not available, and the settings that enable the balloon on its servers.

    No other function of the study depends on the build of pg_balloon.
    """
    node, cache = ground.node, str(ground.cache)
    page_settings: dict[str, str] = {}
    if huge_pages.insists(chosen):
        return {BALLOON: f"pg_balloon does not support huge pages, and huge_pages = {chosen['huge_pages']} is set"}, {}
    if not huge_pages.declines(chosen):
        if not capabilities_of(ground.runtime).own_kernel and any(
            ground.facts.huge_pages.values()
        ):  # a guest does not use the pages of the host
            ground.choices.append(
                f"Warning: this host has huge pages. Scheme {BALLOON} does not use them, because pg_balloon does not support them, but "
                "other schemes may; add --set huge_pages=off, so that only the balloon makes the difference."
            )
        page_settings["huge_pages"] = "off"
    try:
        if ground.dry and balloon_build.find_balloon(node, ground.usable, cache) is None:
            missing = balloon_build.missing(node, ground.usable)
            if missing:
                return {BALLOON: f"pg_balloon cannot be built: {missing}"}, {}
            ground.choices.append("pg_balloon will be built for scheme 4.")
            return {}, {"shared_preload_libraries": balloon_build.NAME} | page_settings
        library = balloon_build.ensure_balloon(node, ground.usable, cache, account=ground.account)
    except CapabilityError as error:
        ground.choices.append(f"Warning: scheme {BALLOON} is not available: {error}.")
        return {BALLOON: str(error)}, {}
    settings_with_balloon = balloon_build.with_balloon(chosen | page_settings, library, {"enabled": "on"})
    return {}, {name: value for name, value in settings_with_balloon.items() if chosen.get(name) != value}


def _swap(ground: Preparation, asked: ConsolidationRequest, rates: tuple[float, ...], configured: int) -> Swap:
    """Return the swap of the run.

    It is the one that the user requests. The default is zram if memory is overcommitted and zram is available, otherwise none.
    """
    swap, messages = prepare_swap.complete(
        ground.node, asked, size=configured, overcommitted=any(rates), cache=ground.cache, facts=ground.facts, budget=ground.memory
    )
    ground.choices.extend(messages)
    return swap
