"""Completing a consolidation request: databases and memory that fit each other and this host, the load's plan, swap, the balloon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
"""Memory of each database by default: with 75 % of it in shared buffers, 30 clients still fit beside them."""
DATABASE = 0.75
"""A database's size by default, as a share of its memory: E4's 3 GB in 4 GB."""
HOST = 11 / 8
"""The host's memory by default, as a multiple of what is configured: E4's 12 GB, of which an idle container takes one, for 8 GB."""
CPU = 0.75
"""Of the host's cores that all databases' containers have together by default: E4's 2 × 3 vCPUs on 8 cores, the rest for clients."""
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
"""E4's set-up: 12 GB, of which an idle container takes one."""
PAPERS: dict[str, dict[str, Any]] = {
    "E4": E4,
    "E5": E4 | {"overcommit": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55), "overcommit_by": "locked"},
    "E6": E4 | {"overcommit": (0.0, 0.3), "overcommit_by": "locked"},
}

# What a server cannot do without, whatever else is reclaimed: its processes at rest, and a backend's private pages.
_LEAST_SERVER, _LEAST_BACKEND = 12 * _MB, _MB


def prepare(node: Node, asked: ConsolidationRequest, dry: bool) -> Prepared:
    """Complete the request for this host; see ``runner.catalogue.prepare`` for what it raises."""
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
            raise UsageError(
                "--set shared_buffers: a consolidation study compares sizes of them; give --shared-buffers-percent instead, in per cent"
            )
        policy = ground.guest_memory
        guests = policy is not None
        least = databases * share if policy is None else vm_memory_policy.needed(databases, share, policy.overhead)
        _insist_budget(ground, databases, share, least)
        if asked.host_memory is None:
            # No more than E4's host had: what is withheld in a trial may have to be locked, and other runs may want the rest.
            ground = replace(ground, memory=min(ground.memory, max(int(databases * share * HOST), least)))
        limited = ground.runtime == "cgroup" or (guests and vm_memory_policy.in_groups(node, ground.journal, ground.facts))
        if not limited:
            ground.container_memory()  # asked for, it must be possible
            group = "control groups around the guests" if guests else "the cgroup runtime"
            if any(rates):
                raise CapabilityError(f"--overcommit above 0 need {group}; 'pgherd doctor' says what would make it possible here")
            if asked.swap is not None:
                raise CapabilityError(f"--swap {asked.swap} needs {group}: without control groups no server is short of memory")
        if not limited and not guests:
            ground.choices.append(
                f"Warning: without control groups nothing limits the containers' memory; shared buffers are sized as if each database had "
                f"{format_bytes(share)}."
            )
        size = ground.database_bytes()
        # With scheme 1 there is a golden copy of one database, and one of all of them in a server.
        copies = (databases if 1 in schemes else 0) + (set(schemes) != {1})
        copies *= 2 if guests else 1  # each is packed into a disk once more
        disk = ground.disk(databases, size, "--databases or --scale", copies)
        selected = ground.settings(size, load_patterns.max_connections(plan), None, cached=False)
        unavailable, balloon = _balloon(ground, selected.settings) if BALLOON in schemes else ({}, {})
        if set(schemes) <= set(unavailable):
            raise CapabilityError(f"scheme {BALLOON} cannot be had: {unavailable[BALLOON]}")
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
        said_of = f"{'/'.join(f'{percent}' for percent in buffers)} % of each server's share of memory"
        row = settings.Row(
            "shared_buffers", said_of, "128MB", "asked for with --shared-buffers-percent" if asked.shared_buffers_percent else "as E4"
        )
        prepared = ground.prepared(
            "consolidation", options, replace(selected, rows=(*selected.rows, row)), disk=disk, memory=options.configured
        )
    return prepare_swap.with_swap(prepared, options.swap)


def _published(asked: ConsolidationRequest) -> ConsolidationRequest:
    """The request over the published set-up that it names, if any."""
    if asked.preset is None:
        return asked
    theirs = PAPERS[asked.preset]
    if load_patterns.is_listed(asked.pattern):  # which says itself how many clients there are, and when
        theirs = {name: value for name, value in theirs.items() if name not in ("busy_clients", "quiet_clients", "periods")}
    return ConsolidationRequest.model_validate(theirs | {name: getattr(asked, name) for name in asked.model_fields_set})


def _load(asked: ConsolidationRequest, databases: int) -> tuple[load_patterns.Plan, int, int]:
    """The clients of each database in each period, of a busy one, and of a quiet one."""
    if load_patterns.is_listed(asked.pattern):
        for option, value in (("--busy-clients", asked.busy_clients), ("--quiet-clients", asked.quiet_clients)):
            if value is not None:
                raise UsageError(f"{option} {value} is for patterns by name, and --pattern {asked.pattern} lists clients; leave one out")
        plan = load_patterns.client_plan(asked.pattern, databases=databases, periods=asked.periods, high=0, low=0)
        return plan, *load_patterns.client_range(plan)
    high, low = asked.busy_clients or 30, asked.quiet_clients or 2
    return load_patterns.client_plan(asked.pattern, databases=databases, periods=asked.periods, high=high, low=low), high, low


def _schemes(asked: ConsolidationRequest) -> tuple[int, ...]:
    wanted = asked.schemes or tuple(SCHEMES)
    unknown = [scheme for scheme in wanted if scheme not in SCHEMES]
    if unknown:
        known = ", ".join(f"{number} ({words})" for number, words in SCHEMES.items())
        raise UsageError(f"--schemes {unknown[0]}: there is no such scheme; there are {known}")
    return tuple(sorted(set(wanted)))


def _percents(asked: ConsolidationRequest) -> tuple[int, ...]:
    wanted = asked.shared_buffers_percent or (25, 75)
    wrong = [percent for percent in wanted if not 1 <= percent <= 90]
    if wrong:
        raise UsageError(
            f"--shared-buffers-percent {wrong[0]}: give shared buffers as 1 to 90 per cent of a server's share of memory, such as 25,75"
        )
    return tuple(sorted(set(wanted)))


def _rates(asked: ConsolidationRequest) -> tuple[float, ...]:
    """Ascending, with the baseline that every other is held against."""
    wanted = asked.overcommit or (0.0,)
    wrong = [rate for rate in wanted if not 0 <= rate < 1]
    if wrong:
        raise UsageError(
            f"--overcommit {wrong[0]:g}: a rate of overcommitment is 1 − available ÷ configured memory, at least 0 and below 1, such as 0.3"
        )
    return tuple(sorted({0.0, *wanted}))


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
        ground.choices.append(f"Memory of {format_bytes(share)} for each database, configured in all {format_bytes(share * databases)}.")
    if asked.scale is not None:
        return asked.scale, share
    scale = 1
    while (size_of(scale + 1) or share) <= share * DATABASE:
        scale += 1
    what = f"Scale {scale} (warehouses)" if asked.workload == "orders" else f"Scale {scale}"
    ground.choices.append(f"{what}: about {format_bytes(size_of(scale) or 0)} in each database, of its {format_bytes(share)}.")
    return scale, share


def _insist_budget(ground: Preparation, databases: int, share: int, least: int) -> None:
    """``least`` is what all of them need on the host, bytes: with guests more than their own memory."""
    if least > ground.memory:
        own = f" and need {format_bytes(least)} with their guests' hypervisors and the reserve" if least > databases * share else ""
        raise UsageError(
            f"{databases} databases of {format_bytes(share)} are {format_bytes(databases * share)} of configured memory{own}, more than "
            f"the host's budget of {format_bytes(ground.memory)}; lower --memory or --databases, or raise --host-memory. To have less than "
            "is configured is what --overcommit is for"
        )


def _insist_enough(ground: Preparation, options: ConsolidationOptions) -> None:
    """That servers can run in what they are given, and that what is left at the highest rate is enough.

    Raises:
        UsageError: it surely is not. Where it may not be, a warning is among the choices.
    """
    if ground.guest_memory is not None:
        prepare_guests.require_fit(options, ground.guest_memory)
    for percent in options.buffers:
        for scheme in options.runnable:
            _insist_container(ground, options, scheme, percent)
    clients = max(sum(period) for period in zip(*options.plan, strict=True))
    servers = 1 if options.runnable == (1,) else options.databases
    least = servers * _LEAST_SERVER + clients * _LEAST_BACKEND
    needed, honest = options.needed(), options.honest()
    for rate in options.rates:
        left = options.available(rate)
        if left < least:
            raise UsageError(
                f"--overcommit {rate:g} leaves {format_bytes(left)} of {format_bytes(options.configured)}, but {servers} servers with "
                f"{clients} clients need about {format_bytes(least)} even if they cache nothing; lower the rate, --busy-clients or "
                "--databases, or raise --memory"
            )
        if needed is not None and honest is not None and left < needed and rate > 0:
            raise UsageError(
                f"--overcommit {rate:g} leaves {format_bytes(left)}, but the working sets need {format_bytes(needed)}: beyond "
                f"{honest:.0%} there is too little memory, whatever the container; lower the rate, or leave --working-set-size out to see "
                "what happens there"
            )
    if honest is not None and needed is not None:
        ground.choices.append(
            f"Working sets of {format_bytes(needed)} in all leave {format_bytes(options.configured - needed)} of "
            f"{format_bytes(options.configured)} to spare: overcommitment is honest up to {honest:.0%}."
        )
    elif any(options.rates):
        ground.choices.append(
            "Warning: up to which rate overcommitment is honest is not known; 'pgherd working-set' finds the working sets, and "
            "--working-set-size takes them."
        )
    if options.swap is not None and options.swap.kind == "none" and any(options.rates):
        _warn_of_no_swap(ground, options)


def _warn_of_no_swap(ground: Preparation, options: ConsolidationOptions) -> None:
    if options.runtime == "vm":
        ground.choices.append(
            "Warning: without swap nothing can be taken from a guest but what its balloon gives up: where that is not enough, the kernel "
            "will end guests, which is then what these trials find. --swap zram or file gives their pages somewhere to go."
        )
    else:
        pinned = max(options.buffers) * options.configured // 100
        over = [rate for rate in options.rates if rate > 0 and options.available(rate) < pinned]
        if over:
            ground.choices.append(
                f"Warning: without swap shared buffers cannot leave memory: at {over[0]:.0%} and {max(options.buffers)} % buffers the "
                "kernel will end servers, which is then what these trials find. --swap zram or file gives their pages somewhere to go."
            )


def _insist_container(ground: Preparation, options: ConsolidationOptions, scheme: int, percent: int) -> None:
    if options.container_memory is None:
        return
    memory = options.share if scheme in APART else options.configured
    rows = [(row,) for row in options.plan] if scheme in APART else [options.plan]
    clients = max(max(sum(period) for period in zip(*plan, strict=True)) for plan in rows)
    servers = options.databases if scheme == 2 else 1
    buffers = shared_buffers(options, scheme, percent)
    system, usual = (vm_memory_policy.LEAST_SYSTEM, GUEST_SYSTEM) if options.runtime == "vm" else (0, 0)
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
            f"Warning: {where} may need {format_bytes(likely)} once all buffers are in use, and its container has {format_bytes(memory)}."
        )


def _balloon(ground: Preparation, chosen: dict[str, str]) -> tuple[dict[int, str], dict[str, str]]:
    """Why scheme 4 cannot be had, if so; and the settings by which its servers have the balloon. The only place that knows of its build."""
    node, cache = ground.node, str(ground.cache)
    own: dict[str, str] = {}
    if huge_pages.insists(chosen):
        return {BALLOON: f"a pool in huge pages has no balloon, and huge_pages = {chosen['huge_pages']} is asked for"}, {}
    if not huge_pages.declines(chosen):
        if ground.runtime != "vm" and any(ground.facts.huge_pages.values()):  # a guest has its own
            ground.choices.append(
                f"Warning: this host has huge pages. Scheme {BALLOON} leaves them alone, since a pool in them has no balloon, and "
                "others may use them; add --set huge_pages=off, so that only the balloon makes the difference."
            )
        own["huge_pages"] = "off"
    try:
        if ground.dry and balloon_build.find_balloon(node, ground.usable, cache) is None:
            lacking = balloon_build.missing(node, ground.usable)
            if lacking:
                return {BALLOON: f"pg_balloon cannot be built: {lacking}"}, {}
            ground.choices.append("pg_balloon will be built for scheme 4.")
            return {}, {"shared_preload_libraries": balloon_build.NAME} | own
        library = balloon_build.ensure_balloon(node, ground.usable, cache, account=ground.account)
    except CapabilityError as error:
        ground.choices.append(f"Warning: scheme {BALLOON} is not available: {error}.")
        return {BALLOON: str(error)}, {}
    wanted = balloon_build.with_balloon(chosen | own, library, {"enabled": "on"})
    return {}, {name: value for name, value in wanted.items() if chosen.get(name) != value}


def _swap(ground: Preparation, asked: ConsolidationRequest, rates: tuple[float, ...], configured: int) -> Swap:
    """The run's own swap: what was asked for, else zram where memory is overcommitted and it can be had, else none."""
    found, said = prepare_swap.complete(
        ground.node, asked, size=configured, overcommitted=any(rates), cache=ground.cache, facts=ground.facts, budget=ground.memory
    )
    ground.choices.extend(said)
    return found
