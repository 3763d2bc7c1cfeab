"""The deployments of the schemes, and their trials. Pure."""

from __future__ import annotations

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.trial import Trial
from pgherd.studies.consolidation import load_patterns
from pgherd.studies.consolidation.options import APART, BALLOON, ConsolidationOptions
from pgherd.study.trial_schedule import Point

_MB = 2**20
_STEP = 8 * _MB
"""Shared buffers are whole multiples of it."""
LEAST_BUFFERS = 16 * _MB


def names(options: ConsolidationOptions) -> list[str]:
    """Of the databases: ``db1`` and so on."""
    return [f"db{number}" for number in range(1, options.databases + 1)]


def places(options: ConsolidationOptions, scheme: int) -> list[tuple[str, str, str]]:
    """(container, server, database) of each database, in their order.

    A server's only database is called ``bench`` whichever it is, so that all of them come from one golden copy.
    """
    if scheme in APART:
        return [(name, "pg", "bench") for name in names(options)]
    if scheme == 2:
        return [("all", name, "bench") for name in names(options)]
    return [("all", "pg", name) for name in names(options)]


def targets(options: ConsolidationOptions, scheme: int) -> list[str]:
    """The databases' addresses, in their order."""
    return [f"local/{'/'.join(place)}" for place in places(options, scheme)]


def shared_buffers(options: ConsolidationOptions, scheme: int, percent: int) -> int:
    """Bytes of each server: so many per cent of its share of its container's memory."""
    share = options.configured if scheme == 1 else options.share
    return max(LEAST_BUFFERS, share * percent // 100 // _STEP * _STEP)


def deploy(options: ConsolidationOptions, scheme: int, percent: int, rate: float) -> Deployment:
    """A scheme's containers on a host whose memory is what the rate leaves available."""
    containers: dict[str, dict[str, list[Database]]] = {}
    for container, server, database in places(options, scheme):
        containers.setdefault(container, {}).setdefault(server, []).append(options.database_called(database))
    found = []
    for name, servers in containers.items():
        memory = None
        if options.container_memory is not None:
            memory = options.container_memory * (1 if scheme in APART else options.databases)
        found.append(
            Container(
                name=name,
                runtime=options.runtime,
                vcpus=options.vcpus,
                cpu_mode=options.cpu_mode,
                memory=memory,
                memory_minimum=options.guest_minimum,
                memory_shares=options.guest_shares.get(name, 1.0),
                guest=options.guest,
                servers=tuple(_server(options, scheme, percent, one, tuple(held)) for one, held in servers.items()),
            )
        )
    host = Host(
        cores=options.cores, memory=options.available(rate), staging=options.staging, labels=options.labels, containers=tuple(found)
    )
    return Deployment(hosts=(host,), volumes=options.all_volumes)


def _server(options: ConsolidationOptions, scheme: int, percent: int, name: str, databases: tuple[Database, ...]) -> Server:
    settings = options.settings | (options.balloon if scheme == BALLOON else {})
    return Server(
        name=name,
        bin=options.pg_bin,
        version=options.pg_version,
        settings=settings | {"shared_buffers": f"{shared_buffers(options, scheme, percent) // _MB}MB"},
        transparent_huge_pages=options.transparent_huge_pages,
        checksums=options.checksums,
        volumes=options.all_roles,
        tablespaces=options.tablespaces,
        databases=databases,
    )


def trial(options: ConsolidationOptions, point: Point, repeat: int, reason: str) -> Trial:
    """The trial at a point: ``scheme``, ``buffers`` (per cent) and ``rate``."""
    scheme = int(point["scheme"])
    return Trial(
        point=dict(point),
        repeat=repeat,
        reason=reason,
        deployment=deploy(options, scheme, int(point["buffers"]), float(point["rate"])),
        state=options.state,
        phases=load_patterns.phases(options.plan, targets(options, scheme), options.load, ramp=options.ramp, seconds=options.seconds),
        intents=("not-client-bound",),
        may_die=float(point["rate"]) > 0,
    )
