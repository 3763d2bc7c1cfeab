"""Completion of a request for databases on this host: the steps that all studies of databases share.

A study calls these steps one after the other. Each returns an immutable value with its messages:

1. ``prepare_databases``: this host, the run's share of it, runtime, load, servers, volumes and virtual machines.
2. ``hosts.choose_cpu``, ``hosts.choose_memory``: the limits of each database's container.
3. ``servers.database_size``: the size of a database. The user's scripts are tried.
4. ``servers.choose_settings``, ``volumes.disk_space``: the settings of each server, and the disk space of all.
5. ``database_options``, ``complete``: the options of the study, and the study that is ready to run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pgherd.host.facts import gather
from pgherd.model.analysis import Thresholds
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Database, Role, RuntimeName
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment
from pgherd.node.protocol import Node
from pgherd.postgres import templates
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.prepare import fleet, hosts, load, servers
from pgherd.prepare import guests as virtual_machines
from pgherd.prepare import volumes as server_volumes
from pgherd.prepare.guests import GuestChoice, RequestedGuests
from pgherd.prepare.hosts import ContainerLimits, Containers, HostShare
from pgherd.prepare.load import DatabaseLoad, RequestedLoad
from pgherd.prepare.prepared_study import PreparedStudy, Workspace, open_workspace, thresholds
from pgherd.prepare.servers import DatabaseSize, RequestedServers, ServerChoice, ServerSettings
from pgherd.prepare.volumes import DiskSpace, RequestedVolumes
from pgherd.runner.deploy import huge_pages, tracked_processes
from pgherd.runner.execute import device_io
from pgherd.runtimes.runtime_selection import choose
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest, Scheduler
from pgherd.workloads.registry import loaders


@dataclass(frozen=True)
class Measurement:
    """Properties of the whole measurement: order of trials, time, checks, and what is observed besides."""

    seed: int
    time_budget: float | None
    thresholds: Thresholds
    track: tuple[str, ...]
    trace_io: bool


@dataclass(frozen=True)
class DatabasePreparation:
    """Parts of a request that do not depend on the number of databases or their clients, completed for this host.

    ``volumes`` is None if an external server stores the data. ``guests`` is None if the containers are no virtual machines.
    ``connection_limit`` and ``query_timeout`` (seconds) protect existing servers. ``messages`` are sentences on chosen defaults, and
    warnings.
    """

    workspace: Workspace
    facts: HostFacts
    containers: Containers
    load: DatabaseLoad
    servers: ServerChoice
    volumes: RequestedVolumes | None
    guests: GuestChoice | None
    scheduler: Scheduler
    measurement: Measurement
    connection_limit: int | None
    query_timeout: float | None
    messages: tuple[str, ...]

    @property
    def runtime(self) -> RuntimeName:
        return self.containers.runtime

    @property
    def share(self) -> HostShare:
        """Share of the hosts that the run may use."""
        return self.containers.share

    def loaded(self, settings: Mapping[str, str], contents: Collection[tuple[Database, ...]] = ()) -> int:
        """Return the number of databases in templates that the cache has already.

        ``contents`` are the databases of each kind of server with these ``settings``. The default is one server with the load's database.
        """
        if self.volumes is None:
            return 0
        node, cache, chosen = self.workspace.node, str(self.workspace.cache), self.servers
        kinds = contents or [(self.load.database(),)]
        found = [kind for kind in kinds if templates.find(node, chosen.usable, loaders(node, kind, settings), cache, chosen.checksums)]
        return sum(map(len, found))


@contextlib.contextmanager
def prepare_databases(node: Node, request: DatabaseRequest, dry: bool, *, several_servers: bool = False) -> Iterator[DatabasePreparation]:
    """Check the request against this host and yield its preparation. Remove temporary files on exit.

    With ``dry``, no database is loaded. ``several_servers``: the study can load more than one existing server.

    Raises:
        UsageError: an option is wrong, or requires more than this host has.
        CapabilityError: this host does not support the request.
    """
    existing = fleet.requested_servers(request.dsn, request.servers, request.server, several=several_servers, cgroup=request.server_cgroup)
    measurement = Measurement(
        seed=request.seed if request.seed is not None else random.randrange(2**31),
        time_budget=request.time_budget,
        thresholds=thresholds(request.threshold),
        track=request.track,
        trace_io=request.trace_io,
    )
    requested_load = RequestedLoad(
        workload=request.workload,
        scale=request.scale,
        partitions=request.partitions,
        scripts=request.script,
        init=request.init_script,
        read_only=request.read_only,
        allow_writes=request.allow_writes,
        external=bool(existing),
        rate=request.rate,
        protocol=request.protocol,
        client_placement=request.client_placement,
        scheduler=request.scheduler,
        think_time=request.think_time,
        zipf=request.zipf,
        update_percent=request.update_percent,
        check_consistency=request.check_consistency,
        start_state=request.start_state,
        duration=request.duration,
        given=frozenset(request.model_fields_set),
    )
    requested_servers = RequestedServers(
        existing=existing,
        prometheus=request.prometheus,
        prometheus_match=request.prometheus_match,
        pg_bin=request.pg_bin,
        pg_version=request.pg_version,
        set=request.set,
        settings_from=request.settings_from,
        huge_pages=request.huge_pages,
        read_only=request.read_only,
        data_checksums=request.data_checksums,
        not_external=tuple(name for name in servers.ONLY_OWN if getattr(request, name) not in (None, ())),
        vcpus=request.vcpus,
        trace_io=request.trace_io,
    )
    requested_guests = RequestedGuests(
        policy=request.vm_memory_policy,
        minimum=request.vm_memory_min,
        shares=request.vm_memory_shares,
        idle_tax=request.vm_idle_tax,
        huge_pages=request.vm_huge_pages,
        pin_vcpus=request.vm_pin_vcpus,
        ksm=request.vm_ksm,
    )
    volume_texts: dict[Role, str | None] = {"data": request.data_volume, "wal": request.wal_volume, "temp": request.temp_volume}
    volumes = None if existing else server_volumes.choose_volumes(volume_texts, request.tablespace_volume, request.allow_format)
    facts = gather(node)
    share = hosts.choose_share(facts, request.host_cores, request.host_memory, request.over, request.placement)
    with open_workspace(node, request.run_as, dry=dry) as workspace:
        tracing = device_io.require_traceable(node, measurement.trace_io)
        chosen_load = load.choose_load(requested_load, node)
        chosen_servers = servers.choose_servers(requested_servers, requested_load, workspace, writes=not chosen_load.read_only)
        external, installation = chosen_servers.external, chosen_servers.installation
        if external is not None:
            chosen_load = load.on_external(chosen_load, external)
        found, reason = choose(node, workspace.journal, facts, request.runtime if external is None else "external", "prep")
        runtime = cast(RuntimeName, found.name)
        guests = virtual_machines.choose_guests(requested_guests, workspace, runtime, chosen_load, requested_servers.huge_pages)
        tracked_processes.check(node, measurement.track, facts.cgroup_writable if runtime == "cgroup" else None)
        containers = Containers(
            runtime,
            share,
            facts.logical_cpus,
            request.vcpus,
            request.cpu_mode,
            request.memory,
            request.cpu_weight,
            request.iops,
            request.io_bandwidth,
        )
        io_messages = hosts.check_io(containers, found.capabilities(), facts)
        yield DatabasePreparation(
            workspace=workspace,
            facts=facts,
            containers=containers,
            load=chosen_load,
            servers=chosen_servers,
            volumes=volumes,
            guests=guests,
            scheduler=request.scheduler,
            measurement=measurement,
            connection_limit=request.connection_limit,
            query_timeout=float(request.query_timeout) or None,
            messages=(
                *chosen_servers.warnings,
                f"PostgreSQL {installation.version} ({installation.kind}) from {installation.bin}.",
                *tracing,
                *([reason] if external is None else []),
                *chosen_servers.messages,
                *chosen_load.messages,
                *io_messages,
            ),
        )


def database_options(
    preparation: DatabasePreparation, limits: ContainerLimits, size: DatabaseSize, settings: ServerSettings
) -> dict[str, Any]:
    """Return the fields of DatabaseOptions without times and repeats.

    Raises:
        UsageError: there are not enough cores for pinned vCPUs of guests.
    """
    chosen, external, guests = preparation.load, preparation.servers.external, preparation.guests
    if guests is not None:
        virtual_machines.require_pinnable(guests.machine, limits.cpu.vcpus, preparation.share.cores)
    return {
        "host_cores": preparation.share.cores,
        "host_memory": preparation.share.memory,
        "vcpus": limits.cpu.vcpus,
        "container_memory": limits.memory,
        "runtime": preparation.runtime,
        "cpu_mode": limits.cpu.cpu_mode,
        "cpu_weight": preparation.containers.cpu_weight,
        "iops": preparation.containers.iops,
        "io_bandwidth": preparation.containers.io_bandwidth,
        "scheduler": preparation.scheduler,
        **({} if guests is None else {"vm": guests.machine, "vm_memory_min": guests.minimum, "vm_memory_shares": guests.shares}),
        "pg_bin": preparation.servers.installation.bin,
        "pg_version": external.version if external else preparation.servers.installation.version,
        "dsn": external.dsn if external and not preparation.servers.fleet else None,
        "direct": None if preparation.servers.fleet else preparation.servers.direct,
        "pooled": external is not None and external.pooler is not None and not preparation.servers.fleet,
        "query_timeout": preparation.query_timeout if external else None,
        "server_cgroup": preparation.servers.cgroup,
        "prometheus": preparation.servers.prometheus,
        "settings": settings.settings,
        "workload": chosen.workload,
        "scale": chosen.scale,
        "partitions": chosen.partitions,
        "init": chosen.init and str(Path(chosen.init).resolve()),
        "init_data": chosen.init_data,
        "transparent_huge_pages": preparation.servers.requested.transparent,
        "huge_page_bytes": settings.huge_pages.bytes if settings.huge_pages is not None else 0,
        "data_checksums": None if external else preparation.servers.checksums,
        **({} if preparation.volumes is None else _volume_options(preparation.volumes)),
        "scripts": chosen.scripts,
        "read_only": chosen.read_only,
        "rate": chosen.rate,
        "variables": chosen.variables,
        "check_consistency": chosen.check_consistency,
        "protocol": chosen.protocol,
        "client_placement": chosen.client_placement,
        "sampling": load.sampling(
            chosen.scripts, read_only=chosen.read_only, rate=chosen.rate, user_scripts=chosen.user_scripts, pace=size.pace
        ),
        "time_budget": preparation.measurement.time_budget,
        "start_state": chosen.start_state,
        "seed": preparation.measurement.seed,
        "thresholds": preparation.measurement.thresholds,
    }


def _clients(options: DatabaseOptions) -> int:
    """Return the largest number of clients of one server in a study."""
    clients: int | tuple[int, ...] = getattr(options, "max_clients", getattr(options, "clients", 1))
    return max(clients) if isinstance(clients, tuple) else clients


def require_shared_connections(existing: Mapping[str, ExternalDatabaseInfo], clients: int, loaded: int, limit: int | None) -> None:
    """Require that the connections of a trial to databases of one server are together within its limits and ``--connection-limit``.

    ``existing`` are the databases by label, of which a trial loads at most ``loaded`` with ``clients`` each. pgherd also connects to the
    others. The limits of a pooler are unknown.

    Raises:
        UsageError: they are not.
    """
    requested: dict[str, int] = {} if limit is None else {"--connection-limit": limit}
    sharing: dict[tuple[str, str], dict[str, int]] = {}  # server and name of a limit → free connections by label
    activities = {label: info.activity for label, info in existing.items() if info.pooler is None}
    for label, activity in activities.items():
        for name, free in {**activity.limits, **requested}.items():
            sharing.setdefault((activity.started, name), {})[label] = free
    for (_, name), by_label in sharing.items():
        together, free = min(loaded, len(by_label)) * clients, min(by_label.values())
        needed = together + fleet.PGHERD_CONNECTIONS * len(by_label)
        if needed > free:
            raise UsageError(
                f"{', '.join(by_label)}: {together} clients and pgherd need {needed} connections to their server, but {name} leaves "
                f"{free}; lower --clients, or raise {name}"
            )


def _volume_options(volumes: RequestedVolumes) -> dict[str, Any]:
    by_name = {volume.name: volume for volume in (*volumes.roles.values(), *volumes.tablespaces)}
    return {
        "volumes": tuple(by_name.values()),
        "roles": {role: volume.name for role, volume in volumes.roles.items()},
        "tablespaces": tuple(volume.name for volume in volumes.tablespaces),
    }


def complete(
    preparation: DatabasePreparation,
    study: str,
    options: DatabaseOptions,
    *,
    size: DatabaseSize,
    settings: ServerSettings,
    disk: DiskSpace,
    memory: int,
    messages: Sequence[str],
) -> PreparedStudy:
    """Return the study that is ready to run.

    ``memory`` is the memory of all servers in bytes. ``messages`` are those of the steps after ``prepare_databases``, in display order.

    Raises:
        UsageError: the guests of a trial do not fit in the host's memory, or an existing server has too few free connections.
        CapabilityError: this host cannot reserve the huge pages that all servers need together.
    """
    workspace, facts, share, guests = preparation.workspace, preparation.facts, preparation.share, preparation.guests
    node, external = workspace.node, preparation.servers.external
    existing = preparation.servers.existing
    for label, info in existing.items():
        fleet.require_connections(label, info, _clients(options), preparation.connection_limit)
    if len(existing) > 1:  # only density loads several
        loaded: int = max(getattr(options, "databases", (1,)))
        require_shared_connections(existing, _clients(options), loaded, preparation.connection_limit)
    confirm, reserved_pages = huge_pages.host_changes(node, study, options, settings.huge_pages)
    confirm = (*confirm, *disk.volumes.confirm)
    files = "drivers' output" if external else "servers' data"
    changes = [f"{files} in {workspace.cache / 'work'}", "sockets in a private directory below /run or /tmp"]
    changes += disk.volumes.changes
    told = [*preparation.messages, *messages]
    if guests is not None:
        changes.insert(0, "virtual machines (QEMU), each with separate disks")
        guest_changes, guest_pages = virtual_machines.host_changes(node, study, options, guests.policy, share.memory)
        confirm, reserved_pages = (*confirm, *guest_changes), reserved_pages | guest_pages
        told += virtual_machines.page_cache(node, study, workspace.cache, disk.volumes)
        told.append(virtual_machines.describe_guests(node, guests.beneath, options.vm, guests.policy.overhead))
    if capabilities_of(preparation.runtime).cgroups or (guests is not None and facts.cgroup_writable):
        changes.insert(0, f"control groups below {facts.cgroup_writable or 'the delegated subtree'}")
    if facts.core_note:
        told.append(f"Cores of this host: {facts.core_note}")
    if facts.enclosing_limits and not external:
        told.append(f"The servers inherit limits around pgherd: {', '.join(facts.enclosing_limits)}.")
    return PreparedStudy(
        study=study,
        options=options,
        environment=RunEnvironment(
            runtime=preparation.runtime,
            run_as=workspace.account,
            cores=share.cores,
            memory=min(share.memory, memory) if external else share.memory,
            track=preparation.measurement.track,
            trace_io=preparation.measurement.trace_io,
            vm_memory_policy=None if guests is None else guests.policy,
        ),
        thresholds=preparation.measurement.thresholds,
        facts=facts,
        installation=preparation.servers.installation,
        defaults_chosen=(*told, *disk.volumes.choices),
        settings=settings.rows,
        host_changes=tuple(dict.fromkeys((*changes, *confirm))),
        disk=disk.bytes,
        memory=memory,
        confirm=confirm,
        typed=disk.volumes.typed,
        huge_pages=reserved_pages,
        pace=size.pace,
        holds=disk.volumes.holds,
    )
