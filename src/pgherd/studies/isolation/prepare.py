"""Completion of an isolation request: schemes that this host supports, rate of the victim, and limits of the containers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pgherd.host.storage import direct_io_works
from pgherd.model.capabilities import capabilities_of, is_cpu_limited
from pgherd.model.deployment import Database
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node.protocol import Node
from pgherd.postgres.huge_pages import require_no_huge_pages
from pgherd.postgres.settings import SettingRow
from pgherd.prepare import servers
from pgherd.prepare.databases import DatabasePreparation, complete, database_options, prepare_databases
from pgherd.prepare.fio import fio_version
from pgherd.prepare.guests import largest_guest
from pgherd.prepare.hosts import ContainerCpu, Containers, choose_cpu, choose_memory, complete_limits
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.volumes import DISK_RESERVE, DiskSpace, disk_space
from pgherd.studies.isolation.options import (
    AGGRESSORS,
    FIO,
    FIO_BYTES,
    LEAST_TRANSACTIONS,
    SCHEMES,
    SHARED,
    Aggressor,
    IsolationOptions,
    IsolationRequest,
    Scheme,
)
from pgherd.studies.isolation.propose import AGGRESSOR, CPU_MODES, VICTIM

DEFAULT_SCHEMES: tuple[Scheme, ...] = ("shared-server", "quota", "cpuset")
DEFAULT_OF_GUESTS: tuple[Scheme, ...] = ("shared-server", "vm")
RATE_PER_VCPU = 100.0
"""Default rate of the victim, in transactions per second. A tenth or less of what a core can do: the victim alone never waits for CPU."""
AGGRESSOR_MEMORY_BYTES = 64 * 2**20
"""Private memory of each client of the aggressor ``memory``."""
MEMORY_BYTES = 2**30
"""Largest default memory of a container with one database."""
_ROUND = 64 * 2**20
_NAPTIME = "autovacuum_naptime"
_SCRIPTS = Path(__file__).with_name("aggressors")


def prepare(node: Node, request: IsolationRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if FIO in (request.aggressors or ()) and request.runtime is not None and capabilities_of(request.runtime).own_kernel:
        raise CapabilityError(f"aggressor {FIO} does not run in virtual machines; leave it out")
    with prepare_databases(node, request, dry) as preparation:
        share, containers, runtime = preparation.share, preparation.containers, preparation.runtime
        able = capabilities_of(runtime)
        cpu = choose_cpu(containers, share.cores / 2 if able.cpu_quota and not able.whole_vcpus else max(1.0, share.cores // 2))
        if 2 * cpu.vcpus > share.cores:
            raise UsageError(
                f"--vcpus {cpu.vcpus:g}: the victim and the aggressor together need {2 * cpu.vcpus:g} of the {share.cores:g} cores that "
                "the run may use; lower it"
            )
        schemes, left_out = _schemes(request, containers, cpu.vcpus)
        _require_equal_cpu(schemes, containers, cpu)
        rate = request.rate or RATE_PER_VCPU * max(1.0, cpu.vcpus)
        duration = request.duration or 15.0
        if rate * duration < LEAST_TRANSACTIONS:
            raise UsageError(
                f"--rate {rate:g} gives {rate * duration:.0f} transactions in {format_seconds(duration)}, but a p99 requires at least "
                f"{LEAST_TRANSACTIONS}; raise --rate or --duration"
            )
        size = servers.database_size(preparation.workspace, preparation.servers, preparation.load)
        connections = request.clients + request.aggressor_clients
        need = servers.memory_needed(preparation.servers, runtime, size.bytes, connections)
        need += request.aggressor_clients * AGGRESSOR_MEMORY_BYTES
        memory = choose_memory(containers)
        if memory is None and capabilities_of(runtime).memory_limit:
            guests = preparation.guests
            half = share.memory // 2 if guests is None else largest_guest(2, share.memory, guests.policy.overhead)
            memory = max(min(MEMORY_BYTES, half) // _ROUND * _ROUND, need)
        if 2 * (memory or need) > share.memory:
            raise UsageError(
                f"two containers of {format_bytes(memory or need)} exceed the host's memory budget of {format_bytes(share.memory)}; lower "
                "--memory, --scale or --aggressor-clients, or raise --host-memory"
            )
        settings = servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, connections, memory)
        if set(schemes) & set(SHARED):  # their servers have other shared buffers, but the same pages would be reserved for all
            require_no_huge_pages(settings.settings)
        contents = _contents(preparation.load.database(), schemes)
        disk = disk_space(
            preparation.workspace,
            preparation.volumes,
            2,
            size.bytes,
            writes=True,
            settings=settings.settings,
            templates=sum(map(len, contents)),
            loaded=preparation.loaded(settings.settings, contents),
        )
        aggressors, tools, disk, no_fio = _aggressors(node, request, preparation, disk)
        if "vacuum" in aggressors:
            settings = _with_eager_autovacuum(settings)
        limits = complete_limits(cpu, memory, runtime, settings.settings, settings.huge_pages)
        fields = database_options(preparation, limits, size, settings)
        options = IsolationOptions(
            **fields
            | {
                "rate": rate,
                "schemes": schemes,
                "aggressors": aggressors,
                "scripts_of": {name: str(_SCRIPTS / f"{name}.sql") for name in aggressors if name != FIO},
                "clients": request.clients,
                "aggressor_clients": request.aggressor_clients,
                "threads": request.threads or max(1, math.ceil(cpu.vcpus)),
                "repeats": request.repeats or 3,
                "fixed_repeats": True,
                "duration": duration,
                "warmup": request.warmup,
            }
        )
        options = options.model_copy(update={"max_reruns": max(2, options.comparisons * options.repeats // 8)})
        completed = complete(
            preparation,
            "isolation",
            options,
            size=size,
            settings=settings,
            disk=disk,
            memory=2 * (memory or need),
            messages=(*left_out, *no_fio, *size.messages, *settings.messages, *limits.messages),
        )
        return replace(completed, tools=tools)


def _contents(database: Database, schemes: Sequence[Scheme]) -> list[tuple[Database, ...]]:
    """Return the databases of each kind of server in the schemes. Each kind has a template."""
    contents: list[tuple[Database, ...]] = [] if set(schemes) == {"shared-server"} else [(database,)]
    if "shared-server" in schemes:
        contents.append(tuple(database.model_copy(update={"name": name}) for name in (VICTIM, AGGRESSOR)))
    return contents


def _aggressors(
    node: Node, request: IsolationRequest, preparation: DatabasePreparation, disk: DiskSpace
) -> tuple[tuple[Aggressor, ...], dict[str, str], DiskSpace, list[str]]:
    """Return the aggressors of the run, their tools, the disk space with them, and a sentence if this host cannot run fio by default.

    Raises:
        UsageError, CapabilityError: the user requests fio, and it cannot run.
    """
    chosen = request.aggressors or tuple(AGGRESSORS)
    others = tuple(name for name in chosen if name != FIO)
    if FIO not in chosen or capabilities_of(preparation.containers.runtime).own_kernel:
        return others, {}, disk, []
    try:
        return chosen, {"fio": fio_version(node)}, _with_file(preparation, disk), []
    except (CapabilityError, UsageError) as error:
        if request.aggressors:
            raise
        return others, {}, disk, [f"Aggressor {FIO} is left out: {error}."]


def _with_file(preparation: DatabasePreparation, disk: DiskSpace) -> DiskSpace:
    """Add fio's file, which is on the device of the data.

    Raises:
        UsageError: there is too little space for it.
        CapabilityError: the file system there has no direct I/O.
    """
    data = None if preparation.volumes is None else preparation.volumes.roles.get("data")
    if data is not None and data.kind != "directory":
        return disk  # a file system that pgherd makes
    cache = preparation.workspace.cache
    directory = data.path if data is not None and data.path else next(str(path) for path in (cache, *cache.parents) if path.exists())
    if not direct_io_works(directory):
        raise CapabilityError(
            f"aggressor {FIO} needs direct I/O, and the file system of {directory} has none; leave it out, or give --data-volume"
        )
    need, free = disk.bytes - disk.loaded + FIO_BYTES, shutil.disk_usage(directory).free
    if need + DISK_RESERVE > free:
        raise UsageError(
            f"aggressor {FIO} has a file of {format_bytes(FIO_BYTES)}, and with the databases {format_bytes(need)} are needed, "
            f"but {directory} has {format_bytes(free)} free; leave it out, or free some space"
        )
    return replace(disk, bytes=disk.bytes + FIO_BYTES)


def _with_eager_autovacuum(chosen: servers.ServerSettings) -> servers.ServerSettings:
    """Let autovacuum look for work each second, in all trials alike, unless the user sets the time: a trial is shorter than the default."""
    if _NAPTIME in chosen.settings:
        return chosen
    return chosen.changed(SettingRow(_NAPTIME, "1s", "1min", "the aggressor vacuum: a trial is shorter than the default"))


def _schemes(request: IsolationRequest, containers: Containers, vcpus: float) -> tuple[tuple[Scheme, ...], list[str]]:
    """Return the schemes of the run, and a sentence on each default scheme that this host cannot provide.

    Raises:
        UsageError: options contradict a scheme that the user requests.
        CapabilityError: the runtime cannot provide it.
    """
    limited = containers.iops is not None or containers.io_bandwidth is not None
    guests = capabilities_of(containers.runtime).own_kernel
    default: tuple[Scheme, ...] = DEFAULT_OF_GUESTS if guests else (*DEFAULT_SCHEMES, "io") if limited else DEFAULT_SCHEMES
    chosen, left_out = [], []
    for scheme in request.schemes or default:
        fault: UsageError | CapabilityError | None = None
        if scheme == "vm" and not guests:
            fault = UsageError("scheme vm has virtual machines; add --runtime vm")
        elif guests and scheme not in (*SHARED, "vm"):
            fault = UsageError(f"scheme {scheme} is for containers of one kernel; with --runtime vm use {', '.join((*SHARED, 'vm'))}")
        elif scheme in ("quota", "weights", "io") and not capabilities_of(containers.runtime).cgroups:
            fault = CapabilityError(f"scheme {scheme} needs the cgroup runtime; 'pgherd doctor' shows what this host lacks")
        elif scheme == "cpuset" and vcpus != int(vcpus):
            fault = UsageError(f"scheme cpuset gives whole CPUs, but --vcpus is {vcpus:g}; use a whole number")
        elif scheme == "io" and not limited:
            fault = UsageError("scheme io has no limit; give --iops or --io-bandwidth")
        if fault is None:
            chosen.append(scheme)
        elif request.schemes:
            raise fault
        else:
            left_out.append(f"Left out: {fault}.")
    for option, value, scheme in (
        ("--iops or --io-bandwidth", limited or None, "io"),
        ("--cpu-weight", containers.cpu_weight, "weights"),
    ):
        if value is not None and scheme not in chosen:
            raise UsageError(f"{option} applies to scheme {scheme}, which is not in --schemes {','.join(chosen)}; add it")
    return tuple(chosen), left_out


def _require_equal_cpu(schemes: Sequence[Scheme], containers: Containers, cpu: ContainerCpu) -> None:
    """Require that containers without a CPU limit get no more than those with one, which is twice ``vcpus``.

    Raises:
        UsageError: the run may use more.
    """
    unlimited = [scheme for scheme in schemes if not is_cpu_limited(containers.runtime, CPU_MODES.get(scheme, cpu.cpu_mode))]
    if unlimited and 2 * cpu.vcpus < containers.share.cores:
        raise UsageError(
            f"scheme {', '.join(unlimited)} has no CPU limit: both databases would get the {containers.share.cores:g} cores that the run "
            f"may use, not twice --vcpus; add --host-cores {2 * cpu.vcpus:g}"
        )


def plan_lines(options: IsolationOptions, trials: Sequence[Trial], guest_memory: object = None) -> list[str]:
    """Return the dry-run output: the schemes, the aggressors, and the victim's load."""
    size = f"{options.vcpus:g} vCPU" + ("" if options.container_memory is None else f", {format_bytes(options.container_memory)}")
    kinds = "clients of pgbench, or jobs of fio" if FIO in options.aggressors else "clients of pgbench"
    return [
        f"Each database has {size}. Schemes:",
        *(f"  {scheme}: {SCHEMES[scheme]}." for scheme in options.schemes),
        f"Aggressors, one at a time, {options.aggressor_clients} {kinds}:",
        *(f"  {name}: {AGGRESSORS[name]}." for name in options.aggressors),
        f"Victim: {options.scripts[0].source.removeprefix('builtin:')} of scale {options.scale} at {options.rate:g} tps, "
        f"{options.clients} clients.",
    ]
