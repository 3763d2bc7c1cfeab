"""Completion of a scaling request: numbers of clients, limits, load and durations of each variant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.units import format_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import duplicate_variants, merge_variants, version_defaults
from pgherd.prepare.container_limits import Limits
from pgherd.prepare.database_preparation import Preparation, preparation
from pgherd.prepare.prepared_study import Prepared, most_pages
from pgherd.prepare.variants import FIXED, expand
from pgherd.studies.scaling.options import BEYOND, ScalingOptions, ScalingRequest, Variant, choose_clients, plural
from pgherd.studies.scaling.propose import planned
from pgherd.study.database_options import DEFAULT_BUDGET, DatabaseOptions

SPARE = 1.15
"""Time budget as a multiple of the time under load, for transitions, reruns and more points."""
RESTART = 6.0
"""Seconds to replace the server of a variant by that of the next one, including the copy."""

BASE = "base"
"""Name of the unchanged request. A single variant is compared with it."""
_SHARED = {"clients", "start_state"}
"""Options that are the same for all variants, in addition to those of every study."""
_BRANCHES = ("tpcb-like", "simple-update")
"""Built-in scripts that need at least as many branches as clients (pgbench documentation)."""


def prepare(node: Node, asked: ScalingRequest, dry: bool) -> Prepared:
    """Complete a scaling request for this host; see ``prepare.registry.prepare`` for what it raises."""
    if not asked.variant:
        return _with_budget(_server(node, asked, dry))
    # A single variant is compared with the unchanged request.
    texts = asked.variant if len(asked.variant) > 1 else (BASE, *asked.variant)
    requests = expand(asked.model_copy(update={"variant": ()}), texts, fixed=FIXED | _SHARED)
    variants: dict[str, Prepared] = {}
    for name, request in requests.items():
        try:
            variants[name] = _server(node, request, dry)
        except PgherdError as error:
            raise type(error)(f"variant '{name}': {error}") from None
    whole = _together(variants)
    duplicate_variants.require_different(node, "variant", requests, {one.name: one.options for one in _scaling(whole).variants})
    defaults = version_defaults.sentences(version_defaults.between(node, variants))
    return _with_budget(replace(whole, choices=(*whole.choices, *defaults)))


def _server(node: Node, asked: ScalingRequest, dry: bool) -> Prepared:
    """Complete the request of one server, without a time budget."""
    with preparation(node, asked, dry) as ground:
        limits = _limits(ground)
        ground = _enough_branches(ground, limits)
        size = ground.database_bytes()
        clients, most = _clients(ground, limits, size)
        memory = ground.container_memory()
        selected = ground.settings(size, most, memory)
        options = ScalingOptions(
            **ground.options(limits, selected, memory),
            clients=clients,
            most=most,
            refine=asked.clients is None,
            threads=asked.threads or max(1, math.ceil(limits.vcpus)),
            repeats=asked.repeats or 1,
            seconds=parse_seconds(asked.duration or "9s"),
            ramp=parse_seconds(asked.warmup or "0s"),
        )
        need = memory or ground.memory_needed(size, most)
        return ground.prepared("scaling", options, selected, disk=ground.disk(1, size), memory=need)


def _limits(ground: Preparation) -> Limits:
    """Return the limits of the server. The default is all cores of the host's share without a quota."""
    if ground.asked.vcpus is None and ground.asked.cpu_mode is None:
        return Limits(ground.cores, "none")
    return ground.limits(ground.cores)


def _enough_branches(ground: Preparation, limits: Limits) -> Preparation:
    """Raise the default scale to at least one branch per client. A scale that the user sets stays."""
    asked = ground.asked
    assert isinstance(asked, ScalingRequest)
    planned_clients = asked.clients or choose_clients(limits.vcpus)
    if ground.theirs is not None:  # pgherd does not change the tables of an external server
        return ground
    if asked.script or asked.scale is not None or asked.workload not in _BRANCHES or max(planned_clients) <= ground.scale:
        return ground
    scale = max(planned_clients) * (1 if asked.clients else BEYOND)
    ground.choices.append(f"Scale {scale}: each transaction of {asked.workload} updates one of {scale} branches, at least one per client.")
    return replace(ground, scale=scale)


def _clients(ground: Preparation, limits: Limits, size: int) -> tuple[tuple[int, ...], int]:
    """Return the numbers of clients to measure, and the maximum that the server is configured for.

    Raises:
        UsageError: a number is below 1 or below --threads, or the memory is insufficient.
    """
    asked = ground.asked
    assert isinstance(asked, ScalingRequest)
    budget = min(ground.memory, ground.container_memory() or ground.memory)
    requested = tuple(sorted(set(asked.clients))) if asked.clients else None
    if requested is not None and requested[0] < 1:
        raise UsageError(f"--clients {requested[0]}: the minimum is 1")
    if asked.threads is not None and requested is not None and asked.threads > requested[-1]:
        raise UsageError(f"--threads {asked.threads} is more than --clients {requested[-1]}; pgbench needs at least one client per thread")
    least = requested[-1] if requested else 1
    need = ground.memory_needed(size, least)
    if need > budget:
        lower = "--clients or --scale" if least > 1 else "--scale"
        higher = "--memory" if asked.memory else "--host-memory"
        raise UsageError(
            f"a server with {plural(least)} that holds a database of {format_bytes(size)} needs {format_bytes(need)}, but its limit is "
            f"{format_bytes(budget)}; lower {lower}, or raise {higher}"
        )
    if requested is not None:
        return requested, requested[-1]
    each = ground.memory_needed(size, 2) - need
    limit = 1 + (budget - need) // max(each, 1)
    clients = choose_clients(limits.vcpus, limit=limit)
    if clients[-1] < choose_clients(limits.vcpus)[-1]:
        ground.choices.append(f"At most {plural(clients[-1])}: with more, a server exceeds its memory of {format_bytes(budget)}.")
    return clients, max(clients[-1], min(limit, BEYOND * clients[-1]))


def _together(found: Mapping[str, Prepared]) -> Prepared:
    """Merge all variants into one study with the same numbers of clients, the same share of the host and the same seed."""
    base = next(iter(found.values()))
    each = merge_variants.logged_alike({name: _scaling(one) for name, one in found.items()})
    first = next(iter(each.values()))
    most = min(options.most for options in each.values())
    # Variants with fewer vCPUs choose fewer clients. All numbers are measured if every variant has enough memory for them.
    clients = tuple(sorted({n for options in each.values() for n in options.clients if n <= most}))
    same = {"memory": first.memory, "cores": first.cores, "seed": first.seed}
    variants = tuple(Variant(name=name, options=_server_options(options).model_copy(update=same)) for name, options in each.items())
    fields = _server_options(first).model_dump() | {"clients": clients, "most": most, "refine": first.refine}
    return replace(
        base,
        options=ScalingOptions(**fields, variants=variants),
        surroundings=merge_variants.surroundings({name: one.surroundings for name, one in found.items()}),
        choices=merge_variants.choices({name: one.choices for name, one in found.items()}),
        settings=merge_variants.settings({name: one.settings for name, one in found.items()}),
        host_changes=merge_variants.changes(one.host_changes for one in found.values()),
        confirm=merge_variants.changes(one.confirm for one in found.values()),
        typed=merge_variants.changes(one.typed for one in found.values()),
        holds=merge_variants.holds(one.holds for one in found.values()),
        huge_pages=most_pages(found.values()),
        # The data of one server at a time, and the templates of all. A template is half of the disk space of a variant.
        disk=max(one.disk for one in found.values()) + sum(one.disk // 2 for one in list(found.values())[1:]),
        memory=max(one.memory for one in found.values()),
    )


def _scaling(prepared: Prepared) -> ScalingOptions:
    assert isinstance(prepared.options, ScalingOptions)
    return prepared.options


def _server_options(options: ScalingOptions) -> DatabaseOptions:
    return DatabaseOptions(**options.model_dump(include=set(DatabaseOptions.model_fields)))


def _with_budget(prepared: Prepared) -> Prepared:
    """Set the default time budget, which increases with the number of planned trials."""
    options = _scaling(prepared)
    if options.budget_seconds is not None:
        return prepared
    under_load = sum(trial.seconds() for trial in planned(options))
    restarts = RESTART * options.repeats * len(options.variants)
    return replace(prepared, options=options.model_copy(update={"budget_seconds": max(DEFAULT_BUDGET, under_load * SPARE + restarts)}))
