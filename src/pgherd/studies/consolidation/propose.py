"""Trials of a consolidation run: their order, and the deployment of each layout. Pure. Imports no scientific library.

A block holds every combination of layout, buffers and overcommit once, shuffled by the run's seed. Drift of the host and warm caches of a
previous layout therefore do not bias the comparison of the layouts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.consolidation import load_patterns
from pgherd.studies.consolidation.options import BALLOON, DEDICATED, ONE_SERVER, SHARED_CONTAINER, SHARED_DATABASE, ConsolidationOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan

_MB = 2**20
_BUFFERS_STEP_BYTES = 8 * _MB
"""Shared buffers are a multiple of this."""
MIN_BUFFERS_BYTES = 16 * _MB


def points(options: ConsolidationOptions) -> list[Point]:
    """Return every combination, by buffers, overcommit and layout."""
    return [
        {"layout": layout, "shared_buffers_percent": percent, "overcommit": overcommit}
        for percent in options.shared_buffers_percent
        for overcommit in options.overcommit
        for layout in options.runnable
    ]


def propose(options: ConsolidationOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The same options and results always give the same proposal."""
    if not options.runnable:
        return Proposal(stop="none of the requested layouts is available on this host", max_trials=0)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: ConsolidationOptions) -> tuple[Trial, ...]:
    """Return all trials of the plan, including those that a time budget may leave out."""
    return _design(options).planned


def _design(options: ConsolidationOptions) -> SchedulePlan:
    combinations = points(options)
    blocks = []
    for block in range(options.repeats):
        order = random.Random(f"consolidation {options.seed} {block}").sample(combinations, len(combinations))
        blocks.append([trial(options, point, block, "planned") for point in order])
    return SchedulePlan(
        blocks,
        combinations,
        build=lambda point, repeat, reason: trial(options, point, repeat, reason),
        reserved=lambda point: options.repeats,
        adaptive=False,
    )


def trial(options: ConsolidationOptions, point: Point, repeat: int, reason: str) -> Trial:
    """Return the trial at a point, which has ``layout``, ``shared_buffers_percent`` and ``overcommit``."""
    layout = str(point["layout"])
    return Trial(
        point=dict(point),
        repeat=repeat,
        reason=reason,
        deployment=deploy(options, layout, int(point["shared_buffers_percent"]), float(point["overcommit"])),
        state=options.start_state,
        phases=load_patterns.phases(options.plan, targets(options, layout), options.load, ramp=options.warmup, seconds=options.duration),
        validity_checks=("not-client-bound",),
        failure_expected=float(point["overcommit"]) > 0,
        wait_events=True,
    )


def targets(options: ConsolidationOptions, layout: str) -> list[str]:
    """Return the addresses of the databases, in their order."""
    return [f"local/{'/'.join(names)}" for names in _address_names(options, layout)]


def _address_names(options: ConsolidationOptions, layout: str) -> list[tuple[str, str, str]]:
    """Return (container, server, database) of each database, in their order.

    The only database of a server is always called ``bench``, so that all of these servers share one data directory template.
    """
    names = [f"db{number}" for number in range(1, options.databases + 1)]
    if layout in DEDICATED:
        return [(name, "pg", "bench") for name in names]
    if layout == SHARED_CONTAINER:
        return [("all", name, "bench") for name in names]
    return [("all", "pg", name) for name in names]


def shared_buffers(options: ConsolidationOptions, layout: str, percent: int) -> int:
    """Return shared_buffers (bytes) of each server: a percentage of its share of the container's memory."""
    share = options.configured if layout in ONE_SERVER else options.share
    return max(MIN_BUFFERS_BYTES, share * percent // 100 // _BUFFERS_STEP_BYTES * _BUFFERS_STEP_BYTES)


def deploy(options: ConsolidationOptions, layout: str, percent: int, overcommit: float) -> Deployment:
    """Return the containers of a layout, on a host with the memory that the overcommitment leaves available."""
    databases_of: dict[str, dict[str, list[Database]]] = {}
    for container_name, server_name, database_name in _address_names(options, layout):
        database = options.database_called(database_name)
        if layout == SHARED_DATABASE:
            database = database.model_copy(update={"schema_of": "bench"})
        databases_of.setdefault(container_name, {}).setdefault(server_name, []).append(database)
    containers = []
    databases_each = 1 if layout in DEDICATED else options.databases
    for name, servers in databases_of.items():
        containers.append(
            Container(
                name=name,
                runtime=options.runtime,
                vcpus=options.vcpus,
                cpu_mode=options.cpu_mode,
                memory=_limit(options.container_memory, databases_each),
                weight=options.cpu_weight,
                iops=_limit(options.iops, databases_each),
                io_bandwidth=_limit(options.io_bandwidth, databases_each),
                vm_memory_min=options.vm_memory_min,
                vm_memory_shares=options.vm_memory_shares.get(name, 1.0),
                vm=options.vm,
                servers=tuple(
                    _server(options, layout, percent, server_name, tuple(databases)) for server_name, databases in servers.items()
                ),
            )
        )
    host = Host(
        cores=options.host_cores,
        memory=options.available_memory(overcommit),
        overcommit_by=options.overcommit_by,
        labels=options.labels,
        containers=tuple(containers),
    )
    return Deployment(hosts=(host,), volumes=options.volumes)


def _limit(each: int | None, databases: int) -> int | None:
    """Return the limit of a container from that of one database. None: no limit."""
    return None if each is None else each * databases


def _server(options: ConsolidationOptions, layout: str, percent: int, name: str, databases: tuple[Database, ...]) -> Server:
    settings = options.settings | (options.balloon if layout == BALLOON else {})
    return options.own_server(name, databases, settings | {"shared_buffers": f"{shared_buffers(options, layout, percent) // _MB}MB"})
