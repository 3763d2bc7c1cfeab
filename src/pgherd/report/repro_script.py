"""A trial as a shell script that repeats it with PostgreSQL and pgbench only.

The functions of the script are the files of ``report/repeat``, equal for every trial. The trial follows as one call per step. Arguments
and settings of PostgreSQL's programs come from the code that ran the trial: initdb's arguments, settings, data loading, the statement
that warms a database, and pgbench's command line.

The script does not sample, check or compute a common window: pgbench reports its complete run, warm-up included. The CPUs of a container
are not recorded, so the script uses the first ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count
from math import ceil
from pathlib import Path, PurePath

from pgherd.drivers.driver import Endpoint, driver_named
from pgherd.host.cgroups import quota_us
from pgherd.model.deployment import Database, Host, Server
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.process import CHRT_BATCH
from pgherd.postgres import configuration, huge_pages, instance
from pgherd.postgres.clones import PREWARM
from pgherd.postgres.templates import LOADING
from pgherd.report import repro_parts, repro_tools
from pgherd.report.repro_parts import comment, join, quote, say
from pgherd.runtimes.runtime import CpuAssignment
from pgherd.study.study import studies
from pgherd.workloads import bundled_scripts
from pgherd.workloads.pgbench import load_arguments as pgbench_arguments
from pgherd.workloads.user_script import load_arguments as psql_arguments
from pgherd.workloads.user_script import settings_of_contents

# Placeholders of the script's variables in arguments made by other code.
_BIN, _WORK = "\0BIN\0", "\0WORK\0"
_VARIABLES = {_BIN: '"$BIN"', _WORK: '"$work"'}
_Contents = tuple[tuple[Database, ...], bool | None, tuple[tuple[str, str], ...]]
"""Contents of a loaded cluster: databases, whether its pages have checksums, and settings during loading."""
_INITDB_DATABASES = ("postgres", "template1")


@dataclass(frozen=True)
class _ContainerPlace:
    """A container's cgroup and CPUs, as arguments of the script's ``enter``."""

    group: str
    cpus: str


def script(result: TrialResult, record: RunRecord, inputs: Path | None = None) -> str:
    """Return the script for one trial, for a trial on several hosts that of the first one.

    ``inputs`` is the current directory of the copied user files, because the run may have moved.

    Raises:
        UsageError: the trial needs more than PostgreSQL and pgbench, or its clients ran on another host than its servers.
    """
    trial = result.trial
    if repro_tools.uses_external_servers(result):
        return repro_tools.external_script(result, record, {name: _current_path(name, inputs) for name in _files(result)})
    servers = [server for _, _, server in trial.deployment.servers()]
    drivers_used = {load.driver for phase in trial.phases for load in phase.loads.values()}
    if not servers and drivers_used == {"fio"}:
        return repro_tools.fio_script(result, record)
    if not servers and drivers_used == {"iperf3"}:
        return repro_tools.iperf3_script(result, record)
    if not servers and drivers_used == {"command"}:
        return repro_tools.command_script(result, record)
    result, together = of_one_host(result)
    trial, servers = result.trial, [server for _, _, server in result.trial.deployment.servers()]
    _require_repeatable(result, servers)
    host = trial.deployment.hosts[0]
    places = _places(host, record)
    grouped = any(place.group != "-" for place in places.values())
    loaded = _loaded(servers)
    files = {name: _current_path(name, inputs) for name in _files(result)}
    parts: list[Iterable[str]] = [
        _head(result, record, servers[0]),
        [comment(together), ""] if together else [],
        [_functions("base")],
        [_functions("groups")] if grouped else [],
        [_functions("pages")] if any(_huge_page_steps("", server) for server in servers) else [],
        [_functions("volumes")] if any(server.volumes or server.tablespaces for server in servers) else [],
        ["# ==== The trial", ""],
        repro_parts.default_lines(trial.deployment),
        _groups(host, record) if grouped else [],
        ["prewarm=$(", "cat <<'END'", PREWARM, "END", ")", ""],
        *(_load(name, server, trial.probe, files) for name, server in loaded.values()),
    ]
    if trial.phases:
        parts += [repro_parts.relations_lines(servers), _start(host, places, loaded), _reduce_memory(host, record)]
        parts += [_checkpoints(result), *_phases(result, places, files)]
    return "\n".join(line for part in parts for line in part) + "\n"


def _require_repeatable(result: TrialResult, servers: list[Server]) -> None:
    deployment, trial = result.trial.deployment, result.trial
    runtimes = {str(container.runtime) for _, container in deployment.containers()}
    driver_names = {load.driver for phase in trial.phases for load in phase.loads.values()}
    sliced = any(phase.slices is not None for phase in trial.phases)
    reasons = []
    if "external" in runtimes:
        dsns = ", ".join(dict.fromkeys(str(server.dsn) for server in servers if server.dsn))
        reasons.append(f"its server ({dsns}) is external, and the script creates servers (run pgbench on the external one)")
    if other := sorted(runtimes - {"process", "cgroup", "external"}):
        reasons.append(f"it needs the runtime {', '.join(other)}")
    if not servers:
        reasons.append("it has no server")
    if len({(server.bin, server.version) for server in servers if server.dsn is None}) > 1:
        hint = " (variants in time slices; with --interleave trials each trial has one server)" if sliced else ""
        reasons.append(f"its servers use different PostgreSQL installations{hint}")
    if other := sorted(driver_names - {"pgbench"}):
        reasons.append(f"it needs the driver {', '.join(other)}")
    if trial.probe is not None and _probe_line(trial.probe) is None:
        reasons.append(f"it is the probe '{trial.probe}'")
    if reasons:
        raise UsageError(f"trial {result.id} cannot be repeated with PostgreSQL and pgbench only: {'; '.join(reasons)}")


def _probe_line(probe: str) -> Callable[[str, str], str] | None:
    """Return the function that writes a script's line for a probe, or None if a script cannot repeat it."""
    study = studies().get(probe)
    line: Callable[[str, str], str] | None = study.hook(study.probe_module, "script_line") if study is not None else None
    return line


def _places(host: Host, record: RunRecord) -> dict[str, _ContainerPlace]:
    """Return each container's cgroup and CPUs, as the runtime would choose them with CPU 0 as the first usable one."""
    facts = record.hosts.get(host.name)
    available = facts.logical_cpus if facts else ceil(host.cores or 1)
    places = {}
    pool = tuple(range(available))
    if host.cores is not None and any(container.runtime == "process" for container in host.containers):
        pool = pool[: max(1, int(host.cores))]
    placement = CpuAssignment(pool)
    for container in host.containers:
        cpus = "all" if len(pool) == available else _listed(pool)
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            try:
                cpus = _listed(placement.place(container))
            except CapabilityError:  # it names explicit CPUs
                cpus = _listed(container.cpus or pool)
        places[container.name] = _ContainerPlace(container.name if container.runtime == "cgroup" else "-", cpus)
    return places


def _listed(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus))


def _contents(server: Server) -> _Contents:
    return server.databases, server.checksums, tuple(sorted(_loading(server).items()))


def _loading(server: Server) -> dict[str, str]:
    """Return the settings of the server during loading."""
    return {**LOADING, **settings_of_contents(server)}


def _loaded(servers: list[Server]) -> dict[_Contents, tuple[str, Server]]:
    """Return one loaded cluster per distinct set of databases: its name and a server with that set."""
    loaded: dict[_Contents, tuple[str, Server]] = {}
    for server in servers:
        loaded.setdefault(_contents(server), (f"loaded{len(loaded) + 1}", server))
    return loaded


def _files(result: TrialResult) -> Iterator[str]:
    """Yield the user's files."""
    for _, _, _, _, database in result.trial.deployment.databases():
        if database.init is not None:
            yield database.init
    for phase in result.trial.phases:
        for load in phase.loads.values():
            yield from (script.source for script in load.scripts if not script.source.startswith("builtin:"))


def _functions(name: str) -> str:
    return resources.files("pgherd.report").joinpath("repeat", f"{name}.sh").read_text(encoding="utf-8")


def _current_path(name: str, inputs: Path | None) -> str:
    """Return the current path of a user's file: below the run's inputs if it is there, otherwise its original path."""
    parts = PurePath(name).parts
    below = parts[len(parts) - parts[::-1].index("inputs") :] if "inputs" in parts else parts[-1:]
    for candidate in (PurePath(*below), PurePath(parts[-1])) if inputs and below else ():
        if inputs and (inputs / candidate).is_file():
            return str(inputs / candidate)
    return name


def _head(result: TrialResult, record: RunRecord, server: Server) -> Iterator[str]:
    run_as = record.environment.run_as if record.environment else None
    yield "#!/bin/sh"
    yield comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with PostgreSQL and pgbench only.")
    yield "#"
    yield "# It loads the databases, copies them for each server of the trial, starts all servers with the trial's settings and limits,"
    yield "# runs the trial's pgbench command lines, prints transactions per second of each database and their sum, and removes"
    yield "# everything it created. It uses Linux's setpriv, taskset, chrt and, for limits, cgroups. The trial follows the functions."
    yield "#"
    yield "# Environment: BIN, directory of PostgreSQL's programs. ACCOUNT, the user that servers run as if root starts this."
    yield "# TMPDIR, a directory on the disk to use."
    yield from repro_parts.environment_comments(result.trial.deployment)
    swap = record.environment.swap if record.environment else None
    if swap is not None:
        yield "#"
        description = "no swap" if swap.kind == "none" else f"{swap.kind} swap of {format_bytes(swap.size)}"
        yield comment(f"In the run these servers had {description}. This script does not change the host's swap: set it up before.")
    yield "set -eu"
    yield f"VERSION={quote(server.version)}"
    yield f'[ -n "${{BIN:-}}" ] || BIN={quote(server.bin)}'
    yield f'[ -n "${{ACCOUNT:-}}" ] || ACCOUNT={quote(run_as or "nobody")}'
    yield ""


def _groups(host: Host, record: RunRecord) -> Iterator[str]:
    """Yield the run cgroup and the containers' limits. cgroup v1 rejects more CPU in a cgroup than in its parent."""
    facts = record.hosts.get(host.name)
    run_cores = host.cores if host.cores is not None and (facts is None or host.cores < facts.cores) else None
    yield "find_groups || :"
    yield "told"
    yield _group("", None if run_cores is None else quota_us(run_cores), _initial_memory(host, record), None)
    if any(container.io_limited for container in host.containers):
        yield comment("In the run the I/O of the containers was limited. This script does not limit it.")
    for container in host.containers:
        cores = container.vcpus if container.cpu_mode == "quota" else None
        quota = None if cores is None else quota_us(min(cores, run_cores or cores), container.cpu_period)
        period = round(1e6 * container.cpu_period)
        yield _group(container.name, quota, container.memory, container.weight, *([] if period == 100_000 else [period]))
    yield ""


def _group(name: str, *limits: int | None) -> str:
    return " ".join(["group", *(quote("" if argument is None else str(argument)) for argument in (name, *limits))])


def _load(name: str, server: Server, probe: str | None, files: Mapping[str, str]) -> Iterator[str]:
    """Yield one cluster with a server's databases, loaded like a data directory template."""
    major = int(re.match(r"\d+", server.version)[0])  # type: ignore[index]
    yield "# Load once."
    yield f"create {name} {join(instance.initdb_arguments(major, checksums=server.checksums))}"
    yield from _settings(name, _loading(server), name, "During loading only.")
    yield f"start {name} - all"
    yield f"ready {name}"
    first: dict[tuple[object, ...], str] = {}
    for number, database in enumerate(server.databases):
        quoted_name, connection = quote(database.dbname), quote(database.connection)
        load_sql = bundled_scripts.load_sql(database.workload)
        schema = None if database.schema_of is None else database.name
        twin = first.setdefault((load_sql, database.scale, database.partitions, database.init, schema), database.dbname)
        if twin != database.dbname:
            yield f"quietly client {name} createdb --template={quote(twin)} --strategy=file_copy {quoted_name}"
            continue
        new = database.dbname not in {other.dbname for other in server.databases[:number]}
        if new and database.dbname not in _INITDB_DATABASES:
            yield f"quietly client {name} createdb {quoted_name}"
        if schema is not None:
            statement = quote(f'CREATE SCHEMA "{schema}"')
            yield f"quietly client {name} psql -qX -d {quoted_name} -c {statement}"
        if load_sql is not None:
            partitions = f" --set=partitions={database.partitions}" if database.partitions > 1 else ""
            yield f"quietly client {name} psql {join(psql_arguments(database.scale))}{partitions} {connection} <<'SQL'"
            yield load_sql.rstrip("\n")
            yield "SQL"
        elif database.init is None:
            yield f"quietly client {name} pgbench {join(pgbench_arguments(database.scale, database.partitions))} {connection}"
        else:
            source = quote(files[database.init])
            data = database.init_data
            if data is not None and data.files:  # their names are relative to the directory of the file
                yield f"cd -- {quote(data.directory)}"
            yield f"quietly client {name} psql {join(psql_arguments(database.scale))} {connection} <{source}"
            if data is not None and data.files:
                yield 'cd -- "$work"'
        if database.dbname not in {other.dbname for other in server.databases[number + 1 :]}:
            yield f"settle {name} {quoted_name}"
        if probe is not None and (line := _probe_line(probe)) is not None:
            yield line(name, quoted_name)
    yield f"loaded {name}"
    yield ""


def _settings(name: str, settings: Mapping[str, str], cluster_name: str, heading: str) -> Iterator[str]:
    private = {"listen_addresses": "", "port": "5432", "cluster_name": cluster_name}
    yield f"settings {name} <<'END'"
    yield configuration.write({**settings, **private}, heading).rstrip("\n")
    yield "END"


def _start(host: Host, places: Mapping[str, _ContainerPlace], loaded: Mapping[_Contents, tuple[str, Server]]) -> Iterator[str]:
    """Yield the start of all servers, also those without load, and the reads of their databases into shared buffers."""
    pairs = [(container, server) for container in host.containers for server in container.servers]
    yield f"# {len(pairs)} server{'' if len(pairs) == 1 else 's'}; those without load ran in the trial too."
    for container, server in pairs:
        name = f"{container.name}.{server.name}"
        yield from repro_parts.copy_lines(loaded[_contents(server)][0], name, server)
        yield from _settings(name, server.settings, f"{container.name}/{server.name}", "Settings of the trial.")
    yield "on_disk"
    for container, server in pairs:
        yield from _huge_page_steps(f"{container.name}.{server.name}", server)
    for container, server in pairs:
        place = places[container.name]
        by = CHRT_BATCH if server.sched_batch else ()
        yield join(["start", f"{container.name}.{server.name}", place.group, place.cpus, *by])
    for container, server in pairs:
        yield f"ready {container.name}.{server.name}"
    for container, server in pairs:
        yield from repro_parts.tablespace_lines(f"{container.name}.{server.name}", server)
    for container, server in pairs:
        names = dict.fromkeys(database.dbname for database in server.databases)
        yield from (f"warm {container.name}.{server.name} {quote(name)}" for name in names)
    yield ""


def _huge_page_steps(name: str, server: Server) -> list[str]:
    """Return the steps for huge pages before this server starts."""
    steps = []
    if huge_pages.requires_huge_pages(server.settings):
        setting = server.settings.get("huge_page_size", "0").strip()
        size = int(setting) if setting.isdigit() else parse_bytes(setting) // 1024
        steps.append(f"reserve {name} {size or 'default'}")
    if server.transparent_huge_pages is not None:
        steps.append(f"transparent {'always' if server.transparent_huge_pages else 'never'}")
    return steps


def _checkpoints(result: TrialResult) -> Iterator[str]:
    """Yield a checkpoint before a load that writes, which delays the next timed checkpoint."""
    writers = [target for phase in result.trial.phases for target, load in phase.loads.items() if not load.read_only]
    for container, server in dict.fromkeys(tuple(target.split("/")[1:3]) for target in writers):
        yield f"quietly client {container}.{server} psql -qX -d postgres -c CHECKPOINT"


def _phases(result: TrialResult, places: Mapping[str, _ContainerPlace], files: Mapping[str, str]) -> Iterator[Iterable[str]]:
    staged: dict[str, str] = {}
    for number, phase in enumerate(result.trial.phases):
        measured = result.phases[number] if number < len(result.phases) else None
        yield _phase(phase, measured, result, places, files, staged)


def _phase(
    phase: Phase,
    measured: PhaseResult | None,
    result: TrialResult,
    places: Mapping[str, _ContainerPlace],
    files: Mapping[str, str],
    staged: dict[str, str],
) -> Iterator[str]:
    yield comment(f"Phase '{phase.name}': {phase.warmup:g} s of warm-up and {phase.seconds:g} s measured by pgherd.")
    if phase.slices is not None:
        yield f"# The loads ran in time slices of {phase.slices.seconds:g} s, one at a time. Here each runs without interruption."
        for name in phase.slices.of:
            targets = phase.slices.targets(name, phase.loads)
            changes = {"loads": {target: phase.loads[target] for target in targets}, "seconds": phase.seconds / len(phase.slices.of)}
            of_variant = None if measured is None else [target for target in measured.targets if target.target in targets]
            yield say(f"{name}:")
            yield from _loads(phase.model_copy(update={**changes, "slices": None}), of_variant, result, places, files, staged)
        return
    if len(result.trial.phases) > 1:
        yield say(f"phase {phase.name}:")
    yield from _loads(phase, None if measured is None else measured.targets, result, places, files, staged)


def _loads(
    phase: Phase,
    measured: Sequence[TargetResult] | None,
    result: TrialResult,
    places: Mapping[str, _ContainerPlace],
    files: Mapping[str, str],
    staged: dict[str, str],
) -> Iterator[str]:
    if not phase.loads:
        yield f"sleep {phase.warmup + phase.seconds:g}"
        return
    if measured is not None:
        yield f"# In these, pgherd measured {sum(target.throughput for target in measured):.1f} transactions per second in total."
    calls = []
    numbers = count(1)
    for target, load in phase.loads.items():
        for script_file in load.scripts:
            if not script_file.source.startswith("builtin:") and script_file.source not in staged:
                staged[script_file.source] = f"script-{len(staged) + 1}.sql"
                yield f"take {quote(files[script_file.source])} {staged[script_file.source]}"
        place = places[target.split("/")[1]] if load.client_placement == "inside" else _ContainerPlace("-", "all")
        number = f"{next(numbers):03d}"
        arguments = join(_argv(number, target, load, phase, result, staged), _VARIABLES)
        calls.append(f"run {number} {quote(target)} {place.group} {place.cpus} {arguments}")
    yield from calls
    yield "report"


def _argv(number: str, target: str, load: Load, phase: Phase, result: TrialResult, staged: Mapping[str, str]) -> list[str]:
    """Return the driver's command line until the end of the phase, with directories of the script."""
    address, *_, database = next(entry for entry in result.trial.deployment.databases() if str(entry[0]) == target)
    scripts = tuple(Script(source=f"{_WORK}/{staged[s.source]}", weight=s.weight) if s.source in staged else s for s in load.scripts)
    endpoint = Endpoint(
        target=target,
        bin=_BIN,
        host=f"{_WORK}/{address.container}.{address.server}",
        port=5432,
        database=database.connection,
        user=instance.SUPERUSER,
        output=f"{_WORK}/clients/{number}",
        scale=database.scale,
    )
    argv = driver_named(load.driver).argv(load.model_copy(update={"scripts": scripts}), endpoint, ceil(phase.warmup + phase.seconds))
    return [*CHRT_BATCH, *argv] if load.sched_batch else argv


def _initial_memory(host: Host, record: RunRecord) -> int | None:
    """Return the bytes until the servers are warm. A run with private swap reduces its memory only then."""
    environment = record.environment
    return environment.memory if environment is not None and _is_reduced(host, record) else host.memory


def _reduce_memory(host: Host, record: RunRecord) -> Iterator[str]:
    """Yield the steps after the servers are warm."""
    if _is_reduced(host, record):
        yield "# All servers are warm: reduce the memory."
        yield f"group '' '' {host.memory} ''"
        yield ""


def _is_reduced(host: Host, record: RunRecord) -> bool:
    environment = record.environment
    if environment is None or environment.swap is None or environment.swap.kind == "none" or environment.runtime != "cgroup":
        return False
    return host.memory is not None and host.memory < environment.memory


def of_one_host(result: TrialResult) -> tuple[TrialResult, str]:
    """Return the part of the first host with servers and a sentence about it, or the trial and '' for a trial on one host.

    Raises UsageError if clients ran on another host than their servers, because no host's part is the trial then.
    """
    trial = result.trial
    remote = {load.host: target.split("/")[0] for phase in trial.phases for target, load in phase.loads.items() if load.host is not None}
    if remote:
        client, server = next(iter(remote.items()))
        raise UsageError(
            f"trial {result.id} cannot be repeated by a script, which runs on one host: its clients were on host {client}, its server on "
            f"{server}, reached over TLS with a temporary password. Run the study without --client-host to get a script"
        )
    used_hosts = [host for host in trial.deployment.hosts if host.containers]
    if len(used_hosts) < 2:
        hosts = tuple(used_hosts) or trial.deployment.hosts
        deployment = trial.deployment.model_copy(update={"hosts": hosts[:1]})
        return result.model_copy(update={"trial": trial.model_copy(update={"deployment": deployment})}), ""
    first = used_hosts[0]

    def is_local(target: str) -> bool:
        return target.startswith(f"{first.name}/")

    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host in (None, first.name))
    deployment = trial.deployment.model_copy(update={"hosts": (first,), "volumes": volumes})
    planned = tuple(
        phase.model_copy(update={"loads": {t: load for t, load in phase.loads.items() if is_local(t)}}) for phase in trial.phases
    )
    measured = [phase.model_copy(update={"targets": [t for t in phase.targets if is_local(t.target)]}) for phase in result.phases]
    local_trial = trial.model_copy(update={"deployment": deployment, "phases": planned})
    names = ", ".join(host.name for host in used_hosts)
    note = f"In the run {len(used_hosts)} hosts did this at the same time: {names}. This is the part of {first.name}."
    return result.model_copy(update={"trial": local_trial, "phases": measured}), note
