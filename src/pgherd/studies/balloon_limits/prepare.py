"""Completion of a request with a changing memory limit: memory, scale, the size of each pool, and pg_balloon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from pgherd.host.facts import gather
from pgherd.model.capabilities import capabilities_of
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node.protocol import Node
from pgherd.postgres.huge_pages import require_no_huge_pages
from pgherd.prepare import servers
from pgherd.prepare.balloon import BalloonChoice, choose_balloon
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.guests import GUEST_SYSTEM
from pgherd.prepare.hosts import choose_cpu, choose_memory, choose_swap, complete_limits, with_swap
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.volumes import disk_space
from pgherd.studies.balloon_limits.options import BALLOON, POOLS, BalloonLimitsOptions, BalloonLimitsRequest, Pool
from pgherd.workloads.registry import find

DEFAULT_POOLS: tuple[Pool, ...] = ("small", "large", "balloon")
MEMORY_BYTES = 2**30
"""Largest default memory of the container."""
DATABASE_SHARE = 0.5
"""Size of the default database, as a share of the memory: the large pool holds it, and the small one does not."""
POOL_SHARE = 0.6
"""Shared buffers of a pool, as a share of the limit that it is for, without a guest's system. The processes use some of the remainder."""
_ROUND = 16 * 2**20


def prepare(node: Node, request: BalloonLimitsRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if request.runtime is not None and not capabilities_of(request.runtime).memory_changes:
        raise CapabilityError(
            f"balloon limits changes memory limits under load, which --runtime {request.runtime} does not support; omit it"
        )
    pools = request.pools or DEFAULT_POOLS
    with prepare_databases(node, _with_size(node, request), dry) as preparation:
        share, containers, runtime = preparation.share, preparation.containers, preparation.runtime
        if not capabilities_of(runtime).memory_changes:
            raise CapabilityError("balloon limits needs the cgroup runtime, or --runtime vm; 'pgherd doctor' shows what this host lacks")
        cpu = choose_cpu(containers, share.cores)
        memory = choose_memory(containers)
        assert memory is not None
        if memory > share.memory:
            raise UsageError(
                f"--memory {format_bytes(memory)} exceeds the host's memory budget of {format_bytes(share.memory)}; lower it, or raise "
                "--host-memory"
            )
        if "shared_buffers" in preparation.servers.requested.settings:
            raise UsageError("--set shared_buffers: the pools decide; leave it out, or change --memory")
        size = servers.database_size(preparation.workspace, preparation.servers, preparation.load)
        sizes = _pool_sizes(memory, request.limits, _system_bytes(runtime))
        settings = servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, request.clients, memory)
        require_no_huge_pages(settings.settings)
        rows = tuple(row for row in settings.rows if row.name != "shared_buffers")  # the plan names those of each pool
        settings = replace(settings, rows=rows)
        balloon = BalloonChoice()
        if BALLOON in pools:
            installation = preparation.servers.usable
            balloon = choose_balloon(preparation.workspace, installation, settings.settings, f"pool {BALLOON}")
            if balloon.unavailable:
                raise CapabilityError(f"pool {BALLOON} is not available: {balloon.unavailable}; or leave it out of --pools")
        if preparation.guests is not None and request.swap not in (None, "none"):
            raise UsageError(f"--swap {request.swap}: guests do not use the swap of this host; leave it out")
        swap, about_swap = choose_swap(
            node,
            request,
            size=memory,
            overcommitted=preparation.guests is None,
            cache=preparation.workspace.cache,
            facts=preparation.facts,
            budget=memory,
        )
        disk = disk_space(
            preparation.workspace,
            preparation.volumes,
            1,
            size.bytes,
            writes=request.updates > 0,
            settings=settings.settings,
            loaded=preparation.loaded(settings.settings),
        )
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        scripts = {"select-only": 100 - request.updates, "simple-update": request.updates}
        options = BalloonLimitsOptions(
            **database_options(preparation, limits, size, settings)
            | {
                "pools": pools,
                "pool_sizes": {pool: sizes[pool] for pool in pools},
                "limits": request.limits,
                "balloon": balloon.settings,
                "swap": swap,
                "scripts": tuple(Script(source=f"builtin:{name}", weight=weight) for name, weight in scripts.items() if weight),
                "clients": request.clients,
                "threads": request.threads or max(1, math.ceil(cpu.vcpus)),
                "repeats": request.repeats or 3,
                "fixed_repeats": True,
                "duration": request.duration,
                "warmup": request.warmup,
            }
        )
        prepared = complete(
            preparation,
            "balloon-limits",
            options,
            size=size,
            settings=settings,
            disk=disk,
            memory=memory,
            messages=(*size.messages, *settings.messages, *balloon.messages, *about_swap, *limits.messages),
        )
    return with_swap(prepared, swap)


def _system_bytes(runtime: str | None) -> int:
    """Return the memory of a guest's kernel and agent (bytes); 0 for a container of this host's kernel."""
    return GUEST_SYSTEM if runtime is not None and capabilities_of(runtime).own_kernel else 0


def _pool_sizes(memory: int, limits: Sequence[int], system: int) -> dict[Pool, int]:
    """Return the shared buffers of each pool, beside ``system`` bytes of a guest's kernel.

    Raises:
        UsageError: no memory remains for a server at the smallest limit.
    """
    smallest, middle = (memory * limit // 100 for limit in (min(limits), median_low(set(limits))))
    if smallest <= system:
        raise UsageError(f"--limits {min(limits)}: a guest with {format_bytes(smallest)} has no room for a server; raise it, or --memory")
    largest = _rounded(POOL_SHARE * (memory - system))
    small, medium = (_rounded(POOL_SHARE * (limit - system)) for limit in (smallest, middle))
    return {"small": small, "middle": medium, "large": largest, "quarter": _rounded(0.25 * memory), "balloon": largest}


def _with_size(node: Node, request: BalloonLimitsRequest) -> BalloonLimitsRequest:
    """Return the request with its memory, its scale, and the built-in that decides whether the load writes."""
    available = request.host_memory if request.host_memory is not None else gather(node).memory_available
    memory = request.memory if request.memory is not None else min(MEMORY_BYTES, _rounded(available / 2))
    each = (find("pgbench").size_estimate(100) or 0) / 100
    scale = request.scale if request.scale is not None else max(1, round(DATABASE_SHARE * (memory - _system_bytes(request.runtime)) / each))
    workload = "simple-update" if request.updates else "select-only"
    return request.model_copy(update={"memory": memory, "scale": scale, "workload": workload})


def _rounded(size: float) -> int:
    return max(_ROUND, int(size) // _ROUND * _ROUND)


def plan_lines(options: BalloonLimitsOptions, trials: Sequence[Trial], guest_memory: object = None) -> list[str]:
    """Return the dry-run output: the pools and the limits."""
    limits = ", ".join(f"{limit} %" for limit in options.limits)
    return [
        f"The container has {format_bytes(options.container_memory or 0)}. Its limit, {format_seconds(options.duration)} each: {limits}.",
        "Pools, one at a time:",
        *(f"  {pool}: {POOLS[pool]}, {format_bytes(options.pool_sizes[pool])}." for pool in options.pools),
    ]
