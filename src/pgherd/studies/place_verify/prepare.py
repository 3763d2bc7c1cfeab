"""Completion of a verification for this host: the factors by which the planned hosts are scaled down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pgherd.host.cgroups import LEAST_CORES
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres.settings import SettingRow
from pgherd.prepare import servers
from pgherd.prepare.databases import complete, database_options, prepare_databases
from pgherd.prepare.hosts import ContainerCpu, complete_limits
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.servers import DatabaseSize
from pgherd.prepare.volumes import disk_space
from pgherd.studies.place_verify.options import PlaceVerifyOptions, PlaceVerifyRequest
from pgherd.workloads.pgbench import size_estimate

MB = 2**20
SHARE_OF_SERVERS = 0.5
"""Part of the cores that the planned hosts get. The clients, which run outside of them, use the rest."""
SCRIPT = Path(__file__).with_name("planned_load.sql")
CLIENTS = 8
"""Connections of a server for which memory is reserved."""
SHARE_OF_MEMORY = 0.5
"""Part of the memory that the planned memory gets. Servers also need it for connections, and the page cache for their files."""
MEMORY_OF_DATABASE = 128 * MB
"""Most memory of a database here, on average. More takes longer to load and to copy."""
SERVER_MEMORY = 32 * MB
"""Memory of a server without data, for the scales. Predictions have that of the reference database's server."""
SCALE_BYTES = size_estimate(2) - size_estimate(1)


def prepare(node: Node, request: PlaceVerifyRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if not request.planned:
        raise UsageError("there is no plan to verify; make one with 'pgherd place DEMAND.csv --hosts FILE.yaml --verify 2'")
    one = request.scale or 1
    request = request.model_copy(update={"scale": one})
    with prepare_databases(node, request, dry) as preparation:
        share, runtime = preparation.share, preparation.runtime
        if runtime != "cgroup":
            raise CapabilityError("a planned host needs a CPU quota, so the cgroup runtime; 'pgherd doctor' shows what this host lacks")
        factor = min(1.0, SHARE_OF_SERVERS * share.cores / sum(host.cores for host in request.planned))
        smallest = min(host.cores for host in request.planned) * factor
        if smallest < LEAST_CORES:
            raise UsageError(
                f"{len(request.planned)} hosts scaled down to {share.cores:g} cores give a host of {smallest:.2g} cores, but a CPU quota "
                f"needs at least {LEAST_CORES:g}; verify fewer hosts"
            )
        databases = sum(len(host.databases) for host in request.planned)
        memory_factor, scales = scale_memory(request, share.memory)
        counts = Counter(scale for row in scales for scale in row) or Counter({one: databases})
        counts[one] += 1  # the reference database
        sizes = {scale: size_estimate(scale) for scale in counts}
        need = sum(n * servers.memory_needed(preparation.servers, runtime, sizes[scale], CLIENTS) for scale, n in counts.items())
        if need > share.memory:
            raise UsageError(
                f"the servers of {databases} databases need {format_bytes(need)} of memory, but the run may use "
                f"{format_bytes(share.memory)}; verify fewer hosts"
            )
        size, mean = DatabaseSize(max(sizes.values())), sum(n * sizes[scale] for scale, n in counts.items()) // counts.total()
        settings = _without_autovacuum(servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, CLIENTS, None))
        contents = [(preparation.load.database().model_copy(update={"scale": scale}),) for scale in counts]
        disk = disk_space(
            preparation.workspace,
            preparation.volumes,
            counts.total(),
            mean,
            writes=False,
            settings=settings.settings,
            templates=len(counts),
            loaded=preparation.loaded(settings.settings, contents),
        )
        limits = complete_limits(ContainerCpu(smallest, "quota"), None, runtime, settings.settings, settings.huge_pages)
        options = PlaceVerifyOptions(
            **database_options(preparation, limits, size, settings)
            | {
                "planned": request.planned,
                "slots": request.slots,
                "factor": factor,
                "memory_factor": memory_factor,
                "scales": scales,
                "scale_bytes": SCALE_BYTES,
                "objective": request.objective,
                "scripts": (Script(source=str(SCRIPT)),),
                "client_placement": "outside",
                "threads": 1,
                "repeats": request.repeats or 1,
                "fixed_repeats": True,
                "duration": request.duration,
                "warmup": request.warmup,
            }
        )
        scaled = f"Each planned core is {factor:.3g} cores here; loads are scaled down alike."
        if memory_factor is not None:
            scaled += f" Each planned MB of memory is {memory_factor:.3g} MB here, in databases of whole scales."
        told = (scaled, *settings.messages, *limits.messages)
        return complete(preparation, "place-verify", options, size=size, settings=settings, disk=disk, memory=need, messages=told)


def _without_autovacuum(chosen: servers.ServerSettings) -> servers.ServerSettings:
    """Switch autovacuum off: the load only reads, and all servers would start workers in the same second, a minute after their start."""
    return chosen.changed(SettingRow("autovacuum", "off", "on", "the load only reads, and the workers' CPU is no planned demand"))


def scale_memory(request: PlaceVerifyRequest, memory: int) -> tuple[float | None, tuple[tuple[int, ...], ...]]:
    """Return the factor by which planned memory is scaled down to a host's memory in bytes, and the scales of the databases of each host.

    Without planned memory there is no factor and no scale. A database has at least scale 1.
    """
    planned = [megabytes * MB for host in request.planned for megabytes in host.memory]
    if not all(host.memory for host in request.planned) or not any(planned):
        return None, ()
    factor = min(1.0, min(SHARE_OF_MEMORY * memory, MEMORY_OF_DATABASE * len(planned)) / sum(planned))

    def scale(megabytes: float) -> int:
        return max(1, round((megabytes * MB * factor - SERVER_MEMORY) / SCALE_BYTES))

    return factor, tuple(tuple(map(scale, host.memory)) for host in request.planned)


def plan_lines(options: PlaceVerifyOptions, trials: Sequence[Trial], guest_memory: object = None) -> list[str]:
    """Return the dry-run output: the planned hosts and their containers."""
    return [
        f"{len(options.slots)} slots of {options.duration:g} s each, after trials of the capacity and of the CPU per transaction. "
        "A reference database shows the machine's speed.",
        *(
            f"  {host.name}: {len(host.databases)} databases, {host.cores:g} cores planned, {options.quota(host):.3g} here."
            for host in options.planned
        ),
    ]
