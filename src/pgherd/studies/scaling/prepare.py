"""Completion of a scaling request: numbers of clients, limits, load and durations of each variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.prepare import fleet, merge, servers
from pgherd.prepare.databases import DatabasePreparation, complete, database_options, prepare_databases
from pgherd.prepare.hosts import ContainerCpu, choose_cpu, choose_memory, complete_limits
from pgherd.prepare.prepared_study import PreparedStudy, most_pages
from pgherd.prepare.requests import FIXED, expand, require_different
from pgherd.prepare.volumes import disk_space
from pgherd.studies.scaling.options import MAX_CLIENTS_FACTOR, ScalingOptions, ScalingRequest, ScalingVariant, choose_clients, plural
from pgherd.studies.scaling.propose import planned
from pgherd.study.database_options import DEFAULT_BUDGET, DatabaseOptions
from pgherd.study.objectives import describe_search, objective_fields

BUDGET_FACTOR = 1.15
"""Time budget as a multiple of the time under load, for transitions, reruns and more points."""
RESTART_S = 6.0
"""Seconds to replace the server of a variant by that of the next one, including the copy."""

BASE = "base"
"""Name of the unchanged request. A single variant is compared with it."""
_SHARED = {"clients", "slo", "price", "start_state"}
"""Options that are the same for all variants, in addition to those of every study."""
_BRANCHES = ("tpcb-like", "simple-update")
"""Built-in scripts that need at least as many branches as clients (pgbench documentation)."""


def prepare(node: Node, request: ScalingRequest, dry: bool) -> PreparedStudy:
    """Complete a scaling request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if request.slo and len(numbers := sorted(set(request.clients or ()))) > 1:
        raise UsageError(
            f"--slo searches a rate with one number of clients, but --clients has {', '.join(map(str, numbers))}; give one of them"
        )
    if not request.variant:
        return _with_budget(_server(node, request, dry))
    if request.slo:
        raise UsageError("--slo and --variant exclude each other: a search has one server; run scaling once for each variant")
    # A single variant is compared with the unchanged request.
    texts = request.variant if len(request.variant) > 1 else (BASE, *request.variant)
    requests = expand(request.model_copy(update={"variant": ()}), texts, fixed=FIXED | _SHARED)
    variants = {name: _variant(node, name, one, dry) for name, one in requests.items()}
    # Variants with fewer vCPUs choose fewer clients, and so fewer branches. Fewer branches have more waits for locks.
    chosen = [name for name, one in requests.items() if one.scale is None and not (one.script or one.dsn) and one.workload in _BRANCHES]
    largest = max((_scaling(variants[name]).scale for name in chosen), default=0)
    for name in chosen:
        if _scaling(variants[name]).scale < largest:
            variants[name] = _variant(node, name, requests[name].model_copy(update={"scale": largest}), dry)
    merged = _merge(variants)
    require_different(node, "variant", requests, {variant.name: variant.options for variant in _scaling(merged).variants})
    defaults = servers.describe_defaults(servers.differing_defaults(node, variants))
    return _with_budget(replace(merged, defaults_chosen=(*merged.defaults_chosen, *defaults)))


def _variant(node: Node, name: str, request: ScalingRequest, dry: bool) -> PreparedStudy:
    """Return the completed request of a variant, which messages name."""
    try:
        return _server(node, request, dry)
    except PgherdError as error:
        raise type(error)(f"variant '{name}': {error}") from None


def _server(node: Node, request: ScalingRequest, dry: bool) -> PreparedStudy:
    """Complete the request of one server, without a time budget."""
    with prepare_databases(node, request, dry) as preparation:
        share, runtime = preparation.share, preparation.runtime
        cpu = ContainerCpu(share.cores, "none")  # all cores of the host's share without a quota
        if request.vcpus is not None or request.cpu_mode is not None:
            cpu = choose_cpu(preparation.containers, share.cores)
        preparation, scaled = _with_enough_branches(preparation, request, cpu.vcpus)
        load = preparation.load
        size = servers.database_size(preparation.workspace, preparation.servers, load)
        memory = choose_memory(preparation.containers)

        def memory_needed(clients: int) -> int:
            return servers.memory_needed(preparation.servers, runtime, size.bytes, clients)

        room = fleet.most_clients(preparation.servers.existing.values(), request.connection_limit)
        budget = min(share.memory, memory or share.memory)
        clients, max_clients, limited = _clients(request, cpu.vcpus, size.bytes, budget, memory_needed, room)
        settings = servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, max_clients, memory)
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        options = ScalingOptions(
            **database_options(preparation, limits, size, settings),
            clients=clients,
            max_clients=max_clients,
            refine=request.clients is None,
            threads=request.threads or max(1, math.ceil(cpu.vcpus)),
            repeats=request.planned_repeats(3),
            fixed_repeats=request.repeats is not None,
            duration=request.duration,
            warmup=request.warmup,
        ).model_copy(update=objective_fields(request))
        disk = disk_space(
            preparation.workspace,
            preparation.volumes,
            1,
            size.bytes,
            writes=not load.read_only,
            settings=settings.settings,
            loaded=preparation.loaded(settings.settings),
        )
        return complete(
            preparation,
            "scaling",
            options,
            size=size,
            settings=settings,
            disk=disk,
            memory=memory or memory_needed(max_clients),
            messages=(*describe_search(options, "rates"), *scaled, *size.messages, *limited, *settings.messages, *limits.messages),
        )


def _with_enough_branches(preparation: DatabasePreparation, request: ScalingRequest, vcpus: float) -> tuple[DatabasePreparation, list[str]]:
    """Raise the default scale to at least one branch per client, and say so. A scale that the user sets stays."""
    largest = max(request.clients or choose_clients(vcpus))
    if preparation.servers.external is not None:  # pgherd does not change the tables of an external server
        return preparation, []
    load = preparation.load
    if load.user_scripts or request.scale is not None or request.workload not in _BRANCHES or largest <= load.scale:
        return preparation, []
    scale = largest * (1 if request.clients else MAX_CLIENTS_FACTOR)
    message = f"Scale {scale}: each transaction of {request.workload} updates one of {scale} branches, at least one per client."
    return replace(preparation, load=replace(load, scale=scale)), [message]


def _clients(
    request: ScalingRequest, vcpus: float, size: int, budget: int, memory_needed: Callable[[int], int], room: int | None = None
) -> tuple[tuple[int, ...], int, list[str]]:
    """Return the numbers of clients to measure, the maximum that the server is configured for, and messages.

    ``size`` (bytes) is that of the database. A server with a number of clients needs ``memory_needed`` of its ``budget`` (bytes). An
    existing server has ``room`` for so many clients.

    Raises:
        UsageError: a number is below 1 or below --threads, or the memory is insufficient.
    """
    requested = tuple(sorted(set(request.clients))) if request.clients else None
    if requested is not None and requested[0] < 1:
        raise UsageError(f"--clients {requested[0]}: the minimum is 1")
    if request.threads is not None and requested is not None and request.threads > requested[-1]:
        raise UsageError(
            f"--threads {request.threads} is more than --clients {requested[-1]}; pgbench needs at least one client per thread"
        )
    largest = requested[-1] if requested else 1
    need = memory_needed(largest)
    if need > budget:
        lower = "--clients or --scale" if largest > 1 else "--scale"
        higher = "--memory" if request.memory else "--host-memory"
        raise UsageError(
            f"a server with {plural(largest)} that holds a database of {format_bytes(size)} needs {format_bytes(need)}, but its limit is "
            f"{format_bytes(budget)}; lower {lower}, or raise {higher}"
        )
    if requested is not None:
        return requested, requested[-1], []
    limit = 1 + (budget - need) // max(memory_needed(2) - need, 1)
    reason = f"a server exceeds its memory of {format_bytes(budget)}"
    if room is not None and room < limit:
        limit, reason = room, "the server has no free connection, or --connection-limit is exceeded"
    clients = choose_clients(vcpus, limit=limit)
    messages = []
    if clients[-1] < choose_clients(vcpus)[-1]:
        messages.append(f"At most {plural(clients[-1])}: with more, {reason}.")
    return clients, max(clients[-1], min(limit, MAX_CLIENTS_FACTOR * clients[-1])), messages


def _merge(prepared: Mapping[str, PreparedStudy]) -> PreparedStudy:
    """Merge all variants into one study with the same numbers of clients, the same share of the host and the same seed."""
    base = next(iter(prepared.values()))
    by_name = merge.logged_alike({name: _scaling(study) for name, study in prepared.items()})
    first = next(iter(by_name.values()))
    max_clients = min(options.max_clients for options in by_name.values())
    # Variants with fewer vCPUs choose fewer clients. All numbers are measured if every variant has enough memory for them.
    clients = tuple(sorted({n for options in by_name.values() for n in options.clients if n <= max_clients}))
    same = {"host_memory": first.host_memory, "host_cores": first.host_cores, "seed": first.seed}
    variants = tuple(
        ScalingVariant(name=name, options=_server_options(options).model_copy(update=same)) for name, options in by_name.items()
    )
    fields = _server_options(first).model_dump() | {"clients": clients, "max_clients": max_clients, "refine": first.refine}
    return replace(
        base,
        options=ScalingOptions(**fields, variants=variants),
        environment=merge.environment({name: study.environment for name, study in prepared.items()}),
        defaults_chosen=merge.choices({name: study.defaults_chosen for name, study in prepared.items()}),
        settings=merge.settings({name: study.settings for name, study in prepared.items()}),
        host_changes=merge.changes(study.host_changes for study in prepared.values()),
        confirm=merge.changes(study.confirm for study in prepared.values()),
        typed=merge.changes(study.typed for study in prepared.values()),
        holds=merge.holds(study.holds for study in prepared.values()),
        huge_pages=most_pages(prepared.values()),
        # The data of one server at a time, and the templates of all. A template is half of the disk space of a variant.
        disk=max(study.disk for study in prepared.values()) + sum(study.disk // 2 for study in list(prepared.values())[1:]),
        memory=max(study.memory for study in prepared.values()),
    )


def _scaling(prepared: PreparedStudy) -> ScalingOptions:
    assert isinstance(prepared.options, ScalingOptions)
    return prepared.options


def _server_options(options: ScalingOptions) -> DatabaseOptions:
    return DatabaseOptions(**options.model_dump(include=set(DatabaseOptions.model_fields)))


def _with_budget(prepared: PreparedStudy) -> PreparedStudy:
    """Set the default time budget, which increases with the number of planned trials."""
    options = _scaling(prepared)
    if options.time_budget is not None:
        return prepared
    under_load = sum(trial.seconds() for trial in planned(options))
    restarts = RESTART_S * options.repeats * len(options.variants)
    return replace(prepared, options=options.model_copy(update={"time_budget": max(DEFAULT_BUDGET, under_load * BUDGET_FACTOR + restarts)}))
