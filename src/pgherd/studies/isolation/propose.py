"""Trials of an isolation run: their order, and the deployment of each scheme. Pure. Imports no scientific library.

A block is one scheme's trials: the victim alone and next to each aggressor, in random order. The deployment is the same in all of them,
so that the servers keep running, and an aggressor's effect is compared with a trial of the same minutes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Container, CpuMode, Database, Deployment, Host, Server
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import parse_buffers
from pgherd.studies.isolation.options import ALONE, FIO, FIO_BYTES, SHARED, IsolationOptions, Scheme
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan

VICTIM, AGGRESSOR = "victim", "aggressor"
_ALIGNMENT = 2**20
"""Direct I/O needs parts of the file that begin at a multiple of its block."""
CPU_MODES: dict[Scheme, CpuMode] = {"weights": "none", "cpuset": "cpuset"}
"""Enforcement of the CPU limit in schemes that have no quota."""


def points(options: IsolationOptions) -> list[Point]:
    """Return every combination of scheme and aggressor. The trials alone come first in each scheme."""
    return [point for scheme in options.schemes for point in _points_of(options, scheme)]


def _points_of(options: IsolationOptions, scheme: Scheme) -> list[Point]:
    return [{"scheme": scheme, "aggressor": name} for name in (ALONE, *options.aggressors)]


def propose(options: IsolationOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The same options and results always give the same proposal."""
    return trial_schedule.propose(options, _design(options), results)


def planned(options: IsolationOptions) -> tuple[Trial, ...]:
    """Return all trials of the plan, including those that a time budget may leave out."""
    return _design(options).planned


def _design(options: IsolationOptions) -> SchedulePlan:
    blocks = []
    for repeat in range(options.repeats):
        chance = random.Random(f"isolation {options.seed} {repeat}")
        for scheme in chance.sample(options.schemes, len(options.schemes)):
            conditions = _points_of(options, scheme)
            blocks.append([trial(options, point, repeat, "planned") for point in chance.sample(conditions, len(conditions))])
    return SchedulePlan(
        blocks,
        points(options),
        build=lambda point, repeat, reason: trial(options, point, repeat, reason),
        reserved=lambda point: options.repeats,
        adaptive=False,
    )


def trial(options: IsolationOptions, point: Point, repeat: int, reason: str) -> Trial:
    """Return the trial at a point, which has ``scheme`` and ``aggressor``."""
    scheme, aggressor = _scheme(options, point), str(point["aggressor"])
    victim, neighbour = addresses(scheme)
    loads = {victim: options.load(options.clients).model_copy(update={"sampling": 1.0})}
    if aggressor != ALONE:
        loads[neighbour] = _aggressor_load(options, aggressor)
    return Trial(
        point=dict(point),
        repeat=repeat,
        reason=reason,
        deployment=deploy(options, scheme),
        state=options.start_state,
        phases=(Phase(warmup=options.warmup, seconds=options.duration, loads=loads),),
        validity_checks=("rate-achieved",) if aggressor == ALONE else (),
        wait_events=True,
    )


def _scheme(options: IsolationOptions, point: Point) -> Scheme:
    return next(scheme for scheme in options.schemes if scheme == point["scheme"])


def _aggressor_load(options: IsolationOptions, aggressor: str) -> Load:
    clients = options.aggressor_clients
    if aggressor == FIO:
        return _fio_load(clients, options.seed)
    return Load(
        clients=clients,
        threads=min(options.threads, clients),
        scripts=(Script(source=options.scripts_of[aggressor]),),
        protocol="simple",
        client_placement=options.client_placement,
        sampling=1.0,
        options={"connect": "1"} if aggressor == "connections" else {},
    )


def _fio_load(clients: int, seed: int) -> Load:
    """Return the fio load: each client reads and writes a block at a time, as a server process does, in its part of the file."""
    part = max(1, FIO_BYTES // clients // _ALIGNMENT) * _ALIGNMENT
    io = {"rw": "randrw", "bs": "8192", "size": str(part * clients), "direct": "1", "seed": str(seed)}
    return Load(driver="fio", client_placement="inside", threads=clients, options=io)


def addresses(scheme: Scheme) -> tuple[str, str]:
    """Return the addresses of the victim's and of the aggressor's database.

    The only database of a server is always called ``bench``, so that these servers share one data directory template.
    """
    if scheme == "shared-server":
        return f"local/all/pg/{VICTIM}", f"local/all/pg/{AGGRESSOR}"
    if scheme == "shared-container":
        return f"local/all/{VICTIM}/bench", f"local/all/{AGGRESSOR}/bench"
    return f"local/{VICTIM}/pg/bench", f"local/{AGGRESSOR}/pg/bench"


def deploy(options: IsolationOptions, scheme: Scheme) -> Deployment:
    """Return the containers of a scheme. All schemes have the same vCPUs, memory and shared buffers in total."""
    databases_of: dict[str, dict[str, list[Database]]] = {}
    for address in addresses(scheme):
        _, container, server, database = address.split("/")
        databases_of.setdefault(container, {}).setdefault(server, []).append(options.database_called(database))
    containers = tuple(
        _container(options, scheme, name, tuple(_server(options, server, tuple(databases)) for server, databases in servers.items()))
        for name, servers in databases_of.items()
    )
    host = Host(cores=options.host_cores, memory=options.host_memory, labels=options.labels, containers=containers)
    return Deployment(hosts=(host,), volumes=options.volumes)


def _container(options: IsolationOptions, scheme: Scheme, name: str, servers: tuple[Server, ...]) -> Container:
    many = 2 if scheme in SHARED else 1
    return options.container(name).model_copy(
        update={
            "vcpus": options.vcpus * many,
            "cpu_mode": CPU_MODES.get(scheme, options.cpu_mode),
            "memory": None if options.container_memory is None else options.container_memory * many,
            "weight": (options.cpu_weight or 100 if name == VICTIM else 100) if scheme == "weights" else None,
            "iops": options.iops if scheme == "io" else None,
            "io_bandwidth": options.io_bandwidth if scheme == "io" else None,
            "servers": servers,
        }
    )


def _server(options: IsolationOptions, name: str, databases: tuple[Database, ...]) -> Server:
    settings = dict(options.settings)
    if len(databases) > 1 and "shared_buffers" in settings:
        settings["shared_buffers"] = f"{len(databases) * parse_buffers(settings['shared_buffers']) // 2**20}MB"
    return options.own_server(name, databases, settings)
