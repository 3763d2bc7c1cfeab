"""Completing a density request: databases, limits, points, load and time for this host."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from pgherd.host import paths
from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import CpuMode, Database, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.load import Script
from pgherd.model.run import Surroundings
from pgherd.model.units import format_bytes, parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import clones, configuration, golden, installations, settings, validation
from pgherd.postgres.installations import Installation
from pgherd.postgres.like import Like, like
from pgherd.runner import platform
from pgherd.runner.prepared import Prepared, thresholds
from pgherd.runtimes.choice import choose
from pgherd.studies.density import DensityOptions, choose_points
from pgherd.studies.density.propose import planned
from pgherd.studies.density.request import DensityRequest
from pgherd.workloads import script as user_scripts
from pgherd.workloads.registry import fillings, find

SMALL_HOST_CORES = 32
E1_VCPUS = 4.0
E1_MEMORY = 8 * 2**30
# A default run is to end within five minutes: this is left after copies, starts, the report, and some margin.
DEFAULT_BUDGET = 260.0
DEFAULT_SECONDS = 9.0
DEFAULT_RAMP = 1.0
DEFAULT_REPEATS = 3
# Data directory beyond the databases: catalogs, the first WAL segments.
EMPTY_CLUSTER = 64 * 2**20
DISK_RESERVE = 512 * 2**20
_ROUND = 64 * 2**20
UNKNOWN_SIZE = 256 * 2**20


@dataclass(frozen=True)
class _Chosen:
    """Runtime and limits for one database."""

    runtime: RuntimeName
    cpu_mode: CpuMode
    vcpus: float


def prepare_density(node: Node, asked: DensityRequest, dry: bool) -> Prepared:
    """Complete a density request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    limits = thresholds(asked.threshold)
    facts = gather(node)
    account = server_account(asked.run_as)
    installation = installations.choose(node, asked.pg_bin, asked.pg_version)
    choices = [f"PostgreSQL {installation.version} ({installation.kind}) from {installation.bin}."]
    cores = asked.cores if asked.cores is not None else facts.cores
    if cores > facts.cores:
        raise UsageError(f"--cores {cores:g} is more than this host has to use ({facts.cores:g})")
    budget = parse_bytes(asked.host_memory) if asked.host_memory else int(facts.memory_available * 0.8)
    if budget > facts.memory:
        raise UsageError(f"--host-memory {format_bytes(budget)} is more than this host has ({format_bytes(facts.memory)})")

    state, cache = paths.state_dir(), paths.cache_dir()
    journal = Journal.open(node, state, "prepare")
    try:
        runtime, sentence = choose(node, journal, facts, asked.runtime, "prep")
        choices.append(sentence)
        platform.check(node, asked.platform, facts.cgroup_writable if runtime.name == "cgroup" else None)
        chosen = _limits(asked, cores, runtime.name)
        scripts, read_only, load_words = _scripts(asked)
        choices += load_words
        scale = asked.scale or 10
        clients = asked.clients or max(2, round(2 * chosen.vcpus))
        threads = asked.threads or max(1, min(clients, math.ceil(chosen.vcpus)))
        if threads > clients:
            raise UsageError(f"--threads {threads} is more than --clients {clients}; pgbench wants at least one client per thread")
        work = paths.work_tree(node, journal, "prepare", account)
        usable = installations.reachable_copy(node, installation, account, str(cache))
        own = like(node, asked.like, usable, account, str(work)) if asked.like else Like({})
        choices += [f"Left out of --like: {dropped.name} ({dropped.why})." for dropped in own.dropped]
        choices += [f"Warning: {warning}." for warning in own.warnings]
        database = Database(workload="script" if asked.init else "pgbench", scale=scale, init=asked.init)
        size = find(database.workload).size_estimate(scale)
        if size is None or asked.script:
            known = _loaded(node, journal, usable, database, scripts, asked, account, work, cache, dry)
            size = known or size or UNKNOWN_SIZE
            if known is None:
                choices.append(f"Warning: the database's size is known only once it is loaded; {format_bytes(size)} is assumed.")

        cached = asked.intent == "cpu-bound"
        need = settings.memory_needed(settings.buffers_for(size, not read_only) if cached else 128 * 2**20, clients)
        points, memory = _points_and_memory(asked, chosen, cores, budget, need, cached)
        selected = settings.choose_settings(
            major=installation.major,
            database_bytes=size,
            clients=clients,
            memory=memory,
            writes=not read_only,
            cached=cached,
            like=own.settings,
            asked=configuration.parse_set(asked.set),
        )
        choices += [f"Warning: {warning}." for warning in selected.warnings]
        disk = _check_disk(points, size, not read_only, cache)
        validation.validate(node, usable, selected.settings, account, str(work))
    finally:
        journal.close()

    seconds = parse_seconds(asked.seconds) if asked.seconds else DEFAULT_SECONDS
    ramp = parse_seconds(asked.ramp) if asked.ramp else DEFAULT_RAMP
    repeats = asked.repeats or DEFAULT_REPEATS
    options = DensityOptions(
        cores=cores,
        memory=budget,
        vcpus=chosen.vcpus,
        container_memory=memory,
        runtime=chosen.runtime,
        cpu_mode=chosen.cpu_mode,
        pg_bin=installation.bin,
        pg_version=installation.version,
        settings=selected.settings,
        workload="script" if asked.init else "pgbench",
        scale=scale,
        init=asked.init and str(Path(asked.init).resolve()),
        scripts=scripts,
        read_only=read_only,
        clients=clients,
        threads=threads,
        rate=asked.rate,
        protocol=asked.protocol,
        client_place=asked.client_place,
        sampling=_sampling(asked, read_only),
        points=points,
        repeats=repeats,
        repeats_one=repeats + 2,
        seconds=seconds,
        ramp=ramp,
        budget_seconds=parse_seconds(asked.budget) if asked.budget else None,
        state=asked.state,
        seed=asked.seed if asked.seed is not None else random.randrange(2**31),
        at=asked.at,
        thresholds=limits,
        intent=asked.intent,
        soak_seconds=parse_seconds(asked.soak) if asked.soak else None,
    )
    if options.budget_seconds is None and options.soak_seconds is None:
        under_load = sum(trial.seconds() for trial in planned(options))
        options = options.model_copy(update={"budget_seconds": max(DEFAULT_BUDGET, under_load * 1.15)})
    changes = [f"servers' data in {cache / 'work'}", "sockets in a private directory below /run or /tmp"]
    if chosen.runtime == "cgroup":
        changes.insert(0, f"control groups below {facts.cgroup_writable or 'the delegated subtree'}")
    if facts.core_note:
        choices.append(f"What a core is here: {facts.core_note}")
    return Prepared(
        study="density",
        options=options,
        surroundings=Surroundings(runtime=chosen.runtime, run_as=account, cores=cores, memory=budget, platform=asked.platform),
        thresholds=limits,
        facts=facts,
        installation=installation,
        choices=tuple(choices),
        settings=selected.rows,
        host_changes=tuple(changes),
        disk=disk,
        memory=(memory or need) * max(points),
    )


def _limits(asked: DensityRequest, cores: float, runtime: str) -> _Chosen:
    """A database's CPU: E1's four vCPUs, or an eighth of a small host, by quota where the runtime has one."""
    vcpus = asked.vcpus or (E1_VCPUS if cores >= SMALL_HOST_CORES else cores / 8)
    if runtime == "cgroup":
        mode: CpuMode = asked.cpu_mode or "quota"
    else:
        if asked.vcpus is None:
            vcpus = max(1.0, float(round(vcpus)))
        mode = asked.cpu_mode or ("cpuset" if vcpus == int(vcpus) else "none")
        if mode == "quota":
            raise CapabilityError("--cpu-mode quota needs the cgroup runtime; 'pgherd doctor' says what would make it possible here")
    if mode == "cpuset" and vcpus != int(vcpus):
        raise UsageError(f"--cpu-mode cpuset gives whole CPUs, but --vcpus is {vcpus:g}; give a whole number, or use --cpu-mode quota")
    if vcpus > cores:
        raise UsageError(f"--vcpus {vcpus:g} is more than the {cores:g} cores of the host's budget")
    return _Chosen("cgroup" if runtime == "cgroup" else "process", mode, vcpus)


def _scripts(asked: DensityRequest) -> tuple[tuple[Script, ...], bool, list[str]]:
    if not asked.script:
        if asked.init:
            raise UsageError("--init fills a database for scripts of your own; give one with --script FILE, or leave --init out")
        return (Script(source=f"builtin:{asked.workload}"),), asked.workload == "select-only", []
    found = tuple(user_scripts.parse_script(word) for word in asked.script)
    return found, False, ["Your scripts are taken to write: nobody has told pgherd that they do not."]


def _loaded(
    node: Node,
    journal: Journal,
    installation: Installation,
    database: Database,
    scripts: tuple[Script, ...],
    asked: DensityRequest,
    account: str | None,
    work: Path,
    cache: Path,
    dry: bool,
) -> int | None:
    """Load the user's database and try each script on a copy of it, so that an error shows before anything is measured.

    Returns the database's size in bytes; None on a dry run for which nothing has been loaded yet.
    """
    contents = fillings(node, [database])
    copy = golden.find(node, installation, contents, str(cache))
    if copy is None and dry:
        return None
    sockets = str(Path(paths.socket_root(node, journal)) / "s")
    node.make_dir(sockets, mode=0o700, user=account)
    if copy is None:
        copy = golden.ensure(node, installation, contents, account=account, cache_dir=str(cache), socket_dir=sockets)
    if not dry:
        with clones.rehearsal(node, copy, installation, account=account, directory=str(work), socket_dir=sockets) as server:
            user_scripts.dry_run(server, database.name, scripts, scale=database.scale, protocol=asked.protocol)
    return sum(copy.databases.values())


def _points_and_memory(
    asked: DensityRequest, chosen: _Chosen, cores: float, budget: int, need: int, cached: bool
) -> tuple[tuple[int, ...], int | None]:
    """Numbers of databases that memory allows, and the memory that each one's container gets."""
    given = parse_bytes(asked.memory) if asked.memory else None
    limit = budget // (given or need)
    wanted = tuple(sorted(set(asked.points))) if asked.points else None
    if wanted is not None:
        if wanted[0] < 1:
            raise UsageError(f"--points {wanted[0]}: a number of databases is at least 1")
        if wanted[-1] > limit:
            raise UsageError(
                f"--points {wanted[-1]}: {wanted[-1]} databases of {format_bytes(given or need)} are more than the host's memory budget of "
                f"{format_bytes(budget)}, which holds {limit}; lower --points, --scale or --memory, or raise --host-memory"
            )
    if limit < 1:
        raise CapabilityError(f"one database needs {format_bytes(given or need)}, but the host's memory budget is {format_bytes(budget)}")
    points = wanted or choose_points(cores, chosen.vcpus, limit=limit)
    if chosen.runtime != "cgroup":
        if given is not None:
            raise CapabilityError("--memory needs the cgroup runtime; 'pgherd doctor' says what would make it possible here")
        return points, None
    if given is not None:
        return points, given
    share = min(E1_MEMORY, budget // max(points)) // _ROUND * _ROUND
    return points, max(share, need)


def _sampling(asked: DensityRequest, read_only: bool) -> float:
    """Share of transactions to log: a log line costs a microsecond or two, and must stay below 1 % of a transaction."""
    if asked.rate is not None:
        return min(1.0, 500 / asked.rate)
    return 0.05 if read_only else 0.2


def _check_disk(points: tuple[int, ...], size: int, writes: bool, cache: Path) -> int:
    each = size + EMPTY_CLUSTER + (2**30 if writes else 0)
    need = each * (max(points) + 1)
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if need + DISK_RESERVE > free:
        raise UsageError(
            f"{max(points)} databases of about {format_bytes(each)} and a golden copy need {format_bytes(need)} below {cache}, which has "
            f"{format_bytes(free)} free; lower --points or --scale, or set XDG_CACHE_HOME to a larger disk"
        )
    return need
