"""A trial as a shell script that repeats it with PostgreSQL and pgbench only.

The functions of the script are the files of ``report/repeat``, equal for every trial. The trial follows as one call per step. Arguments
and settings of PostgreSQL's programs come from the code that ran the trial: initdb's arguments, settings, data loading, the statement
that warms a database, and pgbench's command line.

The script does not sample, check or compute a common window: pgbench reports its complete run, warm-up included. The CPUs of a container
are not recorded, so the script uses the first ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count
from math import ceil
from pathlib import Path, PurePath

from pgherd.drivers import registry as drivers
from pgherd.drivers.driver import Endpoint
from pgherd.host.cgroups import quota_us
from pgherd.model.deployment import Database, Host, Server
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.postgres import configuration, huge_pages, instance
from pgherd.postgres.clones import PREWARM
from pgherd.postgres.golden import LOADING
from pgherd.report import repro_external, repro_tools, repro_volumes
from pgherd.report.formatting import shell_comment
from pgherd.runtimes.runtime import Placement
from pgherd.study.registry import studies
from pgherd.workloads import shipped
from pgherd.workloads.pgbench import load_arguments as pgbench_arguments
from pgherd.workloads.script import load_arguments as psql_arguments

# Stand for the script's variables in words that other code makes; no word of a command line can hold a NUL.
_BIN, _WORK = "\0BIN\0", "\0WORK\0"
_VARIABLES = {_BIN: '"$BIN"', _WORK: '"$work"'}
_Contents = tuple[tuple[Database, ...], bool | None]
"""What a loaded cluster holds: databases, and whether its pages have checksums."""
_THERE_ALREADY = ("postgres", "template1")


@dataclass(frozen=True)
class _Room:
    """Where a container's processes run, as the script's ``enter`` wants it."""

    group: str
    cpus: str


def script(result: TrialResult, record: RunRecord, inputs: Path | None = None) -> str:
    """The script for one trial of a run; where several hosts did the same at the same time, for the first of them. ``inputs`` is where
    copies of the user's files lie now (the run may have moved).

    Raises:
        UsageError: the trial needs more than PostgreSQL and pgbench, or its clients were on another host than its servers.
    """
    trial = result.trial
    if repro_external.uses_external_servers(result):
        return repro_external.script(result, record, {name: _kept(name, inputs) for name in _files(result)})
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
    _insist_plain(result, servers)
    host = trial.deployment.hosts[0]
    rooms = _rooms(host, record)
    grouped = any(room.group != "-" for room in rooms.values())
    loaded = _loaded(servers)
    files = {name: _kept(name, inputs) for name in _files(result)}
    parts: list[Iterable[str]] = [
        _head(result, record, servers[0]),
        [shell_comment(together), ""] if together else [],
        [_functions("base")],
        [_functions("groups")] if grouped else [],
        [_functions("pages")] if any(_pages("", server) for server in servers) else [],
        [_functions("volumes")] if any(server.volumes or server.tablespaces for server in servers) else [],
        ["# ==== The trial", ""],
        repro_volumes.default_lines(trial.deployment),
        _groups(host, record) if grouped else [],
        ["prewarm=$(", "cat <<'END'", PREWARM, "END", ")", ""],
        *(_load(name, server, trial.probe, files) for name, server in loaded.values()),
    ]
    if trial.phases:
        parts += [repro_volumes.relations_lines(servers), _start(host, rooms, loaded), _reduce_memory(host, record)]
        parts += [_checkpoints(result), *_phases(result, rooms, files)]
    text = "\n".join(line for part in parts for line in part) + "\n"
    if "\0" in text:
        raise UsageError(f"trial {result.id} cannot be repeated by a script: it holds a NUL character")
    return text


def _insist_plain(result: TrialResult, servers: list[Server]) -> None:
    deployment, trial = result.trial.deployment, result.trial
    runtimes = {str(container.runtime) for _, container in deployment.containers()}
    used = {load.driver for phase in trial.phases for load in phase.loads.values()}
    turns = any(phase.turns is not None for phase in trial.phases)
    found = []
    if "external" in runtimes:
        dsns = ", ".join(dict.fromkeys(str(server.dsn) for server in servers if server.dsn))
        found.append(f"its server ({dsns}) is somebody else's, and such a script makes servers of its own (run pgbench on that one)")
    if other := sorted(runtimes - {"process", "cgroup", "external"}):
        found.append(f"it needs the runtime {', '.join(other)}")
    if not servers:
        found.append("it has no server")
    if len({(server.bin, server.version) for server in servers if server.dsn is None}) > 1:
        one = " (of variants by turns; with --arms one-at-a-time each trial has one server)" if turns else ""
        found.append(f"its servers are not all of one PostgreSQL{one}")
    if other := sorted(used - {"pgbench"}):
        found.append(f"it needs the driver {', '.join(other)}")
    if trial.probe is not None and _probe_line(trial.probe) is None:
        found.append(f"it is the probe '{trial.probe}'")
    if found:
        raise UsageError(f"trial {result.id} cannot be repeated with PostgreSQL and pgbench alone: {'; '.join(found)}")


def _probe_line(probe: str) -> Callable[[str, str], str] | None:
    """The function that writes a script's line for a probe; None where a script cannot repeat it."""
    study = studies().get(probe)
    line: Callable[[str, str], str] | None = study.hook("probe", "script_line") if study is not None else None
    return line


def _rooms(host: Host, record: RunRecord) -> dict[str, _Room]:
    """Each container's group and CPUs: as the runtime would give them if CPU 0 were the first that it may use."""
    facts = record.hosts.get(host.name)
    available = facts.logical_cpus if facts else ceil(host.cores or 1)
    rooms = {}
    pool = tuple(range(available))
    if host.cores is not None and any(container.runtime == "process" for container in host.containers):
        pool = pool[: max(1, int(host.cores))]
    placement = Placement(pool)
    for container in host.containers:
        cpus = "all" if len(pool) == available else _listed(pool)
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            try:
                cpus = _listed(placement.place(container))
            except CapabilityError:  # it named CPUs of its own
                cpus = _listed(container.cpus or pool)
        rooms[container.name] = _Room(container.name if container.runtime == "cgroup" else "-", cpus)
    return rooms


def _listed(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus))


def _contents(server: Server) -> _Contents:
    return server.databases, server.checksums


def _loaded(servers: list[Server]) -> dict[_Contents, tuple[str, Server]]:
    """One loaded cluster for each set of databases that differs from the others: its name, and a server that has them."""
    found: dict[_Contents, tuple[str, Server]] = {}
    for server in servers:
        found.setdefault(_contents(server), (f"loaded{len(found) + 1}", server))
    return found


def _files(result: TrialResult) -> Iterator[str]:
    """The user's own files."""
    for _, _, _, _, database in result.trial.deployment.databases():
        if database.init is not None:
            yield database.init
    for phase in result.trial.phases:
        for load in phase.loads.values():
            yield from (one.source for one in load.scripts if not one.source.startswith("builtin:"))


def _functions(name: str) -> str:
    return resources.files("pgherd.report").joinpath("repeat", f"{name}.sh").read_text(encoding="utf-8")


def _kept(name: str, inputs: Path | None) -> str:
    """Where the copy of a user's file lies now: below the run's inputs as it lay there before, else where it was."""
    parts = PurePath(name).parts
    below = parts[len(parts) - parts[::-1].index("inputs") :] if "inputs" in parts else parts[-1:]
    for candidate in (PurePath(*below), PurePath(parts[-1])) if inputs and below else ():
        if inputs and (inputs / candidate).is_file():
            return str(inputs / candidate)
    return name


def _head(result: TrialResult, record: RunRecord, server: Server) -> Iterator[str]:
    run_as = record.surroundings.run_as if record.surroundings else None
    yield "#!/bin/sh"
    yield shell_comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with nothing but PostgreSQL and pgbench.")
    yield "#"
    yield "# It loads the databases, copies them for each server of the trial, starts all servers with the trial's settings and limits,"
    yield "# runs the trial's own pgbench command lines, prints each database's transactions per second and their sum, and removes"
    yield "# all that it made. It uses Linux's setpriv, taskset and, for limits, control groups. Below the functions stands the trial."
    yield "#"
    yield "# In the environment: BIN, where PostgreSQL's programs are; ACCOUNT, as whom it runs if root starts this; TMPDIR, a"
    yield "# directory on the disk that is to be used."
    yield from repro_volumes.environment_comments(result.trial.deployment)
    swap = record.surroundings.swap if record.surroundings else None
    if swap is not None:
        yield "#"
        had = "no swap" if swap.kind == "none" else f"{swap.kind} swap of {format_bytes(swap.size)}"
        yield shell_comment(f"In the run these servers had {had}. This script leaves the host's swap as it is: arrange that before.")
    yield "set -eu"
    yield f"VERSION={shlex.quote(server.version)}"
    yield f'[ -n "${{BIN:-}}" ] || BIN={shlex.quote(server.bin)}'
    yield f'[ -n "${{ACCOUNT:-}}" ] || ACCOUNT={shlex.quote(run_as or "nobody")}'
    yield ""


def _groups(host: Host, record: RunRecord) -> Iterator[str]:
    """The host's budget and the containers' limits; version 1 refuses a group more CPU than the group around it has."""
    facts = record.hosts.get(host.name)
    budget = host.cores if host.cores is not None and (facts is None or host.cores < facts.cores) else None
    yield "find_groups || :"
    yield "told"
    yield _group("", None if budget is None else quota_us(budget), _initial_memory(host, record), None)
    for container in host.containers:
        cores = container.vcpus if container.cpu_mode == "quota" else None
        quota = None if cores is None else quota_us(min(cores, budget or cores), container.cpu_period)
        period = round(1e6 * container.cpu_period)
        yield _group(container.name, quota, container.memory, container.weight, *([] if period == 100_000 else [period]))
    yield ""


def _group(name: str, *limits: int | None) -> str:
    return " ".join(["group", *(shlex.quote("" if word is None else str(word)) for word in (name, *limits))])


def _load(name: str, server: Server, probe: str | None, files: Mapping[str, str]) -> Iterator[str]:
    """One cluster with a server's databases, loaded as a golden copy is."""
    major = int(re.match(r"\d+", server.version)[0])  # type: ignore[index]
    yield "# Load once."
    yield f"create {name} {shlex.join(instance.initdb_arguments(major, checksums=server.checksums))}"
    yield from _settings(name, LOADING, name, "Only while it is loaded.")
    yield f"start {name} - all"
    yield f"ready {name}"
    first: dict[tuple[object, ...], str] = {}
    for database in server.databases:
        here = shlex.quote(database.name)
        own = shipped.load_sql(database.workload)
        twin = first.setdefault((own, database.scale, database.partitions, database.init), database.name)
        if twin != database.name:
            yield f"quietly client {name} createdb --template={shlex.quote(twin)} --strategy=file_copy {here}"
            continue
        if database.name not in _THERE_ALREADY:
            yield f"quietly client {name} createdb {here}"
        if own is not None:
            parted = f" --set=partitions={database.partitions}" if database.partitions > 1 else ""
            yield f"quietly client {name} psql {shlex.join(psql_arguments(database.scale))}{parted} {here} <<'SQL'"
            yield own.rstrip("\n")
            yield "SQL"
        elif database.init is None:
            yield f"quietly client {name} pgbench {shlex.join(pgbench_arguments(database.scale, database.partitions))} {here}"
        else:
            source = shlex.quote(files[database.init])
            data = database.init_data
            if data is not None and data.files:  # they are named relative to where the file was
                yield f"cd -- {shlex.quote(data.directory)}"
            yield f"quietly client {name} psql {shlex.join(psql_arguments(database.scale))} {here} <{source}"
            if data is not None and data.files:
                yield 'cd -- "$work"'
        yield f"settle {name} {here}"
        if probe is not None and (line := _probe_line(probe)) is not None:
            yield line(name, here)
    yield f"loaded {name}"
    yield ""


def _settings(name: str, settings: Mapping[str, str], called: str, heading: str) -> Iterator[str]:
    private = {"listen_addresses": "", "port": "5432", "cluster_name": called}
    yield f"settings {name} <<'END'"
    yield configuration.write({**settings, **private}, heading).rstrip("\n")
    yield "END"


def _start(host: Host, rooms: Mapping[str, _Room], loaded: Mapping[_Contents, tuple[str, Server]]) -> Iterator[str]:
    """All servers, those without a load too; then each database is read into shared buffers."""
    pairs = [(container, server) for container in host.containers for server in container.servers]
    yield f"# {len(pairs)} server{'' if len(pairs) == 1 else 's'}; those that get no load were up in the trial too."
    for container, server in pairs:
        name = f"{container.name}.{server.name}"
        yield from repro_volumes.copy_lines(loaded[_contents(server)][0], name, server)
        yield from _settings(name, server.settings, f"{container.name}/{server.name}", "As the trial had it.")
    yield "on_disk"
    for container, server in pairs:
        yield from _pages(f"{container.name}.{server.name}", server)
    for container, server in pairs:
        room = rooms[container.name]
        yield f"start {container.name}.{server.name} {room.group} {room.cpus}"
    for container, server in pairs:
        yield f"ready {container.name}.{server.name}"
    for container, server in pairs:
        yield from repro_volumes.tablespace_lines(f"{container.name}.{server.name}", server)
    for container, server in pairs:
        yield from (f"warm {container.name}.{server.name} {shlex.quote(database.name)}" for database in server.databases)
    yield ""


def _pages(name: str, server: Server) -> list[str]:
    """What is done of the host's huge pages before this server starts."""
    found = []
    if huge_pages.insists(server.settings):
        word = server.settings.get("huge_page_size", "0").strip()
        size = int(word) if word.isdigit() else parse_bytes(word) // 1024
        found.append(f"reserve {name} {size or 'default'}")
    if server.transparent_huge_pages is not None:
        found.append(f"transparent {'always' if server.transparent_huge_pages else 'never'}")
    return found


def _checkpoints(result: TrialResult) -> Iterator[str]:
    """Before a load that writes, so that a timed checkpoint is as far away as it can be."""
    writers = [target for phase in result.trial.phases for target, load in phase.loads.items() if not load.read_only]
    for container, server in dict.fromkeys(tuple(target.split("/")[1:3]) for target in writers):
        yield f"quietly client {container}.{server} psql -qX -d postgres -c CHECKPOINT"


def _phases(result: TrialResult, rooms: Mapping[str, _Room], files: Mapping[str, str]) -> Iterator[Iterable[str]]:
    staged: dict[str, str] = {}
    for number, phase in enumerate(result.trial.phases):
        measured = result.phases[number] if number < len(result.phases) else None
        yield _phase(phase, measured, result, rooms, files, staged)


def _phase(
    phase: Phase,
    measured: PhaseResult | None,
    result: TrialResult,
    rooms: Mapping[str, _Room],
    files: Mapping[str, str],
    staged: dict[str, str],
) -> Iterator[str]:
    yield shell_comment(f"Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s that pgherd measured.")
    if phase.turns is not None:
        yield f"# The loads took turns of {phase.turns.seconds:g} s: the others were stopped. Here each has its time in one piece."
        for name in phase.turns.of:
            targets = phase.turns.targets(name, phase.loads)
            alone = {"loads": {target: phase.loads[target] for target in targets}, "seconds": phase.seconds / len(phase.turns.of)}
            of_side = None if measured is None else [target for target in measured.targets if target.target in targets]
            yield f"echo {shlex.quote(f'{name}:')}"
            yield from _loads(phase.model_copy(update={**alone, "turns": None}), of_side, result, rooms, files, staged)
        return
    if len(result.trial.phases) > 1:
        yield f"echo {shlex.quote(f'phase {phase.name}:')}"
    yield from _loads(phase, None if measured is None else measured.targets, result, rooms, files, staged)


def _loads(
    phase: Phase,
    measured: Sequence[TargetResult] | None,
    result: TrialResult,
    rooms: Mapping[str, _Room],
    files: Mapping[str, str],
    staged: dict[str, str],
) -> Iterator[str]:
    if measured is not None:
        yield f"# In these it counted {sum(target.throughput for target in measured):.1f} transactions per second in all."
    calls = []
    numbers = count(1)
    for target, load in phase.loads.items():
        for one in load.scripts:
            if not one.source.startswith("builtin:") and one.source not in staged:
                staged[one.source] = f"script-{len(staged) + 1}.sql"
                yield f"take {shlex.quote(files[one.source])} {staged[one.source]}"
        room = rooms[target.split("/")[1]] if load.place == "inside" else _Room("-", "all")
        number = f"{next(numbers):03d}"
        words = " ".join(_quoted(word) for word in _argv(number, target, load, phase, result, staged))
        calls.append(f"run {number} {shlex.quote(target)} {room.group} {room.cpus} {words}")
    yield from calls
    yield "report"


def _argv(number: str, target: str, load: Load, phase: Phase, result: TrialResult, staged: Mapping[str, str]) -> list[str]:
    """The driver's own argv, with the script's directories where pgherd had its own, and to the end of the phase."""
    place, *_, database = next(found for found in result.trial.deployment.databases() if str(found[0]) == target)
    scripts = tuple(Script(source=f"{_WORK}/{staged[s.source]}", weight=s.weight) if s.source in staged else s for s in load.scripts)
    endpoint = Endpoint(
        target=target,
        bin=_BIN,
        host=f"{_WORK}/{place.container}.{place.server}",
        port=5432,
        database=place.database,
        user=instance.SUPERUSER,
        output=f"{_WORK}/clients/{number}",
        scale=database.scale,
    )
    return drivers.driver(load.driver).argv(load.model_copy(update={"scripts": scripts}), endpoint, ceil(phase.ramp + phase.seconds))


def _quoted(word: str) -> str:
    """A word for the shell, with its variables where the placeholders stand."""
    pieces = re.split(f"({_BIN}|{_WORK})", word)
    return "".join(_VARIABLES.get(piece) or shlex.quote(piece) for piece in pieces if piece) or "''"


def _initial_memory(host: Host, record: RunRecord) -> int | None:
    """Bytes until the servers are warm: the run's whole where the rest is taken away only then, as with swap of the run's own."""
    around = record.surroundings
    return around.memory if around is not None and _is_reduced(host, record) else host.memory


def _reduce_memory(host: Host, record: RunRecord) -> Iterator[str]:
    """What follows once the servers are warm."""
    if _is_reduced(host, record):
        yield "# All are warm: memory is taken away."
        yield f"group '' '' {host.memory} ''"
        yield ""


def _is_reduced(host: Host, record: RunRecord) -> bool:
    around = record.surroundings
    if around is None or around.swap is None or around.swap.kind == "none" or around.runtime != "cgroup":
        return False
    return host.memory is not None and host.memory < around.memory


def of_one_host(result: TrialResult) -> tuple[TrialResult, str]:
    """The part of the first host that had servers, and a sentence that says so; the trial itself and '' where it ran on one host.

    Raises UsageError when clients ran on another host than their servers: then no host's part is the trial.
    """
    trial = result.trial
    away = {load.host: target.split("/")[0] for phase in trial.phases for target, load in phase.loads.items() if load.host is not None}
    if away:
        client, server = next(iter(away.items()))
        raise UsageError(
            f"trial {result.id} cannot be repeated by a script, which runs on one host: its clients were on host {client}, its server on "
            f"{server}, reached over TLS with a password made for the run. Run the study without --client-host to have a script of it"
        )
    used = [host for host in trial.deployment.hosts if host.containers]
    if len(used) < 2:
        hosts = tuple(used) or trial.deployment.hosts
        deployment = trial.deployment.model_copy(update={"hosts": hosts[:1]})
        return result.model_copy(update={"trial": trial.model_copy(update={"deployment": deployment})}), ""
    own = used[0]

    def here(target: str) -> bool:
        return target.startswith(f"{own.name}/")

    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host in (None, own.name))
    deployment = trial.deployment.model_copy(update={"hosts": (own,), "volumes": volumes})
    planned = tuple(one.model_copy(update={"loads": {t: load for t, load in one.loads.items() if here(t)}}) for one in trial.phases)
    measured = [one.model_copy(update={"targets": [t for t in one.targets if here(t.target)]}) for one in result.phases]
    alone = trial.model_copy(update={"deployment": deployment, "phases": planned})
    said = f"In the run {len(used)} hosts did this at the same time: {', '.join(host.name for host in used)}. This is what {own.name} did."
    return result.model_copy(update={"trial": alone, "phases": measured}), said
